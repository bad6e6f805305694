"""Values that the operations return: frozen, with aware datetimes.

`ScheduleInfo` has the field names of Catbird, as in the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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
class MonitorInfo:
    id: str
    name: str
    owner: str
    #: new, up, late, down or paused.
    status: str
    #: What the job calls; the token is `***` for callers who may not change the monitor.
    ping_url: str
    badge_url: str
    trigger: Mapping[str, object]
    grace: timedelta
    tags: tuple[str, ...]
    last_ping_at: datetime | None
    last_duration: timedelta | None
    expected_at: datetime | None
    #: Why it is down: missing, failed or overrun; else empty.
    cause: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PingInfo:
    number: int
    #: success, start, fail or log.
    kind: str
    at: datetime
    exit_code: int | None
    duration: timedelta | None
    #: The end of its body, if it is still kept.
    log: str | None


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
class ConnectionInfo:
    """An engine, broker or database that targets and triggers use by name."""

    name: str
    kind: str
    #: Roles that may create schedules with it; empty: the server does not have it in its file.
    roles: tuple[str, ...]
    #: Patterns of what may be used of it; empty: anything.
    allow: tuple[str, ...]
    #: Live nodes that have it; empty for callers that do not see all nodes.
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkResult:
    """What an action on many schedules did with one of them."""

    id: str
    #: None if it was not found.
    name: str | None
    #: `done`, `planned` (in a dry run) or `failed`.
    result: str
    run_id: str | None = None
    #: Code and text of what went wrong; empty if nothing did.
    error_code: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProposalInfo:
    """Proposed changes, and the decision."""

    id: str
    owner: str
    #: What the asker calls itself, else its name in the audit log.
    asker: str
    reason: str
    #: open, approved, rejected, expired or failed.
    status: str
    #: The changes, with their effect on fires, as in the API.
    plan: Sequence[Mapping[str, object]]
    #: Identifies the plan: approve with it to approve exactly this plan.
    digest: str
    created_at: datetime
    expires_at: datetime
    decided_by: str
    decided_at: datetime | None
    decision: str
    #: Why the changes could not be made.
    error: str
    #: Ids of the runs that were started.
    runs: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalInfo:
    """A step of a flow that waits for a decision, or waited."""

    id: str
    owner: str
    #: The run of the flow.
    run_id: str
    flow: str
    step: str
    prompt: str
    #: open, approved, rejected, expired or canceled.
    status: str
    created_at: datetime
    expires_at: datetime
    #: approved or rejected, also by the default of an expired one; empty: none.
    decision: str
    decided_by: str
    decided_at: datetime | None
    reason: str


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


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitInfo:
    """A named limit and its current use."""

    name: str
    #: `type:id`; empty if the runs of all owners share it.
    owner: str
    concurrency: int | None
    #: Such as `10/s`; empty: any number.
    rate: str
    burst: int | None
    #: Failures in a row and pause of the circuit breaker, or None.
    breaker: tuple[int, timedelta] | None
    #: Runs that have a permit; None without a concurrency.
    running: int | None
    #: About how many runs wait.
    waiting: int
    #: closed, open or probing; empty without a circuit breaker.
    breaker_state: str
    #: Ids and names of the schedules that name it.
    schedules: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SilenceInfo:
    """A period in which notifications are not sent."""

    id: str
    #: Id of the schedule; None: by labels, or all.
    schedule: str | None
    labels: Mapping[str, str | None]
    since: datetime
    until: datetime
    active: bool
    reason: str
    by: str


def silence_info(data: Json) -> SilenceInfo:
    labels = _part(data, "labels")
    return SilenceInfo(
        id=_get(data, "id", str),
        schedule=None if data.get("schedule") is None else _get(data, "schedule", str),
        labels={name: None if value is None else str(value) for name, value in labels.items()},
        since=_time(data, "from"),
        until=_time(data, "until"),
        active=_get(data, "active", bool),
        reason=_get(data, "reason", str),
        by=_get(data, "by", str),
    )


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


def connection_info(data: Json) -> ConnectionInfo:
    return ConnectionInfo(
        name=_get(data, "name", str),
        kind=_get(data, "kind", str),
        roles=tuple(map(str, _get(data, "roles", list))),
        allow=tuple(map(str, _get(data, "allow", list))),
        nodes=tuple(map(str, _get(data, "nodes", list))),
    )


def bulk_result(data: Json) -> BulkResult:
    name, run_id = data.get("name"), data.get("run_id")
    error = _part(data, "error") if data.get("error") else {}
    return BulkResult(
        id=_get(data, "id", str),
        name=name if isinstance(name, str) else None,
        result=_get(data, "result", str),
        run_id=run_id if isinstance(run_id, str) else None,
        error_code=_get(error, "code", str) if error else "",
        error=_get(error, "detail", str) if error else "",
    )


def proposal_info(data: Json) -> ProposalInfo:
    asker = _part(data, "asker")
    return ProposalInfo(
        id=_get(data, "id", str),
        owner=_owner(data),
        asker=_get(asker, "title", str) or _get(asker, "name", str),
        reason=_get(data, "reason", str),
        status=_get(data, "status", str),
        plan=_get(data, "plan", list),
        digest=_get(data, "digest", str),
        created_at=_time(data, "created_at"),
        expires_at=_time(data, "expires_at"),
        decided_by=_maybe(data, "decided_by", str) or "",
        decided_at=_maybe_time(data, "decided_at"),
        decision=_maybe(data, "decision", str) or "",
        error=_maybe(data, "error", str) or "",
        runs=_get(data, "runs", list),
    )


def approval_info(data: Json) -> ApprovalInfo:
    return ApprovalInfo(
        id=_get(data, "id", str),
        owner=_owner(data),
        run_id=_get(data, "run_id", str),
        flow=_get(data, "flow", str),
        step=_get(data, "step", str),
        prompt=_get(data, "prompt", str),
        status=_get(data, "status", str),
        created_at=_time(data, "created_at"),
        expires_at=_time(data, "expires_at"),
        decision=_maybe(data, "decision", str) or "",
        decided_by=_maybe(data, "decided_by", str) or "",
        decided_at=_maybe_time(data, "decided_at"),
        reason=_maybe(data, "reason", str) or "",
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


def limit_info(data: Json) -> LimitInfo:
    owner, use, breaker = data.get("owner"), _part(data, "use"), data.get("breaker")
    used = items_of({"items": data.get("schedules", [])})
    shut = None
    if isinstance(breaker, Mapping):
        shut = (int(breaker["failures"]), parse_duration(str(breaker["pause"])))
    return LimitInfo(
        name=_get(data, "name", str),
        owner=f"{owner['type']}:{owner['id']}" if isinstance(owner, Mapping) else "",
        concurrency=_number_or_none(data, "concurrency"),
        rate=str(data.get("rate") or ""),
        burst=_number_or_none(data, "burst"),
        breaker=shut,
        running=_number_or_none(use, "running"),
        waiting=_get(use, "waiting", int),
        breaker_state=str(use.get("breaker") or ""),
        schedules=tuple((_get(each, "id", str), _get(each, "name", str)) for each in used),
    )


def _number_or_none(data: Json, name: str) -> int | None:
    return None if data.get(name) is None else _get(data, name, int)


def monitor_info(data: Json) -> MonitorInfo:
    down = data.get("down")
    cause = down.get("cause") if isinstance(down, dict) else None
    duration = _maybe(data, "last_duration", str)
    return MonitorInfo(
        id=_get(data, "id", str),
        name=_get(data, "name", str),
        owner=_owner(data),
        status=_get(data, "status", str),
        ping_url=_get(data, "ping_url", str),
        badge_url=_get(data, "badge_url", str),
        trigger=_part(data, "trigger"),
        grace=parse_duration(_get(data, "grace", str)),
        tags=tuple(map(str, _get(data, "tags", list))),
        last_ping_at=_maybe_time(data, "last_ping_at"),
        last_duration=None if duration is None else parse_duration(duration, allow_zero=True),
        expected_at=_maybe_time(data, "expected_at"),
        cause=str(cause or ""),
    )


def ping_info(data: Json) -> PingInfo:
    duration = _maybe(data, "duration", str)
    return PingInfo(
        number=_get(data, "number", int),
        kind=_get(data, "kind", str),
        at=_time(data, "at"),
        exit_code=_maybe(data, "exit_code", int),
        duration=None if duration is None else parse_duration(duration, allow_zero=True),
        log=_maybe(data, "log", str),
    )


def cron_spec(trigger: Json) -> str:
    """The cron expression, or text that `schedule` accepts for other triggers."""
    match trigger.get("kind"):
        case "cron":
            return _get(trigger, "expression", str)
        case "every":
            every = parse_duration(_get(trigger, "every", str))
            return f"@every {format_duration_go(every)}"
        case "once":
            return _get(trigger, "at", str)
        case kind:
            return f"@{kind}"


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


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedFire:
    """A fire that a plan adds, drops or moves."""

    #: None: the plan creates the schedule.
    schedule: str | None
    name: str
    at: datetime
    #: Of a fire that moves: the new time.
    to: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanCollision:
    """A new fire in a minute in which other schedules fire."""

    schedule: str | None
    name: str
    at: datetime
    others: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanInfo:
    """What changes would do to the fires of the coming days."""

    added: tuple[PlannedFire, ...]
    dropped: tuple[PlannedFire, ...]
    moved: tuple[PlannedFire, ...]
    collisions: tuple[PlanCollision, ...]
    #: Day (ISO) -> fires before and after.
    load: Mapping[str, tuple[int, int]]
    until: datetime


def plan_info(data: Json) -> PlanInfo:
    def fire(row: Json, at: str = "at") -> PlannedFire:
        return PlannedFire(
            schedule=None if row.get("schedule") is None else _get(row, "schedule", str),
            name=_get(row, "name", str),
            at=_time(row, at),
            to=_time(row, "to") if at == "from" else None,
        )

    def rows(name: str) -> list[Json]:
        return items_of({"items": data.get(name)})

    return PlanInfo(
        added=tuple(fire(each) for each in rows("added")),
        dropped=tuple(fire(each) for each in rows("dropped")),
        moved=tuple(fire(each, "from") for each in rows("moved")),
        collisions=tuple(
            PlanCollision(
                schedule=fire(each).schedule,
                name=fire(each).name,
                at=fire(each).at,
                others=_get(each, "others", int),
            )
            for each in rows("collisions")
        ),
        load={
            _get(each, "day", str): (_get(each, "before", int), _get(each, "after", int))
            for each in rows("load")
        },
        until=_time(data, "until"),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MinuteInfo:
    """A minute in which runs start."""

    at: datetime
    runs: int
    #: Expected time of these runs together.
    busy: timedelta
    #: Far more runs than in other minutes.
    hot: bool


def minute_info(data: Json) -> MinuteInfo:
    busy = data.get("busy_seconds")
    return MinuteInfo(
        at=_time(data, "at"),
        runs=_get(data, "runs", int),
        busy=timedelta(seconds=float(busy) if isinstance(busy, (int, float)) else 0.0),
        hot=_get(data, "hot", bool),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedInfo:
    """An address at which calendar applications find coming fires."""

    id: str
    #: With its secret token; None in lists.
    url: str | None
    label: str | None
    schedule: str | None
    created_at: datetime


def feed_info(data: Json) -> FeedInfo:
    def text(name: str) -> str | None:
        return None if data.get(name) is None else _get(data, name, str)

    return FeedInfo(
        id=_get(data, "id", str),
        url=text("url"),
        label=text("label"),
        schedule=text("schedule"),
        created_at=_time(data, "created_at"),
    )
