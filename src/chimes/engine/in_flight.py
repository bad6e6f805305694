"""The claimed runs of this process, and the permits that limit how many execute at once.

A `Pool` shares the permits of its `Capacity` between runners. An `InFlightRun` is one claimed run:
its permit, its attempt, its log, and why it has to stop.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from chimes.i18n import _
from chimes.model.ids import RunId
from chimes.model.run import LogEntry, Run
from chimes.services.secrets import NO_SECRETS
from chimes.targets.base import TargetRunner, Unwritten

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from chimes.engine.flow_steps import FlowRunSteps
    from chimes.engine.limits import Deferral, SharedLimit


# --- permits --------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Runners that share permits."""

    #: The name of its duty in log lines.
    name: str
    runners: tuple[TargetRunner, ...]
    permits: int

    @property
    def capabilities(self) -> frozenset[str]:
        """The target requirements that its runners can execute."""
        if len(self.runners) == 1:
            return self.runners[0].capabilities
        return frozenset[str]().union(*(runner.capabilities for runner in self.runners))


def build_pools(runners: Iterable[TargetRunner], *, workers: int) -> tuple[Pool, ...]:
    """The first pool also takes runs as their schedules fire.

    Runners with a limit of their own get their own pool. Flows need it: they only wait for their
    steps, and in a shared pool they would hold the permits that the steps wait for."""
    runners = tuple(runners)
    shared = tuple(runner for runner in runners if runner.permits is None)
    return (
        Pool(name="worker", runners=shared, permits=workers),
        *(
            Pool(name=f"{runner.kind} worker", runners=(runner,), permits=runner.permits)
            for runner in runners
            if runner.permits
        ),
    )


#: Seconds for which a returned requirement is not claimed again; longer than other nodes need to
#: poll the queue.
YIELD_SECONDS = 5.0


@dataclass(slots=True)
class Reservation:
    """Permits reserved during a claim; the caller sets `used` to the number of claimed runs."""

    free: int
    used: int = 0


class Capacity:
    """The permits of one pool."""

    def __init__(self, pool: Pool, reconcile: asyncio.Event) -> None:
        """`reconcile` is set if the answer to a claim was lost: the store may have claimed runs for
        this node that it has not received."""
        self.pool = pool
        self.total = pool.permits
        self._used = 0
        self._reserved = 0
        #: Set while a permit is free.
        self.available = asyncio.Event()
        #: The queue may have runs that are older than what fires now: new runs are then queued by
        #: rank instead of overtaking them.
        self.backlog = True
        #: Number of claims, and whether the answer to one may have been lost.
        self.claims = 0
        self.claim_in_doubt = False
        self._reconcile = reconcile
        #: Requirements that are left to other nodes, by how many runs were returned.
        self._yielded: Counter[str] = Counter()
        self._update()

    @property
    def capabilities(self) -> frozenset[str]:
        """What may be claimed now."""
        capabilities = self.pool.capabilities
        return capabilities.difference(self._yielded) if self._yielded else capabilities

    def yield_requirement(self, requirement: str) -> None:
        """Lets other nodes claim first: otherwise a returned run would be claimed here again."""
        self._yielded[requirement] += 1
        asyncio.get_running_loop().call_later(YIELD_SECONDS, self._end_yield, requirement)

    def _end_yield(self, requirement: str) -> None:
        self._yielded[requirement] -= 1
        if not self._yielded[requirement]:
            del self._yielded[requirement]

    @property
    def free(self) -> int:
        return max(0, self.total - self._used - self._reserved)

    @property
    def is_claiming(self) -> bool:
        """Whether a claim is in progress."""
        return self._reserved > 0

    @contextmanager
    def reserve(self, limit: int | None = None) -> Iterator[Reservation]:
        """Reserves all free permits, or up to `limit`, so that concurrent requests never return
        more runs than fit."""
        reservation = Reservation(self.free if limit is None else min(limit, self.free))
        self._reserved += reservation.free
        self.claims += 1
        self._update()
        try:
            yield reservation
        except BaseException:
            self.claim_in_doubt = True
            self._reconcile.set()
            raise
        finally:
            self._reserved -= reservation.free
            self._used += reservation.used
            self._update()

    def release(self) -> None:
        self._used -= 1
        if not self.available.is_set():
            self._update()

    def _update(self) -> None:
        if self.free:
            self.available.set()
        else:
            self.available.clear()


# --- runs -----------------------------------------------------------------------------------------
#: A claim: the run and the fence under which this node owns it.
Claim = tuple[RunId, int]


class StopReason(StrEnum):
    """Why an attempt is stopped before its target has returned."""

    CANCEL = "canceled"
    TIMEOUT = "timeout"
    #: Another node owns the run, or may soon.
    LOST = "ownership lost"
    DRAIN = "shutdown grace exceeded"


class InFlightRun:
    """A claimed run of this process, until its completion is stored."""

    __slots__ = (
        "_now",
        "_on_first_log",
        "cancel_reason",
        "capacity",
        "claim",
        "deferral",
        "duration",
        "ended",
        "finished",
        "finishes_with_batch",
        "has_permit",
        "limits",
        "log",
        "prefetched",
        "run",
        "secrets",
        "self_completing",
        "span",
        "started",
        "started_at",
        "started_monotonic",
        "steps",
        "stop",
        "stuck_timer",
        "task",
    )

    def __init__(
        self,
        run: Run,
        capacity: Capacity,
        on_first_log: Callable[[InFlightRun], None],
        now: Callable[[], datetime],
    ) -> None:
        """`now`: the store's time, accurate enough for a log line."""
        self.run = run
        self.claim: Claim = run.id, run.fence
        #: The pool whose permit it uses, and whether it still has that permit.
        self.capacity = capacity
        self.has_permit = True
        #: It waits in the prefetch queue for its planned time.
        self.prefetched = False
        #: It was prefetched: its outcome waits until the rest of its batch has started.
        self.finishes_with_batch = False
        #: The target was called, so an effect may have happened.
        self.started = False
        #: On the monotonic clock; infinite until the start, so that no deadline has passed.
        self.started_monotonic = math.inf
        self.started_at: datetime | None = None
        #: When the target returned, on the monotonic clock.
        self.ended: float | None = None
        self.duration = 0.0
        #: The attempt is over for the executor; at most its completion has yet to be stored.
        self.finished = False
        #: The target completes the run in its own transaction: finding the run completed in the
        #: store is then no reason to stop it.
        self.self_completing = False
        self.stop: StopReason | None = None
        self.cancel_reason = ""
        #: Named secrets that the target uses; masked in its log and its outcome.
        self.secrets = NO_SECRETS
        #: The named limits that it has entered, and the one that it waits for in the queue.
        self.limits: tuple[SharedLimit, ...] = ()
        self.deferral: Deferral | None = None
        #: Of a flow, once it is executed.
        self.steps: FlowRunSteps | None = None
        self.task: asyncio.Task[None] | None = None
        #: Where the process traces.
        self.span: Span | None = None
        self.stuck_timer: asyncio.TimerHandle | None = None
        #: None until the first line.
        self.log: AttemptLog | None = None
        self._on_first_log = on_first_log
        self._now = now

    def add_log(self, level: str, message: str) -> None:
        if self.finished:
            return
        if self.log is None:
            self.log = AttemptLog(self.run.target.kind)
            self._on_first_log(self)
        self.log.add(self._now(), level, self.secrets.mask(message))

    def is_canceled(self) -> bool:
        return self.stop is StopReason.CANCEL

    def set_self_completing(self) -> None:
        self.self_completing = True

    @property
    def pending_logs(self) -> tuple[LogEntry, ...]:
        """The lines that the store has not confirmed."""
        return () if self.log is None else tuple(self.log.pending)

    def unwritten_logs(self) -> Unwritten:
        """For a target that completes its run itself, from any thread. A line that is confirmed
        in between is in both places, never in none."""
        if self.log is None:
            return Unwritten()
        entries = tuple(self.log.pending)
        return Unwritten(entries=entries, last=(self.log.lines_before or 0) + self.log.written)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLimits:
    """How much of an attempt's log is stored, whatever its target. Targets apply lower limits to
    what they forward."""

    lines: int
    characters: int


DEFAULT_LOG_LIMITS = LogLimits(lines=1000, characters=4 * 1024 * 1024)
#: By target kind: the output of commands, syncs and tasks is what their users look for.
LOG_LIMITS_BY_KIND = {
    "sync": LogLimits(lines=10_100, characters=5 * 1024 * 1024),
    "command": LogLimits(lines=10_100, characters=5 * 1024 * 1024),
    "task": LogLimits(lines=50_100, characters=6 * 1024 * 1024),
}
_TICK = timedelta(microseconds=1)


class AttemptLog:
    """Log lines of one attempt until the store has confirmed them. The first `unconfirmed` ones
    were sent without an answer: the store may have them or not."""

    __slots__ = (
        "_characters",
        "_last",
        "_limits",
        "_lines",
        "closed",
        "lines_before",
        "pending",
        "sending",
        "unconfirmed",
        "written",
    )

    def __init__(self, kind: str) -> None:
        self._limits = LOG_LIMITS_BY_KIND.get(kind, DEFAULT_LOG_LIMITS)
        self._lines = 0
        self._characters = 0
        self._last: datetime | None = None
        self.pending: list[LogEntry] = []
        self.unconfirmed = 0
        self.sending = False
        #: How many lines the store has confirmed.
        self.written = 0
        #: How many lines earlier attempts wrote; None: not yet read.
        self.lines_before: int | None = None
        #: The store refuses lines sent before the completion.
        self.closed = False

    @property
    def is_settled(self) -> bool:
        """Whether no line is in doubt."""
        return not self.sending and not self.unconfirmed

    def add(self, at: datetime, level: str, message: str) -> None:
        limits = self._limits
        if self._lines > limits.lines:
            return
        # Strictly increasing times identify the lines.
        if self._last is not None and at <= self._last:
            at = self._last + _TICK
        self._last = at
        self._lines += 1
        self._characters += len(message)
        if self._lines > limits.lines or self._characters > limits.characters:
            self._lines = limits.lines + 1
            level = "warning"
            message = _(
                "log limit of {lines} lines or {characters} characters reached: "
                "the rest of this attempt's log is omitted",
                lines=limits.lines,
                characters=limits.characters,
            )
        self.pending.append(LogEntry(at=at, level=level, message=str(message)))

    def mark_sent(self, batch: Sequence[LogEntry]) -> None:
        self.unconfirmed = len(batch)

    def confirm(self) -> None:
        """The store has the lines that were sent."""
        self.written += self.unconfirmed
        del self.pending[: self.unconfirmed]
        self.unconfirmed = 0

    def discard_sent(self) -> None:
        """The store does not have the lines that were sent: they stay pending."""
        self.unconfirmed = 0
