"""Month view of the schedules: planned fires and past runs per day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from starlette.responses import Response

from chimes.model import replace
from chimes.model.insights import QUARTER, RunFilter, StatusCounts, Window, sum_counts
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.schedule import Schedule, due_time, has_runs_left
from chimes.services.filters import Filter
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.cldr import locale_of
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone
from chimes.web.dashboard.runs.views import between

#: Slots that are computed for one page.
MAX_SLOTS = 9_000
#: (slots computed so far, fires counted per schedule and day). The limit shrinks, so that a few
#: schedules that fire every minute do not use up the slots of the others.
FIRES_PER_DAY = ((0, 100), (MAX_SLOTS // 3, 24), (MAX_SLOTS * 2 // 3, 4))
#: Schedule names per day.
MAX_NAMES = 3
_BUDDHIST_ERA_OFFSET = 543
_INSTANT = timedelta(microseconds=1)
_YEARS = (1970, 2200)


class Span(NamedTuple):
    """A month in a time zone; the end is exclusive."""

    first: date
    start: datetime
    end: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Fires:
    """Fires of one schedule on one day."""

    schedule: Schedule
    #: Ascending; limited to `FIRES_PER_DAY`.
    at: tuple[datetime, ...]
    #: Whether there are more.
    more: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    days: Mapping[date, tuple[Fires, ...]] = field(default_factory=dict)
    #: Schedules that were omitted because of `MAX_SLOTS`.
    omitted: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    date: date
    name: str
    start: datetime
    end: datetime
    fires: tuple[Fires, ...] = ()
    #: Run counts of the day; None if unknown.
    run_counts: StatusCounts | None = None
    today: bool = False
    over: bool = False

    @property
    def count(self) -> int:
        return sum(len(each.at) for each in self.fires)

    @property
    def more(self) -> bool:
        return any(each.more for each in self.fires)


#: None stands for a day of another month.
Week = tuple[Day | None, ...]


def parse_month(text: str, now: datetime, zone: str) -> Span:
    """Parses `2026-11`; anything else gives the current month."""
    today = now.astimezone(times.zone_info(zone)).date()
    year, _, month = text.partition("-")
    known = len(year) == 4 and (year + month).isascii() and (year + month).isdigit()
    if known and _YEARS[0] <= int(year) <= _YEARS[1] and 1 <= int(month) <= 12:
        return span_of(date(int(year), int(month), 1), zone)
    return span_of(today.replace(day=1), zone)


def span_of(first: date, zone: str) -> Span:
    return Span(first, midnight(first, zone), midnight(next_month(first), zone))


def next_month(first: date) -> date:
    return (first.replace(day=28) + timedelta(days=4)).replace(day=1)


def previous_month(first: date) -> date:
    return (first - timedelta(days=1)).replace(day=1)


def midnight(day: date, zone: str) -> datetime:
    """The first instant of a day, also of one whose midnight does not exist."""
    local = datetime(day.year, day.month, day.day, tzinfo=times.zone_info(zone))
    return local.astimezone(UTC)


def parse_day(text: str, span: Span) -> date | None:
    """None unless it is a day of the month."""
    try:
        found = date.fromisoformat(text)
    except ValueError:
        return None
    return found if found.replace(day=1) == span.first else None


# --- planned fires --------------------------------------------------------------------------------
def plan_month(schedules: Sequence[Schedule], span: Span, zone: str) -> Planned:
    """In the order given, until `MAX_SLOTS` is reached."""
    days: dict[date, list[Fires]] = {}
    spent = omitted = 0
    for index, schedule in enumerate(schedules):
        if spent >= MAX_SLOTS:
            return _planned(days, omitted=omitted + len(schedules) - index)
        per_day = [count for since, count in FIRES_PER_DAY if spent >= since][-1]
        slots = _SlotIterator(schedule, span.start)
        for day, fires in _days_of(slots, span, zone, per_day):
            days.setdefault(day, []).append(fires)
        spent += slots.steps
        omitted += slots.exhausted
    return _planned(days, omitted=omitted)


def _planned(days: Mapping[date, Iterable[Fires]], *, omitted: int) -> Planned:
    """Sorts each day by time."""
    ordered = {
        day: tuple(sorted(found, key=lambda each: each.at[0])) for day, found in days.items()
    }
    return Planned(days=ordered, omitted=omitted)


def _days_of(
    slots: _SlotIterator, span: Span, zone: str, per_day: int
) -> Iterator[tuple[date, Fires]]:
    clock = times.zone_info(zone)
    while slots.at is not None and slots.at < span.end:
        day = slots.at.astimezone(clock).date()
        end = midnight(day + timedelta(days=1), zone)
        found: list[datetime] = []
        while slots.at is not None and slots.at < end and len(found) < per_day:
            found.append(slots.at)
            slots.step()
        more = slots.at is not None and slots.at < end
        yield day, Fires(schedule=slots.schedule, at=tuple(found), more=more)
        if more:
            slots.skip_to(end)


class _SlotIterator:
    """Iterates over the slots of a schedule. `at` is the due time of the current one, or None."""

    def __init__(self, schedule: Schedule, start: datetime) -> None:
        self.schedule = schedule
        self.steps = 0
        #: Whether too many steps were needed.
        self.exhausted = False
        self._slot = schedule.next_slot
        self._fired = 0
        self.at = schedule.next_run_at if schedule.next_slot is not None else None
        if self.at is not None and self.at < start:
            self.skip_to(start)

    def step(self) -> None:
        assert self._slot is not None
        self._fired += 1
        self._go(self.schedule.trigger.next_after(self._slot))

    def skip_to(self, moment: datetime) -> None:
        """Jumps there, unless `max_runs` requires counting the slots in between."""
        if self.schedule.trigger.max_runs is None:
            self._go(self.schedule.trigger.next_after(moment - _INSTANT))
            return
        while self.at is not None and self.at < moment:
            if self.steps >= MAX_SLOTS:
                self.at, self.exhausted = None, True
                return
            self.step()

    def _go(self, slot: datetime | None) -> None:
        self.steps += 1
        self._slot = slot
        left = slot is not None and has_runs_left(self.schedule, self._fired)
        self.at = due_time(self.schedule, slot) if left else None


# --- calendar -------------------------------------------------------------------------------------
def weeks_of(
    span: Span,
    planned: Planned,
    run_counts: Mapping[date, StatusCounts],
    display: DisplayPreferences,
    zone: str,
    now: datetime,
) -> tuple[Week, ...]:
    """The first weekday depends on the locale."""
    today = now.astimezone(times.zone_info(zone)).date()
    first_weekday = locale_of(display.language).first_week_day
    days: list[Day | None] = [None] * ((span.first.weekday() - first_weekday) % 7)
    day = span.first
    while day < next_month(span.first):
        end = midnight(day + timedelta(days=1), zone)
        days.append(
            Day(
                date=day,
                name=day_name(day, display),
                start=midnight(day, zone),
                end=end,
                fires=planned.days.get(day, ()),
                run_counts=run_counts.get(day),
                today=day == today,
                over=end <= now,
            )
        )
        day += timedelta(days=1)
    days += [None] * (-len(days) % 7)
    return tuple(tuple(days[place : place + 7]) for place in range(0, len(days), 7))


def weekdays(display: DisplayPreferences) -> tuple[tuple[str, str], ...]:
    """Abbreviated and full names, in the order of the columns."""
    locale = locale_of(display.language)
    short, whole = locale.days["abbreviated"], locale.days["wide"]
    order = [(locale.first_week_day + place) % 7 for place in range(7)]
    return tuple((short[each], whole[each]) for each in order)


def month_name(first: date, display: DisplayPreferences) -> str:
    return _format_date(first, {"zh": "y年M月"}.get(display.language, "MMMM y"), display)


def day_name(day: date, display: DisplayPreferences) -> str:
    return _format_date(
        day, {"zh": "y年M月d日EEEE"}.get(display.language, "EEEE d MMMM y"), display
    )


def _format_date(day: date, pattern: str, display: DisplayPreferences) -> str:
    if display.era == "be":
        pattern = pattern.replace("y", f"'{day.year + _BUDDHIST_ERA_OFFSET}'")
    return locale_of(display.language).format_date(day, pattern)


LIST_PAGE = "/ui/schedules"
#: The schedules that fire soonest.
MAX_SCHEDULES = 100
_HOUR = timedelta(hours=1)


async def month_page(
    request: PageRequest, found: Filter, query: ScheduleQuery, /, **values: object
) -> Response:
    zone = primary_zone(request.display, None)
    span = parse_month(request.query.get("month", ""), request.now, zone)
    due = _until(query, span.end)
    page = await request.context.schedules.find(request.actor, replace(due, limit=MAX_SCHEDULES))
    beyond = 0
    if page.next is not None:
        beyond = await request.context.schedules.count(request.actor, due) - len(page.items)
    planned = plan_month(page.items, span, zone)
    run_counts = await _run_counts(request, query, span, zone)
    day = parse_day(request.query.get("day", ""), span)

    def address(first: date, **more: str) -> str:
        return found.address(LIST_PAGE, view="month", month=f"{first:%Y-%m}", **more)

    return request.render(
        "schedules/month.html",
        status=200,
        title=month_name(span.first, request.display),
        weekdays=weekdays(request.display),
        weeks=weeks_of(span, planned, run_counts, request.display, zone, request.now),
        names=MAX_NAMES,
        zone=zone,
        earlier=address(previous_month(span.first)),
        later=address(next_month(span.first)),
        this_month=found.address(LIST_PAGE, view="month"),
        day_address=lambda each: address(span.first, day=f"{each:%Y-%m-%d}") + "#day",
        runs_address=lambda each: between(Filter(), each.start, each.end),
        omitted=planned.omitted + beyond,
        day=day,
        day_name=day_name(day, request.display) if day else "",
        day_fires=planned.days.get(day, ()) if day else (),
        **values,
    )


def _until(query: ScheduleQuery, end: datetime) -> ScheduleQuery:
    """Schedules that fire before the end, soonest first."""
    due_by = end if query.due_by is None else min(end, query.due_by)
    return replace(query, due_by=due_by, sort=ScheduleSort.NEXT_RUN_AT, descending=False)


async def _run_counts(
    request: PageRequest, query: ScheduleQuery, span: Span, zone: str
) -> Mapping[date, StatusCounts]:
    """Run counts of past days and today; empty if the filter has a condition that run counts do not
    support."""
    filter_ = RunFilter(owner=query.owner, namespace=query.namespace, kind=query.kind)
    countable = ScheduleQuery(owner=query.owner, namespace=query.namespace, kind=query.kind)
    if span.start >= request.now or _conditions(query) != countable:
        return {}
    window = Window.around(span.start, min(span.end, request.now))
    whole_hours = not (span.start - span.end) % _HOUR and not span.start.minute
    step = _HOUR if whole_hours else QUARTER
    insights = request.context.insights
    buckets = await insights.count_runs_by_bucket(request.actor, window, step, filter_)
    clock = times.zone_info(zone)
    days = groupby(buckets, key=lambda bucket: bucket.at.astimezone(clock).date())
    return {day: sum_counts(found, midnight(day, zone)) for day, found in days}


def _conditions(query: ScheduleQuery) -> ScheduleQuery:
    """Without sorting and paging."""
    usual = ScheduleQuery()
    return replace(
        query,
        sort=usual.sort,
        descending=usual.descending,
        after=None,
        limit=usual.limit,
    )
