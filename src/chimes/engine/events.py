"""What the engine tells: a closed set of values, handed to every listener on the event loop.

Message and counting are the listeners' business (`reports`, `metrics`, and whoever subscribes).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from chimes.errors import StoreUnavailable
from chimes.model.ids import NodeId
from chimes.model.notification import Delivery, DeliveryState
from chimes.model.planning import FirePlan
from chimes.model.run import Completion, Run, RunStatus
from chimes.model.schedule import Schedule

logger = logging.getLogger("chimes.engine")


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulesFired:
    """One batch of due schedules became rows."""

    #: What came of the schedules whose cursors moved.
    firings: tuple[FirePlan, ...]
    runs: tuple[Run, ...]
    seconds: float

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """With their cursors moved; made when somebody asks."""
        return tuple(firing.schedule for firing in self.firings)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleBroken:
    """It could not be planned and was set aside; `last_error` says why (R2.10)."""

    schedule: Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStarted:
    """An attempt begins its effect now, this much later than planned."""

    run: Run
    lag: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnded:
    run: Run
    #: How long the attempt took.
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRetrying:
    """An attempt failed; the run waits for its next one."""

    run: Run
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionFenced:
    """Ownership was lost before the verdict came: it was refused and changed nothing."""

    run: Run
    verdict: Completion


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptAbandoned:
    """This node stopped an attempt without a verdict: another one will be made."""

    run: Run
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReleased:
    """This node gave a flow back in the middle, or what only others can carry out: another one
    goes on with it."""

    run: Run


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetStuck:
    """A target went on although it was told to stop; its place is used again without it."""

    run: Run


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetRaised:
    """A target raised instead of answering with an outcome."""

    run: Run
    error: Exception


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRescued:
    """Taken from a node whose lease had ended; the run as it is now."""

    run: Run


@dataclass(frozen=True, kw_only=True, slots=True)
class PauseEnded:
    schedule: Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsPruned:
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryEnded:
    """Delivered, or given up: the dead letter."""

    delivery: Delivery
    #: How long the attempt took.
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryRetrying:
    """An attempt failed; the delivery waits for its next one."""

    delivery: Delivery
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryFenced:
    """Somebody else has it by now, or it was tried again by hand: the verdict was refused."""

    delivery: Delivery


@dataclass(frozen=True, kw_only=True, slots=True)
class SenderRaised:
    """A channel raised instead of answering with a result."""

    delivery: Delivery
    error: Exception


@dataclass(frozen=True, kw_only=True, slots=True)
class MessagesPruned:
    """Deliveries and inbox items beyond the retention."""

    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeJoined:
    node_id: NodeId


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLost:
    """This node may no longer trust its lease; it joins again under another id."""

    node_id: NodeId
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeHeartbeat:
    node_id: NodeId
    #: Seconds that this machine's wall clock is ahead of the store's (F50).
    clock_skew: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeDraining:
    """An operator asked this node to take nothing new."""

    node_id: NodeId
    running: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeResumed:
    node_id: NodeId


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreClockJumped:
    """The store's clock went on by more or less than the time that passed here (F51, F52)."""

    #: Negative: it was put back.
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreRegressed:
    """The store has forgotten what it had taken down (F28); this node lets everything go."""

    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DutyFailed:
    """A pass failed and will be tried again. `first`: the one before it had not failed."""

    duty: str
    error: Exception
    first: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DutyRecovered:
    duty: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FallbackStarted:
    """The store cannot schedule although it answers: this node times what its application has
    declared from memory (R2.33)."""

    error: Exception


@dataclass(frozen=True, kw_only=True, slots=True)
class FallbackEnded:
    """The store schedules again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotsAlreadyTaken:
    """Slots timed in memory whose runs another node had made already (R2.16)."""

    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainStarted:
    node_id: NodeId
    running: int
    grace: timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainEnded:
    node_id: NodeId
    #: Runs that the grace was too short for.
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
        """A listener with an attribute `hears` is told of events of these types only: every run
        tells several, and most listeners wait for others."""
        self._listeners = tuple(listeners)
        self._hearing: dict[type[Event], tuple[Listener, ...]] = {}

    def emit(self, event: Event) -> None:
        hearing = self._hearing.get(event.__class__)
        if hearing is None:
            hearing = self._hearing[event.__class__] = self._who_hears(event.__class__)
        for listener in hearing:
            try:
                listener(event)
            except Exception:
                # A listener only watches: what breaks in it must not reach the work (R2.10).
                logger.exception("a listener failed on %s", type(event).__name__)

    def _who_hears(self, kind: type[Event]) -> tuple[Listener, ...]:
        return tuple(each for each in self._listeners if kind in getattr(each, "hears", (kind,)))


# @@ The engine's log lines: one place for their wording and their fields (R2.11, R3.40).

#: Seconds of clock skew from which on it is worth a warning (F50).
SKEW = 2.0
GOOD_ENDS = (RunStatus.SUCCEEDED, RunStatus.CANCELED)


class EventLogger:
    """A listener that writes log lines. The fields of a line are in `extra`; `job_name` stands
    for `name`, which a log record has for itself."""

    def __init__(self, log: logging.Logger = logger) -> None:
        self._log = log
        self._skewed = False

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                if self._log.isEnabledFor(logging.DEBUG):
                    self._line(logging.DEBUG, "run started", run=event.run, lag_ms=_ms(event.lag))
            case RunEnded():
                self._ended(event)
            case RunRetrying(run=run):
                self._line(
                    logging.WARNING,
                    "attempt failed, will be tried again",
                    run=run,
                    latency_ms=_ms(event.seconds),
                    retry_at=run.available_at.isoformat(),
                )
            case SchedulesFired():
                self._fired(event)
            case NodeHeartbeat():
                self._beat(event)
            case NodeDraining():
                self._line(
                    logging.INFO,
                    "asked to drain: nothing new is taken",
                    node=event.node_id,
                    running=event.running,
                )
            case NodeResumed():
                self._line(logging.INFO, "asked to go on", node=event.node_id)
            case ScheduleBroken() | PauseEnded():
                self._schedule(event)
            case DeliveryEnded() | DeliveryRetrying() | DeliveryFenced() | SenderRaised():
                self._delivery(event)
            case (
                CompletionFenced()
                | AttemptAbandoned()
                | RunReleased()
                | RunRescued()
                | TargetStuck()
                | TargetRaised()
            ):
                self._ownership(event)
            case _:
                self._node(event)

    def _ended(self, event: RunEnded) -> None:
        level = logging.INFO if event.run.status in GOOD_ENDS else logging.WARNING
        if self._log.isEnabledFor(level):
            self._line(level, "run ended", run=event.run, latency_ms=_ms(event.seconds))

    def _fired(self, event: SchedulesFired) -> None:
        if self._log.isEnabledFor(logging.INFO):
            for schedule in event.schedules:
                self._line(logging.INFO, "schedule fired", schedule=schedule)
        for run in event.runs:
            if run.status in (RunStatus.MISSED, RunStatus.SKIPPED):
                self._line(
                    logging.WARNING, f"slot {run.status}", run=run, missed_count=run.missed_count
                )

    def _schedule(self, event: ScheduleBroken | PauseEnded) -> None:
        match event:
            case ScheduleBroken(schedule=schedule):
                self._line(
                    logging.ERROR,
                    "schedule cannot be planned and was set aside",
                    schedule=schedule,
                    error=schedule.last_error,
                )
            case PauseEnded(schedule=schedule):
                self._line(logging.INFO, "pause is over", schedule=schedule)

    def _delivery(
        self, event: DeliveryEnded | DeliveryRetrying | DeliveryFenced | SenderRaised
    ) -> None:
        about = _of_delivery(event.delivery)
        match event:
            case DeliveryEnded(seconds=seconds):
                dead = event.delivery.state is DeliveryState.DEAD
                self._log.log(
                    logging.ERROR if dead else logging.INFO,
                    "delivery given up: dead letter" if dead else "delivered",
                    extra=about | {"latency_ms": _ms(seconds)},
                )
            case DeliveryRetrying(seconds=seconds):
                at = event.delivery.available_at.isoformat()
                self._log.warning(
                    "delivery failed, will be tried again",
                    extra=about | {"latency_ms": _ms(seconds), "retry_at": at},
                )
            case DeliveryFenced():
                self._log.warning("delivery was taken over meanwhile", extra=about)
            case SenderRaised(error=error):
                self._log.error("channel raised", extra=about, exc_info=error)

    def _ownership(
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
            case CompletionFenced(run=run, verdict=verdict):
                self._line(logging.WARNING, "fenced", run=run, refused_status=verdict.status.value)
            case AttemptAbandoned(run=run):
                self._line(logging.WARNING, "attempt stopped", run=run, why=str(event.why))
            case RunReleased(run=run):
                self._line(logging.INFO, "given back, to go on elsewhere", run=run)
            case RunRescued(run=run):
                self._line(logging.WARNING, "rescued", run=run)
            case TargetStuck(run=run):
                self._line(logging.ERROR, "target does not stop when told", run=run)
            case TargetRaised(run=run, error=error):
                self._line(logging.ERROR, "target raised", run=run, failure=error)

    def _node(self, event: Event) -> None:
        match event:
            case DutyFailed(duty=duty, error=error):
                self._duty_failed(duty, error, first=event.first)
            case DutyRecovered(duty=duty):
                self._line(logging.INFO, f"{duty} works again", duty=duty)
            case FallbackStarted(error=error):
                self._line(
                    logging.ERROR,
                    "the store cannot schedule: schedules of the application are timed in memory "
                    "until it can again",
                    failure=error,
                )
            case FallbackEnded():
                self._line(logging.WARNING, "the store schedules again: timing is left to it")
            case NodeJoined(node_id=node_id):
                self._line(logging.INFO, "node joined", node=node_id)
            case NodeLost(node_id=node_id):
                self._line(logging.WARNING, "lease lost", node=node_id, why=event.why)
            case StoreRegressed():
                self._line(logging.ERROR, "the store has gone back", why=event.why)
            case StoreClockJumped(seconds=seconds):
                self._line(logging.WARNING, "the store's clock jumped", seconds=round(seconds, 3))
            case RunsPruned(count=count) | MessagesPruned(count=count):
                what = "runs" if isinstance(event, RunsPruned) else "messages"
                self._line(logging.INFO, f"old {what} forgotten", count=count)
            case DrainStarted(node_id=node_id):
                self._line(
                    logging.INFO,
                    "stopping",
                    node=node_id,
                    running=event.running,
                    grace_s=event.grace.total_seconds(),
                )
            case DrainEnded(node_id=node_id):
                self._line(logging.INFO, "stopped", node=node_id, given_up=event.given_up)
            case _:
                pass

    def _duty_failed(self, duty: str, error: Exception, *, first: bool) -> None:
        if not isinstance(error, StoreUnavailable | TimeoutError):
            self._line(logging.ERROR, f"{duty} failed", duty=duty, failure=error)
        elif first:
            self._line(logging.WARNING, f"{duty}: the store does not answer", error=str(error))

    def _beat(self, event: NodeHeartbeat) -> None:
        skewed = abs(event.clock_skew) > SKEW
        if skewed and not self._skewed:
            self._line(
                logging.WARNING,
                "this machine's clock differs from the store's",
                node=event.node_id,
                clock_skew_s=round(event.clock_skew, 3),
            )
        self._skewed = skewed

    def _line(
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
            about.update(_of_run(run))
        if schedule is not None:
            about.update(_of_schedule(schedule))
        self._log.log(level, message, extra=about | fields, exc_info=failure)


def _of_run(run: Run) -> Mapping[str, object]:
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


def _of_delivery(delivery: Delivery) -> dict[str, object]:
    """Without the address: it may be a person's, or hold a secret."""
    return {
        "job_id": delivery.schedule_id,
        "run_id": delivery.run_id,
        "delivery_id": delivery.id,
        "channel": delivery.recipient.channel.value,
        "attempt": delivery.attempts,
        "error": delivery.error,
        "code": delivery.code,
    }


def _of_schedule(schedule: Schedule) -> Mapping[str, object]:
    at = schedule.next_run_at
    return {
        "job_id": schedule.id,
        "job_name": schedule.name,
        "next_run_at": at.isoformat() if at else None,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
