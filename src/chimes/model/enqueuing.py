"""Runs that nobody scheduled: a task or a flow put into the queue by a program."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime

from chimes.model.access import SYSTEM_OWNER, Owner
from chimes.model.ids import RunId, manual_run_id
from chimes.model.policy import UNLIMITED, Policy
from chimes.model.run import Origin, Run
from chimes.model.target import Target

ENQUEUE_NAMESPACE = uuid.UUID("5f0d2d5e-0e0b-5e7c-8f43-6a0f2b0c9d21")


@dataclass(frozen=True, kw_only=True, slots=True)
class Enqueue:
    """What a caller wants to be run; when it has no `at`, at once."""

    target: Target
    policy: Policy = field(default_factory=Policy)
    priority: int = 0
    namespace: str = "native"
    owner: Owner = SYSTEM_OWNER
    at: datetime | None = None
    #: Two enqueues of the same target with the same key are one run.
    key: str | None = None


def keyed_run_id(namespace: str, needs: str, key: str) -> RunId:
    """The same key means the same run, on every node, for as long as the run is kept."""
    return RunId(str(uuid.uuid5(ENQUEUE_NAMESPACE, f"{namespace}\0{needs}\0{key}")))


def enqueued_run(wanted: Enqueue, now: datetime) -> Run:
    planned_at = now if wanted.at is None else max(wanted.at, now)
    key, limit = wanted.policy.concurrency_key, wanted.policy.concurrency_limit
    return Run(
        id=manual_run_id(now)
        if wanted.key is None
        else keyed_run_id(wanted.namespace, wanted.target.needs, wanted.key),
        schedule_id=None,
        namespace=wanted.namespace,
        owner=wanted.owner,
        origin=Origin.MANUAL,
        target=wanted.target,
        policy=wanted.policy,
        priority=wanted.priority,
        # Without a schedule only a key that the task names itself holds its runs back.
        concurrency_key=key if limit < UNLIMITED else None,
        concurrency_limit=limit,
        created_at=now,
        planned_at=planned_at,
        available_at=planned_at,
    )
