"""Why a phrase cannot be taken as it is; becomes a NeedsClarification at the door of `parse`."""

from __future__ import annotations

from chimes.language.parsing.parts import Choice, Missing


class Ask(Exception):
    """Something must be asked.

    `words` are what could not be read, in the folded text; `readings` the times that an hour may
    be; `choice` what else there is to choose. `place`: where in the folded text a time would answer
    it.
    """

    def __init__(
        self,
        *missing: Missing,
        words: str = "",
        readings: tuple[str, ...] = (),
        choice: Choice | None = None,
    ) -> None:
        super().__init__(*missing)
        self.missing = missing
        self.words = words
        self.readings = readings
        self.choice = choice
        self.place: tuple[int, int] | None = None
