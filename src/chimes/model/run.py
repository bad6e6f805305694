"""The run: the one record for a slot or a manual request, and its state transitions.

A run changes state only through the functions below (table in ARCHITECTURE.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as replace_struct

from chimes.i18n import Message, _, freeze
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Owner
from chimes.model.fields import MessageText
from chimes.model.ids import DEFAULT_NAMESPACE, NodeId, RunId, ScheduleId
from chimes.model.policy import MAX_RETRY_DELAY, OnLost, Policy
from chimes.model.target import SyncTarget, Target, TaskTarget


class Reason:
    """Stable codes that say why a run is in its state; the catalogues translate them."""

    OVERLAP = "overlap"
    DEPENDENCY = "dependency"
    MISFIRE = "misfire"
    SKIPPED_BY_HAND = "skipped_by_hand"
    PAUSED = "paused"
    MAINTENANCE = "maintenance"
    #: Events that came too soon after the one before.
    THROTTLED = "throttled"
    CATCH_UP = "catch_up"
    CANCELED_BY_HAND = "canceled_by_hand"
    REPLACED = "replaced_by_newer_run"
    SCHEDULE_DELETED = "schedule_deleted"
    CRASH_LIMIT = "crash_limit"
    LOST_AFTER_START = "lost_after_start"
    UNREADABLE = "unreadable_row"
    #: The step's flow ended before the step did.
    FLOW_ENDED = "flow_ended"


CRASH_LIMIT = 3
#: Begins the reason of a queued run that waits for a named limit; the name follows.
WAITING_PREFIX = "limit:"
#: Begins the reason of a flow in the queue that only waits (ADR 81); the name of a step follows.
SUSPENDED_PREFIX = "wait:"


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

    #: An attribute and not a property, because it is read several times per run.
    terminal: bool

    def __init__(self, value: str) -> None:
        self.terminal = value not in ("queued", "running")


FAILED_STATUSES = frozenset({RunStatus.FAILED, RunStatus.TIMEOUT, RunStatus.UNKNOWN})
#: Executed to an end; other statuses say nothing about the health of a schedule.
CONCLUSIVE_STATUSES = FAILED_STATUSES | {RunStatus.SUCCEEDED}


class Origin(StrEnum):
    SCHEDULE = "schedule"
    MANUAL = "manual"
    BACKFILL = "backfill"
    CHILD = "child"
    EVENT = "event"


class AttemptEnd(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    #: The node stopped sending heartbeats; the outcome is unknown.
    LOST = "lost"


class Attempt(Struct, frozen=True, kw_only=True, gc=False):
    """One finished attempt."""

    number: int
    fence: int
    node: NodeId
    started_at: datetime
    finished_at: datetime
    end: AttemptEnd
    error: MessageText = ""


class Cause(Struct, frozen=True, kw_only=True, gc=False):
    """The event that a run was started by."""

    #: Kind of the trigger: `webhook`, `run_end`, `file` or `sql`.
    kind: str
    #: The signature scheme or address of a webhook, the id of the run that ended, the path of the
    #: file, the connection of the query.
    source: str = ""
    #: Identifies the event: a repeat of it starts no other run.
    delivery_id: str = ""
    at: datetime
    #: Events that the run stands for, with those that debounce replaced or batch collected.
    events: int = 1
    #: Events that throttle, a pause or maintenance dropped since the run before.
    dropped: int = 0
    content_type: str = ""
    #: What the target gets: the body of the webhook, or JSON about the run, file or row.
    payload: str = ""


class RunDefinition(Struct, frozen=True, kw_only=True, gc=False):
    """What a run does and for whom: a snapshot of its schedule or of a manual request. A later edit
    of the schedule does not touch it. All runs of a schedule version share one."""

    schedule_id: ScheduleId | None = None
    schedule_name: str = ""
    schedule_version: int = 0
    namespace: str = DEFAULT_NAMESPACE
    owner: Owner = SYSTEM_OWNER
    target: Target
    policy: Policy
    #: W3C trace context of the request that made the run, where the process traces.
    trace: str = ""
    #: Of the schedule, for routing rules.
    labels: Mapping[str, str | None] = {}
    #: None: started by a slot or by hand.
    cause: Cause | None = None


class Run(Struct, frozen=True, kw_only=True, gc=False):
    """A definition and the state of one run of it."""

    id: RunId
    definition: RunDefinition
    #: The planned UTC instant; unique per schedule. None for manual runs.
    slot: datetime | None = None
    origin: Origin
    parent_id: RunId | None = None
    #: Of a child: its step. Of the retry of a flow: the step that it begins with; empty: the first.
    step: str = ""
    retry_of: RunId | None = None
    priority: int = 0
    #: Ranks behind on-time work of the same priority.
    catch_up: bool = False
    #: Runs with the same key share `concurrency_limit`; None: unlimited.
    concurrency_key: str | None = None
    concurrency_limit: int = 1
    #: Not claimable until a run with the same key ends.
    blocked: bool = False
    status: RunStatus = RunStatus.QUEUED
    #: 0 before the first claim, then 1, and one more for each retry or lost lease.
    attempt: int = 0
    #: Rises with every claim; every write of a worker carries it.
    fence: int = 0
    holder: NodeId | None = None
    #: Started mark of the current fence; written before the effect under `on_lost: stop`.
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
    error: MessageText = ""
    reason: str = ""
    #: For a `missed` row: the number of slots it covers, from `slot` to `missed_until`.
    missed_count: int = 0
    missed_until: datetime | None = None
    #: Finished attempts, oldest first.
    attempts: tuple[Attempt, ...] = ()

    @property
    def schedule_id(self) -> ScheduleId | None:
        return self.definition.schedule_id

    @property
    def schedule_name(self) -> str:
        return self.definition.schedule_name

    @property
    def schedule_version(self) -> int:
        return self.definition.schedule_version

    @property
    def namespace(self) -> str:
        return self.definition.namespace

    @property
    def owner(self) -> Owner:
        return self.definition.owner

    @property
    def target(self) -> Target:
        return self.definition.target

    @property
    def policy(self) -> Policy:
        return self.definition.policy

    @property
    def rank(self) -> int:
        """Queue order: higher first; see `queue_order` for equal ones."""
        return self.priority * 2 - self.catch_up

    @property
    def shown_reason(self) -> str:
        """`reason`, without that of an earlier wait in the queue: a claim does not change it."""
        waited = self.status is RunStatus.RUNNING and self.reason.startswith(
            (WAITING_PREFIX, SUSPENDED_PREFIX)
        )
        return "" if waited else self.reason

    @property
    def claimable(self) -> bool:
        return self.status is RunStatus.QUEUED and not self.blocked

    @property
    def admitted(self) -> bool:
        """Counts against the concurrency limit of its key."""
        return not self.status.terminal and not self.blocked

    @property
    def resumable(self) -> bool:
        """A flow has no effect of its own, only child runs: another node continues where it stands,
        so a lost node costs no attempt."""
        return self.definition.target.kind == "flow"

    @property
    def prefetched(self) -> bool:
        """Claimed before it is due and not confirmed; its node waits for the due time."""
        if self.claimed_at is None or self.status is not RunStatus.RUNNING:
            return False
        return self.claimed_at < self.available_at

    @property
    def failures(self) -> int:
        return sum(a.end in (AttemptEnd.FAILED, AttemptEnd.TIMEOUT) for a in self.attempts)

    @property
    def crashes(self) -> int:
        return sum(a.end is AttemptEnd.LOST for a in self.attempts)


class LogEntry(Struct, frozen=True, kw_only=True, gc=False):
    #: Position in its run's log; set by the store.
    number: int = 0
    at: datetime
    level: str = "info"
    message: str


class Outcome(Struct, frozen=True, kw_only=True, gc=False):
    """What an attempt returned."""

    end: AttemptEnd
    retryable: bool = False
    result: Mapping[str, object] | None = None
    error: str = ""
    #: Stable code of the failure, e.g. `egress_denied`.
    code: str = ""
    #: Minimum delay requested by the receiver (HTTP Retry-After).
    retry_after: timedelta | None = None
    #: Delay chosen by the target, instead of the policy's back-off.
    retry_in: timedelta | None = None
    #: The receiver wants no further calls (410 Gone).
    gone: bool = False
    #: The attempt, if the target recorded it in its own transaction.
    completed: Attempt | None = None
    #: A resumable target only waits: no attempt is recorded, and the run goes back to the queue
    #: until then, with `code` as its reason.
    suspended_until: datetime | None = None


class Completion(Struct, frozen=True, kw_only=True, gc=False):
    """The recorded end of an attempt. `retry_in` requeues the run instead of ending it."""

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
    #: No attempt was made: the run goes back to the queue for `retry_in` and waits for what
    #: `reason` says.
    deferred: bool = False
    #: The worker's copy of the run, which saves reading it again. Fields that can have changed
    #: since the claim (`cancel_requested`) are ignored.
    run: Run | None = None


def claim(run: Run, node: NodeId, now: datetime) -> Run:
    """A prefetched run starts when it is due."""
    return replace_struct(
        run,
        status=RunStatus.RUNNING,
        attempt=run.attempt + 1,
        fence=run.fence + 1,
        holder=node,
        started=False,
        claimed_at=now,
        started_at=run.started_at or max(now, run.available_at),
    )


def confirm(run: Run) -> Run:
    """A prefetched run that can no longer be withdrawn counts as claimed when it is due."""
    return replace(run, claimed_at=run.available_at)


def mark_started(run: Run) -> Run:
    return replace(run, started=True)


def release(run: Run) -> Run:
    """Return an unstarted run to the queue as if never claimed; the fence stays used. A resumable
    run may have started and keeps `started_at`."""
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
    """`release`, or `cancel` if a cancellation was requested meanwhile."""
    if run.cancel_requested:
        return cancel(release(run), run.reason or Reason.CANCELED_BY_HAND, now)
    return release(run)


#: A lost attempt has no outcome.
_STATUS_OF: dict[AttemptEnd, RunStatus] = {
    end: RunStatus(end.value) for end in AttemptEnd if end is not AttemptEnd.LOST
}


def completion_of(
    run: Run, outcome: Outcome, attempt: Attempt, logs: tuple[LogEntry, ...]
) -> Completion:
    """The completion that follows from an attempt's outcome and the retry policy."""
    retry_in = None
    status = _STATUS_OF[outcome.end]
    if outcome.retryable and run.failures < run.policy.max_retries:
        if outcome.retry_in is not None:
            retry_in = min(outcome.retry_in, MAX_RETRY_DELAY)
        else:
            retry_in = run.policy.retry_delay(
                run.failures + 1, run_id=run.id, retry_after=outcome.retry_after
            )
        status = RunStatus.QUEUED
    return Completion(
        run_id=run.id,
        fence=run.fence,
        attempt=replace(attempt, error=freeze(attempt.error)) if attempt.error else attempt,
        status=status,
        retry_in=retry_in,
        result=outcome.result,
        error=freeze(outcome.error) if outcome.error else "",
        reason=outcome.code,
        logs=logs,
        pause_schedule=outcome.code if outcome.gone and run.policy.pause_on_gone else "",
        run=run,
    )


def deferral_of(run: Run, attempt: Attempt, reason: str, delay: timedelta) -> Completion:
    """The completion of a run that waits in the queue; `attempt` is not recorded."""
    return Completion(
        run_id=run.id,
        fence=run.fence,
        attempt=attempt,
        status=RunStatus.QUEUED,
        retry_in=delay,
        reason=reason,
        deferred=True,
        run=run,
    )


def defer(run: Run, reason: str, delay: timedelta, now: datetime) -> Run:
    """Return an unstarted run to the queue until it is about its turn under a named limit, or a
    flow until what it waits for may have ended."""
    back = release_or_cancel(run, now)
    if back.status.terminal:
        return back
    return replace(back, available_at=now + delay, reason=reason)


def complete(run: Run, completion: Completion, now: datetime) -> Run:
    """The run after an accepted completion. A cancellation requested meanwhile beats a retry."""
    again = completion.retry_in
    if completion.deferred and again is not None:
        return defer(run, completion.reason, again, now)
    ended = replace_struct(
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
    """Whether a worker with this fence still owns the run."""
    return run.status is RunStatus.RUNNING and run.fence == fence


def is_recorded(run: Run, attempt: Attempt) -> bool:
    """Whether this end of the attempt is stored: the completion is repeated after a lost answer.
    Texts are not compared, because a store may have replaced characters that it cannot store."""
    return any(replace(each, error=attempt.error) == attempt for each in run.attempts)


def cancel(run: Run, reason: str, now: datetime) -> Run:
    return replace(
        run,
        status=RunStatus.CANCELED,
        reason=reason,
        blocked=False,
        holder=None,
        started=False,
        finished_at=now,
    )


def request_cancel(run: Run, reason: str, now: datetime) -> Run:
    """End a queued run, flag a running one for cancellation, leave an ended one unchanged."""
    if run.status is RunStatus.QUEUED:
        return cancel(run, reason, now)
    if run.status is RunStatus.RUNNING:
        return replace(run, cancel_requested=True, reason=reason)
    return run


def mark_lost(run: Run, now: datetime) -> Run:
    """The run after the lease of its node expired. Resumable runs have no crash limit, since
    their steps have one."""
    assert run.holder is not None
    if run.resumable or (run.prefetched and run.available_at > now):
        # A prefetched run has not started.
        return release_or_cancel(run, now)
    attempt = Attempt(
        number=run.attempt,
        fence=run.fence,
        node=run.holder,
        started_at=run.claimed_at or now,
        finished_at=now,
        end=AttemptEnd.LOST,
        error=_("the node of this run stopped sending heartbeats"),
    )
    gone = replace(run, holder=None, started=False, attempts=(*run.attempts, attempt))
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
    return replace(gone, status=RunStatus.QUEUED, available_at=now)


def cancel_step(child: Run, now: datetime) -> Run:
    """Cancel a step whose flow has ended."""
    return request_cancel(child, Reason.FLOW_ENDED, now)


def fail_unreadable(run: Run, now: datetime) -> Run:
    """End a run whose row is corrupt, so that it does not block the queue."""
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
    """Sort key of the queue: rank, then `available_at`, then `planned_at`, so that the slots of
    one catch-up run in order."""
    return (-run.rank, run.available_at, run.planned_at, run.id)


@lru_cache(maxsize=65_536)
def owner_number(owner: str) -> int:
    """The place of an owner in the rotation of turns: 63 bits of a hash, never 0."""
    digest = hashlib.blake2b(owner.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 1 or 1


#: The owner that was served last, by rank.
Turns = Mapping[int, int]
NO_TURNS: Turns = {}


def take_turns(runs: Iterable[Run], free: int, turns: Turns = NO_TURNS) -> list[Run]:
    """The `free` runs that are claimed next: by rank, and within a rank in turn between owners.

    The owner after the last one begins. Each gets an equal share of `free`, in queue order; what
    others leave goes to those with more runs."""
    waiting: dict[int, dict[int, list[Run]]] = {}
    for run in sorted(runs, key=queue_order):
        owners = waiting.setdefault(run.rank, {})
        owners.setdefault(owner_number(str(run.owner)), []).append(run)
    chosen: list[Run] = []
    for rank, owners in waiting.items():
        if len(chosen) >= free:
            break
        last = turns.get(rank, 0)
        order = sorted(owners, key=lambda number: (number <= last, number))
        share = share_of(free, len(order))
        chosen += [run for number in order for run in owners[number][:share]]
        chosen += [run for number in order for run in owners[number][share:]]
    return chosen[: max(0, free)]


def share_of(free: int, owners: int) -> int:
    """How many of `free` runs each of so many owners gets at least, if it has as many."""
    return -(-free // owners)


#: Ranks whose last owner is remembered.
_MOST_RANKS: Final = 200


def advance_turns(turns: Turns, served: Iterable[tuple[int, int]]) -> Turns:
    """`turns` after a claim of runs with these ranks and owners."""
    last: dict[int, int] = {}
    for rank, number in set(served):
        before = turns.get(rank, 0)
        if rank not in last or _distance(before, number) > _distance(before, last[rank]):
            last[rank] = number
    return {**turns, **last} if len(turns) < _MOST_RANKS else last


def _distance(last: int, number: int) -> int:
    """How far an owner is from the last one in the order of turns, at least 1."""
    return (number - last - 1) % 2**64 + 1


#: Fragments that complete a sentence such as "Skipped: …".
RUN_REASONS: Final[Mapping[str, Message]] = {
    Reason.OVERLAP: _("the previous run was still running"),
    Reason.DEPENDENCY: _("its dependency did not succeed in time"),
    Reason.MISFIRE: _("no node started it in time"),
    Reason.SKIPPED_BY_HAND: _("skipped by a user"),
    Reason.PAUSED: _("the schedule was paused"),
    Reason.MAINTENANCE: _("maintenance was on"),
    Reason.THROTTLED: _("events came too soon after the one before"),
    Reason.CATCH_UP: _("catch-up of a missed slot"),
    Reason.CANCELED_BY_HAND: _("canceled by a user"),
    Reason.REPLACED: _("replaced by a newer run"),
    Reason.SCHEDULE_DELETED: _("the schedule was deleted"),
    Reason.CRASH_LIMIT: _("its nodes crashed too often"),
    Reason.LOST_AFTER_START: _("its node was lost after it had started"),
    Reason.UNREADABLE: _("its stored record is corrupt"),
    Reason.FLOW_ENDED: _("its flow ended"),
    # Reasons of flow steps.
    "condition": _("its condition was not met"),
    "upstream_failed": _("a previous step failed"),
    "upstream_skipped": _("a previous step was skipped"),
    "condition_error": _("its condition could not be evaluated"),
    "invalid_map": _("the value to map over is not a list"),
    "step_failed": _("a step failed"),
    "rejected": _("rejected"),
    "expired": _("nothing happened in time"),
    "invalid_wait": _("what it should wait for is not valid"),
}


def describe_reason(code: str) -> str:
    """The words for a reason code; an unknown code, such as one of a target, is returned as is."""
    if code.startswith(WAITING_PREFIX):
        return _("waiting for limit {name}", name=code.removeprefix(WAITING_PREFIX))
    if code.startswith(SUSPENDED_PREFIX):
        return _("waiting at step {name}", name=code.removeprefix(SUSPENDED_PREFIX))
    return RUN_REASONS.get(code, code)


# --- concurrency keys -----------------------------------------------------------------------------
# Runs with the same key share a limit.
#
# | key | shared by |
# |---|---|
# | `schedule:ID` | runs of a schedule whose policy names no key |
# | `OWNER/NAME` | runs of one owner whose policies name the same key |
# | `task:NAME` | all runs of a task that limits its concurrency |
# | `sync:SOURCE#COLLECTION` | all runs of a sync pair |
# | `backfill:ID` | runs of a backfill that has a limit of its own |
#
# A name in a policy always gets the owner as a prefix, so that it cannot be the key of another
# owner or one of the other keys: none of their prefixes is a type of owner.

OWN_KEY_PREFIX = "schedule:"
_BACKFILL_PREFIX = "backfill:"
#: Keys that Chimes itself uses; `owner:` is a lock of SQL stores. A policy cannot name them, so
#: that a key shown to people means what it looks like.
RESERVED_PREFIXES = (OWN_KEY_PREFIX, "sync:", "task:", "flow:", _BACKFILL_PREFIX, "owner:")
#: Of the id of an owner in a key; longer ones are hashed.
_MAX_OWNER_ID = 255
_HASHED = "%"


# Every fired slot needs it several times.
@lru_cache(maxsize=65_536)
def own_key(schedule_id: str | None) -> str:
    """The concurrency key of a schedule whose policy names none."""
    return f"{OWN_KEY_PREFIX}{schedule_id}"


def backfill_key(backfill_id: str) -> str:
    return f"{_BACKFILL_PREFIX}{backfill_id}"


def target_key(target: Target) -> str | None:
    """The key that all runs of this target may share, also runs of different owners."""
    if isinstance(target, SyncTarget):
        return target.key
    return target.requirement if isinstance(target, TaskTarget) else None


def shared_key(policy: Policy, target: Target, owner: Owner) -> str | None:
    """The key of runs with this policy; None if the policy names none."""
    name = policy.concurrency_key
    if name is None or name == target_key(target):
        return name
    return f"{owner_key(owner)}/{name}"


def owner_key(owner: Owner) -> str:
    """The owner as the first part of a key; two owners never have the same."""
    return f"{owner.type}:{_unambiguous(owner.id)}"


def _unambiguous(owner_id: str) -> str:
    """The id, or its hash if it could be confused with the name that follows it or with a hash."""
    if "/" not in owner_id and not owner_id.startswith(_HASHED) and len(owner_id) <= _MAX_OWNER_ID:
        return owner_id
    digest = hashlib.blake2b(owner_id.encode(errors="surrogatepass"), digest_size=32)
    return f"{_HASHED}{digest.hexdigest()}"


def reserved_prefix(policy: Policy, target: Target) -> str | None:
    """The prefix because of which the policy may not name its key; None if it may."""
    name = policy.concurrency_key
    if name is None or name == target_key(target):
        return None
    return next((each for each in RESERVED_PREFIXES if name.strip().startswith(each)), None)
