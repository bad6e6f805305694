"""The schedule service: create, change, pause, delete, next slot, audit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.clock import EPOCH
from chimes.errors import (
    AlreadyExists,
    Conflict,
    InvalidInput,
    InvalidTrigger,
    NotAllowed,
    NotFound,
    QuotaExceeded,
    StaleVersion,
    StoreUnavailable,
)
from chimes.model import replace
from chimes.model.access import Actor, Quota
from chimes.model.audit import verify_chain
from chimes.model.ids import ScheduleId, declared_id
from chimes.model.listing import AuditQuery, RunQuery, ScheduleQuery
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.run import Origin, Reason, RunStatus
from chimes.model.schedule import Dependency, Schedule
from chimes.model.target import HttpTarget
from chimes.services.manual_runs import BACKFILL_LIMIT, ManualRuns
from chimes.services.schedules.rules import Limits, ScheduleRules
from chimes.services.schedules.service import ScheduleService
from chimes.store.memory import MemoryStore
from chimes.testing import SettableClock
from chimes.triggers import Cron, Every, Once
from tests.builders import ALICE, NOW, SECOND, TARGET, a_schedule
from tests.services.conftest import ADMIN, MEMBER, OPERATOR, STRANGER, VIEWER, any_target


def draft(**given: Any) -> Schedule:
    values: dict[str, Any] = {
        "id": ScheduleId(""),
        "name": "nightly",
        "trigger": Every("1m"),
        "target": TARGET,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Schedule(**(values | given))


async def created(schedules: ScheduleService, **given: Any) -> Schedule:
    return await schedules.create(ADMIN, draft(**given))


class TestCreate:
    async def test_sets_id_anchor_and_first_slot(self, schedules: ScheduleService) -> None:
        made = await created(schedules)
        assert made.id
        assert made.trigger == Every("1m", anchor=EPOCH)
        assert made.next_slot == made.next_run_at == NOW + timedelta(minutes=1)
        assert (made.version, made.created_by) == (1, "system:default")

    async def test_a_client_id_is_unique(self, schedules: ScheduleService) -> None:
        # A second schedule with the same id is a conflict.
        assert (await created(schedules, id=ScheduleId("mine"))).id == "mine"
        with pytest.raises(AlreadyExists):
            await created(schedules, id=ScheduleId("mine"))

    async def test_a_start_without_anchor_is_the_first_slot(
        self, schedules: ScheduleService
    ) -> None:
        start = NOW + timedelta(seconds=90)
        made = await created(schedules, trigger=Every("1m", start_at=start))
        assert made.next_slot == start

    async def test_default_zone_applies_to_triggers_without_a_zone(
        self, store: MemoryStore
    ) -> None:
        service = ScheduleService(
            store, ScheduleRules(store, check_target=any_target, default_timezone="Asia/Bangkok")
        )
        assert (await created(service, trigger=Cron("0 9 * * *"))).trigger.zone == "Asia/Bangkok"
        berlin = Cron("0 9 * * *", timezone="Europe/Berlin")
        assert (await created(service, trigger=berlin)).trigger.zone == "Europe/Berlin"

    async def test_a_disabled_schedule_has_no_next_slot(self, schedules: ScheduleService) -> None:
        assert (await created(schedules, enabled=False)).next_run_at is None

    @pytest.mark.parametrize(
        ("given", "field", "code"),
        [
            ({"name": " "}, "name", "missing"),
            ({"name": "x" * 201}, "name", "too_long"),
            ({"name": "a\x00b"}, "name", "bad_character"),
            ({"name": "a\ud800b"}, "name", "bad_character"),
            ({"name": "a\u202eb"}, "name", "bad_character"),
            ({"name": "a\u2028b"}, "name", "bad_character"),
            ({"name": "a" + "\u0301" * 100}, "name", "bad_character"),
            ({"id": ScheduleId("a b")}, "id", "bad_character"),
            ({"id": ScheduleId("x" * 201)}, "id", "too_long"),
            ({"priority": 1001}, "priority", "out_of_range"),
            ({"labels": {f"l{n}": None for n in range(51)}}, "labels", "too_many"),
            ({"labels": {"": None}}, "labels", "missing"),
            ({"labels": {"a": "\x07"}}, "labels.a", "bad_character"),
            ({"policy": Policy(timeout=timedelta())}, "policy.timeout", "out_of_range"),
            ({"policy": Policy(timeout=timedelta(hours=1))}, "policy.timeout", "out_of_range"),
            ({"policy": Policy(max_retries=-1)}, "policy.max_retries", "out_of_range"),
            ({"policy": Policy(catch_up_limit=0)}, "policy.catch_up_limit", "out_of_range"),
            (
                {"policy": Policy(max_concurrent_runs=0)},
                "policy.max_concurrent_runs",
                "out_of_range",
            ),
            ({"trigger": Every("50ms")}, "trigger.every", "interval_too_short"),
            ({"trigger": Cron("@every 1ms")}, "trigger.expression", "interval_too_short"),
            ({"trigger": Cron("0 0 31 2 *")}, "trigger", "never_fires"),
            ({"trigger": Once("2020-01-01T00:00:00Z")}, "trigger", "never_fires"),
            (
                {"depends_on": Dependency(schedule_id=ScheduleId("nobody"))},
                "depends_on.schedule_id",
                "not_found",
            ),
        ],
    )
    async def test_invalid_drafts_are_rejected(
        self,
        schedules: ScheduleService,
        store: MemoryStore,
        given: dict[str, Any],
        field: str,
        code: str,
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            await created(schedules, **given)
        assert (refused.value.field, refused.value.code) == (field, code)
        assert await store.count_schedules(ScheduleQuery()) == 0
        assert await store.list_audit(AuditQuery()) == ()

    async def test_names_are_nfc_and_trimmed(self, schedules: ScheduleService) -> None:
        assert (await created(schedules, name="  Cafe\u0301 ")).name == "Caf\u00e9"

    async def test_unicode_and_markup_in_names_are_kept(self, schedules: ScheduleService) -> None:
        for name in ("ทุกวันจันทร์ กี่โมง", "'; DROP TABLE runs;--", "%_\\", "{{7*7}}", "<script>"):
            assert (await created(schedules, name=name)).name == name

    async def test_dependency_cycle_is_rejected(self, schedules: ScheduleService) -> None:
        a = await created(schedules)
        b = await created(schedules, depends_on=Dependency(schedule_id=a.id))
        c = await created(schedules, depends_on=Dependency(schedule_id=b.id))
        for closing in (b, c):
            with pytest.raises(InvalidInput, match="in a cycle"):
                await schedules.change(
                    ADMIN,
                    a.id,
                    lambda s, to=closing.id: replace(s, depends_on=Dependency(schedule_id=to)),
                )

    async def test_dependency_on_itself_is_rejected(self, schedules: ScheduleService) -> None:
        me = ScheduleId("me")
        with pytest.raises(InvalidInput, match="itself"):
            await created(schedules, id=me, depends_on=Dependency(schedule_id=me))

    async def test_rejected_target_is_not_created(self, store: MemoryStore) -> None:
        def refuse(target: object) -> None:
            raise InvalidInput("no", field="target.url")

        with pytest.raises(InvalidInput):
            await created(ScheduleService(store, ScheduleRules(store, check_target=refuse)))

    async def test_quota_and_shortest_interval_are_enforced(self, store: MemoryStore) -> None:
        limits = Limits(
            quotas=lambda owner: (Quota(limit=1),),
            shortest_interval_member=timedelta(seconds=10),
            shortest_interval_admin=SECOND,
        )
        service = ScheduleService(
            store, ScheduleRules(store, check_target=any_target, limits=lambda: limits)
        )
        with pytest.raises(InvalidTrigger, match="10 s"):
            await service.create(MEMBER, draft(owner=ALICE, trigger=Every("5s")))
        for fast in ("* * * * * *", "*/5 * * * * *"):
            with pytest.raises(InvalidTrigger, match="10 s"):
                await service.create(MEMBER, draft(owner=ALICE, trigger=Cron(fast)))
        await service.create(ADMIN, draft(trigger=Every("5s")))
        await service.create(MEMBER, draft(owner=ALICE))
        with pytest.raises(QuotaExceeded):
            await service.create(MEMBER, draft(owner=ALICE))


class TestAccess:
    @pytest.mark.parametrize("actor", [VIEWER, STRANGER, OPERATOR])
    async def test_create_requires_permission(
        self, schedules: ScheduleService, actor: Actor
    ) -> None:
        with pytest.raises(NotAllowed):
            await schedules.create(actor, draft(owner=ALICE))

    async def test_schedules_of_other_owners_are_not_found(
        self, schedules: ScheduleService
    ) -> None:
        # Objects of other owners are NotFound.
        made = await schedules.create(MEMBER, draft(owner=ALICE))
        for actor in (ADMIN, OPERATOR, MEMBER, VIEWER):
            assert await schedules.get(actor, made.id) == made
            assert (await schedules.find(actor, ScheduleQuery())).items == (made,)
            assert await schedules.count(actor, ScheduleQuery()) == 1
        with pytest.raises(NotFound):
            await schedules.get(STRANGER, made.id)
        assert (await schedules.find(STRANGER, ScheduleQuery(owner=ALICE))).items == ()

    async def test_operators_may_not_edit(
        self, schedules: ScheduleService, manual_runs: ManualRuns
    ) -> None:
        made = await schedules.create(MEMBER, draft(owner=ALICE))
        await schedules.pause(OPERATOR, made.id)
        await schedules.resume(OPERATOR, made.id)
        await manual_runs.run_now(OPERATOR, made.id)
        for forbidden in (
            schedules.change(OPERATOR, made.id, lambda s: replace(s, name="mine")),
            schedules.delete(OPERATOR, made.id),
            manual_runs.backfill(OPERATOR, made.id, NOW, NOW),
            manual_runs.run_now(VIEWER, made.id),
            schedules.pause(VIEWER, made.id),
        ):
            with pytest.raises(NotAllowed):
                await forbidden


class TestChange:
    async def test_rename_keeps_the_cursor(self, schedules: ScheduleService) -> None:
        made = await created(schedules)
        after = await schedules.change(ADMIN, made.id, lambda s: replace(s, name="other"))
        assert (after.name, after.version) == ("other", 2)
        assert after.next_slot == made.next_slot

    async def test_an_edit_without_change_makes_no_version(
        self, schedules: ScheduleService
    ) -> None:
        made = await created(schedules)
        assert await schedules.change(ADMIN, made.id, lambda s: s) == made

    async def test_stale_version_is_rejected(self, schedules: ScheduleService) -> None:
        made = await created(schedules)
        await schedules.change(ADMIN, made.id, lambda s: replace(s, name="b"), expected_version=1)
        with pytest.raises(StaleVersion):
            await schedules.change(
                ADMIN, made.id, lambda s: replace(s, name="c"), expected_version=1
            )

    async def test_a_new_interval_has_a_new_anchor(
        self, schedules: ScheduleService, clock: SettableClock
    ) -> None:
        made = await created(schedules)
        clock.advance(30)
        same = await schedules.change(ADMIN, made.id, lambda s: replace(s, trigger=Every("60s")))
        assert same.next_slot == made.next_slot
        faster = await schedules.change(ADMIN, made.id, lambda s: replace(s, trigger=Every("10s")))
        assert faster.next_slot == NOW + timedelta(seconds=40)

    async def test_a_trigger_that_never_fires_is_rejected(self, schedules: ScheduleService) -> None:
        made = await created(schedules)
        with pytest.raises(InvalidTrigger):
            await schedules.change(ADMIN, made.id, lambda s: replace(s, trigger=Cron("0 0 30 2 *")))
        assert await schedules.get(ADMIN, made.id) == made

    async def test_finished_once_can_be_renamed(
        self, schedules: ScheduleService, clock: SettableClock
    ) -> None:
        # The trigger is not validated again if it did not change.
        made = await created(schedules, trigger=Once(NOW + SECOND))
        clock.advance(60)
        after = await schedules.change(ADMIN, made.id, lambda s: replace(s, name="done"))
        assert after.name == "done"

    async def test_the_target_is_checked_only_when_it_changes(self, store: MemoryStore) -> None:
        checked: list[object] = []
        service = ScheduleService(store, ScheduleRules(store, check_target=checked.append))
        made = await created(service)
        await service.change(ADMIN, made.id, lambda s: replace(s, name="x"))
        assert len(checked) == 1
        other = HttpTarget(url="http://127.0.0.1/other")
        await service.change(ADMIN, made.id, lambda s: replace(s, target=other))
        assert checked[1] == other

    async def test_enabling_by_edit_ends_the_pause(self, schedules: ScheduleService) -> None:
        made = await created(schedules)
        await schedules.pause(ADMIN, made.id, note="holiday")
        after = await schedules.change(ADMIN, made.id, lambda s: replace(s, enabled=True))
        assert (after.pause_note, after.next_slot is not None) == ("", True)

    async def test_delete_cancels_queued_runs_and_keeps_the_id(
        self, schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
    ) -> None:
        made = await created(schedules)
        await manual_runs.run_now(ADMIN, made.id)
        await schedules.delete(ADMIN, made.id, expected_version=1)
        with pytest.raises(NotFound):
            await schedules.get(ADMIN, made.id)
        run = (await store.list_runs(RunQuery())).items[0]
        assert (run.status, run.reason) == (RunStatus.CANCELED, Reason.SCHEDULE_DELETED)
        with pytest.raises(AlreadyExists):
            await created(schedules, id=made.id)


class TestPause:
    async def test_resume_plans_from_now(
        self, schedules: ScheduleService, store: MemoryStore, clock: SettableClock
    ) -> None:
        made = await created(schedules)
        paused = await schedules.pause(ADMIN, made.id, note="maintenance")
        assert (paused.enabled, paused.next_run_at, paused.pause_note) == (
            False,
            None,
            "maintenance",
        )
        clock.advance(600)
        resumed = await schedules.resume(ADMIN, made.id)
        assert resumed.next_slot == NOW + timedelta(seconds=660)
        assert (await store.list_runs(RunQuery())).items == ()

    async def test_pause_is_idempotent(self, schedules: ScheduleService) -> None:
        made = await created(schedules)
        first = await schedules.pause(ADMIN, made.id)
        assert await schedules.pause(ADMIN, made.id) == first
        running = await schedules.resume(ADMIN, made.id)
        assert await schedules.resume(ADMIN, made.id) == running

    async def test_pause_until_must_be_in_the_future(self, schedules: ScheduleService) -> None:
        made = await created(schedules)
        until = NOW + timedelta(hours=1)
        assert (await schedules.pause(ADMIN, made.id, until=until)).pause_until == until
        with pytest.raises(InvalidInput, match="past"):
            await schedules.pause(ADMIN, made.id, until=NOW)


class TestNextSlot:
    async def test_skip_records_a_skipped_run(
        self, schedules: ScheduleService, store: MemoryStore
    ) -> None:
        made = await created(schedules)
        after = await schedules.skip(ADMIN, made.id, reason="not today")
        assert after.next_slot == NOW + timedelta(minutes=2)
        row = (await store.list_runs(RunQuery())).items[0]
        assert (row.slot, row.status, row.reason) == (
            made.next_slot,
            RunStatus.SKIPPED,
            Reason.SKIPPED_BY_HAND,
        )

    async def test_move_keeps_the_slot(
        self, schedules: ScheduleService, store: MemoryStore, clock: SettableClock
    ) -> None:
        made = await created(schedules)
        to = NOW + timedelta(seconds=5)
        after = await schedules.move(ADMIN, made.id, to)
        assert (after.next_slot, after.next_run_at) == (made.next_slot, to)
        clock.advance(5)
        fired = await store.fire_due(plan, limit=10)
        assert fired.others[0].slot == made.next_slot
        assert (await schedules.get(ADMIN, made.id)).next_slot == NOW + timedelta(minutes=2)

    async def test_move_beyond_the_following_slot_adds_the_run(
        self, schedules: ScheduleService, store: MemoryStore, clock: SettableClock
    ) -> None:
        made = await created(schedules)
        to = NOW + timedelta(minutes=5)
        after = await schedules.move(ADMIN, made.id, to)
        assert after.next_slot == NOW + timedelta(minutes=2)
        (run,) = (await store.list_runs(RunQuery())).items
        assert (run.slot, run.planned_at, run.available_at) == (made.next_slot, to, to)
        assert run.claimable

    async def test_reschedule_to_the_past_means_now(self, schedules: ScheduleService) -> None:
        made = await created(schedules)
        after = await schedules.reschedule(ADMIN, made.id, NOW - timedelta(days=1))
        assert after.next_slot == after.next_run_at == NOW

    async def test_no_next_slot_is_a_conflict(self, schedules: ScheduleService) -> None:
        made = await created(schedules, enabled=False)
        for refused in (
            schedules.skip(ADMIN, made.id),
            schedules.move(ADMIN, made.id, NOW + SECOND),
            schedules.reschedule(ADMIN, made.id, NOW + SECOND),
        ):
            with pytest.raises(Conflict):
                await refused


class TestPassedSlots:
    """A slot whose instant has passed is not lost if an edit comes before its fire."""

    @pytest.mark.parametrize("verb", ["edit", "pause", "delete", "reschedule", "bounce"])
    async def test_a_due_slot_is_fired_first(
        self, schedules: ScheduleService, store: MemoryStore, clock: SettableClock, verb: str
    ) -> None:
        made = await created(schedules)
        clock.advance(60)
        match verb:
            case "edit":
                await schedules.change(
                    ADMIN, made.id, lambda s: replace(s, trigger=Cron("0 12 * * *"))
                )
            case "pause":
                await schedules.pause(ADMIN, made.id)
            case "delete":
                await schedules.delete(ADMIN, made.id)
            case "reschedule":
                await schedules.reschedule(ADMIN, made.id, NOW + timedelta(hours=1))
            case _:
                await schedules.pause(ADMIN, made.id)
                await schedules.resume(ADMIN, made.id)
        (run,) = (await store.list_runs(RunQuery())).items
        assert (run.slot, run.schedule_version) == (made.next_slot, 1)
        expected = RunStatus.CANCELED if verb == "delete" else RunStatus.QUEUED
        assert run.status is expected

    async def test_missed_slots_before_an_edit_are_recorded(
        self, schedules: ScheduleService, store: MemoryStore, clock: SettableClock
    ) -> None:
        made = await created(schedules)
        clock.advance(timedelta(minutes=5, seconds=30))
        await schedules.change(ADMIN, made.id, lambda s: replace(s, trigger=Cron("0 12 * * *")))
        rows = (await store.list_runs(RunQuery())).items
        assert sum(row.missed_count or 1 for row in rows) == 5

    async def test_a_slot_in_its_jitter_becomes_a_waiting_run(
        self, schedules: ScheduleService, store: MemoryStore, clock: SettableClock
    ) -> None:
        made = await created(
            schedules, id=ScheduleId("j"), trigger=Every("10m", anchor=NOW, jitter="10m")
        )
        assert made.next_slot is not None
        assert made.next_run_at is not None
        clock.set(made.next_slot + SECOND)
        assert clock.now() < made.next_run_at
        await schedules.change(ADMIN, made.id, lambda s: replace(s, trigger=Cron("0 12 * * *")))
        (run,) = (await store.list_runs(RunQuery())).items
        assert (run.slot, run.available_at) == (made.next_slot, made.next_run_at)

    async def test_a_pause_skips_a_slot_in_its_jitter(
        self, schedules: ScheduleService, store: MemoryStore, clock: SettableClock
    ) -> None:
        made = await created(
            schedules, id=ScheduleId("j"), trigger=Every("10m", anchor=NOW, jitter="10m")
        )
        assert made.next_slot is not None
        clock.set(made.next_slot + SECOND)
        await schedules.pause(ADMIN, made.id)
        (run,) = (await store.list_runs(RunQuery())).items
        assert (run.status, run.reason) == (RunStatus.SKIPPED, Reason.PAUSED)

    async def test_a_change_gives_up_after_many_rounds(
        self,
        schedules: ScheduleService,
        store: MemoryStore,
        clock: SettableClock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        made = await created(schedules)
        clock.advance(60)

        async def fires_nothing(*_: object, **__: object) -> None:
            return None

        monkeypatch.setattr(store, "fire_due", fires_nothing)
        with pytest.raises(StoreUnavailable):
            await schedules.pause(ADMIN, made.id)

    async def test_max_runs_limits_upcoming_and_ends_the_schedule(
        self, schedules: ScheduleService, store: MemoryStore, clock: SettableClock
    ) -> None:
        made = await created(schedules, trigger=Every("1m", anchor=NOW, max_runs=2))
        assert len(await schedules.list_upcoming(ADMIN, timedelta(hours=1))) == 2
        await schedules.move(ADMIN, made.id, NOW + timedelta(hours=2))
        clock.advance(120)
        await store.fire_due(plan, limit=1)
        assert (await schedules.get(ADMIN, made.id)).next_slot is None
        with pytest.raises(Conflict, match="max_runs"):
            await schedules.reschedule(ADMIN, made.id, NOW + timedelta(hours=1))


class TestManualRuns:
    async def test_run_now_leaves_the_schedule_unchanged(
        self, schedules: ScheduleService, manual_runs: ManualRuns
    ) -> None:
        made = await created(schedules)
        run = await manual_runs.run_now(ADMIN, made.id)
        assert (run.origin, run.slot, run.status) == (Origin.MANUAL, None, RunStatus.QUEUED)
        assert await schedules.get(ADMIN, made.id) == made

    async def test_run_now_respects_the_limit_unless_beside_others(
        self, schedules: ScheduleService, manual_runs: ManualRuns
    ) -> None:
        made = await created(schedules)
        await manual_runs.run_now(ADMIN, made.id)
        assert (await manual_runs.run_now(ADMIN, made.id)).blocked
        assert not (await manual_runs.run_now(ADMIN, made.id, beside_others=True)).blocked

    async def test_run_now_works_while_paused(
        self, schedules: ScheduleService, manual_runs: ManualRuns
    ) -> None:
        made = await created(schedules, enabled=False)
        assert (await manual_runs.run_now(ADMIN, made.id)).claimable

    async def test_backfill_adds_runs_for_slots_not_executed(
        self,
        schedules: ScheduleService,
        manual_runs: ManualRuns,
        store: MemoryStore,
        clock: SettableClock,
    ) -> None:
        made = await created(schedules, policy=Policy(overlap=Overlap.ALLOW))
        await schedules.skip(ADMIN, made.id)
        clock.advance(timedelta(minutes=3))
        await store.fire_due(plan, limit=10)
        start, end = NOW + SECOND, NOW + timedelta(hours=1)
        dry = await manual_runs.backfill(ADMIN, made.id, start, end, dry_run=True)
        skipped = NOW + timedelta(minutes=1)
        assert (dry.slots, dry.runs) == ((skipped,), ())
        done = await manual_runs.backfill(ADMIN, made.id, start, end)
        assert [(r.origin, r.slot, r.planned_at) for r in done.runs] == [
            (Origin.BACKFILL, None, skipped)
        ]
        again = await manual_runs.backfill(ADMIN, made.id, start, end)
        assert [r.id for r in again.runs] == [r.id for r in done.runs]
        nothing = await manual_runs.backfill(ADMIN, made.id, end, end)
        assert nothing.slots == ()

    async def test_backfill_is_limited_and_ignores_purged_slots(
        self,
        schedules: ScheduleService,
        manual_runs: ManualRuns,
        store: MemoryStore,
        clock: SettableClock,
    ) -> None:
        made = await created(schedules)
        clock.advance(timedelta(days=2))
        with pytest.raises(InvalidInput, match=str(BACKFILL_LIMIT)):
            await manual_runs.backfill(ADMIN, made.id, NOW, clock.now())
        mark = clock.now() - timedelta(minutes=2)
        await store.change_schedule(made.id, lambda s, now: replace(s, purged_until=mark))
        dry = await manual_runs.backfill(ADMIN, made.id, NOW, clock.now(), dry_run=True)
        assert dry.slots == (clock.now() - timedelta(minutes=1), clock.now())


class TestUpcoming:
    async def test_lists_fires_of_all_schedules_in_order(self, schedules: ScheduleService) -> None:
        slow = await created(schedules, trigger=Every("3m"))
        fast = await created(schedules, trigger=Every("2m"))
        await created(schedules, enabled=False)
        found = await schedules.list_upcoming(ADMIN, timedelta(minutes=6))
        minutes = [(u.schedule.id, (u.at - NOW).total_seconds() / 60) for u in found]
        assert minutes[:3] == [(fast.id, 2), (slow.id, 3), (fast.id, 4)]
        assert sorted(minutes[3:]) == sorted([(slow.id, 6.0), (fast.id, 6.0)])

    async def test_upcoming_is_limited(self, schedules: ScheduleService) -> None:
        await created(schedules, trigger=Every("1s"))
        await created(schedules, trigger=Once(NOW + SECOND / 2))
        assert len(await schedules.list_upcoming(ADMIN, timedelta(days=7))) == 1000


async def test_every_verb_leaves_an_audit_entry(
    schedules: ScheduleService, manual_runs: ManualRuns, store: MemoryStore
) -> None:
    target = HttpTarget(
        url="http://127.0.0.1/", headers={"Authorization": "Bearer x"}, signing_secrets=("whsec_a",)
    )
    made = await created(schedules, target=target)
    await schedules.change(ADMIN, made.id, lambda s: replace(s, name="other"))
    await schedules.pause(ADMIN, made.id, note="why")
    await schedules.resume(ADMIN, made.id)
    await schedules.skip(ADMIN, made.id)
    await schedules.move(ADMIN, made.id, NOW + SECOND)
    await schedules.reschedule(ADMIN, made.id, NOW + SECOND)
    await manual_runs.run_now(ADMIN, made.id)
    await schedules.delete(ADMIN, made.id)
    entries = list(reversed(await store.list_audit(AuditQuery())))
    assert [entry.verb for entry in entries] == [
        *("create", "update", "pause", "resume", "skip"),
        *("move", "reschedule", "run", "delete"),
    ]
    assert verify_chain(entries) is None
    assert entries[1].changes == {"name": ["nightly", "other"]}
    assert entries[2].reason == "why"
    assert "whsec_a" not in str(entries[0].changes)
    assert "Bearer x" not in str(entries[0].changes)


async def test_an_unchanged_interval_keeps_its_anchor(
    schedules: ScheduleService, clock: SettableClock
) -> None:
    made = await schedules.create(ADMIN, draft(trigger=Every("1h")))
    clock.advance(timedelta(minutes=20))
    again = replace(made, trigger=Every("1h"))
    assert await schedules.change(ADMIN, made.id, lambda s: again) == made
    renamed = await schedules.change(ADMIN, made.id, lambda s: replace(again, name="other"))
    assert (renamed.version, renamed.trigger) == (2, made.trigger)
    assert renamed.next_run_at == made.next_run_at


@pytest.mark.parametrize("namespace", ["default", "catbird"])
async def test_the_name_of_a_declared_schedule_is_unique(
    schedules: ScheduleService, namespace: str
) -> None:
    declared = a_schedule(namespace=namespace, name="daily", id=declared_id("default", "daily", 1))
    first = await schedules.create(ADMIN, declared)
    with pytest.raises(AlreadyExists, match="'daily' already exists in namespace 'default'"):
        await schedules.create(ADMIN, a_schedule(name=" daily "))
    other = await schedules.create(ADMIN, a_schedule(name="weekly"))
    with pytest.raises(AlreadyExists):
        await schedules.change(ADMIN, other.id, lambda each: replace(each, name="daily "))
    renamed = await schedules.change(ADMIN, other.id, lambda each: replace(each, name="monthly"))
    assert renamed.name == "monthly"
    # Names of other schedules and in other namespaces need not be unique.
    for _ in range(2):
        await schedules.create(ADMIN, a_schedule(name="monthly"))
        await schedules.create(ADMIN, a_schedule(namespace="ksana", name="daily"))
    await schedules.delete(ADMIN, first.id)
    await schedules.create(ADMIN, a_schedule(name="daily"))
