"""The rrule trigger: a recurrence rule of RFC 5545 in a time zone.

A rule that recurs daily or more rarely is a set of wall times, searched like those of a cron
expression: days, computed month by month (`RuleDays`), crossed with times of the day. Its clock
changes are those of a fixed time (a lost fire happens at the change, a repeated one the first time
only). A rule that recurs hourly or more often counts elapsed time from DTSTART (`ElapsedSearch`);
its BY parts select by the wall clock.

Where RFC 5545 leaves something open, the rule means what it means to python-dateutil, which the
tests compare with: BYWEEKNO alone selects all seven days, and DTSTART fires only if it matches. A
BYDAY with and without numbers, which dateutil intersects, is the union of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import ClassVar, Literal, Self

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.base import TriggerBase
from chimes.triggers.calendars import Calendar, bands, parse_day
from chimes.triggers.cron import CronSearch, Wall, WallTimes, open_wall_times
from chimes.triggers.cron_fields import DAYS_IN_BLOCK, DayMasks, month_length
from chimes.triggers.rrule_text import ELAPSED, Rule, Until, normalize_rule, parse_rule, week_number
from chimes.triggers.searches import (
    SEARCH_SECONDS,
    DatesSearch,
    Note,
    OpenFires,
    Search,
    SpanSearch,
    contains,
    count_one_by_one,
)
from chimes.triggers.values import (
    LAST_MICROSECOND,
    check_year,
    format_moment,
    place,
    read_moment,
    to_microseconds,
    zones_differ,
)
from chimes.triggers.zones import EPOCH_ORDINAL, UTC_NAME, Zone, parse_zone

_DAY = 86400
_MICRO = 1_000_000
_ALL_MINUTES = (1 << 1440) - 1
_ALL_SECONDS = (1 << 60) - 1
_LAST_DAY = date.max.toordinal() - EPOCH_ORDINAL
MAX_DATES = 1000
#: COUNT ends a rule within this time of its start, or never.
_COUNTED_DAYS = 400 * 366
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
#: Days crossed with minutes of the day and seconds.
Times = tuple["RuleDays", int, int]


class RuleMonths:
    """The days of each month that the BY parts of a rule allow, as masks (bit 0 is the 1st)."""

    __slots__ = ("_masks", "rule")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._masks: dict[int, int] = {}

    def mask(self, index: int) -> int:
        """Of the month `index`, which is 12·year + month − 1."""
        found = self._masks.get(index)
        if found is None:
            found = self._masks[index] = self._compute(index // 12, index % 12 + 1)
        return found

    def has(self, day: date) -> bool:
        return bool(self.mask(12 * day.year + day.month - 1) >> (day.day - 1) & 1)

    def _compute(self, year: int, month: int) -> int:
        rule = self.rule
        if rule.months and month not in rule.months:
            return 0
        length = month_length(year, month)
        if not rule.names_days:
            return (1 << length) - 1
        first = date(year, month, 1)
        # Days of the year before this month, and of the whole year.
        before = first.toordinal() - date(year, 1, 1).toordinal()
        year_length = 337 + month_length(year, 2)
        by_month = rule.freq == "MONTHLY" or bool(rule.months)
        mask = 0
        for day in range(1, length + 1):
            weekday = (first.weekday() + day - 1) % 7
            number, total = (day, length) if by_month else (before + day, year_length)
            if (
                _allowed(rule.month_days, day, length)
                and _allowed(rule.year_days, before + day, year_length)
                and _allowed_weekday(rule, weekday, number, total)
                and (not rule.weeks or _allowed_week(rule, first.replace(day=day)))
            ):
                mask |= 1 << day - 1
        return mask


def _allowed(values: tuple[int, ...], number: int, total: int) -> bool:
    return not values or number in values or number - total - 1 in values


def _allowed_weekday(rule: Rule, weekday: int, number: int, total: int) -> bool:
    if not (rule.weekdays or rule.nth) or weekday in rule.weekdays:
        return True
    from_start, from_end = (number - 1) // 7 + 1, -((total - number) // 7 + 1)
    return (from_start, weekday) in rule.nth or (from_end, weekday) in rule.nth


def _allowed_week(rule: Rule, day: date) -> bool:
    return _allowed(rule.weeks, *week_number(day, rule.week_start))


class RuleDays(DayMasks):
    """The days of a rule from day `first` to day `last` (None: no end), as days since 1970.

    `positions` are those of BYSETPOS within each period (0: the first matching day, -1: the last;
    None: no BYSETPOS). `without` are days that EXDATE removes."""

    __slots__ = ("_first", "_last", "_months", "_positions", "_start", "_without")

    def __init__(
        self,
        months: RuleMonths,
        start: int,
        first: int,
        last: int | None,
        positions: frozenset[int] | None,
        without: frozenset[int],
    ) -> None:
        super().__init__()
        self._months = months
        #: The day of DTSTART, with which the first period begins.
        self._start = start
        self._first = first
        self._last = last
        self._positions = positions
        self._without = without

    def _compute(self, number: int) -> int:
        first = number * DAYS_IN_BLOCK
        last = min(first + DAYS_IN_BLOCK - 1, _LAST_DAY)
        if last < self._first or (self._last is not None and first > self._last):
            return 0
        low = max(first, self._first)
        high = last if self._last is None else min(last, self._last)
        found = self._stepped(low, high) if self._positions is None else self._placed(low, high)
        return sum(1 << day - first for day in found if day not in self._without)

    def _stepped(self, low: int, high: int) -> Iterator[int]:
        """The matching days of every INTERVAL-th period, between two days."""
        rule = self._months.rule
        start = date.fromordinal(self._start + EPOCH_ORDINAL)
        week = self._start - (start.weekday() - rule.week_start) % 7
        at = low
        while at <= high:
            day = date.fromordinal(at + EPOCH_ORDINAL)
            index = 12 * day.year + day.month - 1
            following = at + month_length(day.year, day.month) - day.day + 1
            mask = self._months.mask(index)
            if (
                rule.freq == "MONTHLY"
                and (index - 12 * start.year - start.month + 1) % rule.interval
            ):
                mask = 0
            if rule.freq == "YEARLY" and (day.year - start.year) % rule.interval:
                mask = 0
            mask >>= day.day - 1
            while mask and at <= high:
                skip = (mask & -mask).bit_length() - 1
                found = at + skip
                if found > high:
                    break
                mask &= mask - 1
                if rule.freq == "DAILY" and (found - self._start) % rule.interval:
                    continue
                if rule.freq == "WEEKLY" and (found - week) // 7 % rule.interval:
                    continue
                yield found
            at = following

    def _placed(self, low: int, high: int) -> Iterator[int]:
        assert self._positions is not None
        for first, last in self._periods(low, high):
            days = [*self._stepped(max(first, 0), min(last, _LAST_DAY))]
            chosen = {days[at] for at in self._positions if -len(days) <= at < len(days)}
            yield from (day for day in sorted(chosen) if low <= day <= high)

    def _periods(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The first and last days of the periods that have one of these days."""
        rule = self._months.rule
        at = max(low, self._start)
        while at <= high:
            day = date.fromordinal(at + EPOCH_ORDINAL)
            match rule.freq:
                case "YEARLY":
                    first = day.replace(month=1, day=1).toordinal() - EPOCH_ORDINAL
                    length = 337 + month_length(day.year, 2)
                case "MONTHLY":
                    first = day.replace(day=1).toordinal() - EPOCH_ORDINAL
                    length = month_length(day.year, day.month)
                case "WEEKLY":
                    first, length = at - (day.weekday() - rule.week_start) % 7, 7
                case _:
                    first, length = at, 1
            # The first week begins with DTSTART, as for python-dateutil.
            begins = max(first, self._start) if rule.freq == "WEEKLY" else first
            yield begins, first + length - 1
            at = first + length


def _with_defaults(rule: Rule, start: date) -> Rule:
    """With the days that DTSTART stands for, if the rule names none."""
    if rule.names_days or rule.elapsed or rule.freq == "DAILY":
        return rule
    if rule.freq == "WEEKLY":
        return rule._replace(weekdays=(start.weekday(),))
    months = rule.months
    if rule.freq == "YEARLY" and not months:
        months = (start.month,)
    return rule._replace(months=months, month_days=(start.day,))


@lru_cache(maxsize=4096)
def _wall_times(rule_text: str, start: int, without: frozenset[int]) -> tuple[Times, ...]:
    """The wall times of a rule that recurs daily or more rarely; `start` is the wall second of
    DTSTART, `without` are days on which it does not fire."""
    rule = parse_rule(rule_text)
    last = None
    if rule.until is not None and not rule.until.utc:
        last = _wall_of_until(rule.until)
    elif rule.most is not None:
        last = _nth_wall(_parts(rule, start, None, frozenset()), start, rule.most)
    return tuple(_parts(rule, start, last, without))


def _parts(rule: Rule, start: int, last: int | None, without: frozenset[int]) -> list[Times]:
    first_day, clock = divmod(start, _DAY)
    months = RuleMonths(_with_defaults(rule, date.fromordinal(first_day + EPOCH_ORDINAL)))
    clocks = [
        hour * 3600 + minute * 60 + second
        for hour in rule.hours or (clock // 3600,)
        for minute in rule.minutes or (clock % 3600 // 60,)
        for second in rule.seconds or (clock % 60,)
    ]
    #: BYSETPOS counts pairs of day and time: the positions of the days for each time; None: all.
    wanted: dict[int, frozenset[int] | None] = dict.fromkeys(clocks)
    if rule.positions:
        found: dict[int, set[int]] = {}
        for position in rule.positions:
            ahead = position > 0
            days, times = divmod(abs(position) - 1, len(clocks))
            found.setdefault(clocks[times if ahead else -1 - times], set()).add(
                days if ahead else -1 - days
            )
        wanted = {at: frozenset(days) for at, days in found.items()}
    groups: dict[tuple[int, int | None, frozenset[int] | None], list[int]] = {}
    for at, positions in wanted.items():
        begins = first_day + (at < clock)
        ends = None if last is None else last // _DAY - (at > last % _DAY)
        groups.setdefault((begins, ends, positions), []).append(at)
    parts: list[Times] = []
    for (begins, ends, positions), members in groups.items():
        own_days = RuleDays(months, first_day, begins, ends, positions, without)
        seconds: dict[int, int] = {}
        for at in members:
            seconds[at // 60] = seconds.get(at // 60, 0) | 1 << at % 60
        minutes: dict[int, int] = {}
        for minute, mask in seconds.items():
            minutes[mask] = minutes.get(mask, 0) | 1 << minute
        parts += [(own_days, each, mask) for mask, each in minutes.items()]
    return parts


def _wall_of_until(until: Until) -> int:
    since = until.local.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    second = since.days * _DAY + since.seconds
    return second + _DAY - 1 if until.whole_day else second


def _nth_wall(parts: list[Times], start: int, count: int) -> int | None:
    """The wall second of the nth fire; None if the rule does not get there in 400 years."""
    wall: Wall = open_wall_times(list(parts), None)
    at, left = start, count
    end = min(start + _COUNTED_DAYS * _DAY, _LAST_DAY * _DAY)
    while at < end:
        until = min(at + DAYS_IN_BLOCK * _DAY, end) - 1
        found = wall.count(at, until)
        if found >= left:
            for _each in range(left):
                at = wall.at_or_after(at, until) + 1
            return at - 1
        left -= found
        at = until + 1
    return None


class ElapsedSearch:
    """The fires of an hourly, minutely or secondly rule, in elapsed time from its start.

    Period k begins k·INTERVAL units after the start. Smaller BY parts (BYMINUTE of an hourly rule)
    list times within its hour or minute of the wall clock, larger ones select.
    """

    __slots__ = (
        "_last",
        "_listed",
        "_open",
        "_plain",
        "_rule",
        "_start",
        "_step",
        "_unit",
        "_zone",
    )

    def __init__(self, rule: Rule, start: int, zone: Zone, last: int | None) -> None:
        self._rule = rule
        self._start = start
        self._zone = zone
        self._unit = ELAPSED[rule.freq]
        self._step = rule.interval * self._unit
        minutes = _ALL_MINUTES
        if rule.hours or rule.minutes:
            minutes = sum(
                1 << hour * 60 + minute
                for hour in rule.hours or range(24)
                for minute in rule.minutes or range(60)
            )
        seconds = sum(1 << each for each in rule.seconds) or _ALL_SECONDS
        daily = RuleMonths(rule._replace(freq="DAILY", interval=1))
        days = RuleDays(daily, 0, 0, None, None, frozenset())
        wall = WallTimes(days, minutes, seconds)
        #: Every second that the BY parts allow.
        self._open = CronSearch(wall, wall, zone, after_gap=False, twice=True)
        #: A BY part lists times within the period, such as BYMINUTE of an hourly rule.
        self._listed = (self._unit > 60 and bool(rule.minutes)) or (
            self._unit > 1 and bool(rule.seconds)
        )
        filters = rule.names_days or rule.months or rule.hours or rule.minutes or rule.seconds
        #: Without BY parts a search is one calculation.
        self._plain = not filters
        self._last = last
        if rule.most is not None:
            self._last = self._nth(rule.most)

    def _nth(self, count: int) -> int | None:
        if self._plain:
            return self._start + (count - 1) * self._step
        at: int | None = self._start * _MICRO - 1
        for _each in range(count):
            assert at is not None
            at = self.after(at)
            if at is None:
                return None
        assert at is not None
        return at // _MICRO

    def _period(self, number: int) -> list[int]:
        """The fires of period k, in seconds."""
        begins = self._start + number * self._step
        found = [begins]
        if self._listed:
            wall = begins + self._zone.offset_at(begins)
            base = begins - wall % self._unit
            minutes = [0]
            if self._unit > 60:
                minutes = list(self._rule.minutes) or [wall % 3600 // 60]
            seconds = self._rule.seconds or (wall % 60,)
            found = [base + minute * 60 + second for minute in minutes for second in seconds]
        if not self._plain:
            found = [at for at in found if contains(self._open, at * _MICRO)]
        if self._rule.positions:
            size = len(found)
            places = {at - 1 if at > 0 else size + at for at in self._rule.positions}
            found = [found[place] for place in sorted(places) if 0 <= place < size]
        return [
            at for at in found if at >= self._start and (self._last is None or at <= self._last)
        ]

    def after(self, moment: int) -> int | None:
        second = max(moment // _MICRO + 1, self._start)
        if self._plain:
            found = self._start - (self._start - second) // self._step * self._step
            return None if self._last is not None and found > self._last else found * _MICRO
        limit = min(second + SEARCH_SECONDS, LAST_MICROSECOND // _MICRO)
        if self._last is not None:
            limit = min(limit, self._last)
        number = max(0, (second - self._unit - self._start) // self._step)
        while second <= limit:
            opens = self._open.after(second * _MICRO - 1)
            if opens is None:
                return None
            second = opens // _MICRO
            number = max(number, (second - self._unit - self._start) // self._step)
            best = min((at for at in self._period(number) if at >= second), default=None)
            if best is not None:
                # A clock change of half an hour may interleave two periods.
                others = (at for at in self._period(number + 1) if second <= at < best)
                return min(others, default=best) * _MICRO
            number += 1
            second = max(second, self._start + number * self._step - self._unit + 1)
        return None

    def before(self, moment: int) -> int | None:
        second = (moment - 1) // _MICRO
        if self._last is not None:
            second = min(second, self._last)
        if second < self._start:
            return None
        if self._plain:
            return (second - (second - self._start) % self._step) * _MICRO
        limit = max(second - SEARCH_SECONDS, self._start)
        number = (second + self._unit - self._start) // self._step
        while second >= limit and number >= 0:
            opens = self._open.before(second * _MICRO + 1)
            if opens is None:
                return None
            second = opens // _MICRO
            number = min(number, (second + self._unit - self._start) // self._step)
            if number < 0:
                return None
            best = max((at for at in self._period(number) if at <= second), default=None)
            if best is not None:
                if number:
                    others = (at for at in self._period(number - 1) if best < at <= second)
                    best = max(others, default=best)
                return best * _MICRO
            number -= 1
            second = min(second, self._start + number * self._step + self._unit - 1)
        return None

    def count(self, first: int, last: int) -> int:
        if not self._plain:
            return count_one_by_one(self, first, last)
        start, end = self.after(first - 1), self.before(last + 1)
        if start is None or end is None or end < start:
            return 0
        return (end - start) // (self._step * _MICRO) + 1

    def note(self, fire: int) -> Note | None:
        return None


@dataclass(frozen=True, slots=True, init=False)
class RRule(TriggerBase):
    """Fires at the times of a recurrence rule (`FREQ=WEEKLY;INTERVAL=2;BYDAY=TU`), counted from
    `dtstart`, without those of `exdates` and also at `rdates`.

    Moments without an offset are local times in `timezone`. A date among `exdates` removes the
    fires of that day, one among `rdates` means the time of `dtstart`. DTSTART itself fires only if
    it matches the rule.
    """

    kind: ClassVar[Literal["rrule"]] = "rrule"
    json_keys: ClassVar[tuple[str, ...]] = ("rule", "dtstart", "timezone", "exdates", "rdates")
    required: ClassVar[tuple[str, ...]] = ("rule", "dtstart")

    rule: str
    dtstart: str
    timezone: str | None
    exdates: tuple[str, ...]
    rdates: tuple[str, ...]
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    jitter: timedelta | None
    spread: timedelta | None
    _search: Search = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        rule: str,
        *,
        dtstart: str | datetime,
        timezone: str | None = None,
        exdates: Iterable[object] = (),
        rdates: Iterable[object] = (),
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
        jitter: str | timedelta | None = None,
        spread: str | timedelta | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "rule", normalize_rule(rule))
        parsed = parse_rule(self.rule)
        given = None if timezone is None else parse_zone(timezone)
        text = _moment_text(dtstart, "dtstart")
        read = read_moment(_at_midnight(text), field="dtstart")
        if read.zone is not None and given is not None and read.zone.name != given.name:
            raise zones_differ(read.zone, given, "dtstart")
        zone = given or read.zone
        put(self, "timezone", None if zone is None else zone.name)
        applies = zone or parse_zone(UTC_NAME)
        local = read.local
        put(self, "dtstart", local.isoformat())
        if read.instant is not None:
            put(self, "dtstart", format_moment(read.instant))
            offset = applies.offset_at(to_microseconds(read.instant) // _MICRO)
            local = (read.instant + timedelta(seconds=offset)).replace(tzinfo=None)
        if local.microsecond:
            raise InvalidTrigger(
                _("dtstart must be a whole second"), field="dtstart", code="out_of_range"
            )
        start = read.instant or check_year(place(local, applies)[0], "dtstart")
        put(self, "exdates", _texts(exdates, "exdates"))
        put(self, "rdates", _texts(rdates, "rdates"))
        self._set_bounds(start_at, end_at, max_runs, exclude, zone, jitter, spread)
        instants = _Instants(self.exdates, self.rdates, local, applies)

        def search() -> Search:
            return self._rule_search(parsed, local, start, applies, instants)

        put(self, "_search", self._compile(search, applies))

    def _rule_search(
        self, rule: Rule, local: datetime, start: datetime, zone: Zone, dates: _Instants
    ) -> Search:
        first = to_microseconds(start) // _MICRO
        last = None
        if rule.until is not None and (rule.until.utc or rule.elapsed):
            last = _end_of(rule.until, zone)
        found: Search
        if rule.elapsed:
            found = ElapsedSearch(rule, first, zone, last)
            days = [(day, day + 1) for day in sorted(dates.days)]
            spans = [
                tuple(zone.from_local(edge * _DAY)[0] * _MICRO for edge in each) for each in days
            ]
            if spans:
                found = SpanSearch(found, [(low, high) for low, high in spans])
            if self.exclude:
                found = OpenFires(found, bands(self.exclude), zone)
        else:
            wall_start = to_microseconds(local.replace(tzinfo=UTC)) // _MICRO
            times = list(_wall_times(self.rule, wall_start, dates.days))
            plain = open_wall_times(list(times), None)
            wall = open_wall_times(list(times), bands(self.exclude)) if self.exclude else plain
            found = CronSearch(wall, plain, zone, after_gap=True, twice=False)
        if dates.added or dates.removed or last is not None:
            end = None if last is None else last * _MICRO
            return DatesSearch(found, dates.added, dates.removed, end)
        return found

    @property
    def zone(self) -> str:
        return self.timezone or UTC_NAME

    def with_default_zone(self, name: str) -> Self:
        parse_zone(name)
        return self if self.timezone is not None else replace(self, timezone=name)

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "rule": self.rule, "dtstart": self.dtstart}
        if self.timezone is not None:
            found["timezone"] = self.timezone
        if self.exdates:
            found["exdates"] = list(self.exdates)
        if self.rdates:
            found["rdates"] = list(self.rdates)
        return found | self._bounds_dict()


class _Instants:
    """The dates that a rule lists: instants in microseconds, and days without fires."""

    __slots__ = ("added", "days", "removed")

    def __init__(
        self, exdates: Iterable[str], rdates: Iterable[str], start: datetime, zone: Zone
    ) -> None:
        days = set()
        removed = set()
        for index, text in enumerate(exdates):
            where = f"exdates[{index}]"
            if _DATE.fullmatch(text):
                days.add(parse_day(text, where))
            else:
                removed.add(_instant(text, zone, where))
        self.days = frozenset(days)
        self.removed = frozenset(removed)
        clock = start.time().isoformat()
        self.added = [
            _instant(f"{text}T{clock}" if _DATE.fullmatch(text) else text, zone, f"rdates[{index}]")
            for index, text in enumerate(rdates)
        ]


def _instant(text: str, zone: Zone, field: str) -> int:
    read = read_moment(text, field=field)
    if read.instant is not None:
        return to_microseconds(read.instant)
    if read.zone is not None and read.zone.name != zone.name:
        raise zones_differ(read.zone, zone, field)
    return to_microseconds(check_year(place(read.local, zone)[0], field))


def _end_of(until: Until, zone: Zone) -> int:
    """The last second of a rule in UTC."""
    wall = _wall_of_until(until._replace(whole_day=False))
    if until.utc:
        return wall
    return zone.from_local(wall + _DAY)[0] - 1 if until.whole_day else zone.from_local(wall)[0]


def _at_midnight(text: str) -> str:
    return f"{text}T00:00:00" if _DATE.fullmatch(text) else text


def _moment_text(value: object, field: str) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value.strip()
    raise InvalidTrigger(
        _("{key} must be text, not {type}", key=field, type=type(value).__name__),
        field=field,
        code="wrong_type",
    )


def _texts(given: object, field: str) -> tuple[str, ...]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InvalidTrigger(
            _("{field} must be a list, not {type}", field=field, type=type(given).__name__),
            field=field,
            code="wrong_type",
        )
    items = [_moment_text(each, f"{field}[{index}]") for index, each in enumerate(given)]
    if len(items) > MAX_DATES:
        raise InvalidTrigger(
            _(
                "{field} must have between {least} and {most} items, not {count}",
                field=field,
                least=0,
                most=MAX_DATES,
                count=len(items),
            ),
            field=field,
            code="out_of_range",
        )
    return tuple(items)
