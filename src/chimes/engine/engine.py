"""The engine of one node: builds the duties of its roles, starts them, drains them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType

from prometheus_client.process_collector import ProcessCollector

from chimes.clock import Clock, SystemClock
from chimes.config import Settings
from chimes.engine.capacity import Capacity, Pool, pools_of
from chimes.engine.deliverer import Deliverer
from chimes.engine.events import (
    DrainEnded,
    DrainStarted,
    DutyFailed,
    Events,
    Listener,
    NodeDraining,
    NodeResumed,
)
from chimes.engine.executor import Execution, Executor
from chimes.engine.flow_steps import FlowSteps
from chimes.engine.in_flight import StopReason
from chimes.engine.maintenance import LogRetention, Maintenance
from chimes.engine.membership import DrainGate, FailoverWatch, Heartbeat, Membership, StoreClock
from chimes.engine.poller import Duty, Poller
from chimes.engine.reconciler import SPACING, Reconciler, LeaseRecovery
from chimes.engine.scheduler import Scheduler
from chimes.engine.worker import Worker
from chimes.errors import StoreError
from chimes.failpoints import hit
from chimes.model.ids import NodeId, RunId
from chimes.model.node import NodeReport
from chimes.model.planning import plan
from chimes.model.policy import RunDefaults
from chimes.notifications.base import Sender
from chimes.services.prompts import plan_without_prompts
from chimes.store.epoch import WithEpoch
from chimes.store.port import Store
from chimes.targets.base import TargetRunner

# @@ What a node tells of itself with its heartbeat.

_MEMORY = "process_resident_memory_bytes"


class NodeStats:
    """Called by the thread of the heartbeat only: whatever it reads of others is one number."""

    def __init__(
        self,
        executor: Executor,
        membership: Membership,
        clock: Clock,
        queues: tuple[str, ...],
        sending: Callable[[], int],
    ) -> None:
        self._executor = executor
        self._membership = membership
        self._clock = clock
        self._queues = queues
        self._sending = sending
        self._process = ProcessCollector(registry=None)
        self._last = clock.monotonic(), 0

    def __call__(self) -> NodeReport:
        return NodeReport(
            running=self._executor.count,
            sending=self._sending(),
            claims_per_minute=self._rate(),
            memory=self._memory(),
            queues=self._queues,
            draining=self._membership.draining,
        )

    def _rate(self) -> float:
        now, taken = self._clock.monotonic(), self._executor.taken
        (then, before), self._last = self._last, (now, taken)
        return round((taken - before) * 60 / (now - then), 2) if now > then else 0.0

    def _memory(self) -> int | None:
        """Where there is no /proc, nobody knows."""
        for family in self._process.collect():
            if family.name == _MEMORY:
                return int(family.samples[0].value)
        return None


DEFAULT_WORKERS = 100
#: How long the store may take for the last writes of a drain.
LAST_WRITES = 5.0
#: At least this many seconds lie between two writes of verdicts: one that comes alone goes at
#: once, a crowd goes together (PERFORMANCE).
WRITE_SPACING = 0.005
#: At least this many seconds lie between two looks for steps that ended elsewhere.
STEP_SPACING = 0.02


class Engine:
    def __init__(
        self,
        store: Store,
        runners: Mapping[str, TargetRunner],
        *,
        settings: Settings,
        clock: Clock | None = None,
        roles: Iterable[str] | None = None,
        node_id: NodeId | None = None,
        version: str = "",
        listeners: Iterable[Listener] = (),
        defaults: Mapping[str, RunDefaults] = MappingProxyType({}),
        senders: Iterable[Sender] = (),
        queues: Iterable[str] = (),
        rng: random.Random | None = None,
    ) -> None:
        """Belongs to the event loop that is running. `node_id` is only for the first lease; a
        node that loses it joins again under one that nobody has used. `defaults`: what its tasks
        and flows say about their runs, for the other nodes. `senders`: the channels by which a
        worker tells of what has ended. `queues`: where its tasks come from, for people; none: from
        all of them."""
        clock = clock or SystemClock()
        self._store = store
        self._runners = runners
        self._settings = settings
        self._roles = tuple(settings.roles if roles is None else roles)
        self._log_retention: LogRetention | None = None
        if settings.sync_log_runs >= 0 and "sync" in runners:
            self._log_retention = LogRetention(store, clock, keep=settings.sync_log_runs)
            listeners = (*listeners, self._log_retention)
        time = StoreClock(store, clock)
        self._deliverer: Deliverer | None = None
        if "worker" in self._roles and (channels := tuple(senders)):
            self._deliverer = Deliverer(
                store,
                channels,
                settings=settings,
                clock=clock,
                time=time,
                tell=lambda event: self._events.emit(event),
            )
            listeners = (*listeners, self._deliverer)
        self._events = Events(listeners)
        self._rng = rng or random.Random()  # noqa: S311 (spreads retries, guards nothing)
        pools: tuple[Pool, ...] = ()
        if "worker" in self._roles:
            workers = DEFAULT_WORKERS if settings.workers is None else settings.workers
            pools = pools_of(runners.values(), workers=workers)
        self._membership = Membership(
            store,
            clock=clock,
            time=time,
            events=self._events,
            lease=settings.lease,
            version=version,
            roles=self._roles,
            capacity=pools[0].places if pools else 0,
            offers=lambda: frozenset().union(*(pool.offers for pool in pools)),
            defaults=defaults,
            node_id=node_id,
        )
        self._steps = FlowSteps(store, time, clock, settings.poll_interval)
        execution = Execution(
            store,
            runners,
            self._membership,
            self._steps,
            clock=clock,
            time=time,
            events=self._events,
        )
        self._executor = Executor(store, execution, self._steps, self._events, clock, time)
        self._capacities = [Capacity(pool, self._executor.stirred) for pool in pools]
        self._oversight = Reconciler(
            store,
            self._membership,
            self._executor,
            self._capacities,
            clock=clock,
            time=time,
            poll=settings.poll_interval,
        )
        self._heartbeat = Heartbeat(
            store,
            self._membership,
            clock=clock,
            time=time,
            events=self._events,
            canceling=store.wake,
            facts=NodeStats(
                self._executor,
                self._membership,
                clock,
                tuple(sorted(queues)),
                lambda: 0 if self._deliverer is None else self._deliverer.sending,
            ),
            hearing=self._asked,
            period=settings.heartbeat,
        )
        self._taking, self._keeping = self._duties(clock, time)
        self._drain: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def _duties(self, clock: Clock, time: StoreClock) -> tuple[list[Poller], list[Poller]]:
        """Those that bring in work and end when a drain begins, and those that go on to its end."""
        store, settings, member = self._store, self._settings, self._membership
        taking: list[Poller] = []
        keeping: list[Poller] = [self._poller(LeaseRecovery(store, member, self._executor))]
        if isinstance(store, WithEpoch):
            watch = FailoverWatch(store, store, member, time=time, events=self._events)
            taking.append(self._poller(watch))
        for capacity in self._capacities:
            worker = Worker(
                store, member, self._executor, capacity, time=time, poll=settings.poll_interval
            )
            taking.append(self._poller(DrainGate(worker, member)))
        if any(runner.resumable for runner in self._runners.values()):
            taking.append(self._poller(self._steps.writing))
            taking.append(self._poller(self._steps.watching, spacing=STEP_SPACING))
        if self._capacities:
            keeping.append(self._poller(self._oversight, spacing=SPACING))
            keeping.append(self._poller(self._executor.logs, patience=LAST_WRITES))
            if self._executor.room is not None:
                keeping.append(self._poller(self._executor.room))
            keeping.append(
                self._poller(self._executor.recorder, spacing=WRITE_SPACING, patience=LAST_WRITES)
            )
        if self._deliverer is not None:
            taking.append(self._poller(DrainGate(self._deliverer, member)))
            keeping.append(
                self._poller(self._deliverer.recorder, spacing=WRITE_SPACING, patience=LAST_WRITES)
            )
        if self._log_retention is not None:
            taking.append(self._poller(self._log_retention))
        if "scheduler" in self._roles:
            scheduler = Scheduler(
                store,
                member,
                clock=clock,
                time=time,
                events=self._events,
                poll=settings.poll_interval,
                executor=self._executor if self._capacities else None,
                capacities=self._capacities,
                most=settings.max_dispatch_per_tick,
                tick=settings.dispatch_tick,
                planner=plan if settings.softnix_scheduler_enabled else plan_without_prompts,
            )
            taking.append(self._poller(DrainGate(scheduler, member)))
        if taking:
            maintenance = Maintenance(
                store,
                member,
                clock=clock,
                time=time,
                events=self._events,
                poll=settings.poll_interval,
                retention=settings.retention,
            )
            taking.append(self._poller(maintenance))
        return taking, keeping

    def _poller(self, duty: Duty, *, spacing: float = 0.0, patience: float = 5.0) -> Poller:
        return Poller(
            duty,
            store=self._store,
            events=self._events,
            rng=self._rng,
            spacing=spacing,
            patience=patience,
        )

    @property
    def node_id(self) -> NodeId:
        return self._membership.node_id

    @property
    def trusted(self) -> bool:
        """Whether this node holds its lease; without it nothing new is started."""
        return self._membership.trusted

    @property
    def draining(self) -> bool:
        return self._drain is not None

    @property
    def running(self) -> tuple[RunId, ...]:
        """Runs in hand, up to the moment their verdict is written."""
        return self._executor.running

    async def start(self) -> None:
        """Raises StoreError if the store cannot take the node in."""
        try:
            for runner in self._runners.values():
                await runner.open()
            if self._deliverer is not None:
                await self._deliverer.open()
            await self._membership.join()
        except BaseException:
            await self._close_runners()
            raise
        self._heartbeat.start()
        for poller in self._keeping + self._taking:
            poller.start()

    async def announce(self) -> None:
        """What its runners offer is another than at the start."""
        await self._membership.announce()
        self._store.wake()

    async def drain(self, grace: timedelta | None = None) -> None:
        """StopReason taking work at once, give back what has not begun, let the rest end within the
        grace, write every verdict, leave (R3.39, F69). Called again, it waits no longer."""
        if self._drain is None:
            grace = self._settings.shutdown_grace if grace is None else grace
            self._drain = asyncio.create_task(self._drained(grace))
        else:
            self._hurry.set()
        await asyncio.shield(self._drain)

    def _asked(self, drain: bool) -> None:
        """An operator wants this node to take nothing new, or to go on. It stays a member, and
        whatever it has begun goes on to its end (UX A.8)."""
        if self._drain is not None or drain == self._membership.draining:
            return
        if drain:
            self._membership.at_work.clear()
            self._executor.stop_taking()
            # What has not begun goes to the others at once.
            self._executor.stirred.set()
            self._events.emit(NodeDraining(node_id=self.node_id, running=self._executor.count))
        else:
            self._executor.take_again()
            self._membership.at_work.set()
            self._events.emit(NodeResumed(node_id=self.node_id))

    async def _drained(self, grace: timedelta) -> None:
        executor = self._executor
        self._events.emit(
            DrainStarted(node_id=self.node_id, running=len(executor.running), grace=grace)
        )
        executor.stop_taking()
        await asyncio.gather(*(poller.stop() for poller in self._taking), self._give_back())
        await self._give_back()
        hit("drain.mid")
        await self._ended(within=grace.total_seconds())
        given_up = executor.stop_all(StopReason.DRAIN)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(executor.empty.wait(), LAST_WRITES)
        if self._deliverer is not None:
            self._deliverer.stop_sending()
        for poller in self._keeping:
            await poller.stop()
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LAST_WRITES):
                await self._last_writes()
        await self._heartbeat.stop()
        with contextlib.suppress(StoreError):
            await self._membership.leave()
        await self._close_runners()
        self._events.emit(DrainEnded(node_id=self.node_id, given_up=given_up))

    async def _last_writes(self) -> None:
        """A recorder that was backing off is stopped in its rest; the store may be back by now."""
        recorder, logs = self._executor.recorder, self._executor.logs
        if logs.unfinished:
            try:
                await logs.once()
            except Exception as error:
                # What is said about the runs matters more than their last lines.
                self._events.emit(DutyFailed(duty=logs.name, error=error, first=True))
        while recorder.waiting:
            await self._write_last(recorder)
        while self._deliverer is not None and self._deliverer.recorder.waiting:
            await self._write_last(self._deliverer.recorder)

    async def _write_last(self, recorder: Duty) -> None:
        try:
            await recorder.once()
        except StoreError:
            raise
        except Exception as error:
            self._events.emit(DutyFailed(duty=recorder.name, error=error, first=True))
            await asyncio.sleep(WRITE_SPACING)

    async def _close_runners(self) -> None:
        for runner in self._runners.values():
            await runner.close()
        if self._deliverer is not None:
            await self._deliverer.close()

    async def _give_back(self) -> None:
        """Best effort: what the store does not take now, `leave` or the end of the lease does."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._oversight.give_back()

    async def _ended(self, within: float) -> None:
        ended = asyncio.create_task(self._nothing_in_hand())
        hurry = asyncio.create_task(self._hurry.wait())
        try:
            await asyncio.wait({ended, hurry}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            hurry.cancel()

    async def _nothing_in_hand(self) -> None:
        await self._executor.empty.wait()
        if self._deliverer is not None:
            await self._deliverer.idle.wait()
