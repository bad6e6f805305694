"""Schedules: create, change, pause, delete, list."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from chimes.errors import ChimesError, Conflict, InvalidInput, NotAllowed, NotFound, StoreError
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner
from chimes.model.audit import AuditEntry
from chimes.model.ids import ScheduleId, new_schedule_id
from chimes.model.listing import AuditQuery, Page, ScheduleQuery, ScheduleSort
from chimes.model.planning import end_immediately, plan, slot_run
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import (
    Schedule,
    apply_edit,
    counts_against,
    due_time,
    has_runs_left,
    move_next_run,
    plan_after,
    plan_overdue,
    reschedule_next,
    restore_schedule,
    skip_next_slot,
)
from chimes.model.target import SyncTarget
from chimes.model.validation import (
    check_id,
    check_text,
    clean_name,
    validate_schedule,
)
from chimes.services.access import QuotaUsage
from chimes.services.audit import changes_between, entry
from chimes.services.schedules.editor import (
    ScheduleChange,
    ScheduleEditor,
    delete_change,
    pause_change,
    require_next_slot,
    resume_change,
    unchanged,
)
from chimes.services.schedules.rules import (
    ScheduleRules,
    apply_run_defaults,
    calculate,
    capability_of,
    check_chats,
    drop_pair_key,
    excludes_holidays,
    fallback_run_defaults,
    switch_run_defaults,
    with_default_zones,
)
from chimes.store.port import Planner, Store

Result = TypeVar("Result")

UPCOMING_LIMIT = 1000
#: How long a deletion can be undone.
RESTORE_WITHIN = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True, slots=True)
class Upcoming:
    schedule: Schedule
    at: datetime


class ScheduleService:
    def __init__(
        self,
        store: Store,
        rules: ScheduleRules,
        *,
        planner: Planner = plan,
        dispatch_capped: bool = False,
    ) -> None:
        """`planner`, `dispatch_capped` as in `ScheduleEditor`."""
        self._store = store
        self.rules = rules
        self._editor = ScheduleEditor(
            store, rules, planner=planner, dispatch_capped=dispatch_capped
        )

    # --- reading ------------------------------------------------------------------------------
    async def get(self, actor: Actor, schedule_id: ScheduleId) -> Schedule:
        return await self.rules.get_schedule(actor, schedule_id)

    async def find(self, actor: Actor, query: ScheduleQuery) -> Page[Schedule]:
        return await self._store.list_schedules(_visible(actor, query))

    async def count(self, actor: Actor, query: ScheduleQuery) -> int:
        return await self._store.count_schedules(_visible(actor, query))

    async def list_upcoming(self, actor: Actor, span: timedelta) -> list[Upcoming]:
        """The fires within `span` from now, soonest first, at most UPCOMING_LIMIT."""
        until = await self._store.now() + span
        query = ScheduleQuery(enabled=True, sort=ScheduleSort.NEXT_RUN_AT, limit=UPCOMING_LIMIT)
        found = (await self.find(actor, query)).items
        return await calculate(
            (each.trigger for each in found), partial(upcoming_fires, found, until)
        )

    async def list_quota_usage(self, owner: Owner) -> list[QuotaUsage]:
        """How much of each of its quotas an owner has used."""
        usage = []
        for quota in self.rules.quotas(owner):
            query = ScheduleQuery(owner=owner, namespace=quota.namespace)
            if quota.active:
                page = await self._store.list_schedules(replace(query, limit=None))
                used = sum(counts_against(each, quota) for each in page.items)
            else:
                used = await self._store.count_schedules(query)
            usage.append(QuotaUsage(quota=quota, used=used))
        return usage

    async def list_changed(
        self,
        actor: Actor,
        verb: str,
        since: datetime,
        until: datetime,
        *,
        before: int | None = None,
        limit: int,
    ) -> tuple[list[ScheduleId], int | None]:
        """The schedules that this actor paused, resumed or deleted in a period, newest first.

        Read from the audit log, one page at a time: the second value is `before` for the next
        page. Entries that changed nothing are left out.
        """
        entries = await self._store.list_audit(
            AuditQuery(
                actor=actor.name,
                interface=actor.interface,
                verb=verb,
                since=since,
                until=until,
                before=before,
                limit=limit,
            )
        )
        ids = [
            ScheduleId(each.object_id)
            for each in entries
            if each.allowed and each.object_kind == "schedule" and _enables_or_disables(each)
        ]
        return list(dict.fromkeys(ids)), entries[-1].number if len(entries) == limit else None

    # --- creating and changing ----------------------------------------------------------------
    def prepare(
        self,
        actor: Actor,
        draft: Schedule,
        now: datetime,
        *,
        zone: str | None = None,
        allow_overdue: bool = False,
    ) -> Schedule:
        """A draft as it would be saved: checked, with id, anchor, first slot and time zone.

        `zone`: for a trigger that names none; None: the system's. `allow_overdue` as in `create`.
        """
        if not actor.may_create(draft.owner):
            raise NotAllowed()
        rules = self.rules
        zone = zone or rules.default_timezone
        schedule = validate_schedule(
            replace(
                draft,
                id=ScheduleId(check_id(draft.id)) if draft.id else new_schedule_id(now),
                trigger=rules.complete_trigger(draft.trigger, None, now, zone),
                policy=with_default_zones(draft.policy, zone, draft.trigger),
                created_at=now,
                updated_at=now,
                created_by=actor.name,
                updated_by=actor.name,
            )
        )
        rules.check_target_allowed(actor, schedule.target, None)
        rules.check_recipients(schedule.policy.delivery)
        rules.check_trigger(
            actor, schedule.owner, schedule.trigger, now, allow_overdue=allow_overdue
        )
        schedule = plan_after(schedule, now)
        return plan_overdue(schedule, now) if allow_overdue else schedule

    async def create(
        self,
        actor: Actor,
        draft: Schedule,
        *,
        explicit_fields: Collection[str] | None = None,
        allow_overdue: bool = False,
    ) -> Schedule:
        """Saves a new schedule; an empty id is generated.

        `explicit_fields`: the policy fields, and `priority`, that the caller chose; the others
        come from the run defaults of the task or flow. None: all of them.
        `allow_overdue`: a `once` trigger in the past is accepted and due at once; otherwise it is
        an error.
        """
        if not actor.may_create(draft.owner):
            raise NotAllowed()
        rules = self.rules
        await rules.refresh_limits()
        defaults = await rules.get_run_defaults(draft.target)
        if explicit_fields is not None and defaults is not None:
            draft = apply_run_defaults(draft, defaults, explicit_fields)
        zone = await rules.zone_for(draft.owner, draft.trigger)
        now = await self._store.now()
        schedule = await calculate(
            [draft.trigger],
            partial(self.prepare, actor, draft, now, zone=zone, allow_overdue=allow_overdue),
        )
        await check_chats(self._store, actor, schedule.policy.delivery)
        await rules.check_name(schedule, None)
        await rules.check_dependency(actor, schedule)
        audit = entry(
            actor,
            "create",
            "schedule",
            schedule.id,
            at=now,
            owner=schedule.owner,
            changes=changes_between(None, schedule),
        )
        return await self._store.add_schedule(schedule, audit, quotas=rules.quotas(schedule.owner))

    async def change(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        edit: Callable[[Schedule], Schedule],
        *,
        expected_version: int | None = None,
        explicit_fields: Collection[str] | None = None,
        allow_overdue: bool = False,
    ) -> Schedule:
        """Saves the definition that `edit` makes from the current one.

        `explicit_fields`, `allow_overdue` as in `create`; the run defaults matter if the target
        changes.
        """
        schedule = await self.get(actor, schedule_id)
        change = await self.prepare_change(
            actor, schedule, edit, explicit_fields=explicit_fields, allow_overdue=allow_overdue
        )
        return await self._editor.change(
            actor, schedule_id, change, expected_version=expected_version
        )

    async def prepare_change(
        self,
        actor: Actor,
        schedule: Schedule,
        edit: Callable[[Schedule], Schedule],
        *,
        explicit_fields: Collection[str] | None = None,
        allow_overdue: bool = False,
    ) -> ScheduleChange:
        """The change that `change` saves, checked as far as possible before the transaction."""
        rules = self.rules
        wanted = edit(schedule)
        apply_defaults = await self._defaults_of_new_target(schedule, wanted, explicit_fields)
        zone = await rules.zone_for(schedule.owner, wanted.trigger)
        if wanted.trigger != schedule.trigger and excludes_holidays(wanted.trigger):
            # `apply` may run on the event loop, where it finds the holidays in the cache.
            now = await self._store.now()
            trigger = rules.complete_trigger(wanted.trigger, schedule.trigger, now, zone)
            with suppress(InvalidInput):
                check = partial(rules.check_trigger, actor, schedule.owner, trigger, now)
                await calculate([trigger], check)

        def apply(before: Schedule, now: datetime) -> Schedule:
            after = drop_pair_key(before, apply_defaults(edit(before)))
            if after == before:
                return before
            after = validate_schedule(after, before)
            if after.target != before.target:
                rules.check_target_allowed(actor, after.target, before.target)
            if after.policy.delivery != before.policy.delivery:
                rules.check_recipients(after.policy.delivery)
                after = replace(after, policy=with_default_zones(after.policy, zone, after.trigger))
            if after.trigger != before.trigger:
                trigger = rules.complete_trigger(after.trigger, before.trigger, now, zone)
                after = replace(after, trigger=trigger)
                if after == before:
                    return before
                if trigger != before.trigger:
                    rules.check_trigger(
                        actor, before.owner, trigger, now, allow_overdue=allow_overdue
                    )
            if after.enabled and not before.enabled:
                after = replace(after, pause_note="", pause_until=None)
            changed = apply_edit(before, after, now, actor.name)
            if allow_overdue and after.trigger != before.trigger:
                return plan_overdue(changed, now)
            return changed

        await check_chats(self._store, actor, wanted.policy.delivery, schedule.policy.delivery)
        await rules.check_name(replace(wanted, name=clean_name(wanted.name)), schedule)
        await rules.check_dependency(actor, wanted)
        return ScheduleChange(verb=_verb_for(schedule, wanted), apply=apply)

    async def _defaults_of_new_target(
        self, schedule: Schedule, wanted: Schedule, explicit_fields: Collection[str] | None
    ) -> Callable[[Schedule], Schedule]:
        """A function that applies the run defaults of another target than the current one."""
        target = schedule.target
        if capability_of(wanted.target) == capability_of(target):
            return unchanged
        defaults = await self.rules.get_run_defaults(wanted.target)
        if explicit_fields is None or (defaults is None and wanted.target.kind != target.kind):
            return unchanged
        old_defaults = await self.rules.get_saved_run_defaults(target)
        new_defaults = defaults or fallback_run_defaults(wanted.target)
        return lambda after: (
            switch_run_defaults(after, target, old_defaults, new_defaults, explicit_fields)
            if capability_of(after.target) == capability_of(wanted.target)
            else after
        )

    async def change_each(
        self,
        actor: Actor,
        schedules: Sequence[Schedule],
        prepare: Callable[[Schedule], Awaitable[ScheduleChange]],
    ) -> list[Schedule | ChimesError]:
        """Applies a change to each schedule independently: the changed schedule or the error of
        each, in order.

        Tries one transaction for all, and single ones only if that is refused. StoreError is
        raised; the call can then be repeated.
        """
        await self.rules.refresh_limits()
        editor = self._editor

        async def prepare_allowed(schedule: Schedule) -> ScheduleChange:
            change = await prepare(schedule)
            editor.check_permission(actor, schedule, change)
            return change

        results: dict[ScheduleId, Schedule | ChimesError] = {}
        changes: dict[ScheduleId, ScheduleChange] = {}
        together: list[tuple[Schedule, ScheduleChange]] = []
        for schedule in schedules:
            change = await _result_or_error(prepare_allowed(schedule))
            if isinstance(change, ChimesError):
                results[schedule.id] = change
                continue
            changes[schedule.id] = change
            if not self._needs_quota_check(schedule, change):
                together.append((schedule, change))
        if together:
            changed = await _result_or_error(editor.change_together(actor, together))
            if not isinstance(changed, ChimesError):
                results |= {schedule.id: schedule for schedule in changed}
        for schedule_id, change in changes.items():
            if schedule_id not in results:
                results[schedule_id] = await _result_or_error(
                    editor.change(actor, schedule_id, change)
                )
        return [results[schedule.id] for schedule in schedules]

    def _needs_quota_check(self, schedule: Schedule, change: ScheduleChange) -> bool:
        """Whether the change may make the schedule count against a quota of active schedules; a
        transaction for many schedules does not check quotas."""
        return not change.stops and any(
            quota.active and quota.namespace in (None, schedule.namespace)
            for quota in self.rules.quotas(schedule.owner)
        )

    async def pause(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        note: str = "",
        until: datetime | None = None,
        also: Callable[[Schedule], Schedule] = unchanged,
    ) -> Schedule:
        """`also` as in `pause_change`."""
        change = pause_change(actor, note=note, until=until, also=also)
        return await self._editor.change(actor, schedule_id, change)

    async def resume(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        also: Callable[[Schedule], Schedule] = unchanged,
    ) -> Schedule:
        """`also` as in `pause_change`."""
        return await self._editor.change(actor, schedule_id, resume_change(actor, also=also))

    # --- deleting -----------------------------------------------------------------------------
    async def delete(
        self, actor: Actor, schedule_id: ScheduleId, *, expected_version: int | None = None
    ) -> Schedule:
        return await self._editor.change(
            actor, schedule_id, delete_change(actor), expected_version=expected_version
        )

    async def delete_all(
        self,
        actor: Actor,
        schedule_ids: Sequence[ScheduleId],
        *,
        check: Callable[[Schedule], None] = lambda schedule: None,
    ) -> tuple[Schedule, ...]:
        """Deletes all of them or none. `check` raises for a schedule that must not be deleted; it
        is called in the order given, and again inside the transaction."""
        schedules: list[Schedule] = []
        for schedule_id in dict.fromkeys(schedule_ids):
            schedules.append(await self.get(actor, schedule_id))
            check(schedules[-1])
        change = delete_change(actor, check)
        for schedule in schedules:
            self._editor.check_permission(actor, schedule, change)
        return await self._editor.change_together(actor, [(each, change) for each in schedules])

    async def restore(self, actor: Actor, schedule_id: ScheduleId) -> Schedule:
        """Undoes a deletion within RESTORE_WITHIN; runs that it canceled stay canceled. NotFound
        after that."""
        schedule = await self._store.get_schedule(schedule_id)
        now = await self._store.now()
        if schedule is None or not _restorable(actor, schedule, now):
            raise NotFound(_("schedule {id} not found", id=schedule_id))
        if not actor.may_write(schedule.owner):
            raise NotAllowed()
        await self.rules.refresh_limits()
        await self.rules.check_name(schedule, None)
        deletions = await self._store.list_audit(
            AuditQuery(object_id=schedule_id, verb="delete", limit=1)
        )
        was_enabled = bool(deletions) and deletions[0].changes.get("enabled") == [True, False]

        def apply(before: Schedule, now: datetime) -> Schedule:
            if before.deleted_at is None:
                raise Conflict(_("the schedule is not deleted"), code="not_deleted")
            return restore_schedule(before, now, actor.name, enabled=was_enabled)

        change = ScheduleChange(verb="restore", apply=apply)
        edit = self._editor.build_edit(actor, schedule, change, at=now)
        return await self._store.change_schedule(
            schedule_id,
            edit.change,
            edit.audit,
            quotas=self.rules.quotas(schedule.owner),
            deleted=True,
        )

    # --- the next slot ------------------------------------------------------------------------
    async def skip(self, actor: Actor, schedule_id: ScheduleId, *, reason: str = "") -> Schedule:
        """Skips the next slot; it gets a skipped run at once."""
        check_text(reason, "reason")

        def runs(before: Schedule, now: datetime) -> Sequence[Run]:
            run = slot_run(before, require_next_slot(before), now)
            return [end_immediately(run, RunStatus.SKIPPED, Reason.SKIPPED_BY_HAND, now)]

        def apply(before: Schedule, now: datetime) -> Schedule:
            require_next_slot(before)
            return skip_next_slot(before, now, actor.name)

        change = ScheduleChange(
            verb="skip", apply=apply, operator_allowed=True, reason=reason, runs=runs
        )
        return await self._editor.change(actor, schedule_id, change)

    async def move(self, actor: Actor, schedule_id: ScheduleId, to: datetime) -> Schedule:
        """Executes the next slot at `to`; the slot keeps its identity.

        The cursor cannot wait beyond the following slot: then the run is added now and becomes
        available at `to` (ADR 4). Not for a sync target, whose pair would stay locked until then.
        """

        def is_beyond_following(before: Schedule) -> bool:
            following = before.trigger.next_after(require_next_slot(before))
            beyond = following is not None and to >= following
            if beyond and isinstance(before.target, SyncTarget):
                raise Conflict(
                    _("a sync task cannot be moved beyond its following slot"), code="slot_taken"
                )
            return beyond

        def runs(before: Schedule, now: datetime) -> Sequence[Run]:
            if not is_beyond_following(before):
                return []
            run = slot_run(before, require_next_slot(before), now)
            return [replace(run, planned_at=to, available_at=to, concurrency_key=None)]

        def apply(before: Schedule, now: datetime) -> Schedule:
            if is_beyond_following(before):
                after = skip_next_slot(before, now, actor.name)
                return replace(after, fired_count=before.fired_count + 1)
            return move_next_run(before, to, now, actor.name)

        change = ScheduleChange(verb="move", apply=apply, operator_allowed=True, runs=runs)
        return await self._editor.change(actor, schedule_id, change)

    async def reschedule(self, actor: Actor, schedule_id: ScheduleId, to: datetime) -> Schedule:
        """Makes `to` the next slot; a time in the past means now."""

        def apply(before: Schedule, now: datetime) -> Schedule:
            if not before.enabled:
                raise Conflict(_("the schedule is paused; resume it first"), code="paused")
            if not has_runs_left(before):
                raise Conflict(_("the schedule has reached max_runs"), code="used_up")
            return reschedule_next(before, to, now, actor.name)

        change = ScheduleChange(verb="reschedule", apply=apply, operator_allowed=True)
        return await self._editor.change(actor, schedule_id, change)


def upcoming_fires(
    schedules: Iterable[Schedule], until: datetime, *, limit: int = UPCOMING_LIMIT
) -> list[Upcoming]:
    """The fires until `until`, soonest first. Computes at most `limit` fires."""
    heap = [
        (schedule.next_run_at, schedule.id, schedule.next_slot, schedule)
        for schedule in schedules
        if schedule.next_run_at is not None and schedule.next_slot is not None
    ]
    heapq.heapify(heap)
    fires: list[Upcoming] = []
    fired: Counter[str] = Counter()
    while heap and heap[0][0] <= until and len(fires) < limit:
        at, schedule_id, slot, schedule = heap[0]
        fires.append(Upcoming(schedule=schedule, at=at))
        fired[schedule_id] += 1
        following = schedule.trigger.next_after(slot)
        due = due_time(schedule, following)
        if following is None or due is None or not has_runs_left(schedule, fired[schedule_id]):
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (due, schedule_id, following, schedule))
    return fires


async def _result_or_error(action: Awaitable[Result]) -> Result | ChimesError:
    """StoreError is raised: it says nothing about the schedule."""
    try:
        return await action
    except StoreError:
        raise
    except ChimesError as error:
        return error


def _verb_for(before: Schedule, after: Schedule) -> str:
    """A change of `enabled` alone is audited as pause or resume."""
    if before.enabled == after.enabled or replace(after, enabled=before.enabled) != before:
        return "update"
    return "resume" if after.enabled else "pause"


def _enables_or_disables(audit: AuditEntry) -> bool:
    return audit.verb == "delete" or "enabled" in audit.changes


def _restorable(actor: Actor, schedule: Schedule, now: datetime) -> bool:
    if not actor.may_see(schedule.owner):
        return False
    return schedule.deleted_at is None or schedule.deleted_at + RESTORE_WITHIN > now


def _visible(actor: Actor, query: ScheduleQuery) -> ScheduleQuery:
    return query if actor.sees_everything else replace(query, owner=actor.owner)
