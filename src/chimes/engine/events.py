"""Events of the engine, and the listener that writes them as log lines.

Events are a closed set of values that are passed to every listener on the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from msgspec import Struct

from chimes.errors import StoreUnavailable
from chimes.model.ids import NodeId
from chimes.model.limit import Limit
from chimes.model.notification import Delivery, DeliveryState
from chimes.model.planning import FirePlan
from chimes.model.run import Completion, Run, RunStatus
from chimes.model.schedule import Schedule

logger = logging.getLogger("chimes.engine")


class SchedulesFired(Struct, frozen=True, kw_only=True):
    """One batch of due schedules became runs."""

    #: The plans of the schedules that moved on to their next slot.
    plans: tuple[FirePlan, ...]
    runs: tuple[Run, ...]
    seconds: float

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """As they are now; built on demand."""
        return tuple(plan.schedule for plan in self.plans)


class ScheduleBroken(Struct, frozen=True, kw_only=True):
    """A schedule could not be planned and was set aside; `last_error` says why."""

    schedule: Schedule


class RunStarted(Struct, frozen=True, kw_only=True):
    """An attempt calls its target now."""

    run: Run
    #: Seconds after the planned time.
    lag: float


class RunEnded(Struct, frozen=True, kw_only=True):
    run: Run
    #: Duration of the attempt.
    seconds: float


class RunRetrying(Struct, frozen=True, kw_only=True):
    """An attempt failed; the run waits for its next one."""

    run: Run
    seconds: float


class CompletionFenced(Struct, frozen=True, kw_only=True):
    """Ownership was lost before the completion arrived: the store refused it."""

    run: Run
    completion: Completion


class AttemptAbandoned(Struct, frozen=True, kw_only=True):
    """This node stopped an attempt without a completion: another attempt follows."""

    run: Run
    why: str


class RunReleased(Struct, frozen=True, kw_only=True):
    """This node returned a run that another one continues: an unfinished flow, or a target that
    only other nodes can execute."""

    run: Run


class RunDeferred(Struct, frozen=True, kw_only=True):
    """A run waits in the queue for a named limit."""

    run: Run
    seconds: float


class BreakerOpened(Struct, frozen=True, kw_only=True):
    """So many calls in a row failed that those under the limit pause."""

    limit: Limit
    failures: int


class BreakerClosed(Struct, frozen=True, kw_only=True):
    """A probe succeeded: calls under the limit go on."""

    limit: Limit


class TargetStuck(Struct, frozen=True, kw_only=True):
    """A target did not stop when canceled; its permit is released all the same."""

    run: Run


class TargetRaised(Struct, frozen=True, kw_only=True):
    """A target raised instead of returning an outcome."""

    run: Run
    error: Exception


class RunRescued(Struct, frozen=True, kw_only=True):
    """A run was taken from a node whose lease had ended; as it is now."""

    run: Run


class PauseEnded(Struct, frozen=True, kw_only=True):
    schedule: Schedule


class RunsPruned(Struct, frozen=True, kw_only=True):
    count: int


class DeliveryEnded(Struct, frozen=True, kw_only=True):
    """A delivery was sent, or given up as a dead letter."""

    delivery: Delivery
    #: Duration of the attempt.
    seconds: float


class DeliveryRetrying(Struct, frozen=True, kw_only=True):
    """An attempt failed; the delivery waits for its next one."""

    delivery: Delivery
    seconds: float


class DeliveryFenced(Struct, frozen=True, kw_only=True):
    """Another node owns the delivery, or it was retried manually: the completion was refused."""

    delivery: Delivery


class SenderRaised(Struct, frozen=True, kw_only=True):
    """A channel raised instead of returning a result."""

    delivery: Delivery
    error: Exception


class MessagesPruned(Struct, frozen=True, kw_only=True):
    """Deliveries and inbox items past the retention were deleted."""

    count: int


class UnusedPruned(Struct, frozen=True, kw_only=True):
    """Schedules deleted long ago, old keys and other rows that nothing uses were deleted."""

    count: int


class AuditPruned(Struct, frozen=True, kw_only=True):
    """Audit entries older than `audit_retention` were deleted."""

    count: int


class AuditNotPruned(Struct, frozen=True, kw_only=True):
    """Audit entries or the checkpoint of pruned ones were changed."""

    why: str


class NodeJoined(Struct, frozen=True, kw_only=True):
    node_id: NodeId


class NodeLost(Struct, frozen=True, kw_only=True):
    """This node may no longer trust its lease; it joins again under another id."""

    node_id: NodeId
    why: str


class NodeHeartbeat(Struct, frozen=True, kw_only=True):
    node_id: NodeId
    #: Seconds that this machine's wall clock is ahead of the store's.
    clock_skew: float


class NodeDraining(Struct, frozen=True, kw_only=True):
    """An operator drains this node."""

    node_id: NodeId
    running: int


class NodeResumed(Struct, frozen=True, kw_only=True):
    node_id: NodeId


class StoreClockJumped(Struct, frozen=True, kw_only=True):
    """The store's clock advanced by more or less than the time that passed here."""

    #: Negative: it was set back.
    seconds: float


class StoreRegressed(Struct, frozen=True, kw_only=True):
    """The store has lost committed data; this node gives up all its runs."""

    why: str


class DutyFailed(Struct, frozen=True, kw_only=True):
    """A pass failed and will be retried. `first`: the previous pass had succeeded."""

    duty: str
    error: Exception
    first: bool


class DutyRecovered(Struct, frozen=True, kw_only=True):
    duty: str


class FallbackStarted(Struct, frozen=True, kw_only=True):
    """The store answers but cannot schedule: this node times the declared schedules of its
    application from memory."""

    error: Exception


class FallbackEnded(Struct, frozen=True, kw_only=True):
    """The store schedules again."""


class SlotsAlreadyTaken(Struct, frozen=True, kw_only=True):
    """Slots timed in memory whose runs another node had created already."""

    count: int


class DrainStarted(Struct, frozen=True, kw_only=True):
    node_id: NodeId
    running: int
    grace: timedelta


class DrainEnded(Struct, frozen=True, kw_only=True):
    node_id: NodeId
    #: Runs that did not end within the grace period.
    given_up: int


Event = (
    SchedulesFired
    | ScheduleBroken
    | RunStarted
    | RunEnded
    | RunRetrying
    | CompletionFenced
    | AttemptAbandoned
    | RunReleased
    | RunDeferred
    | BreakerOpened
    | BreakerClosed
    | TargetStuck
    | TargetRaised
    | RunRescued
    | PauseEnded
    | RunsPruned
    | DeliveryEnded
    | DeliveryRetrying
    | DeliveryFenced
    | SenderRaised
    | MessagesPruned
    | UnusedPruned
    | AuditPruned
    | AuditNotPruned
    | NodeJoined
    | NodeLost
    | NodeHeartbeat
    | NodeDraining
    | NodeResumed
    | StoreClockJumped
    | StoreRegressed
    | DutyFailed
    | DutyRecovered
    | FallbackStarted
    | FallbackEnded
    | SlotsAlreadyTaken
    | DrainStarted
    | DrainEnded
)
Listener = Callable[[Event], None]


class Events:
    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        """A listener with an attribute `event_types` gets only events of these types: every run
        emits several, and most listeners need few. `handlers` of a listener, by type, are called
        instead of the listener itself."""
        self._listeners = tuple(listeners)
        self._listeners_of: dict[type[Event], tuple[Listener, ...]] = {}

    def emit(self, event: Event) -> None:
        listeners = self._listeners_of.get(event.__class__)
        if listeners is None:
            listeners = self._listeners_of[event.__class__] = self._select(event.__class__)
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                # A failing listener must not affect the work.
                logger.exception("a listener failed on %s", type(event).__name__)

    def _select(self, kind: type[Event]) -> tuple[Listener, ...]:
        return tuple(
            getattr(each, "handlers", {}).get(kind, each)
            for each in self._listeners
            if kind in getattr(each, "event_types", (kind,))
        )


#: Seconds of clock skew that are worth a warning.
MAX_SKEW = 2.0
EXPECTED_ENDS = (RunStatus.SUCCEEDED, RunStatus.CANCELED)
_PRUNED: Mapping[type, str] = {
    RunsPruned: "old runs deleted",
    MessagesPruned: "old messages deleted",
    UnusedPruned: "unused rows deleted",
    AuditPruned: "old audit entries deleted",
}


class EventLogger:
    """Writes log lines. The fields of a line are in `extra`; `job_name` is used because a log
    record has a `name` of its own."""

    def __init__(
        self, log: logging.Logger = logger, trace_id: Callable[[Run], str] | None = None
    ) -> None:
        """`trace_id`: of a run, where the process traces."""
        self._log = log
        self._trace_id = trace_id
        self._skewed = False
        self.handlers: Mapping[type[Event], Callable[..., None]] = {
            RunStarted: self._log_started,
            RunEnded: self._log_ended,
        }

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._log_started(event)
            case RunEnded():
                self._log_ended(event)
            case RunRetrying(run=run):
                self._write(
                    logging.WARNING,
                    "attempt failed, will be retried",
                    run=run,
                    latency_ms=_ms(event.seconds),
                    retry_at=run.available_at.isoformat(),
                )
            case SchedulesFired():
                self._log_fired(event)
            case NodeHeartbeat():
                self._log_skew(event)
            case NodeDraining():
                self._write(
                    logging.INFO,
                    "draining: no new work is accepted",
                    node=event.node_id,
                    running=event.running,
                )
            case NodeResumed():
                self._write(logging.INFO, "drain ended: work is accepted again", node=event.node_id)
            case ScheduleBroken() | PauseEnded():
                self._log_schedule(event)
            case DeliveryEnded() | DeliveryRetrying() | DeliveryFenced() | SenderRaised():
                self._log_delivery(event)
            case (
                CompletionFenced()
                | AttemptAbandoned()
                | RunReleased()
                | RunRescued()
                | TargetStuck()
                | TargetRaised()
            ):
                self._log_ownership(event)
            case RunDeferred() | BreakerOpened() | BreakerClosed():
                self._log_limit(event)
            case _:
                self._log_node(event)

    def _log_started(self, event: RunStarted) -> None:
        if self._log.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, "run started", run=event.run, lag_ms=_ms(event.lag))

    def _log_ended(self, event: RunEnded) -> None:
        level = logging.INFO if event.run.status in EXPECTED_ENDS else logging.WARNING
        if self._log.isEnabledFor(level):
            self._write(level, "run ended", run=event.run, latency_ms=_ms(event.seconds))

    def _log_fired(self, event: SchedulesFired) -> None:
        if self._log.isEnabledFor(logging.INFO):
            for schedule in event.schedules:
                self._write(logging.INFO, "schedule fired", schedule=schedule)
        for run in event.runs:
            if run.status in (RunStatus.MISSED, RunStatus.SKIPPED):
                self._write(
                    logging.WARNING, f"slot {run.status}", run=run, missed_count=run.missed_count
                )

    def _log_schedule(self, event: ScheduleBroken | PauseEnded) -> None:
        match event:
            case ScheduleBroken(schedule=schedule):
                self._write(
                    logging.ERROR,
                    "schedule cannot be planned and was set aside",
                    schedule=schedule,
                    error=schedule.last_error,
                )
            case PauseEnded(schedule=schedule):
                self._write(logging.INFO, "pause ended", schedule=schedule)

    def _log_delivery(
        self, event: DeliveryEnded | DeliveryRetrying | DeliveryFenced | SenderRaised
    ) -> None:
        about = _delivery_fields(event.delivery)
        match event:
            case DeliveryEnded(seconds=seconds):
                state = event.delivery.state
                dead = state is DeliveryState.DEAD
                suppressed = state is DeliveryState.SUPPRESSED
                sent = "delivery suppressed" if suppressed else "delivered"
                self._log.log(
                    logging.ERROR if dead else logging.INFO,
                    "delivery given up: dead letter" if dead else sent,
                    extra=about | {"latency_ms": _ms(seconds)},
                )
            case DeliveryRetrying(seconds=seconds):
                at = event.delivery.available_at.isoformat()
                self._log.warning(
                    "delivery failed, will be retried",
                    extra=about | {"latency_ms": _ms(seconds), "retry_at": at},
                )
            case DeliveryFenced():
                self._log.warning("delivery is owned by another node", extra=about)
            case SenderRaised(error=error):
                self._log.error("channel raised", extra=about, exc_info=error)

    def _log_ownership(
        self,
        event: (
            CompletionFenced
            | AttemptAbandoned
            | RunReleased
            | RunRescued
            | TargetStuck
            | TargetRaised
        ),
    ) -> None:
        match event:
            case CompletionFenced(run=run, completion=completion):
                status = completion.status.value
                self._write(logging.WARNING, "fenced", run=run, refused_status=status)
            case AttemptAbandoned(run=run):
                self._write(logging.WARNING, "attempt stopped", run=run, why=str(event.why))
            case RunReleased(run=run):
                self._write(logging.INFO, "run released for another node", run=run)
            case RunRescued(run=run):
                self._write(logging.WARNING, "rescued", run=run)
            case TargetStuck(run=run):
                self._write(logging.ERROR, "target does not stop when canceled", run=run)
            case TargetRaised(run=run, error=error):
                self._write(logging.ERROR, "target raised", run=run, failure=error)

    def _log_limit(self, event: RunDeferred | BreakerOpened | BreakerClosed) -> None:
        match event:
            case RunDeferred(run=run):
                self._write(logging.DEBUG, "run waits for a limit", run=run)
            case BreakerOpened(limit=limit, failures=failures):
                text = "circuit breaker opened"
                self._write(logging.WARNING, text, limit=limit.name, failures=failures)
            case BreakerClosed(limit=limit):
                self._write(logging.INFO, "circuit breaker closed", limit=limit.name)

    def _log_node(self, event: Event) -> None:
        match event:
            case DutyFailed(duty=duty, error=error):
                self._log_duty_failed(duty, error, first=event.first)
            case DutyRecovered(duty=duty):
                self._write(logging.INFO, f"{duty} works again", duty=duty)
            case FallbackStarted(error=error):
                self._write(
                    logging.ERROR,
                    "the store cannot schedule: declared schedules are timed in memory",
                    failure=error,
                )
            case FallbackEnded():
                self._write(logging.WARNING, "the store schedules again: timing in memory ended")
            case NodeJoined(node_id=node_id):
                self._write(logging.INFO, "node joined", node=node_id)
            case NodeLost(node_id=node_id):
                self._write(logging.WARNING, "lease lost", node=node_id, why=event.why)
            case StoreRegressed() | AuditNotPruned():
                lost = isinstance(event, StoreRegressed)
                what = "the store lost committed data" if lost else "audit log not pruned"
                self._write(logging.ERROR, what, why=event.why)
            case StoreClockJumped(seconds=seconds):
                self._write(logging.WARNING, "the store's clock jumped", seconds=round(seconds, 3))
            case RunsPruned() | MessagesPruned() | UnusedPruned() | AuditPruned():
                self._write(logging.INFO, _PRUNED[type(event)], count=event.count)
            case DrainStarted(node_id=node_id):
                self._write(
                    logging.INFO,
                    "stopping",
                    node=node_id,
                    running=event.running,
                    grace_s=event.grace.total_seconds(),
                )
            case DrainEnded(node_id=node_id):
                self._write(logging.INFO, "stopped", node=node_id, given_up=event.given_up)
            case _:
                pass

    def _log_duty_failed(self, duty: str, error: Exception, *, first: bool) -> None:
        if not isinstance(error, StoreUnavailable | TimeoutError):
            self._write(logging.ERROR, f"{duty} failed", duty=duty, failure=error)
        elif first:
            self._write(logging.WARNING, f"{duty}: the store does not answer", error=str(error))

    def _log_skew(self, event: NodeHeartbeat) -> None:
        skewed = abs(event.clock_skew) > MAX_SKEW
        if skewed and not self._skewed:
            self._write(
                logging.WARNING,
                "this machine's clock differs from the store's",
                node=event.node_id,
                clock_skew_s=round(event.clock_skew, 3),
            )
        self._skewed = skewed

    def _write(
        self,
        level: int,
        message: str,
        *,
        run: Run | None = None,
        schedule: Schedule | None = None,
        failure: Exception | None = None,
        **fields: object,
    ) -> None:
        if not self._log.isEnabledFor(level):
            return
        about: dict[str, object] = {}
        if run is not None:
            about.update(_run_fields(run))
            if self._trace_id is not None:
                about["trace_id"] = self._trace_id(run)
        if schedule is not None:
            about.update(_schedule_fields(schedule))
        self._log.log(level, message, extra=about | fields, exc_info=failure)


def _run_fields(run: Run) -> Mapping[str, object]:
    return {
        "job_id": run.schedule_id,
        "job_name": run.schedule_name,
        "run_id": run.id,
        "status": run.status.value,
        "attempt": run.attempt,
        "fence": run.fence,
        "reason": run.reason,
        "error": run.error,
    }


def _delivery_fields(delivery: Delivery) -> dict[str, object]:
    """Without the address, which may be personal or contain a secret."""
    return {
        "job_id": delivery.schedule_id,
        "run_id": delivery.run_id,
        "delivery_id": delivery.id,
        "channel": delivery.recipient.channel.value,
        "attempt": delivery.attempts,
        "error": delivery.error,
        "code": delivery.code,
    }


def _schedule_fields(schedule: Schedule) -> Mapping[str, object]:
    at = schedule.next_run_at
    return {
        "job_id": schedule.id,
        "job_name": schedule.name,
        "next_run_at": at.isoformat() if at else None,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
