"""A schedule as the verbs of the SDK answer it, in the words of the Catbird seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from chimes.doors.compat.catbird.wire import cron_spec
from chimes.model.schedule import Schedule
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    TaskTarget,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleInfo:
    id: str
    name: str
    namespace: str
    #: `task`, `flow`, `http` or `sync`.
    kind: str
    #: Name of the task or flow, the URL, or source/collection.
    target: str
    #: Arguments of the task, input of the flow.
    input: Mapping[str, object]
    cron_spec: str
    timezone: str
    next_run_at: datetime | None
    #: The newest slot that has had its turn; None: none yet.
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


def info_of(schedule: Schedule) -> ScheduleInfo:
    name, given = _target(schedule)
    return ScheduleInfo(
        id=schedule.id,
        name=schedule.name,
        namespace=schedule.namespace,
        kind=schedule.target.kind,
        target=name,
        input=given,
        cron_spec=cron_spec(schedule.trigger),
        timezone=schedule.trigger.zone,
        next_run_at=schedule.next_run_at,
        last_run_at=schedule.last_slot,
        last_enqueued_at=schedule.last_enqueued_at,
        last_status=None if schedule.last_status is None else schedule.last_status.value,
        last_error=schedule.last_error,
        enabled=schedule.enabled,
        catch_up=schedule.policy.misfire.value,
        max_concurrent_runs=schedule.policy.max_concurrent_runs,
        priority=schedule.priority,
        labels=schedule.labels,
        owner=str(schedule.owner),
        version=schedule.version,
        created_at=schedule.created_at,
        updated_at=schedule.updated_at,
    )


def _target(schedule: Schedule) -> tuple[str, Mapping[str, object]]:
    match schedule.target:
        case HttpTarget(url=url):
            return url, {}
        case TaskTarget(name=name, args=args):
            return name, args
        case FlowTarget(name=name, input=given):
            return name, given
        case SyncTarget(source=source, collection=collection):
            return f"{source}/{collection}", {}
        case AgentTarget(prompt=prompt):
            return prompt, {}
        case ActionTarget(action_type_id=action_type_id, params=params):
            return action_type_id, params
        case MessageTarget(text=text):
            return text, {}
        case _:
            assert_never(schedule.target)
