"""Why a phrase cannot be taken as it is; becomes a NeedsClarification at the door of `parse`."""

from __future__ import annotations

from chimes.language.parsing.parts import Missing


class Ask(Exception):
    """Something must be asked. `words` are what could not be read, in the folded text."""

    def __init__(self, *missing: Missing, words: str = "") -> None:
        super().__init__(*missing)
        self.missing = missing
        self.words = words
