"""Reconciliation of declared schedules with the store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chimes import Chimes, Cron, Every
from chimes.errors import Conflict, InvalidInput, NotFound
from chimes.model import replace
from chimes.model.access import Actor, Role
from chimes.model.ids import ScheduleId, declared_id
from chimes.model.listing import ScheduleQuery
from chimes.model.policy import Policy, RunDefaults
from chimes.model.run import Origin, RunStatus
from chimes.model.schedule import Schedule, is_detached, reattach, source_marker
from chimes.model.target import HttpTarget, SyncTarget
from chimes.runtime.composition import Runtime
from chimes.sdk.declare import module_path
from chimes.sdk.reconcile import ScheduleReconciler
from chimes.testing import SettableClock
from tests.builders import a_node
from tests.sdk.inspection import QUICK, audited, eventually, runs_of, stored

QUIET = {"channel": "telegram", "to": "42", "quiet": {"from": "22:00", "to": "07:00"}}
PAIR = SyncTarget(source="s", collection="c")
DIGEST = {"channel": "inbox", "digest": {"every": "daily"}}


def an_app(
    url: str, spec: str = "0 9 * * *", clock: Any = None, target: Any = None, **options: Any
) -> Chimes:
    """A release of the application."""
    app = Chimes(url, settings=QUICK, clock=clock)

    @app.task
    async def report(day: str = "today") -> str:
        return day

    app.schedule("nightly", spec, target or report, **options)
    return app


def record_writes(store: Any, writes: list[str]) -> None:
    """Records all writes of schedules."""
    for name in ("add_schedule", "change_schedule"):
        verb = getattr(store, name)

        async def noted(*given: Any, _name: str = name, _verb: Any = verb, **more: Any) -> Any:
            writes.append(_name)
            return await _verb(*given, **more)

        setattr(store, name, noted)


async def release(url: str, spec: str = "0 9 * * *", **options: Any) -> Schedule:
    """The stored schedule after the next start of the application."""
    async with an_app(url, spec, **options) as app:
        await app.sync()
        return await stored(app, "nightly")


async def test_unchanged_declaration_is_written_once(shared_url: str) -> None:
    first = await release(shared_url, args={"day": "Monday"}, labels={"team": "ops"})
    again = await release(shared_url, args={"day": "Monday"}, labels={"team": "ops"})
    assert again == first
    assert first.version == 1
    assert first.namespace == "default"
    async with an_app(shared_url) as app:
        assert await audited(app) == [("sdk", "system:app", "create")]


async def test_unchanged_trigger_keeps_next_run_at_and_other_fields_are_replaced(
    shared_url: str,
) -> None:
    first = await release(shared_url)
    async with an_app(shared_url) as app:
        moved = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
        await app.reschedule_for("nightly", moved)
    second = await release(
        shared_url, args={"day": "Monday"}, catch_up="all", timeout="20s", priority=5
    )
    assert second.id == first.id
    assert second.next_run_at == moved
    assert second.target.args == {"day": "Monday"}  # type: ignore[union-attr]
    assert second.policy.misfire.value == "all"
    assert second.policy.timeout == timedelta(seconds=20)
    assert second.priority == 5
    third = await release(shared_url)
    assert third.target.args == {}  # type: ignore[union-attr]
    assert third.policy.misfire.value == "one"
    assert third.next_run_at == moved


async def test_changed_trigger_is_planned_again(shared_url: str) -> None:
    first = await release(shared_url, "0 9 * * *")
    second = await release(shared_url, "0 10 * * *")
    assert second.id == first.id
    assert second.version == first.version + 1
    assert second.next_run_at is not None
    assert second.next_run_at.hour == 10
    third = await release(shared_url, "0 10 * * *", timezone="Asia/Bangkok")
    assert third.next_run_at is not None
    assert third.next_run_at.hour == 3


async def test_enabled_counts_for_a_new_schedule_only(shared_url: str) -> None:
    first = await release(shared_url, enabled=True)
    assert first.enabled
    async with an_app(shared_url) as app:
        await app.set_schedule_enabled("nightly", False)
    assert (await release(shared_url, enabled=True)).enabled is False
    assert (await release(shared_url, "0 10 * * *", enabled=True)).enabled is False
    async with an_app(shared_url) as app:
        await app.set_schedule_enabled("nightly", True)
    assert (await release(shared_url, enabled=False)).enabled is True


async def test_edit_elsewhere_detaches_the_schedule(
    shared_url: str, caplog: pytest.LogCaptureFixture
) -> None:  # ADR 33
    first = await release(shared_url, timeout="20s")
    mark = source_marker(first)
    assert mark is not None
    assert re.fullmatch(r"tests/sdk/test_reconcile\.py:\d+", mark.at)

    async def edited(change: Callable[[Schedule], Schedule]) -> Schedule:
        async with an_app(shared_url) as app:
            return await app.runtime().services.schedules.change(
                Actor(role=Role.ADMIN), first.id, change
            )

    await edited(lambda each: replace(each, priority=7))
    with caplog.at_level("WARNING", "chimes.runtime"):
        kept = await release(shared_url, "0 10 * * *", timeout="30s")
    assert "edited elsewhere" in caplog.text
    assert (kept.priority, kept.policy.timeout) == (7, timedelta(seconds=20))
    assert kept.trigger == first.trigger
    assert is_detached(kept)
    await edited(reattach)
    followed = await release(shared_url, "0 10 * * *", timeout="30s")
    assert (followed.priority, followed.policy.timeout) == (0, timedelta(seconds=30))
    assert not is_detached(followed)
    # After undoing the edit it follows the code again.
    await edited(lambda each: replace(each, priority=7))
    await edited(lambda each: replace(each, priority=0))
    assert (await release(shared_url, "0 11 * * *")).trigger != followed.trigger


async def test_values_completed_on_save_are_not_an_edit(shared_url: str) -> None:
    quiet = {"channel": "telegram", "to": "42", "quiet": {"from": "22:00", "to": "07:00"}}
    first = await release(shared_url, delivery=[quiet])
    assert first.policy.delivery[0].quiet is not None
    assert first.policy.delivery[0].quiet.zone == "UTC"
    assert not is_detached(first)
    assert (await release(shared_url, delivery=[quiet])).version == first.version


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("0 9 * * *", {}),
        ("0 9 * * *", {"timezone": "Asia/Bangkok", "delivery": [QUIET, DIGEST]}),
        (Every(timedelta(minutes=5)), {"delivery": [QUIET, DIGEST]}),
        (Cron("5 4 * * *"), {"labels": {"team": "ops"}, "priority": 3, "timeout": "20s"}),
        # Its concurrency key is that of the pair.
        ("0 9 * * *", {"target": {"kind": "sync", "source": "s", "collection": "c"}}),
    ],
)
async def test_definition_and_source_marker_are_one_write(
    shared_url: str, spec: Any, options: dict[str, Any]
) -> None:  # ADR 33
    writes: list[str] = []
    for value in (spec, "30 10 * * *", spec):
        async with an_app(shared_url, value, **options) as app:
            store = app.runtime().services.store
            await store.join(
                a_node(defaults={PAIR.key: RunDefaults(policy=Policy(), priority=5)}),
                timedelta(hours=1),
            )
            record_writes(store, writes)
            await app.sync()
            found = await stored(app, "nightly")
            assert not is_detached(found)
            await app.sync()
            assert await stored(app, "nightly") == found
    assert writes == ["add_schedule", "change_schedule", "change_schedule"]


async def test_concurrent_edit_is_not_overwritten(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await release(shared_url)
    async with an_app(shared_url, "0 10 * * *") as app:
        declared = app.declarations["nightly"]
        app.declarations._declared["nightly"] = replace(declared, at="shop/tasks.py:99")
        schedules = app.runtime().services.schedules
        change = schedules.change

        async def after_concurrent_edit(actor: Actor, name: ScheduleId, edit: Any) -> Schedule:
            await change(Actor(role=Role.ADMIN), name, lambda each: replace(each, priority=7))
            return await change(actor, name, edit)

        monkeypatch.setattr(schedules, "change", after_concurrent_edit)
        await app.sync()
        kept = await stored(app, "nightly")
    assert is_detached(kept)
    assert (kept.priority, kept.trigger) == (7, first.trigger)
    assert kept.version == first.version + 1
    assert is_detached(await release(shared_url, "0 11 * * *"))


async def test_moved_call_site_is_not_a_new_version(shared_url: str) -> None:
    first = await release(shared_url)
    async with an_app(shared_url) as app:
        declared = app.declarations["nightly"]
        app.declarations._declared["nightly"] = replace(declared, at="shop/tasks.py:99")
        await app.sync()
        moved = await stored(app, "nightly")
        mark = source_marker(moved)
        assert mark is not None
        assert mark.at == "shop/tasks.py:99"
        assert moved.version == first.version
        assert [verb for _, _, verb in await audited(app)] == ["create"]


@pytest.mark.parametrize(
    ("path", "module", "shown"),
    [
        ("/srv/shop/tasks.py", "shop.tasks", "shop/tasks.py"),
        ("/srv/shop/__init__.py", "shop", "shop/__init__.py"),
        ("/srv/run.py", "__main__", "run.py"),
        ("<string>", "a.b.c", "<string>"),
    ],
)
def test_call_site_is_independent_of_the_machine(path: str, module: str, shown: str) -> None:
    assert module_path(path, module) == shown


async def test_a_backlog_survives_a_redeploy() -> None:
    """An unchanged trigger keeps next_run_at, so missed slots are caught up."""
    clock = SettableClock(datetime(2030, 1, 1, 8, 59, tzinfo=UTC))
    app = an_app("memory://", clock=clock, catch_up="all")
    async with app:
        await app.sync()
        clock.advance(timedelta(days=3))
        again = an_app("memory://", catch_up="all")
        again.attach(app.runtime())
        await again.sync()
        assert (await stored(again, "nightly")).next_run_at == datetime(2030, 1, 1, 9, tzinfo=UTC)
        await again.start()
        runs = await eventually(lambda: runs_of(again), lambda runs: len(runs) == 3)
        assert [run.slot.day for run in runs if run.slot] == [1, 2, 3]
        await again.stop()


async def test_concurrent_starts_create_one_schedule(shared_url: str) -> None:
    apps = [an_app(shared_url) for _ in range(5)]
    for app in apps:
        await app.open()
    try:
        answers = await asyncio.gather(*(app.sync() for app in apps))
        assert len({answer[0].id for answer in answers}) == 1
        assert len(await apps[0].list_schedules()) == 1
        assert await audited(apps[0]) == [("sdk", "system:app", "create")]
    finally:
        for app in apps:
            await app.close()


async def test_concurrent_create_makes_no_duplicate(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node creates the schedule between `find` and the choice of an id."""
    async with an_app(shared_url) as first, an_app(shared_url) as second:
        look, looked = ScheduleReconciler.find, 0

        async def too_early(self: ScheduleReconciler, name: str) -> Schedule | None:
            nonlocal looked
            found = await look(self, name)
            looked += 1
            if looked == 1:
                monkeypatch.setattr(ScheduleReconciler, "find", look)
                await first.sync()
                monkeypatch.setattr(ScheduleReconciler, "find", too_early)
            return found

        monkeypatch.setattr(ScheduleReconciler, "find", too_early)
        ours = await second.sync()
        assert looked > 1
        assert [each.id for each in await second.list_schedules()] == [each.id for each in ours]


async def test_id_of_a_renamed_schedule_is_not_reused(url: str) -> None:
    async with an_app(url) as app:
        (made,) = await app.sync()
        services = app.runtime().services.schedules
        await services.change(
            app.runtime().actor, ScheduleId(made.id), lambda each: replace(each, name="renamed")
        )
        (again,) = await app.sync()
        assert again.id != made.id
        assert {each.name for each in await app.list_schedules()} == {"renamed", again.name}


async def test_deleted_schedule_is_declared_again_under_a_new_id(shared_url: str) -> None:
    first = await release(shared_url)
    ids = [first.id]
    for _ in range(4):
        async with an_app(shared_url) as app:
            assert await app.delete_schedule("nightly") is True
            assert await app.delete_schedule("nightly") is False
        ids.append((await release(shared_url)).id)
    assert len(set(ids)) == 5


async def test_schedule_in_the_former_namespace_is_updated(shared_url: str) -> None:
    async with an_app(shared_url) as app:
        now = datetime.now(UTC)
        services = app.runtime().services
        for schedule_id, namespace in (
            (ScheduleId("of-the-api"), "native"),
            (declared_id("catbird", "nightly", 1), "catbird"),
        ):
            await services.store.add_schedule(
                Schedule(
                    id=schedule_id,
                    namespace=namespace,
                    name="nightly",
                    trigger=Cron("0 7 * * *"),
                    target=HttpTarget(url="https://example.com/hook"),
                    created_at=now,
                    updated_at=now,
                )
            )
        await app.sync()
        page = await services.store.list_schedules(ScheduleQuery(namespace="default"))
        assert {(each.id, each.target.kind) for each in page.items} == {
            ("of-the-api", "http"),
            (declared_id("default", "nightly", 1), "task"),
        }
        assert (await app.get_schedule("nightly")).namespace == "default"


async def test_schedule_of_another_interface_is_found_by_name(shared_url: str) -> None:
    async with an_app(shared_url) as app:
        now = datetime.now(UTC)
        services = app.runtime().services
        made = await services.schedules.create(
            Actor(),
            Schedule(
                id=ScheduleId("made-elsewhere"),
                namespace="catbird",
                name="nightly",
                trigger=Cron("0 9 * * *"),
                target=HttpTarget(url="https://example.com/hook"),
                created_at=now,
                updated_at=now,
            ),
        )
        await app.sync()
        found = await stored(app, "nightly")
        assert found.id == made.id
        assert found.next_run_at == made.next_run_at
        assert found.target.kind == "task"


async def test_anchor_of_another_interface_is_kept(shared_url: str) -> None:
    app = an_app(shared_url, "every 10m")
    async with app:
        now = datetime.now(UTC)
        anchor = now.replace(minute=7, second=3, microsecond=0)
        made = await app.runtime().services.schedules.create(
            Actor(),
            Schedule(
                id=ScheduleId("made-elsewhere"),
                namespace="catbird",
                name="nightly",
                trigger=Every("10m", anchor=anchor),
                target=HttpTarget(url="https://example.com/hook"),
                created_at=now,
                updated_at=now,
            ),
        )
        await app.sync()
        found = await stored(app, "nightly")
        assert (found.trigger, found.next_run_at) == (made.trigger, made.next_run_at)


async def test_intervals_are_aligned_on_all_nodes(shared_url: str) -> None:
    first = await release(shared_url, "every 10m")
    assert first.next_run_at is not None
    assert first.next_run_at.minute % 10 == first.next_run_at.second == 0
    assert (await release(shared_url, "every 10m")) == first
    assert (await release(shared_url, "@every 10m")).next_run_at == first.next_run_at


async def test_ended_schedule_does_not_stop_the_start(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Chimes("memory://")
    synced, sync = [], app.declarations.sync

    async def counted(runtime: Runtime) -> list[Schedule]:
        synced.append(runtime)
        return await sync(runtime)

    monkeypatch.setattr(app.declarations, "sync", counted)

    @app.task
    async def report() -> None: ...

    app.schedule("long ago", "2020-01-01T00:00:00Z", report)
    app.schedule("daily", "@daily", report)
    async with app:
        await app.sync()
        assert [info.name for info in await app.list_schedules()] == ["daily"]
        for _ in range(2):
            timed = await app.declarations.local_schedules(app.runtime())
            assert [each.schedule.name for each in timed] == ["daily"]
        # Logged once; a refresh does not write all schedules again.
        assert caplog.text.count("has ended and is not created") == 1
        assert len(synced) == 1


async def test_dependencies_by_name(url: str) -> None:
    app = Chimes(url, settings=QUICK)

    @app.task
    async def report() -> None: ...

    app.schedule("third", "@daily", report, depends_on="second")
    app.schedule("second", "@daily", report, depends_on="first", depends_within="2h")
    app.schedule("first", "@daily", report)
    async with app:
        await app.sync()
        first, second = await stored(app, "first"), await stored(app, "second")
        third = await stored(app, "third")
        assert second.depends_on is not None
        assert second.depends_on.schedule_id == first.id
        assert second.depends_on.within == timedelta(hours=2)
        assert third.depends_on is not None
        assert third.depends_on.schedule_id == second.id
        await app.sync()
        assert (await stored(app, "third")).version == 1


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ({"b": "nobody"}, "depends on 'nobody', which does not exist"),
        ({"b": "a", "a": "b"}, "a -> b -> a|b -> a -> b"),
    ],
)
async def test_invalid_dependencies_are_rejected(others: dict[str, str], why: str) -> None:
    app = Chimes("memory://")

    @app.task
    async def report() -> None: ...

    for name, depends_on in others.items():
        app.schedule(name, "@daily", report, depends_on=depends_on)
    async with app:
        with pytest.raises(InvalidInput, match=why):
            await app.sync()


async def test_rejected_schedule_is_named() -> None:
    app = Chimes("memory://")

    @app.task
    async def report() -> None: ...

    app.schedule("too fast", "every 10ms", report)
    async with app:
        with pytest.raises(
            InvalidInput, match="schedule 'too fast': the shortest allowed interval"
        ):
            await app.sync()


# --- methods ----------------------------------------------------------------------------------
async def test_trigger_does_not_change_next_run_at(url: str) -> None:
    app = an_app(url)
    await app.start()
    try:
        before = await app.get_schedule("nightly")
        handle = await app.trigger_schedule("nightly")
        assert await handle.result("10s") == "today"
        run = await handle.run()
        assert (run.origin, run.slot) == (Origin.MANUAL, None)
        await app.set_schedule_enabled("nightly", False)
        assert await (await app.trigger_schedule("nightly")).result("10s") == "today"
        await app.set_schedule_enabled("nightly", True)
        assert (await app.get_schedule("nightly")).next_run_at == before.next_run_at
    finally:
        await app.stop()


async def test_reschedule_for_sets_next_run_at(url: str) -> None:
    app = an_app(url)
    await app.start()
    try:
        later = datetime.now(UTC).replace(microsecond=0) + timedelta(days=40)
        assert (await app.reschedule_for("nightly", later)).next_run_at == later
        assert await runs_of(app) == []
        await app.reschedule_for("nightly", "2020-01-01T00:00:00Z")
        runs = await eventually(lambda: runs_of(app, "nightly", RunStatus.SUCCEEDED), len)
        assert runs[0].origin is Origin.SCHEDULE
        assert (await app.get_schedule("nightly")).next_run_at != later
        await app.set_schedule_enabled("nightly", False)
        with pytest.raises(Conflict, match="paused"):
            await app.reschedule_for("nightly", later)
    finally:
        await app.stop()


async def test_list_is_ordered_by_next_run_at(url: str) -> None:
    app = Chimes(url)

    @app.task
    async def report() -> None: ...

    for name, spec in (("late", "0 0 1 1 *"), ("soon", "* * * * *"), ("off", "* * * * *")):
        app.schedule(name, spec, report, enabled=name != "off", catch_up="skip")
    app.schedule("call", "every 5m", "https://example.com/hook")
    async with app:
        await app.sync()
        infos = await app.list_schedules()
        names = [info.name for info in infos]
        assert names[0] == "soon"
        assert names[2:] == ["late", "off"]
        by_name = {info.name: info for info in infos}
        late, call = by_name["late"], by_name["call"]
        assert (late.kind, late.target, late.cron_spec) == ("task", "report", "0 0 1 1 *")
        assert (late.catch_up, late.enabled, late.timezone) == ("skip", True, "UTC")
        assert (late.last_run_at, late.last_enqueued_at, late.last_status) == (None, None, None)
        assert late.created_at == late.updated_at
        assert (call.kind, call.cron_spec) == ("http", "@every 5m")
        assert by_name["off"].next_run_at is None


async def test_schedule_waits_for_a_worker_with_its_task(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    early = Chimes(sqlite_url, settings=QUICK)
    early.schedule("later", "@yearly", {"kind": "task", "name": "comes_later"})
    async with early:
        await early.sync()
        assert "waits for a worker" in caplog.text
        handle = await early.trigger_schedule("later")
        worker = Chimes(sqlite_url, settings=QUICK)
        assert await handle.status() == "queued"

        @worker.task
        async def comes_later() -> str:
            return "done"

        await worker.start()
        try:
            assert await handle.result("20s") == "done"
        finally:
            await worker.stop()


async def test_unknown_name_suggests_the_nearest(url: str) -> None:
    async with an_app(url) as app:
        await app.sync()
        for verb in (
            app.get_schedule("nihgtly"),
            app.trigger_schedule("nihgtly"),
            app.reschedule_for("nihgtly", "2030-01-01T00:00:00Z"),
            app.set_schedule_enabled("nihgtly", True),
        ):
            with pytest.raises(NotFound, match="did you mean nightly"):
                await verb
        assert await app.delete_schedule("nihgtly") is False


async def test_namespaces_do_not_see_each_other(shared_url: str) -> None:
    for namespace in ("shop", "bank"):
        app = Chimes(shared_url, namespace=namespace)

        @app.task
        async def report() -> None: ...

        app.schedule("nightly", "@daily", report)
        async with app:
            await app.sync()
            assert len(await app.list_schedules()) == 1
