"""Jinja for the pages: everything escaped, undefined names refused, words from the catalogues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import InternationalizationExtension
from markupsafe import Markup

from chimes.i18n import Message, _, in_language
from chimes.language.description import describe
from chimes.redaction import masked_result
from chimes.retelling import retold, retold_line
from chimes.triggers import Trigger
from chimes.web.dashboard.core import locale as speaking
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.assets import asset_address
from chimes.web.dashboard.core.locale import reader
from chimes.web.dashboard.core.preferences import by_clock

# @@ What the audit notes, in words; the word itself stays for those who search by it.

#: Every verb that is written, as what was done (or was tried and refused).
VERBS: Mapping[str, Message] = {
    "auth_failed": _("came without a key that is known"),
    "backfill": _("made up for times that had passed"),
    "cancel": _("asked a run to stop"),
    "change_password": _("set another password"),
    "change_role": _("gave another role"),
    "create": _("made a schedule"),
    "create_key": _("made a key"),
    "create_user": _("made a user"),
    "delete": _("deleted a schedule"),
    "done": _("pressed Done"),
    "drain": _("asked a node to take nothing new"),
    "end_session": _("ended a sign-in"),
    "forget": _("forgot a node"),
    "load_demo": _("loaded the examples"),
    "mark_known": _("marked a failure as known"),
    "move": _("moved the next run"),
    "pause": _("paused a schedule"),
    "refused": _("tried what is not allowed"),
    "regress": _("found that the store had lost changes"),
    "reload_sources": _("read the file of sources again"),
    "remove_demo": _("removed the examples"),
    "remove_filter": _("removed a saved filter"),
    "remove_user": _("removed a user"),
    "rename_filter": _("renamed a saved filter"),
    "reschedule": _("set another next time"),
    "restore": _("brought a schedule back"),
    "resume": _("had it go on"),
    "retry": _("had it done once more"),
    "revoke_key": _("revoked a key"),
    "run": _("asked for a run"),
    "save_filter": _("saved a filter"),
    "sign_in": _("signed in"),
    "sign_out": _("signed out"),
    "skip": _("left out the next run"),
    "snooze": _("put a sign under Needs attention off"),
    "start": _("asked for a run without a schedule"),
    "telegram_code": _("asked for a code to connect Telegram"),
    "telegram_command": _("sent a command by Telegram"),
    "telegram_link": _("connected a chat"),
    "telegram_test": _("sent a test to a chat"),
    "telegram_unlink": _("disconnected a chat"),
    "test": _("sent a test message"),
    "unmark_known": _("took back that a failure is known"),
    "update": _("changed a schedule"),
    "update_preferences": _("changed preferences"),
    "wake": _("wanted to see a sign under Needs attention again"),
}
#: What it was done to.
KINDS: Mapping[str, Message] = {
    "access": _("access"),
    "chat": _("chat"),
    "delivery": _("message"),
    "demo": _("examples"),
    "file": _("file"),
    "key": _("key"),
    "node": _("node"),
    "owner": _("owner"),
    "request": _("request"),
    "run": _("run"),
    "schedule": _("schedule"),
    "session": _("sign-in"),
    "store": _("store"),
    "user": _("user"),
}


def verb_in_words(verb: str) -> str:
    """Of a verb that an older or newer release wrote, the verb."""
    return VERBS.get(verb, verb)


def kind_in_words(kind: str) -> str:
    return KINDS.get(kind, kind)


_FOLDER = Path(__file__).parents[1] / "templates"


@cache
def environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n", "jinja2.ext.do"],
        auto_reload=False,
    )
    # Newstyle: `_("…%(name)s…", name=value)` fills in and escapes. By functions of our own: those
    # of the extension copy the context for every word in a loop, to ask whether to escape.
    install = env.extensions[InternationalizationExtension.identifier]
    assert isinstance(install, InternationalizationExtension)
    install._install_callables(speaking.gettext, speaking.ngettext, newstyle=True)
    env.globals.update({"_": _gettext, "gettext": _gettext, "ngettext": _ngettext})
    env.policies["ext.i18n.trimmed"] = True
    env.globals.update(
        moment=_moment,
        asset=asset_address,
        look=lambda: reader().look,
        now=lambda: reader().now,
        json_data=json_data,
    )
    env.filters.update(
        span=_span,
        window_name=_window_name,
        number=_number,
        percent=_percent,
        size=_size,
        said=_said,
        verb_words=lambda verb: _said(verb_in_words(verb)),
        kind_words=lambda kind: _said(kind_in_words(kind)),
        retold=_retold,
        retold_line=_retold_line,
        words=_words,
        absolute=_absolute,
        relative=_relative,
        named=accessible_name,
        masked=masked_result,
    )
    return env


def rendered(template: str, values: Mapping[str, object]) -> str:
    """Within `speaking_to`."""
    return environment().get_template(template).render(values)


def block_rendered(template: str, block: str, values: Mapping[str, object]) -> str:
    """One `{% block %}` of a page by itself: what htmx asks for again."""
    found = environment().get_template(template)
    return "".join(found.blocks[block](found.new_context(dict(values))))


def json_data(value: object) -> Markup:
    """For `<script type="application/json">`: nothing in it can end the element (S47)."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # noqa: S704 - every sign that could end the element is gone


def accessible_name(shown: str, title: str) -> str:
    """What a button is called where its title says more: what is shown on it is part of that, in
    whatever order a language puts its words (WCAG 2.5.3). A sign says nothing by itself."""
    if shown.casefold() in title.casefold() or not any(sign.isalnum() for sign in shown):
        return title
    return f"{shown}: {title}"


def _gettext(text: str, /, **values: object) -> Markup:
    return _escaped(speaking.gettext(text), values)


def _ngettext(one: str, many: str, number: int, /, **values: object) -> Markup:
    return _escaped(speaking.ngettext(one, many, number), {"num": number} | values)


def _escaped(text: str, values: Mapping[str, object]) -> Markup:
    """Our own words are safe, what is filled in is not."""
    if values:
        return Markup(text) % values  # noqa: S704 - the text is ours
    return Markup(text % values)  # noqa: S704 - the text is ours


def _moment(
    moment: datetime | None,
    zone: str | None = None,
    *,
    seconds: bool = False,
    distance: bool = True,
) -> Markup:
    who = reader()
    return times.moment_html(
        moment, who.look, now=who.now, zone=zone, seconds=seconds, distance=distance
    )


def _span(length: timedelta | float | None) -> str:
    return times.span(length, reader().look.language)


def _window_name(name: str) -> str:
    return times.window_name(name, reader().look.language)


def _number(value: float) -> str:
    return times.number(value, reader().look.language)


def _percent(share: float) -> str:
    return times.percent(share, reader().look.language)


def _size(count: float) -> str:
    return times.size(count, reader().look.language)


def _said(text: str) -> str:
    """A sentence made by `say`, in the reader's language; what people wrote stays as it is."""
    return in_language(text, reader().look.language)


def _retold(text: str) -> str:
    """A stored sentence of ours, in the reader's language."""
    return retold(text, reader().look.language)


def _retold_line(text: str) -> str:
    return retold_line(text, reader().look.language)


def _words(trigger: Trigger) -> str:
    """When, in words."""
    return describe(trigger, reader().look.language)


def _absolute(moment: datetime, zone: str | None = None, *, seconds: bool = False) -> str:
    who = reader()
    return times.absolute(moment, by_clock(who.look, zone), who.look, now=who.now, seconds=seconds)


def _relative(moment: datetime) -> str:
    who = reader()
    return times.relative(moment, who.now, who.look.language)
