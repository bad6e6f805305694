"""Sources of data and their collections as `chimes.yaml` has them (R4.19), and the tasks that
synchronise them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from chimes.model.access import SYSTEM_OWNER, Owner
from chimes.model.ids import RunId, manual_run_id
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import Origin, Run
from chimes.model.target import SyncTarget
from chimes.triggers import Trigger

#: Where the schedules and the tasks of collections live.
SYNC_NAMESPACE = "sync"
#: Classes of priority (R4.8): unless told otherwise, a task of a schedule is HIGH; one that
#: somebody asked for is NOW and overtakes those.
LOW, HIGH, NOW = 100, 200, 300
#: Of a collection that says nothing.
SYNC_TIMEOUT = timedelta(hours=1)
LONGEST_SYNC_TIMEOUT = timedelta(days=7)


@dataclass(frozen=True, kw_only=True, slots=True)
class Collection:
    name: str
    #: None: synchronised only when somebody asks for it.
    trigger: Trigger | None = None
    #: The class of its automatic tasks.
    priority: int = HIGH
    timeout: timedelta = SYNC_TIMEOUT


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    id: str
    #: `python`, `command`, `http_json`.
    driver: str
    #: What the driver is told; it may hold secrets and is never shown.
    config: Mapping[str, object] = field(default_factory=dict, repr=False)
    collections: tuple[Collection, ...] = ()

    def collection(self, name: str) -> Collection | None:
        return next((each for each in self.collections if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Sources:
    """All that one file has."""

    by_id: Mapping[str, Source] = field(default_factory=dict)
    #: Where the file lies: modules are found there, and relative paths begin there.
    directory: str = ""

    def get(self, source: str, collection: str) -> Collection | None:
        found = self.by_id.get(source)
        return None if found is None else found.collection(collection)

    def pairs(self) -> Iterator[tuple[SyncTarget, Collection]]:
        for source in self.by_id.values():
            for each in source.collections:
                yield SyncTarget(source=source.id, collection=each.name), each


def task_name(target: SyncTarget) -> str:
    """As its schedule and its runs are called."""
    return f"{target.source}/{target.collection}"


def task_policy(
    target: SyncTarget,
    *,
    timeout: timedelta = SYNC_TIMEOUT,
    misfire_grace: timedelta = timedelta(seconds=60),
) -> Policy:
    """C1, C6: late ticks are passed over, and so are those that come while a task of the pair is
    active. What failed is not tried again; what lost its node is (C4)."""
    return Policy(
        misfire=Misfire.SKIP,
        misfire_grace=misfire_grace,
        overlap=Overlap.SKIP,
        max_concurrent_runs=1,
        concurrency_key=target.key,
        max_retries=0,
        timeout=timeout,
    )


def task_run(
    target: SyncTarget,
    collection: Collection | None,
    now: datetime,
    *,
    priority: int = NOW,
    owner: Owner = SYSTEM_OWNER,
    run_id: RunId | None = None,
) -> Run:
    """A task that somebody asks for (R4.17, R4.18); for `Store.add_unless_active`. `collection` is
    None where this node's file does not have it."""
    timeout = SYNC_TIMEOUT if collection is None else collection.timeout
    return Run(
        id=run_id or manual_run_id(now),
        schedule_id=None,
        schedule_name=task_name(target),
        namespace=SYNC_NAMESPACE,
        owner=owner,
        origin=Origin.MANUAL,
        target=target,
        policy=task_policy(target, timeout=timeout),
        priority=priority,
        concurrency_key=target.key,
        concurrency_limit=1,
        created_at=now,
        planned_at=now,
        available_at=now,
    )
