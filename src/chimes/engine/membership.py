"""Membership of the node: its id, its lease and heartbeat, the store's clock, fail-over detection.

Trust in the lease is counted on the monotonic clock from before the request that renewed it was
sent, less a margin; so it ends before the lease does, also when the store cannot be reached. Lost
trust stays lost: the node joins again under a new id, because other nodes may have claimed its
runs in the meantime.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType

from chimes.clock import Clock
from chimes.engine.events import (
    DutyFailed,
    DutyRecovered,
    Events,
    NodeHeartbeat,
    NodeJoined,
    NodeLost,
    StoreRegressed,
)
from chimes.engine.poller import NextPoll, PollAfter, PollOnEvent
from chimes.errors import StaleVersion
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import version_of
from chimes.model.ids import NodeId
from chimes.model.node import Node, NodeReport
from chimes.model.policy import RunDefaults
from chimes.store.epoch import Epoch, EpochStore, describe_rollback
from chimes.store.port import Store

#: Seconds by which store clock and monotonic clock may diverge before it counts as a jump.
MAX_DRIFT = 5.0
#: Seconds for which an answer is accurate enough to sleep by.
RECENT = 5.0
#: Seconds by which the estimate may be wrong without an earlier, quicker answer being preferred.
ACCEPTED_DOUBT = 0.5
#: Seconds per second by which two clocks run apart at most.
DRIFT_RATE = 0.0005
#: The share of an interval by which a tick may come early without another one following it.
EARLY_SHARE = 0.05


class StoreClock:
    """Estimates the store's time: its last answer plus the time that has passed since.

    Only for values that need not be exact (outgoing timestamps, log lines, sleeping times); the
    store itself decides what is due or expired. A jump of the store's clock against the monotonic
    clock means that it was set, or that this machine was suspended."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        #: The store's answer, when that was here, and by how many seconds that may be wrong.
        self._anchor = (clock.now(), clock.monotonic(), 0.0)
        #: The answer with the best lower bound of the store's time, and when it had arrived.
        self._lower_bound = (clock.now(), clock.monotonic())
        self._seen = False
        self._began = clock.monotonic()
        self._jumps: list[float] = []

    async def fetch_now(self) -> datetime:
        """Reads the clock of the store."""
        before = self._clock.monotonic()
        now = await self._store.now()
        self.observe(now, before)
        return now

    async def recent(self) -> datetime:
        """For sleeping times: reads the clock of the store only if the last answer is old."""
        age = self._clock.monotonic() - self._anchor[1]
        return self.now() if self._seen and age < RECENT else await self.fetch_now()

    def observe(self, now: datetime, before: float) -> None:
        """The store answered `now` to a request sent at `before`. The heartbeat thread calls this
        too, so each assignment is atomic."""
        after = self._clock.monotonic()
        at, monotonic, doubt = self._anchor
        middle, doubt_now = (before + after) / 2, (after - before) / 2
        jump = (now - at).total_seconds() - (middle - monotonic)
        if self._seen and abs(jump) > MAX_DRIFT + doubt + doubt_now:
            self._jumps.append(jump)
        # A slow answer says little: an earlier one that agrees with it is kept while it is better.
        doubt += DRIFT_RATE * (middle - monotonic)
        agrees = self._seen and abs(jump) <= doubt + doubt_now
        if not agrees or doubt_now <= max(doubt, ACCEPTED_DOUBT):
            self._anchor = (now, middle, doubt_now)
        if self._is_better_bound(now, before, after):
            self._lower_bound = (now, after)
        self._seen = True

    def _is_better_bound(self, now: datetime, before: float, after: float) -> bool:
        """A slow answer is a weak bound: an earlier one is kept for a while, unless this one shows
        that the clock was set back."""
        bound, at = self._lower_bound
        gained = (now - bound).total_seconds()
        return not self._seen or after - at > RECENT or gained >= after - at or gained < before - at

    def seconds_until(self, moment: datetime) -> float:
        """Until the store's clock has certainly reached `moment`, whatever the latency was: a
        sleep of this length never ends early."""
        bound, at = self._lower_bound
        return (moment - bound).total_seconds() - (self._clock.monotonic() - at)

    def take_jumps(self) -> list[float]:
        """Seconds by which the store's clock jumped since the last call; negative: back."""
        jumps, self._jumps = self._jumps, []
        return jumps

    def now(self) -> datetime:
        return self.at(self._clock.monotonic())

    def seconds_to_tick(self, every: timedelta) -> float:
        """Seconds until the next shared poll tick: all duties of the node poll at the same moment,
        because waking the process costs more than a poll."""
        period = every.total_seconds()
        seconds = period - (self._clock.monotonic() - self._began) % period
        return seconds if seconds > period * EARLY_SHARE else seconds + period

    def at(self, moment: float) -> datetime:
        """The store's time at a moment of the monotonic clock."""
        at, monotonic, _doubt = self._anchor
        return at + timedelta(0, moment - monotonic)


def new_node_id() -> NodeId:
    """Never used twice, also not by a machine that restarts with the same pid."""
    return NodeId(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")


class Membership:
    """The registration of this node in the store, and whether it may trust its lease."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        time: StoreClock,
        events: Events,
        lease: timedelta,
        version: str,
        roles: tuple[str, ...],
        capacity: int,
        capabilities: Callable[[], frozenset[str]] = frozenset,
        defaults: Mapping[str, RunDefaults] = MappingProxyType({}),
        node_id: NodeId | None = None,
        node_ids: Callable[[], NodeId] = new_node_id,
    ) -> None:
        self._store = store
        self._clock = clock
        self._time = time
        self._events = events
        self._version = version
        self._roles = roles
        self._capacity = capacity
        self._capabilities = capabilities
        self._defaults = defaults
        self._node_ids = node_ids
        self._loop: asyncio.AbstractEventLoop | None = None
        self._joined = False
        self._trusted_until = 0.0
        self.lease = lease
        self.margin = lease / 6
        self.node_id = node_id or node_ids()
        #: Set from the loss of trust until the node has joined again.
        self.lost = asyncio.Event()
        #: Set unless an operator drains this node.
        self.accepting = asyncio.Event()
        self.accepting.set()

    async def join(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self.lost.is_set():
            self.node_id = self._node_ids()
        before = await self._register()
        self.lost.clear()
        self._trust_from(before)
        self._joined = True
        self._events.emit(NodeJoined(node_id=self.node_id))

    async def announce(self) -> None:
        """Publishes the current capabilities. A node that has lost its lease does so when it joins
        again."""
        if self.trusted:
            await self._register()

    async def _register(self) -> float:
        """Writes the node into the store. Returns when the request was sent, on the monotonic
        clock."""
        before = self._clock.monotonic()
        now = await self._time.fetch_now()
        capabilities = self._capabilities()
        await self._store.join(
            Node(
                id=self.node_id,
                version=self._version,
                roles=self._roles,
                capacity=self._capacity,
                capabilities=tuple(sorted(capabilities)),
                defaults={
                    name: self._defaults[name]
                    for name in self._defaults
                    # `source#collection`: each collection of a source has its own defaults.
                    if name.partition("#")[0] in capabilities
                },
                started_at=now,
                heartbeat_at=now,
                lease_until=now + self.lease,
                # A drain request for the lost id applies to the new one, too.
                drain=self.draining,
            ),
            self.lease,
        )
        return before

    async def leave(self) -> None:
        self._joined = False
        await self._store.leave(self.node_id)

    @property
    def draining(self) -> bool:
        """Whether an operator drains this node."""
        return not self.accepting.is_set()

    @property
    def joined(self) -> bool:
        """Whether there is a lease to renew."""
        return self._joined

    @property
    def trusted(self) -> bool:
        """Whether the lease is certainly valid. Noticing its end counts as losing it (`lose`)."""
        return self.is_trusted_at(self._clock.monotonic())

    def is_trusted_at(self, moment: float) -> bool:
        """`trusted`, at a moment that was just read from the monotonic clock."""
        if self._joined and moment >= self._trusted_until:
            self.lose("no heartbeat was answered in time")
        return self._joined

    @property
    def trusted_seconds(self) -> float:
        return self._trusted_until - self._clock.monotonic()

    def renew(self, node_id: NodeId, before: float) -> None:
        """A heartbeat sent at `before` was accepted."""
        if self._joined and node_id == self.node_id:
            self._trust_from(before)

    def lose(self, why: str) -> None:
        """May be called from any thread."""
        if not self._joined or self._loop is None:
            return
        self._joined = False
        self._loop.call_soon_threadsafe(self._emit_lost, NodeLost(node_id=self.node_id, why=why))

    def _emit_lost(self, event: NodeLost) -> None:
        self.lost.set()
        self._events.emit(event)

    def _trust_from(self, before: float) -> None:
        self._trusted_until = before + (self.lease - self.margin).total_seconds()


HEARTBEAT = "heartbeat"


class Heartbeat:
    """Renews the lease in a thread with its own event loop, so that work which blocks the engine's
    loop does not cost the node its lease.

    By default it beats three times within the length of the lease, and sooner after a failure.
    Only an accepted heartbeat renews trust: an error, or no answer within the margin, does not."""

    def __init__(
        self,
        store: Store,
        membership: Membership,
        *,
        clock: Clock,
        time: StoreClock,
        events: Events,
        on_cancel: Callable[[], None],
        report: Callable[[], NodeReport] = NodeReport,
        on_drain: Callable[[bool], None] = lambda drain: None,
        period: timedelta | None = None,
        thread: bool = True,
    ) -> None:
        """`report` is called in the thread; `on_cancel`, and `on_drain` with whether the node is
        to drain, are called in the engine's loop. Without `thread` it beats in that loop, too."""
        self._report = report
        self._on_drain = on_drain
        #: A drain request that the node has not reported yet.
        self._drain_unreported = False
        self._period = period or membership.lease / 3
        self._store = store
        self._membership = membership
        self._clock = clock
        self._time = time
        self._events = events
        self._on_cancel = on_cancel
        self._failing = False
        self._engine_loop: asyncio.AbstractEventLoop | None = None
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="chimes heartbeat", daemon=True)
        self._in_thread = thread
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._engine_loop = asyncio.get_running_loop()
        if self._in_thread:
            self._thread.start()
        else:
            self._task = asyncio.create_task(self._loop())

    async def stop(self) -> None:
        if self._task is not None:
            self._stopped.set()
            await self._task
        if not self._thread.is_alive():
            return
        own_loop = self._own_loop
        if own_loop is not None:
            with contextlib.suppress(RuntimeError):  # that loop is closed already
                own_loop.call_soon_threadsafe(self._stopped.set)
        timeout = self._membership.margin.total_seconds() + 1
        await asyncio.to_thread(self._thread.join, timeout)

    def _run(self) -> None:
        asyncio.run(self._loop())

    async def _loop(self) -> None:
        self._own_loop = asyncio.get_running_loop()
        period = self._period
        while not self._stopped.is_set():
            accepted = await self.run_once()
            # A drain request is confirmed soon.
            soon = not accepted or self._drain_unreported
            wait = (period / 10 if soon else period).total_seconds()
            if self._membership.joined:
                # Wakes in time to notice the end of trust.
                wait = min(wait, max(0.0, self._membership.trusted_seconds) + 0.001)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopped.wait()

    async def run_once(self) -> bool:
        """One heartbeat. False: it was not accepted, or there was no lease to renew."""
        member = self._membership
        if not member.trusted:
            return False
        node_id = member.node_id
        before = self._clock.monotonic()
        try:
            report = self._report()
            async with asyncio.timeout(member.margin.total_seconds()):
                result = await self._store.heartbeat(
                    node_id, member.lease, clock=self._clock.now(), report=report
                )
        except Exception as error:
            self._emit(DutyFailed(duty=HEARTBEAT, error=error, first=not self._failing))
            self._failing = True
            return False
        if self._failing:
            self._failing = False
            self._emit(DutyRecovered(duty=HEARTBEAT))
        self._time.observe(result.now, before)
        if not result.alive:
            member.lose("the lease had ended before the heartbeat arrived")
            return False
        member.renew(node_id, before)
        skew = (self._clock.now() - result.now).total_seconds()
        self._emit(NodeHeartbeat(node_id=node_id, clock_skew=skew))
        if result.cancel:
            self._call_in_engine(self._on_cancel)
        self._drain_unreported = result.drain != report.draining
        if self._drain_unreported:
            self._call_in_engine(partial(self._on_drain, result.drain))
        return True

    def _emit(self, event: DutyFailed | DutyRecovered | NodeHeartbeat) -> None:
        self._call_in_engine(lambda: self._events.emit(event))

    def _call_in_engine(self, call: Callable[[], None]) -> None:
        if self._engine_loop is not None:
            with contextlib.suppress(RuntimeError):  # the engine's loop is closed
                self._engine_loop.call_soon_threadsafe(call)


FAILOVER_CHECK_INTERVAL = timedelta(seconds=5)
#: Replaced by a node that finds that the store went back in time.
REGRESSION_CHECKPOINT = "store:regression"


class FailoverWatch:
    """Detects that the store went back in time: a fail-over that lost commits, a restored backup.

    The claims of this node may then exist only in its own memory: it gives up all runs and joins
    again. Slots that are unrun again in the store run again, under the same run ids.

    Every node raises the counter of the store. Where it went back by a few steps only, others may
    have raised it above the last value of this node again before this node looks. So the first node
    that sees a lower value reports it to the others."""

    name = "failover watch"

    def __init__(
        self,
        store: Store,
        epochs: EpochStore,
        membership: Membership,
        *,
        time: StoreClock,
        events: Events,
        interval: timedelta = FAILOVER_CHECK_INTERVAL,
    ) -> None:
        self._store = store
        self._epochs = epochs
        self._membership = membership
        self._time = time
        self._events = events
        self._interval = interval
        self._last: Epoch | None = None
        self._unaudited: list[str] = []
        #: The last report of any node; None: not read yet.
        self._report: str | None = None
        self._unreported = False

    async def run_once(self) -> NextPoll:
        before, self._last = self._last, await self._epochs.epoch()
        why = describe_rollback(before, self._last) if before is not None else ""
        if why:
            self._give_up(why)
            self._unreported = True
        if self._last.history:
            await self._compare_reports()
        while self._unaudited:
            await self._store.append_audit(
                AuditEntry(
                    at=self._time.now(),
                    actor="chimes",
                    interface="engine",
                    verb="regress",
                    object_kind="store",
                    object_id="store",
                    owner=str(SYSTEM_OWNER),
                    changes={},
                    reason=str(self._unaudited[0]),
                )
            )
            del self._unaudited[0]
        # A store without a history of its own cannot be replaced by an older copy unnoticed.
        if not self._last.history:
            return PollOnEvent(event=asyncio.Event())
        return PollAfter(self._time.seconds_to_tick(self._interval))

    def _give_up(self, why: str) -> None:
        self._events.emit(StoreRegressed(why=why))
        self._membership.lose(why)
        self._unaudited.append(why)

    async def _compare_reports(self) -> None:
        stored = await self._store.get_checkpoint(REGRESSION_CHECKPOINT)
        found = "" if stored is None else stored.value
        if self._unreported:
            if self._report in (None, found):
                found = json.dumps(secrets.token_hex(8))
                try:
                    await self._store.set_checkpoint(
                        REGRESSION_CHECKPOINT, found, expected=version_of(stored)
                    )
                except StaleVersion:
                    # Another node was faster; the next pass reads its report.
                    return
            self._unreported = False
        elif self._report not in (None, found):
            self._give_up(_("another node found that the store went back"))
        self._report = found
