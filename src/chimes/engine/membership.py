"""Whether this node may act on the runs it holds: its id, and until when it trusts its lease.

Trust is counted on the monotonic clock from before the request that renewed the lease was sent,
less a margin; so it ends before the lease does, also when the store cannot be reached
(RELIABILITY 0.5). Trust that is lost stays lost: the node joins again under a new id, because
somebody else may have taken its runs in the meantime (F16).
"""

from __future__ import annotations

import asyncio
import contextlib
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
    NodeBeat,
    NodeJoined,
    NodeLost,
    StoreRegressed,
)
from chimes.engine.poller import After, Duty, Rest, Told
from chimes.model.access import SYSTEM_OWNER
from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId
from chimes.model.node import HeartbeatResult, Node, NodeFacts
from chimes.model.policy import RunDefaults
from chimes.store.epoch import Epoch, WithEpoch, regress
from chimes.store.port import Store

# @@ The store's time between two looks at it: its last answer plus what has passed since.
#
# Only for values that need not be exact to the microsecond (outgoing timestamps, log lines, how
# long to sleep); what is due or expired is always decided by the store itself.
#
# Between two answers the store's clock must have gone on by what passed on the monotonic one
# here. If it has not, somebody turned it, or this machine stood still (F51, F52).

#: Seconds by which the two clocks may differ before that counts as a jump.
TOLERATED = 5.0
#: Seconds for which an answer is good enough to sleep by.
RECENT = 5.0
#: The part of an interval that a look may be early without being repeated at once.
EARLY = 0.05


class StoreClock:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        #: What the store said, when that was here, and by how much that may be wrong.
        self._anchor = (clock.now(), clock.monotonic(), 0.0)
        #: The answer that says most about how late it is there at least, and when it had come.
        self._least = (clock.now(), clock.monotonic())
        self._seen = False
        self._began = clock.monotonic()
        self._jumps: list[float] = []

    async def ask(self) -> datetime:
        before = self._clock.monotonic()
        now = await self._store.now()
        self.observed(now, before)
        return now

    async def recent(self) -> datetime:
        """For deciding how long to sleep: asks only if nobody has lately."""
        age = self._clock.monotonic() - self._anchor[1]
        return self.now() if self._seen and age < RECENT else await self.ask()

    def observed(self, now: datetime, before: float) -> None:
        """The store said `now` in an answer to a question asked at `before`. The heartbeat's
        thread calls it too, so each change is a single one."""
        after = self._clock.monotonic()
        at, monotonic, doubt = self._anchor
        middle, doubt_now = (before + after) / 2, (after - before) / 2
        jump = (now - at).total_seconds() - (middle - monotonic)
        if self._seen and abs(jump) > TOLERATED + doubt + doubt_now:
            self._jumps.append(jump)
        self._anchor = (now, middle, doubt_now)
        if self._says_more(now, before, after):
            self._least = (now, after)
        self._seen = True

    def _says_more(self, now: datetime, before: float, after: float) -> bool:
        """An answer that took long says little: an earlier one is kept for a while, unless this
        one shows that the clock was put back."""
        least, at = self._least
        gained = (now - least).total_seconds()
        return not self._seen or after - at > RECENT or gained >= after - at or gained < before - at

    def seconds_until(self, moment: datetime) -> float:
        """Until the store's clock has come to that moment, however long answers were on their
        way: what waits so long is not early."""
        least, at = self._least
        return (moment - least).total_seconds() - (self._clock.monotonic() - at)

    def take_jumps(self) -> list[float]:
        """Seconds by which the store's clock has jumped since the last call; back is negative."""
        jumps, self._jumps = self._jumps, []
        return jumps

    def now(self) -> datetime:
        return self.at(self._clock.monotonic())

    def rest_of(self, every: timedelta) -> float:
        """Seconds until those look again who look so often whatever happens: all of this node at
        the same moment, because waking up costs more than looking."""
        period = every.total_seconds()
        rest = period - (self._clock.monotonic() - self._began) % period
        return rest if rest > period * EARLY else rest + period

    def at(self, moment: float) -> datetime:
        """What time it was there, or will be, at a moment of the monotonic clock."""
        at, monotonic, _ = self._anchor
        return at + timedelta(0, 0, round((moment - monotonic) * 1_000_000))


def new_node_id() -> NodeId:
    """Never used twice, also not by a machine that starts again with the same pid."""
    return NodeId(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")


class Membership:
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
        offers: Callable[[], frozenset[str]] = frozenset,
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
        self._offers = offers
        self._defaults = defaults
        self._node_ids = node_ids
        self._loop: asyncio.AbstractEventLoop | None = None
        self._joined = False
        self._trusted_until = 0.0
        self.lease = lease
        self.margin = lease / 6
        self.node_id = node_id or node_ids()
        #: Set when trust was lost and not yet found again.
        self.lost = asyncio.Event()
        #: Set unless an operator asked this node to drain.
        self.at_work = asyncio.Event()
        self.at_work.set()

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
        """The others learn what this node offers now. One that has lost its lease says so when it
        joins again."""
        if self.trusted:
            await self._register()

    async def _register(self) -> float:
        """When it was sent, on the monotonic clock."""
        before = self._clock.monotonic()
        now = await self._time.ask()
        offers = self._offers()
        await self._store.join(
            Node(
                id=self.node_id,
                version=self._version,
                roles=self._roles,
                capacity=self._capacity,
                offers=tuple(sorted(offers)),
                defaults={
                    name: self._defaults[name]
                    for name in self._defaults
                    # Of a source each collection by itself.
                    if name.partition("#")[0] in offers
                },
                started_at=now,
                heartbeat_at=now,
                lease_until=now + self.lease,
                # What was asked of the id that is lost holds for the new one.
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
        """Whether it is to take nothing new until it is told to go on."""
        return not self.at_work.is_set()

    @property
    def joined(self) -> bool:
        """Whether there is a lease to renew."""
        return self._joined

    @property
    def trusted(self) -> bool:
        if self._joined and self._clock.monotonic() >= self._trusted_until:
            self.lose("no heartbeat was answered in time")
        return self._joined

    @property
    def trust_left(self) -> float:
        return self._trusted_until - self._clock.monotonic()

    def renewed(self, node_id: NodeId, before: float) -> None:
        """A heartbeat sent at `before` was accepted."""
        if self._joined and node_id == self.node_id:
            self._trust_from(before)

    def lose(self, why: str) -> None:
        """May be called from any thread."""
        if not self._joined or self._loop is None:
            return
        self._joined = False
        self._loop.call_soon_threadsafe(self._tell, NodeLost(node_id=self.node_id, why=why))

    def _tell(self, event: NodeLost) -> None:
        self.lost.set()
        self._events.emit(event)

    def _trust_from(self, before: float) -> None:
        self._trusted_until = before + (self.lease - self.margin).total_seconds()


# @@ The heartbeat: a thread with its own event loop, so that work which blocks the engine's loop
# does not cost the node its lease (RELIABILITY 0.11, F18).

NAME = "heartbeat"


class Heartbeat:
    """Renews the lease, by default three times within its length; after a failure it tries again
    sooner. A call that fails, or is not answered within the margin, counts like a refusal:
    nothing renews the trust but an accepted beat."""

    def __init__(
        self,
        store: Store,
        membership: Membership,
        *,
        clock: Clock,
        time: StoreClock,
        events: Events,
        canceling: Callable[[], None],
        facts: Callable[[], NodeFacts] = NodeFacts,
        hearing: Callable[[bool], None] = lambda drain: None,
        period: timedelta | None = None,
    ) -> None:
        """`facts` is asked in the thread; `canceling` and `hearing` (whether the node is to drain)
        are called in the engine's loop."""
        self._facts = facts
        self._hearing = hearing
        self._untold = False
        self._period = period or membership.lease / 3
        self._store = store
        self._membership = membership
        self._clock = clock
        self._time = time
        self._events = events
        self._canceling = canceling
        self._failing = False
        self._main: asyncio.AbstractEventLoop | None = None
        self._own: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="chimes heartbeat", daemon=True)

    def start(self) -> None:
        self._main = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        own = self._own
        if own is not None:
            with contextlib.suppress(RuntimeError):  # that loop has ended already
                own.call_soon_threadsafe(self._stopped.set)
        patience = self._membership.margin.total_seconds() + 1
        await asyncio.to_thread(self._thread.join, patience)

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._own = asyncio.get_running_loop()
        period = self._period
        while not self._stopped.is_set():
            ok = await self.once()
            # What was just heard is confirmed soon.
            wait = (period if ok and not self._untold else period / 10).total_seconds()
            if self._membership.joined:
                # Wakes in time to say that the trust is over.
                wait = min(wait, max(0.0, self._membership.trust_left) + 0.001)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), wait)

    async def once(self) -> bool:
        """One beat. False: it was not accepted, or there was no lease to renew."""
        member = self._membership
        if not member.trusted:
            return False
        node_id = member.node_id
        before = self._clock.monotonic()
        try:
            facts = self._facts()
            beat = await self._beat(member.margin, facts)
        except Exception as error:
            self._tell(DutyFailed(duty=NAME, error=error, first=not self._failing))
            self._failing = True
            return False
        if self._failing:
            self._failing = False
            self._tell(DutyRecovered(duty=NAME))
        self._time.observed(beat.now, before)
        if not beat.alive:
            member.lose("the lease had ended before the heartbeat came")
            return False
        member.renewed(node_id, before)
        skew = (self._clock.now() - beat.now).total_seconds()
        self._tell(NodeBeat(node_id=node_id, clock_skew=skew))
        if beat.cancel:
            self._on_main(self._canceling)
        self._untold = beat.drain != facts.draining
        if self._untold:
            self._on_main(partial(self._hearing, beat.drain))
        return True

    async def _beat(self, within: timedelta, facts: NodeFacts) -> HeartbeatResult:
        async with asyncio.timeout(within.total_seconds()):
            return await self._store.beat(
                self._membership.node_id,
                self._membership.lease,
                clock=self._clock.now(),
                facts=facts,
            )

    def _tell(self, event: DutyFailed | DutyRecovered | NodeBeat) -> None:
        self._on_main(lambda: self._events.emit(event))

    def _on_main(self, call: Callable[[], None]) -> None:
        if self._main is not None:
            with contextlib.suppress(RuntimeError):  # the engine's loop has been closed
                self._main.call_soon_threadsafe(call)


# @@ Notices that the store has gone back: a fail-over that lost commits, a restored backup (F28).
#
# What this node holds then, it may hold only in its own memory: it lets everything go and joins
# anew, so that each run is held by whom the store says, or by nobody. Slots that come back un-run
# are run again, under the same run ids.

#: Between two looks.
EVERY = timedelta(seconds=5)


class FailoverWatch:
    name = "epoch watch"

    def __init__(
        self,
        store: Store,
        epochs: WithEpoch,
        membership: Membership,
        *,
        time: StoreClock,
        events: Events,
        every: timedelta = EVERY,
    ) -> None:
        self._store = store
        self._epochs = epochs
        self._membership = membership
        self._time = time
        self._events = events
        self._every = every
        self._seen: Epoch | None = None
        self._unsaid: list[str] = []

    async def once(self) -> Rest:
        before, self._seen = self._seen, await self._epochs.epoch()
        why = regress(before, self._seen) if before is not None else ""
        if why:
            self._events.emit(StoreRegressed(why=why))
            self._membership.lose(why)
            self._unsaid.append(why)
        while self._unsaid:
            await self._store.append_audit(
                AuditEntry(
                    at=self._time.now(),
                    actor="chimes",
                    door="engine",
                    verb="regress",
                    object_kind="store",
                    object_id="store",
                    owner=str(SYSTEM_OWNER),
                    changes={},
                    reason=str(self._unsaid[0]),
                )
            )
            del self._unsaid[0]
        # A store without a history of its own cannot be exchanged for an older one unseen.
        if not self._seen.history:
            return Told(event=asyncio.Event())
        return After(self._time.rest_of(self._every))


# @@ Duties that bring in work rest while their node drains.


class AtWork:
    """A pass that is under way when the node hears of it may still bring something: the hands give
    that back (`Executor.take`)."""

    def __init__(self, duty: Duty, membership: Membership) -> None:
        self.name = duty.name
        self._duty = duty
        self._membership = membership

    async def once(self) -> Rest:
        if self._membership.draining:
            return Told(event=self._membership.at_work)
        return await self._duty.once()
