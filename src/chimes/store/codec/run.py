"""Encodes runs, attempts and log entries."""

from __future__ import annotations

from chimes.i18n import from_stored, to_stored
from chimes.model.ids import DEFAULT_NAMESPACE, NodeId, RunId, ScheduleId
from chimes.model.run import Attempt, AttemptEnd, LogEntry, Origin, Run, RunStatus
from chimes.store.codec.schedule import (
    owner_from_plain,
    owner_to_plain,
    policy_from_plain,
    policy_to_plain,
    target_from_plain,
    target_to_plain,
)
from chimes.store.json_values import Plain, Reader, drop_empty, maybe_text, to_text


def attempt_to_plain(attempt: Attempt) -> Plain:
    return drop_empty(
        {
            "number": attempt.number,
            "fence": attempt.fence,
            "node": attempt.node,
            "started_at": to_text(attempt.started_at),
            "finished_at": to_text(attempt.finished_at),
            "end": attempt.end.value,
            "error": to_stored(attempt.error),
        }
    )


def attempt_from_plain(data: object) -> Attempt:
    read = Reader(data)
    attempt = Attempt(
        number=read.integer("number"),
        fence=read.integer("fence"),
        node=NodeId(read.text("node", "")),
        started_at=read.time("started_at"),
        finished_at=read.time("finished_at"),
        end=AttemptEnd(read.text("end")),
        error=from_stored(read.text("error", "")),
    )
    read.done()
    return attempt


def run_to_plain(run: Run) -> Plain:
    return drop_empty(
        {
            "id": run.id,
            "schedule_id": run.schedule_id,
            "schedule_name": run.schedule_name,
            "schedule_version": run.schedule_version,
            "namespace": run.namespace,
            "owner": owner_to_plain(run.owner),
            "slot": maybe_text(run.slot),
            "origin": run.origin.value,
            "parent_id": run.parent_id,
            "step": run.step,
            "retry_of": run.retry_of,
            "target": target_to_plain(run.target),
            "policy": policy_to_plain(run.policy),
            "priority": run.priority,
            "catch_up": run.catch_up,
            "concurrency_key": run.concurrency_key,
            "concurrency_limit": run.concurrency_limit,
            "blocked": run.blocked,
            "status": run.status.value,
            "attempt": run.attempt,
            "fence": run.fence,
            "holder": run.holder,
            "started": run.started,
            "cancel_requested": run.cancel_requested,
            "created_at": to_text(run.created_at),
            "planned_at": to_text(run.planned_at),
            "available_at": to_text(run.available_at),
            "claimed_at": maybe_text(run.claimed_at),
            "started_at": maybe_text(run.started_at),
            "finished_at": maybe_text(run.finished_at),
            "error": to_stored(run.error),
            "reason": run.reason,
            "missed_count": run.missed_count,
            "missed_until": maybe_text(run.missed_until),
            "attempts": [attempt_to_plain(attempt) for attempt in run.attempts],
        }
    ) | ({} if run.result is None else {"result": dict(run.result)})


def run_from_plain(data: object) -> Run:
    read = Reader(data)
    schedule_id, parent_id = read.maybe_text("schedule_id"), read.maybe_text("parent_id")
    retry_of, holder = read.maybe_text("retry_of"), read.maybe_text("holder")
    run = Run(
        id=RunId(read.text("id")),
        schedule_id=ScheduleId(schedule_id) if schedule_id else None,
        schedule_name=read.text("schedule_name", ""),
        schedule_version=read.integer("schedule_version", 0),
        namespace=read.text("namespace", DEFAULT_NAMESPACE),
        owner=read.read("owner", owner_from_plain),
        slot=read.maybe_time("slot"),
        origin=Origin(read.text("origin")),
        parent_id=RunId(parent_id) if parent_id else None,
        step=read.text("step", ""),
        retry_of=RunId(retry_of) if retry_of else None,
        target=read.read("target", target_from_plain),
        policy=read.read("policy", policy_from_plain),
        priority=read.integer("priority", 0),
        catch_up=read.flag("catch_up", False),
        concurrency_key=read.maybe_text("concurrency_key"),
        concurrency_limit=read.integer("concurrency_limit", 1),
        blocked=read.flag("blocked", False),
        status=RunStatus(read.text("status")),
        attempt=read.integer("attempt", 0),
        fence=read.integer("fence", 0),
        holder=NodeId(holder) if holder else None,
        started=read.flag("started", False),
        cancel_requested=read.flag("cancel_requested", False),
        created_at=read.time("created_at"),
        planned_at=read.time("planned_at"),
        available_at=read.time("available_at"),
        claimed_at=read.maybe_time("claimed_at"),
        started_at=read.maybe_time("started_at"),
        finished_at=read.maybe_time("finished_at"),
        result=read.mapping("result") if read.has("result") else None,
        error=from_stored(read.text("error", "")),
        reason=read.text("reason", ""),
        missed_count=read.integer("missed_count", 0),
        missed_until=read.maybe_time("missed_until"),
        attempts=tuple(attempt_from_plain(attempt) for attempt in read.items("attempts")),
    )
    read.done()
    return run


def log_to_plain(entry: LogEntry) -> Plain:
    return {
        "number": entry.number,
        "at": to_text(entry.at),
        "level": entry.level,
        "message": entry.message,
    }


def log_from_plain(data: object) -> LogEntry:
    read = Reader(data)
    entry = LogEntry(
        number=read.integer("number"),
        at=read.time("at"),
        level=read.text("level"),
        message=read.text("message"),
    )
    read.done()
    return entry
