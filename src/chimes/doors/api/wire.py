"""Schedules between the native API and the model; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from chimes.config import Settings
from chimes.doors.api.inputs import (
    DependencyIn,
    OwnerIn,
    PolicyIn,
    ScheduleIn,
    SchedulePatch,
    StartIn,
)
from chimes.doors.api.wire_recipients import recipients_from, recipients_out
from chimes.doors.api.wire_targets import patched_target, target_from, target_out
from chimes.errors import InvalidInput
from chimes.language import describe
from chimes.model.access import Actor, Owner
from chimes.model.code_mark import code_mark, is_detached
from chimes.model.defaults import PRIORITY, with_own
from chimes.model.ids import ScheduleId
from chimes.model.policy import Policy
from chimes.model.schedule import Dependency, Schedule
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    Target,
)
from chimes.retelling import retold, retold_line
from chimes.service.orders import Order
from chimes.service.rules import checked_text
from chimes.service.targets import action_policy, agent_policy, usual_defaults, usual_timeout
from chimes.store.codec.schedule import owner_to_plain
from chimes.triggers import format_duration_iso, format_moment, parse_moment
from chimes.wording import say

Json = dict[str, object]


def owner_from(given: OwnerIn) -> Owner:
    return Owner(type=given.type, id=checked_text(given.id, "owner.id"))


def default_policy(settings: Settings, target: Target) -> Policy:
    """What a target gets where its policy says nothing."""
    if isinstance(target, SyncTarget | MessageTarget):
        return replace(usual_defaults(target).policy, misfire_grace=settings.misfire_grace)
    if isinstance(target, AgentTarget):
        return replace(agent_policy(settings), misfire_grace=settings.misfire_grace)
    if isinstance(target, ActionTarget):
        return replace(action_policy(settings), misfire_grace=settings.misfire_grace)
    usual = Policy(misfire_grace=settings.misfire_grace, timeout=usual_timeout(target))
    if not isinstance(target, HttpTarget):
        return usual
    return replace(
        usual,
        max_retries=settings.max_retries,
        retry_backoff=settings.retry_backoff,
        timeout=settings.default_timeout,
    )


def policy_from(given: PolicyIn, base: Policy) -> Policy:
    return replace(base, **{name: getattr(given, name) for name in given.model_fields_set})


def _told(policy: Policy, given: ScheduleIn | StartIn) -> Policy:
    """With the recipients that the caller names; an empty list names nobody."""
    if "delivery" not in given.model_fields_set:
        return policy
    return replace(policy, delivery=recipients_from(given.delivery))


def said_in(given: ScheduleIn | SchedulePatch | StartIn) -> frozenset[str]:
    """What the caller chose of that in which a task or flow has a word."""
    found = frozenset(given.policy.model_fields_set)
    return found | ({PRIORITY} & given.model_fields_set)


def dependency_from(given: DependencyIn) -> Dependency:
    return Dependency(schedule_id=ScheduleId(given.schedule_id), within=given.within)


def draft_from(
    given: ScheduleIn, actor: Actor, settings: Settings, created_at: datetime
) -> Schedule:
    """The service makes the id, the first slot and the times where they are not given."""
    if given.id == "":
        raise InvalidInput(
            say("an id is not empty; leave it out instead"), field="id", code="too_short"
        )
    target = target_from(given.target)
    return Schedule(
        id=ScheduleId(given.id or ""),
        namespace=given.namespace,
        name=given.name,
        owner=owner_from(given.owner) if given.owner else actor.owner,
        trigger=given.trigger,
        target=target,
        policy=_told(policy_from(given.policy, default_policy(settings, target)), given),
        priority=given.priority,
        labels=given.labels,
        enabled=given.enabled,
        depends_on=dependency_from(given.depends_on) if given.depends_on else None,
        created_at=created_at,
        updated_at=created_at,
    )


def order_from(given: StartIn, settings: Settings) -> Order:
    target = target_from(given.target)
    return Order(
        target=target,
        policy=_told(policy_from(given.policy, default_policy(settings, target)), given),
        name=given.name,
        namespace=given.namespace,
        priority=given.priority,
        owner=owner_from(given.owner) if given.owner else None,
        at=None if given.at is None else moment_from(given.at, given.timezone, "at"),
        said=said_in(given),
    )


def patch_from(given: SchedulePatch, settings: Settings) -> Callable[[Schedule], Schedule]:
    """The edit that a PATCH asks for. What a policy says about carrying out is for one kind of
    target: another kind begins with what is usual for it."""
    plain = given.model_fields_set & {"name", "trigger", "priority", "labels", "enabled"}

    def edit(before: Schedule) -> Schedule:
        after = replace(before, **{name: getattr(given, name) for name in plain})
        if "target" in given.model_fields_set:
            target = patched_target(given.target, before.target)
            after = replace(after, target=target)
            if target.kind != before.target.kind:
                usual = default_policy(settings, target)
                policy = with_own(before.policy, usual, ())
                if policy.delivery == default_policy(settings, before.target).delivery:
                    policy = replace(policy, delivery=usual.delivery)
                after = replace(after, policy=policy)
        if "policy" in given.model_fields_set:
            after = replace(after, policy=policy_from(given.policy, after.policy))
        if "delivery" in given.model_fields_set:
            delivery = recipients_from(given.delivery, before.policy.delivery)
            after = replace(after, policy=replace(after.policy, delivery=delivery))
        if "depends_on" in given.model_fields_set:
            depends_on = dependency_from(given.depends_on) if given.depends_on else None
            after = replace(after, depends_on=depends_on)
        return after

    return edit


def moment_from(text: str, timezone: str | None, field: str) -> datetime:
    """RFC 3339, RFC 9557, or local time with the zone that stands beside it."""
    return parse_moment(text, timezone, field=field)


def schedule_out(schedule: Schedule, lang: str = "en") -> Json:
    depends_on = schedule.depends_on
    return {
        "id": schedule.id,
        "namespace": schedule.namespace,
        "name": schedule.name,
        "owner": owner_to_plain(schedule.owner),
        "trigger": schedule.trigger.to_dict(),
        "timezone": schedule.trigger.zone,
        "words": describe(schedule.trigger, lang),
        "target": target_out(schedule.target),
        "policy": policy_out(schedule.policy),
        "priority": schedule.priority,
        "labels": labels_out(schedule.labels),
        "enabled": schedule.enabled,
        "pause": None
        if schedule.enabled
        else {
            "note": retold_line(schedule.pause_note, lang),
            "until": time_out(schedule.pause_until),
        },
        "depends_on": depends_on
        and {
            "schedule_id": depends_on.schedule_id,
            "within": format_duration_iso(depends_on.within),
        },
        "delivery": recipients_out(schedule.policy.delivery),
        "next_run_at": time_out(schedule.next_run_at),
        "next_slot": time_out(schedule.next_slot),
        "last_slot": time_out(schedule.last_slot),
        "last_run_at": time_out(schedule.last_run_at),
        "last_enqueued_at": time_out(schedule.last_enqueued_at),
        "last_status": schedule.last_status and schedule.last_status.value,
        "last_error": schedule.last_error and retold(schedule.last_error, lang),
        "fired_count": schedule.fired_count,
        "version": schedule.version,
        "created_at": time_out(schedule.created_at),
        "created_by": schedule.created_by,
        "updated_at": time_out(schedule.updated_at),
        "updated_by": schedule.updated_by,
        "declared": _declared_out(schedule),
    }


def _declared_out(schedule: Schedule) -> Json | None:
    mark = code_mark(schedule)
    return None if mark is None else {"at": mark.at, "detached": is_detached(schedule)}


def policy_out(policy: Policy) -> Json:
    return {
        "misfire": policy.misfire.value,
        "misfire_grace": format_duration_iso(policy.misfire_grace),
        "catch_up_limit": policy.catch_up_limit,
        "overlap": policy.overlap.value,
        "max_concurrent_runs": policy.max_concurrent_runs,
        "burst_allowed": policy.burst_allowed,
        "concurrency_key": policy.concurrency_key,
        "max_retries": policy.max_retries,
        "retry_backoff": format_duration_iso(policy.retry_backoff),
        "backoff": policy.backoff.value,
        "backoff_cap": format_duration_iso(policy.backoff_cap),
        "timeout": format_duration_iso(policy.timeout),
        "on_lost": policy.on_lost.value,
        "pause_on_gone": policy.pause_on_gone,
    }


def labels_out(labels: Mapping[str, str | None]) -> Json | list[str]:
    """A list where no label has a value, as it was sent."""
    if labels and all(value is None for value in labels.values()):
        return list(labels)
    return dict(labels)


def time_out(moment: datetime | None) -> str | None:
    return None if moment is None else format_moment(moment)
