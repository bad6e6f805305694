"""Runs that somebody asks for without a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.access import Owner
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery
from chimes.model.policy import PRIORITY, UNLIMITED, Policy, RunDefaults, with_own
from chimes.model.run import Origin, Run
from chimes.model.sync import NOW as NOW_CLASS
from chimes.model.target import SyncTarget, Target
from chimes.services.audit import masked
from chimes.services.validation import LONGEST_WAIT, check_priority, checked_policy, clean_name
from chimes.store.codec.schedule import recipient_to_plain, target_to_plain
from chimes.store.port import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
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


def completed(order: RunRequest, defaults: RunDefaults | None) -> RunRequest:
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


def ordered_run(order: RunRequest, owner: Owner, run_id: RunId, now: datetime) -> Run:
    """The run of an order; InvalidInput names what is wrong with it."""
    policy = checked_policy(order.policy, order.target)
    check_priority(order.priority, order.target)
    due = max(order.at or now, now)
    if due - now > LONGEST_WAIT:
        raise InvalidInput(
            _("at lies more than {days} days ahead", days=LONGEST_WAIT.days),
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


def order_shown(order: RunRequest) -> dict[str, object]:
    """For the audit, without secrets."""
    shown: dict[str, object] = {"target": target_to_plain(order.target)}
    if order.policy.delivery:
        shown["delivery"] = [recipient_to_plain(each) for each in order.policy.delivery]
    return masked(shown)


# @@ Who asked for runs that no slot asked for, and how: as the audit has it.

_VERBS = ("start", "run", "retry", "backfill")
#: Entries that one question looks at: each run has one, most of a backfill share theirs.
_MOST = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Asker:
    #: As in the audit.
    name: str
    #: By which door they came.
    door: str


async def askers_of(store: Store, runs: Sequence[Run]) -> dict[RunId, Asker]:
    """Of those that somebody asked for, where that is on record: one question, however many.

    `runs` are the asker's to see; at most a thousand."""
    asked = [run for run in runs if run.origin in (Origin.MANUAL, Origin.BACKFILL)]
    if not asked:
        return {}
    moments = [run.created_at for run in asked]
    entries = await store.list_audit(
        AuditQuery(
            object_ids=tuple({_object_of(run) for run in asked}),
            verbs=_VERBS,
            # A run and its entry are of the same moment.
            since=min(moments),
            until=max(moments),
            limit=_MOST,
        )
    )
    return askers_in(entries, asked)


def askers_in(entries: Iterable[AuditEntry], runs: Iterable[Run]) -> dict[RunId, Asker]:
    """An entry names its run; that of a backfill, which are many, has their moment."""
    by_run: dict[str, Asker] = {}
    by_moment: dict[tuple[str, datetime], Asker] = {}
    for entry in entries:
        asker = Asker(name=entry.actor, door=entry.door)
        if entry.verb == "backfill":
            by_moment[entry.object_id, entry.at] = asker
        else:
            by_run[str(entry.changes.get("run_id") or entry.object_id)] = asker
    found = {
        run.id: by_moment.get((run.schedule_id or "", run.created_at))
        if run.origin is Origin.BACKFILL
        else by_run.get(run.id)
        for run in runs
    }
    return {run_id: asker for run_id, asker in found.items() if asker is not None}


def _object_of(run: Run) -> str:
    """What the entry of whoever asked for it is about."""
    of_schedule = run.schedule_id or run.id
    return of_schedule if run.origin is Origin.BACKFILL else run.retry_of or of_schedule
