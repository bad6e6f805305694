"""Operations whose cost must not grow with the tables, for the tests of query plans.

Each operation is executed on filled tables (`filled_tables`). `executed` records the statements
that it sends, so that a test can explain and measure exactly these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import event

from chimes.clock import EPOCH
from chimes.model import replace
from chimes.model.access import Owner, OwnerType
from chimes.model.ids import ScheduleId
from chimes.model.listing import (
    DeliveryQuery,
    InboxQuery,
    RunQuery,
    ScheduleQuery,
    ScheduleSort,
)
from chimes.model.notification import DeliveryState
from chimes.model.run import RunStatus
from chimes.model.schedule import LastRunSummary
from chimes.store.sql import SqlStore, due_schedules, nodes, notifications, prefetch, schedules
from chimes.store.sql import runs as stored_runs
from chimes.store.sql.completion import BLOCKED_OF_KEY
from chimes.store.sql.database.base import Tx
from chimes.store.sql.locks import admitted_runs, lock_schedules, oldest_active
from chimes.store.sql.rows import access
from chimes.store.sql.rows.run import STATE, state_values
from chimes.store.sql.rows.schedule import load_definitions
from chimes.store.sql.tables import runs
from tests.builders import a_run, a_schedule
from tests.store.filled_tables import FAR, SCHEDULES, key_of

#: Where the live schedules begin.
FIRST_DUE = SCHEDULES // 10 + 1
THREE = [key_of(n) for n in (301, 302, 303)]
#: The concurrency number of a schedule, and the one with a long backlog.
KEY, BUSY = -key_of(8), -key_of(1)
USER = Owner(type=OwnerType.USER, id="u7")


def at(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


@dataclass(frozen=True)
class Hot:
    """An operation, the indexes that it may use, and how many rows it may read from tables and
    indexes. `pk` stands for primary keys."""

    work: Callable[[Tx], object]
    indexes: frozenset[str]
    most: int
    #: Returns rows in the order of the index.
    ordered: bool = False


def _hot(work: Callable[[Tx], object], indexes: str, most: int, *, ordered: bool = False) -> Hot:
    return Hot(work, frozenset(indexes.split()), most, ordered)


def _due(tx: Tx) -> object:
    statement = due_schedules.due_cursors(tx.dialect, 10)
    found = tx.tuples(statement, {"until": FIRST_DUE + 100})
    assert len(found) == 10
    return found


def _claim(tx: Tx) -> object:
    wanted = (tx.connection, FAR - 1, ["http"], 10)
    if tx.dialect.claims_at_once:
        found = tx.dialect.claim(*wanted, "n1")
    else:
        found = tx.dialect.claimable(*wanted)
    assert len(found) == 10
    return found


def _take_claims(tx: Tx) -> object:
    found = tx.dialect.take_claims(tx.connection, [("c1", 1), ("c2", 1), ("c3", 7), ("x", 1)])
    assert sorted(row[0] for row in found) == ["c1", "c2"]
    return found


def _end_claimed(tx: Tx) -> object:
    rows = [
        (run_id, 1, "succeeded", 5, 6, '{"value":null}', None, None, None)
        for run_id in ("c1", "c2", "x")
    ]
    found, moment = tx.dialect.end_claimed(tx.connection, 7, rows)
    assert (sorted(found), moment) == (["c1", "c2"], 7)
    return found


def _blocked_keys(tx: Tx) -> None:
    found = tx.dialect.blocked_keys(tx.connection, [BUSY, KEY, 5])
    assert set(found) == {BUSY, KEY}


def _move_cursors(tx: Tx) -> None:
    moved = {key: a_schedule(next_slot=at(5), next_run_at=at(5)) for key in THREE}
    tx.dialect.write_all(tx.connection, [access.cursor_updates(moved)])


def _write_summaries(tx: Tx) -> None:
    after = LastRunSummary(
        last_run_at=at(5), last_status=RunStatus.SUCCEEDED, last_error="", last_success_at=at(5)
    )
    access.write_summaries(tx, dict.fromkeys(THREE, after))


def _end_runs(tx: Tx) -> None:
    ended = replace(a_run(), status=RunStatus.SUCCEEDED, finished_at=at(5))
    rows = [(run_id, *state_values(ended)) for run_id in ("c1", "c2", "c3")]
    tx.dialect.update_many(tx.connection, runs, ("id", *STATE), rows)


def _list_runs(**given: Any) -> Callable[[Tx], object]:
    return lambda tx: stored_runs.list_runs(tx, RunQuery(limit=10, **given))


def _list_schedules(**given: Any) -> Callable[[Tx], object]:
    return lambda tx: schedules.list_schedules(tx, ScheduleQuery(limit=10, **given))


def _list_inbox(**given: Any) -> Callable[[Tx], object]:
    return lambda tx: notifications.list_inbox(tx, InboxQuery(limit=10, **given))


def _list_deliveries(**given: Any) -> Callable[[Tx], object]:
    return lambda tx: notifications.list_deliveries(tx, DeliveryQuery(limit=10, **given))


FIRING: Mapping[str, Hot] = {
    "next due": _hot(due_schedules.next_due, "cursors_due", 1),
    "due": _hot(_due, "cursors_due", 10, ordered=True),
    "schedules by key": _hot(
        lambda tx: tx.tuples(
            due_schedules._schedules_by_key(tx.dialect), {"keys": tx.dialect.listed(THREE)}
        ),
        "pk",
        9,
    ),
    "definitions": _hot(lambda tx: load_definitions(tx, [301, 302]), "pk", 2),
    # Each key has five queued and five claimed ones, and each has a row in `runs`.
    "admitted": _hot(
        lambda tx: admitted_runs(tx, {KEY, -key_of(9)}),
        "queue_by_concurrency claims_by_concurrency pk",
        40,
    ),
    "oldest active": _hot(
        lambda tx: oldest_active(tx, KEY), "queue_by_concurrency claims_by_concurrency pk", 33
    ),
    "backlog": _hot(
        lambda tx: due_schedules._with_backlog(tx, [-BUSY]), "queue_by_concurrency pk", 20
    ),
    "slots": _hot(
        lambda tx: access.find_slot_runs(tx, [("s8", 7), ("s9", 8)]),
        "runs_by_slot",
        4,
    ),
    "move cursors": _hot(_move_cursors, "pk", 3),
}
EXECUTION: Mapping[str, Hot] = {
    "next available": _hot(
        lambda tx: tx.dialect.next_available(tx.connection),
        "queue_order queue_turns queue_claimable",
        7,
    ),
    # An entry of the index for each of three ranks and five owners, and what is claimed.
    "claim": _hot(_claim, "queue_order queue_turns queue_claimable pk", 80, ordered=True),
    "take claims": _hot(_take_claims, "pk", 6),
    "load runs": _hot(lambda tx: access.load_runs(tx, ["c1", "q2", "h3"]), "pk", 12),
    "last runs": _hot(lambda tx: access.load_summaries(tx, THREE), "pk", 3),
    "write last runs": _hot(_write_summaries, "pk", 3),
    "end runs": _hot(_end_runs, "pk", 3),
    "blocked keys": _hot(_blocked_keys, "queue_by_concurrency", 4),
    "blocked of a key": _hot(
        lambda tx: tx.tuples(BLOCKED_OF_KEY, {"number": BUSY, "most": 10}),
        "queue_by_concurrency",
        10,
        ordered=True,
    ),
    "to cancel": _hot(
        lambda tx: tx.tuples(nodes.TO_CANCEL, {"node_id": "n0"}),
        "claims_by_node claims_to_cancel pk",
        100,
    ),
    "runs of a node": _hot(
        lambda tx: tx.tuples(nodes.RUNS_OF_NODE, {"node_id": "n0"}), "claims_by_node pk", 50
    ),
    "lost": _hot(
        lambda tx: tx.tuples(
            nodes.claims_of_nodes(tx.dialect), {"holders": tx.dialect.listed(["n1"]), "most": 10}
        ),
        "claims_by_node pk",
        100,
    ),
    # All claims are of living nodes, and each is one entry of the narrow index.
    "rescue needed": _hot(
        lambda tx: tx.first(nodes.RESCUE_NEEDED, {"now": 5}), "claims_by_node pk", 6100
    ),
    "old runs": _hot(
        lambda tx: tx.rows(stored_runs.ENDED_BEFORE, {"before": 2000, "most": 10}),
        "runs_created pk",
        12,
        ordered=True,
    ),
}
DELIVERY: Mapping[str, Hot] = {
    "pending deliveries": _hot(
        lambda tx: tx.dialect.pending(tx.connection, 2000, 1, ["inbox"], 10),
        "deliveries_pending",
        10,
        ordered=True,
    ),
    "next delivery": _hot(
        lambda tx: tx.dialect.next_delivery(tx.connection), "deliveries_pending", 1
    ),
    "old deliveries": _hot(
        lambda tx: tx.rows(notifications.ENDED_DELIVERIES, {"before": 500, "most": 10}),
        "deliveries_ended",
        10,
        ordered=True,
    ),
    "old items": _hot(
        lambda tx: tx.rows(notifications.OLD_ITEMS, {"before": 500, "most": 10}),
        "inbox_created",
        10,
        ordered=True,
    ),
}
#: A page of ten reads one more row to know whether there are more.
PAGES: Mapping[str, Hot] = {
    "schedules": _hot(_list_schedules(), "schedules_created pk", 60),
    "schedules by name": _hot(
        _list_schedules(sort=ScheduleSort.NAME, after=("name 3", "s3")), "schedules_named pk", 60
    ),
    "runs": _hot(_list_runs(), "runs_created pk", 40),
    "runs after a place": _hot(_list_runs(after=(3000, "h3000")), "runs_created pk", 40),
    "runs of a schedule": _hot(
        _list_runs(schedule_id=ScheduleId("s8")), "runs_by_schedule schedules_by_id pk", 41
    ),
    "failed runs": _hot(_list_runs(statuses=(RunStatus.FAILED,)), "runs_problems pk", 40),
    "tasks of a source": _hot(_list_runs(requirement="sync:s1"), "runs_by_source pk", 60),
    "tasks of a time": _hot(
        _list_runs(requirement="sync:s1", created_since=at(400), created_until=at(3200)),
        "runs_by_source pk",
        60,
    ),
    "deliveries": _hot(_list_deliveries(), "deliveries_created", 11, ordered=True),
    "deliveries of an owner": _hot(
        _list_deliveries(owner=USER, after=(1507, "d1507")), "deliveries_by_owner", 11, ordered=True
    ),
    "pending page": _hot(
        _list_deliveries(states=(DeliveryState.PENDING,)), "deliveries_by_state", 11, ordered=True
    ),
    "inbox": _hot(_list_inbox(owner=USER), "inbox_by_owner", 11, ordered=True),
    "everyone's inbox": _hot(_list_inbox(), "inbox_created", 11, ordered=True),
}
HOT: Mapping[str, Hot] = FIRING | EXECUTION | DELIVERY | PAGES
#: On databases that lock rows.
LOCKS: Mapping[str, Hot] = {
    "lock schedules": _hot(lambda tx: lock_schedules(tx, ["s301", "s302"]), "pk", 2),
}
#: On databases that end runs in one statement.
AT_ONCE: Mapping[str, Hot] = {"end claimed": _hot(_end_claimed, "pk", 8)}
#: On databases that prefetch.
PREFETCH: Mapping[str, Hot] = {
    "due times": _hot(
        lambda tx: tx.dialect.due_times(tx.connection, FAR, 50), "cursors_due", 50, ordered=True
    ),
    "next prefetch": _hot(
        lambda tx: tx.dialect.next_prefetch(tx.connection, FIRST_DUE + 99, 1, 20_000),
        "cursors_due",
        100,
    ),
    "confirm": _hot(
        lambda tx: tx.dialect.confirm_claims(tx.connection, FAR, [("c1", 1), ("c2", 1), ("c3", 7)]),
        "pk",
        6,
    ),
    "upcoming of a schedule": _hot(
        lambda tx: tx.tuples(prefetch.UPCOMING_OF_SCHEDULE, {"key": -KEY, "now": FAR}),
        "runs_by_slot",
        1,
    ),
    "previous slot": _hot(
        lambda tx: tx.tuples(prefetch.PREVIOUS_SLOT, {"key": -KEY, "slot": FAR}),
        "runs_by_slot",
        1,
        ordered=True,
    ),
}


class _RolledBack(Exception):
    """Ends a transaction that must leave nothing behind."""


async def rolled_back(store: SqlStore, work: Callable[[Tx], Any]) -> Any:
    answer: list[Any] = []

    def undone(tx: Tx) -> None:
        tx.known.clear()
        answer.append(work(tx))
        raise _RolledBack

    try:
        await store._database.write(undone)
    except _RolledBack:
        return answer[-1]


Executed = list[tuple[str, Any]]


async def executed(store: SqlStore, hot: Hot) -> Executed:
    """Executes the operation and returns the statements that it sent, with their parameters."""
    sent: Executed = []

    def record(_connection: Any, _cursor: Any, statement: str, given: Any, *_: Any) -> None:
        sent.append((statement, given))

    def work(tx: Tx) -> None:
        event.listen(tx.connection, "before_cursor_execute", record)
        try:
            hot.work(tx)
        finally:
            event.remove(tx.connection, "before_cursor_execute", record)

    await rolled_back(store, work)
    assert sent
    return sent
