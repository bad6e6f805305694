"""The engine's log lines: one place for their wording and their fields (R2.11, R3.40)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from chimes.engine.events import (
    DeliveryEnded,
    DeliveryFenced,
    DeliveryRetrying,
    DrainEnded,
    DrainStarted,
    DutyFailed,
    DutyRecovered,
    Event,
    FallbackBegan,
    FallbackEnded,
    MessagesPruned,
    NodeBeat,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeResumed,
    PauseEnded,
    RunDropped,
    RunEnded,
    RunHandedOn,
    RunRescued,
    RunRetrying,
    RunsPruned,
    RunStarted,
    ScheduleBroken,
    SchedulesFired,
    SenderBroken,
    StoreClockJumped,
    StoreRegressed,
    TargetBroken,
    TargetStuck,
    VerdictFenced,
)
from chimes.errors import StoreUnavailable
from chimes.model.delivery import Delivery, DeliveryState
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule

logger = logging.getLogger("chimes.engine")

#: Seconds of clock skew from which on it is worth a warning (F50).
SKEW = 2.0
GOOD_ENDS = (RunStatus.SUCCEEDED, RunStatus.CANCELED)


class Reports:
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
            case NodeBeat():
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
            case DeliveryEnded() | DeliveryRetrying() | DeliveryFenced() | SenderBroken():
                self._delivery(event)
            case (
                VerdictFenced()
                | RunDropped()
                | RunHandedOn()
                | RunRescued()
                | TargetStuck()
                | TargetBroken()
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
        self, event: DeliveryEnded | DeliveryRetrying | DeliveryFenced | SenderBroken
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
            case SenderBroken(error=error):
                self._log.error("channel raised", extra=about, exc_info=error)

    def _ownership(
        self,
        event: (VerdictFenced | RunDropped | RunHandedOn | RunRescued | TargetStuck | TargetBroken),
    ) -> None:
        match event:
            case VerdictFenced(run=run, verdict=verdict):
                self._line(logging.WARNING, "fenced", run=run, refused_status=verdict.status.value)
            case RunDropped(run=run):
                self._line(logging.WARNING, "attempt stopped", run=run, why=str(event.why))
            case RunHandedOn(run=run):
                self._line(logging.INFO, "given back, to go on elsewhere", run=run)
            case RunRescued(run=run):
                self._line(logging.WARNING, "rescued", run=run)
            case TargetStuck(run=run):
                self._line(logging.ERROR, "target does not stop when told", run=run)
            case TargetBroken(run=run, error=error):
                self._line(logging.ERROR, "target raised", run=run, failure=error)

    def _node(self, event: Event) -> None:
        match event:
            case DutyFailed(duty=duty, error=error):
                self._duty_failed(duty, error, first=event.first)
            case DutyRecovered(duty=duty):
                self._line(logging.INFO, f"{duty} works again", duty=duty)
            case FallbackBegan(error=error):
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

    def _beat(self, event: NodeBeat) -> None:
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
