"""View models of the list of schedules: rows, status labels, sorting. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType

from chimes.i18n import _, counted, in_language
from chimes.model.access import Actor
from chimes.model.ids import ScheduleId
from chimes.model.insights import HEALTH_RESULTS, Result, ScheduleHealth
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.schedule import Schedule
from chimes.services.filters import Filter, sorts_by_name
from chimes.triggers import Cron, Every, Once, OnFile, OnRunEnd, OnSql, Trigger
from chimes.triggers.values import format_duration_go
from chimes.web.dashboard.charts import sparkline as small
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone

NO_RUNS = ScheduleHealth()
_A_DAY = timedelta(days=1)
#: Suggested filters.
HINTS = (
    "status:enabled",
    "status:paused",
    "status:failed",
    "kind:http",
    "kind:task",
    "kind:flow",
    "kind:agent",
    "kind:sync",
    "owner:me",
    "next:<1h",
    "next:<24h",
    "label:",
)


def event_text(trigger: Trigger) -> str:
    """What an event trigger waits for: a path, a query, the id of a schedule."""
    match trigger:
        case OnRunEnd():
            return trigger.schedule
        case OnFile():
            return trigger.path
        case OnSql():
            return trigger.query
        case _:
            return trigger.kind


def expression_of(trigger: Trigger) -> str:
    """In the source notation: `0 9 * * 1-5`, `every 5m`, a timestamp."""
    match trigger:
        case Cron():
            return trigger.expression
        case Every():
            return f"every {_shorten(format_duration_go(trigger.every))}"
        case Once():
            return trigger.at
        case _:
            return str(event_text(trigger))


def _shorten(length: str) -> str:
    """`15m`, not `15m0s`."""
    for end in ("m0s", "h0m"):
        if length.endswith(end):
            length = length[:-2]
    return length


def without_anchor(trigger: Trigger) -> Trigger:
    """Shorter to describe; the anchor of an interval is shown on the page of the schedule."""
    return replace(trigger, anchor=None) if isinstance(trigger, Every) else trigger


def state_of(schedule: Schedule) -> str:
    """`on`, `paused`, or `done`: enabled without further fires."""
    if not schedule.enabled:
        return "paused"
    waits = schedule.next_run_at is not None or schedule.trigger.on_event
    return "on" if waits else "done"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    schedule: Schedule
    #: The trigger without its anchor.
    when: Trigger
    state: str
    expression: str
    #: The newest run.
    last: Result | None
    strip: Chart
    spark: Chart
    median: timedelta | None
    last_length: timedelta | None
    may_operate: bool
    may_write: bool


def frequent_schedules(health_by_id: Mapping[ScheduleId, ScheduleHealth]) -> list[ScheduleId]:
    """Schedules with more runs per day than a strip has marks."""
    return [
        schedule_id
        for schedule_id, schedule_health in health_by_id.items()
        if len(schedule_health.results) >= HEALTH_RESULTS
        and schedule_health.results[0].created_at - schedule_health.results[-1].created_at < _A_DAY
    ]


def rows_of(
    schedules: Iterable[Schedule],
    health_by_id: Mapping[ScheduleId, ScheduleHealth],
    actor: Actor,
    display: DisplayPreferences,
    more_results: Mapping[ScheduleId, Sequence[Result]] = MappingProxyType({}),
) -> tuple[Row, ...]:
    """`more_results`: further results of frequent schedules."""
    return tuple(
        row_of(
            each, health_by_id.get(each.id, NO_RUNS), actor, display, more_results.get(each.id, ())
        )
        for each in schedules
    )


def row_of(
    schedule: Schedule,
    schedule_health: ScheduleHealth,
    actor: Actor,
    display: DisplayPreferences,
    more_results: Sequence[Result] = (),
) -> Row:
    durations = durations_of(schedule_health.results)
    return Row(
        schedule=schedule,
        when=without_anchor(schedule.trigger),
        state=state_of(schedule),
        expression=expression_of(schedule.trigger),
        last=schedule_health.results[0] if schedule_health.results else None,
        strip=strip_of(more_results or schedule_health.results, display, schedule.trigger.zone),
        spark=spark_of(durations, display),
        median=schedule_health.median,
        last_length=timedelta(seconds=durations[-1]) if durations else None,
        may_operate=actor.may_operate(schedule.owner),
        may_write=actor.may_write(schedule.owner),
    )


def durations_of(results: Iterable[Result]) -> list[float]:
    """Durations in seconds of the executed runs, oldest first."""
    durations = [each.duration for each in results]
    return [each.total_seconds() for each in reversed(durations) if each is not None]


def strip_of(results: Iterable[Result], display: DisplayPreferences, zone: str) -> Chart:
    """Status of the last runs, oldest at the left; with many runs, the worst of each share."""
    language, shown_in = display.language, primary_zone(display, zone)
    labels = times.status_labels(language)
    oldest_first = tuple(reversed(tuple(results)))
    marks, place = [], 0
    for status, count in small.buckets([each.status for each in oldest_first]):
        when = times.format_with_year(oldest_first[place].planned_at, shown_in, display)
        ended, label = labels[status], f"{labels[status]} · {when}"
        if count > 1:
            text = counted(
                "{status}, worst of {count} run from {when}",
                "{status}, worst of {count} runs from {when}",
                count,
                status=labels[status],
                when=when,
            )
            ended = label = in_language(text, language)
        marks.append(small.Result(status=status, label=label, when=when, ended=ended))
        place += count
    return small.result_strip(
        marks,
        title=in_language(_("Last results"), language),
        heads=(in_language(_("When"), language), in_language(_("Result"), language)),
    )


def spark_of(seconds: list[float], display: DisplayPreferences) -> Chart:
    language = display.language
    return small.sparkline(
        seconds,
        title=in_language(_("Durations"), language),
        format_span=lambda length: times.span(length, language),
        heads=(in_language(_("No."), language), in_language(_("Duration"), language)),
    )


# --- sorting --------------------------------------------------------------------------------------
_SORTS = sorts_by_name(ScheduleSort)
#: The name that the headers of the columns use, first of each.
_SHORT_NAMES = {sort: name for name, sort in reversed(_SORTS.items())}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sorting:
    """By default `next`, soonest first; a minus reverses the order."""

    name: str = "next"
    descending: bool = False

    @property
    def text(self) -> str:
        return f"-{self.name}" if self.descending else self.name

    @property
    def query(self) -> ScheduleQuery:
        return ScheduleQuery(sort=_SORTS[self.name], descending=self.descending)

    @property
    def numbers(self) -> bool:
        """Whether the sort values are numbers, which the cursor has to know."""
        return self.name != "name"

    def toggled(self, name: str) -> Sorting:
        """The sorting after a click on a column header."""
        return Sorting(name=name, descending=name == self.name and not self.descending)

    def address(self, found: Filter, path: str, **more: str) -> str:
        """Omits the default sorting."""
        sort = {} if self == Sorting() else {"sort": self.text}
        return found.address(path, **sort, **more)


def parse_sorting(text: str) -> Sorting:
    name = text.removeprefix("-")
    if name not in _SORTS:
        return Sorting()
    return Sorting(name=_SHORT_NAMES[_SORTS[name]], descending=text.startswith("-"))
