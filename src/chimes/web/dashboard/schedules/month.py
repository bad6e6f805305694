"""Schedules as a month: what each day brings (UX A.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from babel.dates import format_date, get_day_names
from starlette.responses import Response

from chimes.model.insights import QUARTER, RunFilter, StatusCounts, Window, sum_counts
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.schedule import Schedule, due_time, has_runs_left
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.filters import Filter
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone
from chimes.web.dashboard.runs.views import between

# @@ A month of what is planned, day by day (UX A.2); pure. Fires are the scheduler's own.

#: Slots that are computed for one page.
MOST_SLOTS = 9_000
#: Fires of one schedule on one day that are counted, after so many slots; of more is said that
#: there are more. It gets less and less, so that a few that fire every minute do not hide the rest.
PER_DAY = ((0, 100), (MOST_SLOTS // 3, 24), (MOST_SLOTS * 2 // 3, 4))
#: Names that fit into a day.
NAMES = 3
_BUDDHIST = 543
_INSTANT = timedelta(microseconds=1)
_YEARS = (1970, 2200)


class Span(NamedTuple):
    """A month of a zone, as moments: the end is not in it."""

    first: date
    start: datetime
    end: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Fires:
    """Of one schedule on one day."""

    schedule: Schedule
    #: In their order, as many as were looked at.
    at: tuple[datetime, ...]
    #: There are more than those.
    more: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    days: Mapping[date, tuple[Fires, ...]] = field(default_factory=dict)
    #: Schedules that there was no time to look at.
    left_out: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    date: date
    name: str
    start: datetime
    end: datetime
    fires: tuple[Fires, ...] = ()
    #: What ran on it, where that can be counted.
    ran: StatusCounts | None = None
    today: bool = False
    over: bool = False

    @property
    def count(self) -> int:
        return sum(len(each.at) for each in self.fires)

    @property
    def more(self) -> bool:
        return any(each.more for each in self.fires)


#: None: a day of another month.
Week = tuple[Day | None, ...]


def month_from(text: str, now: datetime, zone: str) -> Span:
    """`2026-11`; whatever else is the month that it is."""
    today = now.astimezone(times.zone_info(zone)).date()
    year, _, month = text.partition("-")
    known = len(year) == 4 and (year + month).isascii() and (year + month).isdigit()
    if known and _YEARS[0] <= int(year) <= _YEARS[1] and 1 <= int(month) <= 12:
        return span_of(date(int(year), int(month), 1), zone)
    return span_of(today.replace(day=1), zone)


def span_of(first: date, zone: str) -> Span:
    return Span(first, midnight(first, zone), midnight(following(first), zone))


def following(first: date) -> date:
    return (first.replace(day=28) + timedelta(days=4)).replace(day=1)


def before(first: date) -> date:
    return (first - timedelta(days=1)).replace(day=1)


def midnight(day: date, zone: str) -> datetime:
    """The first moment of a day, also of one that begins at one o'clock."""
    local = datetime(day.year, day.month, day.day, tzinfo=times.zone_info(zone))
    return local.astimezone(UTC)


def day_from(text: str, span: Span) -> date | None:
    """A day of that month; None: nothing of the kind."""
    try:
        found = date.fromisoformat(text)
    except ValueError:
        return None
    return found if found.replace(day=1) == span.first else None


# --- what is planned ------------------------------------------------------------------------------
def planned_in(schedules: Sequence[Schedule], span: Span, zone: str) -> Planned:
    """Each in the order given, as long as `MOST_SLOTS` lets us."""
    days: dict[date, list[Fires]] = {}
    spent = left_out = 0
    for place, schedule in enumerate(schedules):
        if spent >= MOST_SLOTS:
            return _planned(days, left_out=left_out + len(schedules) - place)
        per_day = [count for since, count in PER_DAY if spent >= since][-1]
        walk = _Walk(schedule, span.start)
        for day, fires in _days_of(walk, span, zone, per_day):
            days.setdefault(day, []).append(fires)
        spent += walk.steps
        left_out += walk.gave_up
    return _planned(days, left_out=left_out)


def _planned(days: Mapping[date, Iterable[Fires]], *, left_out: int) -> Planned:
    """Within a day the first comes first."""
    ordered = {
        day: tuple(sorted(found, key=lambda each: each.at[0])) for day, found in days.items()
    }
    return Planned(days=ordered, left_out=left_out)


def _days_of(walk: _Walk, span: Span, zone: str, per_day: int) -> Iterator[tuple[date, Fires]]:
    clock = times.zone_info(zone)
    while walk.at is not None and walk.at < span.end:
        day = walk.at.astimezone(clock).date()
        end = midnight(day + timedelta(days=1), zone)
        found: list[datetime] = []
        while walk.at is not None and walk.at < end and len(found) < per_day:
            found.append(walk.at)
            walk.step()
        more = walk.at is not None and walk.at < end
        yield day, Fires(schedule=walk.schedule, at=tuple(found), more=more)
        if more:
            walk.skip_to(end)


class _Walk:
    """Along the slots of a schedule. `at`: when the present one is carried out; None: no more."""

    def __init__(self, schedule: Schedule, start: datetime) -> None:
        self.schedule = schedule
        self.steps = 0
        #: It would have taken too many steps.
        self.gave_up = False
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
        """Without looking at those between, unless only so many are left."""
        if self.schedule.trigger.max_runs is None:
            self._go(self.schedule.trigger.next_after(moment - _INSTANT))
            return
        while self.at is not None and self.at < moment:
            if self.steps >= MOST_SLOTS:
                self.at, self.gave_up = None, True
                return
            self.step()

    def _go(self, slot: datetime | None) -> None:
        self.steps += 1
        self._slot = slot
        left = slot is not None and has_runs_left(self.schedule, self._fired)
        self.at = due_time(self.schedule, slot) if left else None


# --- as a picture ---------------------------------------------------------------------------------
def weeks_of(
    span: Span,
    planned: Planned,
    ran: Mapping[date, StatusCounts],
    display: DisplayPreferences,
    zone: str,
    now: datetime,
) -> tuple[Week, ...]:
    """Weeks begin as they do where the language is spoken."""
    today = now.astimezone(times.zone_info(zone)).date()
    first_weekday = times.locale_of(display.language).first_week_day
    days: list[Day | None] = [None] * ((span.first.weekday() - first_weekday) % 7)
    day = span.first
    while day < following(span.first):
        end = midnight(day + timedelta(days=1), zone)
        days.append(
            Day(
                date=day,
                name=day_name(day, display),
                start=midnight(day, zone),
                end=end,
                fires=planned.days.get(day, ()),
                ran=ran.get(day),
                today=day == today,
                over=end <= now,
            )
        )
        day += timedelta(days=1)
    days += [None] * (-len(days) % 7)
    return tuple(tuple(days[place : place + 7]) for place in range(0, len(days), 7))


def weekdays(display: DisplayPreferences) -> tuple[tuple[str, str], ...]:
    """Short and whole, in the order of the columns."""
    locale = times.locale_of(display.language)
    short, whole = get_day_names("abbreviated", locale=locale), get_day_names(locale=locale)
    order = [(locale.first_week_day + place) % 7 for place in range(7)]
    return tuple((str(short[each]), str(whole[each])) for each in order)


def month_name(first: date, display: DisplayPreferences) -> str:
    return _dated(first, {"zh": "y年M月"}.get(display.language, "MMMM y"), display)


def day_name(day: date, display: DisplayPreferences) -> str:
    return _dated(day, {"zh": "y年M月d日EEEE"}.get(display.language, "EEEE d MMMM y"), display)


def _dated(day: date, pattern: str, display: DisplayPreferences) -> str:
    if display.era == "be":
        pattern = pattern.replace("y", f"'{day.year + _BUDDHIST}'")
    return str(format_date(day, pattern, locale=times.locale_of(display.language)))


HERE = "/ui/schedules"
#: Those that fire soonest; whoever wants to see others narrows the filter.
MOST_SCHEDULES = 100
_HOUR = timedelta(hours=1)


async def month_page(
    request: PageRequest, found: Filter, query: ScheduleQuery, /, **values: object
) -> Response:
    zone = primary_zone(request.display, None)
    span = month_from(request.query.get("month", ""), request.now, zone)
    due = _until(query, span.end)
    page = await request.context.schedules.find(request.actor, replace(due, limit=MOST_SCHEDULES))
    beyond = 0
    if page.next is not None:
        beyond = await request.context.schedules.count(request.actor, due) - len(page.items)
    planned = planned_in(page.items, span, zone)
    ran = await _ran(request, query, span, zone)
    day = day_from(request.query.get("day", ""), span)

    def address(first: date, **more: str) -> str:
        return found.address(HERE, view="month", month=f"{first:%Y-%m}", **more)

    return request.render(
        "schedules/month.html",
        status=200,
        title=month_name(span.first, request.display),
        weekdays=weekdays(request.display),
        weeks=weeks_of(span, planned, ran, request.display, zone, request.now),
        names=NAMES,
        zone=zone,
        earlier=address(before(span.first)),
        later=address(following(span.first)),
        this_month=found.address(HERE, view="month"),
        day_address=lambda each: address(span.first, day=f"{each:%Y-%m-%d}") + "#day",
        runs_address=lambda each: between(Filter(), each.start, each.end),
        left_out=planned.left_out + beyond,
        day=day,
        day_name=day_name(day, request.display) if day else "",
        day_fires=planned.days.get(day, ()) if day else (),
        **values,
    )


def _until(query: ScheduleQuery, end: datetime) -> ScheduleQuery:
    """Those that fire before the end, the soonest first."""
    due_by = end if query.due_by is None else min(end, query.due_by)
    return replace(query, due_by=due_by, sort=ScheduleSort.NEXT_RUN_AT, descending=False)


async def _ran(
    request: PageRequest, query: ScheduleQuery, span: Span, zone: str
) -> Mapping[date, StatusCounts]:
    """What has run on the days that are over, and so far today; nothing where the filter has a
    condition that sums do not know of."""
    filter_ = RunFilter(owner=query.owner, namespace=query.namespace, kind=query.kind)
    asked = ScheduleQuery(owner=query.owner, namespace=query.namespace, kind=query.kind)
    if span.start >= request.now or _conditions(query) != asked:
        return {}
    window = Window.around(span.start, min(span.end, request.now))
    whole_hours = not (span.start - span.end) % _HOUR and not span.start.minute
    step = _HOUR if whole_hours else QUARTER
    insights = request.context.insights
    tallies = await insights.run_buckets(request.actor, window, step, filter_)
    clock = times.zone_info(zone)
    days = groupby(tallies, key=lambda tally: tally.at.astimezone(clock).date())
    return {day: sum_counts(found, midnight(day, zone)) for day, found in days}


def _conditions(query: ScheduleQuery) -> ScheduleQuery:
    """Without order and page."""
    usual = ScheduleQuery()
    return replace(
        query,
        sort=usual.sort,
        descending=usual.descending,
        after=None,
        limit=usual.limit,
    )
