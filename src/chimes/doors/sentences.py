"""Sentences that say when, read for a door."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chimes.language import Parsed

_GRAMMAR = "chimes.language.parsing"


async def parsed(text: str, *, now: datetime, timezone: str, lang: str | None) -> Parsed:
    """As `chimes.language.parse`. The grammars of three languages are loaded with the first
    sentence, because most nodes never read one; in a thread, because that takes longer than a
    schedule may be late."""
    if _GRAMMAR not in sys.modules:
        await asyncio.to_thread(_load)
    from chimes.language import parse

    return parse(text, now=now, timezone=timezone, lang=lang)


def _load() -> None:
    import chimes.language.parsing  # noqa: F401
