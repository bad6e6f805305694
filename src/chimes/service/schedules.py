"""What can be done with schedules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from chimes.errors import (
    Conflict,
    NotAllowed,
    NotFound,
)
from chimes.model.access import Actor, Owner
from chimes.model.ids import ScheduleId, new_schedule_id
from chimes.model.listing import AuditQuery, Page, ScheduleQuery, ScheduleSort
from chimes.model.planning import ended_at_once, slot_run
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import (
    Schedule,
    brought_back,
    counts_against,
    moved,
    passed,
    planned,
    rescheduled,
    runs_left,
    with_overdue,
)
from chimes.model.target import SyncTarget
from chimes.service.audit import changes_between, entry
from chimes.service.quotas import QuotaUse
from chimes.service.recipients import check_chats, zoned
from chimes.service.rules import (
    checked,
    checked_id,
    checked_text,
)
from chimes.service.schedule_acts import ScheduleActs, as_it_is, deleting, pausing, resuming
from chimes.service.schedule_changes import Limits
from chimes.service.slots import (
    UPCOMING_LIMIT,
    Upcoming,
    planned_slot,
    upcoming_fires,
)
from chimes.service.targets import (
    started_as,
)
from chimes.wording import say

__all__ = ["RESTORE_WITHIN", "Limits", "ScheduleService"]

#: How long a deletion can be undone (UX A.0).
RESTORE_WITHIN = timedelta(minutes=10)


class ScheduleService(ScheduleActs):
    # --- reading ------------------------------------------------------------------------------
    async def find(self, actor: Actor, query: ScheduleQuery) -> Page[Schedule]:
        return await self._store.list_schedules(_visible(actor, query))

    async def count(self, actor: Actor, query: ScheduleQuery) -> int:
        return await self._store.count_schedules(_visible(actor, query))

    async def upcoming(self, actor: Actor, span: timedelta) -> list[Upcoming]:
        """The fires of the next `span`, soonest first, at most UPCOMING_LIMIT of them."""
        until = await self._store.now() + span
        query = ScheduleQuery(enabled=True, sort=ScheduleSort.NEXT_RUN_AT, limit=UPCOMING_LIMIT)
        return upcoming_fires((await self.find(actor, query)).items, until)

    async def quota_use(self, owner: Owner) -> list[QuotaUse]:
        """How much of each of its quotas an owner has used."""
        found = []
        for quota in self._limits().quotas(owner):
            query = ScheduleQuery(owner=owner, namespace=quota.namespace)
            if quota.active:
                page = await self._store.list_schedules(replace(query, limit=None))
                used = sum(counts_against(each, quota) for each in page.items)
            else:
                used = await self._store.count_schedules(query)
            found.append(QuotaUse(quota=quota, used=used))
        return found

    # --- making and changing ------------------------------------------------------------------
    def prepared(
        self,
        actor: Actor,
        draft: Schedule,
        now: datetime,
        *,
        zone: str | None = None,
        overdue: bool = False,
    ) -> Schedule:
        """A draft as it would be saved: checked, with its anchor, its first slot, and a zone, which
        is that of the system unless told. `overdue` as in `create`."""
        if not actor.may_create(draft.owner):
            raise NotAllowed()
        schedule = checked(
            replace(
                draft,
                id=ScheduleId(checked_id(draft.id)) if draft.id else new_schedule_id(now),
                trigger=self._settled_trigger(
                    draft.trigger, None, now, zone or self._default_timezone
                ),
                policy=zoned(draft.policy, zone or self._default_timezone, draft.trigger),
                created_at=now,
                updated_at=now,
                created_by=actor.name,
                updated_by=actor.name,
            )
        )
        self._target_allowed(actor, schedule.target, None)
        self._check_recipients(schedule.policy.delivery)
        self._check_trigger(actor, schedule.owner, schedule.trigger, now, overdue=overdue)
        return with_overdue(planned(schedule, now), now) if overdue else planned(schedule, now)

    async def create(
        self,
        actor: Actor,
        draft: Schedule,
        *,
        said: Collection[str] | None = None,
        overdue: bool = False,
    ) -> Schedule:
        """An empty id is made here (R3.30); one that the client sent is kept. `said`: the fields
        of the policy, and `priority`, that the caller chose, the others being as the task or flow
        has them itself; None: all. `overdue`: a single moment that has passed is taken, and is due
        at once; otherwise it is refused (T14)."""
        if not actor.may_create(draft.owner):
            raise NotAllowed()
        await self._look()
        defaults = await self.defaults_of(draft.target)
        if said is not None and defaults is not None:
            draft = started_as(draft, defaults, said)
        zone = await self.zone_for(draft.owner, draft.trigger)
        now = await self._store.now()
        schedule = self.prepared(actor, draft, now, zone=zone, overdue=overdue)
        await check_chats(self._store, actor, schedule.policy.delivery)
        await self._check_name(schedule, None)
        await self._check_dependency(actor, schedule)
        note = entry(
            actor,
            "create",
            "schedule",
            schedule.id,
            at=now,
            owner=schedule.owner,
            changes=changes_between(None, schedule),
        )
        quotas = self._limits().quotas(schedule.owner)
        return await self._store.add_schedule(schedule, note, quotas=quotas)

    async def change(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        edit: Callable[[Schedule], Schedule],
        *,
        expected_version: int | None = None,
        said: Collection[str] | None = None,
        overdue: bool = False,
    ) -> Schedule:
        """`edit` makes the new definition from the old one; what it leaves equal is untouched.
        `said` as in `create`: another task or flow brings along what it says about itself; so is
        `overdue`."""
        seen = await self.get(actor, schedule_id)
        act = await self.editing(actor, seen, edit, said=said, overdue=overdue)
        return await self._acted(actor, schedule_id, act, version=expected_version)

    async def delete(
        self, actor: Actor, schedule_id: ScheduleId, *, expected_version: int | None = None
    ) -> Schedule:
        return await self._acted(actor, schedule_id, deleting(actor), version=expected_version)

    async def restore(self, actor: Actor, schedule_id: ScheduleId) -> Schedule:
        """A schedule that was deleted within RESTORE_WITHIN, as it was; runs that waited then stay
        canceled. NotFound after that, and for what others own."""
        seen = await self._store.get_schedule(schedule_id)
        now = await self._store.now()
        if seen is None or not _restorable(actor, seen, now):
            raise NotFound(say("schedule {id} not found", id=schedule_id))
        if not actor.may_write(seen.owner):
            raise NotAllowed()
        await self._look()
        await self._check_name(seen, None)
        notes = await self._store.list_audit(
            AuditQuery(object_id=schedule_id, verb="delete", limit=1)
        )
        was_on = bool(notes) and notes[0].changes.get("enabled") == [True, False]

        def apply(before: Schedule, now: datetime) -> Schedule:
            if before.deleted_at is None:
                raise Conflict(say("the schedule is there already"), code="not_deleted")
            return brought_back(before, now, actor.name, enabled=was_on)

        edit = self._edit(actor, seen, "restore", apply, now)
        return await self._store.change_schedule(
            schedule_id,
            edit.change,
            edit.audit,
            quotas=self._limits().quotas(seen.owner),
            deleted=True,
        )

    async def pause(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        note: str = "",
        until: datetime | None = None,
        also: Callable[[Schedule], Schedule] = as_it_is,
    ) -> Schedule:
        """`also`: what the door keeps of it changes with it."""
        return await self._acted(
            actor, schedule_id, pausing(actor, note=note, until=until, also=also)
        )

    async def resume(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        also: Callable[[Schedule], Schedule] = as_it_is,
    ) -> Schedule:
        """`also` as in `pause`."""
        return await self._acted(actor, schedule_id, resuming(actor, also=also))

    # --- the next slot ------------------------------------------------------------------------
    async def skip(self, actor: Actor, schedule_id: ScheduleId, *, reason: str = "") -> Schedule:
        """The next slot gets its record at once: skipped by hand."""
        checked_text(reason, "reason")

        def row(before: Schedule, now: datetime) -> Sequence[Run]:
            slot = planned_slot(before)
            run = slot_run(before, slot, now)
            return [ended_at_once(run, RunStatus.SKIPPED, Reason.SKIPPED_BY_HAND, now)]

        def apply(before: Schedule, now: datetime) -> Schedule:
            planned_slot(before)
            return passed(before, now, actor.name)

        return await self._change(actor, schedule_id, "skip", apply, reason=reason, runs=row)

    async def move(self, actor: Actor, schedule_id: ScheduleId, to: datetime) -> Schedule:
        """The next slot is carried out at `to` and keeps its identity. Beyond the slot after it
        the cursor cannot wait: then its run is made now, to begin then (ADR 4). Not a task: it
        would keep its pair busy until then (R4.18)."""

        def ahead(before: Schedule) -> bool:
            following = before.trigger.next_after(planned_slot(before))
            beyond = following is not None and to >= following
            if beyond and isinstance(before.target, SyncTarget):
                raise Conflict(
                    say("a sync task cannot be moved beyond the slot after it"), code="slot_taken"
                )
            return beyond

        def row(before: Schedule, now: datetime) -> Sequence[Run]:
            if not ahead(before):
                return []
            run = slot_run(before, planned_slot(before), now)
            return [replace(run, planned_at=to, available_at=to, concurrency_key=None)]

        def apply(before: Schedule, now: datetime) -> Schedule:
            if ahead(before):
                after = passed(before, now, actor.name)
                return replace(after, fired_count=before.fired_count + 1)
            return moved(before, to, now, actor.name)

        return await self._change(actor, schedule_id, "move", apply, runs=row)

    async def reschedule(self, actor: Actor, schedule_id: ScheduleId, to: datetime) -> Schedule:
        """The next slot is `to`; the past means now (R2.22, C8)."""

        def apply(before: Schedule, now: datetime) -> Schedule:
            if not before.enabled:
                raise Conflict(say("the schedule is paused; resume it first"), code="paused")
            if not runs_left(before):
                raise Conflict(say("the schedule has had all its runs (max_runs)"), code="used_up")
            return rescheduled(before, to, now, actor.name)

        return await self._change(actor, schedule_id, "reschedule", apply)


def _restorable(actor: Actor, schedule: Schedule, now: datetime) -> bool:
    if not actor.may_see(schedule.owner):
        return False
    return schedule.deleted_at is None or schedule.deleted_at + RESTORE_WITHIN > now


def _visible(actor: Actor, query: ScheduleQuery) -> ScheduleQuery:
    return query if actor.sees_everything else replace(query, owner=actor.owner)
