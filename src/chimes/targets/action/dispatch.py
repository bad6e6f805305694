"""One action on its way, with all that carrying it out needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.model.target import ActionTarget
from chimes.redaction import Redactor
from chimes.targets.action.answer import Record
from chimes.targets.action.config import ActionConfig
from chimes.targets.base import Call


@dataclass(frozen=True, kw_only=True, slots=True)
class Dispatch:
    call: Call
    target: ActionTarget
    config: ActionConfig
    user_agent: str
    record: Record
    redactor: Redactor
    #: Monotonic seconds.
    clock: Callable[[], float]
    #: When the attempt began, by that clock.
    began: float

    def log(self, level: str, message: str) -> None:
        clean = self.redactor.text(message)
        self.call.log(level, message if clean == message else clean)

    def now(self) -> datetime:
        """The store's time, near enough to read a Retry-After against."""
        return self.call.triggered_at + timedelta(seconds=self.clock() - self.began)
