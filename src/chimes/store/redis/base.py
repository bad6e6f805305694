"""What all verbs share: calling the scripts, the store's time, loading records."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Generic, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from chimes.clock import Clock, SystemClock
from chimes.errors import StoreBusy, StoreLost
from chimes.i18n import _
from chimes.model.audit import AuditEntry, chain_entry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.store.codec.records import audit_to_plain
from chimes.store.redis.connection import Connections
from chimes.store.redis.rows import Revision, RunRows, ScheduleRows
from chimes.store.redis.scripts import READING, URGENT, WRITING
from chimes.store.redis.wire import (
    Wire,
    encoded,
    items,
    micros,
    moment,
    packed,
    rows,
    text,
    unpacked,
)
from chimes.store.wakeup import Wakeup

# @@ Calls that come while another of their kind is under way go together in the next one.
#
# A trip to the server costs the same for one as for many. Nobody waits for company: the first
# goes at once, and those who come meanwhile would have waited for the server anyway.

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Together(Generic[Asked, Answer]):
    """`call` answers many at once, in their order."""

    def __init__(
        self, call: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer]]], *, most: int
    ) -> None:
        self._call = call
        self._most = most
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line[Asked, Answer]]
        self._loops = WeakKeyDictionary()

    async def __call__(self, asked: Asked) -> Answer:
        loop = asyncio.get_running_loop()
        line = self._loops.setdefault(loop, _Line())
        if line.under_way:
            future: asyncio.Future[Answer] = loop.create_future()
            line.waiting.append((asked, future))
            return await future
        line.under_way = True
        try:
            (answer,) = await self._call([asked])
        finally:
            if line.waiting:
                # In a task of its own: whoever asked first may go, or be canceled.
                line.task = loop.create_task(self._go_on(line), name="chimes redis batch")
            else:
                line.under_way = False
        return answer

    async def _go_on(self, line: _Line[Asked, Answer]) -> None:
        while line.waiting:
            together = [
                line.waiting.popleft() for _unused in range(min(self._most, len(line.waiting)))
            ]
            wanted = [(asked, future) for asked, future in together if not future.done()]
            if not wanted:
                continue
            try:
                answers = await self._call([asked for asked, _unused in wanted])
            except asyncio.CancelledError:
                for _unused, future in [*wanted, *line.waiting]:
                    future.cancel()
                line.waiting.clear()
                line.under_way = False
                raise
            except Exception as error:
                for _unused, future in wanted:
                    if not future.done():
                        future.set_exception(error)
            else:
                for (_unused, future), answer in zip(wanted, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        line.under_way = False


class _Line(Generic[Asked, Answer]):
    """Those of one event loop."""

    def __init__(self) -> None:
        self.under_way = False
        self.waiting: deque[tuple[Asked, asyncio.Future[Answer]]] = deque()
        self.task: asyncio.Task[None] | None = None


T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Somebody else was faster this often or this long: then the caller is told.
CONFLICT_TRIES = 200
CONFLICT_SECONDS = 8.0
#: Runs that go into the queue in one step.
ADDED_TOGETHER = 200


class Conflicted(Exception):
    """What was read has changed meanwhile: read again."""


class Trail:
    """Audit entries, chained to the end of the trail."""

    def __init__(self, head: tuple[int, str], audit: Sequence[AuditEntry]) -> None:
        self.before = head
        self.head = head
        self.entries: tuple[AuditEntry, ...] = ()
        for each in audit:
            number, digest = self.head
            entry = chain_entry(each, number=number + 1, previous_hash=digest)
            self.head = entry.number, entry.hash
            self.entries = (*self.entries, entry)

    @property
    def expected(self) -> list[Wire]:
        number, digest = self.before
        return [["head", str(number), digest]] if self.entries else []

    @property
    def row(self) -> list[Wire]:
        """Of at most one entry, for a verb that appends it itself."""
        number, digest = self.before
        return [each for op in self.ops for each in (str(number), digest, *op[1:])]

    @property
    def ops(self) -> list[Wire]:
        return [
            ["audit", str(entry.number), entry.hash, encoded(audit_to_plain(entry))]
            for entry in self.entries
        ]


class RedisBase:
    def __init__(self, connections: Connections, clock: Clock | None = None) -> None:
        """Without a clock the server's own decides (C21); a clock is for tests."""
        self._connections = connections
        self._clock = clock
        self._elapsed = SystemClock()
        self._wakeup = Wakeup()
        self._store_id = ""
        #: The id of the store whose loss was told.
        self._lost_id: str | None = None
        self._runs = RunRows()
        self._schedules = ScheduleRows()
        self._asking_now = Together(self._ask_now, most=10_000)
        self._adding = Together(self._add_together, most=ADDED_TOGETHER)
        self._conflicts = 0
        #: Claimed by this process and not judged yet, with their revisions.
        self._in_hand: OrderedDict[RunId, tuple[Run, str]] = OrderedDict()
        #: The end of the audit's chain as this process knows it; each loop appends in turn.
        self._head: tuple[int, str] | None = None
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
        self._turns = WeakKeyDictionary()
        #: So that nobody wakes itself by its own notices.
        self._me = f"{os.getpid()}-{uuid4().hex[:12]}"

    def wake(self) -> None:
        self._wakeup.wake()

    # --- scripts ------------------------------------------------------------------------------
    async def _ask(self, verb: str, *args: Wire) -> tuple[datetime, list[Wire]]:
        """A question: the moment of the answer, and what it consists of."""
        try:
            return _dated(await self._connections.ask(READING, *self._call(verb, args)))
        except StoreLost as error:
            self._notice_loss(error)
            raise

    async def _tell(
        self, verb: str, *args: Wire, urgent: bool = False
    ) -> tuple[datetime, list[Wire]]:
        """A change. `urgent`: also while the server is short of memory."""
        script = URGENT[verb] if urgent else WRITING[verb]
        try:
            return _dated(await self._connections.tell(script, *self._call(verb, args)))
        except StoreLost as error:
            self._notice_loss(error)
            raise

    def _notice_loss(self, error: StoreLost) -> None:
        """Said once, and loudly: nothing can be done until somebody does something (F41)."""
        if self._lost_id != self._store_id:
            self._lost_id = self._store_id
            self._head = None
            self._in_hand.clear()
            _log.critical("%s", error, extra={"event": "store_lost"})

    def _call(self, verb: str, args: tuple[Wire, ...]) -> tuple[str | bytes, ...]:
        address = self._connections.address
        now = micros(self._clock.now()) if self._clock is not None else ""
        return (address.prefix, self._store_id, now, self._me, address.channel, verb, packed(args))

    async def _commit(
        self,
        expected: list[Wire],
        ops: list[Wire],
        audit: Sequence[AuditEntry] = (),
        *,
        wakes: bool = False,
        urgent: bool = False,
    ) -> datetime:
        """All of `ops`, if everything is as expected; raises Conflicted if not."""

        async def attempt(trail: Trail) -> datetime | None:
            unit: Wire = [[*expected, *trail.expected], [*ops, *trail.ops]]
            now, (answer,) = await self._commit_units([unit], wakes=wakes, urgent=urgent)
            if answer == "head":
                return None
            if answer != "done":
                raise Conflicted(answer)
            return now

        return (await self._appending(audit, attempt))[0]

    async def _appending(
        self, audit: Sequence[AuditEntry], attempt: Callable[[Trail], Awaitable[T | None]]
    ) -> tuple[T, tuple[AuditEntry, ...]]:
        """A change with its audit entries, in one's `_turn`. Which entry they follow is part of
        what they say, so `attempt` is repeated while it answers None: another came between."""
        if not audit:
            answer = await attempt(Trail((0, ""), ()))
            assert answer is not None
            return answer, ()
        for _unused in range(CONFLICT_TRIES):
            if self._head is None:
                _now, (number, digest) = await self._ask("head")
                self._head = int(text(number)), text(digest)
            trail = Trail(self._head, audit)
            # Whatever goes wrong now, the end of the chain has to be looked up again.
            self._head = None
            answer = await attempt(trail)
            if answer is not None:
                self._head = trail.head
                return answer, trail.entries
        raise StoreBusy(_("the audit trail is appended to all the time; try again"))

    async def _commit_units(
        self, units: list[Wire], *, wakes: bool = False, urgent: bool = False
    ) -> tuple[datetime, list[str]]:
        """Each unit for itself: `done`, or why not."""
        wake = "1" if wakes else ""
        now, (answers, woken) = await self._tell("commit", units, wake, urgent=urgent)
        if woken == "1":
            self.wake()
        return now, [text(answer) for answer in rows(answers)]

    @asynccontextmanager
    async def _turn(self, audit: object = True) -> AsyncIterator[None]:
        """Those of this loop who append to the audit go one after the other. From before they read
        what they change: whoever waited in between would find it changed by then."""
        if not audit:
            yield
            return
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            yield

    async def _until_agreed(
        self, attempt: Callable[[], Awaitable[T]], audit: AuditEntry | None = None
    ) -> T:
        """Read, compute and commit, again from the start whenever somebody else was faster."""
        async with self._turn(audit):
            return await self._repeated(attempt)

    async def _repeated(self, attempt: Callable[[], Awaitable[T]]) -> T:
        begun = self._elapsed.monotonic()
        for tries in range(CONFLICT_TRIES):
            try:
                return await attempt()
            except Conflicted:
                self._conflicts += 1
                if self._elapsed.monotonic() - begun > CONFLICT_SECONDS:
                    break
                await asyncio.sleep(random.uniform(0, 0.002) * min(tries, 5))  # noqa: S311
        raise StoreBusy(_("this is changed by others all the time; try again"))

    async def _ask_now(self, asked: Sequence[None]) -> list[datetime]:
        now, _unused = await self._ask("now")
        return [now] * len(asked)

    async def _add_together(self, rows_: Sequence[Wire]) -> list[tuple[datetime, Wire]]:
        """New runs of several callers, without an audit: each is for itself."""
        now, (answer,) = await self._tell("add", list(rows_), [])
        return [(now, each) for each in rows(answer)]

    # --- records ------------------------------------------------------------------------------
    async def _read_runs(self, ids: Collection[RunId]) -> dict[RunId, tuple[Run, str]]:
        """With their revisions; those that are not there are left out."""
        _now, found, _children = await self._read_family(ids, children=False)
        return found

    async def _read_family(
        self, ids: Collection[RunId], *, children: bool = True
    ) -> tuple[datetime, dict[RunId, tuple[Run, str]], dict[RunId, list[RunId]]]:
        """The runs, and of each flow among them the children that have not ended."""
        now, (answer,) = await self._ask("runs", list(ids), "1" if children else "")
        found: dict[RunId, tuple[Run, str]] = {}
        of: dict[RunId, list[RunId]] = {}
        for each in rows(answer):
            record, born = items(each)
            run, rev = self._runs.run(record)
            found[run.id] = run, rev
            for child_record in rows(born):
                child, child_rev = self._runs.run(child_record)
                found.setdefault(child.id, (child, child_rev))
                of.setdefault(run.id, []).append(child.id)
        return now, found, of

    async def _read_schedule(
        self, schedule_id: ScheduleId
    ) -> tuple[datetime, tuple[Schedule, Revision] | None]:
        now, (answer,) = await self._ask("schedules", [schedule_id], "")
        found = rows(answer)
        return now, self._schedules.schedule(found[0][0]) if found else None


def _dated(answer: bytes) -> tuple[datetime, list[Wire]]:
    now, *rest = unpacked(answer)
    return moment(text(now)), rest
