"""Schedules that this node is told not to fire (R1.38, SOFTNIX_SCHEDULER_ENABLED=false)."""

from __future__ import annotations

from datetime import datetime, timedelta

from chimes.model.change import replace
from chimes.model.planning import AnyFiring, FireContext, Firing, plan
from chimes.model.schedule import Schedule
from chimes.service.prompts import NAMESPACE

#: A slot that is due is looked at again this much later. It keeps its place, and runs when the
#: scheduler is switched on again.
PUT_OFF = timedelta(minutes=1)


def plan_without_prompts(schedule: Schedule, context: FireContext, now: datetime) -> AnyFiring:
    """As `plan`, but what was made through the Softnix door or in a chat is put off."""
    due = schedule.next_slot is not None and schedule.next_run_at is not None
    if schedule.namespace != NAMESPACE or not due:
        return plan(schedule, context, now)
    return Firing(schedule=replace(schedule, next_run_at=now + PUT_OFF), runs=())


def is_put_off(before: Schedule, firing: AnyFiring) -> bool:
    """Its slot is still the next one, and nothing was made of it."""
    return not firing.runs and before.next_slot == firing.schedule.next_slot is not None
