"""Exclusion calendars: when a trigger must not fire, and where an excluded slot moves.

A calendar is a list of dates, a set of public holidays of a country, weekly blackout windows,
one-off ranges, or a named calendar, which schedules share. A window includes its start and excludes
its end; one that ends at or before its start runs past midnight. A range of dates includes both, a
range of moments excludes its end.

A trigger holds a copy of the contents of its named calendars, with their version (ADR 85), so that
its fires depend on nothing else.

Days and times are the nominal ones, in the trigger's zone (UTC for `every`): a slot that a clock
change moves counts with its nominal time. The first calendar, in the order given, that
covers a slot decides by its `on_excluded`:

- `skip`: the slot does not fire;
- `next`, `previous`: it fires at the same time of the nearest later (earlier) business day, which
  is a Monday to Friday, or a make-up workday, on which no calendar covers that time. With none
  within a year, it does not fire.

A range of moments always skips. A make-up workday, on which a country works although it is a
weekend, is never a holiday, and windows that cover whole days do not apply to it.

Slots that coincide are one fire.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.cron_fields import DayMasks, DaySet
from chimes.triggers.values import (
    ParsedMoment,
    check_keys,
    check_text,
    parse_moment,
    quote_text,
    read_moment,
    suggest_name,
)
from chimes.triggers.zones import EPOCH_ORDINAL, Zone

OnExcluded = Literal["skip", "next", "previous"]

DAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MINUTES_A_DAY: Final = 1440
_KINDS: Final = ("dates", "holidays", "weekly", "ranges", "calendar")
_MAX_DATES: Final = 4000
_MAX_RANGES: Final = 500
_MAX_RANGE_DAYS: Final = 3660
#: Keys of the contents of a named calendar.
CALENDAR_KEYS: Final = ("dates", "holidays", "ranges", "workdays")
_MAX_WINDOWS: Final = 64
#: Saturday and Sunday (bit 0 is Sunday).
_WEEKEND: Final = 0b1000001
# Holidays are available for the years 1970 to 2199.
_HOLIDAYS_END: Final = date(2200, 1, 1).toordinal() - EPOCH_ORDINAL
_CLOCK = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


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
class NamedCalendar:
    """The contents of a calendar that schedules share: days and times at which nothing fires, and
    make-up workdays."""

    dates: tuple[int, ...] = ()
    holidays: str | None = None
    #: First and last day.
    ranges: tuple[tuple[int, int], ...] = ()
    #: Start and end as text: a moment without an offset is in the zone of the trigger.
    spans: tuple[tuple[str, str], ...] = ()
    workdays: tuple[int, ...] = ()
    version: int = 1

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {}
        if self.dates:
            found["dates"] = _written(self.dates)
        if self.holidays is not None:
            found["holidays"] = self.holidays
        if self.ranges or self.spans:
            found["ranges"] = [_written(each) for each in self.ranges] + [
                list(each) for each in self.spans
            ]
        if self.workdays:
            found["workdays"] = _written(self.workdays)
        return found

    def snapshot(self) -> dict[str, object]:
        """As a trigger stores it."""
        return {"version": self.version, **self.to_dict()}


def parse_named_calendar(value: object, field: str | None = None) -> NamedCalendar:
    """The contents of a calendar from its dict, with or without a version."""
    entry = check_keys(value, ("version", *CALENDAR_KEYS), field)
    prefix = "" if field is None else f"{field}."
    version = entry.get("version", 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidTrigger(
            _("{field} must be a whole number from 1", field=f"{prefix}version"),
            field=f"{prefix}version",
            code="out_of_range",
        )
    holidays = entry.get("holidays")
    ranges, spans = _ranges(entry.get("ranges", []), f"{prefix}ranges", least=0)
    return NamedCalendar(
        dates=_dates(entry.get("dates", []), f"{prefix}dates", least=0),
        holidays=None
        if holidays is None
        else _check_holidays(check_text(holidays, f"{prefix}holidays"), f"{prefix}holidays"),
        ranges=ranges,
        spans=spans,
        workdays=_dates(entry.get("workdays", []), f"{prefix}workdays", least=0),
        version=version,
    )


def _written(days: Iterable[int]) -> list[str]:
    return [str(date.fromordinal(day + EPOCH_ORDINAL)) for day in days]


@dataclass(frozen=True, slots=True)
class Calendar:
    """One entry of `exclude`, of one kind: `dates`, `holidays`, `weekly`, `ranges` with `spans`, or
    the name of a shared calendar, which has the fields of NamedCalendar if `version` is set."""

    dates: tuple[int, ...] = ()  # days since 1970, sorted
    holidays: str | None = None
    weekly: tuple[Window, ...] = ()
    on_excluded: OnExcluded = "skip"
    ranges: tuple[tuple[int, int], ...] = ()
    spans: tuple[tuple[str, str], ...] = ()
    workdays: tuple[int, ...] = ()
    name: str | None = None
    version: int | None = None

    def weekdays(self, minute: int) -> int:
        """The weekdays on which a minute is excluded (bit 0 is Sunday)."""
        return sum(
            1 << weekday
            for weekday in range(7)
            if any(window.covers(weekday, minute) for window in self.weekly)
        )

    def whole_weekdays(self) -> int:
        """The weekdays that a window covers from midnight to midnight."""
        found = 0
        for window in self.weekly:
            if (window.start, window.end) == (0, MINUTES_A_DAY):
                found |= window.weekdays
        return found

    def covers(self, day: int) -> bool:
        """Whether the whole of a day since 1970 is a holiday or one of the dates."""
        if self.works(day):
            return False
        if self.holidays is not None and 0 <= day < _HOLIDAYS_END:
            year = date.fromordinal(day + EPOCH_ORDINAL).year
            if day in holiday_days(self.holidays, year):
                return True
        if _includes(self.dates, day):
            return True
        return any(first <= day <= last for first, last in self.ranges)

    def works(self, day: int) -> bool:
        """Whether the day is a make-up workday."""
        return _includes(self.workdays, day) or (
            self.holidays is not None and is_makeup_day(self.holidays, day)
        )

    def edges(self) -> set[int]:
        """The minutes of the day at which `weekdays` may change."""
        return {edge for window in self.weekly for edge in (window.start, window.end)}

    def moments(self, zone: Zone) -> list[tuple[datetime, datetime]]:
        """The excluded spans of time."""
        return [(_edge(start, zone), _edge(end, zone)) for start, end in self.spans]

    def resolved(self, known: Mapping[str, NamedCalendar]) -> Calendar:
        """With the contents of its named calendar, if it is known."""
        if self.name is None or self.name not in known:
            return self
        return _with_contents(self.name, known[self.name], self.on_excluded)

    def contents(self) -> NamedCalendar | None:
        if self.version is None:
            return None
        return NamedCalendar(
            dates=self.dates,
            holidays=self.holidays,
            ranges=self.ranges,
            spans=self.spans,
            workdays=self.workdays,
            version=self.version,
        )

    def to_dict(self) -> dict[str, object]:
        contents = self.contents()
        return (
            self._dict() if contents is None else self._dict() | {"snapshot": contents.snapshot()}
        )

    def shown(self) -> dict[str, object]:
        """`to_dict` without the contents of a named calendar."""
        return self._dict()

    def _dict(self) -> dict[str, object]:
        found: dict[str, object]
        if self.name is not None:
            found = {"calendar": self.name}
        elif self.holidays is not None:
            found = {"holidays": self.holidays}
        elif self.weekly:
            found = {"weekly": [window.to_dict() for window in self.weekly]}
        elif self.ranges or self.spans:
            found = NamedCalendar(ranges=self.ranges, spans=self.spans).to_dict()
        else:
            found = {"dates": _written(self.dates)}
        return found if self.on_excluded == "skip" else {**found, "on_excluded": self.on_excluded}


def _with_contents(name: str, contents: NamedCalendar, on_excluded: OnExcluded) -> Calendar:
    return Calendar(
        dates=contents.dates,
        holidays=contents.holidays,
        ranges=contents.ranges,
        spans=contents.spans,
        workdays=contents.workdays,
        name=name,
        version=contents.version,
        on_excluded=on_excluded,
    )


def _includes(days: tuple[int, ...], day: int) -> bool:
    index = bisect_left(days, day)
    return index < len(days) and days[index] == day


def parse_calendar(value: object, field: str) -> Calendar:
    """A calendar from its dict; a Calendar passes through."""
    if isinstance(value, Calendar):
        return value
    entry = check_keys(value, (*_KINDS, "on_excluded", "snapshot"), field)
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
    if kinds[0] == "ranges":
        ranges, spans = _ranges(given, where)
        return Calendar(ranges=ranges, spans=spans, on_excluded=policy)
    if kinds[0] == "calendar":
        name = check_calendar_name(given, where)
        if "snapshot" not in entry:
            return Calendar(name=name, on_excluded=policy)
        contents = parse_named_calendar(entry["snapshot"], f"{field}.snapshot")
        return _with_contents(name, contents, policy)
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


def check_calendar_name(value: object, field: str) -> str:
    name = check_text(value, field)
    if not _NAME.fullmatch(name):
        raise InvalidTrigger(
            _(
                "{field} {name} is not the name of a calendar: up to 64 letters, digits, dots,"
                " dashes and underscores, first a letter or digit",
                field=field,
                name=quote_text(name),
            ),
            field=field,
            code="bad_name",
        )
    return name


def _items(value: object, field: str, most: int, least: int = 1) -> list[object]:
    if not isinstance(value, (list, tuple)):
        raise InvalidTrigger(
            _("{field} must be a list, not {type}", field=field, type=type(value).__name__),
            field=field,
            code="wrong_type",
        )
    if not least <= len(value) <= most:
        raise InvalidTrigger(
            _(
                "{field} must have between {least} and {most} items, not {count}",
                field=field,
                least=least,
                most=most,
                count=len(value),
            ),
            field=field,
            code="out_of_range",
        )
    return list(value)


def _dates(value: object, field: str, least: int = 1) -> tuple[int, ...]:
    items = enumerate(_items(value, field, _MAX_DATES, least))
    return tuple(sorted({parse_day(item, f"{field}[{index}]") for index, item in items}))


def parse_day(value: object, field: str) -> int:
    """The day since 1970 of a date."""
    text = check_text(value, field)
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        return date.fromisoformat(text).toordinal() - EPOCH_ORDINAL
    except ValueError:
        raise InvalidTrigger(
            _(
                "{field} {text} is not a date; write it like 2026-12-25",
                field=field,
                text=quote_text(text),
            ),
            field=field,
            code="bad_date",
        ) from None


def _ranges(
    value: object, field: str, least: int = 1
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[str, str], ...]]:
    """Ranges of dates, and ranges of moments."""
    days: set[tuple[int, int]] = set()
    spans: dict[tuple[str, str], None] = {}
    for index, item in enumerate(_items(value, field, _MAX_RANGES, least)):
        where = f"{field}[{index}]"
        pair = _items(item, where, 2, 2)
        start, end = (check_text(each, f"{where}[{i}]") for i, each in enumerate(pair))
        if _DATE.fullmatch(start) and _DATE.fullmatch(end):
            first, last = parse_day(start, f"{where}[0]"), parse_day(end, f"{where}[1]")
            ordered = first <= last <= first + _MAX_RANGE_DAYS
            days.add((first, last))
        else:
            one, other = (_read_edge(each, f"{where}[{i}]") for i, each in enumerate((start, end)))
            aware = (one.instant is not None, other.instant is not None)
            if aware[0] != aware[1]:
                raise InvalidTrigger(
                    _("{field} has an offset at one end only", field=where),
                    field=where,
                    code="bad_range",
                )
            ordered = (
                one.instant < other.instant
                if one.instant is not None and other.instant is not None
                else one.local < other.local
            )
            spans[start, end] = None
        if not ordered:
            raise InvalidTrigger(
                _("{field} does not end after it starts, within ten years", field=where),
                field=where,
                code="bad_range",
                hint=_('write it like ["2026-12-24", "2026-12-26"]'),
            )
    return tuple(sorted(days)), tuple(spans)


def _edge(text: str, zone: Zone) -> datetime:
    given = f"{text}T00:00:00" if _DATE.fullmatch(text) else text
    return parse_moment(given, None if read_moment(given).zone else zone)


def _read_edge(text: str, field: str) -> ParsedMoment:
    """A moment; a date is its midnight."""
    return read_moment(f"{text}T00:00:00" if _DATE.fullmatch(text) else text, field=field)


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


def is_country(name: str) -> bool:
    """Whether the holidays of this country, or of this part of it (`DE-BY`), are known."""
    country, _unused, part = name.partition("-")
    known = _countries()
    return country in known and ("-" not in name or part in known[country])


class CountryYear(NamedTuple):
    """What is special about the days of one year in a country, as days since 1970."""

    holidays: frozenset[int]
    #: Weekend days on which people work.
    makeup: frozenset[int]
    #: Weekdays that are no workdays (bit 0 is Sunday).
    weekend: int


def country_year(name: str, year: int) -> CountryYear:
    present = _load_country_year(name, year)
    recorded = RECORDED_HOLIDAYS.get()
    if recorded is not None and (found := recorded.get((name, year))) is not None:
        return present._replace(holidays=found)
    return present


@lru_cache(maxsize=4096)
def _load_country_year(name: str, year: int) -> CountryYear:
    import holidays

    country, _unused, part = name.partition("-")
    found = holidays.country_holidays(country, subdiv=part or None, years=year)
    makeup = getattr(found, "weekend_workdays", None) or ()
    weekend = getattr(found, "weekend", None)
    return CountryYear(
        holidays=frozenset(day.toordinal() - EPOCH_ORDINAL for day in found),
        makeup=frozenset(day.toordinal() - EPOCH_ORDINAL for day in makeup if day.year == year),
        weekend=_WEEKEND if weekend is None else sum(1 << (day + 1) % 7 for day in weekend),
    )


def holiday_days(name: str, year: int) -> frozenset[int]:
    """The days since 1970 that are holidays in this year."""
    return country_year(name, year).holidays


def is_makeup_day(name: str, day: int) -> bool:
    if not 0 <= day < _HOLIDAYS_END:
        return False
    return day in country_year(name, date.fromordinal(day + EPOCH_ORDINAL).year).makeup


def is_business_day(day: int, holidays: str | None, calendar: Calendar | None) -> bool:
    """Whether people work on a day since 1970: on weekdays that are no holidays, and on make-up
    workdays. Of a named calendar with the holidays of a country, that country's weekend counts."""
    if calendar is not None:
        if calendar.works(day):
            return True
        if calendar.covers(day):
            return False
        holidays = calendar.holidays
    if holidays is None or not 0 <= day < _HOLIDAYS_END:
        return not _WEEKEND >> (day + 4) % 7 & 1
    found = country_year(holidays, date.fromordinal(day + EPOCH_ORDINAL).year)
    if day in found.makeup:
        return True
    return day not in found.holidays and not found.weekend >> (day + 4) % 7 & 1


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

    @property
    def minutes(self) -> int:
        """The mask of its minutes."""
        return (1 << self.end) - (1 << self.start)

    def policy(self, day: int) -> OnExcluded | None:
        """What happens to slots of this day; None if they fire where they are."""
        if day not in self._policies:
            self._policies[day] = self._decide(day)
        return self._policies[day]

    def _decide(self, day: int) -> OnExcluded | None:
        weekday = (day + 4) % 7
        works = self.works(day)
        for weekdays, calendar in self.rules:
            applies = weekdays >> weekday & 1 and not (
                works and calendar.whole_weekdays() >> weekday & 1
            )
            if applies or calendar.covers(day):
                return calendar.on_excluded
        return None

    def works(self, day: int) -> bool:
        """Whether the day is a make-up workday of one of the calendars."""
        return any(calendar.works(day) for _unused, calendar in self.rules)

    def always_closed(self) -> bool:
        """Whether windows cover it on every weekday, so that nothing can fire or move here."""
        covered = 0
        for weekdays, calendar in self.rules:
            if calendar.workdays or calendar.holidays is not None:
                return False
            covered |= weekdays
        return covered == 0b1111111

    def business(self, day: int) -> bool:
        if self.policy(day) is not None:
            return False
        return 0 < (day + 4) % 7 < 6 or self.works(day)

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


class OpenDays(DayMasks):
    """The days on which slots of `days` fire within a band."""

    __slots__ = ("_band", "_days")

    def __init__(self, days: DaySet, band: Band) -> None:
        super().__init__()
        self._days = days
        self._band = band

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
