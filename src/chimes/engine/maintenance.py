"""What has to be done from time to time on any node: rescue lost runs, end pauses, count ended runs
into the sums of the dashboard, forget what is older than the retention."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from chimes.clock import Clock
from chimes.engine.events import (
    Event,
    Events,
    MessagesPruned,
    PauseEnded,
    RunEnded,
    RunRescued,
    RunsPruned,
    StoreClockJumped,
)
from chimes.engine.membership import Membership, StoreClock
from chimes.engine.poller import PollAfter, PollNow, NextPoll, PollOnEvent
from chimes.errors import Conflict, NotFound
from chimes.i18n import _
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery, ScheduleQuery
from chimes.model.schedule import Schedule, resume_schedule
from chimes.model.sync import TASK_RUN_STATUSES
from chimes.model.target import SyncTarget
from chimes.store.port import Store

RESCUE_BATCH = 200
PRUNE_BATCH = 1000
PRUNE_BATCHES = 20
PRUNE_EVERY = timedelta(minutes=1)
PAUSED_PAGE = 500
#: Runs that are counted in one transaction, and how often it is done at most before the rest of
#: the maintenance has its turn.
ROLL_BATCH, ROLL_BATCHES = 1000, 50
ROLL_SECONDS = 15.0
#: Looking for pauses that end takes at most this share of the time.
PAUSE_SHARE = 0.02
#: Seconds after which somebody looks for lost runs even if no lease has ended.
LONGEST_REST = 5.0
ACTOR = "chimes"


class Maintenance:
    name = "maintenance"

    def __init__(
        self,
        store: Store,
        membership: Membership,
        *,
        clock: Clock,
        time: StoreClock,
        events: Events,
        poll: timedelta,
        retention: timedelta,
    ) -> None:
        self._store = store
        self._membership = membership
        self._clock = clock
        self._time = time
        self._events = events
        self._poll = poll
        self._retention = retention
        self._prune_at: datetime | None = None
        self._roll_from = 0.0
        self._pauses_seen: int | None = None
        self._pause_ends: datetime | None = None
        self._look_again = 0.0
        self._rescue_from = 0.0
        self._longest_rest = min(LONGEST_REST, membership.lease.total_seconds() / 3)

    async def once(self) -> NextPoll:
        rescuing = self._clock.monotonic() >= self._rescue_from
        now = await (self._time.ask() if rescuing else self._time.recent())
        self._watch_clock()
        # A node that is not sure of its own lease judges nobody else's.
        if self._membership.trusted:
            # Only with the store's time just asked for: a jump has to be seen first.
            if rescuing and self._clock.monotonic() >= self._rescue_from:
                await self.rescue()
                await self._rest_from_rescuing()
            await self.end_pauses(now)
            if self._clock.monotonic() >= self._roll_from and await self.roll_up():
                # Not by the store's clock: a store has to notice soon that it was set back.
                self._roll_from = self._clock.monotonic() + ROLL_SECONDS
            if self._prune_at is None or now >= self._prune_at:
                await self.prune(now)
                self._prune_at = now + PRUNE_EVERY
        return PollAfter(self._time.seconds_to_tick(self._poll))

    def _watch_clock(self) -> None:
        """By a clock that was put forward leases end early. Whose lease has time left renews it
        within one; who has lost it stops and joins anew. Taking their runs before would only
        repeat what they are doing (F52)."""
        for seconds in self._time.take_jumps():
            self._events.emit(StoreClockJumped(seconds=seconds))
            if seconds > 0:
                self._rescue_from = self._clock.monotonic() + self._membership.lease.total_seconds()

    async def _rest_from_rescuing(self) -> None:
        """PollAtTime the first lease can end; and no longer than a node takes that came meanwhile."""
        before = self._clock.monotonic()
        nodes = await self._store.nodes()
        now = self._time.now()
        seconds = [(node.lease_until - now).total_seconds() for node in nodes]
        rest = min(*seconds, self._longest_rest) if seconds else self._longest_rest
        self._rescue_from = max(self._rescue_from, before + max(0.0, rest))

    async def rescue(self) -> None:
        while True:
            runs = await self._store.rescue(limit=RESCUE_BATCH)
            for run in runs:
                self._events.emit(RunRescued(run=run))
            if len(runs) < RESCUE_BATCH:
                return

    async def roll_up(self) -> bool:
        """Whether all that has ended is counted."""
        for _unused in range(ROLL_BATCHES):
            if await self._store.roll_up(limit=ROLL_BATCH) < ROLL_BATCH:
                return True
        return False

    async def prune(self, now: datetime) -> None:
        before = now - self._retention
        if runs := await _forgotten(self._store.prune_runs, before):
            self._events.emit(RunsPruned(count=runs))
        if messages := await _forgotten(self._store.prune_messages, before):
            self._events.emit(MessagesPruned(count=messages))

    async def end_pauses(self, now: datetime) -> None:
        """Looks through the paused schedules only when something has changed since the last look
        or the earliest end that it saw has come."""
        changes = self._store.changes()
        come = self._pause_ends is not None and self._pause_ends <= now
        news = changes != self._pauses_seen and self._clock.monotonic() >= self._look_again
        if not come and not news:
            return
        began = self._clock.monotonic()
        over, self._pause_ends = await self._ending(now)
        self._pauses_seen = changes
        took = self._clock.monotonic() - began
        self._look_again = self._clock.monotonic() + took / PAUSE_SHARE
        for schedule in over:
            await self._resume(schedule, now)

    async def _ending(self, now: datetime) -> tuple[list[Schedule], datetime | None]:
        """Paused schedules whose pause is over, and when the next one ends."""
        over: list[Schedule] = []
        next_end: datetime | None = None
        query = ScheduleQuery(enabled=False, limit=PAUSED_PAGE)
        while True:
            page = await self._store.list_schedules(query)
            for schedule in page.items:
                until = schedule.pause_until
                if until is not None and until <= now:
                    over.append(schedule)
                elif until is not None:
                    next_end = until if next_end is None else min(next_end, until)
            if page.next is None:
                return over, next_end
            query = replace(query, after=page.next)

    async def _resume(self, schedule: Schedule, now: datetime) -> None:
        def change(current: Schedule, at: datetime) -> Schedule:
            if current.enabled or current.pause_until is None or current.pause_until > at:
                raise Conflict(_("the pause has been changed meanwhile"))
            # From the end of the pause, not from when somebody looked: what came due since then
            # is for the misfire policy to judge.
            return resume_schedule(current, at, ACTOR, since=current.pause_until)

        until = schedule.pause_until
        audit = AuditEntry(
            at=now,
            actor=ACTOR,
            interface="engine",
            verb="resume",
            object_kind="schedule",
            object_id=schedule.id,
            owner=str(schedule.owner),
            changes={
                "enabled": [False, True],
                "pause_until": [until.isoformat() if until else None, None],
            },
            reason=str(_("the pause was over")),
        )
        try:
            after = await self._store.change_schedule(schedule.id, change, audit)
        except Conflict:
            # By the store's own clock it may not be over yet: what it is here is an estimate.
            self._pauses_seen = None
            return
        except NotFound:
            return
        self._events.emit(PauseEnded(schedule=after))


class _Prune(Protocol):
    async def __call__(self, *, before: datetime, limit: int) -> int: ...


async def _forgotten(prune: _Prune, before: datetime) -> int:
    """How many, in batches that keep nobody waiting."""
    total = 0
    for _unused in range(PRUNE_BATCHES):
        count = await prune(before=before, limit=PRUNE_BATCH)
        total += count
        if count < PRUNE_BATCH:
            break
    return total


# @@ Which tasks keep their logs: the last ones of each pair of source and collection
# (`sync_log_runs`). Looked after when a task of the pair ends here.

PAGE = 500
#: Tasks beyond the last ones that are looked at again each time: other nodes may have ended some.
AGAIN = 50
#: Looking takes at most this share of the time: those that keep their logs may be many.
SHARE = 0.1


class LogRetention:
    """A duty, and a listener of the engine."""

    name = "log retention"

    def __init__(self, store: Store, clock: Clock, *, keep: int) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep
        self._waiting: dict[str, SyncTarget] = {}
        #: Pairs whose older tasks were looked through to the last.
        self._cleared: set[str] = set()
        self._stirred = asyncio.Event()

    event_types = (RunEnded,)

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunEnded) and isinstance(event.run.target, SyncTarget):
            target = event.run.target
            self._waiting[target.key] = target
            self._stirred.set()

    async def once(self) -> NextPoll:
        if not self._waiting:
            self._stirred.clear()
            return PollOnEvent(event=self._stirred)
        key = next(iter(self._waiting))
        target = self._waiting.pop(key)
        began = self._clock.monotonic()
        try:
            await self._trim(target)
        except BaseException:
            self._waiting.setdefault(key, target)
            raise
        self._cleared.add(key)
        took = self._clock.monotonic() - began
        return PollAfter(took / SHARE) if took > SHARE else PollNow()

    async def _trim(self, target: SyncTarget) -> None:
        """Newest first, past those that keep their logs."""
        query = RunQuery(
            needs=target.needs,
            concurrency_key=target.key,
            statuses=TASK_RUN_STATUSES,
            descending=True,
            limit=PAGE,
        )
        seen = 0
        most = self._keep + AGAIN if target.key in self._cleared else None
        while True:
            page = await self._store.list_runs(query)
            old = page.items[max(0, self._keep - seen) :]
            dropped: list[RunId] = [run.id for run in old if run.status.terminal]
            if dropped:
                await self._store.drop_logs(dropped)
            seen += len(page.items)
            if page.next is None or (most is not None and seen >= most):
                return
            query = replace(query, after=page.next)
