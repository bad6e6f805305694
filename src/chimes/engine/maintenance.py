"""Maintenance on any node: rescue, ended pauses, dashboard rollups, retention, old checkpoints."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Protocol

from chimes.clock import Clock
from chimes.engine.events import (
    AuditNotPruned,
    AuditPruned,
    Event,
    Events,
    MessagesPruned,
    PauseEnded,
    RunEnded,
    RunRescued,
    RunsPruned,
    StoreClockJumped,
    UnusedPruned,
)
from chimes.engine.membership import Membership, StoreClock
from chimes.engine.poller import NextPoll, PollAfter, PollNow, PollOnEvent
from chimes.errors import Conflict, NotFound, StaleVersion
from chimes.i18n import _
from chimes.model import replace
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import (
    action_checkpoint_name,
    agent_callback_name,
    agent_checkpoint_name,
    engine_checkpoint_name,
)
from chimes.model.ids import RunId
from chimes.model.listing import RunQuery, ScheduleQuery
from chimes.model.proposal import PROPOSALS_CHECKPOINT
from chimes.model.run import Run
from chimes.model.schedule import Schedule, resume_schedule
from chimes.model.sync import TASK_RUN_STATUSES
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    CeleryTarget,
    DaskTarget,
    KubernetesTarget,
    SyncTarget,
)
from chimes.services.audit import prune_audit
from chimes.store.port import Store

RESCUE_BATCH = 200
PRUNE_BATCH = 1000
PRUNE_BATCHES = 20
PRUNE_EVERY = timedelta(minutes=1)
#: Deleting what is unused reads whole tables.
PRUNE_UNUSED_EVERY = timedelta(hours=1)
PRUNE_AUDIT_EVERY = timedelta(days=1)
PAUSED_PAGE = 500
#: Runs rolled up in one transaction, and transactions in one pass.
ROLLUP_BATCH, ROLLUP_BATCHES = 1000, 50
ROLLUP_INTERVAL = 15.0
#: Minimum seconds between two comparisons of the time data, which read all schedules, and the
#: maximum share of the time that is spent on them.
TIME_DATA_INTERVAL = 5.0
MAX_TIME_DATA_SHARE = 0.002
#: Maximum share of the time that is spent on finding ended pauses.
MAX_PAUSE_SHARE = 0.02
#: Maximum seconds between two searches for lost runs, even if no lease has ended.
MAX_RESCUE_INTERVAL = 5.0
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
        audit_retention: timedelta | None = None,
        audit_key: str = "",
    ) -> None:
        self._store = store
        self._membership = membership
        self._clock = clock
        self._time = time
        self._events = events
        self._poll = poll
        self._retention = retention
        self._audit_retention = audit_retention
        self._audit_key = audit_key
        self._next_prune_audit: datetime | None = None
        self._next_prune: datetime | None = None
        self._next_prune_unused: datetime | None = None
        self._next_rollup = 0.0
        self._pauses_checked: int | None = None
        self._next_pause_end: datetime | None = None
        self._next_pause_check = 0.0
        self._next_rescue = 0.0
        self._next_time_data = 0.0
        self._time_data_checked: int | None = None
        self._max_rescue_interval = min(MAX_RESCUE_INTERVAL, membership.lease.total_seconds() / 3)

    async def run_once(self) -> NextPoll:
        may_rescue = self._clock.monotonic() >= self._next_rescue
        now = await (self._time.fetch_now() if may_rescue else self._time.recent())
        self._delay_rescue_after_jump()
        # A node that does not trust its own lease does not judge those of others.
        if self._membership.trusted:
            # Only with the store's current time: a jump has to be noticed first.
            if may_rescue and self._clock.monotonic() >= self._next_rescue:
                await self.rescue()
                await self._schedule_rescue()
            await self.end_pauses(now)
            if self._clock.monotonic() >= self._next_rollup and await self.roll_up():
                # On the monotonic clock: the next rollup detects a store that was set back.
                self._next_rollup = self._clock.monotonic() + ROLLUP_INTERVAL
            if self._next_prune is None or now >= self._next_prune:
                await self.prune(now)
                self._next_prune = now + PRUNE_EVERY
            if self._clock.monotonic() >= self._next_time_data:
                await self.check_time_data()
        return PollAfter(self._time.seconds_to_tick(self._poll))

    async def check_time_data(self) -> None:
        """Lists the fires that an update of tzdata or holidays moves, and moves their cursors.
        Repeated after changes, because a new schedule may use a zone that is not recorded."""
        from chimes.services.time_data import TimeDataService

        changes = self._store.changes()
        if changes == self._time_data_checked:
            return
        began = self._clock.monotonic()
        self._next_time_data = began + TIME_DATA_INTERVAL
        await TimeDataService(self._store).check()
        self._time_data_checked = changes
        took = self._clock.monotonic() - began
        self._next_time_data = began + max(TIME_DATA_INTERVAL, took / MAX_TIME_DATA_SHARE)

    def _delay_rescue_after_jump(self) -> None:
        """A store clock that is set forward ends leases early. A node with time left renews its
        lease within one lease, and one that lost it stops and joins again: rescuing their runs
        before that would only repeat them."""
        for seconds in self._time.take_jumps():
            self._events.emit(StoreClockJumped(seconds=seconds))
            if seconds > 0:
                self._next_rescue = self._clock.monotonic() + self._membership.lease.total_seconds()

    async def _schedule_rescue(self) -> None:
        """When the first lease can end, at most `MAX_RESCUE_INTERVAL`: nodes may join meanwhile."""
        before = self._clock.monotonic()
        nodes = await self._store.nodes()
        now = self._time.now()
        seconds = [(node.lease_until - now).total_seconds() for node in nodes]
        wait = min(*seconds, self._max_rescue_interval) if seconds else self._max_rescue_interval
        self._next_rescue = max(self._next_rescue, before + max(0.0, wait))

    async def rescue(self) -> None:
        while True:
            runs = await self._store.rescue(limit=RESCUE_BATCH)
            for run in runs:
                self._events.emit(RunRescued(run=run))
            if len(runs) < RESCUE_BATCH:
                return

    async def roll_up(self) -> bool:
        """Whether all ended runs are rolled up."""
        for _batch in range(ROLLUP_BATCHES):
            if await self._store.roll_up(limit=ROLLUP_BATCH) < ROLLUP_BATCH:
                return True
        return False

    async def prune(self, now: datetime) -> None:
        before = now - self._retention
        if runs := await _prune_batches(self._store.prune_runs, before):
            self._events.emit(RunsPruned(count=runs))
        if messages := await _prune_batches(self._store.prune_messages, before):
            self._events.emit(MessagesPruned(count=messages))
        # After the runs, which schedules and definitions are used by.
        if self._next_prune_unused is None or now >= self._next_prune_unused:
            if unused := await _prune_batches(self._store.prune_unused, before):
                self._events.emit(UnusedPruned(count=unused))
            if await self._store.get_checkpoint(PROPOSALS_CHECKPOINT) is not None:
                from chimes.services.proposals import prune_proposals

                await prune_proposals(self._store, before=before)
            self._next_prune_unused = now + PRUNE_UNUSED_EVERY

        if self._audit_retention is not None and (
            self._next_prune_audit is None or now >= self._next_prune_audit
        ):
            await self.prune_audit(now - self._audit_retention)
            self._next_prune_audit = now + PRUNE_AUDIT_EVERY

    async def prune_audit(self, before: datetime) -> None:
        try:
            while count := await prune_audit(self._store, self._audit_key, before=before):
                self._events.emit(AuditPruned(count=count))
        except StaleVersion:
            return  # another node does it
        except Conflict as error:
            self._events.emit(AuditNotPruned(why=str(error)))

    async def end_pauses(self, now: datetime) -> None:
        """Reads the paused schedules only after a change, or when the earliest known end is due."""
        changes = self._store.changes()
        due = self._next_pause_end is not None and self._next_pause_end <= now
        changed = (
            changes != self._pauses_checked and self._clock.monotonic() >= self._next_pause_check
        )
        if not due and not changed:
            return
        began = self._clock.monotonic()
        ended, self._next_pause_end = await self._ended_pauses(now)
        self._pauses_checked = changes
        took = self._clock.monotonic() - began
        self._next_pause_check = self._clock.monotonic() + took / MAX_PAUSE_SHARE
        for schedule in ended:
            await self._resume(schedule, now)

    async def _ended_pauses(self, now: datetime) -> tuple[list[Schedule], datetime | None]:
        """Schedules whose pause has ended, and when the next pause ends."""
        ended: list[Schedule] = []
        next_end: datetime | None = None
        query = ScheduleQuery(enabled=False, limit=PAUSED_PAGE)
        while True:
            page = await self._store.list_schedules(query)
            for schedule in page.items:
                until = schedule.pause_until
                if until is not None and until <= now:
                    ended.append(schedule)
                elif until is not None:
                    next_end = until if next_end is None else min(next_end, until)
            if page.next is None:
                return ended, next_end
            query = replace(query, after=page.next)

    async def _resume(self, schedule: Schedule, now: datetime) -> None:
        def change(current: Schedule, at: datetime) -> Schedule:
            if current.enabled or current.pause_until is None or current.pause_until > at:
                raise Conflict(_("the pause was changed in the meantime"))
            # From the end of the pause, not from now: the misfire policy decides about slots that
            # came due since.
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
            reason=str(_("the pause ended")),
        )
        try:
            after = await self._store.change_schedule(schedule.id, change, audit)
        except Conflict:
            # The time here is an estimate: by the store's clock the pause may not have ended.
            self._pauses_checked = None
            return
        except NotFound:
            return
        self._events.emit(PauseEnded(schedule=after))


class _Prune(Protocol):
    async def __call__(self, *, before: datetime, limit: int) -> int: ...


async def _prune_batches(prune: _Prune, before: datetime) -> int:
    """How many rows were deleted, in batches that do not block other work."""
    total = 0
    for _batch in range(PRUNE_BATCHES):
        count = await prune(before=before, limit=PRUNE_BATCH)
        total += count
        if count < PRUNE_BATCH:
            break
    return total


PAGE = 500
#: Older runs that are read again each time, because other nodes may have ended some.
OVERLAP = 50
#: Maximum share of the time that is spent on reading runs.
MAX_READ_SHARE = 0.1


class LogRetention:
    """Keeps the logs of the last `sync_log_runs` runs of each source and collection; a duty and an
    event listener that acts when such a run ends here."""

    name = "log retention"

    def __init__(self, store: Store, clock: Clock, *, keep: int) -> None:
        self._store = store
        self._clock = clock
        self._keep = keep
        self._pending: dict[str, SyncTarget] = {}
        #: Keys whose older runs were all read once.
        self._trimmed: set[str] = set()
        self._changed = asyncio.Event()

    event_types = (RunEnded,)

    def __call__(self, event: Event) -> None:
        if not isinstance(event, RunEnded) or event.run.definition.target.kind != "sync":
            return
        target = event.run.target
        if isinstance(target, SyncTarget):
            self._pending[target.key] = target
            self._changed.set()

    async def run_once(self) -> NextPoll:
        if not self._pending:
            self._changed.clear()
            return PollOnEvent(event=self._changed)
        key = next(iter(self._pending))
        target = self._pending.pop(key)
        began = self._clock.monotonic()
        try:
            await self._trim(target)
        except BaseException:
            self._pending.setdefault(key, target)
            raise
        self._trimmed.add(key)
        took = self._clock.monotonic() - began
        return PollAfter(took / MAX_READ_SHARE) if took > MAX_READ_SHARE else PollNow()

    async def _trim(self, target: SyncTarget) -> None:
        """Drops the logs of runs older than the newest ones to keep."""
        query = RunQuery(
            requirement=target.requirement,
            concurrency_key=target.key,
            statuses=TASK_RUN_STATUSES,
            descending=True,
            limit=PAGE,
        )
        seen = 0
        limit = self._keep + OVERLAP if target.key in self._trimmed else None
        while True:
            page = await self._store.list_runs(query)
            old = page.items[max(0, self._keep - seen) :]
            dropped: list[RunId] = [run.id for run in old if run.status.terminal]
            if dropped:
                await self._store.drop_logs(dropped)
            seen += len(page.items)
            if page.next is None or (limit is not None and seen >= limit):
                return
            query = replace(query, after=page.next)


class CheckpointCleaner:
    """Deletes the checkpoints of ended runs of agents, actions and engines; a duty and a
    listener of events."""

    name = "checkpoint cleaner"
    event_types = (RunEnded, RunRescued)

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended: dict[RunId, tuple[str, ...]] = {}
        self._changed = asyncio.Event()

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunEnded | RunRescued):
            names = _checkpoint_names(event.run)
            if names and event.run.status.terminal:
                self._ended[event.run.id] = names
                self._changed.set()

    async def run_once(self) -> NextPoll:
        await self.clean()
        self._changed.clear()
        return PollOnEvent(event=self._changed)

    async def clean(self) -> None:
        while self._ended:
            run_id = next(iter(self._ended))
            for name in self._ended[run_id]:
                if await self._store.get_checkpoint(name) is not None:
                    await self._store.set_checkpoint(name, None)
            del self._ended[run_id]


def _checkpoint_names(run: Run) -> tuple[str, ...]:
    """The checkpoints of this run alone."""
    target = run.definition.target
    if target.kind == "task":
        # Most runs: deciding by type is slower, and this is called for every run that ends.
        return ()
    match target:
        case AgentTarget():
            return agent_checkpoint_name(run.id), agent_callback_name(run.id)
        case ActionTarget():
            return (action_checkpoint_name(run.id),)
        case CeleryTarget() | DaskTarget() | KubernetesTarget():
            return (engine_checkpoint_name(run.id),)
        case _:
            return ()
