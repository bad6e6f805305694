"""The cron trigger: an expression in a time zone, and the search for its fires, on integers.

The wall clock is searched by masks (`WallTimes`), one segment of constant UTC offset at a time
(`CronSearch`), so clock changes matter only where two segments meet. A segment knows
whether it begins with a repeated hour or after a gap; two flags decide what the expression does:

| dst | fires after the gap for times in the gap | fires in the second pass |
|---|---|---|
| chimes | unless the hour has `*` or `/` | if minute or hour has `*` or `/` |
| vixie | if neither minute nor hour begins with `*` | if minute or hour begins with `*` |
| robfig | never | always |

`vixie` is Debian's cron: wildcard jobs follow real time, all others run right after a gap and once
in a repeated hour. `robfig` is every real instant whose wall time matches; the endless loop of the
original at Pacific/Apia 2011 and its rounding at half-hour shifts are not reproduced.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, Protocol, Self

from chimes.errors import InvalidTrigger
from chimes.i18n import _
from chimes.triggers.base import TriggerBase, parse_bound
from chimes.triggers.calendars import Band, Calendar, OpenDays, bands
from chimes.triggers.cron_fields import (
    EVERY,
    MAX_EXPRESSION_LENGTH,
    CronFields,
    DaySet,
    expand_hashes,
    has_hashes,
    parse_fields,
)
from chimes.triggers.every import MICROSECOND, IntervalSearch, parse_interval
from chimes.triggers.searches import SEARCH_SECONDS, Note, Search
from chimes.triggers.values import (
    check_text,
    format_moment,
    from_microseconds,
    quote_text,
    suggest_name,
    to_microseconds,
)
from chimes.triggers.zones import FOREVER, NEAR_LIMIT, UTC_NAME, Segment, Zone, parse_zone

Dialect = Literal["auto", "unix", "seconds", "quartz"]
Dst = Literal["chimes", "vixie", "robfig"]

DIALECTS = ("auto", "unix", "seconds", "quartz")
POLICIES = ("chimes", "vixie", "robfig")
_PREFIXES = ("CRON_TZ=", "TZ=")


@dataclass(frozen=True, slots=True, init=False)
class Cron(TriggerBase):
    """Fires where the wall clock of its zone matches the expression.

    `dialect` is chosen by the number of fields (5 unix, 6 seconds first, 7 quartz) unless given.
    A `CRON_TZ=` or `TZ=` prefix wins over `timezone`. `dst` is the policy for clock changes; see
    above. `anchor` is for `@every` only, as for Every. `seed` decides the values of hashed fields
    (`H`); a schedule uses its id.
    """

    kind: ClassVar[Literal["cron"]] = "cron"
    json_keys: ClassVar[tuple[str, ...]] = (
        "expression",
        "timezone",
        "dialect",
        "dst",
        "anchor",
        "seed",
    )

    expression: str
    timezone: str | None
    dialect: Dialect
    dst: Dst
    anchor: datetime | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    exclude: tuple[Calendar, ...]
    jitter: timedelta | None
    spread: timedelta | None
    seed: str | None
    _prefix: str | None = field(init=False, repr=False, compare=False)
    _search: Search = field(init=False, repr=False, compare=False)
    _fields: CronFields | None = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        expression: str,
        *,
        timezone: str | None = None,
        dialect: Dialect = "auto",
        dst: Dst = "chimes",
        anchor: datetime | str | None = None,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        max_runs: int | None = None,
        exclude: Iterable[object] = (),
        jitter: str | timedelta | None = None,
        spread: str | timedelta | None = None,
        seed: str | None = None,
    ) -> None:
        put = object.__setattr__
        text = _normalize(expression)
        prefix, body = _split(text)
        named = None if timezone is None else parse_zone(timezone)
        zone = named if prefix is None else parse_zone(prefix, field="expression")
        put(self, "expression", text)
        put(self, "timezone", None if named is None else named.name)
        put(self, "dialect", _choice(dialect, DIALECTS, "dialect"))
        put(self, "dst", _choice(dst, POLICIES, "dst"))
        put(self, "anchor", None if anchor is None else parse_bound(anchor, zone, "anchor"))
        put(self, "_prefix", prefix)
        self._set_bounds(start_at, end_at, max_runs, exclude, zone, jitter, spread)
        applies = zone or parse_zone(UTC_NAME)
        if body.lower().startswith(f"{EVERY} "):
            put(self, "seed", None)
            put(self, "_fields", None)
            put(self, "_search", self._compile(lambda: self._interval(body), applies))
            return
        if self.anchor is not None:
            raise InvalidTrigger(
                _("Only @every counts from an anchor"), field="anchor", code="unknown_key"
            )
        put(self, "seed", None)
        if has_hashes(body):
            put(self, "seed", None if seed is None else check_text(seed, "seed"))
            body = expand_hashes(body, self.dialect, self.seed or "")
        fields = parse_fields(body, self.dialect)
        put(self, "_fields", fields)
        put(self, "_search", self._compile(lambda: self._wall_search(fields, applies), applies))

    def _interval(self, body: str) -> IntervalSearch:
        step = parse_interval(body[len(EVERY) :], "expression") // MICROSECOND
        first = None if self.anchor is None else to_microseconds(self.anchor)
        return IntervalSearch(step, first, self.exclude)

    def _wall_search(self, fields: CronFields, zone: Zone) -> CronSearch:
        after_gap, twice = clock_change_flags(fields, self.dst)
        times = [(fields.days, fields.minutes, fields.seconds)]
        plain = open_wall_times(times, None)
        wall = open_wall_times(times, bands(self.exclude)) if self.exclude else plain
        return CronSearch(wall, plain, zone, after_gap=after_gap, twice=twice)

    @property
    def zone(self) -> str:
        return self._prefix or self.timezone or UTC_NAME

    def with_default_zone(self, name: str) -> Self:
        parse_zone(name)
        if self.timezone is not None or self._prefix is not None:
            return self
        return replace(self, timezone=name)

    def anchored(self, moment: datetime) -> Self:
        aware = from_microseconds(to_microseconds(moment))
        if self.anchor is not None or self._fields is not None:
            return self
        return replace(self, anchor=aware)

    def seeded(self, seed: str) -> Self:
        hashed = has_hashes(_split(self.expression)[1])
        return replace(self, seed=seed) if hashed and self.seed != seed else self

    @property
    def is_example(self) -> bool:
        return self.seed is None and has_hashes(_split(self.expression)[1])

    @property
    def resolved(self) -> str:
        """The expression without its zone, with values in place of hashed fields."""
        body = _split(self.expression)[1]
        return expand_hashes(body, self.dialect, self.seed or "") if has_hashes(body) else body

    def _without_context(self, plain: dict[str, object]) -> dict[str, object]:
        plain.pop("seed", None)
        return TriggerBase._without_context(self, plain)

    def to_dict(self) -> dict[str, object]:
        found: dict[str, object] = {"kind": self.kind, "expression": self.expression}
        if self.timezone is not None:
            found["timezone"] = self.timezone
        if self.dialect != "auto":
            found["dialect"] = self.dialect
        if self.dst != "chimes":
            found["dst"] = self.dst
        if self.anchor is not None:
            found["anchor"] = format_moment(self.anchor)
        if self.seed is not None:
            found["seed"] = self.seed
        return found | self._bounds_dict()


def _normalize(expression: object) -> str:
    if not isinstance(expression, str):
        raise InvalidTrigger(
            _("A cron expression must be text, not {type}", type=type(expression).__name__),
            field="expression",
            code="wrong_type",
        )
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise InvalidTrigger(
            _(
                "A cron expression may have up to {most} characters, not {count}",
                most=MAX_EXPRESSION_LENGTH,
                count=len(expression),
            ),
            field="expression",
            code="too_long",
        )
    text = " ".join(expression.split())
    if not text:
        raise InvalidTrigger(_("The cron expression is empty"), field="expression", code="empty")
    return text


def _split(text: str) -> tuple[str | None, str]:
    """The zone of a prefix, if any, and the rest."""
    if not text.startswith(_PREFIXES):
        return None, text
    for prefix in _PREFIXES:
        if text.startswith(prefix):
            zone, _unused, body = text[len(prefix) :].partition(" ")
            if not body:
                raise InvalidTrigger(
                    _("There is no cron expression after {text}", text=quote_text(text)),
                    field="expression",
                    code="empty",
                )
            return zone, body
    return None, text


def _choice(value: object, known: tuple[str, ...], name: str) -> str:
    if isinstance(value, str) and value in known:
        return value
    raise InvalidTrigger(
        _(
            "{field} must be one of {known}, not {value}",
            field=name,
            known=", ".join(known),
            value=quote_text(value),
        ),
        field=name,
        code="bad_choice" if isinstance(value, str) else "wrong_type",
        hint=suggest_name(value, known) if isinstance(value, str) else None,
    )


# --- the search -----------------------------------------------------------------------------------
# Offsets of a zone differ by less, so a wall time repeats only within this.
_TWO_DAYS = 2 * 86400
# Beyond the end of every segment, so that "none" is never taken for a fire in the last one.
NEVER = 4 * FOREVER


class Wall(Protocol):
    """A set of wall-clock seconds."""

    def at_or_after(self, wall: int, limit: int) -> int:
        """The first one from `wall` on; NEVER if there is none up to the day of `limit`."""
        ...

    def at_or_before(self, wall: int, limit: int) -> int:
        """The last one up to `wall`; -NEVER if there is none back to the day of `limit`."""
        ...

    def count(self, first: int, last: int) -> int:
        """How many lie from `first` to `last`, both included."""
        ...


class WallTimes:
    """A set of days crossed with a set of minutes of the day and a set of seconds."""

    __slots__ = (
        "_blocks",
        "_days",
        "_first",
        "_first_second",
        "_last",
        "_last_second",
        "_minutes",
        "_seconds",
    )

    def __init__(self, days: DaySet, minutes: int, seconds: int) -> None:
        self._days = days
        self._blocks = days.blocks
        self._minutes = minutes
        self._seconds = seconds
        self._first_second = (seconds & -seconds).bit_length() - 1
        self._last_second = seconds.bit_length() - 1
        self._first = ((minutes & -minutes).bit_length() - 1) * 60 + self._first_second
        self._last = (minutes.bit_length() - 1) * 60 + self._last_second

    def at_or_after(self, wall: int, limit: int) -> int:
        minute, second = divmod(wall, 60)
        if second > self._last_second:
            minute += 1
            second = 0
        day, within = divmod(minute, 1440)
        number = day >> 6
        days = self._blocks.get(number)
        days = (self._days.block(number) if days is None else days) >> (day & 63)
        if days & 1:
            minutes = self._minutes >> within
            if minutes & 1:
                seconds = self._seconds >> second
                return minute * 60 + second + (seconds & -seconds).bit_length() - 1
            if minutes:
                minute += (minutes & -minutes).bit_length() - 1
                return minute * 60 + self._first_second
            days -= 1
        last_block = limit // 86400 >> 6
        while not days:
            number += 1
            if number > last_block:
                return NEVER
            day = number << 6
            days = self._days.block(number)
        return (day + (days & -days).bit_length() - 1) * 86400 + self._first

    def at_or_before(self, wall: int, limit: int) -> int:
        minute, second = divmod(wall, 60)
        if second < self._first_second:
            minute -= 1
            second = 59
        day, within = divmod(minute, 1440)
        number = day >> 6
        days = self._days.block(number) & (2 << (day & 63)) - 1
        if days >> (day & 63):
            minutes = self._minutes & (2 << within) - 1
            if minutes >> within:
                seconds = self._seconds & (2 << second) - 1
                return minute * 60 + seconds.bit_length() - 1
            if minutes:
                return (day * 1440 + minutes.bit_length() - 1) * 60 + self._last_second
            days ^= 1 << (day & 63)
        first_block = limit // 86400 >> 6
        while not days:
            number -= 1
            if number < first_block:
                return -NEVER
            days = self._days.block(number)
        return ((number << 6) + days.bit_length() - 1) * 86400 + self._last

    def count(self, first: int, last: int) -> int:
        (day, start), (last_day, end) = divmod(first, 86400), divmod(last, 86400)
        whole = self._days_from(day, last_day - 1) * self._below(86400)
        partly = self._below(end + 1) if self._has(last_day) else 0
        before = self._below(start) if self._has(day) else 0
        return whole + partly - before

    def _has(self, day: int) -> int:
        return self._days.block(day >> 6) >> (day & 63) & 1

    def _days_from(self, first: int, last: int) -> int:
        """How many days of the set lie from `first` to `last`."""
        found = 0
        for number in range(first >> 6, (last >> 6) + 1 if first <= last else first >> 6):
            days = self._days.block(number)
            if number == last >> 6:
                days &= (2 << (last & 63)) - 1
            if number == first >> 6:
                days &= -1 << (first & 63)
            found += days.bit_count()
        return found

    def _below(self, second: int) -> int:
        """How many seconds of a day of the set lie before this one."""
        minute, within = divmod(second, 60)
        full = (self._minutes & (1 << minute) - 1).bit_count() * self._seconds.bit_count()
        if not self._minutes >> minute & 1:
            return full
        return full + (self._seconds & (1 << within) - 1).bit_count()


class WallUnion:
    """The union of several sets of wall times, for days divided by blackout windows."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[WallTimes]) -> None:
        self._parts = parts

    def at_or_after(self, wall: int, limit: int) -> int:
        return min((part.at_or_after(wall, limit) for part in self._parts), default=NEVER)

    def at_or_before(self, wall: int, limit: int) -> int:
        return max((part.at_or_before(wall, limit) for part in self._parts), default=-NEVER)

    def count(self, first: int, last: int) -> int:
        # The parts are different times of the day, so none counts twice.
        return sum(part.count(first, last) for part in self._parts)


def open_wall_times(
    times: Sequence[tuple[DaySet, int, int]], open_bands: list[Band] | None
) -> Wall:
    """The union of days crossed with minutes and seconds, which no two of `times` share; with
    bands, what is left of them after exclusion calendars."""
    parts = [
        WallTimes(days, minutes, seconds)
        if band is None
        else WallTimes(OpenDays(days, band), open_minutes, seconds)
        for days, minutes, seconds in times
        for band in ([None] if open_bands is None else open_bands)
        if (open_minutes := minutes if band is None else minutes & band.minutes)
    ]
    return parts[0] if len(parts) == 1 else WallUnion(parts)


class CronSearch:
    """One expression in one zone under one policy for clock changes."""

    __slots__ = ("_after_gap", "_near", "_plain", "_twice", "_wall", "_zone")

    def __init__(
        self, wall: Wall, plain: Wall, zone: Zone, *, after_gap: bool, twice: bool
    ) -> None:
        self._wall = wall
        # Without calendars, to detect fires that they moved.
        self._plain = plain
        self._zone = zone
        self._near = zone.near
        self._after_gap = after_gap
        self._twice = twice

    def after(self, moment: int) -> int | None:
        """The first fire after this microsecond, within the search bound."""
        second = moment // 1_000_000 + 1
        limit = second + SEARCH_SECONDS
        table = self._near if second < NEAR_LIMIT else self._zone.table(second)
        while second <= limit:
            segment = table.segments[bisect_right(table.instants, second)]
            start, end, offset, fold_end, _ = segment
            if second == start and self._fills_gap(segment):
                return second * 1_000_000
            if second < fold_end and not self._twice:
                second = fold_end
            found = self._wall.at_or_after(second + offset, limit) - offset
            if found < end:
                return found * 1_000_000
            # Nothing matches up to `found` at any offset: unless the clock goes back here, all
            # segments in between can be skipped.
            second = end if end < second + _TWO_DAYS else max(end, found - _TWO_DAYS)
        return None

    def before(self, moment: int) -> int | None:
        """The last fire before this microsecond, within the search bound."""
        second = (moment - 1) // 1_000_000
        limit = second - SEARCH_SECONDS
        table = self._near if second < NEAR_LIMIT else self._zone.table(second)
        while second >= limit:
            segment = table.segments[bisect_right(table.instants, second)]
            start, _, offset, fold_end, _ = segment
            found = self._wall.at_or_before(second + offset, limit) - offset
            if found >= fold_end or (found >= start and self._twice):
                return found * 1_000_000
            if self._fills_gap(segment):
                return start * 1_000_000
            recent = start > second - _TWO_DAYS
            second = start - 1 if recent else min(start - 1, found + _TWO_DAYS)
        return None

    def count(self, first: int, last: int) -> int:
        """How many fires lie from one microsecond to another, by counting wall times."""
        second, final = -(-first // 1_000_000), last // 1_000_000
        found = 0
        while second <= final:
            table = self._near if second < NEAR_LIMIT else self._zone.table(second)
            segment = table.segments[bisect_right(table.instants, second)]
            start, end, offset, fold_end, _ = segment
            if second == start and self._fills_gap(segment):
                found += 1
                second += 1
            if not self._twice:
                second = max(second, fold_end)
            until = min(final, end - 1)
            if second <= until:
                found += self._wall.count(second + offset, until + offset)
            second = max(end, second)
        return found

    def _fills_gap(self, segment: Segment) -> bool:
        """Whether a fire lost in the gap before this segment happens at its start."""
        if not self._after_gap or segment.gap_start == FOREVER:
            return False
        resumes = segment.start + segment.offset
        return self._wall.at_or_after(segment.gap_start, resumes) < resumes

    def note(self, fire: int) -> Note | None:
        """The note of this fire."""
        second = fire // 1_000_000
        table = self._zone.table(second)
        index = bisect_right(table.instants, second)
        segment = table.segments[index]
        wall = second + segment.offset
        if self._wall.at_or_after(wall, wall) != wall:
            return "moved_by_gap"
        if self._plain.at_or_after(wall, wall) != wall:
            return "moved_by_calendar"
        if index and wall < segment.start + table.segments[index - 1].offset:
            return "repeated_hour_second"
        if index + 1 < len(table.segments):
            following = table.segments[index + 1]
            if wall >= following.start + following.offset:
                again = self._twice or following.fold_end == following.start
                return "repeated_hour_first" if again else "repeated_hour_once"
        return None


def clock_change_flags(fields: CronFields, dst: str) -> tuple[bool, bool]:
    """(fires at the end of a gap, fires in both passes) for this expression and policy."""
    minute, hour = fields.minute_text, fields.hour_text
    if dst == "robfig":
        return False, True
    if dst == "vixie":
        wild = minute.startswith("*") or hour.startswith("*")
        return not wild, wild
    hourly = "*" in hour or "/" in hour
    return not hourly, hourly or "*" in minute or "/" in minute
