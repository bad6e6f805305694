"""Words for triggers: what a schedule will do, told to a person, and what a person asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chimes.language.choosing import LANGUAGES
from chimes.language.describe import (
    describe,
    note_in_words,
    remark,
    short_weekday,
    warnings_in_words,
)

if TYPE_CHECKING:
    from chimes.language.parsing import Parsed, parse, read_trigger

__all__ = [
    "LANGUAGES",
    "Parsed",
    "describe",
    "note_in_words",
    "parse",
    "read_trigger",
    "remark",
    "short_weekday",
    "warnings_in_words",
]


def __getattr__(name: str) -> object:
    """The grammar is loaded when it is asked for: most commands never read words."""
    if name in ("Parsed", "parse", "read_trigger"):
        from chimes.language import parsing

        return getattr(parsing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
