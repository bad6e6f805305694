"""Values that the operations return: frozen, with aware datetimes.

`ScheduleInfo` has the field names of Catbird, as in the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from chimes.errors import Unreachable
from chimes.i18n import _
from chimes.triggers import format_duration_go, parse_duration, parse_moment

Json = Mapping[str, object]
T = TypeVar("T")
TERMINAL = frozenset({"succeeded", "failed", "timeout", "canceled", "skipped", "missed", "unknown"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleInfo:
    id: str
    name: str
    namespace: str
    #: `task`, `flow`, `http` or `sync`.
    kind: str
    #: Name of the task or flow, the URL, or source/collection.
    target: str
    #: Arguments of the task, input of the flow; secrets are `***`.
    input: Mapping[str, object]
    cron_spec: str
    timezone: str
    next_run_at: datetime | None
    #: The latest slot that was fired, skipped or missed.
    last_run_at: datetime | None
    last_enqueued_at: datetime | None
    last_status: str | None
    last_error: str
    enabled: bool
    #: skip, one or all.
    catch_up: str
    max_concurrent_runs: int | None
    priority: int
    labels: Mapping[str, str | None]
    owner: str
    version: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    id: str
    schedule_id: str | None
    schedule_name: str
    namespace: str
    owner: str
    kind: str
    target: str
    input: Mapping[str, object]
    slot: datetime | None
    origin: str
    status: str
    attempt: int
    priority: int
    planned_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    #: The node that executes it.
    node: str | None
    #: `{"value": …}` for a task; the response for an HTTP call.
    result: Mapping[str, object] | None
    error: str
    reason: str
    retry_of: str | None
    #: The run of the flow that this is a step of.
    parent_id: str | None
    step: str

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def value(self) -> object:
        """The return value of a task; the whole result for other targets."""
        if self.result is not None and "value" in self.result:
            return self.result["value"]
        return self.result


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    number: int
    at: datetime
    level: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeInfo:
    id: str
    version: str
    roles: tuple[str, ...]
    capacity: int
    offers: tuple[str, ...]
    started_at: datetime
    heartbeat_at: datetime
    lease_until: datetime
    alive: bool
    #: Difference of its clock to that of the store.
    clock_offset_seconds: float
    #: alive, draining, drained or gone; empty for older servers.
    state: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretInfo:
    """A named secret, without its value."""

    name: str
    #: `type:id`.
    owner: str
    created_at: datetime
    updated_at: datetime
    #: Ids and names of the schedules that use it, in a list of secrets.
    schedules: tuple[tuple[str, str], ...] = ()
    schedule_count: int = 0


def schedule_info(data: Json) -> ScheduleInfo:
    policy, target, name, given = _part(data, "policy"), *_target(data)
    labels = data.get("labels")
    return ScheduleInfo(
        id=_get(data, "id", str),
        name=_get(data, "name", str),
        namespace=_get(data, "namespace", str),
        kind=target,
        target=name,
        input=given,
        cron_spec=cron_spec(_part(data, "trigger")),
        timezone=_get(data, "timezone", str),
        next_run_at=_maybe_time(data, "next_run_at"),
        last_run_at=_maybe_time(data, "last_slot"),
        last_enqueued_at=_maybe_time(data, "last_enqueued_at"),
        last_status=_maybe(data, "last_status", str),
        last_error=_get(data, "last_error", str),
        enabled=_get(data, "enabled", bool),
        catch_up=_get(policy, "misfire", str),
        max_concurrent_runs=_maybe(policy, "max_concurrent_runs", int),
        priority=_get(data, "priority", int),
        labels=dict.fromkeys(map(str, labels)) if isinstance(labels, list) else _labels(data),
        owner=_owner(data),
        version=_get(data, "version", int),
        created_at=_time(data, "created_at"),
        updated_at=_time(data, "updated_at"),
    )


def run_info(data: Json) -> RunInfo:
    kind, name, given = _target(data)
    result = data.get("result")
    return RunInfo(
        id=_get(data, "id", str),
        schedule_id=_maybe(data, "schedule_id", str),
        schedule_name=_get(data, "schedule_name", str),
        namespace=_get(data, "namespace", str),
        owner=_owner(data),
        kind=kind,
        target=name,
        input=given,
        slot=_maybe_time(data, "slot"),
        origin=_get(data, "origin", str),
        status=_get(data, "status", str),
        attempt=_get(data, "attempt", int),
        priority=_get(data, "priority", int),
        planned_at=_time(data, "planned_at"),
        created_at=_time(data, "created_at"),
        started_at=_maybe_time(data, "started_at"),
        finished_at=_maybe_time(data, "finished_at"),
        node=_maybe(data, "node", str),
        result=result if isinstance(result, dict) else None,
        error=_get(data, "error", str),
        reason=_get(data, "reason", str),
        retry_of=_maybe(data, "retry_of", str),
        parent_id=_maybe(data, "parent_id", str),
        step=_get(data, "step", str),
    )


def log_line(data: Json) -> LogLine:
    return LogLine(
        number=_get(data, "number", int),
        at=_time(data, "at"),
        level=_get(data, "level", str),
        message=_get(data, "message", str),
    )


def node_info(data: Json) -> NodeInfo:
    return NodeInfo(
        id=_get(data, "id", str),
        version=_get(data, "version", str),
        roles=tuple(map(str, _get(data, "roles", list))),
        capacity=_get(data, "capacity", int),
        offers=tuple(map(str, _get(data, "offers", list))),
        started_at=_time(data, "started_at"),
        heartbeat_at=_time(data, "heartbeat_at"),
        lease_until=_time(data, "lease_until"),
        alive=_get(data, "alive", bool),
        clock_offset_seconds=float(_get(data, "clock_offset_seconds", (int, float))),
        state=str(data.get("state", "")),
    )


def secret_info(data: Json) -> SecretInfo:
    owner = _part(data, "owner")
    used = items_of({"items": data.get("schedules", [])})
    return SecretInfo(
        name=_get(data, "name", str),
        owner=f"{_get(owner, 'type', str)}:{_get(owner, 'id', str)}",
        created_at=_time(data, "created_at"),
        updated_at=_time(data, "updated_at"),
        schedules=tuple((_get(each, "id", str), _get(each, "name", str)) for each in used),
        schedule_count=_get(data, "schedule_count", int) if "schedule_count" in data else 0,
    )


def cron_spec(trigger: Json) -> str:
    """The cron expression, or text that `schedule` accepts for other triggers."""
    match trigger.get("kind"):
        case "cron":
            return _get(trigger, "expression", str)
        case "every":
            every = parse_duration(_get(trigger, "every", str))
            return f"@every {format_duration_go(every)}"
        case _:
            return _get(trigger, "at", str)


def items_of(page: Json) -> list[Json]:
    items = _get(page, "items", list)
    if not all(isinstance(each, dict) for each in items):
        raise _invalid_response("items")
    return items


def _target(data: Json) -> tuple[str, str, Mapping[str, object]]:
    target = _part(data, "target")
    kind = _get(target, "kind", str)
    if kind == "sync":
        return kind, f"{_get(target, 'source', str)}/{_get(target, 'collection', str)}", {}
    name = _get(target, "url" if kind == "http" else "name", str)
    given = target.get("args" if kind == "task" else "input", {})
    return kind, name, given if isinstance(given, dict) else {}


def _labels(data: Json) -> dict[str, str | None]:
    return {
        name: None if value is None else str(value) for name, value in _part(data, "labels").items()
    }


def _owner(data: Json) -> str:
    owner = _part(data, "owner")
    return f"{_get(owner, 'type', str)}:{_get(owner, 'id', str)}"


def _part(data: Json, name: str) -> Json:
    return _get(data, name, dict)


def _time(data: Json, name: str) -> datetime:
    return parse_moment(_get(data, name, str))


def _maybe_time(data: Json, name: str) -> datetime | None:
    return None if data.get(name) is None else _time(data, name)


def _maybe(data: Json, name: str, kind: type[T]) -> T | None:
    return None if data.get(name) is None else _get(data, name, kind)


def _get(data: Json, name: str, kind: type[T] | tuple[type[T], ...]) -> T:
    value = data.get(name)
    if not isinstance(value, kind):
        raise _invalid_response(name)
    return value


def _invalid_response(name: str) -> Unreachable:
    return Unreachable(
        _("the response has no valid {name!r}: the server has another version", name=name)
    )
