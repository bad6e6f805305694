"""The numbers behind the dashboard, each for whoever asks: an operator or admin sees those of all
owners, anybody else its own, and what belongs to others is as if it were not there (S04)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.errors import NotAllowed
from chimes.model.access import Actor, Owner
from chimes.model.ids import ScheduleId
from chimes.model.insights import (
    ALL_RUNS,
    HEALTH_RESULTS,
    AttentionList,
    ErrorGroups,
    IssueCause,
    LagBucket,
    LagHistogram,
    Result,
    RunFilter,
    ScheduleAttention,
    ScheduleCounts,
    ScheduleHealth,
    ScheduleIssue,
    StatusCounts,
    Window,
    assess_health,
    median_duration,
)
from chimes.model.listing import ScheduleQuery
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.services.attention import CredentialRefusal, credential_refusals
from chimes.services.schedule_history import (
    UNFILTERED,
    FireLogFilter,
    FireLogPage,
    FireLogPosition,
    Version,
    fire_log,
    list_schedule_audit,
    versions_in,
)
from chimes.store.port import Store
from chimes.triggers.clock_changes import ClockChange, Touched, clock_changes, touched_by
from chimes.triggers.zones import zone_names

#: From when on a slot that has not begun counts as late.
LATE = timedelta(minutes=1)
EVERY_SCHEDULE = ScheduleQuery()


class InsightService:
    def __init__(self, store: Store) -> None:
        self._store = store

    # --- schedules ----------------------------------------------------------------------------
    async def count_schedules(
        self, actor: Actor, query: ScheduleQuery = EVERY_SCHEDULE, *, failing: bool = False
    ) -> ScheduleCounts:
        if not actor.sees_everything:
            query = replace(query, owner=actor.owner)
        return await self._store.schedule_counts(query, failing=failing)

    async def list_health(
        self, actor: Actor, schedule_ids: Collection[ScheduleId]
    ) -> dict[ScheduleId, ScheduleHealth]:
        """Of those that have any runs."""
        found = await self._newest(actor, schedule_ids, HEALTH_RESULTS)
        return {schedule_id: assess_health(results) for schedule_id, results in found.items()}

    async def get_expected_durations(
        self, actor: Actor, schedule_ids: Collection[ScheduleId]
    ) -> dict[ScheduleId, timedelta]:
        """Of those with a success among their newest results (`median_duration`)."""
        found = await self._newest(actor, schedule_ids, HEALTH_RESULTS)
        medians = {name: median_duration(results) for name, results in found.items()}
        return {name: length for name, length in medians.items() if length is not None}

    async def list_results(
        self, actor: Actor, schedule_ids: Collection[ScheduleId], *, each: int
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        """Of each its newest runs, newest first: more than a glance has."""
        return await self._newest(actor, schedule_ids, each)

    async def list_schedule_results(
        self, actor: Actor, schedule_id: ScheduleId, *, limit: int = 200
    ) -> tuple[Result, ...]:
        """Its newest runs, newest first: for charts of durations and lags."""
        found = await self._newest(actor, [schedule_id], limit)
        return found.get(schedule_id, ())

    async def _newest(
        self, actor: Actor, schedule_ids: Collection[ScheduleId], each: int
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        owner = _seen_by(actor)
        return await self._store.newest_results(schedule_ids, each=each, owner=owner)

    async def list_attention(
        self, actor: Actor, *, late: timedelta = LATE, limit: int = 20
    ) -> AttentionList:
        return await self._store.needing_attention(_seen_by(actor), late=late, limit=limit)

    async def list_fire_log(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        only: FireLogFilter = UNFILTERED,
        after: FireLogPosition | None = None,
        limit: int = 50,
    ) -> FireLogPage:
        """What became of its slots, and who changed that, newest first. NotFound."""
        return await fire_log(self._store, actor, schedule_id, only=only, after=after, limit=limit)

    # --- runs ---------------------------------------------------------------------------------
    async def count_runs(
        self, actor: Actor, window: Window, filter_: RunFilter = ALL_RUNS
    ) -> StatusCounts:
        (tally,) = await self._store.count_runs(window, _seen(actor, filter_))
        return tally

    async def count_runs_by_bucket(
        self, actor: Actor, window: Window, step: timedelta, filter_: RunFilter = ALL_RUNS
    ) -> tuple[StatusCounts, ...]:
        return await self._store.count_runs(window, _seen(actor, filter_), step=step)

    async def list_error_groups(
        self, actor: Actor, window: Window, filter_: RunFilter = ALL_RUNS, *, limit: int = 20
    ) -> ErrorGroups:
        return await self._store.error_groups(window, _seen(actor, filter_), limit=limit)

    async def list_running(self, actor: Actor, *, limit: int) -> tuple[Run, ...]:
        """Those that run just now, the longest first."""
        return await self._store.running_now(_seen_by(actor), limit=limit)

    # --- lags ---------------------------------------------------------------------------------
    async def get_lag(self, actor: Actor, window: Window) -> LagHistogram:
        (bucket,) = await self._store.run_lags(window, _seen_by(actor))
        return bucket.lags

    async def list_lag(
        self, actor: Actor, window: Window, step: timedelta, *, by_node: bool = False
    ) -> tuple[LagBucket, ...]:
        """By node: for those who see everything. NotAllowed."""
        if by_node and not actor.sees_everything:
            raise NotAllowed()
        return await self._store.run_lags(window, _seen_by(actor), step=step, by_node=by_node)

    async def list_versions(self, actor: Actor, schedule: Schedule) -> tuple[Version, ...]:
        """Changes of the definition that the actor may see, newest first."""
        return versions_in(await list_schedule_audit(self._store, actor, schedule))

    async def list_refused_credentials(
        self, actor: Actor, now: datetime, *, any_failed: bool
    ) -> tuple[CredentialRefusal, ...]:
        """Schedules whose secret or token is refused by the receiver or by a channel, newest first.
        `any_failed`: whether any run of the last day has failed."""
        return await credential_refusals(self._store, actor, now, any_failed=any_failed)


def _seen_by(actor: Actor) -> Owner | None:
    return None if actor.sees_everything else actor.owner


def _seen(actor: Actor, filter_: RunFilter) -> RunFilter:
    return filter_ if actor.sees_everything else replace(filter_, owner=actor.owner)


# @@ Changes of the clocks that are near, and the schedules that notice them (UX A.1). Which those
# are is found out once in a while: zones change twice a year, and schedules are many.

WITHIN = timedelta(days=7)
#: For so many seconds it is believed.
KEPT_FOR = 600.0
#: Owners for whom it is kept.
MOST_KEPT = 64
#: Schedules whose fires are computed each time, and those of them that are told of.
MOST_COMPUTED, MOST_TOLD = 500, 20
#: Of what fires more often, a single one is not missed.
_OFTEN = 24
_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneChange:
    change: ClockChange
    #: Schedules that go by that clock.
    schedules: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AffectedSchedule:
    """A schedule of which a change moves or repeats a fire."""

    found: ScheduleAttention
    touched: Touched


@dataclass(frozen=True, kw_only=True, slots=True)
class UpcomingClockChanges:
    zones: tuple[ZoneChange, ...] = ()
    affected_schedules: tuple[AffectedSchedule, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kept:
    since: float
    zones: tuple[ZoneChange, ...]
    affected_schedules: tuple[ScheduleId, ...]


class ClockWatch:
    """One for all pages of a process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._kept: dict[Owner | None, _Kept] = {}

    async def get_upcoming(self, actor: Actor, now: datetime) -> UpcomingClockChanges:
        """Within a week. A schedule that was added or changed is noticed within ten minutes; one
        that was paused or deleted is not told of any more."""
        owner = None if actor.sees_everything else actor.owner
        kept = self._kept.get(owner)
        if kept is None or self._clock.monotonic() - kept.since > KEPT_FOR:
            kept = await self._found(owner, now)
            self._kept.pop(owner, None)
            self._kept[owner] = kept
            for oldest in list(self._kept)[:-MOST_KEPT]:
                del self._kept[oldest]
        zones = tuple(each for each in kept.zones if each.change.at > now)
        if not zones or not kept.affected_schedules:
            return UpcomingClockChanges(zones=zones)
        schedules = await self._schedules(owner, kept.affected_schedules)
        return UpcomingClockChanges(
            zones=zones, affected_schedules=affected_schedules(schedules, zones)[:MOST_TOLD]
        )

    async def _found(self, owner: Owner | None, now: datetime) -> _Kept:
        since = self._clock.monotonic()
        in_use = await self._store.zones_in_use(owner)
        zones = tuple(
            ZoneChange(change=change, schedules=len(ids))
            for zone, ids in sorted(in_use.items())
            # A damaged row may name any.
            if zone in zone_names()
            for change in clock_changes(zone, now, now + WITHIN)
        )
        zones = tuple(sorted(zones, key=lambda each: (each.change.at, each.change.zone)))
        changing = dict.fromkeys(each.change.zone for each in zones)
        ids = [schedule_id for zone in changing for schedule_id in in_use[zone]][:MOST_COMPUTED]
        found = affected_schedules(await self._schedules(owner, ids), zones) if ids else ()
        names = tuple(each.found.schedule.id for each in found)
        return _Kept(since=since, zones=zones, affected_schedules=names[: 2 * MOST_TOLD])

    async def _schedules(
        self, owner: Owner | None, ids: Iterable[ScheduleId]
    ) -> tuple[Schedule, ...]:
        query = ScheduleQuery(owner=owner, enabled=True, ids=tuple(ids), limit=None)
        return (await self._store.list_schedules(query)).items


def affected_schedules(
    schedules: Iterable[Schedule], zones: Iterable[ZoneChange]
) -> tuple[AffectedSchedule, ...]:
    """The soonest change first; a schedule is told of its first only."""
    changes = tuple(zones)
    found: list[AffectedSchedule] = []
    for schedule in schedules:
        touched = next(
            (hit for each in changes if (hit := _hit(schedule, each.change)) is not None), None
        )
        if touched is not None:
            at = touched.change.at
            sign = ScheduleIssue(schedule_id=schedule.id, cause=IssueCause.CLOCK_CHANGE, at=at)
            attention = ScheduleAttention(schedule=schedule, sign=sign)
            found.append(AffectedSchedule(found=attention, touched=touched))
    return tuple(sorted(found, key=lambda each: (each.found.sign.at, each.found.schedule.name)))


def _hit(schedule: Schedule, change: ClockChange) -> Touched | None:
    trigger = schedule.trigger
    if trigger.zone != change.zone or schedule.next_slot is None:
        return None
    hit = touched_by(trigger, change)
    # What comes before its next one has been skipped by somebody already.
    if hit is None or hit.fires < schedule.next_slot:
        return None
    return hit if trigger.count_between(change.at - _DAY, change.at) <= _OFTEN else None
