"""Encodes what the engine and the services record: runs, deliveries, nodes, audit entries, keys."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

from chimes.errors import InvalidInput
from chimes.i18n import _, from_stored, to_stored
from chimes.model.access import ApiKey, Role, Scope
from chimes.model.audit import AuditEntry
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import (
    DEFAULT_NAMESPACE,
    DeliveryId,
    InboxId,
    KeyId,
    NodeId,
    RunId,
    ScheduleId,
)
from chimes.model.node import NodeReport
from chimes.model.notification import Artifact, Delivery, DeliveryState, InboxItem
from chimes.model.policy import RunDefaults
from chimes.model.recipient import NotifyOn
from chimes.model.run import Attempt, AttemptEnd, LogEntry, Origin, Run, RunStatus
from chimes.store.codec.values import (
    Plain,
    Reader,
    drop_empty,
    maybe_text,
    owner_from_plain,
    owner_to_plain,
    policy_from_plain,
    policy_to_plain,
    recipient_from_plain,
    recipient_to_plain,
    target_from_plain,
    target_to_plain,
    to_text,
)


# --- runs, attempts and log entries ---------------------------------------------------------------
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


# --- deliveries and inbox items -------------------------------------------------------------------
def delivery_to_plain(delivery: Delivery) -> Plain:
    return drop_empty(
        {
            "id": delivery.id,
            "run_id": delivery.run_id,
            "schedule_id": delivery.schedule_id,
            "schedule_name": delivery.schedule_name,
            "owner": owner_to_plain(delivery.owner),
            "recipient": recipient_to_plain(delivery.recipient),
            "occasion": delivery.notify_on.value,
            "state": delivery.state.value,
            "attempts": delivery.attempts,
            "fence": delivery.fence,
            "progress": delivery.progress,
            "created_at": to_text(delivery.created_at),
            "available_at": to_text(delivery.available_at),
            "finished_at": maybe_text(delivery.finished_at),
            "error": to_stored(delivery.error),
            "code": delivery.code,
            "receipt": delivery.receipt,
        }
    )


def delivery_from_plain(data: object) -> Delivery:
    read = Reader(data)
    run_id, schedule_id = read.maybe_text("run_id"), read.maybe_text("schedule_id")
    delivery = Delivery(
        id=DeliveryId(read.text("id")),
        run_id=None if run_id is None else RunId(run_id),
        schedule_id=None if schedule_id is None else ScheduleId(schedule_id),
        schedule_name=read.text("schedule_name", ""),
        owner=read.read("owner", owner_from_plain),
        recipient=read.read("recipient", recipient_from_plain),
        notify_on=NotifyOn(read.text("occasion")),
        state=DeliveryState(read.text("state", DeliveryState.PENDING)),
        attempts=read.integer("attempts", 0),
        fence=read.integer("fence", 0),
        progress=read.integer("progress", 0),
        created_at=read.time("created_at"),
        available_at=read.time("available_at"),
        finished_at=read.maybe_time("finished_at"),
        error=from_stored(read.text("error", "")),
        code=read.text("code", ""),
        receipt=read.text("receipt", ""),
    )
    read.done()
    return delivery


def inbox_to_plain(item: InboxItem) -> Plain:
    return drop_empty(
        {
            "id": item.id,
            "owner": owner_to_plain(item.owner),
            "run_id": item.run_id,
            "schedule_id": item.schedule_id,
            "schedule_name": item.schedule_name,
            "title": item.title,
            "text": item.text,
            "status": item.status,
            "artifacts": artifacts_to_plain(item.artifacts),
            "created_at": to_text(item.created_at),
            "read_at": maybe_text(item.read_at),
            "starred": item.starred,
            "archived_at": maybe_text(item.archived_at),
            "snoozed_until": maybe_text(item.snoozed_until),
        }
    )


def inbox_from_plain(data: object) -> InboxItem:
    read = Reader(data)
    run_id, schedule_id = read.maybe_text("run_id"), read.maybe_text("schedule_id")
    item = InboxItem(
        id=InboxId(read.text("id")),
        owner=read.read("owner", owner_from_plain),
        run_id=None if run_id is None else RunId(run_id),
        schedule_id=None if schedule_id is None else ScheduleId(schedule_id),
        schedule_name=read.text("schedule_name", ""),
        title=read.text("title", ""),
        text=read.text("text", ""),
        status=read.text("status", ""),
        artifacts=artifacts_from_plain(read.items("artifacts")),
        created_at=read.time("created_at"),
        read_at=read.maybe_time("read_at"),
        starred=read.flag("starred", False),
        archived_at=read.maybe_time("archived_at"),
        snoozed_until=read.maybe_time("snoozed_until"),
    )
    read.done()
    return item


def artifacts_to_plain(artifacts: tuple[Artifact, ...]) -> list[Plain]:
    return [{"name": each.name, "url": each.url} for each in artifacts]


def artifacts_from_plain(data: object) -> tuple[Artifact, ...]:
    if not isinstance(data, list):
        raise InvalidInput(_("expected a list, got {type}", type=type(data).__name__))
    return tuple(artifact_from_plain(each) for each in data)


def artifact_from_plain(data: object) -> Artifact:
    read = Reader(data)
    artifact = Artifact(name=read.text("name", ""), url=read.text("url", ""))
    read.done()
    return artifact


# --- node reports and run defaults ----------------------------------------------------------------
def report_to_text(report: NodeReport | None) -> str:
    if report is None:
        return ""
    plain = {
        "running": report.running,
        "sending": report.sending,
        "claims_per_minute": report.claims_per_minute,
        "memory": report.memory,
        "queues": list(report.queues),
        "draining": report.draining,
    }
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def report_from_text(text: str) -> NodeReport | None:
    """None for a report of a newer version that cannot be read."""
    try:
        plain = json.loads(text) if text else None
        if plain is None:
            return None
        memory = plain.get("memory")
        return NodeReport(
            running=int(plain.get("running", 0)),
            sending=int(plain.get("sending", 0)),
            claims_per_minute=float(plain.get("claims_per_minute", 0.0)),
            memory=None if memory is None else int(memory),
            queues=tuple(str(each) for each in plain.get("queues", ())),
            draining=bool(plain.get("draining", False)),
        )
    except (ValueError, TypeError, AttributeError):
        return None


def defaults_to_plain(defaults: RunDefaults | None) -> dict[str, object] | None:
    if defaults is None:
        return None
    plain: dict[str, object] = {
        "policy": policy_to_plain(defaults.policy),
        "priority": defaults.priority,
    }
    if defaults.arguments:
        plain["arguments"] = dict(defaults.arguments)
    return plain


def defaults_from_plain(capabilities: object) -> dict[str, RunDefaults]:
    """Defaults by capability. A list has only names; entries of a newer version that cannot be read
    are ignored."""
    found: dict[str, RunDefaults] = {}
    for requirement, plain in capabilities.items() if isinstance(capabilities, Mapping) else ():
        if plain is None:
            continue
        with contextlib.suppress(InvalidInput, ValueError, KeyError, TypeError):
            arguments = plain.get("arguments")
            found[requirement] = RunDefaults(
                policy=policy_from_plain(plain["policy"]),
                priority=int(plain["priority"]),
                arguments=arguments if isinstance(arguments, dict) else {},
            )
    return found


# --- audit entries, keys and checkpoints ----------------------------------------------------------
def audit_to_plain(entry: AuditEntry) -> Plain:
    return {
        "number": entry.number,
        "at": to_text(entry.at),
        "actor": entry.actor,
        "interface": entry.interface,
        "verb": entry.verb,
        "object_kind": entry.object_kind,
        "object_id": entry.object_id,
        "owner": entry.owner,
        "changes": dict(entry.changes),
        "reason": entry.reason,
        "address": entry.address,
        "allowed": entry.allowed,
        "previous_hash": entry.previous_hash,
        "hash": entry.hash,
    }


def audit_from_plain(data: object) -> AuditEntry:
    read = Reader(data)
    entry = AuditEntry(
        number=read.integer("number"),
        at=read.time("at"),
        actor=read.text("actor"),
        # Entries stored and exported before the field was renamed have `door`.
        interface=read.text("interface" if read.has("interface") else "door"),
        verb=read.text("verb"),
        object_kind=read.text("object_kind"),
        object_id=read.text("object_id"),
        owner=read.text("owner", ""),
        changes=read.mapping("changes"),
        reason=read.text("reason", ""),
        address=read.text("address", ""),
        allowed=read.flag("allowed", True),
        previous_hash=read.text("previous_hash", ""),
        hash=read.text("hash", ""),
    )
    read.done()
    return entry


def key_to_plain(key: ApiKey) -> Plain:
    return {
        "id": key.id,
        "secret_hash": key.secret_hash,
        "name": key.name,
        "role": key.role.value,
        "owner": owner_to_plain(key.owner),
        "created_at": to_text(key.created_at),
        "created_by": key.created_by,
        "expires_at": maybe_text(key.expires_at),
        "last_used_at": maybe_text(key.last_used_at),
        "revoked_at": maybe_text(key.revoked_at),
        "scopes": [scope.value for scope in key.scopes],
    }


def key_from_plain(data: object) -> ApiKey:
    read = Reader(data)
    key = ApiKey(
        id=KeyId(read.text("id")),
        secret_hash=read.text("secret_hash"),
        name=read.text("name", ""),
        role=Role(read.text("role")),
        owner=read.read("owner", owner_from_plain),
        created_at=read.time("created_at"),
        created_by=read.text("created_by", ""),
        expires_at=read.maybe_time("expires_at"),
        last_used_at=read.maybe_time("last_used_at"),
        revoked_at=read.maybe_time("revoked_at"),
        scopes=tuple(Scope(str(each)) for each in read.items("scopes")),
    )
    read.done()
    return key


def checkpoint_to_plain(kept: Checkpoint) -> Plain:
    return {
        "name": kept.name,
        "value": kept.value,
        "changed_at": to_text(kept.changed_at),
        "run_id": kept.run_id,
    }


def checkpoint_from_plain(data: object) -> Checkpoint:
    read = Reader(data)
    kept = Checkpoint(
        name=read.text("name"),
        value=read.text("value"),
        changed_at=read.time("changed_at"),
        run_id=RunId(read.text("run_id", "")),
    )
    read.done()
    return kept
