"""Writes completions and log lines of attempts to the store, in small batches.

While one batch is written the next one collects: a single completion is written immediately, and
under load a batch is as large as the store is slow. A completion is kept until the store has
answered, also through outages: the fence makes a late one harmless and a repeated one is
recognised, whereas dropping it would repeat an effect for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice

import msgspec

from chimes.clock import Clock
from chimes.config import Settings
from chimes.engine.in_flight import AttemptLog, Claim, InFlightRun
from chimes.engine.poller import NextPoll, PollAfter, PollNow, PollOnEvent
from chimes.errors import StoreUnavailable, message_of
from chimes.failpoints import hit
from chimes.i18n import _, freeze
from chimes.model import replace
from chimes.model.access import Owner, OwnerType
from chimes.model.ids import RunId
from chimes.model.run import AttemptEnd, Completion, LogEntry, Run, RunStatus
from chimes.services.access import ByteBudget
from chimes.store.port import Store

#: Completions in one transaction.
BATCH = 500
#: After a write, others are awaited for so many seconds, so that a burst shares transactions; not
#: if so many completions wait already.
WRITE_SPACING = 0.005
WORTH_A_WRITE = 100

#: Called with the stored run, or None if the store refused the completion because of its fence.
OnRecorded = Callable[[Claim, Completion, Run | None], None]


# --- results ------------------------------------------------------------------------------------
#: Bytes of a result that is not counted: as much as the rest of a run.
FREE_RESULT = 4 * 1024
#: Characters that are left of each long text of a result beyond the limit.
_EXCERPT = 1024
#: Bytes of the results of an owner if the setting is not set.
DEFAULT_RESULT_LIMIT = 2**30
#: Returns the completion with what may be stored of its result, which has so many bytes.
LimitResult = Callable[[Completion, int], Awaitable[Completion]]
_log = logging.getLogger("chimes.engine")


async def unlimited_result(completion: Completion, size: int) -> Completion:
    return completion


def result_limit(settings: Settings, owner: Owner) -> int:
    """Bytes that the results of the owner may take; 0: any number. By default the runs of the
    system are not limited: they are those of the operator."""
    if settings.max_result_bytes_per_owner is not None:
        return settings.max_result_bytes_per_owner
    return 0 if owner.type is OwnerType.SYSTEM else DEFAULT_RESULT_LIMIT


class ResultLimit:
    """Limits the bytes of each owner's results, on all nodes together (ADR 48)."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._settings = settings
        most = settings.max_result_bytes_per_owner
        self._budget = ByteBudget(
            store,
            "results",
            limit=DEFAULT_RESULT_LIMIT if most is None else most,
            period=settings.retention,
        )

    async def __call__(self, completion: Completion, size: int) -> Completion:
        run = completion.run
        if run is None or not (limit := result_limit(self._settings, run.owner)):
            return completion
        try:
            if await self._budget.take(str(run.owner), size):
                return completion
        except StoreUnavailable:
            raise
        except Exception:
            # A result must be recorded, whatever happens to its limit.
            _log.exception("the result of a run could not be counted", extra={"run_id": run.id})
            return completion
        return _limited(completion, run.owner, size, limit)


def _limited(completion: Completion, owner: Owner, size: int, limit: int) -> Completion:
    """A return value is not shortened, because that would be another value: the run fails."""
    assert completion.result is not None
    note = _(
        "the result of {size} bytes was not stored: the results of {owner} take {limit} bytes, the "
        "maximum (max_result_bytes_per_owner); older ones are deleted after the retention",
        size=size,
        owner=owner,
        limit=limit,
    )
    if "value" in completion.result:
        return replace(
            completion,
            attempt=replace(completion.attempt, end=AttemptEnd.FAILED, error=freeze(note)),
            status=RunStatus.FAILED,
            result=None,
            error=freeze(note),
            reason="result_limit",
        )
    line = LogEntry(at=completion.attempt.finished_at, level="warning", message=str(note))
    return replace(
        completion,
        result={name: _excerpt(each) for name, each in completion.result.items()}
        | {"truncated": True},
        logs=(*completion.logs, line),
    )


def _excerpt(value: object) -> object:
    if isinstance(value, str):
        return value[:_EXCERPT]
    return value if _size(value) <= _EXCERPT else None


def _size_of(result: Mapping[str, object]) -> int:
    return sum(map(_size, result.values()))


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if value is None or isinstance(value, int | float):
        return 8
    try:
        return len(msgspec.json.encode(value))
    except (TypeError, ValueError):
        # Half a surrogate pair, or a number that JSON does not have.
        return len(repr(value))


class Recorder:
    """Writes completions; its `logs` write the log lines of running attempts."""

    name = "recorder"

    def __init__(
        self,
        store: Store,
        clock: Clock,
        on_recorded: OnRecorded,
        limit_result: LimitResult = unlimited_result,
    ) -> None:
        self._store = store
        self._on_recorded = on_recorded
        self._limit_result = limit_result
        self._pending: dict[Claim, Completion] = {}
        #: Pending completions whose result was counted: a repeated write must not count it again.
        self._counted: set[Claim] = set()
        #: Set while there are completions, or many of them.
        self._arrived = asyncio.Event()
        self._many = asyncio.Event()
        self.logs = LogWriter(store, clock, self._enqueue)

    def record(self, attempt: InFlightRun, completion: Completion) -> None:
        """Enqueues a completion. It waits while log lines of its attempt are in doubt, or are too
        many for one write."""
        if attempt.log is None or self.logs.close(attempt, completion):
            self._enqueue(attempt.claim, completion)

    @property
    def queued(self) -> int:
        """Completions that can be written now."""
        return len(self._pending)

    @property
    def unrecorded(self) -> int:
        """All completions that are not stored."""
        return len(self._pending) + self.logs.waiting

    async def run_once(self) -> NextPoll:
        if not self._pending:
            self._arrived.clear()
            return PollOnEvent(event=self._arrived)
        # The store answers by run id, so a batch has no two attempts of one run.
        pending = islice(self._pending.items(), BATCH)
        batch = {completion.run_id: (claim, completion) for claim, completion in pending}
        await self._count_results(batch)
        await self._write(list(batch.values()))
        if len(self._pending) >= WORTH_A_WRITE:
            return PollNow()
        self._many.clear()
        return PollOnEvent(event=self._many, seconds=WRITE_SPACING)

    def _enqueue(self, claim: Claim, completion: Completion) -> None:
        hit("run.before_record")
        self._pending[claim] = completion
        self._arrived.set()
        if len(self._pending) >= WORTH_A_WRITE:
            self._many.set()

    async def _count_results(self, batch: dict[RunId, tuple[Claim, Completion]]) -> None:
        """Replaces completions whose result must not be stored as it is."""
        for run_id, (claim, completion) in batch.items():
            # The result of an attempt that is retried is replaced by the next one.
            if completion.result and completion.retry_in is None and claim not in self._counted:
                size = _size_of(completion.result)
                if size > FREE_RESULT:
                    limited = await self._limit_result(completion, size)
                    self._pending[claim] = limited
                    batch[run_id] = claim, limited
                    self._counted.add(claim)

    async def _write(self, batch: Sequence[tuple[Claim, Completion]]) -> None:
        try:
            result = await self._store.finish([completion for _claim, completion in batch])
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(batch) > 1:
                await self._write_singly(batch)
            else:
                ((claim, completion),) = batch
                self._pending[claim] = _unstorable(completion, error)
                raise
        else:
            accepted = {run.id: run for run in result.accepted}
            for claim, completion in batch:
                del self._pending[claim]
                self._on_recorded(claim, completion, accepted.get(completion.run_id))
            if self._counted:
                self._counted.difference_update(claim for claim, _completion in batch)
            hit("run.after_record")

    async def _write_singly(self, batch: Sequence[tuple[Claim, Completion]]) -> None:
        """One completion that cannot be written must not delay the others."""
        failed: Exception | None = None
        for each in batch:
            try:
                await self._write((each,))
            except Exception as error:
                failed = error
        if failed is not None:
            raise failed


def _unstorable(completion: Completion, error: Exception) -> Completion:
    return replace(
        completion,
        status=RunStatus.FAILED,
        retry_in=None,
        result=None,
        logs=(),
        error=_(
            "the result could not be stored: {type}: {message}",
            type=type(error).__name__,
            message=message_of(error),
        ),
        reason="unstorable_result",
    )


#: Seconds between two passes, short enough that a line is readable within a second.
LOG_PERIOD = 0.3
#: Seconds that an attempt runs before its lines are worth a write of their own.
MIN_ATTEMPT_AGE = 0.3
#: Lines and characters of one attempt in one write.
LOG_BATCH_LINES = 1000
LOG_BATCH_CHARACTERS = 256 * 1024
MAX_CONCURRENT_WRITES = 16
_PAGE = 1000


class LogWriter:
    """Writes log lines while their attempts run, so that they can be followed live. The lines of
    a short attempt are written with its completion.

    No line is lost or stored twice: a completion waits for the answer to what was sent before it,
    and where an answer was lost the store is read to see which lines it has."""

    name = "logs"

    def __init__(
        self, store: Store, clock: Clock, enqueue: Callable[[Claim, Completion], None]
    ) -> None:
        """`enqueue` gets a completion as soon as its lines are settled."""
        self._store = store
        self._clock = clock
        self._enqueue = enqueue
        self._open: dict[Claim, InFlightRun] = {}
        #: Ended attempts whose lines are not settled; None: there is no completion.
        self._closing: dict[Claim, Completion | None] = {}
        self._changed = asyncio.Event()
        self._permits = asyncio.Semaphore(MAX_CONCURRENT_WRITES)

    @property
    def waiting(self) -> int:
        """Completions that wait for their lines."""
        if not self._closing:
            return 0
        return sum(completion is not None for completion in self._closing.values())

    @property
    def unfinished(self) -> bool:
        """Whether lines of ended attempts have yet to be written or confirmed."""
        return bool(self._closing)

    def watch(self, attempt: InFlightRun) -> None:
        """Called at the attempt's first line."""
        self._open[attempt.claim] = attempt
        self._changed.set()

    def close(self, attempt: InFlightRun, completion: Completion) -> bool:
        """True: the completion can be written with the remaining lines. False: it is enqueued
        later."""
        log = attempt.log
        assert log is not None
        if log.is_settled and (log.closed or not _exceeds_batch(log)):
            self._open.pop(attempt.claim, None)
            return True
        self._closing[attempt.claim] = completion
        self._changed.set()
        return False

    def abandon(self, attempt: InFlightRun) -> None:
        """No completion will carry the remaining lines: they are written here."""
        if attempt.log is None or (attempt.log.is_settled and not attempt.log.pending):
            self._open.pop(attempt.claim, None)
        else:
            self._closing[attempt.claim] = None
            self._changed.set()

    async def run_once(self) -> NextPoll:
        due = [attempt for attempt in self._open.values() if self._is_due(attempt)]
        for attempt in due:
            # Before the first await: an attempt that ends meanwhile waits for this write.
            assert attempt.log is not None
            attempt.log.sending = True
        failures = await asyncio.gather(*(self._flush(attempt) for attempt in due))
        failed = next((each for each in failures if each is not None), None)
        if failed is not None:
            raise failed
        if any(self._is_due(each) and _exceeds_batch(each.log) for each in self._open.values()):
            return PollNow()
        if self._open:
            return PollAfter(LOG_PERIOD)
        self._changed.clear()
        return PollOnEvent(event=self._changed)

    def _is_due(self, attempt: InFlightRun) -> bool:
        if attempt.claim in self._closing:
            return True
        log = attempt.log
        # A target that completes its run itself writes its lines too.
        if log is None or log.closed or not log.pending or attempt.self_completing:
            return False
        return self._clock.monotonic() - attempt.started_monotonic >= MIN_ATTEMPT_AGE

    async def _flush(self, attempt: InFlightRun) -> Exception | None:
        """Writes the lines of one attempt; an error is returned, so that the others go on."""
        log = attempt.log
        assert log is not None
        try:
            async with self._permits:
                if log.unconfirmed:
                    await self._resolve(attempt, log)
                # The last lines of an attempt go with its completion, if there is one.
                while not log.closed:
                    if self._closing.get(attempt.claim) is not None and not _exceeds_batch(log):
                        break
                    await self._send(attempt, log)
                    if attempt.claim not in self._closing or not log.pending:
                        break
        except StoreUnavailable as error:
            return error
        except Exception as error:
            # The lines themselves are the problem; writing the completion handles that.
            log.discard_sent()
            log.closed = True
            return error
        finally:
            log.sending = False
            self._settle(attempt, log)
        return None

    async def _resolve(self, attempt: InFlightRun, log: AttemptLog) -> None:
        """Only this attempt appends to the log while it owns the run, so its lines come next or
        not at all. They are compared by time: a store may have sanitized a text."""
        wanted = [entry.at for entry in log.pending[: log.unconfirmed]]
        after = (log.lines_before or 0) + log.written
        found = await self._store.read_logs(attempt.run.id, after=after, limit=len(wanted))
        if [entry.at for entry in found] == wanted:
            log.confirm()
        else:
            log.discard_sent()

    async def _send(self, attempt: InFlightRun, log: AttemptLog) -> None:
        batch = _log_batch(log.pending)
        if not batch:
            return
        if log.lines_before is None:
            log.lines_before = await self._count_earlier_lines(attempt)
        log.mark_sent(batch)
        if await self._store.append_logs(attempt.run.id, attempt.run.fence, batch):
            log.confirm()
        else:
            log.discard_sent()
            log.closed = True

    async def _count_earlier_lines(self, attempt: InFlightRun) -> int:
        last = 0
        # With the first fence there was no earlier attempt.
        while attempt.run.fence > 1:
            page = await self._store.read_logs(attempt.run.id, after=last, limit=_PAGE)
            if not page:
                break
            last = page[-1].number
        return last

    def _settle(self, attempt: InFlightRun, log: AttemptLog) -> None:
        claim = attempt.claim
        if claim not in self._closing or (log.unconfirmed and self._closing[claim] is not None):
            return
        completion = self._closing.pop(claim)
        del self._open[claim]
        if completion is not None:
            self._enqueue(claim, replace(completion, logs=tuple(log.pending)))


def _log_batch(pending: Sequence[LogEntry]) -> list[LogEntry]:
    batch: list[LogEntry] = []
    characters = 0
    for entry in pending[:LOG_BATCH_LINES]:
        characters += len(entry.message)
        if batch and characters > LOG_BATCH_CHARACTERS:
            break
        batch.append(entry)
    return batch


def _exceeds_batch(log: AttemptLog | None) -> bool:
    return log is not None and len(_log_batch(log.pending)) < len(log.pending)
