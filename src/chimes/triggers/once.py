"""`once`: a single moment (T10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import ClassVar, Literal, Self

from chimes.triggers.base import TriggerBase
from chimes.triggers.calendar import Calendar
from chimes.triggers.exclusions import FARTHEST_MOVE, bands
from chimes.triggers.moment import (
    checked_year,
    format_moment,
    place,
    read_moment,
    to_microseconds,
    zones_differ,
)
from chimes.triggers.notes import Note
from chimes.triggers.zone import UTC_NAME, Zone, parse_zone


@dataclass(frozen=True, slots=True, init=False)
class Once(TriggerBase):
    """Fires once, at `at`.

    `at` is kept as it was meant: with an offset (or as an aware datetime) it is an instant, kept in
    UTC; without one it is wall time in `timezone`, kept as wall time, and `instant` is where the
    zone places it: the first of two, or the end of the gap it falls into.
    """

    kind: ClassVar[Literal["once"]] = "once"

    at: str
    timezone: str | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    instant: datetime = field(init=False, repr=False, compare=False)
    _fire: int | None = field(init=False, repr=False, compare=False)
    _moved: Note | None = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        at: str | datetime,
        *,
        timezone: str | None = None,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
    ) -> None:
        put = object.__setattr__
        given = None if timezone is None else parse_zone(timezone)
        parsed = read_moment(at.isoformat() if isinstance(at, datetime) else at)
        if parsed.zone is not None and given is not None and parsed.zone.name != given.name:
            raise zones_differ(parsed.zone, given, "at")
        zone = given or parsed.zone
        put(self, "timezone", None if zone is None else zone.name)
        self._set_bounds(start_at, end_at, max_runs, exclude, zone)
        applies = zone or parse_zone(UTC_NAME)
        if parsed.instant is not None:
            put(self, "at", format_moment(parsed.instant))
            put(self, "_moved", None)
            put(self, "instant", parsed.instant)
        else:
            placed, moved = place(parsed.local, applies)
            put(self, "at", parsed.local.isoformat())
            put(self, "_moved", "moved_by_gap" if moved else None)
            put(self, "instant", checked_year(placed, "at"))
        self._apply_calendars(applies)

    def _apply_calendars(self, zone: Zone) -> None:
        put = object.__setattr__
        fire = to_microseconds(self.instant)
        put(self, "_fire", fire)
        if not self.exclude:
            return
        if self.at.endswith("Z"):
            local = self.local(self.instant).replace(tzinfo=UTC)
        else:
            local = datetime.fromisoformat(self.at).replace(tzinfo=UTC)
        day, rest = divmod(to_microseconds(local), 86_400_000_000)
        band = next(each for each in bands(self.exclude) if rest < each.end * 60_000_000)
        policy = band.policy(day)
        if policy is None:
            return
        if policy == "skip":
            put(self, "_fire", None)
            return
        step = 1 if policy == "next" else -1
        days = range(day + step, day + step * (FARTHEST_MOVE + 1), step)
        target = next((other for other in days if band.business(other)), None)
        if target is None:
            put(self, "_fire", None)
            return
        wall, microsecond = divmod(target * 86_400_000_000 + rest, 1_000_000)
        second, in_gap = zone.from_local(wall)
        put(self, "_fire", second * 1_000_000 + (0 if in_gap else microsecond))
        put(self, "_moved", "moved_by_calendar")

    @property
    def zone(self) -> str:
        return self.timezone or UTC_NAME

    def with_default_zone(self, name: str) -> Self:
        parse_zone(name)
        return self if self.timezone is not None else replace(self, timezone=name)

    def warnings(self) -> tuple[Note, ...]:
        return () if self._moved is None else (self._moved,)

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "at": self.at}
        if self.timezone is not None:
            found["timezone"] = self.timezone
        return found | self._bounds_dict()

    def _next(self, after: int) -> int | None:
        return self._fire if self._fire is not None and self._fire > after else None

    def _previous(self, before: int) -> int | None:
        return self._fire if self._fire is not None and self._fire < before else None

    def _note(self, at: datetime) -> Note | None:
        return self._moved
