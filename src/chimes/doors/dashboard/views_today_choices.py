"""What somebody has chosen to see in the two pictures of Today; it is in the address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import urlencode

from chimes.doors.dashboard.look import Look, by_clock


@dataclass(frozen=True, kw_only=True, slots=True)
class Ahead:
    """How far the timeline goes, and how many hours lie between the words of its axis."""

    name: str
    length: timedelta
    step: int


SPANS = {
    "6h": Ahead(name="6h", length=timedelta(hours=6), step=1),
    "24h": Ahead(name="24h", length=timedelta(hours=24), step=3),
    "7d": Ahead(name="7d", length=timedelta(days=7), step=24),
}
LANES_BY = ("schedule", "label")
#: By whose clock the pictures are drawn.
CLOCKS = ("mine", "utc")
#: Rows of the heat map.
HEAT_DAYS = {"7d": 7, "14d": 14}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What is None was not chosen: then it is as in the rest of the page."""

    span: str = "24h"
    lanes: str = "schedule"
    clock: str | None = None
    heat: str = "7d"

    @property
    def ahead(self) -> Ahead:
        return SPANS[self.span]

    @property
    def days(self) -> int:
        return HEAT_DAYS[self.heat]

    def look(self, look: Look) -> Look:
        """The reader's, with the clock of the pictures."""
        return look if self.clock is None else replace(look, clock=self.clock)

    def zone(self, look: Look) -> str:
        return by_clock(self.look(look), None)

    def with_(self, name: str, value: str) -> Choices:
        known = {"span": self.span, "lanes": self.lanes, "heat": self.heat}
        clock = value if name == "clock" else self.clock
        return Choices(**{**known, **({name: value} if name in known else {})}, clock=clock)

    def address(self, part: str = "", **chosen: str) -> str:
        """The page with these choices and others as they are; or a part of it."""
        wanted = self
        for name, value in chosen.items():
            wanted = wanted.with_(name, value)
        usual = Choices()
        pairs = {"part": part} if part else {}
        for name in ("span", "lanes", "clock", "heat"):
            value = getattr(wanted, name)
            if value is not None and value != getattr(usual, name):
                pairs[name] = value
        return f"/ui/?{urlencode(pairs)}" if pairs else "/ui/"


def choices_in(query: Mapping[str, str]) -> Choices:
    """What is not among them counts as not said: an old address still shows something."""
    given = {
        name: query[name]
        for name, known in (
            ("span", SPANS),
            ("lanes", LANES_BY),
            ("clock", CLOCKS),
            ("heat", HEAT_DAYS),
        )
        if query.get(name) in known
    }
    return Choices(**given)
