"""Which columns schedules and runs are shown with."""

from __future__ import annotations

import json
from datetime import datetime

from chimes.cli.output import Column, Json, countdown, inner, parsed, pick
from chimes.cli.words import RUN_ORIGINS, RUN_REASONS, RUN_STATUSES, SCHEDULE_STATES
from chimes.model.recipient_text import recipient_text
from chimes.wording import say


def schedule_columns(now: datetime) -> list[Column]:
    return [
        Column(say("id"), pick("id"), shortest=8),
        Column(say("name"), pick("name"), widest=40, narrowest=12),
        Column(say("state"), state_of, words=SCHEDULE_STATES, rank=3),
        Column(say("next"), pick("next_run_at"), time=True, rank=1),
        Column(say("in"), lambda item: _left(item, now), rank=4),
        Column(say("last"), pick("last_status"), words=RUN_STATUSES, rank=5),
        Column(say("when"), pick("words"), rank=2, widest=70, narrowest=12),
    ]


def piped_schedule_columns() -> list[Column]:
    """The same without the countdown, which is stale as soon as it is written down."""
    return [
        Column(say("id"), pick("id")),
        Column(say("name"), pick("name")),
        Column(say("state"), state_of, words=SCHEDULE_STATES),
        Column(say("next"), pick("next_run_at"), time=True),
        Column(say("last"), pick("last_status"), words=RUN_STATUSES),
        Column(say("when"), pick("words")),
    ]


def schedule_details(now: datetime) -> list[Column]:
    return [
        Column(say("ID"), pick("id")),
        Column(say("Name"), pick("name")),
        Column(say("State"), state_of, words=SCHEDULE_STATES),
        Column(say("When"), pick("words")),
        Column(say("Zone"), pick("timezone")),
        Column(say("Next"), pick("next_run_at"), time=True),
        Column(say("In"), lambda item: _left(item, now)),
        Column(say("Target"), target_of),
        Column(say("Policy"), _policy),
        Column(say("Tells"), _told),
        Column(say("Labels"), lambda item: item.get("labels") or None),
        Column(say("Priority"), lambda item: item.get("priority") or None),
        Column(say("Last run"), pick("last_run_at"), time=True),
        Column(say("Last status"), pick("last_status"), words=RUN_STATUSES),
        Column(say("Last error"), pick("last_error")),
        Column(say("Declared in code"), _declared),
        Column(say("Version"), pick("version")),
        Column(say("Created"), pick("created_at"), time=True),
    ]


def _declared(item: Json) -> object:
    found = item.get("declared")
    if not isinstance(found, dict):
        return None
    if found.get("detached"):
        return say("{at}, edited since: the code no longer overwrites it", at=found.get("at"))
    return found.get("at")


RUN_COLUMNS = [
    Column(say("id"), pick("id")),
    Column(say("status"), pick("status"), words=RUN_STATUSES),
    Column(say("schedule"), lambda item: _whose(item), rank=2),
    Column(say("planned"), pick("planned_at"), time=True, rank=1),
    Column(say("took"), lambda item: _took(item), rank=3),
    Column(say("attempt"), pick("attempt"), rank=4),
    Column(say("origin"), pick("origin"), words=RUN_ORIGINS, rank=6),
    Column(say("why"), lambda item: _why(item), words=RUN_REASONS, rank=5, widest=60),
]


def _whose(item: Json) -> object:
    """A step by its own name; a run without a schedule by what it does."""
    named = item.get("step") or item.get("schedule_name") or item.get("schedule_id")
    return named or target_of(item)


def _why(item: Json) -> object:
    return item.get("error") or item.get("reason")


def state_of(item: Json) -> str:
    if not item.get("enabled", True):
        return "paused"
    return "active" if item.get("next_run_at") else "done"


def target_of(item: Json) -> str:
    target = inner(item, "target")
    kind = target.get("kind")
    if kind in ("task", "flow"):
        given = target.get("args") or target.get("input")
        shown = f" {json.dumps(given, ensure_ascii=False)}" if given else ""
        return f"{kind} {target.get('name', '')}{shown}"
    if kind == "sync":
        return f"{kind} {target.get('source', '')}/{target.get('collection', '')}"
    if kind == "agent":
        return f"{kind} {target.get('prompt', '')}"
    if kind == "message":
        return f"{kind} {target.get('text', '')}"
    if kind == "action":
        return f"{kind} {target.get('kn_id', '')}/{target.get('action_type_id', '')}"
    return f"{target.get('method', '')} {target.get('url', '')}".strip()


def _told(item: Json) -> str | None:
    """Who is told how runs end, as `--notify` takes it."""
    given = item.get("delivery")
    found = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    return ", ".join(recipient_text(each) for each in found) or None


def _policy(item: Json) -> str:
    shown = ("misfire", "overlap", "max_retries", "retry_backoff", "timeout")
    policy = inner(item, "policy")
    return ", ".join(f"{name} {policy[name]}" for name in shown if policy.get(name) is not None)


def _left(item: Json, now: datetime) -> str:
    at = item.get("next_run_at")
    return countdown(parsed(at), now) if isinstance(at, str) else ""


def _took(item: Json) -> str:
    taken = item.get("duration_ms")
    if not isinstance(taken, int | float):
        return ""
    if taken < 10_000:
        return say("{milliseconds:.0f} ms", milliseconds=taken)
    return say("{seconds:.1f} s", seconds=taken / 1000)
