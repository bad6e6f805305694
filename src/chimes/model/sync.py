"""Sources of data and their collections as `chimes.yaml` has them (R4.19), and the tasks that
synchronise them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Owner
from chimes.model.ids import RunId, manual_run_id
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.target import SyncTarget
from chimes.triggers import Trigger

#: Where the schedules and the tasks of collections live.
SYNC_NAMESPACE = "sync"
#: Classes of priority (R4.8): unless told otherwise, a task of a schedule is HIGH; one that
#: somebody asked for is NOW and overtakes those.
LOW, HIGH, NOW = 100, 200, 300
#: Of a collection that says nothing.
SYNC_TIMEOUT = timedelta(hours=1)
MAX_SYNC_TIMEOUT = timedelta(days=7)


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


# @@ A run of a SyncTarget as seed 4 sees it: a task, with its own id, words and numbers (R4.6).
#
# Pure, so that the Redis keys (R4.7, R4.10-R4.12) and the EventNative door say the same.

#: Run ids are UUIDs in their usual writing.
RUN_ID_LENGTH = 36
#: R4.8: higher class first, then older first. A class is worth more than any second.
CLASS_WEIGHT = 10**12


class TaskStatus(StrEnum):
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    SUCCESS = "SUCCESS"
    CANCELED = "CANCELED"


#: C10. What is not here is no task.
_STATUS = {
    RunStatus.QUEUED: TaskStatus.SCHEDULED,
    RunStatus.RUNNING: TaskStatus.RUNNING,
    RunStatus.SUCCEEDED: TaskStatus.SUCCESS,
    RunStatus.FAILED: TaskStatus.FAILED,
    RunStatus.TIMEOUT: TaskStatus.FAILED,
    RunStatus.UNKNOWN: TaskStatus.FAILED,
    RunStatus.CANCELED: TaskStatus.CANCELED,
}
#: The statuses of runs that are tasks.
TASK_RUN_STATUSES = tuple(_STATUS)


def is_task(run: Run) -> bool:
    """Whether seed 4 would call it one. A tick that was skipped or missed made no task."""
    return isinstance(run.target, SyncTarget) and run.status in _STATUS


def sync_target(run: Run) -> SyncTarget:
    assert isinstance(run.target, SyncTarget), "only runs of a SyncTarget are tasks"
    return run.target


def task_id(run: Run) -> str:
    target = sync_target(run)
    return f"{target.source}_{target.collection}_{run.id}"


def parse_task_id(text: str) -> tuple[str, RunId] | None:
    """`SOURCE_COLLECTION` and the run's id. Names may have a `_` themselves, so whoever loads the
    run checks that its `task_id` is the text. None: no task has such an id."""
    pair, run_id = text[:-RUN_ID_LENGTH], text[-RUN_ID_LENGTH:]
    if len(pair) < len("s_c_") or not pair.endswith("_"):
        return None
    return pair[:-1], RunId(run_id)


def task_status(run: Run) -> TaskStatus:
    """Of a run that `is_task`."""
    return _STATUS[run.status]


def run_statuses(status: TaskStatus) -> tuple[RunStatus, ...]:
    """Which runs a filter by the seed's word means."""
    return tuple(ours for ours, theirs in _STATUS.items() if theirs is status)


def task_priority(run: Run) -> int:
    """R4.8: also the score in the queue. Exact as a double up to class 9000."""
    return run.priority * CLASS_WEIGHT - created_unix(run)


def created_unix(run: Run) -> int:
    """R4.10: whole seconds."""
    return int(run.created_at.timestamp())


def task_time(moment: datetime | None) -> str:
    """C18: ISO with microseconds and Z; "" where there is none."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def task_fields(run: Run) -> dict[str, str | int]:
    """R4.6 and R4.11, in the seed's order."""
    target = sync_target(run)
    return {
        "id": task_id(run),
        "source": target.source,
        "collection": target.collection,
        "priority": task_priority(run),
        "created_at": task_time(run.created_at),
        "started_at": task_time(run.started_at),
        "finished_at": task_time(run.finished_at),
        "status": task_status(run).value,
    }


# @@ What holds for every run of a pair of source and collection: at most one of them is active,
# whoever asked for it and wherever (R4.18, R4.20).

_KEY_PREFIX: Final = "sync:"


def require_exclusive(policy: Policy, target: SyncTarget) -> Policy:
    """With the key and the limit of the pair. InvalidInput for a policy that wants more than one
    run at a time, or another key: it could not be kept."""
    for name, wrong, wanted in (
        ("overlap", policy.overlap is not Overlap.SKIP, "skip"),
        ("max_concurrent_runs", policy.max_concurrent_runs not in (None, 1), "1"),
        ("burst_allowed", policy.burst_allowed, "false"),
        ("concurrency_key", policy.concurrency_key not in (None, target.key), target.key),
    ):
        if wrong:
            raise InvalidInput(
                _(
                    "{field} is {wanted} for a sync target: one run of each pair at a time",
                    field=name,
                    wanted=wanted,
                ),
                field=f"policy.{name}",
                code="one_at_a_time",
            )
    return replace(policy, concurrency_key=target.key, max_concurrent_runs=1)


def parse_pair_key(key: str) -> tuple[str, str]:
    """Source and collection of a key that `is_pair_key`."""
    source, _unused, collection = key.removeprefix(_KEY_PREFIX).partition("#")
    return source, collection


def is_pair_key(key: str) -> bool:
    """Whether a concurrency key has the form of those of the pairs. Nothing else may use one: it
    would count as a run of the pair."""
    return key.startswith(_KEY_PREFIX) and "#" in key
