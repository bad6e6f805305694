"""The once trigger: a single moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Literal, Self

from chimes.triggers.base import TriggerBase
from chimes.triggers.calendars import Calendar, bands
from chimes.triggers.searches import Note, Search
from chimes.triggers.values import (
    check_year,
    format_moment,
    place,
    read_moment,
    to_microseconds,
    zones_differ,
)
from chimes.triggers.zones import UTC_NAME, Zone, parse_zone

_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class SingleFire:
    """The search of a trigger with one fire, or none."""

    at: int | None
    special: Note | None

    def after(self, moment: int) -> int | None:
        return self.at if self.at is not None and self.at > moment else None

    def before(self, moment: int) -> int | None:
        return self.at if self.at is not None and self.at < moment else None

    def count(self, first: int, last: int) -> int:
        return int(self.at is not None and first <= self.at <= last)

    def note(self, fire: int) -> Note | None:
        return self.special

    def unless_excluded(
        self, local: datetime, calendars: tuple[Calendar, ...], zone: Zone
    ) -> SingleFire:
        """Apply the calendars, given the local time in the trigger's zone."""
        if not calendars:
            return self
        day, rest = divmod(to_microseconds(local.replace(tzinfo=UTC)), _DAY)
        minute = rest // 60_000_000
        band = next((each for each in bands(calendars) if each.start <= minute < each.end), None)
        if band is None:
            return SingleFire(None, None)
        policy = band.policy(day)
        if policy is None:
            return self
        target = None if policy == "skip" else band.moved(day, policy)
        if target is None:
            return SingleFire(None, None)
        wall, fraction = divmod(target * _DAY + rest, 1_000_000)
        second, in_gap = zone.from_local(wall)
        at = second * 1_000_000 + (0 if in_gap else fraction)
        return SingleFire(at, "moved_by_calendar")


@dataclass(frozen=True, slots=True, init=False)
class Once(TriggerBase):
    """Fires once, at `at`.

    With an offset (or as an aware datetime) `at` is an instant, stored in UTC. Without one it is
    wall time in `timezone`, stored as wall time; `instant` is then the first of two in a fold, or
    the end of a gap.
    """

    kind: ClassVar[Literal["once"]] = "once"
    json_keys: ClassVar[tuple[str, ...]] = ("at", "timezone")

    at: str
    timezone: str | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    jitter: timedelta | None
    spread: timedelta | None
    instant: datetime = field(init=False, repr=False, compare=False)
    _search: Search = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        at: str | datetime,
        *,
        timezone: str | None = None,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
        jitter: str | timedelta | None = None,
        spread: str | timedelta | None = None,
    ) -> None:
        put = object.__setattr__
        given = None if timezone is None else parse_zone(timezone)
        parsed = read_moment(at.isoformat() if isinstance(at, datetime) else at)
        if parsed.zone is not None and given is not None and parsed.zone.name != given.name:
            raise zones_differ(parsed.zone, given, "at")
        zone = given or parsed.zone
        put(self, "timezone", None if zone is None else zone.name)
        self._set_bounds(start_at, end_at, max_runs, exclude, zone, jitter, spread)
        applies = zone or parse_zone(UTC_NAME)
        instant, moved = parsed.instant, False
        if instant is None:
            instant, moved = place(parsed.local, applies)
            put(self, "at", parsed.local.isoformat())
            local = parsed.local
        else:
            put(self, "at", format_moment(instant))
            local = self.local(instant).replace(tzinfo=None)
        put(self, "instant", check_year(instant, "at"))
        fire = SingleFire(to_microseconds(instant), "moved_by_gap" if moved else None)

        def search() -> Search:
            return fire.unless_excluded(local, self.exclude, applies)

        put(self, "_search", self._compile(search, applies))

    @property
    def zone(self) -> str:
        return self.timezone or UTC_NAME

    def with_default_zone(self, name: str) -> Self:
        parse_zone(name)
        return self if self.timezone is not None else replace(self, timezone=name)

    def warnings(self) -> tuple[Note, ...]:
        if any(each.name is not None and each.version is None for each in self.exclude):
            return ()
        at = self._search.after(0)
        note = None if at is None else self._search.note(at)
        return () if note is None else (note,)

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "at": self.at}
        if self.timezone is not None:
            found["timezone"] = self.timezone
        return found | self._bounds_dict()
