"""Carries out one attempt of a sync task, in a process of its own (R4.2, R4.3, R4.9)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from chimes.clock import Clock, SystemClock
from chimes.model.egress import EgressRules
from chimes.model.kept_state import LONGEST_STATE
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.source import Source, Sources
from chimes.model.target import SyncTarget
from chimes.redaction import Redactor
from chimes.targets.base import Call, NotHere
from chimes.targets.processes.channel import LogLine
from chimes.targets.processes.child import GRACE, Child, surely
from chimes.targets.processes.lines import RunLog
from chimes.targets.processes.traces import ERROR_LIMIT, process_ended
from chimes.targets.sync.egress_wire import rules_to_plain
from chimes.targets.sync.folders import private_folder, remove_leftovers
from chimes.targets.sync.keeping import Keeper
from chimes.targets.sync.reading import secrets_in
from chimes.targets.sync.watching import Watch, beat_of
from chimes.targets.sync.wire import LOG_LIMITS, Answer, Beat, Kept, Request, message_of
from chimes.triggers.duration import format_duration_go
from chimes.triggers.reading import nearest
from chimes.wording import say

MODULE = "chimes.targets.sync.child"
#: How long the store may take for what a task that has not ended well kept last.
LAST_STATE = 1.0
#: A message is at most a state, its escapes and its frame.
LONGEST_MESSAGE = 4 * LONGEST_STATE


class SyncRunner:
    kind = "sync"
    resumable = False

    def __init__(
        self,
        sources: Callable[[], Sources],
        *,
        egress: Callable[[], EgressRules],
        places: int = 16,
        stall_after: timedelta = timedelta(seconds=60),
        clock: Clock | None = None,
        elsewhere: Callable[[SyncTarget], Awaitable[bool]] | None = None,
    ) -> None:
        """`sources`: those of the file as it was last read. A task goes on with what it started
        with. `elsewhere`: whether another node has a pair that is not among them, as while nodes
        are given a new file one by one."""
        self._sources = sources
        self._egress = egress
        self._places = places
        self._stall_after = stall_after
        self._clock = clock or SystemClock()
        self._elsewhere = elsewhere

    @property
    def places(self) -> int:
        return self._places

    @property
    def offers(self) -> frozenset[str]:
        return frozenset(
            SyncTarget(source=source, collection="").needs for source in self._sources().by_id
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
            return _refused(call, "not_supported", say("this system has no process groups"))
        if source is None or source.collection(target.collection) is None:
            if self._elsewhere is not None and await self._elsewhere(target):
                raise NotHere
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
                "not_started", say("no process could be started: {error}", error=str(error))
            )
        took = self._clock.monotonic() - began
        if outcome.end is AttemptEnd.SUCCEEDED:
            log.remark(
                "info", say("FINISHED SUCCESSFULLY in [{seconds:.2f}] seconds", seconds=took)
            )
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
            longest_state=LONGEST_STATE,
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
        canceled = await surely(child.connect(request.to_line(), longest=LONGEST_MESSAGE))
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
            if await surely(child.end(grace=grace, all_below=True)):
                raise asyncio.CancelledError
            return await self._outcome(child, why)
        except asyncio.CancelledError:
            if not child.ended:
                await surely(child.end(grace=GRACE, all_below=True))
            await surely(self._keeper.settled(LAST_STATE))
            self._log.remark("warning", say("told to stop: the processes of the task were ended"))
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
                error = say("timed out after {limit}", limit=limit)
                return Outcome(end=AttemptEnd.TIMEOUT, error=error, code=why)
            case _Why.STALLED:
                limit = format_duration_go(self._stall_after)
                return _failed(
                    why, say("stalled: the task showed no sign of life for {limit}", limit=limit)
                )
            case _Why.LOST:
                return _failed(why, say("another node has this task now"))
        if not child.answered.done():
            return _failed("crashed", process_ended(child.status))
        answer = child.answered.result()
        await self._keeper.finished()
        if self._keeper.lost.done():
            return await self._outcome(child, _Why.LOST)
        if not answer.code:
            return Outcome(end=AttemptEnd.SUCCEEDED, result=answer.result)
        if answer.trace:
            self._log.remark("error", self._log.shown(answer.trace, keep_end=True))
        return _failed(answer.code, self._log.shown(answer.error, ERROR_LIMIT))

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
            case Beat():
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
        hint = nearest(target.source, list(sources.by_id))
        message = say(
            "there is no source {source!r} in the configuration file", source=target.source
        )
    else:
        hint = nearest(target.collection, [each.name for each in source.collections])
        message = say(
            "there is no collection of {source} {collection!r} in the configuration file",
            source=source.id,
            collection=target.collection,
        )
    return say("{message}; {hint}", message=message, hint=hint) if hint else message
