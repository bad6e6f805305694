"""Runs that somebody asks for without a schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from chimes.errors import InvalidInput
from chimes.model.access import Owner
from chimes.model.defaults import PRIORITY, RunDefaults, with_own
from chimes.model.ids import RunId
from chimes.model.policy import UNLIMITED, Policy
from chimes.model.run import Origin, Run
from chimes.model.source import NOW as NOW_CLASS
from chimes.model.target import SyncTarget, Target
from chimes.service.audit import masked
from chimes.service.rules import LONGEST_WAIT, check_priority, checked_policy, clean_name
from chimes.store.codec.schedule import recipient_to_plain, target_to_plain
from chimes.wording import say


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    target: Target
    policy: Policy
    name: str = ""
    namespace: str = "native"
    priority: int = 0
    #: None: whoever asks.
    owner: Owner | None = None
    #: None, and the past: now.
    at: datetime | None = None
    #: Which fields of the policy (and `priority`) somebody chose: the others are as the task or
    #: flow has them itself. None: all.
    said: frozenset[str] | None = None


def completed(order: Order, defaults: RunDefaults | None) -> Order:
    """With what its target says about its runs, where the order says nothing."""
    if order.said is None or defaults is None:
        return order
    own = NOW_CLASS if isinstance(order.target, SyncTarget) else defaults.priority
    return replace(
        order,
        policy=with_own(order.policy, defaults.policy, order.said),
        priority=order.priority if PRIORITY in order.said else own,
        said=None,
    )


def ordered_run(order: Order, owner: Owner, run_id: RunId, now: datetime) -> Run:
    """The run of an order; InvalidInput names what is wrong with it."""
    policy = checked_policy(order.policy, order.target)
    check_priority(order.priority, order.target)
    due = max(order.at or now, now)
    if due - now > LONGEST_WAIT:
        raise InvalidInput(
            say("at lies more than {days} days ahead", days=LONGEST_WAIT.days),
            field="at",
            code="out_of_range",
        )
    limit = policy.concurrency_limit
    return Run(
        id=run_id,
        schedule_id=None,
        schedule_name=clean_name(order.name) if order.name else "",
        namespace=order.namespace,
        owner=owner,
        origin=Origin.MANUAL,
        target=order.target,
        policy=policy,
        priority=order.priority,
        concurrency_key=policy.concurrency_key if limit < UNLIMITED else None,
        concurrency_limit=limit,
        created_at=now,
        planned_at=due,
        available_at=due,
    )


def order_shown(order: Order) -> dict[str, object]:
    """For the audit, without secrets."""
    shown: dict[str, object] = {"target": target_to_plain(order.target)}
    if order.policy.delivery:
        shown["delivery"] = [recipient_to_plain(each) for each in order.policy.delivery]
    return masked(shown)
