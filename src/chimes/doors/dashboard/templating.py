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

from chimes.doors.dashboard import speaking, times
from chimes.doors.dashboard.assets import asset_address
from chimes.doors.dashboard.look import by_clock
from chimes.doors.dashboard.speaking import reader
from chimes.doors.dashboard.views_audit_words import kind_in_words, verb_in_words
from chimes.language.describing import describe
from chimes.redaction import masked_result
from chimes.retelling import retold, retold_line
from chimes.triggers import Trigger
from chimes.wording import in_language

_FOLDER = Path(__file__).parent / "templates"


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
