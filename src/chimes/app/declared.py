"""Schedules as an application declares them, and how they relate to what the store has; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Literal, TypedDict

from chimes.errors import InvalidInput
from chimes.model.access import SYSTEM_OWNER, Owner
from chimes.model.code_mark import found_at, is_detached, marked, unmarked
from chimes.model.ids import ScheduleId
from chimes.model.policy import Backoff, Misfire, OnLost, Overlap, Policy
from chimes.model.recipient import Recipient
from chimes.model.schedule import Dependency, Schedule
from chimes.model.target import Target
from chimes.triggers import Cron, Every, Trigger
from chimes.wording import say

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ModeWord = Literal["db", "memory"]


class Mode(StrEnum):
    """Who computes when a declared schedule fires."""

    #: The store keeps it and decides; every node may fire it.
    DB = "db"
    #: Each worker of this application computes it; the store only keeps its runs (R2.1).
    MEMORY = "memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class DependsOn:
    """Another schedule of the namespace, by name (R2.39)."""

    name: str
    within: timedelta


class PolicyOptions(TypedDict, total=False):
    """Fields of a Policy."""

    misfire: Misfire
    misfire_grace: timedelta
    catch_up_limit: int
    overlap: Overlap
    max_concurrent_runs: int
    burst_allowed: bool
    max_retries: int
    retry_backoff: timedelta
    backoff: Backoff
    timeout: timedelta
    on_lost: OnLost
    delivery: tuple[Recipient, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    name: str
    trigger: Trigger
    target: Target
    #: None: as `use_db_driven_scheduling` says.
    mode: Mode | None = None
    #: Fields of the policy that this declaration sets itself.
    policy: PolicyOptions = field(default_factory=PolicyOptions)
    priority: int | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    enabled: bool = True
    depends_on: DependsOn | None = None
    #: None: the system's, or whoever has it already.
    owner: Owner | None = None
    #: Where the code is that declares it: `shop/tasks.py:12`.
    at: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Complete:
    """A declaration with everything that only a started application knows."""

    declared: Declared
    policy: Policy
    priority: int
    default_timezone: str
    depends_on: Dependency | None = None


def settled_trigger(trigger: Trigger, default_timezone: str) -> Trigger:
    """With its zone and anchor. An interval without an anchor lies on the grid of 1970 in UTC:
    nodes that know nothing of each other must come to the same slots."""
    return trigger.with_default_zone(default_timezone).anchored(trigger.start_at or EPOCH)


def same_trigger(declared: Trigger, stored: Trigger, default_timezone: str) -> bool:
    """Whether the store's trigger is what is declared, apart from an anchor that it was given by
    whoever created it."""
    settled = settled_trigger(declared, default_timezone)
    if settled == stored:
        return True
    for kind in (Every, Cron):
        if isinstance(declared, kind) and isinstance(stored, kind) and declared.anchor is None:
            zoned = declared.with_default_zone(default_timezone)
            return replace(zoned, anchor=stored.anchor) == stored
    return False


def draft(complete: Complete, schedule_id: ScheduleId, namespace: str, now: datetime) -> Schedule:
    """The schedule as it is first written."""
    declared = complete.declared
    drafted = Schedule(
        id=schedule_id,
        namespace=namespace,
        name=declared.name,
        owner=declared.owner or SYSTEM_OWNER,
        trigger=settled_trigger(declared.trigger, complete.default_timezone),
        target=declared.target,
        policy=complete.policy,
        priority=complete.priority,
        labels=declared.labels,
        enabled=declared.enabled,
        depends_on=complete.depends_on,
        created_at=now,
        updated_at=now,
    )
    return marked(drafted, declared.at)


def updated(complete: Complete, stored: Schedule) -> Schedule:
    """The stored schedule as it is declared now. The same trigger keeps its cursor and with it
    what is still to be caught up; whether it is switched on is the operator's business. One that
    somebody edited stays as it is (ADR 33)."""
    declared = complete.declared
    wanted = _as_declared(complete, stored)
    if is_detached(stored) and unmarked(wanted) != unmarked(stored):
        return found_at(stored, declared.at)
    return marked(wanted, declared.at)


def _as_declared(complete: Complete, stored: Schedule) -> Schedule:
    declared = complete.declared
    trigger = stored.trigger
    if not same_trigger(declared.trigger, stored.trigger, complete.default_timezone):
        trigger = settled_trigger(declared.trigger, complete.default_timezone)
    return replace(
        stored,
        trigger=trigger,
        target=declared.target,
        policy=complete.policy,
        priority=complete.priority,
        labels=declared.labels,
        depends_on=complete.depends_on,
        owner=declared.owner or stored.owner,
    )


def check_memory(declared: Declared) -> None:
    """What only the store could keep cannot be had without it."""
    if declared.trigger.max_runs is not None:
        raise InvalidInput(
            say(
                "schedule {name!r}: max_runs is counted in the store; it needs mode='db'",
                name=declared.name,
            ),
            field="max_runs",
            code="needs_db",
        )
