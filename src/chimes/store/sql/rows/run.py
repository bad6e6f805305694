"""Rows of runs in `runs`, `queue` and `claims`, with their attempts, and of log entries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from chimes.clock import from_micros
from chimes.i18n import from_stored
from chimes.model.ids import NodeId, RunId
from chimes.model.run import (
    Attempt,
    AttemptEnd,
    Completion,
    LogEntry,
    Origin,
    Run,
    RunDefinition,
    RunStatus,
    own_key,
    owner_number,
)
from chimes.store.codec.records import attempt_from_plain, attempt_to_plain
from chimes.store.sql.rows.values import (
    STATUSES,
    Values,
    clean,
    decode_object,
    encode,
    encode_object,
    maybe_micros,
    micros,
    moment_of,
    number_of,
    repeated_micros,
    schedule_number,
    stored_text,
)

_ORIGINS = {origin.value: origin for origin in Origin}
#: Faster than the attribute of the enumeration.
_ORIGIN_TEXTS = {origin: text for text, origin in _ORIGINS.items()}
#: The result of a task that returns nothing, as most do.
_NOTHING = {"value": None}
_NOTHING_TEXT = encode(_NOTHING)
#: Stored concurrency key of runs that use their schedule's own key.
OWN_KEY = ""

#: Columns of `runs` that are set when a run is planned and never change.
PLANNED = (
    *("id", "schedule", "slot", "definition", "args", "source", "origin", "parent_id", "step"),
    *("retry_of", "priority", "catch_up", "concurrency_key", "concurrency_limit", "created_at"),
    *("planned_at", "batch_id", "missed_count", "missed_until"),
)
_PLANNED_AT = PLANNED.index("planned_at")
#: Columns of `runs` that change: when the run ends, is requeued or canceled.
STATE = (
    *("available_at", "status", "attempt", "fence", "node", "claimed_at", "started_at"),
    *("finished_at", "attempt_started_at", "attempt_finished_at", "result", "error", "reason"),
    *("attempts", "cancel_requested", "problem"),
)
#: What the end of a run writes that its claim does not know.
ENDING = (
    *("id", "fence", "status", "attempt_started_at", "attempt_finished_at", "result", "error"),
    *("reason", "attempts"),
)
QUEUE = (
    *("run_id", "rank", "available_at", "planned_at", "needs", "attempt", "fence", "blocked"),
    *("concurrency", "concurrency_limit", "owner"),
)
CLAIMS = (
    *("run_id", "node", "attempt", "fence", "started", "cancel_requested", "claimed_at"),
    *("available_at", "concurrency"),
)
LOG = ("run_id", "number", "at", "level", "message")


def planned_values(
    run: Run,
    definition: int,
    concurrency: int | None,
    args: str | None = None,
    batch_id: int | None = None,
) -> Values:
    """In the order of PLANNED. `concurrency`: its concurrency key as a number."""
    target, schedule_id = run.definition.target, run.definition.schedule_id
    if concurrency is not None and concurrency < 0:
        schedule: int | None = -concurrency
        key: str | None = OWN_KEY
    else:
        schedule = None if schedule_id is None else schedule_number(schedule_id)
        key = run.concurrency_key
    planned_at = repeated_micros(run.planned_at)
    return (
        run.id,
        schedule,
        planned_at if run.slot is run.planned_at else maybe_micros(run.slot),
        definition,
        args,
        target.requirement if target.kind == "sync" else None,
        _ORIGIN_TEXTS[run.origin],
        run.parent_id,
        run.step or None,
        run.retry_of,
        run.priority,
        int(run.catch_up),
        key,
        run.concurrency_limit,
        repeated_micros(run.created_at),
        planned_at,
        batch_id,
        run.missed_count or None,
        maybe_micros(run.missed_until),
    )


def concurrency_number(run: Run) -> int | None:
    """The concurrency key of the run as a number; negative: the own key of its schedule."""
    key, schedule_id = run.concurrency_key, run.definition.schedule_id
    if key is None:
        return None
    if schedule_id is not None and key == own_key(schedule_id):
        return -schedule_number(schedule_id)
    return number_of(key)


def inserted_values(planned: Values, run: Run) -> Values:
    """In the order of PLANNED and STATE; `planned`: the values of PLANNED."""
    if run.available_at is run.planned_at and _is_new(run):
        return (*planned, planned[_PLANNED_AT], *_NEW)
    return planned + state_values(run)


def state_values(run: Run) -> Values:
    """In the order of STATE."""
    status, reason = run.status, run.reason
    if _is_new(run):
        return (micros(run.available_at), *_NEW)
    ended = status.terminal
    last = run.attempts[-1] if run.attempts else None
    claimed_at, started_at, finished_at = run.claimed_at, run.started_at, run.finished_at
    return (
        micros(run.available_at),
        status.value if ended else RunStatus.QUEUED.value,
        run.attempt,
        run.fence,
        last.node if last else None,
        micros(claimed_at) if claimed_at else None,
        micros(started_at) if started_at else None,
        micros(finished_at) if finished_at else None,
        micros(last.started_at) if last else None,
        micros(last.finished_at) if last else None,
        result_text(run.result),
        stored_text(run.error) if run.error else None,
        clean(reason) if reason else None,
        attempts_text(run.attempts, run),
        1 if run.cancel_requested and status is not RunStatus.RUNNING else None,
        status.value if ended and status is not RunStatus.SUCCEEDED else None,
    )


def ending_values(run: Run, completion: Completion) -> Values:
    """In the order of ENDING."""
    last, error, reason = completion.attempt, completion.error, completion.reason
    return (
        run.id,
        run.fence,
        completion.status.value,
        micros(last.started_at),
        micros(last.finished_at),
        result_text(completion.result),
        stored_text(error) if error else None,
        clean(reason) if reason else None,
        attempts_text((*run.attempts, last), run),
    )


def _is_new(run: Run) -> bool:
    """Whether the run has no texts and waits for its first claim, or has it: the common case. The
    state of a claim is in `claims`."""
    if run.reason or run.error or run.attempts or run.result is not None:
        return False
    if run.status is RunStatus.RUNNING:
        return run.attempt == 1 and run.started_at == _start_of_claim(run)
    return run.status is RunStatus.QUEUED and not (
        run.fence or run.started_at or run.cancel_requested
    )


def _start_of_claim(run: Run) -> datetime | None:
    """The start of a run that was not started by an earlier claim, as `run_of` computes it."""
    if run.claimed_at is None:
        return None
    return max(run.claimed_at, run.available_at)


#: Of a new run, after `available_at`.
_NEW: Values = (RunStatus.QUEUED.value, 0, 0, *([None] * (len(STATE) - 4)))


def queue_values(run: Run, concurrency: int | None) -> Values:
    """In the order of QUEUE."""
    return (
        run.id,
        run.rank,
        micros(run.available_at),
        micros(run.planned_at),
        run.target.requirement,
        run.attempt,
        run.fence,
        int(run.blocked),
        concurrency,
        run.concurrency_limit,
        owner_number(str(run.definition.owner)),
    )


def claim_values(run: Run, concurrency: int | None) -> Values:
    """In the order of CLAIMS."""
    assert run.holder is not None
    assert run.claimed_at is not None
    return (
        run.id,
        run.holder,
        run.attempt,
        run.fence,
        int(run.started),
        int(run.cancel_requested),
        repeated_micros(run.claimed_at),
        repeated_micros(run.available_at),
        concurrency,
    )


def run_of(row: Sequence[Any], definition: RunDefinition) -> Run:
    """Decodes a row of RUN_COLUMNS by position."""
    (
        run_id,
        _schedule,
        slot,
        _definition,
        _args,
        _source,
        origin,
        parent_id,
        step,
        retry_of,
        priority,
        catch_up,
        key,
        concurrency_limit,
        created_at,
        planned_at,
        _batch_id,
        missed_count,
        missed_until,
        available_at,
        status,
        attempt,
        fence,
        node,
        claimed_at,
        started_at,
        finished_at,
        attempt_started_at,
        attempt_finished_at,
        result,
        error,
        reason,
        attempts,
        was_cancel_requested,
        _problem,
        queue_available_at,
        queue_attempt,
        queue_fence,
        blocked,
        claim_node,
        claim_attempt,
        claim_fence,
        claim_started,
        cancel_requested,
        claim_claimed_at,
        claim_available_at,
        _concurrency,
    ) = row
    holder = None
    if claim_node is not None:
        state = RunStatus.RUNNING
        holder = claim_node
        attempt, fence, available_at = claim_attempt, claim_fence, claim_available_at
        claimed_at = claim_claimed_at
        if started_at is None:
            # A prefetched run starts when it is due.
            started_at = max(claim_claimed_at, claim_available_at)
    elif queue_fence is not None:
        state = RunStatus.QUEUED
        attempt, fence, available_at = queue_attempt, queue_fence, queue_available_at
    else:
        state = STATUSES[status]
    return Run(
        id=run_id,
        definition=definition,
        slot=None if slot is None else moment_of(slot),
        origin=_ORIGINS[origin],
        parent_id=parent_id,
        step=step or "",
        retry_of=retry_of,
        priority=priority,
        catch_up=catch_up == 1,
        concurrency_key=key if key != OWN_KEY else own_key(definition.schedule_id),
        concurrency_limit=concurrency_limit,
        blocked=blocked == 1,
        status=state,
        attempt=attempt,
        fence=fence,
        holder=holder,
        started=claim_started == 1,
        cancel_requested=(cancel_requested or was_cancel_requested) == 1,
        created_at=from_micros(created_at),
        planned_at=moment_of(planned_at),
        available_at=moment_of(available_at),
        claimed_at=None if claimed_at is None else moment_of(claimed_at),
        started_at=None if started_at is None else moment_of(started_at),
        finished_at=None if finished_at is None else moment_of(finished_at),
        result=None if result is None else decode_object(result),
        error="" if error is None else from_stored(error),
        reason=reason or "",
        missed_count=missed_count or 0,
        missed_until=None if missed_until is None else moment_of(missed_until),
        attempts=()
        if attempts is None and attempt_started_at is None
        else _attempts(attempts, attempt, fence, node, attempt_started_at, attempt_finished_at),
    )


def log_values(run_id: RunId, number: int, entry: LogEntry) -> Values:
    """In the order of LOG."""
    return (run_id, number, micros(entry.at), entry.level, clean(entry.message))


def log_of(row: Row[Any]) -> LogEntry:
    return LogEntry(number=row.number, at=moment_of(row.at), level=row.level, message=row.message)


def result_text(result: Mapping[str, object] | None) -> str | None:
    if result is None:
        return None
    return _NOTHING_TEXT if result == _NOTHING else encode_object(result)


# --- attempts -------------------------------------------------------------------------------------
def attempts_text(attempts: Sequence[Attempt], run: Run) -> str | None:
    """None if there are none, or if the columns of the run describe the only one."""
    if not attempts or (len(attempts) == 1 and _in_columns(attempts[0], run)):
        return None
    return encode([attempt_to_plain(attempt) for attempt in attempts])


def _in_columns(only: Attempt, run: Run) -> bool:
    return (
        only.end is AttemptEnd.SUCCEEDED
        and not only.error
        and only.number == run.attempt
        and only.fence == run.fence
    )


def _attempts(
    text: str | None,
    attempt: int,
    fence: int,
    node: str | None,
    started_at: int | None,
    finished_at: int | None,
) -> tuple[Attempt, ...]:
    if text is not None:
        return attempts_of(text)
    if started_at is None or finished_at is None:
        return ()
    only = Attempt(
        number=attempt,
        fence=fence,
        node=NodeId(node or ""),
        started_at=moment_of(started_at),
        finished_at=moment_of(finished_at),
        end=AttemptEnd.SUCCEEDED,
    )
    return (only,)


def attempts_of(text: str) -> tuple[Attempt, ...]:
    return tuple(attempt_from_plain(attempt) for attempt in json.loads(text))
