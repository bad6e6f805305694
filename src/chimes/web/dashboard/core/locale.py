"""For whom a page is being made: set while a template is rendered, so that every macro and filter
speaks the reader's language without being told each time. Rendering never waits."""

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
class Reader:
    look: DisplayPreferences
    now: datetime


_reader: ContextVar[Reader] = ContextVar("chimes_reader")


@contextmanager
def speaking_to(look: DisplayPreferences, now: datetime) -> Iterator[None]:
    token = _reader.set(Reader(look=look, now=now))
    try:
        yield
    finally:
        _reader.reset(token)


def reader() -> Reader:
    return _reader.get()


@cache
def translations(language: str) -> NullTranslations:
    if language == ENGLISH:
        return NullTranslations()
    try:
        return catalogue(language)
    except FileNotFoundError:
        # A checkout whose catalogues were not compiled still has pages.
        return NullTranslations()


def gettext(text: str) -> str:
    return translations(reader().look.language).gettext(text)


def ngettext(one: str, many: str, count: int) -> str:
    return translations(reader().look.language).ngettext(one, many, count)
