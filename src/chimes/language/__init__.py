"""Natural language: describes triggers in words and parses words into triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chimes.language.languages import LANGUAGES

if TYPE_CHECKING:
    from chimes.language.description import (
        describe,
        note_in_words,
        short_weekday,
        warning_line,
        warnings_in_words,
    )
    from chimes.language.parser import NamedRecipient, Parsed, parse, read_trigger


__all__ = [
    "LANGUAGES",
    "NamedRecipient",
    "Parsed",
    "describe",
    "note_in_words",
    "parse",
    "read_trigger",
    "short_weekday",
    "warning_line",
    "warnings_in_words",
]


def __getattr__(name: str) -> object:
    """Imports on first use: most commands neither parse nor describe a trigger."""
    if name in ("Parsed", "NamedRecipient", "parse", "read_trigger"):
        from chimes.language import parser

        return getattr(parser, name)
    if name in __all__:
        from chimes.language import description

        return getattr(description, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
