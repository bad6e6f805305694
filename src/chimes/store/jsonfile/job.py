"""Schedules as jobs (R3.15), and the part under `chimes` that Ksana's keys cannot say.

The keys of a job are what a person edits. `chimes.seen` is the digest of those that define the
job, as they were written; where it no longer fits, somebody edited the job (see `reading`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from chimes.errors import InvalidInput
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    Target,
    TaskTarget,
)
from chimes.store.codec.schedule import schedule_to_plain
from chimes.store.plain import Plain, to_text, without_empty
from chimes.triggers import Cron, Once, Trigger, format_duration_go, parse_duration

KSANA = "ksana"
DETAILS = "chimes"
SEEN = "seen"

#: What a person defines, besides the target, and what the service writes down.
DEFINITION = (
    *("name", "enabled", "type", "schedule"),
    *("timeout", "max_retries", "retry_backoff"),
)
RECORD = ("last_run_at", "next_run_at", "last_status", "last_error")
JOB_KEYS = frozenset({"id", *DEFINITION, *RECORD, DETAILS})
#: By the type of a job, the keys of the part that has the type's name.
TARGET_KEYS: Mapping[str, frozenset[str]] = {
    "http": frozenset({"method", "url", "headers", "body"}),
    "task": frozenset({"name", "args"}),
    "flow": frozenset({"name", "input"}),
    "sync": frozenset({"source", "collection"}),
    "agent": frozenset({"prompt", "pipeline", "model", "max_tokens"}),
    "action": frozenset({"action_type_id", "kn_id", "branch", "identities", "params"}),
    "message": frozenset({"text"}),
}
SCHEDULE_KEYS: Mapping[str, frozenset[str]] = {
    "once": frozenset({"kind", "run_at"}),
    "every": frozenset({"kind", "every", "start_at", "jitter"}),
    "cron": frozenset({"kind", "expression", "timezone", "dialect", "dst", "anchor"}),
}

#: C10; `paused` is only a view.
WORDS = {
    RunStatus.SUCCEEDED: "success",
    RunStatus.FAILED: "failed",
    RunStatus.TIMEOUT: "timeout",
    RunStatus.CANCELED: "failed",
    RunStatus.SKIPPED: "skipped",
    RunStatus.MISSED: "missed",
    RunStatus.UNKNOWN: "failed",
}
STATUSES = {
    "success": RunStatus.SUCCEEDED,
    "failed": RunStatus.FAILED,
    "timeout": RunStatus.TIMEOUT,
    "skipped": RunStatus.SKIPPED,
    "missed": RunStatus.MISSED,
}

_IN_POLICY = ("timeout", "max_retries", "retry_backoff")
_IN_JOB = ("id", "name", "next_run_at", "last_run_at", "last_error")


@dataclass(frozen=True, kw_only=True, slots=True)
class Extras:
    """Keys of a job that nobody here knows; they are written back as they were."""

    job: Plain = field(default_factory=dict)
    target: Plain = field(default_factory=dict)
    schedule: Plain = field(default_factory=dict)


NO_EXTRAS = Extras()


def job_to_plain(schedule: Schedule, extras: Extras = NO_EXTRAS) -> Plain:
    given, policy, target = given_texts(schedule), schedule.policy, schedule.target
    job: Plain = {
        "id": schedule.id,
        "name": schedule.name,
        "enabled": schedule.enabled,
        "type": target.kind,
        target.kind: {**target_keys(target), **extras.target},
        "schedule": {**schedule_keys(schedule.trigger, given), **extras.schedule},
        "timeout": duration_text(policy.timeout, given.get("timeout")),
        "max_retries": policy.max_retries,
        "retry_backoff": duration_text(policy.retry_backoff, given.get("retry_backoff")),
        "last_run_at": to_text(schedule.last_run_at) if schedule.last_run_at else "",
        "next_run_at": to_text(schedule.next_run_at) if schedule.next_run_at else "",
        "last_status": status_word(schedule),
        "last_error": schedule.last_error,
        **extras.job,
    }
    return job | {DETAILS: {**_details(schedule), SEEN: digest(job)}}


def _details(schedule: Schedule) -> Plain:
    """Without what the job's own keys say exactly."""
    whole = schedule_to_plain(schedule)
    target, policy = whole.pop("target"), whole.pop("policy")
    assert isinstance(target, dict)
    assert isinstance(policy, dict)
    in_job = TARGET_KEYS[schedule.target.kind] | {"kind"}
    parts = {
        "target": {name: value for name, value in target.items() if name not in in_job},
        "policy": {name: value for name, value in policy.items() if name not in _IN_POLICY},
    }
    left = {name: value for name, value in whole.items() if name not in _IN_JOB}
    return left | {name: part for name, part in parts.items() if part}


def digest(job: Mapping[str, object]) -> str:
    definition = {name: job.get(name) for name in (*DEFINITION, target_part(job))}
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode("ascii"), digest_size=8).hexdigest()


def target_part(job: Mapping[str, object]) -> str:
    """The name of the key that holds the job's target."""
    kind = job.get("type")
    return kind if isinstance(kind, str) and kind in TARGET_KEYS else "http"


def target_keys(target: Target) -> Plain:
    match target:
        case HttpTarget():
            return {
                "method": target.method,
                "url": target.url,
                "headers": dict(target.headers),
                "body": target.body,
            }
        case TaskTarget():
            return {"name": target.name, "args": dict(target.args)}
        case FlowTarget():
            return {"name": target.name, "input": dict(target.input)}
        case SyncTarget():
            return {"source": target.source, "collection": target.collection}
        case AgentTarget():
            own = {
                "pipeline": target.pipeline,
                "model": target.model,
                "max_tokens": target.max_tokens,
            }
            return {"prompt": target.prompt, **without_empty(own)}
        case ActionTarget():
            return {
                "action_type_id": target.action_type_id,
                "kn_id": target.kn_id,
                "branch": target.branch,
                "identities": [dict(each) for each in target.identities],
                "params": dict(target.params),
            }
        case MessageTarget():
            return {"text": target.text}


def given_texts(schedule: Schedule) -> Mapping[str, object]:
    """How the Ksana door was given durations and times (R3.16)."""
    given = schedule.door_data.get(KSANA)
    return given if isinstance(given, Mapping) else {}


def schedule_keys(trigger: Trigger, given: Mapping[str, object]) -> Plain:
    if isinstance(trigger, Once):
        return {"kind": "once", "run_at": to_text(trigger.instant)}
    if isinstance(trigger, Cron):
        known = SCHEDULE_KEYS["cron"]
        return {name: value for name, value in trigger.to_dict().items() if name in known}
    shown = trigger.anchor if given.get("start_at") or not given else None
    return {
        "kind": "every",
        "every": duration_text(trigger.every, given.get("every")),
        "start_at": to_text(shown) if shown else "",
        "jitter": duration_text(trigger.jitter, given.get("jitter")) if trigger.jitter else "",
    }


def duration_text(value: timedelta, given: object) -> str:
    """In the form it was given, as long as that still says the same."""
    if isinstance(given, str) and given:
        try:
            if parse_duration(given, allow_zero=True) == value:
                return given
        except InvalidInput:
            pass
    return format_duration_go(value)


def status_word(schedule: Schedule) -> str:
    """`paused` shows until a run by hand has something newer to say."""
    ran = schedule.last_run_at
    if not schedule.enabled and schedule.version > 1 and (not ran or ran < schedule.updated_at):
        return "paused"
    return WORDS[schedule.last_status] if schedule.last_status else ""
