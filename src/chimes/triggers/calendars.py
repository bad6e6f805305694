"""Exclusion calendars: when a trigger must not fire, and where an excluded slot moves.

A calendar is a list of dates, a named set of public holidays, or weekly blackout windows. A window
includes its start and excludes its end; one that ends at or before its start runs past midnight.

Days and times are the nominal ones, in the trigger's zone (UTC for `every`): a slot that a clock
change moves counts with its nominal time. The first calendar, in the order given, that
covers a slot decides by its `on_excluded`:

- `skip`: the slot does not fire;
- `next`, `previous`: it fires at the same time of the nearest later (earlier) business day, which
  is a Monday to Friday on which no calendar covers that time. With none within a year, it does
  not fire.

Slots that coincide are one fire.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.cron_fields import DaySet
from chimes.triggers.values import check_keys, check_text, quote_text, suggest_name
from chimes.triggers.zones import EPOCH_ORDINAL

OnExcluded = Literal["skip", "next", "previous"]

DAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MINUTES_A_DAY: Final = 1440
_KINDS: Final = ("dates", "holidays", "weekly")
_MAX_DATES: Final = 4000
_MAX_WINDOWS: Final = 64
# Holidays are available for the years 1970 to 2199.
_HOLIDAYS_END: Final = date(2200, 1, 1).toordinal() - EPOCH_ORDINAL
_CLOCK = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Window:
    """A time of day, in minutes, on some weekdays (bit 0 is Sunday)."""

    weekdays: int
    start: int
    end: int

    def covers(self, weekday: int, minute: int) -> bool:
        if self.start < self.end:
            return bool(self.weekdays >> weekday & 1) and self.start <= minute < self.end
        begun_today = bool(self.weekdays >> weekday & 1) and minute >= self.start
        begun_yesterday = bool(self.weekdays >> (weekday - 1) % 7 & 1) and minute < self.end
        return begun_today or begun_yesterday

    def to_dict(self) -> dict[str, object]:
        return {
            "days": [name for bit, name in enumerate(DAY_NAMES) if self.weekdays >> bit & 1],
            "from": _clock(self.start),
            "to": _clock(self.end),
        }


@dataclass(frozen=True, slots=True)
class Calendar:
    """One entry of `exclude`; exactly one of its first three fields is set."""

    dates: tuple[int, ...] = ()  # days since 1970, sorted
    holidays: str | None = None
    weekly: tuple[Window, ...] = ()
    on_excluded: OnExcluded = "skip"

    def weekdays(self, minute: int) -> int:
        """The weekdays on which a minute is excluded (bit 0 is Sunday)."""
        return sum(
            1 << weekday
            for weekday in range(7)
            if any(window.covers(weekday, minute) for window in self.weekly)
        )

    def covers(self, day: int) -> bool:
        """Whether the whole of a day since 1970 is a holiday or one of the dates."""
        if self.holidays is not None:
            if not 0 <= day < _HOLIDAYS_END:
                return False
            return day in holiday_days(self.holidays, date.fromordinal(day + EPOCH_ORDINAL).year)
        index = bisect_left(self.dates, day)
        return index < len(self.dates) and self.dates[index] == day

    def edges(self) -> set[int]:
        """The minutes of the day at which `weekdays` may change."""
        return {edge for window in self.weekly for edge in (window.start, window.end)}

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object]
        if self.holidays is not None:
            found = {"holidays": self.holidays}
        elif self.weekly:
            found = {"weekly": [window.to_dict() for window in self.weekly]}
        else:
            found = {"dates": [str(date.fromordinal(day + EPOCH_ORDINAL)) for day in self.dates]}
        return found if self.on_excluded == "skip" else {**found, "on_excluded": self.on_excluded}


def parse_calendar(value: object, field: str) -> Calendar:
    """A calendar from its dict; a Calendar passes through."""
    if isinstance(value, Calendar):
        return value
    entry = check_keys(value, (*_KINDS, "on_excluded"), field)
    kinds = [kind for kind in _KINDS if kind in entry]
    if len(kinds) != 1:
        raise InvalidTrigger(
            _("{field} must have exactly one of {kinds}", field=field, kinds=", ".join(_KINDS)),
            field=field,
            code="bad_calendar",
        )
    policy = _policy(entry.get("on_excluded", "skip"), f"{field}.on_excluded")
    where = f"{field}.{kinds[0]}"
    given = entry[kinds[0]]
    if kinds[0] == "dates":
        return Calendar(dates=_dates(given, where), on_excluded=policy)
    if kinds[0] == "holidays":
        return Calendar(
            holidays=_check_holidays(check_text(given, where), where), on_excluded=policy
        )
    windows = tuple(
        _window(item, f"{where}[{index}]")
        for index, item in enumerate(_items(given, where, _MAX_WINDOWS))
    )
    return Calendar(weekly=windows, on_excluded=policy)


def _policy(value: object, field: str) -> OnExcluded:
    if value == "skip":
        return "skip"
    if value == "next":
        return "next"
    if value == "previous":
        return "previous"
    raise InvalidTrigger(
        _(
            "{field} must be skip, next or previous, not {value}",
            field=field,
            value=quote_text(value),
        ),
        field=field,
        code="bad_choice",
    )


def _items(value: object, field: str, most: int) -> list[object]:
    if not isinstance(value, (list, tuple)):
        raise InvalidTrigger(
            _("{field} must be a list, not {type}", field=field, type=type(value).__name__),
            field=field,
            code="wrong_type",
        )
    if not 1 <= len(value) <= most:
        raise InvalidTrigger(
            _(
                "{field} must have between 1 and {most} items, not {count}",
                field=field,
                most=most,
                count=len(value),
            ),
            field=field,
            code="out_of_range",
        )
    return list(value)


def _dates(value: object, field: str) -> tuple[int, ...]:
    days = set()
    for index, item in enumerate(_items(value, field, _MAX_DATES)):
        text = check_text(item, f"{field}[{index}]")
        try:
            if not _DATE.fullmatch(text):
                raise ValueError
            days.add(date.fromisoformat(text).toordinal() - EPOCH_ORDINAL)
        except ValueError:
            raise InvalidTrigger(
                _(
                    "{field}[{index}] {text} is not a date; write it like 2026-12-25",
                    field=field,
                    index=index,
                    text=quote_text(text),
                ),
                field=f"{field}[{index}]",
                code="bad_date",
            ) from None
    return tuple(sorted(days))


def _window(value: object, field: str) -> Window:
    entry: Mapping[str, object] = check_keys(value, ("days", "from", "to"), field)
    weekdays = 0
    for index, item in enumerate(_items(entry.get("days"), f"{field}.days", 7)):
        where = f"{field}.days[{index}]"
        name = check_text(item, where).upper()
        if name not in DAY_NAMES:
            raise InvalidTrigger(
                _(
                    "{where} {item} is not a weekday; there are {weekdays}",
                    where=where,
                    item=quote_text(item),
                    weekdays=", ".join(DAY_NAMES),
                ),
                field=where,
                code="bad_weekday",
                hint=suggest_name(name, DAY_NAMES),
            )
        weekdays |= 1 << DAY_NAMES.index(name)
    start = _minute(entry.get("from", "00:00"), f"{field}.from")
    end = _minute(entry.get("to", "24:00"), f"{field}.to")
    if start in (end, MINUTES_A_DAY) or end == 0:
        raise InvalidTrigger(
            _(
                "{field} covers nothing: it runs from {start} to {end}",
                field=field,
                start=_clock(start),
                end=_clock(end),
            ),
            field=field,
            code="empty_window",
            hint=_("a whole day is from 00:00 to 24:00"),
        )
    return Window(weekdays, start, end)


def _minute(value: object, field: str) -> int:
    text = check_text(value, field)
    found = _CLOCK.fullmatch(text)
    minute = int(found[1]) * 60 + int(found[2]) if found else MINUTES_A_DAY + 1
    if minute > MINUTES_A_DAY:
        raise InvalidTrigger(
            _(
                "{field} {text} is not a time of day between 00:00 and 24:00",
                field=field,
                text=quote_text(text),
            ),
            field=field,
            code="bad_time",
        )
    return minute


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


@lru_cache(maxsize=1)
def _countries() -> Mapping[str, frozenset[str]]:
    import holidays

    supported: Mapping[str, list[str]] = holidays.list_supported_countries()
    return {country: frozenset(parts) for country, parts in supported.items()}


def load_holidays() -> None:
    """Loads the known countries, which takes a second: call it in a thread before a calendar of
    holidays is parsed on an event loop."""
    _countries()


def holidays_are_loaded() -> bool:
    return bool(_countries.cache_info().currsize)


def _check_holidays(name: str, field: str) -> str:
    country, _unused, part = name.partition("-")
    known = _countries()
    if country not in known:
        raise InvalidTrigger(
            _(
                "{field} {name} is not a country with known holidays; use a code such as TH",
                field=field,
                name=quote_text(name),
            ),
            field=field,
            code="unknown_calendar",
            hint=suggest_name(name, known),
        )
    if "-" in name and part not in known[country]:
        raise InvalidTrigger(
            _(
                "{field} {name}: {country} has no part {part} with holidays of its own",
                field=field,
                name=quote_text(name),
                country=country,
                part=quote_text(part),
            ),
            field=field,
            code="unknown_calendar",
            hint=suggest_name(part, known[country]),
        )
    return name


#: Holidays as earlier data had them, by code and year; see `triggers.time_data`. None: the present
#: data.
RECORDED_HOLIDAYS: ContextVar[Mapping[tuple[str, int], frozenset[int]] | None] = ContextVar(
    "holidays", default=None
)


def holiday_days(name: str, year: int) -> frozenset[int]:
    """The days since 1970 that are holidays in this year."""
    recorded = RECORDED_HOLIDAYS.get()
    if recorded is not None and (found := recorded.get((name, year))) is not None:
        return found
    return _load_holidays(name, year)


@lru_cache(maxsize=4096)
def _load_holidays(name: str, year: int) -> frozenset[int]:
    import holidays

    country, _unused, part = name.partition("-")
    found = holidays.country_holidays(country, subdiv=part or None, years=year)
    return frozenset(day.toordinal() - EPOCH_ORDINAL for day in found)


# --- calendars compiled for searching: the edges of all blackout windows divide the day into bands.
# Within a band only the day decides whether a slot is excluded and where it moves, so each band
# maps days to days, and a search skips a blackout like any day that does not match.

MAX_MOVE_DAYS = 366


@dataclass(frozen=True, slots=True)
class Band:
    """The minutes [start, end) of every day, with the calendars that apply."""

    start: int
    end: int
    # Each calendar with the weekdays on which its windows cover this band.
    rules: tuple[tuple[int, Calendar], ...]
    moves: bool
    _policies: dict[int, OnExcluded | None] = field(default_factory=dict, compare=False)

    def policy(self, day: int) -> OnExcluded | None:
        """What happens to slots of this day; None if they fire where they are."""
        if day not in self._policies:
            self._policies[day] = self._decide(day)
        return self._policies[day]

    def _decide(self, day: int) -> OnExcluded | None:
        weekday = (day + 4) % 7
        for weekdays, calendar in self.rules:
            if weekdays >> weekday & 1 or calendar.covers(day):
                return calendar.on_excluded
        return None

    def always_closed(self) -> bool:
        """Whether windows cover it on every weekday, so that nothing can fire or move here."""
        covered = 0
        for weekdays, _unused in self.rules:
            covered |= weekdays
        return covered == 0b1111111

    def business(self, day: int) -> bool:
        return 0 < (day + 4) % 7 < 6 and self.policy(day) is None

    def sources(self, day: int) -> list[int]:
        """The days whose slots fire on this day: itself, and days moved to it."""
        if self.policy(day) is not None:
            return []
        found = [day]
        if self.moves and self.business(day):
            found += self._run(day, -1, "next")
            found += self._run(day, 1, "previous")
        return found

    def moved(self, day: int, policy: OnExcluded) -> int | None:
        """The day on which slots of an excluded day fire, if there is one near enough."""
        step = 1 if policy == "next" else -1
        for distance in range(1, MAX_MOVE_DAYS + 1):
            if self.business(day + step * distance):
                return day + step * distance
        return None

    def _run(self, day: int, step: int, policy: OnExcluded) -> list[int]:
        found = []
        for distance in range(1, MAX_MOVE_DAYS + 1):
            other = day + step * distance
            if self.business(other):
                break
            if self.policy(other) == policy:
                found.append(other)
        return found


def bands(calendars: tuple[Calendar, ...]) -> list[Band]:
    """Divides the day so that each band is excluded as a whole or not at all.

    Bands that are never open are left out.
    """
    edges = sorted({0, MINUTES_A_DAY}.union(*(calendar.edges() for calendar in calendars)))
    moves = any(calendar.on_excluded != "skip" for calendar in calendars)
    found = [
        Band(start, end, tuple((each.weekdays(start), each) for each in calendars), moves)
        for start, end in pairwise(edges)
    ]
    return [band for band in found if not band.always_closed()]


class OpenDays:
    """The days on which slots of `days` fire within a band."""

    __slots__ = ("_band", "_days", "blocks")

    def __init__(self, days: DaySet, band: Band) -> None:
        self._days = days
        self._band = band
        self.blocks: dict[int, int] = {}

    def block(self, number: int) -> int:
        mask = self.blocks.get(number)
        if mask is None:
            mask = self.blocks[number] = self._compute(number)
        return mask

    def _compute(self, number: int) -> int:
        first = number << 6
        if not self._band.moves:
            mask = self._days.block(number)
            for bit in range(64):
                if mask >> bit & 1 and self._band.policy(first + bit) is not None:
                    mask ^= 1 << bit
            return mask
        return sum(
            1 << bit
            for bit in range(64)
            if any(
                self._days.block(day >> 6) >> (day & 63) & 1
                for day in self._band.sources(first + bit)
            )
        )
