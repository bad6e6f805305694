"""Words for triggers: what a schedule will do, told to a person, and what a person asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chimes.language.languages import LANGUAGES

if TYPE_CHECKING:
    from chimes.language.description import (
        describe,
        note_in_words,
        remark,
        short_weekday,
        warnings_in_words,
    )
    from chimes.language.parser import Parsed, Told, parse, read_trigger


__all__ = [
    "LANGUAGES",
    "Parsed",
    "Told",
    "describe",
    "note_in_words",
    "parse",
    "read_trigger",
    "remark",
    "short_weekday",
    "warnings_in_words",
]


def __getattr__(name: str) -> object:
    """Loaded when it is asked for: each command chooses its language, and most of them neither
    read nor describe a trigger."""
    if name in ("Parsed", "Told", "parse", "read_trigger"):
        from chimes.language import parser as parsing

        return getattr(parsing, name)
    if name in __all__:
        from chimes.language import description as describing

        return getattr(describing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
