"""Jinja environment of the pages: autoescaping, strict undefined names, translations."""

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
from chimes.redaction import mask_result
from chimes.triggers import Trigger
from chimes.web.dashboard.core import locale, times
from chimes.web.dashboard.core.assets import asset_address
from chimes.web.dashboard.core.locale import current_viewer
from chimes.web.dashboard.core.preferences import primary_zone

#: Labels of the audit verbs, whether the action succeeded or was denied.
VERB_LABELS: Mapping[str, Message] = {
    "auth_failed": _("failed to authenticate"),
    "backfill": _("backfilled a schedule"),
    "cancel": _("canceled a run"),
    "change_password": _("changed a password"),
    "change_role": _("changed a role"),
    "create": _("created a schedule"),
    "create_key": _("created a key"),
    "create_user": _("created a user"),
    "delete": _("deleted a schedule"),
    "done": _("pressed Done"),
    "drain": _("drained a node"),
    "end_session": _("ended a session"),
    "forget": _("forgot a node"),
    "load_demo": _("loaded the demo"),
    "mark_known": _("marked a failure as known"),
    "move": _("moved the next run"),
    "pause": _("paused a schedule"),
    "refused": _("tried an action that is not allowed"),
    "regress": _("detected that the store had lost changes"),
    "reload_sources": _("reloaded the sources file"),
    "remove_demo": _("removed the demo"),
    "remove_filter": _("removed a saved filter"),
    "remove_user": _("removed a user"),
    "rename_filter": _("renamed a saved filter"),
    "reschedule": _("rescheduled the next run"),
    "restore": _("restored a schedule"),
    "resume": _("resumed a schedule"),
    "retry": _("retried a run"),
    "revoke_key": _("revoked a key"),
    "run": _("requested a run"),
    "save_filter": _("saved a filter"),
    "sign_in": _("signed in"),
    "sign_out": _("signed out"),
    "skip": _("skipped the next run"),
    "snooze": _("snoozed a warning"),
    "start": _("requested a run without a schedule"),
    "telegram_code": _("requested a code to link Telegram"),
    "telegram_command": _("sent a command by Telegram"),
    "telegram_link": _("linked a chat"),
    "telegram_test": _("sent a test message to a chat"),
    "telegram_unlink": _("unlinked a chat"),
    "test": _("sent a test message"),
    "unmark_known": _("unmarked a known failure"),
    "update": _("changed a schedule"),
    "update_preferences": _("changed preferences"),
    "wake": _("unsnoozed a warning"),
}
#: Labels of the kinds of audited objects.
KIND_LABELS: Mapping[str, Message] = {
    "access": _("access"),
    "chat": _("chat"),
    "delivery": _("message"),
    "demo": _("demo"),
    "file": _("file"),
    "key": _("key"),
    "node": _("node"),
    "owner": _("owner"),
    "request": _("request"),
    "run": _("run"),
    "schedule": _("schedule"),
    "session": _("session"),
    "store": _("store"),
    "user": _("user"),
}


def verb_label(verb: str) -> str:
    """The verb itself if another release wrote it and it has no label."""
    return VERB_LABELS.get(verb, verb)


def kind_label(kind: str) -> str:
    return KIND_LABELS.get(kind, kind)


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
    # Newstyle: `_("…%(name)s…", name=value)` fills in and escapes. Own functions, because those of
    # the extension copy the context with every call to find out whether to escape.
    i18n = env.extensions[InternationalizationExtension.identifier]
    assert isinstance(i18n, InternationalizationExtension)
    i18n._install_callables(locale.gettext, locale.ngettext, newstyle=True)
    env.globals.update({"_": _gettext, "gettext": _gettext, "ngettext": _ngettext})
    env.policies["ext.i18n.trimmed"] = True
    env.globals.update(
        moment=_moment,
        asset=asset_address,
        display=lambda: current_viewer().display,
        now=lambda: current_viewer().now,
        json_data=json_data,
    )
    env.filters.update(
        span=_span,
        window_name=_window_name,
        number=_number,
        percent=_percent,
        size=_size,
        translate=_translate,
        verb_label=lambda verb: _translate(verb_label(verb)),
        kind_label=lambda kind: _translate(kind_label(kind)),
        describe=_describe,
        absolute=_absolute,
        relative=_relative,
        accessible_name=accessible_name,
        masked=mask_result,
    )
    return env


def render_template(template: str, values: Mapping[str, object]) -> str:
    """Needs an active `viewer_context`."""
    return environment().get_template(template).render(values)


def render_template_block(template: str, block: str, values: Mapping[str, object]) -> str:
    """One `{% block %}` of a page, for htmx."""
    page = environment().get_template(template)
    return "".join(page.blocks[block](page.new_context(dict(values))))


def json_data(value: object) -> Markup:
    """For `<script type="application/json">`: nothing in it can close the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)  # noqa: S704 - characters that could close the element are escaped


def accessible_name(shown: str, title: str) -> str:
    """The aria-label of a button whose title says more than its visible text. It contains the
    visible text (WCAG 2.5.3), unless that is only a symbol."""
    if shown.casefold() in title.casefold() or not any(char.isalnum() for char in shown):
        return title
    return f"{shown}: {title}"


def _gettext(text: str, /, **values: object) -> Markup:
    return _escaped(locale.gettext(text), values)


def _ngettext(one: str, many: str, number: int, /, **values: object) -> Markup:
    return _escaped(locale.ngettext(one, many, number), {"num": number} | values)


def _escaped(text: str, values: Mapping[str, object]) -> Markup:
    """Escapes the values; the catalogue texts are trusted."""
    if values:
        return Markup(text) % values  # noqa: S704 - from the catalogue
    return Markup(text % values)  # noqa: S704 - from the catalogue


def _moment(
    moment: datetime | None,
    zone: str | None = None,
    *,
    seconds: bool = False,
    distance: bool = True,
) -> Markup:
    viewer = current_viewer()
    return times.moment_html(
        moment, viewer.display, now=viewer.now, zone=zone, seconds=seconds, distance=distance
    )


def _span(length: timedelta | float | None) -> str:
    return times.span(length, current_viewer().display.language)


def _window_name(name: str) -> str:
    return times.window_name(name, current_viewer().display.language)


def _number(value: float) -> str:
    return times.number(value, current_viewer().display.language)


def _percent(share: float) -> str:
    return times.percent(share, current_viewer().display.language)


def _size(count: float) -> str:
    return times.size(count, current_viewer().display.language)


def _translate(text: str) -> str:
    """A Message in the viewer's language; plain strings are returned unchanged."""
    return in_language(text, current_viewer().display.language)


def _describe(trigger: Trigger) -> str:
    """The trigger in words."""
    return describe(trigger, current_viewer().display.language)


def _absolute(moment: datetime, zone: str | None = None, *, seconds: bool = False) -> str:
    viewer = current_viewer()
    return times.absolute(
        moment, primary_zone(viewer.display, zone), viewer.display, now=viewer.now, seconds=seconds
    )


def _relative(moment: datetime) -> str:
    viewer = current_viewer()
    return times.relative(moment, viewer.now, viewer.display.language)
