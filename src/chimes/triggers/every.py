"""`every`: a fixed interval of real elapsed time (T9)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, Self

from chimes.errors import InvalidTrigger
from chimes.triggers.base import TriggerBase, bound
from chimes.triggers.calendar import Calendar
from chimes.triggers.duration import format_duration_iso, parse_duration
from chimes.triggers.interval import IntervalSearch
from chimes.triggers.moment import format_moment, from_microseconds, to_microseconds
from chimes.wording import say

SHORTEST = timedelta(milliseconds=1)
LONGEST = timedelta(days=3653)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, init=False)
class Every(TriggerBase):
    """Fires at anchor + k·every, k ≥ 0; a future anchor is the first slot.

    Without an anchor the slots lie on the grid of the Unix epoch and have no first one; a schedule
    gives itself an anchor with `anchored`. `jitter` delays each run by a hash of the schedule's id
    and k in [0, jitter); it is never longer than `every`, so runs keep their order.
    """

    kind: ClassVar[Literal["every"]] = "every"

    every: timedelta
    anchor: datetime | None
    jitter: timedelta | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    _search: IntervalSearch = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        every: str | timedelta,
        *,
        anchor: datetime | str | None = None,
        jitter: str | timedelta | None = None,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
    ) -> None:
        step = interval(every, "every")
        put = object.__setattr__
        put(self, "every", step)
        put(self, "anchor", bound(anchor, None, "anchor"))
        put(self, "jitter", None if jitter is None else _jitter(jitter, step))
        self._set_bounds(start_at, end_at, max_runs, exclude, None)
        first = None if self.anchor is None else to_microseconds(self.anchor)
        put(self, "_search", IntervalSearch(step // _MICROSECOND, first, self.exclude))

    def anchored(self, moment: datetime) -> Self:
        aware = from_microseconds(to_microseconds(moment))
        return self if self.anchor is not None else replace(self, anchor=aware)

    def jitter_for(self, schedule_id: str, slot: datetime) -> timedelta:
        if not self.jitter:
            return timedelta(0)
        from hashlib import sha256

        number = self._search.number(to_microseconds(slot, "slot"))
        digest = sha256(f"{schedule_id}\0{number}".encode()).digest()
        return timedelta(0, 0, int.from_bytes(digest[:16]) % (self.jitter // _MICROSECOND))

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "every": format_duration_iso(self.every)}
        if self.anchor is not None:
            found["anchor"] = format_moment(self.anchor)
        if self.jitter is not None:
            found["jitter"] = format_duration_iso(self.jitter)
        return found | self._bounds_dict()


def interval(value: str | timedelta, name: str) -> timedelta:
    """A duration that may be used as an interval."""
    step = parse_duration(value, field=name)
    if not SHORTEST <= step <= LONGEST:
        raise InvalidTrigger(
            say("{field} must be between 1ms and 10 years", field=name),
            field=name,
            code="out_of_range",
        )
    return step


def _jitter(value: str | timedelta, step: timedelta) -> timedelta:
    jitter = parse_duration(value, field="jitter", allow_zero=True)
    if jitter > step:
        raise InvalidTrigger(
            say("jitter must not be longer than the interval"), field="jitter", code="out_of_range"
        )
    return jitter
