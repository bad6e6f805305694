"""Statistics by owner, and the fire log."""

from __future__ import annotations

import pytest

from chimes.errors import NotAllowed, NotFound
from chimes.model.access import Actor
from chimes.model.ids import ScheduleId
from chimes.model.insights import QUARTER, IssueCause, RunFilter, Window
from chimes.model.listing import ScheduleQuery
from chimes.model.planning import plan
from chimes.model.run import Reason, RunStatus
from chimes.services.insights import InsightService
from chimes.services.manual_runs import ManualRuns
from chimes.services.schedules.history import Decision, FireLogEntry, FireLogFilter
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    BOB,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    a_node,
    a_run,
    a_schedule,
    an_entry,
    claim_request,
    due_schedule,
)
from tests.ended_runs import ended
from tests.services.conftest import ADMIN, MEMBER, OPERATOR, STRANGER, VIEWER

OF_ALICE, OF_BOB = ScheduleId("of-alice"), ScheduleId("of-bob")
WINDOW = Window.last(HOUR, NOW)
EVERYBODY = [ADMIN, OPERATOR]
ALICES = [MEMBER, VIEWER]
FAILED = RunStatus.FAILED


@pytest.fixture
def insights(store: MemoryStore) -> InsightService:
    return InsightService(store)


@pytest.fixture
async def two_owners(store: MemoryStore) -> None:
    """A failed, late run of Alice and an active run of Bob."""
    await store.join(a_node(), HOUR)
    alices = a_schedule(id=OF_ALICE, owner=ALICE, last_status=FAILED)
    bobs = a_schedule(id=OF_BOB, owner=BOB)
    late = {"lag": 2 * MINUTE, "owner": ALICE, "error": "no route"}
    good = ended(NOW - 9 * MINUTE, schedule=alices, owner=ALICE, took=3 * SECOND)
    bad = [ended(NOW - n * MINUTE, FAILED, alices, **late) for n in (5, 4)]
    await store.load([alices, bobs, good, *bad, ended(NOW - MINUTE, schedule=bobs, owner=BOB)])
    await store.add_runs([a_run(bobs, owner=BOB)])
    assert len(await store.claim(claim_request())) == 1


@pytest.mark.usefixtures("two_owners")
async def test_members_see_their_own_numbers(insights: InsightService) -> None:
    for actor in ALICES:
        assert (await insights.count_schedules(actor)).total == 1
        assert (await insights.count_schedules(actor, ScheduleQuery(owner=BOB))).total == 1
        assert (await insights.count_runs(actor, WINDOW)).total == 3
        assert (await insights.count_runs(actor, WINDOW, RunFilter(owner=BOB))).total == 3
        assert (await insights.count_runs(actor, WINDOW, RunFilter(schedule_id=OF_BOB))).total == 0
        buckets = await insights.count_runs_by_bucket(actor, WINDOW, QUARTER)
        assert sum(tally.total for tally in buckets) == 3
        assert (await insights.get_lag(actor, WINDOW)).total == 3
        series = await insights.list_lag(actor, WINDOW, QUARTER)
        assert sum(bucket.lags.total for bucket in series) == 3
        assert set(await insights.list_health(actor, [OF_ALICE, OF_BOB])) == {OF_ALICE}
        assert set(await insights.get_expected_durations(actor, [OF_ALICE, OF_BOB])) == {OF_ALICE}
        assert len(await insights.list_schedule_results(actor, OF_ALICE)) == 3
        assert await insights.list_schedule_results(actor, OF_BOB) == ()
        assert await insights.list_running(actor, limit=20) == ()
        assert [each.schedule.id for each in (await insights.list_attention(actor)).items] == [
            OF_ALICE
        ]
        assert (await insights.list_error_groups(actor, WINDOW)).failures == 2
        with pytest.raises(NotFound):
            await insights.list_fire_log(actor, OF_BOB)
        with pytest.raises(NotAllowed):
            await insights.list_lag(actor, WINDOW, QUARTER, by_node=True)
    assert (await insights.list_attention(STRANGER)).total == 0
    assert (await insights.list_error_groups(STRANGER, WINDOW)).failures == 0


@pytest.mark.usefixtures("two_owners")
async def test_operators_see_everything(insights: InsightService) -> None:
    for actor in EVERYBODY:
        assert (await insights.count_schedules(actor)).total == 2
        assert (await insights.count_schedules(actor, ScheduleQuery(owner=BOB))).total == 1
        assert (await insights.count_runs(actor, WINDOW)).total == 5
        assert (await insights.count_runs(actor, WINDOW, RunFilter(owner=BOB))).total == 2
        assert (await insights.get_lag(actor, WINDOW)).total == 4
        by_node = await insights.list_lag(actor, WINDOW, WINDOW.until - WINDOW.since, by_node=True)
        assert [(bucket.node, bucket.lags.total) for bucket in by_node] == [("node-1", 4)]
        assert set(await insights.list_health(actor, [OF_ALICE, OF_BOB])) == {OF_ALICE, OF_BOB}
        assert len((await insights.list_fire_log(actor, OF_BOB)).entries) == 2


@pytest.mark.usefixtures("two_owners")
async def test_health_has_results_median_and_streak(insights: InsightService) -> None:
    health = (await insights.list_health(MEMBER, [OF_ALICE]))[OF_ALICE]
    assert [result.status for result in health.results] == [FAILED, FAILED, RunStatus.SUCCEEDED]
    assert health.median == 3 * SECOND
    assert health.streak is not None
    assert (health.streak.good, health.streak.count, health.streak.open) == (False, 2, False)
    assert health.last_good == health.results[2]
    assert await insights.get_expected_durations(MEMBER, [OF_ALICE]) == {OF_ALICE: 3 * SECOND}


@pytest.mark.usefixtures("two_owners")
async def test_running_and_expected_durations(insights: InsightService, store: MemoryStore) -> None:
    (now,) = await insights.list_running(STRANGER, limit=20)
    assert now.schedule_id == OF_BOB
    assert (await insights.list_health(STRANGER, [OF_BOB]))[OF_BOB].median == SECOND
    await store.add_runs([a_run(), a_run(a_schedule())])
    assert len(await store.claim(claim_request())) == 2
    assert len(await insights.list_running(ADMIN, limit=20)) == 3
    assert len(await insights.list_running(ADMIN, limit=2)) == 2


@pytest.mark.usefixtures("two_owners")
async def test_attention_lists_the_failing_schedule(insights: InsightService) -> None:
    (item,) = (await insights.list_attention(MEMBER)).items
    assert item.sign.cause is IssueCause.FAILING
    assert (await insights.list_attention(ADMIN, limit=0)).total == 1


# --- the fire log -------------------------------------------------------------------------------
async def log_of(
    insights: InsightService, actor: Actor, schedule_id: ScheduleId, limit: int = 50
) -> list[FireLogEntry]:
    found: list[FireLogEntry] = []
    page = await insights.list_fire_log(actor, schedule_id, limit=limit)
    found += page.entries
    for _ in range(100):
        if page.next is None:
            break
        page = await insights.list_fire_log(actor, schedule_id, after=page.next, limit=limit)
        found += page.entries
    return found


async def test_fire_log_has_reasons(
    insights: InsightService,
    schedules: ScheduleService,
    manual_runs: ManualRuns,
    store: MemoryStore,
    clock: SettableClock,
) -> None:
    schedule = await store.add_schedule(due_schedule(owner=ALICE), an_entry(object_id="other"))
    await store.fire_due(plan, limit=5)
    clock.advance(60)
    await store.fire_due(plan, limit=5)
    clock.advance(1)
    await schedules.skip(MEMBER, schedule.id, reason="not today")
    clock.advance(1)
    await manual_runs.run_now(MEMBER, schedule.id)
    clock.advance(1)
    await schedules.move(MEMBER, schedule.id, clock.now() + 5 * SECOND)
    clock.advance(1)
    await schedules.pause(OPERATOR, schedule.id, note="holidays")
    clock.advance(3600)
    await schedules.resume(MEMBER, schedule.id)
    entries = await log_of(insights, MEMBER, schedule.id)
    found = [(entry.decision, entry.reason) for entry in entries]
    assert found == [
        (Decision.RESUMED, ""),
        (Decision.PAUSED, "holidays"),
        (Decision.MOVED, ""),
        (Decision.MANUAL, ""),
        (Decision.MANUAL, ""),
        (Decision.SKIPPED, Reason.SKIPPED_BY_HAND),
        (Decision.SKIPPED, "not today"),
        (Decision.SKIPPED, Reason.OVERLAP),
        (Decision.FIRED, ""),
    ]
    for limit in (1, 2, 3, 100):
        assert await log_of(insights, MEMBER, schedule.id, limit) == entries


async def test_fire_log_has_missed_slots(insights: InsightService, store: MemoryStore) -> None:
    schedule = a_schedule(owner=ALICE)
    missed = ended(
        NOW - HOUR, RunStatus.MISSED, schedule, owner=ALICE, missed_count=3, reason=Reason.MISFIRE
    )
    backfill = ended(NOW, schedule=schedule, owner=ALICE, origin="backfill", slot=None)
    await store.load([schedule, missed, backfill])
    assert await log_of(insights, VIEWER, schedule.id) == [
        FireLogEntry(at=NOW, decision=Decision.BACKFILL, run=backfill),
        FireLogEntry(at=NOW - HOUR, decision=Decision.MISSED, run=missed),
    ]


async def test_not_run_filter_finds_an_old_missed_slot(
    insights: InsightService, store: MemoryStore
) -> None:
    # "why not last night?", of a schedule that ran hundreds of times since.
    schedule = a_schedule(owner=ALICE)
    missed = ended(NOW - 9 * HOUR, RunStatus.MISSED, schedule, owner=ALICE, reason=Reason.MISFIRE)
    since = [ended(NOW - n * MINUTE, schedule=schedule, owner=ALICE) for n in range(60)]
    await store.load([schedule, missed, *since])
    for verb in ("skip", "update", "pause"):
        await store.append_audit(an_entry(object_id=schedule.id, verb=verb, at=NOW))
    page = await insights.list_fire_log(
        MEMBER, schedule.id, only=FireLogFilter(not_run=True), limit=20
    )
    assert page.next is None
    found = [entry.decision for entry in page.entries]
    assert sorted(found) == [Decision.MISSED, Decision.PAUSED, Decision.SKIPPED]


async def test_period_includes_decisions_still_in_effect(
    insights: InsightService, store: MemoryStore
) -> None:
    schedule = a_schedule(owner=ALICE)
    outage = ended(
        NOW - 30 * HOUR,
        RunStatus.MISSED,
        schedule,
        owner=ALICE,
        missed_count=20,
        missed_until=NOW - 10 * HOUR,
    )
    within, later = (ended(NOW - hours * HOUR, schedule=schedule, owner=ALICE) for hours in (12, 2))
    await store.load([schedule, outage, within, later])
    wanted = FireLogFilter(since=NOW - 24 * HOUR, until=NOW - 6 * HOUR)

    async def found() -> list[Decision]:
        page = await insights.list_fire_log(MEMBER, schedule.id, only=wanted)
        return [entry.decision for entry in page.entries]

    async def note(hours: int, verb: str, **given: object) -> None:
        at = NOW - hours * HOUR
        await store.append_audit(an_entry(object_id=schedule.id, verb=verb, at=at, **given))

    assert await found() == [Decision.FIRED, Decision.MISSED]
    await note(50, "pause")
    await note(45, "update", changes={"name": ["a", "b"]})
    assert await found() == [Decision.FIRED, Decision.MISSED, Decision.PAUSED]
    await note(40, "resume", allowed=False)
    assert await found() == [Decision.FIRED, Decision.MISSED, Decision.PAUSED]
    await note(35, "update", changes={"enabled": [False, True]})
    assert await found() == [Decision.FIRED, Decision.MISSED]
    await note(32, "update", changes={"enabled": [True, False]})
    assert await found() == [Decision.FIRED, Decision.MISSED, Decision.CHANGED]
    await note(3, "resume")
    assert await found() == [Decision.FIRED, Decision.MISSED, Decision.CHANGED]


async def test_addresses_are_for_operators_and_denials_are_left_out(
    insights: InsightService, store: MemoryStore
) -> None:
    schedule = await store.add_schedule(a_schedule(owner=ALICE))
    changed = an_entry(object_id=schedule.id, verb="update", owner=str(ALICE), address="10.0.0.9")
    await store.append_audit(changed)
    await store.append_audit(an_entry(object_id=schedule.id, owner=str(ALICE), allowed=False))
    await store.append_audit(an_entry(object_id=schedule.id, owner=str(BOB), verb="delete"))
    (mine,) = await log_of(insights, MEMBER, schedule.id)
    assert mine.decision is Decision.CHANGED
    assert mine.note is not None
    assert mine.note.address == ""
    seen = await log_of(insights, OPERATOR, schedule.id)
    assert [entry.note.address for entry in seen if entry.note] == ["127.0.0.1", "10.0.0.9"]


async def test_fire_log_of_an_unknown_schedule_is_not_found(insights: InsightService) -> None:
    with pytest.raises(NotFound):
        await insights.list_fire_log(ADMIN, ScheduleId("nobody"))
