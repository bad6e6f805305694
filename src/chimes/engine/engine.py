"""The engine of a node: builds the duties of its roles, starts and drains them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from prometheus_client.process_collector import ProcessCollector

from chimes.clock import Clock, SystemClock
from chimes.config import Settings
from chimes.engine.deliverer import Deliverer
from chimes.engine.event_triggers import EventTriggers
from chimes.engine.events import (
    DrainEnded,
    DrainStarted,
    DutyFailed,
    Events,
    Listener,
    NodeDraining,
    NodeResumed,
)
from chimes.engine.executor import Executor
from chimes.engine.flow_steps import FlowSteps
from chimes.engine.in_flight import Capacity, Pool, StopReason, build_pools
from chimes.engine.maintenance import LogRetention, Maintenance
from chimes.engine.membership import (
    FailoverWatch,
    Heartbeat,
    Membership,
    StoreClock,
    new_node_id,
)
from chimes.engine.monitor_watch import MonitorWatch
from chimes.engine.notification_rules import RoutingWatch
from chimes.engine.poller import DrainGate, Duty, Poller
from chimes.engine.reconciler import SPACING, LeaseRecovery, Reconciler
from chimes.engine.recorder import WRITE_SPACING, ResultLimit
from chimes.engine.scheduler import Scheduler
from chimes.engine.worker import Worker
from chimes.errors import StoreError
from chimes.failpoints import hit
from chimes.model.ids import NodeId, RunId
from chimes.model.node import NodeReport
from chimes.model.planning import plan
from chimes.model.policy import RunDefaults
from chimes.notifications.base import Sender
from chimes.services.routing import refresh_routing
from chimes.services.schedules.prompts import plan_without_prompts
from chimes.store.epoch import EpochStore
from chimes.store.port import Store
from chimes.targets.base import TargetRunner

if TYPE_CHECKING:
    from chimes.engine.spans import RunTracing

DEFAULT_WORKERS = 100
#: Seconds that the store may take for the last writes of a drain.
FINAL_WRITE_TIMEOUT = 5.0
#: Minimum seconds between two queries for steps that ended on other nodes.
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
        node_ids: Callable[[], NodeId] = new_node_id,
        version: str = "",
        listeners: Iterable[Listener] = (),
        defaults: Mapping[str, RunDefaults] = MappingProxyType({}),
        senders: Iterable[Sender] = (),
        queues: Iterable[str] = (),
        rng: random.Random | None = None,
        tracing: RunTracing | None = None,
        heartbeat_thread: bool = True,
    ) -> None:
        """Must be called on the event loop on which the engine runs.

        `node_id` is the id for the first lease; a node that loses its lease joins again under a new
        id, from `node_ids`. `heartbeat_thread`: False only where one loop simulates several nodes.
        `defaults`: policies of its tasks and flows, published to other nodes. `senders`: the
        channels through which a worker sends notifications. `queues`: the task queues that it
        serves, for display; empty: all. `tracing`: makes the spans of its runs."""
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
                emit=lambda event: self._events.emit(event),
            )
            listeners = (*listeners, self._deliverer)
        self._event_triggers: EventTriggers | None = None
        if "scheduler" in self._roles:
            self._event_triggers = EventTriggers(
                store,
                clock=clock,
                time=time,
                settings=settings,
                node_id=lambda: self._membership.node_id,
            )
            listeners = (*listeners, self._event_triggers)
        self._events = Events(listeners)
        self._rng = rng or random.Random()  # noqa: S311 (spreads retries, guards nothing)
        pools: tuple[Pool, ...] = ()
        if "worker" in self._roles:
            workers = DEFAULT_WORKERS if settings.workers is None else settings.workers
            pools = build_pools(runners.values(), workers=workers)
        self._membership = Membership(
            store,
            clock=clock,
            time=time,
            events=self._events,
            lease=settings.lease,
            version=version,
            roles=self._roles,
            capacity=pools[0].permits if pools else 0,
            capabilities=lambda: frozenset().union(
                *(pool.capabilities for pool in pools),
                () if self._deliverer is None else self._deliverer.capabilities,
            ),
            defaults=defaults,
            node_id=node_id,
            node_ids=node_ids,
        )
        self._steps = FlowSteps(store, time, clock, settings.poll_interval)
        self._executor = Executor(
            store,
            runners,
            self._membership,
            self._steps,
            clock=clock,
            time=time,
            events=self._events,
            limit_result=ResultLimit(store, settings),
            tracing=tracing,
        )
        self._capacities = [Capacity(pool, self._executor.reconcile) for pool in pools]
        self._reconciler = Reconciler(
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
            on_cancel=store.wake,
            report=NodeStats(
                self._executor,
                self._membership,
                clock,
                tuple(sorted(queues)),
                lambda: 0 if self._deliverer is None else self._deliverer.sending,
            ).report,
            on_drain=self._set_draining,
            period=settings.heartbeat,
            thread=heartbeat_thread,
        )
        self._claiming, self._recording = self._build_pollers(clock, time)
        self._drain: asyncio.Task[None] | None = None
        self._grace_ended = asyncio.Event()

    def _build_pollers(self, clock: Clock, time: StoreClock) -> tuple[list[Poller], list[Poller]]:
        """Two groups: duties that stop when a drain begins, because they bring in work, and duties
        that run until its end, because they record it."""
        store, settings, member = self._store, self._settings, self._membership
        claiming: list[Poller] = []
        recording: list[Poller] = [
            self._poller(LeaseRecovery(store, member, self._executor)),
            self._poller(RoutingWatch(store)),
        ]
        if isinstance(store, EpochStore):
            watch = FailoverWatch(store, store, member, time=time, events=self._events)
            claiming.append(self._poller(watch))
        for capacity in self._capacities:
            worker = Worker(
                store, member, self._executor, capacity, time=time, poll=settings.poll_interval
            )
            claiming.append(self._poller(DrainGate(worker, member.accepting)))
        if any(runner.resumable for runner in self._runners.values()):
            claiming.append(self._poller(self._steps.writer))
            claiming.append(self._poller(self._steps.watcher, spacing=STEP_SPACING))
        if self._capacities:
            recording.append(self._poller(self._reconciler, spacing=SPACING))
            recording.append(
                self._poller(self._executor.recorder.logs, stop_timeout=FINAL_WRITE_TIMEOUT)
            )
            if self._executor.prefetched is not None:
                recording.append(self._poller(self._executor.prefetched))
            recording.append(
                self._poller(self._executor.recorder, stop_timeout=FINAL_WRITE_TIMEOUT)
            )
        if self._deliverer is not None:
            claiming.append(self._poller(DrainGate(self._deliverer, member.accepting)))
            recording.append(
                self._poller(
                    self._deliverer.recorder,
                    spacing=WRITE_SPACING,
                    stop_timeout=FINAL_WRITE_TIMEOUT,
                )
            )
        if self._log_retention is not None:
            claiming.append(self._poller(self._log_retention))
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
                max_per_tick=settings.max_dispatch_per_tick,
                tick=settings.dispatch_tick,
                planner=plan if settings.softnix_scheduler_enabled else plan_without_prompts,
            )
            claiming.append(self._poller(DrainGate(scheduler, member.accepting)))
            watch_monitors = MonitorWatch(
                store, clock=clock, time=time, poll=settings.poll_interval
            )
            claiming.append(self._poller(DrainGate(watch_monitors, member.accepting)))
        if self._event_triggers is not None:
            claiming.append(self._poller(DrainGate(self._event_triggers, member.accepting)))
        if claiming:
            maintenance = Maintenance(
                store,
                member,
                clock=clock,
                time=time,
                events=self._events,
                poll=settings.poll_interval,
                retention=settings.retention,
                audit_retention=settings.audit_retention,
                audit_key=settings.audit_key,
            )
            claiming.append(self._poller(maintenance))
        return claiming, recording

    def _poller(self, duty: Duty, *, spacing: float = 0.0, stop_timeout: float = 5.0) -> Poller:
        return Poller(
            duty,
            store=self._store,
            events=self._events,
            rng=self._rng,
            spacing=spacing,
            stop_timeout=stop_timeout,
        )

    @property
    def node_id(self) -> NodeId:
        return self._membership.node_id

    @property
    def trusted(self) -> bool:
        """Whether this node has its lease; without it no attempt starts."""
        return self._membership.trusted

    @property
    def draining(self) -> bool:
        return self._drain is not None

    @property
    def running(self) -> tuple[RunId, ...]:
        """Runs in flight, until their completion is stored."""
        return self._executor.run_ids

    async def start(self) -> None:
        """Raises StoreError if the node cannot join."""
        try:
            for runner in self._runners.values():
                await runner.open()
            if self._deliverer is not None:
                await self._deliverer.open()
            with contextlib.suppress(StoreError):
                # Otherwise the watch reads them.
                await refresh_routing(self._store)
            await self._membership.join()
        except BaseException:
            await self._close_runners()
            raise
        self._heartbeat.start()
        for poller in self._recording + self._claiming:
            poller.start()

    async def announce(self) -> None:
        """Publishes changed capabilities of the runners."""
        await self._membership.announce()
        self._store.wake()

    async def drain(self, grace: timedelta | None = None) -> None:
        """Stops claiming, releases unstarted runs, lets the others end within the grace period,
        writes all completions and leaves. A second call ends the grace period."""
        if self._drain is None:
            grace = self._settings.shutdown_grace if grace is None else grace
            self._drain = asyncio.create_task(self._run_drain(grace))
        else:
            self._grace_ended.set()
        await asyncio.shield(self._drain)

    def _set_draining(self, drain: bool) -> None:
        """Starts or ends a drain that an operator requested. The node stays a member, and started
        runs continue."""
        if self._drain is not None or drain == self._membership.draining:
            return
        if drain:
            self._membership.accepting.clear()
            self._executor.stop_accepting()
            # The reconciler releases unstarted runs.
            self._executor.reconcile.set()
            self._events.emit(NodeDraining(node_id=self.node_id, running=self._executor.count))
        else:
            self._executor.resume_accepting()
            self._membership.accepting.set()
            self._events.emit(NodeResumed(node_id=self.node_id))

    async def _run_drain(self, grace: timedelta) -> None:
        executor = self._executor
        self._events.emit(DrainStarted(node_id=self.node_id, running=executor.count, grace=grace))
        executor.stop_accepting()
        await asyncio.gather(*(poller.stop() for poller in self._claiming), self._release())
        await self._release()
        hit("drain.mid")
        await self._wait_until_idle(grace.total_seconds())
        given_up = executor.stop_all(StopReason.DRAIN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINAL_WRITE_TIMEOUT):
                await executor.empty.wait()
        if self._deliverer is not None:
            self._deliverer.stop_sending()
        for poller in self._recording:
            await poller.stop()
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(FINAL_WRITE_TIMEOUT):
                await self._write_remaining()
        await self._heartbeat.stop()
        with contextlib.suppress(StoreError):
            await self._membership.leave()
        await self._close_runners()
        self._events.emit(DrainEnded(node_id=self.node_id, given_up=given_up))

    async def _release(self) -> None:
        """Best effort: other nodes rescue runs that are not released now, after `leave` or when the
        lease ends."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._reconciler.release_unstarted()

    async def _wait_until_idle(self, seconds: float) -> None:
        idle = asyncio.create_task(self._idle())
        grace_ended = asyncio.create_task(self._grace_ended.wait())
        try:
            await asyncio.wait(
                {idle, grace_ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            idle.cancel()
            grace_ended.cancel()

    async def _idle(self) -> None:
        await self._executor.empty.wait()
        if self._deliverer is not None:
            await self._deliverer.idle.wait()

    async def _write_remaining(self) -> None:
        """Writes what the stopped recorders had not written: one in back-off was stopped while it
        waited, and the store may be available again."""
        recorder = self._executor.recorder
        if recorder.logs.unfinished:
            try:
                await recorder.logs.run_once()
            except Exception as error:
                # Completions matter more than the last log lines.
                self._events.emit(DutyFailed(duty=recorder.logs.name, error=error, first=True))
        while recorder.queued:
            await self._write_once(recorder)
        while self._deliverer is not None and self._deliverer.recorder.queued:
            await self._write_once(self._deliverer.recorder)

    async def _write_once(self, recorder: Duty) -> None:
        try:
            await recorder.run_once()
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


class NodeStats:
    """Figures that the heartbeat publishes. `report` runs in the heartbeat's thread, so it reads
    only single numbers of other objects."""

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

    def report(self) -> NodeReport:
        return NodeReport(
            running=self._executor.count,
            sending=self._sending(),
            claims_per_minute=self._claims_per_minute(),
            memory=self._memory(),
            queues=self._queues,
            draining=self._membership.draining,
        )

    def _claims_per_minute(self) -> float:
        now, accepted = self._clock.monotonic(), self._executor.accepted_total
        (then, before), self._last = self._last, (now, accepted)
        return round((accepted - before) * 60 / (now - then), 2) if now > then else 0.0

    def _memory(self) -> int | None:
        """None where there is no /proc."""
        for family in self._process.collect():
            if family.name == "process_resident_memory_bytes":
                return int(family.samples[0].value)
        return None
