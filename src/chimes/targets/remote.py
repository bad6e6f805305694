"""Attempts that a remote service executes: one deadline, polling, cancellation over there."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.i18n import map_text
from chimes.model import replace
from chimes.model.run import AttemptEnd, Outcome
from chimes.redaction import Redactor
from chimes.targets.base import Call, TargetError
from chimes.targets.http.runner import outcome_of_timeout

#: Seconds for canceling the remote execution of an attempt that has ended here.
CANCEL_SECONDS = 5.0


@dataclass(kw_only=True, slots=True)
class PollDelay:
    """Growing pause between two polls of a remote execution, in seconds."""

    seconds: float
    longest: float
    growth: float

    def next(self) -> float:
        pause, self.seconds = self.seconds, min(self.seconds * self.growth, self.longest)
        return pause


class RemoteAttempt(ABC):
    """One attempt that a remote service executes. Subclasses know the service."""

    def __init__(self, call: Call, redactor: Redactor) -> None:
        self.call = call
        self.redactor = redactor
        #: Monotonic seconds.
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.began = self.clock()

    @property
    @abstractmethod
    def accepted(self) -> bool:
        """Whether the service has begun, so that a retry would execute the work twice."""

    @property
    @abstractmethod
    def cancelable(self) -> bool:
        """Whether there is a remote execution to cancel."""

    @abstractmethod
    async def execute(self) -> None:
        """Returns when the remote execution has succeeded; TargetError otherwise."""

    @abstractmethod
    async def cancel(self) -> None: ...

    @abstractmethod
    def result(self) -> dict[str, object]:
        """What is known about the execution so far."""

    def log(self, level: str, message: str) -> None:
        self.call.log(level, map_text(message, self.redactor.text))

    def now(self) -> datetime:
        """The store's time, precise enough for Retry-After."""
        return self.call.triggered_at + timedelta(seconds=self.clock() - self.began)


class RemoteExecutor:
    """Executes attempts and cancels their remote executions in the background."""

    def __init__(self) -> None:
        self._cancels: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        if self._cancels:
            await asyncio.wait(tuple(self._cancels))

    async def execute(self, attempt: RemoteAttempt) -> Outcome:
        timeout = attempt.call.run.policy.timeout
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await attempt.execute()
        except TargetError as error:
            return error.outcome(attempt.result(), attempt.redactor)
        except TimeoutError:
            self._cancel(attempt)
            outcome = outcome_of_timeout(timeout, attempt.result())
            return replace(outcome, retryable=not attempt.accepted)
        except asyncio.CancelledError:
            # A draining node leaves the remote execution to the node that takes over.
            if attempt.call.canceled():
                self._cancel(attempt)
            raise
        return Outcome(end=AttemptEnd.SUCCEEDED, result=attempt.result())

    def _cancel(self, attempt: RemoteAttempt) -> None:
        if not attempt.cancelable:
            return
        task = asyncio.create_task(_cancel(attempt))
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)


async def _cancel(attempt: RemoteAttempt) -> None:
    """Best effort: a running execution may not be cancelable."""
    with contextlib.suppress(TargetError, TimeoutError):
        async with asyncio.timeout(CANCEL_SECONDS):
            await attempt.cancel()
