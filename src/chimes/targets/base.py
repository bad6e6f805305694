"""The port of a target: executes one attempt and returns its outcome."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol

from msgspec import Struct

from chimes.i18n import Message, _, map_text
from chimes.model.flow_graph import FlowGraph
from chimes.model.ids import RunId
from chimes.model.recipient import Recipient
from chimes.model.run import AttemptEnd, LogEntry, Outcome, Run
from chimes.redaction import PLACEHOLDER_MARK, Redactor
from chimes.triggers import format_moment


class Steps(Protocol):
    """The child runs of a flow. Methods wait while the store is unavailable instead of raising."""

    def now(self) -> datetime:
        """The store's time, precise enough for a new row."""

    async def children(self) -> Sequence[Run]:
        """All child runs."""

    async def children_of(self, flow: RunId) -> Sequence[Run]:
        """All child runs of another run."""

    async def publish(self, graph: FlowGraph) -> None:
        """Stores the steps of the flow, for pictures of its runs."""

    async def add(self, runs: Sequence[Run]) -> Sequence[Run]:
        """Adds runs and returns the stored rows; an existing row stays unchanged."""

    async def ended(self, until: datetime | None = None) -> Sequence[Run]:
        """Waits until at least one child run ends, or until that time; returns the completed
        ones."""

    async def begin_wait(self, run: Run, recipients: Sequence[Recipient]) -> Run:
        """Notifies the people who may decide about an approval, and ends a wait for an event that
        has arrived already. Harmless if repeated. Returns the stored row."""

    async def expire_wait(self, run_id: RunId) -> Run:
        """Ends a wait whose deadline has passed; returns the stored row."""


class State(Protocol):
    """The checkpoint of a target, as JSON text. Methods wait while the store is unavailable."""

    async def read(self) -> str | None: ...

    async def read_callback(self) -> str | None:
        """The callback result that a remote service sent for this run, if any."""

    async def save(self, value: str) -> bool:
        """Stores the checkpoint at once. False: nothing was stored, because another node has
        claimed the run."""


class Unwritten(Struct, frozen=True, kw_only=True):
    """Log lines of an attempt that are not confirmed by the store."""

    entries: tuple[LogEntry, ...] = ()
    #: Number of the last confirmed line of the run's log.
    last: int = 0


class Call(Struct, frozen=True, kw_only=True):
    """One attempt. The run carries target, policy, attempt number and fence."""

    run: Run
    #: Start of the attempt by the store's clock; outgoing timestamps use it, so that a node with a
    #: wrong clock does not look like a replay.
    triggered_at: datetime
    #: Adds a line to the run's log: (level, message).
    log: Callable[[str, str], None]
    #: The named secrets of the owner that the target uses. The engine masks their values in the
    #: outcome and in the log.
    secrets: Mapping[str, str] = {}
    #: Resumable targets only.
    steps: Steps | None = None
    #: Targets with a checkpoint only.
    state: State | None = None
    #: Whether a stopped attempt is canceled for good and will not be taken over.
    canceled: Callable[[], bool] = lambda: False
    #: Announces that the target ends the run in its own transaction; live log writes stop.
    completing: Callable[[], None] | None = None
    #: The log lines that such a transaction must write.
    unwritten: Callable[[], Unwritten] = Unwritten


#: `{{name}}`, or `{{secret.NAME}}`. Text is replaced, nothing is evaluated.
PLACEHOLDER = re.compile(r"\{\{ *([a-z_]+|secret\.[A-Za-z0-9_-]+) *\}\}")
#: Runs that fire together have the same slot.
moment_text = lru_cache(maxsize=64)(format_moment)


def run_facts(run: Run, triggered_at: datetime) -> dict[str, str]:
    """The values of the placeholders, by name."""
    planned = moment_text(run.slot or run.planned_at)
    schedule_id = run.schedule_id or ""
    return {
        "run_id": run.id,
        "job_id": schedule_id,
        "schedule_id": schedule_id,
        "schedule_name": run.schedule_name,
        "slot": planned,
        "scheduled_at": planned,
        "triggered_at": format_moment(triggered_at),
        "attempt": str(run.attempt),
        "fence": str(run.fence),
    } | event_facts(run)


#: Name of the payload in placeholders, parameters of tasks and inputs of flows.
EVENT = "event"


def event_facts(run: Run) -> dict[str, str]:
    """The placeholders of a run that an event started."""
    cause = run.definition.cause
    if cause is None:
        return {}
    return {EVENT: cause.payload, "event_id": cause.delivery_id, "event_source": cause.source}


def event_value(run: Run) -> object:
    """The payload of the event: the JSON value, or the text if it is not JSON."""
    cause = run.definition.cause
    if cause is None:
        return None
    try:
        return json.loads(cause.payload)
    except (ValueError, RecursionError):
        return cause.payload


def fill_event(text: str, run: Run) -> str:
    """A text in which nothing else is filled, with the placeholders of the event."""
    return fill_placeholders(text, event_facts(run))


def secret_facts(secrets: Mapping[str, str]) -> dict[str, str]:
    """Named secrets, as the placeholders name them."""
    return {f"secret.{name}": value for name, value in secrets.items()}


def fill_placeholders(text: str, facts: Mapping[str, str]) -> str:
    """Fills known names; others stay unchanged. For a place with its own syntax, such as a URL,
    `chimes.targets.http.request` escapes the values."""
    if PLACEHOLDER_MARK not in text:
        return text
    return PLACEHOLDER.sub(lambda found: facts.get(found[1], found[0]), text)


class WrongNode(Exception):
    """Another node must execute this run. Raised before any effect."""


class TargetRunner(Protocol):
    kind: str
    #: The target only manages child runs: an attempt may be stopped at any time and resumed by
    #: another node, and it uses no worker permit.
    resumable: bool

    @property
    def permits(self) -> int | None:
        """Size of its own pool of permits; None: shares the worker permits (`CHIMES_WORKERS`)."""

    @property
    def capabilities(self) -> frozenset[str]:
        """The requirements that it can execute now; read at every claim."""

    async def open(self) -> None:
        """Opens connection pools; called once on the worker's event loop."""

    async def close(self) -> None: ...

    async def execute(self, call: Call) -> Outcome:
        """Executes one attempt within `call.run.policy.timeout` in total. Remote failures become
        outcomes, never exceptions; asyncio cancellation means stop now. WrongNode before any
        effect releases the run, and this node skips its requirement for a while.

        A runner whose attempts often end without waiting may have a method `begin` too, which is
        called instead and returns an outcome, or an awaitable of what is left. One whose
        configuration names secrets has a method `secret_names`, which returns those that an
        attempt of a target needs besides its own. One that needs more than a few seconds to stop
        has a method `stop_seconds`, which returns how many a target may take. A canceled attempt
        may return an outcome instead of raising, if `call.canceled()`."""


class TargetError(Exception):
    """Ends an attempt without success."""

    def __init__(
        self,
        code: str,
        text: str,
        *,
        end: AttemptEnd = AttemptEnd.FAILED,
        retryable: bool = False,
        retry_after: timedelta | None = None,
        status: int = 0,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.end = end
        self.retryable = retryable
        self.retry_after = retry_after
        #: HTTP status; 0: none.
        self.status = status

    def outcome(self, result: dict[str, object], redactor: Redactor) -> Outcome:
        return Outcome(
            end=self.end,
            retryable=self.retryable,
            result=result,
            error=map_text(self.text, redactor.text),
            code=self.code,
            retry_after=self.retry_after,
        )


NO_PIPELINE = _(
    "no node has a pipeline for prompts: set CHIMES_AGENT_PIPELINE (openai or runs) and "
    "CHIMES_AGENT_URL"
)
NO_ACTION_SERVICE = _("no node knows an action service: set CHIMES_ACTION_URL (action_url)")


class NotConfigured:
    """Fails runs of a kind that no node is configured for and names the missing setting."""

    resumable = False
    permits = None

    def __init__(
        self, kind: str, code: str, missing: Message, elsewhere: Callable[[], Awaitable[bool]]
    ) -> None:
        """`elsewhere`: whether another node is configured for it."""
        self.kind = kind
        self.capabilities = frozenset({kind})
        self._code = code
        self._missing = missing
        self._elsewhere = elsewhere

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def execute(self, call: Call) -> Outcome:
        if await self._elsewhere():
            raise WrongNode
        call.log("error", self._missing)
        return Outcome(end=AttemptEnd.FAILED, error=self._missing, code=self._code)
