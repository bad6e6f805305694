"""The viewer of the page that is being rendered, and translations into the viewer's language.

A context variable, so that every macro and filter finds language and time zone without a
parameter. Rendering is synchronous.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from gettext import NullTranslations

from chimes.i18n import ENGLISH, catalogue
from chimes.web.dashboard.core.preferences import DisplayPreferences


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
