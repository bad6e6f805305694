"""Schedules that this process times itself: those declared in memory mode, and, while the store
cannot schedule, all that the application declared.

It only computes when. Every slot is put into the queue under the id that it has everywhere, so
that of many workers, and of both modes side by side, one makes the run and the others find it
there (C5, C12, R2.13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.engine.events import (
    DutyFailed,
    DutyRecovered,
    Event,
    Events,
    FallbackBegan,
    FallbackEnded,
    ScheduleBroken,
    SchedulesFired,
    SlotsTaken,
)
from chimes.engine.membership import StoreClock
from chimes.engine.poller import Rest, Told
from chimes.engine.scheduler import Scheduler
from chimes.errors import StoreError, StoreUnavailable
from chimes.i18n import _
from chimes.model.ids import RunId, ScheduleId, declared_id
from chimes.model.listing import RunQuery
from chimes.model.planning import FireContext, plan
from chimes.model.policy import UNLIMITED
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import Schedule, planned, set_aside
from chimes.store.port import Store

# @@ When the store's scheduling does not work although the store does (R2.33, C12).


class Fallback:
    """A listener of the engine. A store that does not answer at all is no reason: then nothing
    runs, and what was missed is caught up with (C12). Anything else that the scheduler raises
    is: a schedules table that is gone, broken or unreadable."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        #: Set whenever `active` changes.
        self.changed = asyncio.Event()
        self._failing: set[str] = set()

    @property
    def active(self) -> bool:
        return bool(self._failing)

    hears = (DutyFailed, DutyRecovered)

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
            self._emit(FallbackBegan(error=error))

    def recovered(self, what: str) -> None:
        before = self.active
        self._failing.discard(what)
        if before and not self.active:
            self.changed.set()
            self._emit(FallbackEnded())

    @property
    def reason(self) -> str:
        return _("scheduling from memory: the store cannot schedule") if self.active else ""


#: How often the store's copy of what is declared is read, so that a fallback knows what was
#: paused or changed meanwhile.
REFRESH = timedelta(seconds=15)
#: How far back a fallback begins: what the store still fired itself is found to have its row.
LOOK_BACK = timedelta(seconds=60)
_DECLARATIONS = "declarations"
#: How often a name may have been deleted for its id to be found by trying.
_GENERATIONS = 8
_ACTIVE = (RunStatus.QUEUED, RunStatus.RUNNING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """A schedule, its cursor included, and whether this process is the one that times it."""

    schedule: Schedule
    #: False: only while the store cannot schedule.
    always: bool


#: The declared schedules as they are now. Raises what the store raises.
Declarations = Callable[[], Awaitable[Sequence[Timed]]]


class MemoryTimer:
    """A duty for `engine.lifecycle.Poller`."""

    name = "memory scheduler"

    def __init__(
        self,
        store: Store,
        *,
        declarations: Declarations,
        known: Iterable[Timed],
        fallback: Fallback,
        clock: Clock,
        events: Events,
        poll: timedelta,
    ) -> None:
        """`known`: what there is before the store is asked for the first time."""
        self._store = store
        self._declarations = declarations
        self._timed = {each.schedule.name: each for each in known}
        self._fallback = fallback
        self._clock = clock
        self._events = events
        self._poll = poll
        self._time = StoreClock(store, clock)
        self._refreshed: float | None = None
        self._falling_back = False
        self._broken: set[str] = set()

    async def once(self) -> Rest:
        self._fallback.changed.clear()
        now = await self._time.ask()
        await self._refresh(now)
        self._switch(now)
        for name in self._active():
            schedule = self._timed[name].schedule
            if schedule.next_run_at is not None and schedule.next_run_at <= now:
                await self._fire(name, schedule, now)
        return Told(event=self._fallback.changed, seconds=self._seconds())

    def _active(self) -> list[str]:
        return [
            name
            for name, each in self._timed.items()
            if (each.always or self._falling_back) and name not in self._broken
        ]

    def _seconds(self) -> float:
        """Until the next slot, by the store's clock; never longer than a poll."""
        due = [
            at
            for name in self._active()
            if (at := self._timed[name].schedule.next_run_at) is not None
        ]
        longest = self._poll.total_seconds()
        if not due:
            return longest
        return min(max((min(due) - self._time.now()).total_seconds(), 0.0), longest)

    def _switch(self, now: datetime) -> None:
        """A fallback that begins plans again what the store may just have been about to fire."""
        if self._fallback.active == self._falling_back:
            return
        self._falling_back = self._fallback.active
        if not self._falling_back:
            return
        for name, each in self._timed.items():
            if not each.always:
                since = _not_before(each.schedule, now - LOOK_BACK)
                self._timed[name] = replace(each, schedule=planned(each.schedule, since))

    async def _refresh(self, now: datetime) -> None:
        moment = self._clock.monotonic()
        if self._refreshed is not None and moment < self._refreshed + REFRESH.total_seconds():
            return
        try:
            found = await self._declarations()
        except StoreUnavailable:
            raise
        except Exception as error:
            # The very case a fallback is for: go on with what is known.
            self._fallback.failed(_DECLARATIONS, error)
        else:
            self._timed = {each.schedule.name: self._kept(each, now) for each in found}
            self._fallback.recovered(_DECLARATIONS)
        self._refreshed = moment

    def _kept(self, fresh: Timed, now: datetime) -> Timed:
        """The fresh copy with our own cursor, where it is we who move it."""
        before = self._timed.get(fresh.schedule.name)
        ours = before is not None and (before.always or self._falling_back)
        if before is None or not ours or before.schedule.trigger != fresh.schedule.trigger:
            return (
                fresh if not fresh.always else replace(fresh, schedule=planned(fresh.schedule, now))
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
            admitted=await self._admitted(schedule),
            dependency_succeeded_at=await self._succeeded(schedule),
        )
        try:
            firing = plan(schedule, context, now)
        except Exception as error:
            # One that cannot be planned stops alone (R2.10).
            self._broken.add(name)
            self._events.emit(ScheduleBroken(schedule=set_aside(schedule, str(error))))
            return
        rows = await self._store.add_runs(firing.runs) if firing.runs else ()
        for run_id in firing.cancel:
            await self._store.cancel_run(run_id, Reason.REPLACED)
        self._timed[name] = replace(self._timed[name], schedule=firing.schedule)
        ours = _ours(firing.runs, rows)
        if len(ours) < len(rows):
            self._events.emit(SlotsTaken(count=len(rows) - len(ours)))
        self._events.emit(
            SchedulesFired(
                firings=(firing,),
                runs=ours,
                seconds=self._clock.monotonic() - began,
            )
        )

    async def _admitted(self, schedule: Schedule) -> tuple[RunId, ...]:
        """Runs that the overlap policy counts. A key that is shared with other schedules is left
        to the store, which lets a run that finds it taken wait."""
        policy = schedule.policy
        if policy.concurrency_key is not None or policy.concurrency_limit >= UNLIMITED:
            return ()
        query = RunQuery(schedule_id=schedule.id, statuses=_ACTIVE, descending=False, limit=None)
        found = (await self._store.list_runs(query)).items
        return tuple(run.id for run in found if run.admitted and run.concurrency_key is not None)

    async def _succeeded(self, schedule: Schedule) -> datetime | None:
        """When the schedule it depends on last succeeded, read from the runs: the other one may
        be timed in memory as well."""
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
    """Slots up to the last change are the business of whoever made it (ADR 11), and those that
    the cursor has passed have their rows."""
    return max(moment, schedule.updated_at, schedule.last_slot or moment)


def _ours(wanted: Sequence[Run], rows: Sequence[Run]) -> tuple[Run, ...]:
    """Those rows that we inserted; the others another worker had made first."""
    return tuple(
        row for run, row in zip(wanted, rows, strict=True) if row.created_at == run.created_at
    )


async def known_ids(store: Store, namespace: str, names: Iterable[str]) -> dict[str, ScheduleId]:
    """The ids under which schedules of these names last ran; for a start while the store cannot
    say which schedules there are."""
    wanted = set(names)
    query = RunQuery(namespace=namespace, limit=1000)
    found: dict[str, ScheduleId] = {}
    for run in (await store.list_runs(query)).items:
        if run.schedule_id is not None and run.schedule_name in wanted - found.keys():
            found[run.schedule_name] = run.schedule_id
    for name in wanted - found.keys():
        # Runs seldom: its last one may lie far behind those of the others.
        for generation in range(_GENERATIONS, 0, -1):
            schedule_id = declared_id(namespace, name, generation)
            if (await store.list_runs(RunQuery(schedule_id=schedule_id, limit=1))).items:
                found[name] = schedule_id
                break
    return found
