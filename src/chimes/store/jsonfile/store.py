"""The JSON file store: the memory store with a durable file.

Every change is on disk before its method returns, and all of it is in one file, so that a cursor
and its run stay consistent. Nodes are not written: the lock proves that the previous process is
gone, so its in-flight runs are lost when the file is opened, without waiting for a lease.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from types import TracebackType

from chimes.clock import Clock
from chimes.envelope import KEY_FILE, Keyring, keys_in
from chimes.errors import StoreUnavailable, message_of
from chimes.i18n import _, counted, joined
from chimes.model.audit import AUDIT_CHECKPOINT, AuditEntry, checkpoint_from_text
from chimes.model.run import Reason, cancel
from chimes.store.jsonfile import files as disk
from chimes.store.jsonfile.archive import AuditArchive, MessageArchive, RunArchive
from chimes.store.jsonfile.document import Contents, Encoder
from chimes.store.jsonfile.files import DirectoryLock, Generations
from chimes.store.jsonfile.state import (
    FileState,
    Generation,
    age,
    apply_marks,
    surplus_deliveries,
    surplus_items,
)
from chimes.store.memory import MemoryStore
from chimes.store.port import StoreStatus

# --- group commit: changes that arrive during a write share the next one. Every caller waits for
# the write that contains its change. After a failed write the state rolls back to the last
# generation
# on disk, and all callers whose change was lost get an error.

Batch = Future[None]


class StateLock:
    """The lock of the state. It records per thread the roll-back count at the last release: a
    change made before a roll-back and reported after it is lost."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._seen = threading.local()
        self.rollbacks = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._seen.rollbacks = self.rollbacks

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    @property
    def seen(self) -> int:
        return int(getattr(self._seen, "rollbacks", self.rollbacks))


class GroupCommit:
    """`write` runs in its own thread, without the lock. It calls its argument under the lock when
    it takes the snapshot. `undo` is called under the lock."""

    def __init__(
        self,
        lock: StateLock,
        write: Callable[[Callable[[], None]], None],
        undo: Callable[[Exception], None],
    ) -> None:
        self._lock = lock
        self._write = write
        self._undo = undo
        self._waiting: Batch | None = None
        self._begun: Batch | None = None
        self._busy = False
        self._executor: ThreadPoolExecutor | None = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="chimes-jsonfile"
        )

    def join(self) -> Batch:
        """The batch of the caller, which has just released the lock."""
        seen = self._lock.seen
        with self._lock:
            if self._executor is None:
                raise StoreUnavailable(_("the store is closed"))
            if seen != self._lock.rollbacks:
                raise StoreUnavailable(_("the change was lost with a write that failed"))
            if self._waiting is None:
                self._waiting = Batch()
                # A canceled caller must not cancel the others' future.
                self._waiting.set_running_or_notify_cancel()
            batch = self._waiting
            if not self._busy:
                self._busy = True
                self._executor.submit(self._drain)
        return batch

    def _begin(self) -> None:
        self._begun, self._waiting = self._waiting, None

    def close(self) -> None:
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True)

    def _drain(self) -> None:
        while True:
            with self._lock:
                if self._waiting is None:
                    self._busy = False
                    return
            try:
                self._write(self._begin)
            except Exception as error:
                self._fail(error)
            else:
                assert self._begun is not None
                self._begun.set_result(None)
                self._begun = None

    def _fail(self, error: Exception) -> None:
        with self._lock:
            failed = [batch for batch in (self._begun, self._waiting) if batch is not None]
            self._begun = self._waiting = None
            self._undo(error)
            self._lock.rollbacks += 1
        reason = _("the file cannot be written: {error}", error=message_of(error))
        for batch in failed:
            batch.set_exception(StoreUnavailable(reason))


# --- warning about a write rate that is too high for a JSON file

PER_SECOND = 20
WINDOW = 10.0
#: Seconds before the warning is repeated.
REPEAT = 600.0

_log = logging.getLogger("chimes.store")


class WriteRateWarning:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._commits = 0
        self._said_at: float | None = None

    def count(self) -> None:
        self._commits += 1
        now = self._clock.monotonic()
        elapsed = now - self._since
        if elapsed < WINDOW:
            return
        rate = self._commits / elapsed
        self._since, self._commits = now, 0
        if rate > PER_SECOND and (self._said_at is None or now - self._said_at >= REPEAT):
            self._said_at = now
            _log.warning(
                "%.0f changes a second, each of which writes the whole of jobs.json: above %d a "
                "second the SQLite store is the better choice",
                rate,
                PER_SECOND,
            )


#: Ended runs and audit entries that stay in the file, and how many more may accumulate before
#: archiving, which costs an extra sync.
ENDED_RUNS, AUDIT_ENTRIES = 500, 1000
SLACK = 100
MOST_ROWS = 5000


class JsonFileStore(MemoryStore):
    _state: FileState
    _lock: StateLock

    def __init__(
        self, directory: Path, *, clock: Clock | None = None, keyring: Keyring | None = None
    ) -> None:
        """Without a keyring the keys are in a file in the directory."""
        super().__init__(clock=clock)
        self.keyring = keyring or Keyring(file=directory / KEY_FILE)
        self._directory = directory
        self._lock = StateLock()
        self._state = FileState()
        self._directory_lock = DirectoryLock(directory)
        self._generations = Generations(directory)
        self._read_archives_in(directory)
        self._encoder = Encoder(Contents(), self.keyring)
        self._durable = Generation()
        self._writing: Generation | None = None
        self._commits: GroupCommit | None = None
        self._pace = WriteRateWarning(self._clock)
        self._unwritten = False
        #: The next write encrypts everything again; how many values had another key.
        self._reseals = False
        self._resealed = 0
        self._degraded: tuple[str, ...] = ()
        self._write_error = ""

    # --- lifecycle ------------------------------------------------------------------------------
    async def open(self) -> None:
        await asyncio.to_thread(self._open)

    async def close(self) -> None:
        commits, self._commits = self._commits, None
        if commits is not None:
            await asyncio.to_thread(self._close, commits)
        await super().close()

    async def status(self) -> StoreStatus:
        return StoreStatus(
            kind="json",
            location=str(self._generations.current),
            schema="1",
            degraded=joined("; ", filter(None, (*self._degraded, self._write_error))),
        )

    async def open_snapshot(self) -> None:
        await asyncio.to_thread(self._open_snapshot)

    async def clear(self, *, keep: str = "") -> None:
        await super().clear(keep=keep)
        for stem in ("runs", "audit", "messages"):
            for path in self._directory.glob(f"{stem}-*.jsonl"):
                disk.remove(path)
        self._read_archives_in(self._directory)
        self._degraded = ()

    async def reseal(self) -> int:
        """Both generations and all archives, by the thread that writes them."""
        self._resealed = 0
        for _generation in ("current", "previous"):
            self._reseals = True
            await self._commit()
        return self._resealed

    async def size(self) -> int | None:
        return await asyncio.to_thread(disk.size_of, self._directory)

    def _open(self) -> None:
        try:
            disk.make_directory(self._directory)
            self._directory_lock.take()
        except OSError as error:
            raise StoreUnavailable(
                joined(": ", (str(self._directory), message_of(error)))
            ) from error
        try:
            self._load()
            self._write(lambda: None)
        except OSError as error:
            self._directory_lock.release()
            raise StoreUnavailable(
                joined(": ", (str(self._generations.current), message_of(error)))
            ) from error
        except BaseException:
            self._directory_lock.release()
            raise
        self._commits = GroupCommit(self._lock, self._write, self._undo)

    def _open_snapshot(self) -> None:
        """Reads copies of the files: a write of another process waits only while they are made."""
        directory, copy = self._directory, Path(tempfile.mkdtemp(prefix="chimes-"))
        try:
            with disk.reading(directory):
                for path in directory.iterdir():
                    if path.suffix in (".json", ".jsonl", ".sum"):
                        shutil.copyfile(path, copy / path.name)
            self._generations = Generations(copy)
            self._read_archives_in(copy)
            self._load(recover=False)
        except OSError as error:
            raise StoreUnavailable(joined(": ", (str(directory), message_of(error)))) from error
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def _read_archives_in(self, directory: Path) -> None:
        self._run_archive = RunArchive(directory, self.keyring)
        self._audit_archive = AuditArchive(directory)
        self._message_archive = MessageArchive(directory, self.keyring)

    def _close(self, commits: GroupCommit) -> None:
        try:
            with self._lock:
                last = commits.join() if self._unwritten else None
            if last is not None:
                last.exception()
            commits.close()
            self._generations.finish()
        except OSError as error:
            _log.warning("cannot copy jobs.json at shutdown: %s", error)
        finally:
            self._directory_lock.release()

    # --- loading --------------------------------------------------------------------------------
    def _load(self, *, recover: bool = True) -> None:
        """`recover`: the previous process is dead, and its runs are lost."""
        now = self._clock.now()
        self._generations.clean()
        contents, reason = self._generations.load(now)
        self._state = FileState(
            pruned_until=contents.pruned_until,
            requests={k: kept for k, kept in contents.requests.items() if kept[1] > now},
            keys={key.id: key for key in contents.keys},
            states={kept.name: kept for kept in contents.states},
        )
        self._encoder = Encoder(contents, self.keyring)
        self._load_rows(contents)
        lost = self._load_messages(contents)
        self._degraded = tuple(filter(None, (reason, *self._complaints(contents), lost)))
        self._durable = self._state.generation()
        if not recover:
            return
        for run in self._lose([run for run in self._state.active.values() if run.holder], now):
            _log.warning("run %s was lost with the previous process", run.id)
        self._cancel_runs_of_removed(contents.absent, now)

    def _load_rows(self, contents: Contents) -> None:
        state = self._state
        for schedule in (*(job.schedule for job in contents.jobs), *contents.deleted):
            state.put_schedule(schedule)
        self._run_archive.read(contents.pruned_until, state.put_archived)
        for run in contents.runs:  # after the archives: the file wins
            state.put_run(run)
        for run_id, log in contents.logs.items():
            state.logs[run_id] = log
        entries = self._audit_archive.read()
        first = contents.audit[0].number if contents.audit else max(entries, default=0) + 1
        # An archive may still have entries that were pruned.
        pruned = _pruned_audit(contents)
        archived = sorted(number for number in entries if pruned < number < first)
        state.audit = [*(entries[number] for number in archived), *contents.audit]
        state.archived_audit = archived[-1] if archived else 0

    def _load_messages(self, contents: Contents) -> str:
        """Why some messages are missing; empty if none are."""
        state = self._state
        state.archived_deliveries, state.archived_items = self._message_archive.read()
        filed = [state.archived_deliveries.get(each) for each in contents.filed_deliveries]
        items = [apply_marks(each, state.archived_items) for each in contents.filed_items]
        # The archives first: the file wins.
        state.deliveries = {e.id: e for e in (*filed, *contents.deliveries) if e is not None}
        state.inbox = {item.id: item for item in (*items, *contents.inbox) if item is not None}
        lost = filed.count(None) + items.count(None)
        if not lost:
            return ""
        return counted(
            "{count} archived message is not where it was",
            "{count} archived messages are not where they were",
            lost,
        )

    def _complaints(self, contents: Contents) -> Iterable[str]:
        for job in contents.jobs:
            if job.edited:
                _log.warning("job %s was edited in jobs.json", job.schedule.id)
            if job.broken is not None:
                _log.error("job %s is disabled: %s", job.schedule.id, job.schedule.last_error)
                yield _(
                    "job {id} is switched off ({error})",
                    id=job.schedule.id,
                    error=job.schedule.last_error,
                )
        archives = (self._run_archive, self._audit_archive, self._message_archive)
        unreadable = sum(archive.unreadable for archive in archives)
        if unreadable:
            yield counted(
                "{count} archived line cannot be read",
                "{count} archived lines cannot be read",
                unreadable,
            )

    def _cancel_runs_of_removed(self, absent: frozenset[str], now: datetime) -> None:
        """A job that was removed from the file is deleted, with its queued runs."""
        for run in list(self._state.active.values()):
            owner = run.schedule_id
            if owner is None or owner in self._state.schedules or owner in absent:
                continue
            ended = cancel(run, Reason.SCHEDULE_DELETED, now)
            self._state.put_run(ended)
            self._post(ended, now)

    # --- writing --------------------------------------------------------------------------------
    async def _commit(self, *, durable: bool = True) -> None:
        if not durable:
            self._unwritten = True
            return
        commits = self._commits
        if commits is None:
            raise StoreUnavailable(_("the store is not open"))
        batch = commits.join()
        self._pace.count()
        try:
            await asyncio.wrap_future(batch)
        except StoreUnavailable as error:
            raise StoreUnavailable(error.message) from error

    def _write(self, begin: Callable[[], None]) -> None:
        """Write one generation. A process that copies the files (`open_snapshot`) sees them before
        or after it."""
        with disk.writing(self._directory):
            self._write_files(begin)

    def _write_files(self, begin: Callable[[], None]) -> None:
        self._archive()
        if self._reseals:
            self._reseals = False
            self._resealed += self._reseal()
        with self._lock:
            begin()
            self._unwritten = False
            self._writing = generation = self._state.generation()
        self._generations.write(self._encoder.encode(generation, self._clock.now()))
        self._durable, self._writing, self._write_error = generation, None, ""
        self._message_archive.tidy(
            generation.filed_deliveries.keys(), generation.filed_items.keys()
        )
        if generation.forgotten and generation.pruned_until:
            self._run_archive.forget(
                (run for run, _unused in generation.forgotten), generation.pruned_until
            )
        if generation.forgotten_audit:
            self._audit_archive.forget(generation.forgotten_audit)

    def _reseal(self) -> int:
        self._encoder.forget()
        key = self.keyring.current()
        found = keys_in(disk.read(self._generations.current) or b"")
        count = sum(each != key.id for each in found) if key else 0
        return count + self._run_archive.reseal() + self._message_archive.reseal()

    def _undo(self, error: Exception) -> None:
        if not isinstance(error, OSError):
            _log.error("jobs.json cannot be encoded", exc_info=error)
        self._write_error = _("jobs.json cannot be written: {error}", error=message_of(error))
        _log.error("%s", self._write_error)
        self._state = self._state.back_to(self._durable, self._writing)
        self._writing = None
        self._encoder.forget_logs()
        self.wake()

    def _archive(self) -> None:
        """Archive only durable rows, so that a roll-back leaves nothing behind. A failure does not
        affect the current change."""
        try:
            self._archive_runs()
            self._archive_audit()
            self._archive_messages()
        except OSError as error:
            _log.warning("cannot archive rows: %s", error)

    def _archive_runs(self) -> None:
        durable = self._durable
        ended = [run for run in durable.runs.values() if run.status.terminal]
        keep = max(0, min(ENDED_RUNS, MOST_ROWS - (len(durable.runs) - len(ended))))
        if len(ended) <= keep + SLACK:
            return
        with self._lock:
            ended = [run for run in ended if run.id in self._state.kept]
        oldest = sorted(ended, key=age)[: max(0, len(ended) - keep)]
        self._run_archive.append(
            (run, durable.logs[run.id].entries() if run.id in durable.logs else ())
            for run in oldest
        )
        with self._lock:
            self._state.mark_archived(oldest)

    def _archive_audit(self) -> None:
        surplus = self._surplus_audit()
        if surplus:
            self._audit_archive.append(surplus)
            with self._lock:
                self._state.archived_audit = surplus[-1].number

    def _archive_messages(self) -> None:
        deliveries = surplus_deliveries(self._durable.deliveries)
        items = surplus_items(self._durable.inbox)
        if deliveries or items:
            self._message_archive.append(deliveries, items)
            with self._lock:
                state = self._state
                state.archived_deliveries = state.archived_deliveries | {
                    each.id: each for each in deliveries
                }
                state.archived_items = state.archived_items | {item.id: item for item in items}

    def _surplus_audit(self) -> tuple[AuditEntry, ...]:
        entries = [e for e in self._durable.audit if e.number > self._state.archived_audit]
        return tuple(entries[:-AUDIT_ENTRIES]) if len(entries) > AUDIT_ENTRIES + SLACK else ()


def _pruned_audit(contents: Contents) -> int:
    """Number of the newest audit entry that was pruned."""
    values = (kept.value for kept in contents.states if kept.name == AUDIT_CHECKPOINT)
    found = (checkpoint_from_text(value) for value in values)
    return max((each.number for each in found if each is not None), default=0)
