"""The context of the store's functions: script calls, optimistic commits, batching, caches."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Generic, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from chimes.clock import Clock, SystemClock
from chimes.envelope import NO_KEYS, Keyring
from chimes.errors import StoreBusy, StoreLost
from chimes.i18n import _
from chimes.model.audit import AuditEntry, chain_entry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.routing import RoutingCache
from chimes.model.run import Run
from chimes.model.schedule import Schedule
from chimes.store.codec.records import audit_to_plain
from chimes.store.port import LastTurns, Wakeup
from chimes.store.redis.connection import Connections
from chimes.store.redis.rows import Revision, RunRows, ScheduleRows
from chimes.store.redis.scripts import READING, URGENT, WRITING
from chimes.store.redis.wire import (
    Wire,
    items,
    micros,
    moment,
    pack,
    rows,
    text,
    texts,
    to_json,
    unpack,
)

# Calls that arrive during a round trip share the next one: a round trip costs the same for one call
# as for many, and the first call is not delayed.

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Batcher(Generic[Asked, Answer]):
    """Batches concurrent calls; `call` returns the results of a batch in order."""

    def __init__(
        self, call: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer]]], *, most: int
    ) -> None:
        self._call = call
        self._most = most
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Batch[Asked, Answer]]
        self._loops = WeakKeyDictionary()

    async def __call__(self, asked: Asked) -> Answer:
        loop = asyncio.get_running_loop()
        line = self._loops.setdefault(loop, _Batch())
        if line.under_way:
            future: asyncio.Future[Answer] = loop.create_future()
            line.waiting.append((asked, future))
            return await future
        line.under_way = True
        try:
            (answer,) = await self._call([asked])
        finally:
            if line.waiting:
                # In its own task: the first caller may be canceled.
                line.task = loop.create_task(self._go_on(line), name="chimes redis batch")
            else:
                line.under_way = False
        return answer

    async def _go_on(self, line: _Batch[Asked, Answer]) -> None:
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


class _Batch(Generic[Asked, Answer]):
    """The pending calls of one event loop."""

    def __init__(self) -> None:
        self.under_way = False
        self.waiting: deque[tuple[Asked, asyncio.Future[Answer]]] = deque()
        self.task: asyncio.Task[None] | None = None


T = TypeVar("T")
#: Audit entries of a change: none, one or several.
Audit = AuditEntry | Sequence[AuditEntry] | None

_log = logging.getLogger(__name__)

#: Conflicts and seconds after which StoreBusy is raised.
CONFLICT_TRIES = 200
CONFLICT_SECONDS = 8.0
#: Runs enqueued per script call.
ADDED_TOGETHER = 200
#: Remembered keys of definitions; the script checks each of them.
MOST_STORED = 50_000


class WriteConflict(Exception):
    """A read record has changed meanwhile: read again."""


class AuditTrail:
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
        """At most one entry, for scripts that append it themselves."""
        number, digest = self.before
        return [each for op in self.ops for each in (str(number), digest, *op[1:])]

    @property
    def ops(self) -> list[Wire]:
        return [
            ["audit", str(entry.number), entry.hash, to_json(audit_to_plain(entry))]
            for entry in self.entries
        ]


class Context:
    """Passed to every function of the store."""

    def __init__(
        self, connections: Connections, clock: Clock | None = None, keyring: Keyring = NO_KEYS
    ) -> None:
        """Without a clock the server's clock is used; a clock is for tests."""
        self.keyring = keyring
        self.routing = RoutingCache()
        self.connections = connections
        self.clock = clock
        self.wakeup = Wakeup()
        #: Empty before the store is opened.
        self.store_id = ""
        #: Sender id, to ignore own wake-up messages.
        self.sender = f"{os.getpid()}-{uuid4().hex[:12]}"
        self.run_rows = RunRows(keyring)
        self.schedule_rows = ScheduleRows(keyring)
        self.turns = LastTurns()
        #: Keys of definitions that this process has seen in the store.
        self._stored: set[str] = set()
        #: Counter of conflicts that were resolved by reading again.
        self.conflicts = 0
        #: Cached end of the audit chain; each event loop appends in turn.
        self.audit_head: tuple[int, str] | None = None
        self._audit_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
        self._audit_locks = WeakKeyDictionary()
        self._elapsed = SystemClock()
        #: The id of the store whose loss was logged.
        self._lost_id: str | None = None
        self._now = Batcher(self._read_now, most=10_000)
        self._add = Batcher(self._add_runs, most=ADDED_TOGETHER)

    def wake(self) -> None:
        self.wakeup.wake()

    def drop_caches(self) -> None:
        """Forget what was read from a store that was lost or replaced."""
        self.audit_head = None
        self._stored.clear()

    # --- scripts ------------------------------------------------------------------------------
    async def read(self, verb: str, *args: Wire) -> tuple[datetime, list[Wire]]:
        """Run a read-only script; returns the server's time and the response."""
        try:
            return _dated(await self.connections.read(READING, *self._call(verb, args)))
        except StoreLost as error:
            self._notice_loss(error)
            raise

    async def write(
        self,
        verb: str,
        *args: Wire,
        definitions: Mapping[str, str] | None = None,
        urgent: bool = False,
    ) -> tuple[datetime, list[Wire]]:
        """Run a writing script. `definitions`: texts by key, of the runs that it inserts. `urgent`:
        also while the server is out of memory."""
        script = URGENT[verb] if urgent else WRITING[verb]
        call, wanted = self._call(verb, args), definitions or {}
        short: Wire = [[key, "" if key in self._stored else wanted[key]] for key in wanted]
        more = [pack(short)] if wanted else []
        try:
            now, answer = _dated(await self.connections.write(script, *call, *more))
            if answer == ["definitions"]:
                # The server has lost one, or retention has deleted it.
                whole: Wire = [list(each) for each in wanted.items()]
                now, answer = _dated(await self.connections.write(script, *call, pack(whole)))
        except StoreLost as error:
            self._notice_loss(error)
            raise
        if len(self._stored) > MOST_STORED:
            self._stored.clear()
        self._stored.update(wanted)
        return now, answer

    def _notice_loss(self, error: StoreLost) -> None:
        """Log the loss of the store once: it needs an operator."""
        if self._lost_id != self.store_id:
            self._lost_id = self.store_id
            self.drop_caches()
            _log.critical("%s", error, extra={"event": "store_lost"})

    def _call(self, verb: str, args: tuple[Wire, ...]) -> tuple[str | bytes, ...]:
        address = self.connections.address
        now = micros(self.clock.now()) if self.clock is not None else ""
        return (address.prefix, self.store_id, now, self.sender, address.channel, verb, pack(args))

    async def now(self) -> datetime:
        """The server's time; concurrent callers share a call."""
        return await self._now(None)

    async def _read_now(self, asked: Sequence[None]) -> list[datetime]:
        now, _unused = await self.read("now")
        return [now] * len(asked)

    async def add_run(self, row: Wire, definitions: dict[str, str]) -> tuple[datetime, Wire]:
        """Insert a run without an audit entry; concurrent callers share a call."""
        return await self._add((row, definitions))

    async def _add_runs(
        self, new: Sequence[tuple[Wire, dict[str, str]]]
    ) -> list[tuple[datetime, Wire]]:
        definitions = {key: each for _unused, texts_ in new for key, each in texts_.items()}
        now, (answer,) = await self.write(
            "add", [row for row, _unused in new], [], definitions=definitions
        )
        return [(now, each) for each in rows(answer)]

    # --- optimistic commits -------------------------------------------------------------------
    async def commit(
        self,
        expected: list[Wire],
        ops: list[Wire],
        audit: Audit = None,
        *,
        definitions: Mapping[str, str] | None = None,
        wakes: bool = False,
        urgent: bool = False,
    ) -> datetime:
        """Apply all `ops` if the expected revisions match; else raises WriteConflict."""

        async def attempt(trail: AuditTrail) -> datetime | None:
            unit: Wire = [[*expected, *trail.expected], [*ops, *trail.ops]]
            now, (answer,) = await self.commit_units(
                [unit], definitions=definitions, wakes=wakes, urgent=urgent
            )
            if answer == "head":
                return None
            if answer != "done":
                raise WriteConflict(answer)
            return now

        return (await self.append_audit(audit, attempt))[0]

    async def commit_units(
        self,
        units: list[Wire],
        *,
        definitions: Mapping[str, str] | None = None,
        wakes: bool = False,
        urgent: bool = False,
    ) -> tuple[datetime, list[str]]:
        """Commit each unit separately; returns `done` or the conflict."""
        now, (answers, woken) = await self.write(
            "commit", units, "1" if wakes else "", definitions=definitions, urgent=urgent
        )
        if woken == "1":
            self.wake()
        return now, [text(answer) for answer in rows(answers)]

    async def append_audit(
        self, audit: Audit, attempt: Callable[[AuditTrail], Awaitable[T | None]]
    ) -> tuple[T, tuple[AuditEntry, ...]]:
        """A change with audit entries, within `audit_turn`. An entry contains the hash of the
        previous one, so `attempt` is repeated while it returns None: another entry came between."""
        if not audit:
            answer = await attempt(AuditTrail((0, ""), ()))
            assert answer is not None
            return answer, ()
        entries = [audit] if isinstance(audit, AuditEntry) else audit
        for _unused in range(CONFLICT_TRIES):
            if self.audit_head is None:
                _now, (number, digest) = await self.read("head")
                self.audit_head = int(text(number)), text(digest)
            trail = AuditTrail(self.audit_head, entries)
            # After any error the end of the chain must be read again.
            self.audit_head = None
            answer = await attempt(trail)
            if answer is not None:
                self.audit_head = trail.head
                return answer, trail.entries
        raise StoreBusy(_("too many concurrent audit entries; try again"))

    @asynccontextmanager
    async def audit_turn(self, audit: object = True) -> AsyncIterator[None]:
        """Serialise appends to the audit trail within this event loop, including the preceding
        reads, which would be stale after waiting."""
        if not audit:
            yield
            return
        async with self._audit_locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            yield

    async def retry_conflicts(self, attempt: Callable[[], Awaitable[T]], audit: Audit = None) -> T:
        """Read, compute and commit; restart on every conflict."""
        async with self.audit_turn(audit):
            begun = self._elapsed.monotonic()
            for tries in range(CONFLICT_TRIES):
                try:
                    return await attempt()
                except WriteConflict:
                    self.conflicts += 1
                    if self._elapsed.monotonic() - begun > CONFLICT_SECONDS:
                        break
                    await asyncio.sleep(random.uniform(0, 0.002) * min(tries, 5))  # noqa: S311
        raise StoreBusy(_("too many concurrent changes; try again"))

    # --- records ------------------------------------------------------------------------------
    async def decode_with_revisions(self, records: Sequence[Wire]) -> list[tuple[Run, str]]:
        """Runs with their revisions; reads definitions that this process does not remember."""
        keys = {text(record[0]) for record in records}
        known = {key: self.run_rows.known_definition(key) for key in keys}
        definitions = {key: each for key, each in known.items() if each is not None}
        missing: list[Wire] = [key for key in keys if key not in definitions]
        if missing:
            _now, (answer,) = await self.read("definitions", missing)
            for key, definition in zip(texts(missing), texts(answer), strict=True):
                definitions[key] = self.run_rows.learn_definition(key, definition)
        return [self.run_rows.run(record, definitions) for record in records]

    async def decode_runs(self, records: Sequence[Wire]) -> list[Run]:
        return [run for run, _rev in await self.decode_with_revisions(records)]

    async def decode_schedules(self, records: Sequence[Wire]) -> list[Schedule]:
        return [self.schedule_rows.schedule(record)[0] for record in records]

    async def read_runs(self, ids: Collection[RunId]) -> dict[RunId, tuple[Run, str]]:
        """Runs with their revisions; missing ones are left out."""
        _now, runs, _steps = await self.read_runs_with_steps(ids, steps=False)
        return runs

    async def read_runs_with_steps(
        self, ids: Collection[RunId], *, steps: bool = True
    ) -> tuple[datetime, dict[RunId, tuple[Run, str]], dict[RunId, list[RunId]]]:
        """The runs, and the unfinished steps of flows among them."""
        now, (answer,) = await self.read("runs", list(ids), "1" if steps else "")
        records = [record for each in rows(answer) for record in (each[0], *rows(each[1]))]
        runs = {run.id: (run, rev) for run, rev in await self.decode_with_revisions(records)}
        steps_of: dict[RunId, list[RunId]] = {}
        for record, step_records in map(items, rows(answer)):
            ids_of_steps = [RunId(text(each[-1])) for each in rows(step_records)]
            if ids_of_steps:
                steps_of[RunId(text(record[-1]))] = ids_of_steps
        return now, runs, steps_of

    async def read_schedule(
        self, schedule_id: ScheduleId
    ) -> tuple[datetime, tuple[Schedule, Revision] | None]:
        now, (answer,) = await self.read("schedules", [schedule_id], "")
        records = rows(answer)
        return now, self.schedule_rows.schedule(records[0][0]) if records else None


def _dated(answer: bytes) -> tuple[datetime, list[Wire]]:
    now, *rest = unpack(answer)
    return moment(text(now)), rest
