"""Executes attempts of sync tasks, each in its own child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from chimes.clock import Clock, SystemClock
from chimes.egress import EgressRules
from chimes.i18n import _
from chimes.model.access import fill_secrets, secret_names
from chimes.model.checkpoint import MAX_CHECKPOINT_LENGTH
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.sync import Source, Sources
from chimes.model.target import SyncTarget
from chimes.redaction import Redactor
from chimes.targets.base import Call, State, WrongNode
from chimes.targets.process.channel import BoundedLog, LogLine
from chimes.targets.process.child import GRACE_SECONDS, Child, child_environment, run_shielded
from chimes.targets.process.sanitize import ERROR_LIMIT, describe_process_exit
from chimes.targets.process.tree import descendants
from chimes.targets.sync.config import secrets_in
from chimes.targets.sync.wire import (
    LOG_LIMITS,
    CheckpointMessage,
    Heartbeat,
    Request,
    ResultMessage,
    egress_rules_to_json,
    message_of,
)
from chimes.triggers.values import format_duration_go, suggest_name

if sys.platform != "win32":  # sync tasks are not supported there
    import fcntl

_PREFIX = "chimes-sync-"


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """Temporary directory of one attempt, readable by this user only. Locked while in use: the
    kernel releases the lock of a killed process. A pid would not do, since containers that share
    the directory have separate pid namespaces."""
    folder, lock = _create_locked_directory()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_leftovers() -> None:
    """Removes temporary directories of this user's ended processes."""
    if sys.platform == "win32":
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            lock = _lock(folder)
            try:
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _create_locked_directory() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # `remove_leftovers` of another process may have taken it before the lock.
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            lock = _lock(folder)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _lock(folder: Path) -> int:
    """Raises BlockingIOError if it is locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class CheckpointWriter:
    """Stores checkpoints while the task runs; of those that wait, only the newest is written."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._newest: str | None = None
        self._writing: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        #: Resolved when another node has claimed the run.
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def save(self, value: str) -> None:
        self._newest = value
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def flush(self) -> None:
        """Waits until all is stored or the run is lost. Raises the exception of the store."""
        if self._writing is not None:
            await self._writing
        if self._error is not None:
            raise self._error

    async def flush_within(self, seconds: float) -> None:
        """Waits a limited time for the last write, after a failed task. Nothing is written
        afterwards."""
        if self._writing is not None:
            await asyncio.wait((self._writing,), timeout=seconds)
            self._writing.cancel()

    async def _write(self) -> None:
        while self._newest is not None and not self.lost.done():
            value, self._newest = self._newest, None
            try:
                stored = await self._state.save(value)
            except Exception as error:
                self._error = error
                return
            if not stored:
                self.lost.set_result(None)


#: Process states: stopped by a signal or by a debugger.
_STOPPED_STATES = ("T", "t")


def any_stopped(pid: int) -> bool:
    """Whether the process or a descendant is stopped, which blocks their common work (Linux)."""
    return any(process_state(each) in _STOPPED_STATES for each in (pid, *descendants(pid)))


def process_state(pid: int) -> str:
    """R, S, D, T, …; empty if unknown."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def cpu_time(pid: int) -> int | None:
    """CPU time in clock ticks; None if unknown."""
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else None


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The name is in parentheses and may contain anything.
    return text.rpartition(")")[2].split()


#: Heartbeats within the time after which a task counts as stalled.
HEARTBEATS_PER_STALL = 6
MAX_HEARTBEAT_SECONDS = 10.0


def heartbeat_interval(stall_after: float) -> float:
    """Seconds between two heartbeats."""
    return min(stall_after / HEARTBEATS_PER_STALL, MAX_HEARTBEAT_SECONDS)


class StallDetector:
    """Detects a child process without activity. Activity is a message or, with `count_cpu_time`,
    consumed CPU time: a function that holds the GIL cannot send heartbeats."""

    def __init__(self, pid: int, stall_after: float, clock: Clock, *, count_cpu_time: bool) -> None:
        self._pid = pid
        self._stall_after = stall_after
        self._clock = clock
        self._count_cpu_time = count_cpu_time
        self._cpu_time: int | None = None
        self._last = clock.monotonic()

    def record_activity(self) -> None:
        self._last = self._clock.monotonic()

    async def wait_until_stalled(self) -> None:
        """Returns after `stall_after` seconds without activity."""
        pause = heartbeat_interval(self._stall_after)
        checked_at = self._clock.monotonic()
        while True:
            await asyncio.sleep(pause)
            now = self._clock.monotonic()
            if now - checked_at > 2 * pause + 1:
                # This worker was blocked: messages that arrived meanwhile are unread.
                self._last = now
            checked_at = now
            if self._used_cpu():
                self._last = now
            if now - self._last >= self._stall_after:
                return

    def _used_cpu(self) -> bool:
        if not self._count_cpu_time:
            return False
        before, self._cpu_time = self._cpu_time, cpu_time(self._pid)
        return before != self._cpu_time


MODULE = "chimes.targets.sync.child"
#: Seconds for storing the last checkpoint of a failed task.
CHECKPOINT_GRACE = 1.0
#: The largest checkpoint plus JSON escapes and framing.
MAX_MESSAGE_BYTES = 4 * MAX_CHECKPOINT_LENGTH


class SyncRunner:
    kind = "sync"
    resumable = False

    def __init__(
        self,
        sources: Callable[[], Sources],
        *,
        egress: Callable[[], EgressRules],
        permits: int = 16,
        stall_after: timedelta = timedelta(seconds=60),
        clock: Clock | None = None,
        elsewhere: Callable[[SyncTarget], Awaitable[bool]] | None = None,
    ) -> None:
        """`sources`: the sources of the configuration file as last read; a running task keeps those
        it started with. `elsewhere`: whether another node knows a source and collection that are
        not among them, as during a rolling update of the file."""
        self._sources = sources
        self._egress = egress
        self._permits = permits
        self._stall_after = stall_after
        self._clock = clock or SystemClock()
        self._elsewhere = elsewhere

    @property
    def permits(self) -> int:
        return self._permits

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset(
            SyncTarget(source=source, collection="").requirement for source in self._sources().by_id
        )

    def secret_names(self, target: SyncTarget) -> frozenset[str]:
        """The named secrets in the configuration of its source."""
        source = self._sources().by_id.get(target.source)
        return frozenset() if source is None else secret_names(source.config)

    async def open(self) -> None:
        await asyncio.to_thread(remove_leftovers)

    async def close(self) -> None:
        return None

    async def execute(self, call: Call) -> Outcome:
        began = self._clock.monotonic()
        target = call.run.target
        assert isinstance(target, SyncTarget)
        sources = self._sources()
        source = sources.by_id.get(target.source)
        if sys.platform == "win32":
            return _refuse(call, "not_supported", _("sync tasks are not supported on Windows"))
        if source is None or source.collection(target.collection) is None:
            if self._elsewhere is not None and await self._elsewhere(target):
                raise WrongNode
            return _refuse(call, "unknown_collection", _unknown_target(sources, target))
        assert call.state is not None, "the engine gives sync tasks their state"
        log = BoundedLog(call.log, LOG_LIMITS, Redactor(secrets_in(dict(source.config))))
        deadline = began + call.run.policy.timeout.total_seconds()
        try:
            with private_directory() as folder:
                attempt = _Attempt(call, log, deadline, self._clock, self._stall_after)
                state = await call.state.read()
                request = self._request(sources, source, call, state, folder)
                outcome = await attempt.execute(request)
        except OSError as error:
            outcome = _failed("not_started", _("cannot start a process: {error}", error=str(error)))
        took = self._clock.monotonic() - began
        if outcome.end is AttemptEnd.SUCCEEDED:
            log.system_line(
                "info", _("FINISHED SUCCESSFULLY in [{seconds:.2f}] seconds", seconds=took)
            )
        else:
            log.system_line("error", outcome.error)
        log.close()
        return outcome

    def _request(
        self,
        sources: Sources,
        source: Source,
        call: Call,
        state: str | None,
        folder: Path,
    ) -> Request:
        target = call.run.target
        assert isinstance(target, SyncTarget)
        return Request(
            driver=source.driver,
            source=target.source,
            collection=target.collection,
            config=fill_secrets(source.config, call.secrets),
            state=state,
            directory=sources.directory or str(Path.cwd()),
            path=tuple(each or str(Path.cwd()) for each in sys.path),
            heartbeat_seconds=heartbeat_interval(self._stall_after.total_seconds()),
            private_directory=str(folder),
            rules=egress_rules_to_json(self._egress()),
            max_state_length=MAX_CHECKPOINT_LENGTH,
        )


class _StopReason(StrEnum):
    """Why a running process is stopped."""

    TIMEOUT = "timeout"
    STALLED = "stalled"
    #: The store rejected a checkpoint: another node has claimed the run.
    LOST = "lost"


class _Attempt:
    def __init__(
        self, call: Call, log: BoundedLog, deadline: float, clock: Clock, stall_after: timedelta
    ) -> None:
        assert call.state is not None, "the engine gives sync tasks their state"
        self._timeout = call.run.policy.timeout
        self._log = log
        self._deadline = deadline
        self._clock = clock
        self._stall_after = stall_after
        self._checkpoints = CheckpointWriter(call.state)
        self._stall_detector: StallDetector | None = None

    async def execute(self, request: Request) -> Outcome:
        """Raises OSError if no process can be started."""
        child = Child.start(MODULE, self._log, self._on_message, env=child_environment())
        canceled = await run_shielded(child.connect(request.to_line(), max_line=MAX_MESSAGE_BYTES))
        seconds = self._stall_after.total_seconds()
        # The child process of a command only reads its output, so its CPU time says nothing.
        count_cpu_time = request.driver != "command"
        self._stall_detector = StallDetector(
            child.pid, seconds, self._clock, count_cpu_time=count_cpu_time
        )
        stalled = asyncio.ensure_future(self._stall_detector.wait_until_stalled())
        try:
            if canceled:
                raise asyncio.CancelledError
            await child.wait(
                self._deadline - self._clock.monotonic(), stalled, self._checkpoints.lost
            )
            reason = self._stop_reason(child, stalled)
            # A stopped process cannot react to SIGTERM.
            grace = 0.0 if reason is _StopReason.STALLED else GRACE_SECONDS
            if await run_shielded(child.end(grace=grace, whole_tree=True)):
                raise asyncio.CancelledError
            return await self._outcome(child, reason)
        except asyncio.CancelledError:
            if not child.ended:
                await run_shielded(child.end(grace=GRACE_SECONDS, whole_tree=True))
            await run_shielded(self._checkpoints.flush_within(CHECKPOINT_GRACE))
            self._log.system_line("warning", _("canceled: the processes of the task were stopped"))
            raise
        finally:
            stalled.cancel()

    def _stop_reason(
        self, child: Child[ResultMessage], stalled: asyncio.Future[None]
    ) -> _StopReason | None:
        if not child.running:
            return None
        if stalled.done():
            return _StopReason.STALLED
        return _StopReason.LOST if self._checkpoints.lost.done() else _StopReason.TIMEOUT

    async def _outcome(self, child: Child[ResultMessage], reason: _StopReason | None) -> Outcome:
        if reason is not None or not child.result_message.done():
            await self._checkpoints.flush_within(CHECKPOINT_GRACE)
        match reason:
            case _StopReason.TIMEOUT:
                limit = format_duration_go(self._timeout)
                error = _("timed out after {limit}", limit=limit)
                return Outcome(end=AttemptEnd.TIMEOUT, error=error, code=reason, retryable=True)
            case _StopReason.STALLED:
                limit = format_duration_go(self._stall_after)
                return _failed(
                    reason, _("stalled: no sign of life from the task for {limit}", limit=limit)
                )
            case _StopReason.LOST:
                return _failed(reason, _("another node executes this task now"), retryable=False)
        if not child.result_message.done():
            return _failed("crashed", describe_process_exit(child.status))
        message = child.result_message.result()
        await self._checkpoints.flush()
        if self._checkpoints.lost.done():
            return await self._outcome(child, _StopReason.LOST)
        if not message.code:
            return Outcome(end=AttemptEnd.SUCCEEDED, result=message.result)
        if message.trace:
            self._log.system_line("error", self._log.sanitize(message.trace, keep_end=True))
        return _failed(message.code, self._log.sanitize(message.error, ERROR_LIMIT))

    def _on_message(self, line: bytes) -> ResultMessage | None:
        message = message_of(line)
        if self._stall_detector is not None:
            self._stall_detector.record_activity()
        match message:
            case LogLine():
                self._log.line(message.level, message.message)
            case CheckpointMessage():
                self._checkpoints.save(message.value)
            case ResultMessage():
                return message
            case Heartbeat():
                pass
        return None


def _refuse(call: Call, code: str, error: str) -> Outcome:
    call.log("error", error)
    return _failed(code, error, retryable=False)


def _failed(code: str, error: str, *, retryable: bool = True) -> Outcome:
    """A retry continues from the last checkpoint; a collection without `max_retries` has none."""
    return Outcome(end=AttemptEnd.FAILED, code=code, error=error, retryable=retryable)


def _unknown_target(sources: Sources, target: SyncTarget) -> str:
    """Error for a source or collection that the configuration file no longer has."""
    source = sources.by_id.get(target.source)
    if source is None:
        hint = suggest_name(target.source, list(sources.by_id))
        message = _("the configuration file has no source {source!r}", source=target.source)
    else:
        hint = suggest_name(target.collection, [each.name for each in source.collections])
        message = _(
            "source {source!r} of the configuration file has no collection {collection!r}",
            source=source.id,
            collection=target.collection,
        )
    return _("{message}; {hint}", message=message, hint=hint) if hint else message
