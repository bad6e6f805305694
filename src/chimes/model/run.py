"""A run: the one record for a slot, or for a manual request. States change only through the
functions below (the table is in ARCHITECTURE.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Owner
from chimes.model.change import fast_constructor, replace
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.policy import MAX_RETRY_DELAY, OnLost, Policy
from chimes.model.target import Target

# @@ Why a run is in its state.


class Reason:
    """Stable codes that say why a run is in its state; wording is the catalogue's business."""

    OVERLAP = "overlap"
    DEPENDENCY = "dependency"
    MISFIRE = "misfire"
    SKIPPED_BY_HAND = "skipped_by_hand"
    PAUSED = "paused"
    CATCH_UP = "catch_up"
    CANCELED_BY_HAND = "canceled_by_hand"
    REPLACED = "replaced_by_newer_run"
    SCHEDULE_DELETED = "schedule_deleted"
    CRASH_LIMIT = "crash_limit"
    LOST_AFTER_START = "lost_after_start"
    UNREADABLE = "unreadable_row"
    #: A step whose flow has ended without it.
    FLOW_ENDED = "flow_ended"


CRASH_LIMIT = 3


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    SKIPPED = "skipped"
    MISSED = "missed"
    UNKNOWN = "unknown"

    @property
    def terminal(self) -> bool:
        return self not in (RunStatus.QUEUED, RunStatus.RUNNING)


class Origin(StrEnum):
    SCHEDULE = "schedule"
    MANUAL = "manual"
    BACKFILL = "backfill"
    CHILD = "child"


class AttemptEnd(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    #: The node that had it stopped beating: nobody knows how far it came.
    LOST = "lost"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One try that has ended."""

    number: int
    fence: int
    node: NodeId
    started_at: datetime
    finished_at: datetime
    end: AttemptEnd
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    id: RunId
    schedule_id: ScheduleId | None
    schedule_name: str = ""
    schedule_version: int = 0
    namespace: str = "native"
    owner: Owner = SYSTEM_OWNER
    #: The planned UTC instant; unique per schedule for ever. None for manual runs (C7).
    slot: datetime | None = None
    origin: Origin
    parent_id: RunId | None = None
    step: str = ""
    retry_of: RunId | None = None
    #: Snapshots: a later edit of the schedule does not touch a run that exists.
    target: Target
    policy: Policy
    priority: int = 0
    #: Behind on-time work of the same priority (F46).
    catch_up: bool = False
    #: Runs with the same key share `concurrency_limit`; None: nothing holds this run back.
    concurrency_key: str | None = None
    concurrency_limit: int = 1
    #: Waits until a run with the same key ends; not claimable.
    blocked: bool = False
    status: RunStatus = RunStatus.QUEUED
    #: 0 before the first claim, then 1, and one more for each retry or lost lease.
    attempt: int = 0
    #: Rises with every claim; every write of a worker carries it.
    fence: int = 0
    holder: NodeId | None = None
    #: Started mark of the current fence; written ahead of the effect under `on_lost: stop`.
    started: bool = False
    cancel_requested: bool = False
    created_at: datetime
    planned_at: datetime
    available_at: datetime
    claimed_at: datetime | None = None
    #: Start of the first attempt.
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result: Mapping[str, object] | None = None
    error: str = ""
    reason: str = ""
    #: For a `missed` row: how many slots it stands for, from `slot` to `missed_until`.
    missed_count: int = 0
    missed_until: datetime | None = None
    #: Attempts that have ended, oldest first.
    attempts: tuple[Attempt, ...] = ()

    @property
    def rank(self) -> int:
        """Queue order: higher first; see `queue_order` for equal ones."""
        return self.priority * 2 - self.catch_up

    @property
    def claimable(self) -> bool:
        return self.status is RunStatus.QUEUED and not self.blocked

    @property
    def admitted(self) -> bool:
        """Counts against the concurrency limit of its key."""
        return not self.status.terminal and not self.blocked

    @property
    def resumable(self) -> bool:
        """It has no effect of its own, only child runs: whoever takes it over goes on where it
        stands, so that losing its node costs no attempt."""
        return self.target.kind == "flow"

    @property
    def prefetched(self) -> bool:
        """Claimed before its time: it waits for that in the hands of its node."""
        if self.claimed_at is None or self.status is RunStatus.QUEUED:
            return False
        return self.claimed_at < self.available_at

    @property
    def failures(self) -> int:
        return sum(a.end in (AttemptEnd.FAILED, AttemptEnd.TIMEOUT) for a in self.attempts)

    @property
    def crashes(self) -> int:
        return sum(a.end is AttemptEnd.LOST for a in self.attempts)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEntry:
    at: datetime
    message: str
    level: str = "info"
    #: Position in its run's log; set by the store.
    number: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What carrying out a target once came to."""

    end: AttemptEnd
    retryable: bool = False
    result: Mapping[str, object] | None = None
    error: str = ""
    #: Stable word for the kind of failure, e.g. `egress_denied`.
    code: str = ""
    #: The receiver wants to be left alone at least this long (HTTP Retry-After).
    retry_after: timedelta | None = None
    #: The target itself says when, instead of the policy's back-off.
    retry_in: timedelta | None = None
    #: The receiver wants no further calls at all (410).
    gone: bool = False
    #: The attempt as the target has recorded it itself, in a transaction of its own.
    completed: Attempt | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """What a worker writes about an attempt that has ended. `retry_in` sends the run back to the
    queue instead of ending it."""

    run_id: RunId
    fence: int
    attempt: Attempt
    status: RunStatus
    retry_in: timedelta | None = None
    result: Mapping[str, object] | None = None
    error: str = ""
    reason: str = ""
    logs: tuple[LogEntry, ...] = ()
    #: Pause the schedule with this note in the same transaction (410 Gone).
    pause_schedule: str = ""
    #: The run as its worker has it, so that nobody has to read it again. What of it can have
    #: changed since the claim (`cancel_requested`) does not count.
    run: Run | None = field(default=None, compare=False, repr=False)


_new_completion = fast_constructor(Completion)


def claim(run: Run, node: NodeId, now: datetime) -> Run:
    return replace(
        run,
        status=RunStatus.RUNNING,
        attempt=run.attempt + 1,
        fence=run.fence + 1,
        holder=node,
        started=False,
        claimed_at=now,
        started_at=run.started_at or now,
    )


def mark_started(run: Run) -> Run:
    return replace(run, started=True)


def release(run: Run) -> Run:
    """Given back unstarted by a node that is stopping: as if it had never been claimed, except
    that the fence stays used. One that is resumable may have begun, and its time goes on."""
    return replace(
        run,
        status=RunStatus.QUEUED,
        attempt=run.attempt - 1,
        holder=None,
        started=False,
        claimed_at=None,
        started_at=run.started_at if run.resumable or run.attempt > 1 else None,
    )


def release_or_cancel(run: Run, now: datetime) -> Run:
    """`release`, or ended if somebody asked it to stop meanwhile: nobody is to begin it again."""
    if run.cancel_requested:
        return cancel(release(run), run.reason or Reason.CANCELED_BY_HAND, now)
    return release(run)


#: Attempts that end with an outcome; one that is lost has none.
_STATUS_OF: dict[AttemptEnd, RunStatus] = {
    end: RunStatus(end.value) for end in AttemptEnd if end is not AttemptEnd.LOST
}


def completion_of(
    run: Run, outcome: Outcome, attempt: Attempt, logs: tuple[LogEntry, ...]
) -> Completion:
    """From an attempt's outcome to the verdict on its run (C14, R3.48).

    What is kept is plain text in English; doors find the reader's words for it again
    (`chimes.retelling`)."""
    retry_in = None
    if outcome.retryable and run.failures < run.policy.max_retries:
        if outcome.retry_in is not None:
            retry_in = min(outcome.retry_in, MAX_RETRY_DELAY)
        else:
            retry_in = run.policy.retry_delay(
                run.failures + 1, run_id=run.id, asked=outcome.retry_after
            )
    return _new_completion(
        run.id,
        run.fence,
        replace(attempt, error=str(attempt.error)) if attempt.error else attempt,
        RunStatus.QUEUED if retry_in is not None else _STATUS_OF[outcome.end],
        retry_in,
        outcome.result,
        str(outcome.error),
        outcome.code,  # reason
        logs,
        outcome.code if outcome.gone and run.policy.pause_on_gone else "",  # pause_schedule
        run,
    )


def complete(run: Run, completion: Completion, now: datetime) -> Run:
    """The run after an accepted verdict. A cancel that came in meanwhile beats a retry."""
    again = completion.retry_in
    ended = replace(
        run,
        status=completion.status if again is None else RunStatus.QUEUED,
        holder=None,
        started=False,
        available_at=run.available_at if again is None else now + again,
        finished_at=now if again is None else None,
        result=completion.result,
        error=completion.error,
        reason=completion.reason,
        attempts=(*run.attempts, completion.attempt),
    )
    if again is not None and run.cancel_requested:
        reason = run.reason or Reason.CANCELED_BY_HAND
        return cancel(replace(ended, available_at=run.available_at), reason, now)
    return ended


def owns_fence(run: Run, fence: int) -> bool:
    """Whether a worker that holds `fence` still owns the run (I5)."""
    return run.status is RunStatus.RUNNING and run.fence == fence


def cancel(run: Run, reason: str, now: datetime) -> Run:
    return replace(
        run,
        status=RunStatus.CANCELED,
        reason=reason,
        blocked=False,
        holder=None,
        finished_at=now,
    )


def request_cancel(run: Run, reason: str, now: datetime) -> Run:
    """A waiting run ends at once; a running one is asked to stop; an ended one stays as it is."""
    if run.status is RunStatus.QUEUED:
        return cancel(run, reason, now)
    if run.status is RunStatus.RUNNING:
        return replace(run, cancel_requested=True, reason=reason)
    return run


def mark_lost(run: Run, now: datetime) -> Run:
    """The lease of the node that held it has ended (F04–F07, F66). What is resumable is not
    limited: its steps are (F68)."""
    assert run.holder is not None
    if run.resumable or run.available_at > now:
        # One that was claimed ahead of its time has not begun.
        return release_or_cancel(run, now)
    attempt = Attempt(
        number=run.attempt,
        fence=run.fence,
        node=run.holder,
        started_at=run.claimed_at or now,
        finished_at=now,
        end=AttemptEnd.LOST,
        error=str(_("the node that held this run stopped beating")),
    )
    gone = replace(run, holder=None, attempts=(*run.attempts, attempt))
    if run.policy.on_lost is OnLost.STOP and run.started:
        return replace(
            gone,
            status=RunStatus.UNKNOWN,
            error=attempt.error,
            reason=Reason.LOST_AFTER_START,
            finished_at=now,
        )
    if run.cancel_requested:
        return cancel(gone, run.reason, now)
    if gone.crashes >= CRASH_LIMIT:
        return replace(
            gone,
            status=RunStatus.FAILED,
            error=attempt.error,
            reason=Reason.CRASH_LIMIT,
            finished_at=now,
        )
    return replace(gone, status=RunStatus.QUEUED, started=False, available_at=now)


def cancel_step(child: Run, now: datetime) -> Run:
    """A step of a flow that has ended: it is asked to stop, or never begins."""
    return request_cancel(child, Reason.FLOW_ENDED, now)


def fail_unreadable(run: Run, now: datetime) -> Run:
    """Its row is damaged: it ends instead of standing in the way of the others (R2.10)."""
    return replace(
        run,
        status=RunStatus.FAILED,
        blocked=False,
        holder=None,
        started=False,
        reason=Reason.UNREADABLE,
        finished_at=now,
    )


def unblock(run: Run) -> Run:
    return replace(run, blocked=False)


def queue_order(run: Run) -> tuple[int, datetime, datetime, str]:
    """Who goes first: rank, then how long it could have gone, then the older plan, so that the
    slots of one catch-up go in their order (C1)."""
    return (-run.rank, run.available_at, run.planned_at, run.id)
