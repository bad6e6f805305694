"""The context of a task: facts about its run, its logger, cancellation, completion."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from chimes.clock import SystemClock
from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.run import Completion, Run
from chimes.targets.python.outcomes import Cancel

#: (level, message): one line of the run's log.
Line = Callable[[str, str], None]

CLOCK = SystemClock()
_LOCK = threading.Lock()
#: Characters that are buffered of an unterminated line; more than a log line stores.
MAX_PARTIAL_LINE = 64 * 1024

_LEVELS = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)


class RunInfo(Struct, frozen=True, kw_only=True):
    """The part of a context that can be sent to another process."""

    run_id: str
    task: str
    attempt: int
    schedule_id: str | None
    schedule_name: str
    slot: datetime | None
    parent_id: str | None
    #: Store time.
    started_at: datetime
    deadline: datetime
    #: The deadline on this machine's monotonic clock, which all of its processes share.
    ends: float

    def to_json(self) -> dict[str, object]:
        return {
            "run_id": self.run_id,
            "task": self.task,
            "attempt": self.attempt,
            "schedule_id": self.schedule_id,
            "schedule_name": self.schedule_name,
            "slot": None if self.slot is None else self.slot.isoformat(),
            "parent_id": self.parent_id,
            "started_at": self.started_at.isoformat(),
            "deadline": self.deadline.isoformat(),
            "ends": self.ends,
        }

    @classmethod
    def from_json(cls, info: Mapping[str, object]) -> RunInfo:
        schedule_id, slot, parent_id = info["schedule_id"], info["slot"], info["parent_id"]
        return cls(
            run_id=str(info["run_id"]),
            task=str(info["task"]),
            attempt=int(str(info["attempt"])),
            schedule_id=None if schedule_id is None else str(schedule_id),
            schedule_name=str(info["schedule_name"]),
            slot=None if slot is None else datetime.fromisoformat(str(slot)),
            parent_id=None if parent_id is None else str(parent_id),
            started_at=datetime.fromisoformat(str(info["started_at"])),
            deadline=datetime.fromisoformat(str(info["deadline"])),
            ends=float(str(info["ends"])),
        )


def run_info_of(
    run: Run, task: str, *, started_at: datetime, began: float, timeout: timedelta
) -> RunInfo:
    """`began` on the monotonic clock is the same instant as `started_at` on the store's clock."""
    return RunInfo(
        run_id=run.id,
        task=task,
        attempt=run.attempt,
        schedule_id=run.schedule_id,
        schedule_name=run.schedule_name,
        slot=run.slot,
        parent_id=run.parent_id,
        started_at=started_at,
        deadline=started_at + timeout,
        ends=began + timeout.total_seconds(),
    )


class TransactionalCompletion(Protocol):
    """Completes the run in the task's own transaction."""

    #: The completion that was written; None: not yet.
    recorded: Completion | None

    def complete(self, connection: object, result: object) -> Awaitable[None]:
        """A blocking connection writes before this returns, an async one when it is awaited."""


class Context:
    """The attempt that a task function runs in. Thread-safe."""

    def __init__(
        self,
        info: RunInfo,
        line: Line,
        completion_factory: Callable[[], TransactionalCompletion] | None = None,
    ) -> None:
        self._info = info
        self._line = line
        self._completion_factory = completion_factory
        #: Created by `complete_in`.
        self.completion: TransactionalCompletion | None = None
        self._canceled = False
        #: Created by the first `wait_canceled`; most tasks never call it.
        self._stop_event: threading.Event | None = None
        self._logger: logging.Logger | None = None
        #: Printed text since the last newline, by level.
        self._partial_lines: dict[str, str] = {}

    @property
    def info(self) -> RunInfo:
        return self._info

    @property
    def run_id(self) -> str:
        return self._info.run_id

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of the run; lets a receiver detect repeated calls."""
        return self._info.run_id

    @property
    def task(self) -> str:
        return self._info.task

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self._info.attempt

    @property
    def schedule_id(self) -> str | None:
        return self._info.schedule_id

    @property
    def schedule_name(self) -> str:
        return self._info.schedule_name

    @property
    def slot(self) -> datetime | None:
        """The planned instant; None for a manual run."""
        return self._info.slot

    @property
    def parent_id(self) -> str | None:
        """The run of the flow that this run is a step of, if any."""
        return self._info.parent_id

    @property
    def started_at(self) -> datetime:
        """Start of this attempt, by the store's clock."""
        return self._info.started_at

    @property
    def deadline(self) -> datetime:
        """When this attempt is stopped, by the store's clock."""
        return self._info.deadline

    def remaining(self) -> float:
        """Seconds until the deadline, never below 0."""
        return max(0.0, self._info.ends - CLOCK.monotonic())

    @property
    def logger(self) -> logging.Logger:
        """Writes to the run's log, not to the node's log."""
        if self._logger is None:
            # Not `getLogger`: a named logger would be shared by all runs of the task.
            logger = logging.Logger(f"chimes.task.{self.task}", logging.DEBUG)  # noqa: LOG001
            logger.addHandler(LineHandler(self._line))
            self._logger = logger
        return self._logger

    @property
    def canceled(self) -> bool:
        """Whether this attempt must stop: canceled, past its deadline, or the node is draining."""
        return self._canceled or self.remaining() <= 0

    def check_canceled(self) -> None:
        """Raises `Cancel` if the attempt must stop; for loops of sync code."""
        if self.canceled:
            raise Cancel(_("the attempt was canceled"))

    def wait_canceled(self, seconds: float) -> bool:
        """Sleeps until the time is over or the attempt must stop; returns whether it must. For sync
        code."""
        with _LOCK:
            self._stop_event = self._stop_event or threading.Event()
        # The event is created before the flag is read, and `cancel` sets the flag before it reads
        # the event, so that no cancellation is missed.
        if not self._canceled:
            self._stop_event.wait(min(seconds, self.remaining()))
        return self.canceled

    def complete_in(self, connection: object, result: object = None) -> Awaitable[None]:
        """Completes the run as succeeded in the caller's transaction on the store's database: the
        task's effect and the completion are one commit, so the effect happens exactly once. Call
        it last before the commit. Raises `Conflict` if another attempt owns the run. Await it
        with an async connection; a blocking connection writes before it returns."""
        if self._completion_factory is None:
            raise InvalidInput(
                _(
                    "only inline and thread tasks of an application on a SQL store can complete "
                    "their run in a transaction"
                ),
                field="connection",
                code="cannot_join",
            )
        if self.completion is None:
            self.completion = self._completion_factory()
        return self.completion.complete(connection, result)

    def write_output(self, level: str, text: str) -> None:
        """Adds printed text to the run's log, line by line."""
        with _LOCK:
            *lines, rest = (self._partial_lines.get(level, "") + text).split("\n")
            self._partial_lines[level] = rest[-MAX_PARTIAL_LINE:]
        for line in lines:
            self._line(level, line)

    def flush_output(self) -> None:
        """Logs the last line, which may lack a newline."""
        if not self._partial_lines:
            return
        unfinished, self._partial_lines = self._partial_lines, {}
        for level, rest in unfinished.items():
            if rest:
                self._line(level, rest)

    def cancel(self) -> None:
        """Sets the flag that the task polls; called by the worker."""
        self._canceled = True
        if self._stop_event is not None:
            self._stop_event.set()


class LineHandler(logging.Handler):
    """Writes log records to a run's log."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._line(level_of(record.levelno), self.format(record))
        except Exception:
            self.handleError(record)


def level_of(number: int) -> str:
    return next((name for least, name in _LEVELS if number >= least), "debug")


_current: ContextVar[Context | None] = ContextVar("chimes_task_context", default=None)


def find_context() -> Context | None:
    """The context of the current task, if any."""
    return _current.get()


def current_context() -> Context:
    """The context of the current task; raises `LookupError` outside of a task."""
    context = _current.get()
    if context is None:
        raise LookupError("no task is running in this context")
    return context


def enter(context: Context) -> Token[Context | None]:
    """Makes it the current context of the caller's asyncio task, thread or process."""
    return _current.set(context)


def leave(token: Token[Context | None]) -> None:
    _current.reset(token)


@contextmanager
def use_context(context: Context) -> Iterator[None]:
    token = enter(context)
    try:
        yield
    finally:
        leave(token)
