"""Schedules created from natural language: a prompt for an agent."""

from __future__ import annotations

import secrets
import uuid
from datetime import datetime, timedelta

from chimes.model import replace
from chimes.model.access import Owner
from chimes.model.ids import RunId, ScheduleId
from chimes.model.planning import FireContext, FirePlan, plan
from chimes.model.policy import Policy
from chimes.model.schedule import Schedule
from chimes.model.target import AgentTarget
from chimes.triggers import Trigger

#: Namespace of the schedules of the Softnix compatibility API and of chats.
NAMESPACE = "softnix"
_MAX_NAME = 80
#: Delay until a postponed slot is planned again.
POSTPONEMENT = timedelta(minutes=1)
_ID_NAMESPACE = uuid.UUID("0f7f3a6e-2f5d-5c2b-8a55-40a4d1cf9b1e")


def prompt_draft(
    *,
    schedule_id: ScheduleId,
    prompt: str,
    trigger: Trigger,
    owner: Owner,
    policy: Policy,
    enabled: bool,
    now: datetime,
) -> Schedule:
    return Schedule(
        id=schedule_id,
        namespace=NAMESPACE,
        name=name_of(prompt),
        owner=owner,
        trigger=trigger.with_default_anchor(),
        target=AgentTarget(prompt=prompt),
        policy=policy,
        enabled=enabled,
        created_at=now,
        updated_at=now,
    )


def name_of(prompt: str) -> str:
    """The beginning of a prompt, on one line."""
    words = " ".join("".join(c if c.isprintable() else " " for c in prompt).split())
    return words if len(words) <= _MAX_NAME else f"{words[: _MAX_NAME - 1].rstrip()}…"


def new_short_id() -> ScheduleId:
    """Twelve hexadecimal digits, the id format of the Softnix API."""
    return ScheduleId(secrets.token_hex(6))


def short_id_for(request: str) -> ScheduleId:
    """Derived from the request, so that a repeated request creates no second schedule."""
    return ScheduleId(uuid.uuid5(_ID_NAMESPACE, request).hex[:12])


def run_id_for(request: str) -> RunId:
    """Derived from the request, so that a repeated request creates no second run."""
    return RunId(str(uuid.uuid5(_ID_NAMESPACE, request)))


def plan_without_prompts(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
    """As `plan`, but postpones due slots of prompts (`SOFTNIX_SCHEDULER_ENABLED=false`).

    The slot stays the next one, and is fired once the setting is enabled again.
    """
    due = schedule.next_slot is not None and schedule.next_run_at is not None
    if schedule.namespace != NAMESPACE or not due:
        return plan(schedule, context, now)
    return FirePlan(schedule=replace(schedule, next_run_at=now + POSTPONEMENT), runs=())


def is_postponed(before: Schedule, firing: FirePlan) -> bool:
    """Whether the slot is still the next one and no run was planned for it."""
    return not firing.runs and before.next_slot == firing.schedule.next_slot is not None
