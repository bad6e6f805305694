"""Statistics for the dashboard, and what has changed since a page was shown.

Operators and admins see all owners, other actors their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.errors import NotAllowed
from chimes.model import replace
from chimes.model.access import Actor, Owner
from chimes.model.ids import RunId, ScheduleId
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
from chimes.model.listing import AuditQuery, InboxQuery, RunQuery, ScheduleQuery, ScheduleSort
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.services.attention import CredentialRefusal, credential_refusals
from chimes.services.schedules.history import (
    UNFILTERED,
    FireLogFilter,
    FireLogPage,
    FireLogPosition,
    fire_log,
)
from chimes.services.schedules.slot_explanations import (
    SlotExplanation,
    explain_last_slot,
    explain_slot,
    explain_slots,
)
from chimes.services.schedules.versions import Version, list_schedule_audit, versions_in
from chimes.store.port import Store
from chimes.triggers.clock_changes import AffectedFire, ClockChange, affected_fire, clock_changes
from chimes.triggers.zones import zone_names

#: After this time a slot that has not started is late.
LATE = timedelta(minutes=1)
EVERY_SCHEDULE = ScheduleQuery()


class InsightService:
    def __init__(self, store: Store) -> None:
        self._store = store

    # --- schedules ----------------------------------------------------------------------------
    async def count_schedules(
        self, actor: Actor, query: ScheduleQuery = EVERY_SCHEDULE, *, failing: bool = False
    ) -> ScheduleCounts:
        if not actor.sees_all_owners:
            query = replace(query, owner=actor.owner)
        return await self._store.schedule_counts(query, failing=failing)

    async def list_next(self, actor: Actor, *, limit: int) -> tuple[Schedule, ...]:
        """The schedules that run next, the soonest first."""
        query = ScheduleQuery(
            owner=_visible_owner(actor), enabled=True, sort=ScheduleSort.NEXT_RUN_AT, limit=limit
        )
        page = await self._store.list_schedules(query)
        return tuple(each for each in page.items if each.next_run_at is not None)

    async def list_health(
        self, actor: Actor, schedule_ids: Collection[ScheduleId]
    ) -> dict[ScheduleId, ScheduleHealth]:
        """Health of the schedules that have runs."""
        found = await self._newest(actor, schedule_ids, HEALTH_RESULTS)
        return {schedule_id: assess_health(results) for schedule_id, results in found.items()}

    async def get_expected_durations(
        self, actor: Actor, schedule_ids: Collection[ScheduleId]
    ) -> dict[ScheduleId, timedelta]:
        """Median duration of the schedules with a success among their newest results."""
        found = await self._newest(actor, schedule_ids, HEALTH_RESULTS)
        medians = {name: median_duration(results) for name, results in found.items()}
        return {name: length for name, length in medians.items() if length is not None}

    async def list_results(
        self, actor: Actor, schedule_ids: Collection[ScheduleId], *, each: int
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        """The newest `each` runs of every schedule, newest first."""
        return await self._newest(actor, schedule_ids, each)

    async def list_schedule_results(
        self, actor: Actor, schedule_id: ScheduleId, *, limit: int = 200
    ) -> tuple[Result, ...]:
        """The newest runs of one schedule, newest first, for charts."""
        found = await self._newest(actor, [schedule_id], limit)
        return found.get(schedule_id, ())

    async def _newest(
        self, actor: Actor, schedule_ids: Collection[ScheduleId], each: int
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        owner = _visible_owner(actor)
        return await self._store.newest_results(schedule_ids, each=each, owner=owner)

    async def list_attention(
        self, actor: Actor, *, late: timedelta = LATE, limit: int = 20
    ) -> AttentionList:
        return await self._store.needing_attention(_visible_owner(actor), late=late, limit=limit)

    async def list_fire_log(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        only: FireLogFilter = UNFILTERED,
        after: FireLogPosition | None = None,
        limit: int = 50,
    ) -> FireLogPage:
        """Runs and changes of a schedule, newest first. Raises NotFound."""
        return await fire_log(self._store, actor, schedule_id, only=only, after=after, limit=limit)

    async def explain_slot(
        self, actor: Actor, schedule_id: ScheduleId, at: datetime | None = None
    ) -> SlotExplanation:
        """What became of the slot at this time; without one, of the most recent slot that did not
        run, or of the latest if all did. Raises NotFound."""
        if at is None:
            return await explain_last_slot(self._store, actor, schedule_id)
        return await explain_slot(self._store, actor, schedule_id, at)

    async def explain_slots(
        self, actor: Actor, schedule_id: ScheduleId, since: datetime, until: datetime
    ) -> tuple[SlotExplanation, ...]:
        """What became of every slot from `since` to just before `until`, oldest first. Raises
        NotFound, and InvalidInput if there are too many."""
        return await explain_slots(self._store, actor, schedule_id, since, until)

    # --- runs ---------------------------------------------------------------------------------
    async def count_runs(
        self, actor: Actor, window: Window, filter_: RunFilter = ALL_RUNS
    ) -> StatusCounts:
        (tally,) = await self._store.count_runs(window, _visible_runs(actor, filter_))
        return tally

    async def count_runs_by_bucket(
        self, actor: Actor, window: Window, step: timedelta, filter_: RunFilter = ALL_RUNS
    ) -> tuple[StatusCounts, ...]:
        return await self._store.count_runs(window, _visible_runs(actor, filter_), step=step)

    async def list_error_groups(
        self, actor: Actor, window: Window, filter_: RunFilter = ALL_RUNS, *, limit: int = 20
    ) -> ErrorGroups:
        return await self._store.error_groups(window, _visible_runs(actor, filter_), limit=limit)

    async def list_running(self, actor: Actor, *, limit: int) -> tuple[Run, ...]:
        """Running runs, the longest first."""
        return await self._store.running_now(_visible_owner(actor), limit=limit)

    async def get_last_log_lines(self, actor: Actor, runs: Sequence[Run]) -> dict[RunId, LogEntry]:
        """The newest log line of each run, in one query."""
        ids = [run.id for run in runs if actor.may_read(run.owner)]
        return await self._store.last_logs(ids) if ids else {}

    # --- lags ---------------------------------------------------------------------------------
    async def get_lag(self, actor: Actor, window: Window) -> LagHistogram:
        (bucket,) = await self._store.run_lags(window, _visible_owner(actor))
        return bucket.lags

    async def list_lag(
        self, actor: Actor, window: Window, step: timedelta, *, by_node: bool = False
    ) -> tuple[LagBucket, ...]:
        """`by_node` is only for actors that see everything."""
        if by_node and not actor.sees_everything:
            raise NotAllowed()
        return await self._store.run_lags(window, _visible_owner(actor), step=step, by_node=by_node)

    async def list_versions(self, actor: Actor, schedule: Schedule) -> tuple[Version, ...]:
        """Changes of the definition that the actor may see, newest first."""
        return versions_in(await list_schedule_audit(self._store, actor, schedule))

    async def list_refused_credentials(
        self, actor: Actor, now: datetime, *, any_failed: bool
    ) -> tuple[CredentialRefusal, ...]:
        """Schedules whose secret or token is refused by the receiver or by a channel, newest first.
        `any_failed`: whether any run of the last day has failed."""
        return await credential_refusals(self._store, actor, now, any_failed=any_failed)


def _visible_owner(actor: Actor) -> Owner | None:
    return None if actor.sees_all_owners else actor.owner


def _visible_runs(actor: Actor, filter_: RunFilter) -> RunFilter:
    return filter_ if actor.sees_all_owners else replace(filter_, owner=actor.owner)


# --- clock changes --------------------------------------------------------------------------------
# Upcoming daylight-saving changes and the schedules that they affect. Cached, because changes are
# rare and schedules can be many.

HORIZON = timedelta(days=7)
CACHE_SECONDS = 600.0
#: Owners in the cache.
MAX_CACHED_OWNERS = 64
#: Schedules whose fires are computed, and affected schedules that are returned.
MAX_COMPUTED, MAX_AFFECTED = 500, 20
#: Schedules with more fires a day are left out: one fire more or less does not matter.
_FREQUENT = 24
_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneChange:
    change: ClockChange
    #: Number of schedules in the zone.
    schedules: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AffectedSchedule:
    """A schedule with a fire that a clock change moves, skips or repeats."""

    found: ScheduleAttention
    touched: AffectedFire


@dataclass(frozen=True, kw_only=True, slots=True)
class UpcomingClockChanges:
    zones: tuple[ZoneChange, ...] = ()
    affected_schedules: tuple[AffectedSchedule, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cached:
    since: float
    zones: tuple[ZoneChange, ...]
    affected_schedules: tuple[ScheduleId, ...]


class ClockWatch:
    """One instance for all pages of a process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._cache: dict[Owner | None, _Cached] = {}

    async def get_upcoming(self, actor: Actor, now: datetime) -> UpcomingClockChanges:
        """Changes within a week. A new or changed schedule appears within ten minutes; a paused or
        deleted one disappears at once."""
        owner = None if actor.sees_all_owners else actor.owner
        cached = self._cache.get(owner)
        if cached is None or self._clock.monotonic() - cached.since > CACHE_SECONDS:
            cached = await self._find(owner, now)
            self._cache.pop(owner, None)
            self._cache[owner] = cached
            for oldest in list(self._cache)[:-MAX_CACHED_OWNERS]:
                del self._cache[oldest]
        zones = tuple(each for each in cached.zones if each.change.at > now)
        if not zones or not cached.affected_schedules:
            return UpcomingClockChanges(zones=zones)
        schedules = await self._schedules(owner, cached.affected_schedules)
        return UpcomingClockChanges(
            zones=zones, affected_schedules=affected_schedules(schedules, zones)[:MAX_AFFECTED]
        )

    async def _find(self, owner: Owner | None, now: datetime) -> _Cached:
        since = self._clock.monotonic()
        in_use = await self._store.zones_in_use(owner)
        zones = tuple(
            ZoneChange(change=change, schedules=len(ids))
            for zone, ids in sorted(in_use.items())
            # A corrupt row may have an unknown zone.
            if zone in zone_names()
            for change in clock_changes(zone, now, now + HORIZON)
        )
        zones = tuple(sorted(zones, key=lambda each: (each.change.at, each.change.zone)))
        changing = dict.fromkeys(each.change.zone for each in zones)
        ids = [schedule_id for zone in changing for schedule_id in in_use[zone]][:MAX_COMPUTED]
        found = affected_schedules(await self._schedules(owner, ids), zones) if ids else ()
        names = tuple(each.found.schedule.id for each in found)
        return _Cached(since=since, zones=zones, affected_schedules=names[: 2 * MAX_AFFECTED])

    async def _schedules(
        self, owner: Owner | None, ids: Iterable[ScheduleId]
    ) -> tuple[Schedule, ...]:
        query = ScheduleQuery(owner=owner, enabled=True, ids=tuple(ids), limit=None)
        return (await self._store.list_schedules(query)).items


def affected_schedules(
    schedules: Iterable[Schedule], zones: Iterable[ZoneChange]
) -> tuple[AffectedSchedule, ...]:
    """The soonest change first; of each schedule only its first."""
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


def _hit(schedule: Schedule, change: ClockChange) -> AffectedFire | None:
    trigger = schedule.trigger
    if trigger.zone != change.zone or schedule.next_slot is None:
        return None
    hit = affected_fire(trigger, change)
    # A fire before the next slot was skipped by a user.
    if hit is None or hit.fires < schedule.next_slot:
        return None
    return hit if trigger.count_between(change.at - _DAY, change.at) <= _FREQUENT else None


# --- changes --------------------------------------------------------------------------------------
TOPICS = ("runs", "schedules", "inbox", "nodes")
#: Active runs that are compared; with more of them, something changes all the time anyway.
_MAX_ACTIVE_RUNS = 200
#: How far back new runs are searched.
_RECENT = timedelta(minutes=5)


class ChangeDetector:
    """Detects changes of the runs, schedules, messages and nodes that an actor may see."""

    def __init__(self, store: Store, actor: Actor) -> None:
        self._store = store
        self._owner = None if actor.sees_all_owners else actor.owner
        #: The newest run that was found, also after it is no longer recent.
        self._newest_run = ""
        #: Up to when new runs were searched, by the store's clock.
        self._searched_until: datetime | None = None

    def local_changes(self) -> int:
        """Number of changes that this process has made or noticed; needs no I/O."""
        return self._store.changes()

    async def fingerprints(self) -> tuple[str, ...]:
        """One hash per topic; a hash differs from an earlier one if the topic has changed. All
        queries use indexes: none scans runs or schedules."""
        store, owner = self._store, self._owner
        now = await store.now()
        # The last call may have been long ago.
        since = min(now, self._searched_until or now) - _RECENT
        for run in (
            await store.list_runs(RunQuery(owner=owner, created_since=since, limit=1))
        ).items:
            self._newest_run = run.id
        self._searched_until = now
        active = await store.list_runs(
            RunQuery(
                owner=owner,
                statuses=(RunStatus.QUEUED, RunStatus.RUNNING),
                limit=_MAX_ACTIVE_RUNS,
            )
        )
        runs = [
            self._newest_run,
            *((run.id, run.status, run.attempt, run.cancel_requested) for run in active.items),
        ]
        # Every edit of a schedule adds an audit entry; every fire adds a run.
        entries = await store.list_audit(
            AuditQuery(owner=None if owner is None else str(owner), limit=1)
        )
        schedules = [
            self._newest_run,
            *(entry.number for entry in entries),
            await store.count_schedules(ScheduleQuery(owner=owner, enabled=True)),
        ]
        inbox = InboxQuery(owner=owner, archived=None, limit=1)
        messages = [
            *(item.id for item in (await store.list_inbox(inbox)).items),
            await store.count_unread(inbox),
        ]
        nodes = [(node.id, node.version, node.state(now)) for node in await store.nodes()]
        return tuple(_fingerprint(value) for value in (runs, schedules, messages, nodes))


def _fingerprint(value: object) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=4).hexdigest()
