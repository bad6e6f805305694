"""Rendering of pages: the viewer, static assets and the Jinja environment.

The viewer is a context variable, so that every macro and filter finds language and time zone
without a parameter. Rendering is synchronous. Assets are compressed once, and cached by browsers
for a year under a URL with their hash.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from gettext import NullTranslations
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import InternationalizationExtension
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from chimes.errors import NotFound
from chimes.i18n import ENGLISH, catalogue, in_language
from chimes.language.description import describe
from chimes.redaction import mask_result
from chimes.triggers import Trigger
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.audit import kind_label, verb_label
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone

_TEMPLATES = Path(__file__).parents[1] / "templates"
_STATIC = Path(__file__).parents[1] / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
_IMMUTABLE = "public, max-age=31536000, immutable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asset:
    address: str
    kind: str
    content: bytes
    compressed: bytes


@cache
def assets() -> dict[str, Asset]:
    """By name, such as `vendor/htmx.js`. Requests read from this dict, never from a path."""
    found = {}
    for path in sorted(_STATIC.rglob("*")):
        kind = _TYPES.get(path.suffix)
        if kind is None or not path.is_file():
            continue
        name, content = path.relative_to(_STATIC).as_posix(), path.read_bytes()
        mark = hashlib.sha256(content).hexdigest()[:12]
        found[name] = Asset(
            address=f"/ui/static/{mark}/{name}",
            kind=kind,
            content=content,
            compressed=gzip.compress(content, 9, mtime=0),
        )
    return found


def asset_address(name: str) -> str:
    return assets()[name].address


async def serve_asset(request: Request) -> Response:
    """A URL with an outdated hash gets the current file, uncached."""
    found = assets().get(request.path_params["name"])
    if found is None:
        raise NotFound()
    is_current = found.address == request.url.path
    headers = {
        "Cache-Control": _IMMUTABLE if is_current else "no-cache",
        "Vary": "Accept-Encoding",
    }
    if accepts_gzip(request):
        headers["Content-Encoding"] = "gzip"
        return Response(found.compressed, media_type=found.kind, headers=headers)
    return Response(found.content, media_type=found.kind, headers=headers)


def accepts_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


# --- the viewer -----------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Viewer:
    display: DisplayPreferences
    now: datetime


_viewer: ContextVar[Viewer] = ContextVar("chimes_viewer")


@contextmanager
def viewer_context(display: DisplayPreferences, now: datetime) -> Iterator[None]:
    token = _viewer.set(Viewer(display=display, now=now))
    try:
        yield
    finally:
        _viewer.reset(token)


def current_viewer() -> Viewer:
    return _viewer.get()


@cache
def translations(language: str) -> NullTranslations:
    if language == ENGLISH:
        return NullTranslations()
    try:
        return catalogue(language)
    except FileNotFoundError:
        # The catalogues of this checkout were not compiled.
        return NullTranslations()


def gettext(text: str) -> str:
    return translations(current_viewer().display.language).gettext(text)


def ngettext(one: str, many: str, count: int) -> str:
    return translations(current_viewer().display.language).ngettext(one, many, count)


# --- templates ------------------------------------------------------------------------------------
@cache
def environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(_TEMPLATES),
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
    i18n._install_callables(gettext, ngettext, newstyle=True)
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
    return _escaped(gettext(text), values)


def _ngettext(one: str, many: str, number: int, /, **values: object) -> Markup:
    return _escaped(ngettext(one, many, number), {"num": number} | values)


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
