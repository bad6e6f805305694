"""Lists: filters, orders, pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import combinations, product
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.access import OwnerType
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.listing import RunQuery, RunSort, ScheduleQuery, ScheduleSort
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.schedule import Schedule, delete_schedule
from chimes.model.target import ActionTarget
from chimes.store.port import Store
from chimes.testing import SettableClock
from chimes.triggers import Cron, OnFile, OnRunEnd, OnSql, Webhook
from tests.builders import (
    ALICE,
    BOB,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    SYNC,
    TARGET,
    a_completion,
    a_node,
    a_retry,
    a_run,
    a_schedule,
    a_sync_run,
    claim_request,
)
from tests.tables import each_row


async def listed(store: Store, **query: Any) -> list[str]:
    page = await store.list_schedules(ScheduleQuery(**({"limit": None} | query)))
    assert page.next is None
    assert await store.count_schedules(ScheduleQuery(**query)) == len(page.items)
    return [schedule.name for schedule in page.items]


async def test_listed_schedules_have_every_field(store: Store) -> None:
    schedules = [await store.add_schedule(a_schedule()) for _ in range(3)]
    page = await store.list_schedules(ScheduleQuery())
    assert page.items == tuple(schedules)
    assert page.next is None


async def test_schedules_are_filtered(store: Store) -> None:
    await store.add_schedule(a_schedule(name="alice's", owner=ALICE))
    await store.add_schedule(a_schedule(name="bob's", owner=BOB))
    await store.add_schedule(a_schedule(name="ksana's", namespace="ksana"))
    await store.add_schedule(a_schedule(name="paused", enabled=False))
    await store.add_schedule(a_schedule(name="labelled", labels={"team": "ops", "bare": None}))
    assert await listed(store, owner=ALICE) == ["alice's"]
    assert await listed(store, namespace="ksana") == ["ksana's"]
    assert await listed(store, name="paused") == ["paused"]
    assert await listed(store, enabled=False) == ["paused"]
    assert await listed(store, enabled=True, namespace="default") == [
        "alice's",
        "bob's",
        "labelled",
    ]
    assert await listed(store, label="team") == ["labelled"]
    assert await listed(store, label="bare") == ["labelled"]
    assert await listed(store, label="ops") == []
    assert await listed(store, label="team", label_value="ops") == ["labelled"]
    assert await listed(store, label="team", label_value="dev") == []
    assert await listed(store, label="bare", label_value="") == []
    assert len(await listed(store, kind="http")) == 5
    assert await listed(store, kind="task") == []
    assert await listed(store, owner=ALICE, namespace="ksana") == []


async def test_default_namespace_includes_schedules_of_its_former_names(store: Store) -> None:
    for namespace in ("default", "native", "catbird", "ksana"):
        await store.add_schedule(a_schedule(name=namespace, namespace=namespace, owner=ALICE))
    for name in ("default", "native", "catbird"):
        assert await listed(store, namespace=name) == ["default", "native", "catbird"]
        assert await listed(store, namespace=name, owner=ALICE) == ["default", "native", "catbird"]
    assert await listed(store, namespace="default", name="catbird") == ["catbird"]
    assert await listed(store, namespace="ksana") == ["ksana"]


async def test_default_namespace_includes_runs_of_its_former_names(store: Store) -> None:
    await store.add_runs([a_run(namespace=each) for each in ("default", "native", "catbird", "x")])
    for name in ("default", "native", "catbird"):
        page = await store.list_runs(RunQuery(namespace=name))
        assert {run.namespace for run in page.items} == {"default", "native", "catbird"}
    page = await store.list_runs(RunQuery(namespace="x"))
    assert [run.namespace for run in page.items] == ["x"]


async def test_schedules_are_filtered_by_id(store: Store) -> None:
    made = [await store.add_schedule(a_schedule(name=name, owner=ALICE)) for name in "abcd"]
    gone, *_, last = made
    await store.change_schedule(gone.id, lambda each, now: delete_schedule(each, now, "me"))
    ids = (last.id, ScheduleId("nobody"), made[1].id, gone.id, last.id)
    assert await listed(store, ids=ids) == ["b", "d"]
    assert await listed(store, ids=ids, owner=BOB) == []
    assert await listed(store, ids=()) == []
    assert await store.count_schedules(ScheduleQuery(ids=ids)) == 2


async def test_schedules_are_filtered_by_the_kind_of_their_trigger(store: Store) -> None:
    """Whatever the other fields contain; deleted schedules are not listed."""
    secret = '{"kind":"file"'
    for name, trigger in {
        "cron": Cron("0 9 * * *"),
        "hook": Webhook(scheme="github", secret=secret, token="t", debounce="3s"),
        "bare hook": Webhook(),
        "after": OnRunEnd('{"kind":"webhook"', status=["failed"]),
        "file": OnFile('/in/{"kind":"sql"'),
        "query": OnSql(connection="db", query="SELECT 1"),
    }.items():
        await store.add_schedule(a_schedule(name=name, trigger=trigger, next_slot=None))
    gone = await store.add_schedule(a_schedule(name="gone", trigger=Webhook(), next_slot=None))
    await store.change_schedule(gone.id, lambda each, now: delete_schedule(each, now, "me"))
    assert await listed(store, triggers=("webhook",)) == ["hook", "bare hook"]
    assert await listed(store, triggers=("file", "sql")) == ["file", "query"]
    assert await listed(store, triggers=("run_end",), enabled=True) == ["after"]
    assert await listed(store, triggers=("webhook",), owner=BOB) == []
    assert await listed(store, triggers=("hook",)) == []
    assert len(await listed(store, triggers=())) == 6
    page = await store.list_schedules(ScheduleQuery(triggers=("webhook",), limit=1))
    rest = await store.list_schedules(
        ScheduleQuery(triggers=("webhook",), limit=1, after=page.next)
    )
    assert [each.name for each in (*page.items, *rest.items)] == ["hook", "bare hook"]


async def test_schedules_are_filtered_by_last_status(store: Store) -> None:
    for status in (RunStatus.FAILED, RunStatus.SUCCEEDED, RunStatus.TIMEOUT, None):
        await store.add_schedule(a_schedule(name=str(status), last_status=status))
    await store.add_schedule(a_schedule(name="paused", enabled=False, last_status=RunStatus.FAILED))
    failed, timeout = RunStatus.FAILED, RunStatus.TIMEOUT
    assert await listed(store, last_statuses=(failed,)) == ["failed", "paused"]
    assert await listed(store, last_statuses=(failed, timeout)) == ["failed", "timeout", "paused"]
    assert await listed(store, last_statuses=(failed,), enabled=True) == ["failed"]
    assert await listed(store, last_statuses=(RunStatus.SKIPPED,)) == []


async def test_owner_filter_matches_type_and_id(store: Store) -> None:
    await store.add_schedule(a_schedule(owner=ALICE))
    assert await listed(store, owner=replace(ALICE, type=OwnerType.CHAT)) == []


async def test_text_filter_is_literal_and_case_sensitive(store: Store) -> None:
    names = ["100% done", "100 done", "a_b", "axb", "Report", "report", "back\\slash", "it's", "水"]
    for name in names:
        await store.add_schedule(a_schedule(name=name))
    assert await listed(store, text="%") == ["100% done"]
    assert await listed(store, text="_") == ["a_b"]
    assert await listed(store, text="0%") == ["100% done"]
    assert await listed(store, text="epor") == ["Report", "report"]
    assert await listed(store, text="Rep") == ["Report"]
    assert await listed(store, text="\\") == ["back\\slash"]
    assert await listed(store, text="'") == ["it's"]
    assert await listed(store, text="水") == ["水"]
    assert await listed(store, text="' OR 1=1 --") == []
    assert await listed(store, text="") == names


async def test_name_filter_is_exact_and_case_sensitive(store: Store) -> None:
    for name in ("Job", "job", "job "):
        await store.add_schedule(a_schedule(name=name))
    assert await listed(store, name="job") == ["job"]
    assert await listed(store, name="JOB") == []


async def test_label_filter_is_literal(store: Store) -> None:
    for label in ("a.b", "a%b", 'a"b', "axb", "A.B", "team.a"):
        await store.add_schedule(a_schedule(name=label, labels={label: "x"}))
    assert await listed(store, label="a.b") == ["a.b"]
    assert await listed(store, label="a%b") == ["a%b"]
    assert await listed(store, label='a"b') == ['a"b']
    assert await listed(store, label="team") == []


async def test_schedules_are_filtered_by_target_fields(store: Store) -> None:
    odd = 'kn"\\水'
    for name, network, branch, params in (
        ("one", "kn1", "main", {}),
        ("two", "kn1", "dev", {"kn_id": "kn2"}),
        ("three", "kn2", "main", {}),
        ("odd", odd, "main", {}),
    ):
        target = ActionTarget(action_type_id="at", kn_id=network, branch=branch, params=params)
        await store.add_schedule(a_schedule(name=name, target=target))
    await store.add_schedule(a_schedule(name="http"))

    async def found(**fields: str) -> list[str]:
        return await listed(store, kind="action", target=tuple(fields.items()))

    assert await found() == ["one", "two", "three", "odd"]
    assert await found(kn_id="kn1") == ["one", "two"]
    assert await found(kn_id="kn1", branch="main") == ["one"]
    assert await found(kn_id="kn2") == ["three"]
    assert await found(kn_id="KN1") == []
    assert await found(kn_id="kn") == []
    assert await found(kn_id=odd) == ["odd"]
    assert await found(action_type_id="at", branch="dev") == ["two"]


@pytest.fixture
async def store_with_due(store: Store) -> Store:
    """Schedules due in one, two and three minutes, and one that is never due."""
    for name, minutes in (("a", 3), ("b", 1), ("c", 2), ("d", None)):
        due = None if minutes is None else NOW + minutes * MINUTE
        await store.add_schedule(a_schedule(name=name, next_slot=due, next_run_at=due))
    return store


@each_row("sort", ScheduleSort)
async def test_schedules_are_filtered_by_due_time(
    store_with_due: Store, sort: ScheduleSort
) -> None:
    async def found(moment: datetime, **query: Any) -> list[str]:
        names = await listed(store_with_due, due_by=moment, sort=sort, **query)
        return names if sort is ScheduleSort.NEXT_RUN_AT else sorted(names)

    assert await found(NOW + 2 * MINUTE) == ["b", "c"]
    assert await found(NOW + MINUTE) == ["b"]
    assert await found(NOW + MINUTE - timedelta(microseconds=1)) == []
    assert set(await found(NOW + HOUR)) == {"a", "b", "c"}
    backwards = await listed(store_with_due, due_by=NOW + 2 * MINUTE, sort=sort, descending=True)
    assert sorted(backwards) == ["b", "c"]


async def test_deleted_schedules_are_not_listed(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())
    await store.change_schedule(schedule.id, lambda s, now: delete_schedule(s, now, "me"))
    assert await listed(store) == []
    assert await listed(store, enabled=False) == []


def _sort_value(sort: ScheduleSort) -> Callable[[Schedule], Any]:
    return lambda schedule: getattr(schedule, sort.value)


def _in_order(rows: list[Any], value: Callable[[Any], Any], descending: bool) -> list[str]:
    """Reference sort: rows without a value last, ties broken by id."""
    having = [row for row in rows if value(row) is not None]
    having.sort(key=lambda row: (value(row), row.id), reverse=descending)
    without = [row for row in rows if value(row) is None]
    without.sort(key=lambda row: row.id, reverse=descending)
    return [row.id for row in having + without]


def _mixed_schedules() -> list[Schedule]:
    """Ties, rows without a value, mixed case and several scripts, in random order."""
    names = ["b", "B", "a", "a", "é", "z", "水", "น้ำ", "_", "\U0001f514"]
    offsets = [3, 1, 1, 2, 0, 5, 4, 4, 2, 3]
    return [
        a_schedule(
            id=ScheduleId(f"id-{(number * 7) % 10}"),
            name=name,
            created_at=NOW + offset * SECOND,
            updated_at=NOW + (offset * 3 % 5) * MINUTE,
            next_slot=None if offset == 3 else NOW - offset * SECOND,
            next_run_at=None if offset in (1, 3) else NOW - offset * SECOND,
        )
        for number, (name, offset) in enumerate(zip(names, offsets, strict=True))
    ]


@pytest.fixture
async def mixed_schedules(store: Store) -> list[Schedule]:
    rows = _mixed_schedules()
    for row in rows:
        await store.add_schedule(row)
    return rows


@each_row("sort", ScheduleSort)
async def test_schedules_are_paged_in_every_order(
    store: Store, mixed_schedules: list[Schedule], sort: ScheduleSort
) -> None:
    rows = mixed_schedules
    for limit, descending in product((1, 3, 9, 10, 11), (False, True)):
        query = ScheduleQuery(sort=sort, descending=descending, limit=limit)
        seen: list[str] = []
        while True:
            page = await store.list_schedules(query)
            seen.extend(row.id for row in page.items)
            assert len(page.items) <= limit
            if page.next is None:
                break
            query = replace(query, after=page.next)
        assert seen == _in_order(rows, _sort_value(sort), descending)
        assert await store.count_schedules(query) == len(rows)


async def test_full_last_page_has_no_next_cursor(store: Store) -> None:
    for _ in range(4):
        await store.add_schedule(a_schedule())
    page = await store.list_schedules(ScheduleQuery(limit=2))
    last = await store.list_schedules(ScheduleQuery(limit=2, after=page.next))
    assert (len(last.items), last.next) == (2, None)


@pytest.mark.parametrize("descending", [False, True])
async def test_pages_are_stable_under_inserts_and_deletes(store: Store, descending: bool) -> None:
    rows = [
        await store.add_schedule(a_schedule(name=f"{number:02d}")) for number in range(0, 20, 2)
    ]
    query = ScheduleQuery(sort=ScheduleSort.NAME, descending=descending, limit=3)
    seen: list[str] = []
    for number in range(1, 20, 2):
        page = await store.list_schedules(query)
        seen.extend(row.name for row in page.items)
        await store.add_schedule(a_schedule(name=f"{number:02d}"))
        # The last row of the page is deleted: the cursor is a position, not a row.
        await store.change_schedule(page.items[-1].id, lambda s, now: delete_schedule(s, now, "me"))
        if page.next is None:
            break
        query = replace(query, after=page.next)
    assert len(seen) == len(set(seen))
    assert {row.name for row in rows} <= set(seen)


async def run_ids(store: Store, **query: Any) -> set[str]:
    page = await store.list_runs(RunQuery(**({"limit": None} | query)))
    return {run.id for run in page.items}


async def test_runs_are_filtered(store: Store) -> None:
    schedule = await store.add_schedule(a_schedule())

    def row(run_id: str, **given: Any) -> Run:
        return a_run(id=RunId(run_id), **given)

    await store.add_runs(
        [
            row("alice", owner=ALICE),
            row("ksana", namespace="ksana"),
            row("of schedule", schedule_id=schedule.id),
            row("failed", status=RunStatus.FAILED, finished_at=NOW),
            row("missed", status=RunStatus.MISSED, finished_at=NOW, origin=Origin.SCHEDULE),
            row("early", planned_at=NOW - MINUTE),
            row("late", planned_at=NOW + MINUTE),
        ]
    )
    assert await run_ids(store, owner=ALICE) == {"alice"}
    assert await run_ids(store, namespace="ksana") == {"ksana"}
    assert await run_ids(store, schedule_id=schedule.id) == {"of schedule"}
    assert await run_ids(store, statuses=(RunStatus.FAILED,)) == {"failed"}
    both = (RunStatus.FAILED, RunStatus.MISSED)
    assert await run_ids(store, statuses=both) == {"failed", "missed"}
    assert await run_ids(store, origin=Origin.SCHEDULE) == {"missed"}
    assert await run_ids(store, since=NOW + MINUTE) == {"late"}
    assert await run_ids(store, until=NOW) == {"early"}
    assert await run_ids(store, since=NOW - MINUTE, until=NOW) == {"early"}
    assert len(await run_ids(store)) == 7


async def test_runs_are_filtered_by_status(store: Store, clock: SettableClock) -> None:
    """Alone and together, of active and of ended runs."""
    schedule = await store.add_schedule(a_schedule())
    await store.join(a_node(), HOUR)
    await store.add_runs([a_run(id=RunId("retried")), a_run(schedule, id=RunId("running"))])
    retried, _ = await store.claim(claim_request())
    assert retried.id == "retried"
    await store.finish([a_retry(retried, clock.now(), HOUR)])
    ended = {
        RunId(status.value): status
        for status in RunStatus
        if status not in (RunStatus.QUEUED, RunStatus.RUNNING)
    }
    await store.add_runs([a_run(id=RunId(name)) for name in ("queued", "other")])
    await store.add_runs(
        [a_run(schedule, id=name, status=each, finished_at=NOW) for name, each in ended.items()]
    )
    expected: dict[RunStatus, set[str]] = {each: {each.value} for each in RunStatus}
    expected[RunStatus.QUEUED] = {"queued", "other", "retried"}
    for number in (1, 2, 3, len(RunStatus)):
        for statuses in combinations(RunStatus, number):
            wanted = set().union(*(expected[each] for each in statuses))
            assert await run_ids(store, statuses=statuses) == wanted, statuses
            found = await run_ids(store, statuses=statuses, schedule_id=schedule.id)
            assert found == wanted - expected[RunStatus.QUEUED], statuses


async def test_runs_are_filtered_by_node_key_and_requirement(
    store: Store, clock: SettableClock
) -> None:
    schedule = await store.add_schedule(a_schedule())
    for node in ("node-1", "node-2"):
        await store.join(a_node(node), HOUR)
    own = f"schedule:{schedule.id}"
    await store.add_runs([a_run(schedule, id=RunId("own"), concurrency_key=own)])
    (run,) = await store.claim(claim_request("node-1"))
    await store.add_runs([a_run(id=RunId("shared"), concurrency_key="shared")])
    await store.claim(claim_request("node-2"))
    await store.add_runs([a_run(schedule, id=RunId("free")), a_sync_run(id=RunId("sync"))])
    assert await run_ids(store, holder=NodeId("node-1")) == {"own"}
    assert await run_ids(store, holder=NodeId("node-2")) == {"shared"}
    assert await run_ids(store, holder=NodeId("node-3")) == set()
    assert await run_ids(store, concurrency_key=own) == {"own"}
    assert await run_ids(store, concurrency_key="shared") == {"shared"}
    assert await run_ids(store, concurrency_key="schedule:unknown") == set()
    assert await run_ids(store, requirement=SYNC.requirement) == {"sync"}
    assert await run_ids(store, requirement=SYNC.requirement, concurrency_key=SYNC.key) == {"sync"}
    assert await run_ids(store, requirement=TARGET.requirement) == {"own", "shared", "free"}
    assert await run_ids(store, schedule_id=ScheduleId("unknown")) == set()
    await store.finish([a_completion(run, clock.now())])
    assert await run_ids(store, holder=NodeId("node-1")) == set()
    assert await run_ids(store, concurrency_key=own) == {"own"}


@pytest.mark.parametrize("sort", RunSort)
async def test_runs_are_paged_in_every_order(store: Store, sort: RunSort) -> None:
    rows = [
        a_run(
            id=RunId(f"r{(number * 5) % 8}"),
            created_at=NOW + (number % 3) * SECOND,
            planned_at=NOW + (number * 3 % 4) * MINUTE,
        )
        for number in range(8)
    ]
    await store.add_runs(rows)
    by_id = {row.id: row for row in rows}
    for limit, descending in product((1, 3, 100), (False, True)):
        query = RunQuery(sort=sort, descending=descending, limit=limit)
        seen: list[Run] = []
        while True:
            page = await store.list_runs(query)
            seen.extend(page.items)
            if page.next is None:
                break
            query = replace(query, after=page.next)
        expected = _in_order(rows, lambda row: getattr(row, sort.value), descending)
        assert seen == [by_id[RunId(run_id)] for run_id in expected]


async def test_pages_of_runs_are_stable_under_inserts(store: Store) -> None:
    first = [a_run(created_at=NOW + number * SECOND) for number in range(6)]
    await store.add_runs(first)
    query = RunQuery(limit=4)
    page = await store.list_runs(query)
    await store.add_runs([a_run(created_at=NOW + MINUTE) for _ in range(3)])
    rest = await store.list_runs(replace(query, after=page.next))
    assert [run.id for run in page.items + rest.items] == [run.id for run in reversed(first)]
