"""What the list of schedules shows: each on one line, from values to what a template needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType

from chimes.i18n import Message, _, counted, in_language
from chimes.model.access import Actor
from chimes.model.ids import ScheduleId
from chimes.model.insights import HEALTH_RESULTS, Result, ScheduleHealth
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.triggers import Cron, Every, Once, Trigger
from chimes.triggers.duration import format_duration_go
from chimes.web.dashboard.charts import sparkline as small
from chimes.web.dashboard.charts.svg import Chart
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.filters import Filter
from chimes.web.dashboard.core.preferences import DisplayPreferences, primary_zone

NO_RUNS = ScheduleHealth()
_A_DAY = timedelta(days=1)
#: What can be typed into the box, as hints.
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
_STATES: Mapping[RunStatus, Message] = {
    RunStatus.QUEUED: _("queued"),
    RunStatus.RUNNING: _("running"),
    RunStatus.SUCCEEDED: _("succeeded"),
    RunStatus.FAILED: _("failed"),
    RunStatus.TIMEOUT: _("timed out"),
    RunStatus.CANCELED: _("canceled"),
    RunStatus.SKIPPED: _("skipped"),
    RunStatus.MISSED: _("missed"),
    RunStatus.UNKNOWN: _("unknown"),
}


@lru_cache
def state_words(language: str) -> Mapping[RunStatus, str]:
    return {status: in_language(word, language) for status, word in _STATES.items()}


def status_label(status: RunStatus, language: str) -> str:
    return state_words(language)[status]


def expression_of(trigger: Trigger) -> str:
    """As it was written, for the small print: `0 9 * * 1-5`, `every 5m`, a moment."""
    match trigger:
        case Cron():
            return trigger.expression
        case Every():
            return f"every {_short(format_duration_go(trigger.every))}"
        case Once():
            return trigger.at


def _short(length: str) -> str:
    """`15m`, not `15m0s`."""
    for end in ("m0s", "h0m"):
        if length.endswith(end):
            length = length[:-2]
    return length


def without_anchor(trigger: Trigger) -> Trigger:
    """For words on one line: from when on an interval counts is told elsewhere."""
    return replace(trigger, anchor=None) if isinstance(trigger, Every) else trigger


def state_of(schedule: Schedule) -> str:
    """`on`, `paused`, or `done`: it is on, and nothing is planned any more."""
    if not schedule.enabled:
        return "paused"
    return "on" if schedule.next_run_at is not None else "done"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    schedule: Schedule
    #: For its words.
    when: Trigger
    state: str
    expression: str
    #: The newest run that is known of; None: there was none.
    last: Result | None
    strip: Chart
    spark: Chart
    median: timedelta | None
    last_length: timedelta | None
    may_operate: bool
    may_write: bool


def busy(glances: Mapping[ScheduleId, ScheduleHealth]) -> list[ScheduleId]:
    """Those with more runs a day than a strip has marks."""
    return [
        schedule_id
        for schedule_id, glance in glances.items()
        if len(glance.results) >= HEALTH_RESULTS
        and glance.results[0].created_at - glance.results[-1].created_at < _A_DAY
    ]


def rows_of(
    schedules: Iterable[Schedule],
    glances: Mapping[ScheduleId, ScheduleHealth],
    actor: Actor,
    display: DisplayPreferences,
    longer: Mapping[ScheduleId, Sequence[Result]] = MappingProxyType({}),
) -> tuple[Row, ...]:
    """`longer`: more results than a glance has, of those that are `busy`."""
    return tuple(
        row_of(each, glances.get(each.id, NO_RUNS), actor, display, longer.get(each.id, ()))
        for each in schedules
    )


def row_of(
    schedule: Schedule,
    glance: ScheduleHealth,
    actor: Actor,
    display: DisplayPreferences,
    longer: Sequence[Result] = (),
) -> Row:
    lengths = lengths_of(glance.results)
    return Row(
        schedule=schedule,
        when=without_anchor(schedule.trigger),
        state=state_of(schedule),
        expression=expression_of(schedule.trigger),
        last=glance.results[0] if glance.results else None,
        strip=strip_of(longer or glance.results, display, schedule.trigger.zone),
        spark=spark_of(lengths, display),
        median=glance.median,
        last_length=timedelta(seconds=lengths[-1]) if lengths else None,
        may_operate=actor.may_operate(schedule.owner),
        may_write=actor.may_write(schedule.owner),
    )


def lengths_of(results: Iterable[Result]) -> list[float]:
    """Seconds of those that were carried out, oldest first."""
    found = [each.duration for each in results]
    return [each.total_seconds() for each in reversed(found) if each is not None]


def strip_of(results: Iterable[Result], display: DisplayPreferences, zone: str) -> Chart:
    """How the last runs ended, oldest at the left; of many the worst of each share (UX A.2)."""
    language, shown_in = display.language, primary_zone(display, zone)
    words = state_words(language)
    oldest_first = tuple(reversed(tuple(results)))
    marks, place = [], 0
    for status, count in small.buckets([each.status for each in oldest_first]):
        when = times.format_with_year(oldest_first[place].planned_at, shown_in, display)
        ended, label = words[status], f"{words[status]} · {when}"
        if count > 1:
            told = counted(
                "{state}, the worst of {count} run from {when}",
                "{state}, the worst of {count} runs from {when}",
                count,
                state=words[status],
                when=when,
            )
            ended = label = in_language(told, language)
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


# --- what is asked for ----------------------------------------------------------------------------
_SORTS = {"next": ScheduleSort.NEXT_RUN_AT, "name": ScheduleSort.NAME}
_SORTS |= {"created": ScheduleSort.CREATED_AT, "updated": ScheduleSort.UPDATED_AT}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sorting:
    """`next`, the soonest first, unless told; a minus turns it round."""

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
        """Whether its values are, for the cursor."""
        return self.name != "name"

    def turned(self, name: str) -> Sorting:
        """What a click on the head of a column asks for."""
        return Sorting(name=name, descending=name == self.name and not self.descending)

    def address(self, found: Filter, path: str, **more: str) -> str:
        """Without what is usual anyway."""
        sort = {} if self == Sorting() else {"sort": self.text}
        return found.address(path, **sort, **more)


def sorting_from(text: str) -> Sorting:
    name = text.removeprefix("-")
    return Sorting(name=name, descending=text.startswith("-")) if name in _SORTS else Sorting()
