"""Schedules that are made in words: a prompt for an agent, told to where it came from (R1.1)."""

from __future__ import annotations

import secrets
import uuid
from datetime import datetime

from chimes.model.access import Owner
from chimes.model.ids import RunId, ScheduleId
from chimes.model.policy import Policy
from chimes.model.schedule import Schedule
from chimes.model.target import AgentTarget
from chimes.triggers import Trigger

#: Where the Softnix door and chats keep their schedules: to their users it is one product.
NAMESPACE = "softnix"
_LONGEST_NAME = 80
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
        # An interval counts from a moment that people can say.
        trigger=trigger.anchored(now.replace(microsecond=0)),
        target=AgentTarget(prompt=prompt),
        policy=policy,
        enabled=enabled,
        created_at=now,
        updated_at=now,
    )


def name_of(prompt: str) -> str:
    """The beginning of a prompt, in one line."""
    words = " ".join("".join(c if c.isprintable() else " " for c in prompt).split())
    return words if len(words) <= _LONGEST_NAME else f"{words[: _LONGEST_NAME - 1].rstrip()}…"


def new_short_id() -> ScheduleId:
    """Twelve hexadecimal digits, as the seed's users know them."""
    return ScheduleId(secrets.token_hex(6))


def short_id_for(request: str) -> ScheduleId:
    """The same for the same request, so that handling it again makes nothing new."""
    return ScheduleId(uuid.uuid5(_ID_NAMESPACE, request).hex[:12])


def run_id_for(request: str) -> RunId:
    """The same for a run by hand."""
    return RunId(str(uuid.uuid5(_ID_NAMESPACE, request)))
