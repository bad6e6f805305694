"""Statistics are the same on every store, before and after rollups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from chimes.errors import InvalidInput
from chimes.i18n import Message, in_language
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.insights import (
    ALL_RUNS,
    MAX_PLANNING_LEAD,
    MAX_RESULTS_PER_SCHEDULE,
    MAX_SCHEDULES,
    QUARTER,
    LagBucket,
    LagHistogram,
    RunFilter,
    ScheduleCounts,
    StatusCounts,
    Window,
    bracket_of,
    quarter_start,
    result_of,
)
from chimes.model.listing import ScheduleQuery
from chimes.model.policy import Policy
from chimes.model.run import AttemptEnd, Origin, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    BOB,
    FLOW,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    a_completion,
    a_retry,
    a_run,
    a_schedule,
    claim_request,
)
from tests.ended_runs import ended
from tests.store_contract.scenes import joined, running_run, running_slot
from tests.store_contract.stores import Home

DAY = timedelta(days=1)
SINCE = quarter_start(NOW) - HOUR
WINDOW = Window(since=SINCE, until=SINCE + HOUR)
OK, FAILED, TIMEOUT = RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.TIMEOUT
MISSED, SKIPPED, CANCELED = RunStatus.MISSED, RunStatus.SKIPPED, RunStatus.CANCELED


@pytest.fixture(autouse=True)
def small_count_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that count a window in batches need several batches even for few runs."""
    monkeypatch.setattr("chimes.store.redis.insights.AT_ONCE", 3)


async def roll_up_all(store: Store, clock: SettableClock) -> None:
    """Rolls up all ended runs, on stores with rollups."""
    clock.advance(3600)
    while await store.roll_up(limit=2):
        pass


# --- windows ------------------------------------------------------------------------------------
async def test_insights_of_an_empty_store(store: Store) -> None:
    assert await store.schedule_counts(ScheduleQuery()) == ScheduleCounts()
    assert await store.count_runs(WINDOW) == (StatusCounts(at=SINCE),)
    assert await store.run_lags(WINDOW) == (LagBucket(at=SINCE),)
    assert await store.run_lags(WINDOW, by_node=True) == ()
    assert await store.newest_results([ScheduleId("nobody")], each=30) == {}
    assert await store.newest_results([], each=30) == {}
    assert await store.running_now(limit=5) == ()
    assert await store.roll_up(limit=10) == 0


async def test_runs_are_counted_by_status_and_bucket(store: Store, clock: SettableClock) -> None:
    quarter = SINCE + QUARTER
    await store.load(
        [
            ended(SINCE),
            ended(quarter - timedelta(microseconds=1)),
            ended(quarter, FAILED),
            ended(quarter, TIMEOUT),
            ended(quarter + MINUTE, MISSED),
            a_run(planned_at=quarter),
            a_run(planned_at=quarter, blocked=True),
            ended(SINCE - timedelta(microseconds=1)),
            ended(WINDOW.until),
        ]
    )
    buckets = (
        StatusCounts(at=SINCE, statuses={OK: 2}),
        StatusCounts(at=quarter, statuses={FAILED: 1, TIMEOUT: 1, MISSED: 1, RunStatus.QUEUED: 2}),
        StatusCounts(at=quarter + QUARTER),
        StatusCounts(at=quarter + 2 * QUARTER),
    )
    (tally,) = await store.count_runs(WINDOW)
    assert await store.count_runs(WINDOW, step=QUARTER) == buckets
    assert tally.statuses == {OK: 2, FAILED: 1, TIMEOUT: 1, MISSED: 1, RunStatus.QUEUED: 2}
    assert (tally.total, tally.bad, tally.success_rate) == (7, 2, 0.4)
    await roll_up_all(store, clock)
    assert await store.count_runs(WINDOW, step=QUARTER) == buckets
    assert await store.count_runs(WINDOW) == (tally,)


async def test_the_last_bucket_may_be_shorter(store: Store, clock: SettableClock) -> None:
    await store.load([ended(SINCE + n * QUARTER) for n in range(5)])
    step = 3 * QUARTER
    expected = (
        StatusCounts(at=SINCE, statuses={OK: 3}),
        StatusCounts(at=SINCE + step, statuses={OK: 1}),
    )
    assert await store.count_runs(WINDOW, step=step) == expected
    await roll_up_all(store, clock)
    assert await store.count_runs(WINDOW, step=step) == expected


async def test_run_counts_are_filtered(store: Store, clock: SettableClock) -> None:
    mine = a_schedule(owner=ALICE)
    await store.load(
        [
            mine,
            ended(SINCE, schedule=mine, owner=ALICE),
            ended(SINCE, FAILED, schedule=mine, slot=None, owner=ALICE, origin=Origin.BACKFILL),
            ended(SINCE, owner=BOB, namespace="ksana"),
            ended(SINCE, owner=BOB, target=FLOW),
            a_run(owner=BOB, planned_at=SINCE),
        ]
    )

    async def found(**given: Any) -> dict[RunStatus, int]:
        (tally,) = await store.count_runs(WINDOW, RunFilter(**given))
        return dict(tally.statuses)

    for _ in range(2):
        assert await found() == {OK: 3, FAILED: 1, RunStatus.QUEUED: 1}
        assert await found(owner=ALICE) == {OK: 1, FAILED: 1}
        assert await found(owner=BOB) == {OK: 2, RunStatus.QUEUED: 1}
        assert await found(schedule_id=mine.id) == {OK: 1, FAILED: 1}
        assert await found(schedule_id=mine.id, owner=BOB) == {}
        assert await found(schedule_id=mine.id, origin=Origin.BACKFILL) == {FAILED: 1}
        assert await found(namespace="ksana") == {OK: 1}
        assert await found(kind="flow") == {OK: 1}
        assert await found(origin=Origin.SCHEDULE) == {OK: 3}
        assert await found(origin=Origin.SCHEDULE, kind="http", owner=BOB) == {OK: 1}
        await roll_up_all(store, clock)


async def test_runs_under_former_names_of_the_default_namespace_are_counted(
    store: Store, clock: SettableClock
) -> None:
    names = ("default", "native", "catbird")
    await store.load([ended(SINCE, namespace=each) for each in (*names, "ksana")])
    for _ in range(2):
        for name, expected in (*((each, 3) for each in names), ("ksana", 1)):
            (tally,) = await store.count_runs(WINDOW, RunFilter(namespace=name))
            assert dict(tally.statuses) == {OK: expected}, name
        await roll_up_all(store, clock)


async def test_counts_of_one_schedule_ignore_runs_created_long_before(store: Store) -> None:
    schedule, edge = a_schedule(), SINCE - MAX_PLANNING_LEAD
    await store.load(
        [
            schedule,
            ended(SINCE, schedule=schedule, created_at=edge),
            ended(SINCE + MINUTE, schedule=schedule, created_at=edge - timedelta(microseconds=1)),
        ]
    )
    (tally,) = await store.count_runs(WINDOW, RunFilter(schedule_id=schedule.id))
    assert tally.statuses == {OK: 1}
    (every,) = await store.count_runs(WINDOW)
    assert every.statuses == {OK: 2}


async def test_invalid_windows_and_steps_are_rejected(store: Store) -> None:
    for since, until in ((SINCE + MINUTE, SINCE + HOUR), (SINCE, SINCE + MINUTE), (SINCE, SINCE)):
        with pytest.raises(InvalidInput):
            Window(since=since, until=until)
    for step in (MINUTE, timedelta(0), -QUARTER, QUARTER + SECOND):
        with pytest.raises(InvalidInput):
            await store.count_runs(WINDOW, step=step)
        with pytest.raises(InvalidInput):
            await store.run_lags(WINDOW, step=step)
    with pytest.raises(InvalidInput):
        await store.run_lags(WINDOW, ALICE, by_node=True)
    long = Window(since=SINCE - 365 * DAY, until=SINCE)
    with pytest.raises(InvalidInput):
        await store.count_runs(long, step=QUARTER)
    assert len(await store.count_runs(long, step=DAY)) == 365


# --- rollups ------------------------------------------------------------------------------------
async def test_run_is_counted_once_before_and_after_rollup(
    store: Store, clock: SettableClock
) -> None:
    """Queued, running, ended, rolled up, pruned: the count is right in every state."""
    window = Window.last(HOUR, NOW)

    async def found() -> dict[RunStatus, int]:
        (tally,) = await store.count_runs(window)
        return dict(tally.statuses)

    run = await running_run(store)
    assert await found() == {RunStatus.RUNNING: 1}
    await store.finish([a_completion(run, clock.now())])
    assert await found() == {OK: 1}
    assert await store.roll_up(limit=10) == 0
    await roll_up_all(store, clock)
    assert await found() == {OK: 1}
    assert await store.prune_runs(before=clock.now() + DAY, limit=10) == 1
    assert await found() == {}
    await roll_up_all(store, clock)
    assert await found() == {}


async def test_run_that_is_active_for_hours_is_counted_once(
    store: Store, clock: SettableClock
) -> None:
    """Rollups pass it while it waits and while it runs; some are pruned before the rollups have
    counted their end."""
    window = Window.last(HOUR, NOW)
    quick = await running_run(store, a_run(owner=ALICE))
    await store.finish([a_completion(quick, clock.now())])
    await joined(store, lease=DAY)
    await store.add_runs([a_run(owner=ALICE, id=RunId(f"slow {n}")) for n in range(3)])

    async def check(**expected: int) -> None:
        statuses = {RunStatus(name): number for name, number in expected.items()}
        (tally,) = await store.count_runs(window)
        assert tally.statuses == statuses
        assert await store.count_runs(window, RunFilter(owner=ALICE)) == (tally,)
        assert await store.count_runs(window, RunFilter(owner=BOB)) == (StatusCounts(at=tally.at),)
        assert (await store.counts()).runs == statuses

    for _ in range(2):
        await check(queued=3, succeeded=1)
        await roll_up_all(store, clock)
    first, second = await store.claim(claim_request(free=2))
    for _ in range(2):
        await check(queued=1, running=2, succeeded=1)
        await roll_up_all(store, clock)
    await store.finish([a_completion(first, clock.advance(1))])
    await check(queued=1, running=1, succeeded=2)
    assert await store.forget_runs([first.id]) == 1
    await check(queued=1, running=1, succeeded=1)
    await store.finish([a_completion(second, clock.advance(60), AttemptEnd.FAILED)])
    for _ in range(2):
        await check(queued=1, failed=1, succeeded=1)
        await roll_up_all(store, clock)
    assert await store.prune_runs(before=clock.now(), limit=10) == 2
    await check(queued=1)


async def test_active_run_that_is_inserted_late_is_counted(
    store: Store, clock: SettableClock
) -> None:
    """A client repeats its request for minutes, until the store is available again."""
    await store.load([ended(SINCE)])
    await roll_up_all(store, clock)
    run = await running_run(store, a_run(created_at=NOW - HOUR, planned_at=SINCE))
    other = a_run(created_at=NOW - HOUR, planned_at=SINCE, concurrency_key="only one")
    await store.add_unless_active(other)

    async def found() -> dict[RunStatus, int]:
        (tally,) = await store.count_runs(WINDOW)
        return dict(tally.statuses)

    assert await found() == {OK: 1, RunStatus.RUNNING: 1, RunStatus.QUEUED: 1}
    await store.finish([a_completion(run, clock.now())])
    for _ in range(2):
        assert await found() == {OK: 2, RunStatus.QUEUED: 1}
        await roll_up_all(store, clock)


async def test_runs_imported_after_the_rollup_are_counted(
    store: Store, clock: SettableClock
) -> None:
    """Ended runs older than the rolled-up ones come from an import or a restored backup."""
    await store.load([ended(SINCE + HOUR - MINUTE, lag=SECOND)])
    await roll_up_all(store, clock)
    old = ended(SINCE, FAILED, lag=MINUTE)
    again = ended(SINCE, MISSED)
    assert await store.load([old]) == 1
    assert await store.load([old]) == 0
    await store.add_runs([again])
    expected = (StatusCounts(at=SINCE, statuses={OK: 1, FAILED: 1, MISSED: 1}),)
    lags = LagHistogram({bracket_of(SECOND): 1, bracket_of(MINUTE): 1})
    assert await store.count_runs(WINDOW) == expected
    assert await store.run_lags(WINDOW) == (LagBucket(at=SINCE, lags=lags),)
    await roll_up_all(store, clock)
    assert await store.count_runs(WINDOW) == expected
    assert await store.run_lags(WINDOW) == (LagBucket(at=SINCE, lags=lags),)


async def test_pruned_runs_are_not_counted(store: Store, clock: SettableClock) -> None:
    runs = [ended(SINCE + n * MINUTE, (OK, FAILED)[n % 2], lag=n * SECOND) for n in range(20)]
    await store.load(runs)
    await roll_up_all(store, clock)
    assert await store.prune_runs(before=SINCE + 10 * MINUTE, limit=100) == 10
    (tally,) = await store.count_runs(WINDOW)
    assert tally.statuses == {OK: 5, FAILED: 5}
    assert await store.count_runs(WINDOW, RunFilter(owner=runs[0].owner)) == (tally,)
    (bucket,) = await store.run_lags(WINDOW)
    assert bucket.lags.total == 10
    left = [bracket_of(n * SECOND) for n in range(10, 20)]
    assert bucket.lags == LagHistogram({each: left.count(each) for each in left})


async def test_concurrent_rollups_and_counts_are_consistent(
    shared_home: Home, clock: SettableClock
) -> None:
    """Two nodes roll up while a page counts: every run counts once."""
    first, second, page = [await shared_home.open() for _ in range(3)]
    await first.load([ended(SINCE + n * SECOND, lag=n * SECOND) for n in range(90)])
    clock.advance(3600)
    rolled: list[int] = []
    seen: set[int] = set()
    while True:
        *counts, (tally,), (bucket,) = await asyncio.gather(
            first.roll_up(limit=4),
            second.roll_up(limit=4),
            page.count_runs(WINDOW),
            page.run_lags(WINDOW),
        )
        seen |= {tally.total, bucket.lags.total}
        if not any(counts):
            break
        rolled.extend(counts)
    assert seen == {90}
    assert sum(rolled) in (0, 90)
    assert tally == StatusCounts(at=SINCE, statuses={OK: 90})


async def test_run_that_ends_before_the_rollup_mark_is_counted(
    store: Store, clock: SettableClock
) -> None:
    """The clock was set back, so the run ends before runs that are rolled up."""
    await store.load([ended(SINCE)])
    await roll_up_all(store, clock)
    clock.set(NOW - 2 * HOUR)
    await store.add_runs([a_run(planned_at=SINCE, available_at=NOW - 3 * HOUR)])
    await joined(store)
    (run,) = await store.claim(claim_request())
    await store.finish([a_completion(run, clock.now())])
    clock.advance(120)
    while await store.roll_up(limit=1):
        pass
    clock.set(NOW)
    assert await store.count_runs(WINDOW) == (StatusCounts(at=SINCE, statuses={OK: 2}),)


# --- lags ---------------------------------------------------------------------------------------
async def test_lags_cover_started_slots_only(store: Store, clock: SettableClock) -> None:
    quarter = SINCE + QUARTER
    await store.load(
        [
            ended(SINCE, lag=SECOND, owner=ALICE),
            ended(SINCE, FAILED, lag=MINUTE, node="node-2"),
            ended(quarter, lag=timedelta(microseconds=999)),
            ended(quarter, lag=-SECOND, took=MINUTE),
            ended(quarter, MISSED),
            ended(SINCE, lag=HOUR, origin=Origin.MANUAL),
            ended(SINCE, lag=DAY, origin=Origin.BACKFILL),
        ]
    )
    second, minute = bracket_of(SECOND), bracket_of(MINUTE)
    (whole,) = await store.run_lags(WINDOW)
    for _ in range(2):
        assert whole == LagBucket(at=SINCE, lags=LagHistogram({second: 1, minute: 1, 0: 2}))
        assert await store.run_lags(WINDOW, ALICE) == (
            LagBucket(at=SINCE, lags=LagHistogram({second: 1})),
        )
        assert await store.run_lags(WINDOW, BOB) == (LagBucket(at=SINCE),)
        assert await store.run_lags(WINDOW, step=QUARTER) == (
            LagBucket(at=SINCE, lags=LagHistogram({second: 1, minute: 1})),
            LagBucket(at=quarter, lags=LagHistogram({0: 2})),
            LagBucket(at=quarter + QUARTER),
            LagBucket(at=quarter + 2 * QUARTER),
        )
        assert await store.run_lags(WINDOW, step=QUARTER, by_node=True) == (
            LagBucket(at=SINCE, node=NodeId("node-1"), lags=LagHistogram({second: 1})),
            LagBucket(at=SINCE, node=NodeId("node-2"), lags=LagHistogram({minute: 1})),
            LagBucket(at=quarter, node=NodeId("node-1"), lags=LagHistogram({0: 2})),
        )
        await roll_up_all(store, clock)
        (whole,) = await store.run_lags(WINDOW)


async def test_lag_brackets_are_the_same_on_every_store(store: Store, clock: SettableClock) -> None:
    lags = [timedelta(0), *(timedelta(microseconds=round(900 * 1.21**n)) for n in range(115))]
    runs = [ended(SINCE, lag=lag) for lag in lags]
    await store.load(runs)
    expected: dict[int, int] = {}
    for lag in lags:
        expected[bracket_of(lag)] = expected.get(bracket_of(lag), 0) + 1
    (live,) = await store.run_lags(WINDOW)
    assert live.lags == LagHistogram(expected)
    clock.advance(60 * 86400)
    while await store.roll_up(limit=50):
        pass
    assert await store.run_lags(WINDOW) == (live,)


async def test_running_run_has_a_lag(store: Store, clock: SettableClock) -> None:
    clock.advance(5)
    _, run = await running_slot(store)
    window = Window.last(HOUR, clock.now())
    assert run.started_at is not None
    expected = LagHistogram({bracket_of(run.started_at - run.planned_at): 1})
    assert await store.run_lags(window, by_node=True) == (
        LagBucket(at=window.since, node=NodeId("node-1"), lags=expected),
    )
    await store.finish([a_completion(run, clock.now())])
    await roll_up_all(store, clock)
    assert await store.run_lags(window, by_node=True) == (
        LagBucket(at=window.since, node=NodeId("node-1"), lags=expected),
    )


async def test_retried_run_counts_for_the_node_that_started_it(
    store: Store, clock: SettableClock
) -> None:
    clock.advance(5)
    _, run = await running_slot(store, policy=Policy(max_retries=1))
    window = Window.last(HOUR, clock.now())

    async def check() -> None:
        (bucket,) = await store.run_lags(window, by_node=True)
        assert (bucket.node, bucket.lags.total) == ("node-1", 1)

    await check()
    await store.finish([a_retry(run, clock.advance(1), SECOND)])
    await check()
    clock.advance(60)
    await joined(store, "node-2")
    (again,) = await store.claim(claim_request("node-2"))
    assert again.id == run.id
    await check()
    await store.finish([a_completion(again, clock.advance(1))])
    await check()
    await roll_up_all(store, clock)
    await check()


# --- results ------------------------------------------------------------------------------------
async def test_newest_results_per_schedule(store: Store) -> None:
    first, second, idle = a_schedule(), a_schedule(), a_schedule()
    of_first = [ended(SINCE + n * MINUTE, schedule=first, owner=ALICE) for n in range(8)]
    waiting = a_run(first, created_at=SINCE + 4 * MINUTE, owner=ALICE)
    of_second = [ended(SINCE + n * MINUTE, FAILED, second, lag=SECOND) for n in range(2)]
    await store.load([first, second, idle, *of_first, waiting, *of_second, ended(SINCE)])

    def newest(runs: Sequence[Run], number: int) -> tuple[Any, ...]:
        ordered = sorted(runs, key=lambda run: (run.created_at, run.id), reverse=True)
        return tuple(result_of(run) for run in ordered[:number])

    ids = [first.id, second.id, idle.id, first.id, ScheduleId("")]
    assert await store.newest_results(ids, each=5) == {
        first.id: newest([*of_first, waiting], 5),
        second.id: newest(of_second, 5),
    }
    assert await store.newest_results([first.id], each=100) == {
        first.id: newest([*of_first, waiting], 100)
    }
    assert await store.newest_results(ids, each=1, owner=ALICE) == {first.id: newest(of_first, 1)}
    (result,) = (await store.newest_results([second.id], each=1))[second.id]
    assert (result.duration, result.lag) == (SECOND, SECOND)


async def test_newest_results_include_active_runs(store: Store, clock: SettableClock) -> None:
    schedule, run = await running_slot(store)
    waiting = a_run(schedule, created_at=NOW + SECOND)
    await store.add_runs([waiting])
    for _ in range(2):
        (queued, running) = (await store.newest_results([schedule.id], each=5))[schedule.id]
        assert (queued.status, queued.started_at) == (RunStatus.QUEUED, None)
        assert running == result_of(run)
        await roll_up_all(store, clock)


async def test_newest_results_reject_too_large_requests(store: Store) -> None:
    ids = [ScheduleId(f"s{n}") for n in range(MAX_SCHEDULES + 1)]
    for asked, each in ((ids, 1), (ids[:1], MAX_RESULTS_PER_SCHEDULE + 1), (ids[:100], 100)):
        with pytest.raises(InvalidInput):
            await store.newest_results(asked, each=each)
    assert await store.newest_results(ids[:-1], each=30) == {}


async def test_running_runs_are_listed_oldest_first(store: Store, clock: SettableClock) -> None:
    await joined(store)
    runs = []
    for owner in (ALICE, BOB, ALICE):
        await store.add_runs([a_run(owner=owner)])
        runs += await store.claim(claim_request())
        clock.advance(1)
    await store.add_runs([a_run()])
    assert await store.running_now(limit=5) == tuple(runs)
    assert await store.running_now(limit=2) == tuple(runs[:2])
    assert await store.running_now(BOB, limit=2) == (runs[1],)
    await store.finish([a_completion(runs[0], clock.now())])
    assert await store.running_now(limit=5) == tuple(runs[1:])


# --- errors -------------------------------------------------------------------------------------
async def test_equal_errors_are_grouped(store: Store) -> None:
    def failed(minute: int, error: str, **given: Any) -> Run:
        return ended(SINCE + minute * MINUTE, error=error, **({"status": FAILED} | given))

    refused = [failed(n, "connection refused") for n in (1, 5, 3)]
    thai = [failed(n, "น้ำ 水 %_'\"", status=TIMEOUT, owner=BOB) for n in (2, 4)]
    once = failed(9, "x" * 600)
    same = failed(10, "x" * 500 + "y")
    await store.load(
        [
            *refused,
            *thai,
            once,
            same,
            failed(-1, "connection refused"),
            failed(6, "connection refused", status=CANCELED),
            failed(7, "connection refused", created_at=SINCE - MAX_PLANNING_LEAD - SECOND),
            failed(8, "", status=OK),
        ]
    )
    found = await store.error_groups(WINDOW, limit=10)
    assert [(group.error, group.count) for group in found.groups] == [
        ("connection refused", 3),
        ("x" * 500, 2),
        ("น้ำ 水 %_'\"", 2),
    ]
    assert (found.failures, found.more) == (7, False)
    group = found.groups[0]
    assert (group.first, group.last) == (SINCE + MINUTE, SINCE + 5 * MINUTE)
    assert [group.example for group in found.groups] == [refused[1].id, same.id, thai[1].id]
    assert (await store.error_groups(WINDOW, limit=1)).groups == found.groups[:1]
    of_bob = await store.error_groups(WINDOW, RunFilter(owner=BOB), limit=10)
    assert of_bob.groups == found.groups[2:]
    assert await store.error_groups(WINDOW, ALL_RUNS, limit=3) == found


async def test_translatable_errors_are_grouped_by_their_text(store: Store) -> None:
    timeout = Message("timed out after {seconds:g} s", {"seconds": 5})
    long = Message("{where}: {problem}", {"where": "w" * 300, "problem": "p" * 300})
    await store.load(
        [
            ended(SINCE + n * MINUTE, FAILED, error=error)
            for n, error in enumerate((timeout, timeout, timeout, long, long))
        ]
    )
    found = await store.error_groups(WINDOW, limit=5)
    assert [(group.error, group.count) for group in found.groups] == [
        ("timed out after 5 s", 3),
        (f"{'w' * 300}: {'p' * 198}", 2),
    ]
    assert in_language(found.groups[0].error, "th") == in_language(timeout, "th") != timeout


async def test_error_groups_cover_the_newest_failures_only(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("selection", "sql.insights", "redis.insights"):
        monkeypatch.setattr(f"chimes.store.{module}.MAX_ERRORS", 3)
    runs = [ended(SINCE + n * MINUTE, FAILED, error=f"error {n % 2}") for n in range(5)]
    await store.load(runs[:3])
    found = await store.error_groups(WINDOW, limit=5)
    assert (found.failures, found.more) == (3, False)
    await store.load(runs[3:])
    found = await store.error_groups(WINDOW, limit=5)
    assert (found.failures, found.more) == (3, True)
    assert [(group.error, group.count) for group in found.groups] == [
        ("error 0", 2),
        ("error 1", 1),
    ]


# --- schedules ----------------------------------------------------------------------------------
async def test_schedules_are_counted_by_state(store: Store, clock: SettableClock) -> None:
    soon = a_schedule(owner=ALICE, next_run_at=NOW + HOUR, labels={"team": "a"})
    later = a_schedule(next_run_at=NOW + HOUR + timedelta(microseconds=1), last_run_at=NOW)
    overdue = a_schedule(owner=ALICE, next_run_at=NOW - DAY, last_status=OK, last_run_at=NOW)
    paused = a_schedule(enabled=False, last_status=FAILED, last_run_at=NOW)
    gone = a_schedule(deleted_at=NOW)
    failing = a_schedule(last_status=FAILED, last_run_at=NOW)
    skipped = a_schedule(last_status=SKIPPED, last_run_at=NOW)
    recovered = a_schedule(last_status=FAILED, last_run_at=NOW)
    await store.load([soon, later, overdue, paused, gone, failing, skipped, recovered])

    def past(schedule: Schedule, *statuses: RunStatus) -> list[Run]:
        """Ended runs with these statuses, the newest last."""
        return [ended(SINCE + n * MINUTE, each, schedule) for n, each in enumerate(statuses)]

    await store.load(
        [
            *past(paused, OK, FAILED, TIMEOUT),
            *past(failing, FAILED, FAILED, CANCELED, SKIPPED, *[MISSED] * 40),
            *past(skipped, FAILED, RunStatus.UNKNOWN, SKIPPED),
            *past(recovered, FAILED, OK, FAILED),
            *past(overdue, FAILED, FAILED),
            *past(gone, FAILED, FAILED),
            a_run(failing, created_at=NOW),
        ]
    )
    assert await store.schedule_counts(ScheduleQuery()) == ScheduleCounts(
        total=7, enabled=6, due_soon=5, failing=3
    )
    counts = await store.schedule_counts(ScheduleQuery(owner=ALICE, limit=1))
    assert counts == ScheduleCounts(total=2, enabled=2, due_soon=2)
    assert counts.paused == 0
    assert (await store.schedule_counts(ScheduleQuery(enabled=False))) == ScheduleCounts(
        total=1, failing=1
    )
    assert (await store.schedule_counts(ScheduleQuery(label="team"))).total == 1
    assert (await store.schedule_counts(ScheduleQuery(text=failing.name))).failing == 1


async def test_schedule_counts_as_failing_after_two_failures(store: Store) -> None:
    one = a_schedule(last_status=FAILED)
    other = a_schedule(last_status=FAILED)
    await store.load([one, other, ended(SINCE, FAILED, one), ended(SINCE, FAILED, other)])
    assert (await store.schedule_counts(ScheduleQuery())).failing == 0
    await store.load([ended(SINCE + MINUTE, FAILED, one, id=RunId("zz"))])
    assert (await store.schedule_counts(ScheduleQuery())).failing == 1
