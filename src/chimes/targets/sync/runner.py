"""Carries out one attempt of a sync task, in a process of its own (R4.2, R4.3, R4.9)."""

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
from chimes.i18n import _
from chimes.model.checkpoint import MAX_CHECKPOINT_LENGTH
from chimes.model.egress import EgressRules
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.sync import Source, Sources
from chimes.model.target import SyncTarget
from chimes.redaction import Redactor
from chimes.targets.base import Call, State, WrongNode
from chimes.targets.process.channel import LogLine, RunLog
from chimes.targets.process.child import GRACE, Child, run_shielded
from chimes.targets.process.sanitize import ERROR_LIMIT, describe_process_exit
from chimes.targets.process.tree import descendants
from chimes.targets.sync.config import secrets_in
from chimes.targets.sync.wire import (
    LOG_LIMITS,
    Answer,
    Heartbeat,
    Kept,
    Request,
    message_of,
    rules_to_plain,
)
from chimes.triggers.duration import format_duration_go
from chimes.triggers.json_values import suggest_name

# @@ A directory for each attempt, which only this user can read, and which does not stay.

if sys.platform != "win32":  # where no task is carried out
    import fcntl

_PREFIX = "chimes-sync-"


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Locked while it is in use: the lock of a process that was killed is gone with it. Its number
    would not do, as containers that share a directory each count for themselves."""
    folder, lock = _locked_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_leftovers() -> None:
    """Of processes of this user that are gone."""
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


def _locked_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Somebody who clears up may have come between the two.
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            lock = _lock(folder)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _lock(folder: Path) -> int:
    """Raises BlockingIOError if somebody has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


# @@ Keeps the state that a task sends, in order, while the task goes on.


class Keeper:
    """Of states that come faster than the store takes them only the newest is written."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._newest: str | None = None
        self._writing: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        #: Resolved when the run turns out to belong to somebody else.
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, value: str) -> None:
        self._newest = value
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def finished(self) -> None:
        """Everything is in the store, or the run is lost. Raises what the store has raised."""
        if self._writing is not None:
            await self._writing
        if self._error is not None:
            raise self._error

    async def settled(self, within: float) -> None:
        """The same for a task that has not ended well: what it kept before counts, but nobody
        waits long for it. Nothing is written after this."""
        if self._writing is not None:
            await asyncio.wait((self._writing,), timeout=within)
            self._writing.cancel()

    async def _write(self) -> None:
        while self._newest is not None and not self.lost.done():
            value, self._newest = self._newest, None
            try:
                kept = await self._state.keep(value)
            except Exception as error:
                self._error = error
                return
            if not kept:
                self.lost.set_result(None)


# @@ Whether processes are alive, as the kernel sees them (Linux; elsewhere nothing is known).

#: Stopped by a signal, or by a debugger.
_STOPPED = ("T", "t")


def any_stopped(pid: int) -> bool:
    """Whether the process, or one that it has started, stands still because it was stopped: then
    what they do together cannot go on either."""
    return any(state_of(each) in _STOPPED for each in (pid, *descendants(pid)))


def state_of(pid: int) -> str:
    """R, S, D, T, …; empty where that is not known."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def processor_time(pid: int) -> int | None:
    """How long it has been at work so far, in ticks; None where that is not known."""
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else None


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The name stands in brackets and may hold anything.
    return text.rpartition(")")[2].split()


# @@ Finds a task that shows no sign of life (R4.9: what was started must end).

#: Between two looks, as a share of the time after which a task has stalled.
SHARE = 6
LONGEST_BEAT = 10.0


def beat_of(stall_after: float) -> float:
    """Seconds between two signs of life."""
    return min(stall_after / SHARE, LONGEST_BEAT)


class Watch:
    """Signs of life are what a process sends by itself and, where `by_work` is true, the time that
    the processor spends on it: a function that holds the interpreter cannot send anything."""

    def __init__(self, pid: int, stall_after: float, clock: Clock, *, by_work: bool) -> None:
        self._pid = pid
        self._stall_after = stall_after
        self._clock = clock
        self._by_work = by_work
        self._work: int | None = None
        self._last = clock.monotonic()

    def heard(self) -> None:
        self._last = self._clock.monotonic()

    async def stalled(self) -> None:
        """Returns when there was none for too long."""
        pause = beat_of(self._stall_after)
        looked = self._clock.monotonic()
        while True:
            await asyncio.sleep(pause)
            now = self._clock.monotonic()
            if now - looked > 2 * pause + 1:
                # It was us who stood still: what it sent meanwhile is yet to be read.
                self._last = now
            looked = now
            if self._at_work():
                self._last = now
            if now - self._last >= self._stall_after:
                return

    def _at_work(self) -> bool:
        if not self._by_work:
            return False
        before, self._work = self._work, processor_time(self._pid)
        return before != self._work


MODULE = "chimes.targets.sync.child"
#: How long the store may take for what a task that has not ended well kept last.
LAST_STATE = 1.0
#: A message is at most a state, its escapes and its frame.
LONGEST_MESSAGE = 4 * MAX_CHECKPOINT_LENGTH


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
        """`sources`: those of the file as it was last read. A task goes on with what it started
        with. `elsewhere`: whether another node has a pair that is not among them, as while nodes
        are given a new file one by one."""
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
            return _refused(call, "not_supported", _("this system has no process groups"))
        if source is None or source.collection(target.collection) is None:
            if self._elsewhere is not None and await self._elsewhere(target):
                raise WrongNode
            return _refused(call, "unknown_collection", _unknown(sources, target))
        assert call.state is not None, "the engine gives sync tasks their state"
        log = RunLog(call.log, LOG_LIMITS, Redactor(secrets_in(dict(source.config))))
        deadline = began + call.run.policy.timeout.total_seconds()
        try:
            with private_folder() as folder:
                attempt = _Attempt(call, log, deadline, self._clock, self._stall_after)
                request = self._request(sources, source, target, await call.state.read(), folder)
                outcome = await attempt.carry_out(request)
        except OSError as error:
            outcome = _failed(
                "not_started", _("no process could be started: {error}", error=str(error))
            )
        took = self._clock.monotonic() - began
        if outcome.end is AttemptEnd.SUCCEEDED:
            log.remark("info", _("FINISHED SUCCESSFULLY in [{seconds:.2f}] seconds", seconds=took))
        else:
            log.remark("error", outcome.error)
        log.close()
        return outcome

    def _request(
        self,
        sources: Sources,
        source: Source,
        target: SyncTarget,
        state: str | None,
        folder: Path,
    ) -> Request:
        return Request(
            driver=source.driver,
            source=target.source,
            collection=target.collection,
            config=source.config,
            state=state,
            directory=sources.directory or str(Path.cwd()),
            path=tuple(each or str(Path.cwd()) for each in sys.path),
            beat=beat_of(self._stall_after.total_seconds()),
            private=str(folder),
            rules=rules_to_plain(self._egress()),
            longest_state=MAX_CHECKPOINT_LENGTH,
        )


class _Why(StrEnum):
    """Why a process that has not ended by itself is ended."""

    TIMEOUT = "timeout"
    STALLED = "stalled"
    #: What it wanted to keep was refused: another node has the run.
    LOST = "lost"


class _Attempt:
    def __init__(
        self, call: Call, log: RunLog, deadline: float, clock: Clock, stall_after: timedelta
    ) -> None:
        assert call.state is not None, "the engine gives sync tasks their state"
        self._timeout = call.run.policy.timeout
        self._log = log
        self._deadline = deadline
        self._clock = clock
        self._stall_after = stall_after
        self._keeper = Keeper(call.state)
        self._watch: Watch | None = None

    async def carry_out(self, request: Request) -> Outcome:
        """Raises OSError where the machine gives no process."""
        child = Child.started(MODULE, self._log, self._heard, private=True)
        canceled = await run_shielded(child.connect(request.to_line(), longest=LONGEST_MESSAGE))
        seconds = self._stall_after.total_seconds()
        # The process of a command only watches over it: that it is at work says nothing.
        by_work = request.driver != "command"
        self._watch = Watch(child.pid, seconds, self._clock, by_work=by_work)
        stalled = asyncio.ensure_future(self._watch.stalled())
        try:
            if canceled:
                raise asyncio.CancelledError
            await child.wait(self._deadline - self._clock.monotonic(), stalled, self._keeper.lost)
            why = self._why(child, stalled)
            # What is stopped cannot end by itself.
            grace = 0.0 if why is _Why.STALLED else GRACE
            if await run_shielded(child.end(grace=grace, all_below=True)):
                raise asyncio.CancelledError
            return await self._outcome(child, why)
        except asyncio.CancelledError:
            if not child.ended:
                await run_shielded(child.end(grace=GRACE, all_below=True))
            await run_shielded(self._keeper.settled(LAST_STATE))
            self._log.remark("warning", _("told to stop: the processes of the task were ended"))
            raise
        finally:
            stalled.cancel()

    def _why(self, child: Child[Answer], stalled: asyncio.Future[None]) -> _Why | None:
        if not child.running:
            return None
        if stalled.done():
            return _Why.STALLED
        return _Why.LOST if self._keeper.lost.done() else _Why.TIMEOUT

    async def _outcome(self, child: Child[Answer], why: _Why | None) -> Outcome:
        if why is not None or not child.answered.done():
            await self._keeper.settled(LAST_STATE)
        match why:
            case _Why.TIMEOUT:
                limit = format_duration_go(self._timeout)
                error = _("timed out after {limit}", limit=limit)
                return Outcome(end=AttemptEnd.TIMEOUT, error=error, code=why)
            case _Why.STALLED:
                limit = format_duration_go(self._stall_after)
                return _failed(
                    why, _("stalled: the task showed no sign of life for {limit}", limit=limit)
                )
            case _Why.LOST:
                return _failed(why, _("another node has this task now"))
        if not child.answered.done():
            return _failed("crashed", describe_process_exit(child.status))
        answer = child.answered.result()
        await self._keeper.finished()
        if self._keeper.lost.done():
            return await self._outcome(child, _Why.LOST)
        if not answer.code:
            return Outcome(end=AttemptEnd.SUCCEEDED, result=answer.result)
        if answer.trace:
            self._log.remark("error", self._log.sanitize(answer.trace, keep_end=True))
        return _failed(answer.code, self._log.sanitize(answer.error, ERROR_LIMIT))

    def _heard(self, line: bytes) -> Answer | None:
        message = message_of(line)
        if self._watch is not None:
            self._watch.heard()
        match message:
            case LogLine():
                self._log.line(message.level, message.message)
            case Kept():
                self._keeper.put(message.value)
            case Answer():
                return message
            case Heartbeat():
                pass
        return None


def _refused(call: Call, code: str, error: str) -> Outcome:
    call.log("error", error)
    return _failed(code, error)


def _failed(code: str, error: str) -> Outcome:
    return Outcome(end=AttemptEnd.FAILED, code=code, error=error)


def _unknown(sources: Sources, target: SyncTarget) -> str:
    """The file was changed since the task was made."""
    source = sources.by_id.get(target.source)
    if source is None:
        hint = suggest_name(target.source, list(sources.by_id))
        message = _("there is no source {source!r} in the configuration file", source=target.source)
    else:
        hint = suggest_name(target.collection, [each.name for each in source.collections])
        message = _(
            "there is no collection of {source} {collection!r} in the configuration file",
            source=source.id,
            collection=target.collection,
        )
    return _("{message}; {hint}", message=message, hint=hint) if hint else message
