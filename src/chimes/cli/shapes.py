"""Which columns schedules and runs are shown with."""

from __future__ import annotations

import json
from datetime import datetime

from chimes.cli.output import Column, Json, countdown, inner, parsed, pick


def schedule_columns(now: datetime) -> list[Column]:
    return [
        Column("id", pick("id"), shortest=8),
        Column("name", pick("name"), widest=40, narrowest=12),
        Column("state", state_of, rank=3),
        Column("next", pick("next_run_at"), time=True, rank=1),
        Column("in", lambda item: _left(item, now), rank=4),
        Column("last", pick("last_status"), rank=5),
        Column("when", pick("words"), rank=2, widest=70, narrowest=12),
    ]


def piped_schedule_columns() -> list[Column]:
    """The same without the countdown, which is stale as soon as it is written down."""
    return [
        Column("id", pick("id")),
        Column("name", pick("name")),
        Column("state", state_of),
        Column("next", pick("next_run_at"), time=True),
        Column("last", pick("last_status")),
        Column("when", pick("words")),
    ]


def schedule_details(now: datetime) -> list[Column]:
    return [
        Column("ID", pick("id")),
        Column("Name", pick("name")),
        Column("State", state_of),
        Column("When", pick("words")),
        Column("Zone", pick("timezone")),
        Column("Next", pick("next_run_at"), time=True),
        Column("In", lambda item: _left(item, now)),
        Column("Target", target_of),
        Column("Policy", _policy),
        Column("Tells", _told),
        Column("Labels", lambda item: item.get("labels") or None),
        Column("Priority", lambda item: item.get("priority") or None),
        Column("Last run", pick("last_run_at"), time=True),
        Column("Last status", pick("last_status")),
        Column("Last error", pick("last_error")),
        Column("Version", pick("version")),
        Column("Created", pick("created_at"), time=True),
    ]


RUN_COLUMNS = [
    Column("id", pick("id")),
    Column("status", pick("status")),
    Column("schedule", lambda item: _whose(item), rank=2),
    Column("planned", pick("planned_at"), time=True, rank=1),
    Column("took", lambda item: _took(item), rank=3),
    Column("attempt", pick("attempt"), rank=4),
    Column("origin", pick("origin"), rank=6),
    Column("why", lambda item: item.get("error") or item.get("reason"), rank=5, widest=60),
]


def _whose(item: Json) -> object:
    """A step by its own name; a run without a schedule by what it does."""
    named = item.get("step") or item.get("schedule_name") or item.get("schedule_id")
    return named or target_of(item)


def state_of(item: Json) -> str:
    if not item.get("enabled", True):
        return "paused"
    return "active" if item.get("next_run_at") else "done"


def target_of(item: Json) -> str:
    target = inner(item, "target")
    if target.get("kind") in ("task", "flow"):
        given = target.get("args") or target.get("input")
        shown = f" {json.dumps(given, ensure_ascii=False)}" if given else ""
        return f"{target['kind']} {target.get('name', '')}{shown}"
    if target.get("kind") == "sync":
        return f"sync {target.get('source', '')}/{target.get('collection', '')}"
    if target.get("kind") == "agent":
        return f"agent {target.get('prompt', '')}"
    return f"{target.get('method', '')} {target.get('url', '')}".strip()


def _told(item: Json) -> str | None:
    """Who is told how runs end, as `--notify` takes it."""
    given = item.get("delivery")
    found = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    return ", ".join(_recipient(each) for each in found) or None


def _recipient(each: Json) -> str:
    to = f":{each['to']}" if each.get("to") else ""
    occasions = each.get("on")
    named = [str(one) for one in occasions] if isinstance(occasions, list) else []
    when = f":on={'+'.join(named)}" if named and named != ["always"] else ""
    return f"{each.get('channel', '')}{to}{when}"


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
    return f"{taken:.0f} ms" if taken < 10_000 else f"{taken / 1000:.1f} s"
