"""Runs, with their attempts, and log entries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.run import Attempt, LogEntry, Origin, Run, RunStatus
from chimes.store.codec.run import attempt_from_plain, attempt_to_plain
from chimes.store.sql.rows.parts import (
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
    target_of,
)
from chimes.store.sql.tables import runs

#: Looking values up by name in a Row takes longer than all the rest of decoding it.
_COLUMNS = tuple(runs.c.keys())

NO_ATTEMPTS = "[]"


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
        "needs": run.target.needs,
        "batch_id": batch_id,
        **state_values(run),
    }


def state_values(run: Run) -> dict[str, Value]:
    """What changes in the life of a run; the rest is set when it is made."""
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
        "result": None if run.result is None else encode_object(run.result),
        "error": clean(run.error),
        "reason": clean(run.reason),
        "attempts": _attempts_text(run.attempts),
    }


def run_of(row: Sequence[Any]) -> Run:
    cell = dict(zip(_COLUMNS, row, strict=True))
    schedule_id, parent_id, retry_of = cell["schedule_id"], cell["parent_id"], cell["retry_of"]
    holder, result = cell["holder"], cell["result"]
    return Run(
        id=RunId(cell["id"]),
        schedule_id=None if schedule_id is None else ScheduleId(schedule_id),
        schedule_name=cell["schedule_name"],
        schedule_version=cell["schedule_version"],
        namespace=cell["namespace"],
        owner=owner_of(cell["owner_type"], cell["owner_id"]),
        slot=maybe_moment(cell["slot"]),
        origin=Origin(cell["origin"]),
        parent_id=None if parent_id is None else RunId(parent_id),
        step=cell["step"],
        retry_of=None if retry_of is None else RunId(retry_of),
        target=target_of(cell["target"]),
        policy=policy_of(cell["policy"]),
        priority=cell["priority"],
        catch_up=cell["catch_up"] == 1,
        concurrency_key=cell["concurrency_key"],
        concurrency_limit=cell["concurrency_limit"],
        blocked=cell["blocked"] == 1,
        status=RunStatus(cell["status"]),
        attempt=cell["attempt"],
        fence=cell["fence"],
        holder=None if holder is None else NodeId(holder),
        started=cell["started"] == 1,
        cancel_requested=cell["cancel_requested"] == 1,
        created_at=moment_of(cell["created_at"]),
        planned_at=moment_of(cell["planned_at"]),
        available_at=moment_of(cell["available_at"]),
        claimed_at=maybe_moment(cell["claimed_at"]),
        started_at=maybe_moment(cell["started_at"]),
        finished_at=maybe_moment(cell["finished_at"]),
        result=None if result is None else decode_object(result),
        error=cell["error"],
        reason=cell["reason"],
        missed_count=cell["missed_count"],
        missed_until=maybe_moment(cell["missed_until"]),
        attempts=_attempts_of(cell["attempts"]),
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


def _attempts_text(attempts: tuple[Attempt, ...]) -> str:
    if not attempts:
        return NO_ATTEMPTS
    return encode([attempt_to_plain(attempt) for attempt in attempts])


def _attempts_of(text: str) -> tuple[Attempt, ...]:
    if text == NO_ATTEMPTS:
        return ()
    return tuple(attempt_from_plain(attempt) for attempt in json.loads(text))
