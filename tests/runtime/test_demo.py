"""Demo schedules: loaded once, labeled, without side effects, completely removable."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from chimes.errors import NotAllowed
from chimes.i18n import in_language
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.insights import IssueCause, Window
from chimes.model.listing import AuditQuery, DeliveryQuery, InboxQuery, RunQuery, ScheduleQuery
from chimes.model.notification import plan_deliveries
from chimes.model.planning import manual_run
from chimes.model.run import Run, RunStatus
from chimes.model.schedule import Schedule, delete_schedule
from chimes.model.target import HttpTarget, TaskTarget
from chimes.runtime.serve import work
from chimes.services.demo import (
    EXAMPLES,
    LABEL,
    MADE_UP,
    PAST,
    TASK,
    DemoService,
    generate_history,
    message_ids,
)
from chimes.services.insights import InsightService
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import NOW, a_node, a_run, a_schedule, claim_request, with_definition
from tests.store_contract.stores import KINDS, Home, StoreKind

#: One store per way to load; MariaDB loads like the other SQL stores.
STORES = ("memory", "sqlite", "json", "postgresql", "redis")
ADMIN = Actor()
HTTP = HttpTarget(url="http://127.0.0.1:9/")
EVERY_RUN = RunQuery(limit=None)
EVERY_SCHEDULE = ScheduleQuery(limit=None)


def generated_histories() -> list[tuple[Schedule, tuple[Run, ...]]]:
    found = [generate_history(example, 1, NOW, live=True) for example in EXAMPLES]
    return [(story.schedule, story.runs) for story in found]


def test_the_examples_only_run_the_demo_task() -> None:
    for schedule, _ in generated_histories():
        if schedule.enabled:
            assert isinstance(schedule.target, TaskTarget)
            assert schedule.target.name == TASK
        else:
            assert schedule.pause_note
            assert schedule.next_run_at is None
        assert schedule.name.startswith("Demo: ")
        assert LABEL in schedule.labels
        assert not schedule.policy.delivery, "generated runs send no notifications"


def test_examples_without_a_capable_node_are_paused_with_a_note() -> None:
    for example in EXAMPLES:
        schedule = generate_history(example, 1, NOW, live=False).schedule
        assert not schedule.enabled
        assert in_language(schedule.pause_note, "th") != schedule.pause_note != ""


async def test_the_demo_task_only_waits() -> None:
    assert await work(0.0) == MADE_UP
    with pytest.raises(RuntimeError, match=MADE_UP):
        await work(0.0, fails=True)


def test_the_generated_history_has_every_status() -> None:
    runs = [run for _, runs in generated_histories() for run in runs]
    counts = Counter(run.status for run in runs)
    for status in (
        RunStatus.SUCCEEDED,
        RunStatus.FAILED,
        RunStatus.TIMEOUT,
        RunStatus.MISSED,
        RunStatus.SKIPPED,
    ):
        assert counts[status] > 0, status
    assert 1000 < len(runs) < 3000
    assert counts[RunStatus.SUCCEEDED] > 0.9 * len(runs)
    for run in runs:
        assert run.status.terminal
        assert run.finished_at is not None
        assert NOW - PAST <= run.planned_at < run.finished_at <= NOW
        assert run.started_at is None or run.planned_at < run.started_at < run.finished_at
        assert not plan_deliveries(run, None, NOW)


def test_the_generated_history_is_deterministic() -> None:
    later = [
        generate_history(example, 1, NOW + timedelta(minutes=1), live=True) for example in EXAMPLES
    ]
    before = {run.id: run for _, runs in generated_histories() for run in runs}
    same = [run.id for story in later for run in story.runs if run.id in before]
    assert len(same) > 1000


def test_schedule_statistics_match_the_generated_runs() -> None:
    for schedule, runs in generated_histories():
        if runs:
            assert schedule.last_status is runs[-1].status
            assert schedule.last_slot == runs[-1].slot
        if schedule.enabled:
            assert schedule.next_slot is not None
            assert schedule.next_slot > NOW


@pytest.mark.parametrize(
    "kind", [each for each in KINDS if each.name in STORES], ids=lambda kind: kind.name
)
async def test_demo_is_loaded_once_and_removed_completely(kind: StoreKind, tmp_path: Path) -> None:
    home = Home(kind, tmp_path, SettableClock())
    store = await home.open()
    try:
        mine = await store.add_schedule(a_schedule(labels={LABEL: None}))
        (own,) = await store.add_runs([a_run(mine, status=RunStatus.FAILED, finished_at=NOW)])
        demo = DemoService(store)
        assert not await demo.is_loaded(ADMIN)
        assert await demo.load(ADMIN, live=True) == len(EXAMPLES) == 10
        assert await demo.is_loaded(ADMIN)
        await assert_realistic(store)
        everything = len((await store.list_runs(EVERY_RUN)).items)
        assert await DemoService(store).load(ADMIN) == 0
        assert await store.count_schedules(EVERY_SCHEDULE) == 11
        assert len((await store.list_runs(EVERY_RUN)).items) == everything

        removed = await demo.remove(ADMIN)
        assert (removed.schedules, removed.runs) == (10, everything - 1)
        assert (await store.list_schedules(EVERY_SCHEDULE)).items == (mine,)
        assert (await store.list_runs(EVERY_RUN)).items == (own,)
        assert (await store.list_inbox(InboxQuery(archived=None))).items == ()
        total = await InsightService(store).count_runs(ADMIN, Window.last(PAST, NOW))
        assert total.total == 1
        assert await demo.remove(ADMIN) == type(removed)()
        verbs = [each.verb for each in await store.list_audit(AuditQuery())]
        assert [verb for verb in verbs if "demo" in verb] == ["remove_demo", "load_demo"]
        if not kind.durable:
            assert await demo.load(ADMIN) == 10, "loaded again under other ids"
            assert await store.count_schedules(EVERY_SCHEDULE) == 11
    finally:
        await home.close()


async def assert_realistic(store: Store) -> None:
    insights = InsightService(store)
    causes = {each.sign.cause for each in (await insights.list_attention(ADMIN)).items}
    assert {IssueCause.FAILING, IssueCause.MISSED} <= causes
    week = await insights.count_runs(ADMIN, Window.last(timedelta(days=7), NOW))
    assert week.total > 500
    assert 0.9 < (week.success_rate or 0) < 1
    assert (await insights.get_lag(ADMIN, Window.last(timedelta(days=1), NOW))).total > 50
    assert (await store.list_deliveries(DeliveryQuery())).items == ()
    (failing,) = [story for story in generated_histories() if "(fails)" in story[0].name]
    run = failing[1][-1]
    assert run.error
    lines = await store.read_logs(run.id)
    assert [each.level for each in lines] == ["info", "info", "warning", "error"]
    assert lines[-1].message.startswith("Traceback (most recent call last):\n")
    assert lines[-1].message.endswith(run.error)
    inbox = (await store.list_inbox(InboxQuery())).items
    assert [each.id for each in inbox if each.run_id == run.id] == [message_ids(1)[0]]
    assert {each.id for each in inbox} == set(message_ids(1))
    for item in inbox:
        assert item.title.startswith("Demo: ")
        assert MADE_UP in item.text
        assert NOW - PAST <= item.created_at <= NOW
    assert 0 < await store.count_unread(InboxQuery()) < len(inbox)


async def test_an_interrupted_load_is_resumed(tmp_path: Path) -> None:
    home = Home(KINDS[0], tmp_path, SettableClock())
    store = await home.open()
    demo = DemoService(store)
    real, calls = store.load, 0

    async def breaks(items: object) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise ConnectionError
        return await real(items)  # type: ignore[arg-type]

    store.load = breaks  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        await demo.load(ADMIN)
    store.load = real  # type: ignore[method-assign]
    assert await demo.load(ADMIN) == 10
    assert await store.count_schedules(EVERY_SCHEDULE) == 10
    await home.close()


async def test_examples_are_enabled_if_a_node_has_the_demo_task(tmp_path: Path) -> None:
    home = Home(KINDS[0], tmp_path, SettableClock())
    store = await home.open()
    demo = DemoService(store)
    on = replace(EVERY_SCHEDULE, enabled=True)
    await demo.load(ADMIN)
    assert await store.count_schedules(on) == 0
    await demo.remove(ADMIN)
    await store.join(a_node(capabilities=(f"task:{TASK}",)), timedelta(minutes=1))
    await demo.load(ADMIN)
    assert await store.count_schedules(on) == 7
    await home.close()


async def test_deleted_or_running_examples_do_not_block_removal(tmp_path: Path) -> None:
    home = Home(KINDS[0], tmp_path, SettableClock())
    store = await home.open()
    demo = DemoService(store)
    await demo.load(ADMIN, live=True)
    first, second = (await store.list_schedules(EVERY_SCHEDULE)).items[:2]
    await store.change_schedule(
        first.id, lambda before, at: delete_schedule(before, at, "somebody")
    )
    (under_way,) = await start_manual_run(store, second)
    assert (await demo.remove(ADMIN)).schedules == 9
    assert (await store.list_runs(EVERY_RUN)).items == (under_way,)
    await home.close()


async def start_manual_run(store: Store, schedule: Schedule) -> tuple[Run, ...]:
    await store.join(a_node(), timedelta(minutes=1))
    await store.add_runs([with_definition(manual_run(schedule, NOW), target=HTTP)])
    return await store.claim(claim_request())


async def test_only_admins_load_and_remove(tmp_path: Path) -> None:
    home = Home(KINDS[0], tmp_path, SettableClock())
    store = await home.open()
    anna = Owner(type=OwnerType.USER, id="anna")
    for role in (Role.VIEWER, Role.MEMBER, Role.OPERATOR):
        actor = Actor(owner=anna, role=role)
        with pytest.raises(NotAllowed):
            await DemoService(store).load(actor)
        with pytest.raises(NotAllowed):
            await DemoService(store).remove(actor)
    await DemoService(store).load(ADMIN)
    assert not await DemoService(store).is_loaded(Actor(owner=anna, role=Role.MEMBER))
    assert await DemoService(store).is_loaded(Actor(owner=anna, role=Role.OPERATOR))
    await home.close()
