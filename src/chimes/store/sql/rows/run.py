"""Rows of runs, with their attempts, and of log entries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Row

from chimes.i18n import from_stored
from chimes.model.ids import RunId
from chimes.model.run import Attempt, LogEntry, Origin, Run
from chimes.store.codec.records import attempt_from_plain, attempt_to_plain
from chimes.store.codec.values import to_text
from chimes.store.sql.rows.values import (
    STATUSES,
    TargetTexts,
    Value,
    clean,
    decode_object,
    encode,
    encode_object,
    maybe_micros,
    maybe_moment,
    micros,
    moment_of,
    owner_of,
    policy_of,
    policy_text,
    stored_text,
    target_of,
)

_ORIGINS = {origin.value: origin for origin in Origin}

NO_ATTEMPTS = "[]"
#: The result of a task that returns nothing, as most do.
_NOTHING = {"value": None}
_NOTHING_TEXT = encode(_NOTHING)


def run_values(run: Run, target_text: TargetTexts, batch_id: int | None = None) -> dict[str, Value]:
    return {
        "id": run.id,
        "schedule_id": run.schedule_id,
        "schedule_name": run.schedule_name,
        "schedule_version": run.schedule_version,
        "namespace": run.namespace,
        "owner_type": run.owner.type.value,
        "owner_id": run.owner.id,
        "slot": maybe_micros(run.slot),
        "origin": run.origin.value,
        "parent_id": run.parent_id,
        "step": run.step,
        "retry_of": run.retry_of,
        "kind": run.target.kind,
        "target": target_text(run.target),
        "policy": policy_text(run.policy),
        "priority": run.priority,
        "catch_up": int(run.catch_up),
        "rank": run.rank,
        "concurrency_key": run.concurrency_key,
        "concurrency_limit": run.concurrency_limit,
        "created_at": micros(run.created_at),
        "planned_at": micros(run.planned_at),
        "missed_count": run.missed_count,
        "missed_until": maybe_micros(run.missed_until),
        "needs": run.target.requirement,
        "batch_id": batch_id,
        **state_values(run),
    }


def state_values(run: Run) -> dict[str, Value]:
    """The columns that change during the life of a run; the others are set when it is created."""
    return {
        "blocked": int(run.blocked),
        "status": run.status.value,
        "attempt": run.attempt,
        "fence": run.fence,
        "holder": run.holder,
        "started": int(run.started),
        "cancel_requested": int(run.cancel_requested),
        "available_at": micros(run.available_at),
        "claimed_at": maybe_micros(run.claimed_at),
        "started_at": maybe_micros(run.started_at),
        "finished_at": maybe_micros(run.finished_at),
        "result": result_text(run.result),
        "error": stored_text(run.error),
        "reason": clean(run.reason),
        "attempts": _attempts_text(run.attempts),
    }


def run_of(row: Sequence[Any]) -> Run:
    """Unpacks by position, like `schedule_of`."""
    (
        run_id,
        schedule_id,
        schedule_name,
        schedule_version,
        namespace,
        owner_type,
        owner_id,
        slot,
        origin,
        parent_id,
        step,
        retry_of,
        _kind,
        target,
        policy,
        priority,
        catch_up,
        _rank,
        concurrency_key,
        concurrency_limit,
        blocked,
        status,
        attempt,
        fence,
        holder,
        started,
        cancel_requested,
        created_at,
        planned_at,
        available_at,
        claimed_at,
        started_at,
        finished_at,
        result,
        error,
        reason,
        missed_count,
        missed_until,
        attempts,
        _needs,
        _batch_id,
    ) = row
    return Run(
        id=run_id,
        schedule_id=schedule_id,
        schedule_name=schedule_name,
        schedule_version=schedule_version,
        namespace=namespace,
        owner=owner_of(owner_type, owner_id),
        slot=maybe_moment(slot),
        origin=_ORIGINS[origin],
        parent_id=parent_id,
        step=step,
        retry_of=retry_of,
        target=target_of(target),
        policy=policy_of(policy),
        priority=priority,
        catch_up=catch_up == 1,
        concurrency_key=concurrency_key,
        concurrency_limit=concurrency_limit,
        blocked=blocked == 1,
        status=STATUSES[status],
        attempt=attempt,
        fence=fence,
        holder=holder,
        started=started == 1,
        cancel_requested=cancel_requested == 1,
        created_at=moment_of(created_at),
        planned_at=moment_of(planned_at),
        available_at=moment_of(available_at),
        claimed_at=maybe_moment(claimed_at),
        started_at=maybe_moment(started_at),
        finished_at=maybe_moment(finished_at),
        result=None if result is None else decode_object(result),
        error=from_stored(error),
        reason=reason,
        missed_count=missed_count,
        missed_until=maybe_moment(missed_until),
        attempts=() if attempts == NO_ATTEMPTS else attempts_of(attempts),
    )


def log_values(run_id: RunId, number: int, entry: LogEntry) -> dict[str, Value]:
    return {
        "run_id": run_id,
        "number": number,
        "at": micros(entry.at),
        "level": entry.level,
        "message": clean(entry.message),
    }


def log_of(row: Row[Any]) -> LogEntry:
    return LogEntry(number=row.number, at=moment_of(row.at), level=row.level, message=row.message)


def attempt_text(attempt: Attempt) -> str:
    """Encodes one entry of `attempts`. Attempts without an error are the common case and are
    formatted directly: only the node's name needs escaping."""
    if attempt.error:
        return encode(attempt_to_plain(attempt))
    return (
        f'{{"number":{attempt.number},"fence":{attempt.fence},"node":{_quoted(attempt.node)}'
        f',"started_at":"{to_text(attempt.started_at)}"'
        f',"finished_at":"{to_text(attempt.finished_at)}","end":"{attempt.end.value}"}}'
    )


@lru_cache(maxsize=256)
def _quoted(text: str) -> str:
    return encode(text)


def result_text(result: Mapping[str, object] | None) -> str | None:
    if result is None:
        return None
    return _NOTHING_TEXT if result == _NOTHING else encode_object(result)


def _attempts_text(attempts: tuple[Attempt, ...]) -> str:
    if not attempts:
        return NO_ATTEMPTS
    return encode([attempt_to_plain(attempt) for attempt in attempts])


def attempts_of(text: str) -> tuple[Attempt, ...]:
    return tuple(attempt_from_plain(attempt) for attempt in json.loads(text))
