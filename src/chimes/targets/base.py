"""The port of a target: carry out one attempt, say what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from chimes.i18n import Message, _
from chimes.model.run import AttemptEnd, LogEntry, Outcome, Run


class Steps(Protocol):
    """The child runs of one run, for targets that carry out nothing themselves. None of these
    raises for a store that cannot answer: they wait until it can."""

    def now(self) -> datetime:
        """The store's time, near enough for a new row."""

    async def children(self) -> Sequence[Run]:
        """All that there are."""

    async def add(self, runs: Sequence[Run]) -> Sequence[Run]:
        """The rows as they are now: one that was there before stays as it was."""

    async def ended(self) -> Sequence[Run]:
        """Waits until at least one that was not over has ended; those that have."""


class State(Protocol):
    """What a target has kept for the next run, as JSON text. Neither verb raises for a store that
    cannot answer: they wait until it can."""

    async def read(self) -> str | None: ...

    async def heard(self) -> str | None:
        """What the other side has said about this run by itself, for a target that is called
        back."""

    async def keep(self, value: str) -> bool:
        """At once, not only if the run ends well. False: the run belongs to somebody else by now,
        and nothing was kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unwritten:
    """The lines of an attempt that the store is not known to have."""

    entries: tuple[LogEntry, ...] = ()
    #: The number of the last line of the run's log that it is known to have.
    last: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One attempt. The run carries target, policy, attempt number and fence."""

    run: Run
    #: Store time at which the attempt begins; outgoing timestamps are made from it (F50).
    triggered_at: datetime
    #: Adds a line to the run's log: (level, message).
    log: Callable[[str, str], None]
    #: For a resumable target only.
    steps: Steps | None = None
    #: For a target that keeps state between runs only.
    state: State | None = None
    #: Whether an attempt that is told to stop is canceled for good: nobody takes it up again.
    canceled: Callable[[], bool] = lambda: False
    #: Says that the target is about to end the run in a transaction of its own: no line of its
    #: log is written ahead of it any more.
    completing: Callable[[], None] | None = None
    #: What such a transaction has to write of the log.
    unwritten: Callable[[], Unwritten] = Unwritten


class NotHere(Exception):
    """Only another node can carry the run out, and there is one. Nothing has happened."""


class TargetRunner(Protocol):
    kind: str
    #: It has no effect of its own, only child runs: an attempt may be stopped at any moment and
    #: taken up by another node, and it takes no place away from what works itself.
    resumable: bool

    @property
    def places(self) -> int | None:
        """How many of its runs a node has in hand at once, apart from all others; None: it shares
        the node's ordinary places (`CHIMES_WORKERS`)."""

    @property
    def offers(self) -> frozenset[str]:
        """The `target.needs` that it can carry out now; asked for at every claim."""

    async def open(self) -> None:
        """Make pools and the like; called once, on the worker's event loop."""

    async def close(self) -> None: ...

    async def execute(self, call: Call) -> Outcome:
        """One attempt, within `call.run.policy.timeout` as a total deadline. Never raises for
        what the other side does; being cancelled (asyncio) means: stop now. NotHere before any
        effect: the run is given back, and this node leaves its kind to others for a while."""


# @@ Runs of a kind that no node is set up for: they fail and say what is missing, instead of
# waiting for ever.

NO_PIPELINE = _(
    "no node has a pipeline for prompts: set CHIMES_AGENT_PIPELINE (openai or runs) and "
    "CHIMES_AGENT_URL"
)
NO_ACTION_SERVICE = _("no node knows an action service: set CHIMES_ACTION_URL (action_url)")


class NotConfigured:
    resumable = False
    places = None

    def __init__(
        self, kind: str, code: str, missing: Message, elsewhere: Callable[[], Awaitable[bool]]
    ) -> None:
        """`elsewhere`: whether another node is set up for it."""
        self.kind = kind
        self.offers = frozenset({kind})
        self._code = code
        self._missing = missing
        self._elsewhere = elsewhere

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def execute(self, call: Call) -> Outcome:
        if await self._elsewhere():
            raise NotHere
        call.log("error", self._missing)
        return Outcome(end=AttemptEnd.FAILED, error=self._missing, code=self._code)
