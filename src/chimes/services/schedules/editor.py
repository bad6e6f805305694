"""Writes changes of schedules to the store: permission, version, due slots, quotas, audit entry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from chimes.errors import Conflict, InvalidInput, NotAllowed, StaleVersion, StoreUnavailable
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.ids import ScheduleId
from chimes.model.planning import FireContext, FirePlan, end_immediately, plan, slot_run
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import (
    Schedule,
    apply_edit,
    delete_schedule,
    pause_schedule,
    resume_schedule,
)
from chimes.model.target import SyncTarget
from chimes.model.validation import check_text
from chimes.services.audit import changes_between, entry
from chimes.services.schedules.prompts import NAMESPACE
from chimes.services.schedules.rules import ScheduleRules, refuse_agents
from chimes.store.port import Planner, ScheduleEdit, Store

Result = TypeVar("Result")

#: A change waits until the due slots before it are fired; after an outage these can be many.
_FIRE_ROUNDS = 100
_FIRE_BATCH = 500
#: With a dispatch cap the wanted schedule can be the last of all due ones.
_FIRE_ALL = 100_000
#: Verbs that start no runs: allowed for agents, and never over a quota.
_STOPPING_VERBS = ("pause", "delete")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleChange:
    """A change as a value, so that it can be applied to one schedule or to many."""

    #: Verb of the audit entry.
    verb: str
    apply: Callable[[Schedule, datetime], Schedule]
    #: Whether the permission to operate is enough; else the permission to write is needed.
    operator_allowed: bool = False
    reason: str = ""
    #: Runs to add in the same transaction. None: those of the slots that the change passes over.
    runs: Callable[[Schedule, datetime], Sequence[Run]] | None = None

    @property
    def stops(self) -> bool:
        return self.verb in _STOPPING_VERBS


class SlotIsDue(Exception):
    """The change would move the cursor past a due slot, which must be fired first."""


class ScheduleEditor:
    def __init__(
        self,
        store: Store,
        rules: ScheduleRules,
        *,
        planner: Planner = plan,
        dispatch_capped: bool = False,
    ) -> None:
        """`planner`, `dispatch_capped`: how the scheduler of the nodes fires."""
        self._store = store
        self._rules = rules
        self._planner = planner
        self._dispatch_capped = dispatch_capped

    async def change(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        change: ScheduleChange,
        *,
        expected_version: int | None = None,
    ) -> Schedule:
        schedule = await self._rules.get_schedule(actor, schedule_id)
        self.check_permission(actor, schedule, change)
        await self._rules.refresh_limits()

        def check_version_and_apply(before: Schedule, now: datetime) -> Schedule:
            if expected_version is not None and before.version != expected_version:
                raise StaleVersion(version=before.version)
            return change.apply(before, now)

        edit = self.build_edit(
            actor,
            schedule,
            replace(change, apply=check_version_and_apply),
            at=await self._store.now(),
        )

        async def attempt() -> Schedule:
            return await self._store.change_schedule(
                schedule_id,
                edit.change,
                edit.audit,
                runs=edit.runs,
                quotas=self._rules.quotas(schedule.owner),
            )

        return await self._fire_and_retry([schedule_id], attempt)

    async def change_together(
        self, actor: Actor, changes: Sequence[tuple[Schedule, ScheduleChange]]
    ) -> tuple[Schedule, ...]:
        """All changes or none, in one transaction that does not check quotas. The caller has
        checked the permissions."""
        now = await self._store.now()
        edits = [self.build_edit(actor, schedule, change, at=now) for schedule, change in changes]
        return await self._fire_and_retry(
            [edit.schedule_id for edit in edits], lambda: self._store.change_schedules(edits)
        )

    def check_permission(self, actor: Actor, schedule: Schedule, change: ScheduleChange) -> None:
        allowed = actor.may_operate if change.operator_allowed else actor.may_write
        if not allowed(schedule.owner):
            raise NotAllowed()
        if not change.stops:
            refuse_agents(actor, schedule.target)

    def build_edit(
        self, actor: Actor, schedule: Schedule, change: ScheduleChange, *, at: datetime
    ) -> ScheduleEdit:
        """The change with its audit entry and the runs of the slots that it passes over."""
        audit_changes: dict[str, object] = {}
        passed_runs: list[Run] = []

        def apply(before: Schedule, now: datetime) -> Schedule:
            after = change.apply(before, now)
            passed_runs.clear()
            if change.runs is None and after.next_slot != before.next_slot:
                passed_runs.extend(
                    runs_for_passed_slot(
                        before, after, now, postponed=self._is_postponed(before, after)
                    )
                )
            # Only here, inside the store's transaction, both versions are known.
            audit_changes.clear()
            audit_changes.update(changes_between(before, after))
            return after

        audit = entry(
            actor,
            change.verb,
            "schedule",
            schedule.id,
            at=at,
            owner=schedule.owner,
            changes=audit_changes,
            reason=change.reason,
        )
        return ScheduleEdit(
            schedule_id=schedule.id,
            change=apply,
            audit=audit,
            runs=change.runs or (lambda before, now: passed_runs),
        )

    async def _fire_and_retry(
        self, schedule_ids: Sequence[ScheduleId], attempt: Callable[[], Awaitable[Result]]
    ) -> Result:
        """Fires the due slots that the change would pass over, then tries the change again."""
        for _round in range(_FIRE_ROUNDS):
            try:
                return await attempt()
            except SlotIsDue:
                await self._fire(schedule_ids)
        raise StoreUnavailable(_("the schedule is busy; try again"))

    def _is_postponed(self, before: Schedule, after: Schedule) -> bool:
        """Whether the nodes do not fire the due slot now, so that a change must not fire it."""
        if self._planner is not plan and before.namespace == NAMESPACE:
            return True
        return self._dispatch_capped and not after.enabled

    async def _fire(self, schedule_ids: Sequence[ScheduleId]) -> None:
        """Fires due slots. With a dispatch cap only those of these schedules, because the others
        wait for their turn."""

        def plan_only_these(schedule: Schedule, context: FireContext, now: datetime) -> FirePlan:
            if schedule.id not in schedule_ids:
                return FirePlan(schedule=schedule, runs=())
            return self._planner(schedule, context, now)

        if self._dispatch_capped:
            await self._store.fire_due(plan_only_these, limit=_FIRE_ALL)
        else:
            await self._store.fire_due(self._planner, limit=_FIRE_BATCH)


# --- changes --------------------------------------------------------------------------------------
def unchanged(schedule: Schedule) -> Schedule:
    return schedule


def pause_change(
    actor: Actor,
    *,
    note: str = "",
    until: datetime | None = None,
    also: Callable[[Schedule], Schedule] = unchanged,
) -> ScheduleChange:
    """`also`: a further change in the same transaction, for data of a compatibility API."""
    check_text(note, "note")

    def apply(before: Schedule, now: datetime) -> Schedule:
        if until is not None and until <= now:
            raise InvalidInput(_("until is in the past"), field="until", code="in_the_past")
        if not before.enabled and (before.pause_note, before.pause_until) == (note, until):
            return _apply_only(also, before, now, actor.name)
        return also(pause_schedule(before, now, actor.name, note=note, until=until))

    return ScheduleChange(verb="pause", apply=apply, operator_allowed=True, reason=note)


def resume_change(
    actor: Actor, *, also: Callable[[Schedule], Schedule] = unchanged
) -> ScheduleChange:
    """`also` as in `pause_change`."""

    def apply(before: Schedule, now: datetime) -> Schedule:
        if before.enabled:
            return _apply_only(also, before, now, actor.name)
        return also(resume_schedule(before, now, actor.name))

    return ScheduleChange(verb="resume", apply=apply, operator_allowed=True)


def delete_change(
    actor: Actor, check: Callable[[Schedule], None] = lambda schedule: None
) -> ScheduleChange:
    """`check` raises if the schedule, as stored at that moment, must not be deleted."""

    def apply(before: Schedule, now: datetime) -> Schedule:
        check(before)
        return delete_schedule(before, now, actor.name)

    return ScheduleChange(verb="delete", apply=apply)


def _apply_only(
    also: Callable[[Schedule], Schedule], before: Schedule, now: datetime, by: str
) -> Schedule:
    """`before` itself, without a new version, unless `also` changes something."""
    same = apply_edit(before, before, now, by)
    changed = also(same)
    return before if changed == same else changed


# --- slots ----------------------------------------------------------------------------------------
def runs_for_passed_slot(
    before: Schedule, after: Schedule, now: datetime, *, postponed: bool = False
) -> list[Run]:
    """The run of the slot that a change moves the cursor away from, if its instant has passed.

    A slot belongs to the version that was current at its instant, so it must leave a row. A due
    slot is fired first (SlotIsDue). A slot that only waits for its jitter becomes a run that waits
    as long, or a skipped run if the schedule is paused. `postponed`: the nodes do not fire the
    slot yet; it becomes a skipped run.
    """
    slot, due = before.next_slot, before.next_run_at
    if slot is None or due is None or slot > now:
        return []
    if due <= now and not postponed:
        raise SlotIsDue
    run = replace(slot_run(before, slot, now), concurrency_key=None)
    if postponed or not after.enabled:
        return [end_immediately(run, RunStatus.SKIPPED, Reason.PAUSED, now)]
    if isinstance(run.target, SyncTarget):
        # Without its key it could be the second run of its pair; with the key it would be added
        # without a check that the pair is free.
        return [end_immediately(run, RunStatus.SKIPPED, Reason.SKIPPED_BY_HAND, now)]
    return [run]


def require_next_slot(schedule: Schedule) -> datetime:
    if schedule.next_slot is None:
        raise Conflict(_("the schedule has no next run"), code="nothing_planned")
    return schedule.next_slot
