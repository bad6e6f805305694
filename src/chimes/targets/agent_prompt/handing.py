"""One prompt on its way, with all that its pipeline needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.model.target import AgentTarget
from chimes.redaction import Redactor
from chimes.targets.agent_prompt.answer import Answer
from chimes.targets.agent_prompt.config import AgentConfig
from chimes.targets.base import Call


@dataclass(frozen=True, kw_only=True, slots=True)
class Handing:
    call: Call
    target: AgentTarget
    config: AgentConfig
    answer: Answer
    redactor: Redactor
    #: Monotonic seconds.
    clock: Callable[[], float]
    #: When the attempt began, by that clock.
    began: float

    def log(self, level: str, message: str) -> None:
        self.call.log(level, self.redactor.text(message))

    def now(self) -> datetime:
        """The store's time, near enough to read a Retry-After against."""
        return self.call.triggered_at + timedelta(seconds=self.clock() - self.began)
