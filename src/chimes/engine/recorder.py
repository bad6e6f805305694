"""Verdicts on their way into the store, in micro-batches.

While one batch is being written the next one gathers: a single verdict goes at once, and under
load a batch is as large as the store is slow. A verdict leaves only when the store has answered:
it is kept through outages, because the fence makes a late one harmless and a repeated one is
recognised (F23); dropping it would repeat an effect for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from chimes.clock import Clock
from chimes.engine.in_flight import AttemptLog, InFlightRun
from chimes.engine.poller import PollAfter, PollNow, NextPoll, PollOnEvent
from chimes.errors import StoreUnavailable, message_of
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.model.ids import RunId
from chimes.model.run import Completion, LogEntry, Run, RunStatus
from chimes.store.port import Store

BATCH = 500

#: Called with the run as it is now, or None if the verdict was refused.
Settled = Callable[[Completion, Run | None], None]


class Recorder:
    name = "recorder"

    def __init__(self, store: Store, settled: Settled) -> None:
        self._store = store
        self._settled = settled
        self._pending: dict[tuple[RunId, int], Completion] = {}
        self._arrived = asyncio.Event()

    def put(self, verdict: Completion) -> None:
        hit("run.before_record")
        self._pending[_key(verdict)] = verdict
        self._arrived.set()

    @property
    def waiting(self) -> int:
        return len(self._pending)

    async def once(self) -> NextPoll:
        # The store answers by run id, so a batch holds no two attempts of one run.
        batch = {v.run_id: v for v in islice(self._pending.values(), BATCH)}
        if batch:
            await self._write(tuple(batch.values()))
        if self._pending:
            return PollNow()
        self._arrived.clear()
        return PollOnEvent(event=self._arrived)

    async def _write(self, batch: Sequence[Completion]) -> None:
        try:
            finished = await self._store.finish(batch)
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(batch) > 1:
                await self._write_singly(batch)
            else:
                self._pending[_key(batch[0])] = _unstorable(batch[0], error)
                raise
        else:
            accepted = {run.id: run for run in finished.accepted}
            for verdict in batch:
                del self._pending[_key(verdict)]
                self._settled(verdict, accepted.get(verdict.run_id))
            hit("run.after_record")

    async def _write_singly(self, batch: Sequence[Completion]) -> None:
        """One verdict that cannot be written must not hold up the others."""
        failed: Exception | None = None
        for verdict in batch:
            try:
                await self._write((verdict,))
            except Exception as error:
                failed = error
        if failed is not None:
            raise failed


def _key(verdict: Completion) -> tuple[RunId, int]:
    return verdict.run_id, verdict.fence


def _unstorable(verdict: Completion, error: Exception) -> Completion:
    return replace(
        verdict,
        status=RunStatus.FAILED,
        retry_in=None,
        result=None,
        logs=(),
        error=str(
            _(
                "the result could not be stored: {type}: {message}",
                type=type(error).__name__,
                message=message_of(error),
            )
        ),
        reason="unstorable_result",
    )


# @@ Log lines on their way into the store while their attempts go on, so that they can be read
# before the end (R4.9). Attempts that end soon are left alone: their lines go with the verdict.
#
# No line is lost and none stands there twice: a verdict waits for the answer to what was sent
# before it, and where an answer was lost the store is asked which lines it has.

#: Seconds between two passes: together with the write a line is readable within one (R4.9).
PERIOD = 0.3
#: Seconds that an attempt goes on before its lines are worth a write of their own.
YOUNG = 0.3
#: Of one attempt in one write.
BATCH_LIVE_LOGS = 1000
BATCH_CHARACTERS = 256 * 1024
#: Writes at the same time.
AT_ONCE = 16
_PAGE = 1000
Key = tuple[RunId, int]


class LogWriter:
    name = "logs"

    def __init__(self, store: Store, clock: Clock, put: Callable[[Completion], None]) -> None:
        """`put` takes a verdict whose lines are settled."""
        self._store = store
        self._clock = clock
        self._put = put
        self._watched: dict[Key, InFlightRun] = {}
        #: Attempts that are over and wait for the answer about their lines; None: let go without
        #: a verdict.
        self._over: dict[Key, Completion | None] = {}
        self._stirred = asyncio.Event()
        self._places = asyncio.Semaphore(AT_ONCE)

    @property
    def waiting(self) -> int:
        """Verdicts that wait here."""
        return sum(verdict is not None for verdict in self._over.values()) if self._over else 0

    @property
    def unfinished(self) -> bool:
        """Whether lines of attempts that are over are still to be sent or asked for."""
        return bool(self._over)

    def watch(self, hold: InFlightRun) -> None:
        """From its first line on."""
        self._watched[_key_live_logs(hold)] = hold
        self._stirred.set()

    def ended(self, hold: InFlightRun, verdict: Completion) -> None:
        """The verdict goes on its way, at once unless there is a doubt about its lines, or more of
        them than belong into one write."""
        log = hold.log
        if log is None:
            self._put(verdict)
        elif log.settled and (log.closed or not _crowded(log)):
            self._watched.pop(_key_live_logs(hold), None)
            self._put(verdict)
        else:
            self._over[_key_live_logs(hold)] = verdict
            self._stirred.set()

    def let_go(self, hold: InFlightRun) -> None:
        """There is no verdict that could carry its last lines: they are sent once more."""
        if hold.log is None or (hold.log.settled and not hold.log.pending):
            self._watched.pop(_key_live_logs(hold), None)
        else:
            self._over[_key_live_logs(hold)] = None
            self._stirred.set()

    async def once(self) -> NextPoll:
        due = [hold for hold in self._watched.values() if self._due(hold)]
        for hold in due:
            # Before anything else runs: whoever ends meanwhile waits for what is sent now.
            assert hold.log is not None
            hold.log.sending = True
        failures = await asyncio.gather(*(self._bring(hold) for hold in due))
        failed = next((each for each in failures if each is not None), None)
        if failed is not None:
            raise failed
        if any(self._due(hold) and _crowded(hold.log) for hold in self._watched.values()):
            return PollNow()
        if self._watched:
            return PollAfter(PERIOD)
        self._stirred.clear()
        return PollOnEvent(event=self._stirred)

    def _due(self, hold: InFlightRun) -> bool:
        if _key_live_logs(hold) in self._over:
            return True
        log = hold.log
        # One that ends its run itself takes its lines along.
        if log is None or log.closed or not log.pending or hold.completing:
            return False
        return self._clock.monotonic() - hold.began >= YOUNG

    async def _bring(self, hold: InFlightRun) -> Exception | None:
        """What there is of one attempt; what went wrong with it must not hold up the others."""
        log = hold.log
        assert log is not None
        try:
            async with self._places:
                if log.in_doubt:
                    await self._resolve(hold, log)
                # The last lines of one that has ended go with its verdict; of one that was let
                # go nothing else carries them.
                while not log.closed:
                    if self._over.get(_key_live_logs(hold)) is not None and not _crowded(log):
                        break
                    await self._send(hold, log)
                    if _key_live_logs(hold) not in self._over or not log.pending:
                        break
        except StoreUnavailable as error:
            return error
        except Exception as error:
            # Something about the lines themselves; who writes the verdict knows what to do.
            log.lost()
            log.closed = True
            return error
        finally:
            log.sending = False
            self._settle(hold, log)
        return None

    async def _resolve(self, hold: InFlightRun, log: AttemptLog) -> None:
        """Only this attempt adds to the log while it owns the run, so they come next or not at
        all. They are known by their times: a store may have mended a text."""
        wanted = [entry.at for entry in log.pending[: log.in_doubt]]
        after = (log.base or 0) + log.written
        found = await self._store.read_logs(hold.run.id, after=after, limit=len(wanted))
        if [entry.at for entry in found] == wanted:
            log.arrived()
        else:
            log.lost()

    async def _send(self, hold: InFlightRun, log: AttemptLog) -> None:
        batch = _batch(log.pending)
        if not batch:
            return
        if log.base is None:
            log.base = await self._lines_before(hold)
        log.sent(batch)
        if await self._store.append_logs(hold.run.id, hold.run.fence, batch):
            log.arrived()
        else:
            log.lost()
            log.closed = True

    async def _lines_before(self, hold: InFlightRun) -> int:
        last = 0
        # Nobody had it before the first fence, so nobody can have said anything.
        while hold.run.fence > 1:
            page = await self._store.read_logs(hold.run.id, after=last, limit=_PAGE)
            if not page:
                break
            last = page[-1].number
        return last

    def _settle(self, hold: InFlightRun, log: AttemptLog) -> None:
        key = _key_live_logs(hold)
        if key not in self._over or (log.in_doubt and self._over[key] is not None):
            return
        verdict = self._over.pop(key)
        del self._watched[key]
        if verdict is not None:
            self._put(replace(verdict, logs=tuple(log.pending)))


def _batch(pending: Sequence[LogEntry]) -> list[LogEntry]:
    taken: list[LogEntry] = []
    characters = 0
    for entry in pending[:BATCH_LIVE_LOGS]:
        characters += len(entry.message)
        if taken and characters > BATCH_CHARACTERS:
            break
        taken.append(entry)
    return taken


def _crowded(log: AttemptLog | None) -> bool:
    return log is not None and len(_batch(log.pending)) < len(log.pending)


def _key_live_logs(hold: InFlightRun) -> Key:
    return hold.run.id, hold.run.fence
