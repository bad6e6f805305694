"""Memory scheduler: fires schedules of mode memory in this process.

While the store cannot schedule (fallback), it fires all declared schedules.

Runs get the deterministic id of their slot, so when several workers, or both modes, fire the same
slot, one inserts the run and the others find it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.engine.events import (
    DutyFailed,
    DutyRecovered,
    Event,
    Events,
    FallbackEnded,
    FallbackStarted,
    ScheduleBroken,
    SchedulesFired,
    SlotsAlreadyTaken,
)
from chimes.engine.membership import StoreClock
from chimes.engine.poller import NextPoll, PollOnEvent
from chimes.engine.scheduler import Scheduler
from chimes.errors import StoreError, StoreUnavailable
from chimes.i18n import _
from chimes.model import replace
from chimes.model.ids import RunId, ScheduleId, declared_id
from chimes.model.listing import RunQuery
from chimes.model.planning import FireContext, plan, with_maintenance
from chimes.model.policy import UNLIMITED
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import Schedule, plan_after, stop_with_error
from chimes.store.port import Store, read_maintenance

#: How often the stored copy of the declared schedules is read, so that a fallback knows what was
#: paused or changed.
REFRESH = timedelta(seconds=15)
#: How far before now a fallback starts: slots that the store still fired are found to have runs.
LOOK_BACK = timedelta(seconds=60)
_DECLARATIONS = "declarations"
#: How many generations of a name `ids_from_runs` tries.
_GENERATIONS = 8
_ACTIVE = (RunStatus.QUEUED, RunStatus.RUNNING)


class Fallback:
    """An engine listener that activates the fallback to memory scheduling.

    An unavailable store does not: then nothing can run, and missed slots are caught up later. Any
    other error of the scheduler does, such as a missing or corrupt schedules table.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        #: Set whenever `active` changes.
        self.changed = asyncio.Event()
        self._failing: set[str] = set()

    @property
    def active(self) -> bool:
        return bool(self._failing)

    event_types = (DutyFailed, DutyRecovered)

    def __call__(self, event: Event) -> None:
        if isinstance(event, DutyFailed) and event.duty == Scheduler.name:
            self.failed(event.duty, event.error)
        elif isinstance(event, DutyRecovered) and event.duty == Scheduler.name:
            self.recovered(event.duty)

    def failed(self, what: str, error: Exception) -> None:
        if isinstance(error, StoreError | TimeoutError):
            return
        before = self.active
        self._failing.add(what)
        if not before:
            self.changed.set()
            self._emit(FallbackStarted(error=error))

    def recovered(self, what: str) -> None:
        before = self.active
        self._failing.discard(what)
        if before and not self.active:
            self.changed.set()
            self._emit(FallbackEnded())

    @property
    def reason(self) -> str:
        return _("scheduling from memory: the store cannot schedule") if self.active else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalSchedule:
    """A declared schedule with its cursor."""

    schedule: Schedule
    #: False: a schedule of mode db, fired here only during a fallback.
    memory_mode: bool


#: Loads the declared schedules; raises the errors of the store.
LoadSchedules = Callable[[], Awaitable[Sequence[LocalSchedule]]]


class MemoryScheduler:
    """The duty that fires local schedules."""

    name = "memory scheduler"

    def __init__(
        self,
        store: Store,
        *,
        load: LoadSchedules,
        initial: Iterable[LocalSchedule],
        fallback: Fallback,
        clock: Clock,
        events: Events,
        poll: timedelta,
    ) -> None:
        self._store = store
        self._load = load
        self._schedules = {each.schedule.name: each for each in initial}
        self._fallback = fallback
        self._clock = clock
        self._events = events
        self._poll = poll
        self._store_clock = StoreClock(store, clock)
        self._refreshed: float | None = None
        self._falling_back = False
        self._broken: set[str] = set()

    async def run_once(self) -> NextPoll:
        self._fallback.changed.clear()
        now = await self._store_clock.fetch_now()
        await self._refresh(now)
        self._update_fallback(now)
        for name in self._active():
            schedule = self._schedules[name].schedule
            if schedule.next_run_at is not None and schedule.next_run_at <= now:
                await self._fire(name, schedule, now)
        return PollOnEvent(event=self._fallback.changed, seconds=self._seconds_until_next())

    def _active(self) -> list[str]:
        return [
            name
            for name, each in self._schedules.items()
            if (each.memory_mode or self._falling_back) and name not in self._broken
        ]

    def _seconds_until_next(self) -> float:
        """PollAtTime the next slot, by the store's clock; never longer than a poll."""
        due = [
            at
            for name in self._active()
            if (at := self._schedules[name].schedule.next_run_at) is not None
        ]
        longest = self._poll.total_seconds()
        if not due:
            return longest
        return min(max((min(due) - self._store_clock.now()).total_seconds(), 0.0), longest)

    def _update_fallback(self, now: datetime) -> None:
        """On the start of a fallback, plans again the slots that the store may not have fired."""
        if self._fallback.active == self._falling_back:
            return
        self._falling_back = self._fallback.active
        if not self._falling_back:
            return
        for name, each in self._schedules.items():
            if not each.memory_mode:
                since = _not_before(each.schedule, now - LOOK_BACK)
                self._schedules[name] = replace(each, schedule=plan_after(each.schedule, since))

    async def _refresh(self, now: datetime) -> None:
        moment = self._clock.monotonic()
        if self._refreshed is not None and moment < self._refreshed + REFRESH.total_seconds():
            return
        try:
            found = await self._load()
        except StoreUnavailable:
            raise
        except Exception as error:
            # Continue with the schedules loaded before.
            self._fallback.failed(_DECLARATIONS, error)
        else:
            self._schedules = {each.schedule.name: self._with_cursor(each, now) for each in found}
            self._fallback.recovered(_DECLARATIONS)
        self._refreshed = moment

    def _with_cursor(self, fresh: LocalSchedule, now: datetime) -> LocalSchedule:
        """The fresh copy with the local cursor, if this process advances it."""
        before = self._schedules.get(fresh.schedule.name)
        local = before is not None and (before.memory_mode or self._falling_back)
        if before is None or not local or before.schedule.trigger != fresh.schedule.trigger:
            return (
                fresh
                if not fresh.memory_mode
                else replace(fresh, schedule=plan_after(fresh.schedule, now))
            )
        return replace(
            fresh,
            schedule=replace(
                fresh.schedule,
                next_slot=before.schedule.next_slot,
                next_run_at=before.schedule.next_run_at,
                last_slot=before.schedule.last_slot,
                fired_count=before.schedule.fired_count,
            ),
        )

    async def _fire(self, name: str, schedule: Schedule, now: datetime) -> None:
        began = self._clock.monotonic()
        context = FireContext(
            admitted=await self._admitted_runs(schedule),
            dependency_succeeded_at=await self._dependency_succeeded_at(schedule),
        )
        windows = await read_maintenance(self._store)
        try:
            firing = with_maintenance(plan, windows)(schedule, context, now)
        except Exception as error:
            # An error in one schedule must not stop the others.
            self._broken.add(name)
            self._events.emit(ScheduleBroken(schedule=stop_with_error(schedule, str(error))))
            return
        rows = await self._store.add_runs(firing.runs) if firing.runs else ()
        for run_id in firing.cancel:
            await self._store.cancel_run(run_id, Reason.REPLACED)
        self._schedules[name] = replace(self._schedules[name], schedule=firing.schedule)
        inserted = _inserted(firing.runs, rows)
        if len(inserted) < len(rows):
            self._events.emit(SlotsAlreadyTaken(count=len(rows) - len(inserted)))
        self._events.emit(
            SchedulesFired(
                plans=(firing,),
                runs=inserted,
                seconds=self._clock.monotonic() - began,
            )
        )

    async def _admitted_runs(self, schedule: Schedule) -> tuple[RunId, ...]:
        """Runs that the overlap policy counts. A shared concurrency key is left to the store,
        which blocks runs whose key is taken."""
        policy = schedule.policy
        if policy.concurrency_key is not None or policy.concurrency_limit >= UNLIMITED:
            return ()
        query = RunQuery(schedule_id=schedule.id, statuses=_ACTIVE, descending=False, limit=None)
        found = (await self._store.list_runs(query)).items
        return tuple(run.id for run in found if run.admitted and run.concurrency_key is not None)

    async def _dependency_succeeded_at(self, schedule: Schedule) -> datetime | None:
        """From the runs, because the other schedule may be of mode memory too."""
        if schedule.depends_on is None:
            return None
        query = RunQuery(
            schedule_id=ScheduleId(schedule.depends_on.schedule_id),
            statuses=(RunStatus.SUCCEEDED,),
            limit=1,
        )
        found = (await self._store.list_runs(query)).items
        return found[0].finished_at if found else None


def _not_before(schedule: Schedule, moment: datetime) -> datetime:
    """Slots before the last change belong to the old definition (ADR 11), and those before the
    cursor have their runs."""
    return max(moment, schedule.updated_at, schedule.last_slot or moment)


def _inserted(wanted: Sequence[Run], rows: Sequence[Run]) -> tuple[Run, ...]:
    """The rows that this process inserted; another worker inserted the rest first."""
    return tuple(
        row for run, row in zip(wanted, rows, strict=True) if row.created_at == run.created_at
    )


async def ids_from_runs(
    store: Store, namespace: str, names: Iterable[str]
) -> dict[str, ScheduleId]:
    """Ids of the schedules that last ran under these names, for a start while the schedules table
    cannot be read."""
    wanted = set(names)
    query = RunQuery(namespace=namespace, limit=1000)
    found: dict[str, ScheduleId] = {}
    for run in (await store.list_runs(query)).items:
        if run.schedule_id is not None and run.schedule_name in wanted - found.keys():
            found[run.schedule_name] = run.schedule_id
    for name in wanted - found.keys():
        # A rare schedule may have its last run beyond the page read above.
        for generation in range(_GENERATIONS, 0, -1):
            schedule_id = declared_id(namespace, name, generation)
            if (await store.list_runs(RunQuery(schedule_id=schedule_id, limit=1))).items:
                found[name] = schedule_id
                break
    return found
