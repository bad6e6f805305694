"""What a task's function can know about its run, and say in it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from chimes.clock import SystemClock
from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.change import fast_constructor
from chimes.model.run import Completion, Run
from chimes.targets.python.outcomes import Cancel

#: (level, message): one line of the run's log.
Line = Callable[[str, str], None]

CLOCK = SystemClock()
_MAKING = threading.Lock()
#: Characters of a line that has no end; more than is kept of one.
_MOST_UNFINISHED = 64 * 1024

_LEVELS = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
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
    def from_json(cls, facts: Mapping[str, object]) -> Facts:
        schedule_id, slot, parent_id = facts["schedule_id"], facts["slot"], facts["parent_id"]
        return cls(
            run_id=str(facts["run_id"]),
            task=str(facts["task"]),
            attempt=int(str(facts["attempt"])),
            schedule_id=None if schedule_id is None else str(schedule_id),
            schedule_name=str(facts["schedule_name"]),
            slot=None if slot is None else datetime.fromisoformat(str(slot)),
            parent_id=None if parent_id is None else str(parent_id),
            started_at=datetime.fromisoformat(str(facts["started_at"])),
            deadline=datetime.fromisoformat(str(facts["deadline"])),
            ends=float(str(facts["ends"])),
        )


_make_facts = fast_constructor(Facts)


def facts_of(
    run: Run, task: str, *, started_at: datetime, began: float, timeout: timedelta
) -> Facts:
    """For an attempt that begins at `began` on the monotonic clock, which is `started_at` by the
    store's."""
    return _make_facts(
        run.id,
        task,
        run.attempt,
        run.schedule_id,
        run.schedule_name,
        run.slot,
        run.parent_id,
        started_at,
        started_at + timeout,  # deadline
        began + timeout.total_seconds(),  # ends
    )


class TransactionalCompletion(Protocol):
    """Ends the run in a transaction of the task's own."""

    #: The completion that was written; None: none yet.
    recorded: Completion | None

    def complete(self, connection: object, result: object) -> Awaitable[None]:
        """The work is done when it is called, for a connection that blocks, or when it is
        awaited."""


class Context:
    """One attempt, as its function sees it. Safe to use from any thread."""

    def __init__(
        self,
        facts: Facts,
        line: Line,
        completing: Callable[[], TransactionalCompletion] | None = None,
    ) -> None:
        self._facts = facts
        self._line = line
        self._completing = completing
        #: Made for a task that ends its run itself.
        self.completion: TransactionalCompletion | None = None
        self._canceled = False
        #: Made for the first who waits: most tasks never do.
        self._told: threading.Event | None = None
        self._logger: logging.Logger | None = None
        #: What was printed since the last end of a line, by level.
        self._unfinished: dict[str, str] = {}

    @property
    def facts(self) -> Facts:
        return self._facts

    @property
    def run_id(self) -> str:
        return self._facts.run_id

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of the run: what a receiver can tell a repetition by."""
        return self._facts.run_id

    @property
    def task(self) -> str:
        return self._facts.task

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self._facts.attempt

    @property
    def schedule_id(self) -> str | None:
        return self._facts.schedule_id

    @property
    def schedule_name(self) -> str:
        return self._facts.schedule_name

    @property
    def slot(self) -> datetime | None:
        """The planned instant; None for a run that no schedule planned."""
        return self._facts.slot

    @property
    def parent_id(self) -> str | None:
        """The run of the flow that this run is a step of."""
        return self._facts.parent_id

    @property
    def started_at(self) -> datetime:
        """Start of this attempt, by the store's clock."""
        return self._facts.started_at

    @property
    def deadline(self) -> datetime:
        """When this attempt is stopped, by the store's clock."""
        return self._facts.deadline

    def remaining(self) -> float:
        """Seconds until the deadline, never below 0."""
        return max(0.0, self._facts.ends - CLOCK.monotonic())

    @property
    def logger(self) -> logging.Logger:
        """Its records are lines of the run's log. They do not go to the node's own log."""
        if self._logger is None:
            # Of its own: a logger by name would be shared by all runs of the task.
            logger = logging.Logger(f"chimes.task.{self.task}", logging.DEBUG)  # noqa: LOG001
            logger.addHandler(LineHandler(self._line))
            self._logger = logger
        return self._logger

    @property
    def canceled(self) -> bool:
        """Whether this attempt is to stop: canceled, out of time, or the node is leaving."""
        return self._canceled or self.remaining() <= 0

    def check_canceled(self) -> None:
        """Raises `Cancel` once the attempt was told to stop; for loops of sync code."""
        if self.canceled:
            raise Cancel(_("the attempt was told to stop"))

    def wait_canceled(self, seconds: float) -> bool:
        """Sleeps, but not past being told to stop; whether it was. For sync code."""
        with _MAKING:
            self._told = self._told or threading.Event()
        # In this order, and the other way round in `cancel`: one of the two sees the other.
        if not self._canceled:
            self._told.wait(min(seconds, self.remaining()))
        return self.canceled

    def complete_in(self, connection: object, result: object = None) -> Awaitable[None]:
        """Ends the run as succeeded, with this result, in the caller's own transaction on the
        database of the store: the task's effect and the end of its run are one commit, so the
        effect happens exactly once (RELIABILITY 11). The last thing to do before the commit; it
        raises `Conflict` if another attempt owns the run by now. Awaited with an async
        connection; with one that blocks it is done when it returns."""
        if self._completing is None:
            raise InvalidInput(
                _(
                    "a run can be completed in a transaction only by a task of an application on a "
                    "SQL store, inline or in a thread"
                ),
                field="connection",
                code="cannot_join",
            )
        if self.completion is None:
            self.completion = self._completing()
        return self.completion.complete(connection, result)

    def printed(self, level: str, text: str) -> None:
        """Written by the task to a stream of its process; whole lines are lines of its log."""
        with _MAKING:
            *lines, rest = (self._unfinished.get(level, "") + text).split("\n")
            self._unfinished[level] = rest[-_MOST_UNFINISHED:]
        for line in lines:
            self._line(level, line)

    def finish_lines(self) -> None:
        """Nothing more is printed."""
        if not self._unfinished:
            return
        unfinished, self._unfinished = self._unfinished, {}
        for level, rest in unfinished.items():
            if rest:
                self._line(level, rest)

    def cancel(self) -> None:
        """Sets the flag. The worker's business: nothing is stopped by it alone."""
        self._canceled = True
        if self._told is not None:
            self._told.set()


class LineHandler(logging.Handler):
    """Log records as lines of a run's log."""

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


def context_here() -> Context | None:
    """The context of the task that this code runs in, if any."""
    return _current.get()


def current_context() -> Context:
    """The same; `LookupError` outside of one."""
    context = _current.get()
    if context is None:
        raise LookupError("no task is running here")
    return context


def enter(context: Context) -> Token[Context | None]:
    """Makes it current for the caller's own task, thread or process."""
    return _current.set(context)


def leave(token: Token[Context | None]) -> None:
    _current.reset(token)


@contextmanager
def entered(context: Context) -> Iterator[None]:
    token = enter(context)
    try:
        yield
    finally:
        leave(token)
