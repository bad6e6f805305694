"""Runs, keys, nodes and audit entries as the native API shows them; pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.doors.api.wire import Json, time_out
from chimes.doors.api.wire_targets import target_out
from chimes.model.access import ApiKey
from chimes.model.audit import AuditEntry
from chimes.model.node import Node
from chimes.model.run import Attempt, LogEntry, Run
from chimes.retelling import retold, retold_line
from chimes.store.codec.schedule import owner_to_plain
from chimes.wording import ENGLISH


def run_out(run: Run, lang: str = ENGLISH) -> Json:
    """What Chimes says of it is told in the language; what the target said stays as it is."""
    return {
        "id": run.id,
        "schedule_id": run.schedule_id,
        "schedule_name": run.schedule_name,
        "namespace": run.namespace,
        "owner": owner_to_plain(run.owner),
        "slot": time_out(run.slot),
        "origin": run.origin.value,
        "status": run.status.value,
        "attempt": run.attempt,
        "fence": run.fence,
        "priority": run.priority,
        "planned_at": time_out(run.planned_at),
        "created_at": time_out(run.created_at),
        "available_at": time_out(run.available_at),
        "claimed_at": time_out(run.claimed_at),
        "started_at": time_out(run.started_at),
        "finished_at": time_out(run.finished_at),
        "duration_ms": _milliseconds(run.started_at, run.finished_at),
        "lag_ms": _milliseconds(run.planned_at, run.started_at),
        "node": run.holder,
        "blocked": run.blocked,
        "cancel_requested": run.cancel_requested,
        "result": None if run.result is None else dict(run.result),
        "error": run.error and retold(run.error, lang),
        "reason": run.reason and retold(run.reason, lang),
        "missed_count": run.missed_count,
        "missed_until": time_out(run.missed_until),
        "retry_of": run.retry_of,
        "parent_id": run.parent_id,
        "step": run.step,
        "target": target_out(run.target),
        "attempts": [attempt_out(attempt, lang) for attempt in run.attempts],
    }


def attempt_out(attempt: Attempt, lang: str = ENGLISH) -> Json:
    return {
        "number": attempt.number,
        "fence": attempt.fence,
        "node": attempt.node,
        "started_at": time_out(attempt.started_at),
        "finished_at": time_out(attempt.finished_at),
        "duration_ms": _milliseconds(attempt.started_at, attempt.finished_at),
        "end": attempt.end.value,
        "error": attempt.error and retold(attempt.error, lang),
    }


def log_out(entry: LogEntry, lang: str = ENGLISH) -> Json:
    return {
        "number": entry.number,
        "at": time_out(entry.at),
        "level": entry.level,
        "message": retold_line(entry.message, lang),
    }


def key_out(key: ApiKey) -> Json:
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role.value,
        "scopes": [scope.value for scope in key.scopes],
        "owner": owner_to_plain(key.owner),
        "created_at": time_out(key.created_at),
        "created_by": key.created_by,
        "expires_at": time_out(key.expires_at),
        "last_used_at": time_out(key.last_used_at),
        "revoked_at": time_out(key.revoked_at),
    }


def node_out(node: Node, now: datetime) -> Json:
    told = node.facts
    return {
        "id": node.id,
        "version": node.version,
        "roles": list(node.roles),
        "capacity": node.capacity,
        "started_at": time_out(node.started_at),
        "heartbeat_at": time_out(node.heartbeat_at),
        "lease_until": time_out(node.lease_until),
        "alive": node.lease_until > now,
        "state": node.state(now).value,
        "drain": node.drain,
        "running": None if told is None else told.running,
        "sending": None if told is None else told.sending,
        "claims_per_minute": None if told is None else told.claims_per_minute,
        "memory_bytes": None if told is None else told.memory,
        "queues": None if told is None else list(told.queues),
        "clock_offset_seconds": round(node.clock_offset, 6),
        "offers": list(node.offers),
    }


def audit_out(entry: AuditEntry) -> Json:
    return {
        "number": entry.number,
        "at": time_out(entry.at),
        "actor": entry.actor,
        "door": entry.door,
        "verb": entry.verb,
        "object_kind": entry.object_kind,
        "object_id": entry.object_id,
        "owner": entry.owner,
        "changes": dict(entry.changes),
        "reason": entry.reason,
        "address": entry.address,
        "allowed": entry.allowed,
        "previous_hash": entry.previous_hash,
        "prev_hash": entry.previous_hash,
        "hash": entry.hash,
    }


def _milliseconds(begin: datetime | None, end: datetime | None) -> float | None:
    if begin is None or end is None:
        return None
    return (end - begin) / timedelta(milliseconds=1)
