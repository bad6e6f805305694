"""The business_day trigger: the nth, or the nth last, business day of each month."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import ClassVar, Literal, Self

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.base import Absence, TriggerBase
from chimes.triggers.calendars import (
    Calendar,
    NamedCalendar,
    bands,
    check_calendar_name,
    is_business_day,
    is_country,
    parse_named_calendar,
)
from chimes.triggers.cron import CronSearch, open_wall_times
from chimes.triggers.cron_fields import DAYS_IN_BLOCK, DayMasks
from chimes.triggers.searches import Search, UnresolvedSearch
from chimes.triggers.values import check_text, from_microseconds, quote_text, to_microseconds
from chimes.triggers.zones import EPOCH_ORDINAL, UTC_NAME, Zone, parse_zone

#: Most business days of a month.
MAX_BUSINESS_DAY = 23
_LAST_DAY = date.max.toordinal() - EPOCH_ORDINAL
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")


class BusinessDays(DayMasks):
    """The days on which the trigger fires."""

    __slots__ = ("_calendar", "_country", "_nth")

    def __init__(self, nth: int, country: str | None, calendar: Calendar | None) -> None:
        super().__init__()
        self._nth = nth
        self._country = country
        self._calendar = calendar

    def _compute(self, number: int) -> int:
        first = number * DAYS_IN_BLOCK
        mask = 0
        for start, following in months(first, first + DAYS_IN_BLOCK - 1):
            day = self.day_of(start, following)
            if day is not None and first <= day < first + DAYS_IN_BLOCK:
                mask |= 1 << day - first
        return mask

    def day_of(self, start: int, following: int) -> int | None:
        """The day in the month from one day to just before another."""
        days = range(start, following) if self._nth > 0 else range(following - 1, start - 1, -1)
        left = abs(self._nth)
        for day in days:
            if is_business_day(day, self._country, self._calendar):
                left -= 1
                if not left:
                    return day
        return None


def months(first: int, last: int) -> Iterator[tuple[int, int]]:
    """The first days of each month that has one of these days, and of the month after it."""
    if first > _LAST_DAY:
        return
    at = date.fromordinal(first + EPOCH_ORDINAL).replace(day=1)
    while at.toordinal() - EPOCH_ORDINAL <= last and at.year < date.max.year:
        following = at.replace(year=at.year + at.month // 12, month=at.month % 12 + 1)
        yield at.toordinal() - EPOCH_ORDINAL, following.toordinal() - EPOCH_ORDINAL
        at = following


@dataclass(frozen=True, slots=True, init=False)
class BusinessDay(TriggerBase):
    """Fires at the time `at` of the `day`th business day of each month, or of the last (-1), the
    last but one (-2) …; not in a month that has fewer.

    Business days are the workdays of `calendar`, which is the name of a calendar or a country
    (`DE`, `DE-BY`); without one, Monday to Friday. A named calendar wins over a country. Clock
    changes are as for a fixed time of day.
    """

    kind: ClassVar[Literal["business_day"]] = "business_day"
    json_keys: ClassVar[tuple[str, ...]] = ("day", "at", "calendar", "timezone", "snapshot")
    required: ClassVar[tuple[str, ...]] = ("day", "at")
    structured: ClassVar[tuple[str, ...]] = ("day",)

    day: int
    at: str
    calendar: str | None
    timezone: str | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    jitter: timedelta | None
    spread: timedelta | None
    #: The contents of a named calendar.
    snapshot: NamedCalendar | None
    _days: BusinessDays | None = field(init=False, repr=False, compare=False)
    _search: Search = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        day: int,
        *,
        at: str,
        calendar: str | None = None,
        timezone: str | None = None,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
        jitter: str | timedelta | None = None,
        spread: str | timedelta | None = None,
        snapshot: object = None,
    ) -> None:
        put = object.__setattr__
        put(self, "day", _number(day))
        second = _second_of_day(at)
        put(self, "at", at)
        put(
            self,
            "calendar",
            None if calendar is None else check_calendar_name(calendar, "calendar"),
        )
        zone = None if timezone is None else parse_zone(timezone)
        put(self, "timezone", None if zone is None else zone.name)
        self._set_bounds(start_at, end_at, max_runs, exclude, zone, jitter, spread)
        if snapshot is not None and not isinstance(snapshot, NamedCalendar):
            snapshot = parse_named_calendar(snapshot, "snapshot")
        put(self, "snapshot", snapshot)
        put(self, "_days", self._business_days())
        applies = zone or parse_zone(UTC_NAME)
        put(self, "_search", self._compile(lambda: self._wall_search(second, applies), applies))

    def _business_days(self) -> BusinessDays | None:
        if self.snapshot is not None and self.calendar is not None:
            known = Calendar(name=self.calendar).resolved({self.calendar: self.snapshot})
            return BusinessDays(self.day, None, known)
        if self.calendar is not None and not is_country(self.calendar):
            return None
        return BusinessDays(self.day, self.calendar, None)

    def _wall_search(self, second: int, zone: Zone) -> Search:
        if self._days is None:
            return UnresolvedSearch(self.calendar or "")
        minute, within = divmod(second, 60)
        times = [(self._days, 1 << minute, 1 << within)]
        plain = open_wall_times(times, None)
        wall = open_wall_times(times, bands(self.exclude)) if self.exclude else plain
        return CronSearch(wall, plain, zone, after_gap=True, twice=False)

    @property
    def zone(self) -> str:
        return self.timezone or UTC_NAME

    def with_default_zone(self, name: str) -> Self:
        parse_zone(name)
        return self if self.timezone is not None else replace(self, timezone=name)

    def calendar_names(self) -> frozenset[str]:
        own = TriggerBase.calendar_names(self)
        return own if self.calendar is None else own | {self.calendar}

    def countries(self) -> frozenset[str]:
        return frozenset() if self.calendar is None else frozenset({self.calendar})

    def calendars(self) -> dict[str, NamedCalendar]:
        found = TriggerBase.calendars(self)
        if self.calendar is not None and self.snapshot is not None:
            found[self.calendar] = self.snapshot
        return found

    def with_calendars(self, known: Mapping[str, NamedCalendar]) -> Self:
        exclude = tuple(each.resolved(known) for each in self.exclude)
        snapshot = self.snapshot if self.calendar is None else known.get(self.calendar)
        if exclude == self.exclude and snapshot == self.snapshot:
            return self
        return replace(self, exclude=exclude, snapshot=snapshot)

    def absences(self, first: datetime, last: datetime) -> Iterable[Absence]:
        """Months that have fewer business days, at the time of their last day."""
        if self._days is None:
            return
        zone, second = parse_zone(self.zone), _second_of_day(self.at)
        low, high = (to_microseconds(each) // 86_400_000_000 for each in (first, last))
        for start, following in months(max(low - 1, 0), high + 1):
            if self._days.day_of(start, following) is None:
                wall = (following - 1) * 86400 + second
                at = from_microseconds(zone.from_local(wall)[0] * 1_000_000)
                if first <= at <= last:
                    yield Absence(at, "no_business_day", abs(self.day))

    def _without_context(self, plain: dict[str, object]) -> dict[str, object]:
        plain.pop("snapshot", None)
        return TriggerBase._without_context(self, plain)

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "day": self.day, "at": self.at}
        if self.calendar is not None:
            found["calendar"] = self.calendar
        if self.timezone is not None:
            found["timezone"] = self.timezone
        if self.snapshot is not None:
            found["snapshot"] = self.snapshot.snapshot()
        return found | self._bounds_dict()


def _number(day: object) -> int:
    if not isinstance(day, int) or isinstance(day, bool):
        raise InvalidTrigger(
            _("day must be a whole number, not {type}", type=type(day).__name__),
            field="day",
            code="wrong_type",
        )
    if not day or abs(day) > MAX_BUSINESS_DAY:
        raise InvalidTrigger(
            _(
                "day must be between 1 and {most}, or between -{most} and -1 from the end",
                most=MAX_BUSINESS_DAY,
            ),
            field="day",
            code="out_of_range",
        )
    return day


def _second_of_day(at: object) -> int:
    found = _CLOCK.fullmatch(check_text(at, "at"))
    if found is None:
        raise InvalidTrigger(
            _("at {text} is not a time of day such as 09:00", text=quote_text(at)),
            field="at",
            code="bad_time",
        )
    hour, minute, second = (int(each or 0) for each in found.groups())
    return (hour * 60 + minute) * 60 + second
