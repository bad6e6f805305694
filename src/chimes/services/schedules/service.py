"""Schedules: list, create, change, pause, delete.

A change is written together with its audit entry and the runs of the slots that it passes over;
due slots are fired first (ADR 11).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Final, TypeVar

from chimes.errors import (
    AlreadyExists,
    ChimesError,
    Conflict,
    InvalidInput,
    NotAllowed,
    NotFound,
    StaleVersion,
    StoreError,
    StoreUnavailable,
)
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import ScheduleId, declared_id, new_schedule_id
from chimes.model.listing import AuditQuery, Page, ScheduleQuery, ScheduleSort
from chimes.model.planning import FireContext, FirePlan, Planner, end_immediately, plan, slot_run
from chimes.model.policy import PRIORITY, Overlap
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import (
    UPCOMING_LIMIT,
    Schedule,
    Upcoming,
    apply_edit,
    clear_source_marker,
    counts_against,
    delete_schedule,
    has_runs_left,
    move_next_run,
    pause_schedule,
    plan_after,
    plan_overdue,
    reschedule_next,
    restore_schedule,
    resume_schedule,
    skip_next_slot,
    upcoming_fires,
)
from chimes.model.target import SyncTarget
from chimes.model.validation import (
    NAME_LIMIT,
    check_id,
    check_text,
    clean_name,
    validate_schedule,
)
from chimes.redaction import mask_secrets
from chimes.services.access import QuotaUsage
from chimes.services.calendars import newer_contents
from chimes.services.schedules.prompts import NAMESPACE
from chimes.services.schedules.rules import (
    ScheduleRules,
    apply_run_defaults,
    calculate,
    capability_of,
    check_chats,
    drop_pair_key,
    excludes_holidays,
    fallback_run_defaults,
    refuse_agents,
    switch_run_defaults,
    with_default_zones,
)
from chimes.services.secrets import names_used
from chimes.store.codec.values import schedule_to_plain
from chimes.store.port import ScheduleEdit, Store
from chimes.triggers import NamedCalendar, Webhook

_log = logging.getLogger("chimes.schedules")

Result = TypeVar("Result")

#: How long a deletion can be undone.
RESTORE_WITHIN = timedelta(minutes=10)
#: Schedules of one name that are listed.
SAME_NAME_LIMIT = 20
NONE_PLANNED: Final[Mapping[ScheduleId, Schedule]] = MappingProxyType({})
#: The end of the name of a copy.
_COPY_NUMBER = re.compile(r" \([0-9]{1,6}\)$")
#: A change waits until the due slots before it are fired; after an outage these can be many.
_FIRE_ROUNDS = 100
_FIRE_BATCH = 500
#: With a dispatch cap the wanted schedule can be the last of all due ones.
_FIRE_ALL = 100_000
#: How long a canceled `write_set` waits until what it created is deleted.
_UNDO_SECONDS = 10
OVERLAP = "overlap"
#: Verbs that start no runs: allowed for agents, and never over a quota.
_STOPPING_VERBS = ("pause", "delete")
#: Schedules that a plan or forecast takes into account.
MAX_VISIBLE = 20_000
#: Fields that every fire or run changes.
_BOOKKEEPING = frozenset(
    {"version", "updated_at", "updated_by", "last_slot", "last_enqueued_at", "fired_count"}
)


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


class ScheduleService:
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
        self.rules = rules
        self._planner = planner
        self._dispatch_capped = dispatch_capped
        #: Referenced, so that they are not collected before they end.
        self._tasks: set[asyncio.Task[None]] = set()

    # --- reading ------------------------------------------------------------------------------
    async def get(self, actor: Actor, schedule_id: ScheduleId) -> Schedule:
        return await self.rules.get_schedule(actor, schedule_id)

    async def find(self, actor: Actor, query: ScheduleQuery) -> Page[Schedule]:
        return await self._store.list_schedules(_visible(actor, query))

    async def count(self, actor: Actor, query: ScheduleQuery) -> int:
        return await self._store.count_schedules(_visible(actor, query))

    async def list_visible(self, actor: Actor) -> tuple[Schedule, ...]:
        """The schedules that fire, or will after their pause, and that the actor may see; those
        that run next come first, and at most MAX_VISIBLE."""
        query = ScheduleQuery(sort=ScheduleSort.NEXT_RUN_AT, limit=MAX_VISIBLE)
        found = (await self.find(actor, query)).items
        return tuple(each for each in found if each.enabled or each.pause_until is not None)

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
        schedule_id = ScheduleId(check_id(draft.id)) if draft.id else new_schedule_id(now)
        schedule = validate_schedule(
            replace(
                draft,
                id=schedule_id,
                trigger=rules.complete_trigger(draft.trigger, None, zone, schedule_id),
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
        schedule = await self.prepare_create(
            actor, draft, explicit_fields=explicit_fields, allow_overdue=allow_overdue
        )
        return await self._add(actor, schedule)

    async def prepare_create(
        self,
        actor: Actor,
        draft: Schedule,
        *,
        explicit_fields: Collection[str] | None = None,
        allow_overdue: bool = False,
        planned: Mapping[ScheduleId, Schedule] = NONE_PLANNED,
    ) -> Schedule:
        """The schedule that `create` saves, after all checks. `planned` as in
        `ScheduleRules.check_dependency`."""
        if not actor.may_create(draft.owner):
            raise NotAllowed()
        rules = self.rules
        await rules.refresh_limits()
        if explicit_fields is None or PRIORITY in explicit_fields:
            rules.check_priority_allowed(actor, draft.owner, draft.priority, draft.target)
        defaults = await rules.get_run_defaults(draft.target, allow_missing=True)
        if explicit_fields is not None and defaults is not None:
            draft = apply_run_defaults(draft, defaults, explicit_fields)
        if draft.trigger.on_event and explicit_fields is not None:
            draft = queue_events(draft, explicit_fields)
        draft = replace(draft, trigger=await rules.calendars.resolve(draft.trigger))
        zone = await rules.zone_for(draft.owner, draft.trigger)
        now = await self._store.now()
        schedule = await calculate(
            [draft.trigger],
            partial(self.prepare, actor, draft, now, zone=zone, allow_overdue=allow_overdue),
        )
        await rules.check_secrets(actor, schedule.owner, schedule.target, schedule.policy.delivery)
        declared = () if defaults is None else defaults.policy.limits
        if schedule.policy.limits:
            await rules.limits.check_names(schedule.owner, schedule.policy.limits, declared)
        await check_chats(self._store, actor, schedule.policy.delivery)
        await rules.check_name(schedule, None)
        await rules.check_dependency(actor, schedule, planned)
        return schedule

    async def _add(self, actor: Actor, schedule: Schedule) -> Schedule:
        audit = entry(
            actor,
            "create",
            "schedule",
            schedule.id,
            at=schedule.created_at,
            owner=schedule.owner,
            changes=_changes_between(None, schedule),
        )
        quotas = self.rules.quotas(schedule.owner)
        added = await self._store.add_schedule(schedule, audit, quotas=quotas)
        return await self._with_current_calendars(actor, added)

    async def use_calendars(
        self, actor: Actor, schedule: Schedule, known: Mapping[str, NamedCalendar]
    ) -> Schedule:
        """Gives a schedule newer contents of its named calendars, and plans it again from now. A
        schedule that then never fires stays, without a next run."""

        def apply(before: Schedule, now: datetime) -> Schedule:
            contents = newer_contents(before.trigger, known)
            trigger = before.trigger.with_calendars(contents)
            if trigger == before.trigger:
                return before
            return apply_edit(before, replace(before, trigger=trigger), now, actor.name)

        change = ScheduleChange(verb="calendar", apply=apply)
        return await self._write(actor, schedule.id, change)

    async def _with_current_calendars(self, actor: Actor, schedule: Schedule) -> Schedule:
        """A calendar may have changed between the reading of its contents and the writing of the
        schedule, too early for the change to find the schedule."""
        if not await self.rules.calendars.is_outdated(schedule):
            return schedule
        known = await self.rules.calendars.known(schedule.trigger.calendar_names())
        return await self.use_calendars(actor, schedule, known)

    async def duplicate(
        self, actor: Actor, schedule_id: ScheduleId, *, name: str = "", paused: bool = False
    ) -> Schedule:
        """Creates a copy with all fields, secrets included, under a new id. An empty name is made
        from that of the original. Needs the right to change the original: a copy could send its
        secrets elsewhere."""
        schedule = await self.get(actor, schedule_id)
        if not actor.may_write(schedule.owner):
            raise NotAllowed()
        now = await self._store.now()
        copy = Schedule(
            id=ScheduleId(""),
            namespace=schedule.namespace,
            name=name or await self._free_name(schedule),
            owner=schedule.owner,
            trigger=schedule.trigger,
            target=schedule.target,
            policy=schedule.policy,
            priority=schedule.priority,
            labels=schedule.labels,
            enabled=schedule.enabled and not paused,
            depends_on=schedule.depends_on,
            compat_data=clear_source_marker(schedule).compat_data,
            created_at=now,
            updated_at=now,
        )
        return await self.create(actor, copy)

    async def _free_name(self, schedule: Schedule) -> str:
        """`NAME (2)`, or the next number that the owner does not use."""
        base = _COPY_NUMBER.sub("", schedule.name)
        for number in count(2):
            suffix = f" ({number})"
            name = base[: NAME_LIMIT - len(suffix)] + suffix
            if not await self.find_same_name(replace(schedule, name=name), stored=False):
                return name
        raise AssertionError("count never ends")

    async def find_same_name(
        self, schedule: Schedule, *, stored: bool = True
    ) -> tuple[Schedule, ...]:
        """Other schedules of the owner with this name in the namespace, at most SAME_NAME_LIMIT.
        `stored`: whether the schedule itself is in the store under this name."""
        query = ScheduleQuery(
            owner=schedule.owner, namespace=schedule.namespace, name=schedule.name
        )
        if await self._store.count_schedules(query) <= int(stored):
            return ()
        page = await self._store.list_schedules(replace(query, limit=SAME_NAME_LIMIT + 1))
        own = schedule.id if stored else None
        return tuple(each for each in page.items if each.id != own)[:SAME_NAME_LIMIT]

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
        changed = await self._write(actor, schedule_id, change, expected_version=expected_version)
        return await self._with_current_calendars(actor, changed)

    async def prepare_change(
        self,
        actor: Actor,
        schedule: Schedule,
        edit: Callable[[Schedule], Schedule],
        *,
        explicit_fields: Collection[str] | None = None,
        allow_overdue: bool = False,
        planned: Mapping[ScheduleId, Schedule] = NONE_PLANNED,
    ) -> ScheduleChange:
        """The change that `change` saves. Checks that need no transaction are made here. `planned`
        as in `ScheduleRules.check_dependency`."""
        rules = self.rules
        wanted = edit(schedule)
        calendars = await self._changed_calendars(schedule, wanted)
        wanted = replace(wanted, trigger=wanted.trigger.with_calendars(calendars))
        apply_defaults = await self._defaults_of_new_target(schedule, wanted, explicit_fields)
        zone = await rules.zone_for(schedule.owner, wanted.trigger)
        if wanted.trigger != schedule.trigger and excludes_holidays(wanted.trigger):
            # `apply` may run on the event loop, where it finds the holidays in the cache.
            now = await self._store.now()
            trigger = rules.complete_trigger(wanted.trigger, schedule.trigger, zone, schedule.id)
            with suppress(InvalidInput):
                check = partial(rules.check_trigger, actor, schedule.owner, trigger, now)
                await calculate([trigger], check)

        def apply(before: Schedule, now: datetime) -> Schedule:
            edited = edit(before)
            after = drop_pair_key(before, apply_defaults(edited))
            if after == before:
                return before
            if edited.priority != before.priority:
                rules.check_priority_allowed(actor, before.owner, edited.priority, after.target)
            after = validate_schedule(after, before)
            if after.target != before.target:
                rules.check_target_allowed(actor, after.target, before.target)
            if after.policy.delivery != before.policy.delivery:
                rules.check_recipients(after.policy.delivery)
                after = replace(after, policy=with_default_zones(after.policy, zone, after.trigger))
            if after.trigger != before.trigger:
                trigger = rules.complete_trigger(
                    after.trigger.with_calendars(calendars), before.trigger, zone, before.id
                )
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

        await rules.check_secrets(
            actor, wanted.owner, wanted.target, wanted.policy.delivery, names_used(schedule)
        )
        await rules.limits.check_names(wanted.owner, wanted.policy.limits, schedule.policy.limits)
        await check_chats(self._store, actor, wanted.policy.delivery, schedule.policy.delivery)
        await rules.check_name(replace(wanted, name=clean_name(wanted.name)), schedule)
        await rules.check_dependency(actor, wanted, planned)
        return ScheduleChange(verb=_verb_for(schedule, wanted), apply=apply)

    async def _changed_calendars(
        self, schedule: Schedule, wanted: Schedule
    ) -> dict[str, NamedCalendar]:
        """The contents of the calendars of the wanted trigger, if it is another one."""
        if wanted.trigger == schedule.trigger:
            return schedule.trigger.calendars()
        return (await self.rules.calendars.resolve(wanted.trigger)).calendars()

    async def _defaults_of_new_target(
        self, schedule: Schedule, wanted: Schedule, explicit_fields: Collection[str] | None
    ) -> Callable[[Schedule], Schedule]:
        """A function that applies the run defaults of another target than the current one."""
        target = schedule.target
        if capability_of(wanted.target) == capability_of(target):
            return unchanged
        defaults = await self.rules.get_run_defaults(wanted.target, allow_missing=True)
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

        async def prepare_allowed(schedule: Schedule) -> ScheduleChange:
            change = await prepare(schedule)
            check_permission(actor, schedule, change)
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
            changed = await _result_or_error(self._write_together(actor, together))
            if not isinstance(changed, ChimesError):
                results |= {schedule.id: schedule for schedule in changed}
        for schedule_id, change in changes.items():
            if schedule_id not in results:
                results[schedule_id] = await _result_or_error(
                    self._write(actor, schedule_id, change)
                )
        return [results[schedule.id] for schedule in schedules]

    async def write_set(
        self,
        actor: Actor,
        new: Sequence[Schedule],
        changes: Sequence[tuple[Schedule, ScheduleChange]],
    ) -> None:
        """Saves schedules of `prepare_create`, and changes of schedules that must still have the
        version given here.

        All changes are one transaction, or none is made. Creations come before them, one by one,
        and are deleted again if a later step fails or the caller is canceled; only a process that
        ends in between leaves some of them. The caller has checked that the changes exceed no
        quota.
        """
        for schedule, change in changes:
            check_permission(actor, schedule, change)
        canceled = asyncio.Event()

        async def write() -> None:
            created: list[Schedule] = []
            try:
                for each in new:
                    created.append(await self._add(actor, each))
                    if canceled.is_set():
                        raise asyncio.CancelledError
                if changes:
                    await self._write_together(
                        actor,
                        [(each, _if_version(change, each.version)) for each, change in changes],
                    )
            except BaseException:
                await self._delete_created(actor, created)
                raise

        # A task of its own: a step that has begun is completed, so that its result is known.
        task = asyncio.create_task(write())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            canceled.set()
            await asyncio.wait([task], timeout=_UNDO_SECONDS)
            raise

    async def _delete_created(self, actor: Actor, created: Sequence[Schedule]) -> None:
        """Deletes schedules that the actor has just created, also if the actor may only create."""
        for each in created:
            try:
                await self._write_together(actor, [(each, delete_change(actor))])
            except NotFound:
                continue
            except ChimesError as error:
                _log.warning(
                    "schedule %s of an incomplete set could not be deleted: %s", each.id, error
                )

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
        return await self._write(actor, schedule_id, change)

    async def resume(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        also: Callable[[Schedule], Schedule] = unchanged,
    ) -> Schedule:
        """`also` as in `pause_change`."""
        return await self._write(actor, schedule_id, resume_change(actor, also=also))

    # --- deleting -----------------------------------------------------------------------------
    async def delete(
        self, actor: Actor, schedule_id: ScheduleId, *, expected_version: int | None = None
    ) -> Schedule:
        return await self._write(
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
            check_permission(actor, schedule, change)
        return await self._write_together(actor, [(each, change) for each in schedules])

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
        edit = self._build_edit(actor, schedule, change, at=now)
        restored = await self._store.change_schedule(
            schedule_id,
            edit.change,
            edit.audit,
            quotas=self.rules.quotas(schedule.owner),
            deleted=True,
        )
        return await self._with_current_calendars(actor, restored)

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
        return await self._write(actor, schedule_id, change)

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
        return await self._write(actor, schedule_id, change)

    async def reschedule(self, actor: Actor, schedule_id: ScheduleId, to: datetime) -> Schedule:
        """Makes `to` the next slot; a time in the past means now."""

        def apply(before: Schedule, now: datetime) -> Schedule:
            if not before.enabled:
                raise Conflict(_("the schedule is paused; resume it first"), code="paused")
            if not has_runs_left(before):
                raise Conflict(_("the schedule has reached max_runs"), code="used_up")
            return reschedule_next(before, to, now, actor.name)

        change = ScheduleChange(verb="reschedule", apply=apply, operator_allowed=True)
        return await self._write(actor, schedule_id, change)

    async def rotate_hook(self, actor: Actor, schedule_id: ScheduleId) -> Schedule:
        """Gives the webhook of a schedule another address; the former one is not valid any more."""

        def apply(before: Schedule, now: datetime) -> Schedule:
            if not isinstance(before.trigger, Webhook):
                raise Conflict(_("the schedule has no webhook trigger"), code="no_hook")
            changed = replace(before, trigger=before.trigger.rotated())
            return apply_edit(before, changed, now, actor.name)

        return await self._write(
            actor, schedule_id, ScheduleChange(verb="rotate_hook", apply=apply)
        )

    # --- writing changes ----------------------------------------------------------------------
    async def _write(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        change: ScheduleChange,
        *,
        expected_version: int | None = None,
    ) -> Schedule:
        schedule = await self.rules.get_schedule(actor, schedule_id)
        check_permission(actor, schedule, change)
        await self.rules.refresh_limits()

        edit = self._build_edit(
            actor,
            schedule,
            change if expected_version is None else _if_version(change, expected_version),
            at=await self._store.now(),
        )

        async def attempt() -> Schedule:
            return await self._store.change_schedule(
                schedule_id,
                edit.change,
                edit.audit,
                runs=edit.runs,
                quotas=self.rules.quotas(schedule.owner),
            )

        return await self._fire_and_retry([schedule_id], attempt)

    async def _write_together(
        self, actor: Actor, changes: Sequence[tuple[Schedule, ScheduleChange]]
    ) -> tuple[Schedule, ...]:
        """All changes or none, in one transaction that does not check quotas. The caller has
        checked the permissions."""
        now = await self._store.now()
        edits = [self._build_edit(actor, schedule, change, at=now) for schedule, change in changes]
        return await self._fire_and_retry(
            [edit.schedule_id for edit in edits], lambda: self._store.change_schedules(edits)
        )

    def _build_edit(
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
            audit_changes.update(_changes_between(before, after))
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


def queue_events(draft: Schedule, explicit_fields: Collection[str]) -> Schedule:
    """By default no event is skipped because the run of the one before is still running."""
    if OVERLAP in explicit_fields:
        return draft
    return replace(draft, policy=replace(draft.policy, overlap=Overlap.QUEUE))


def _if_version(change: ScheduleChange, version: int) -> ScheduleChange:
    """The change, which raises StaleVersion for another version of the schedule."""

    def check_version_and_apply(before: Schedule, now: datetime) -> Schedule:
        if before.version != version:
            raise StaleVersion(version=before.version)
        return change.apply(before, now)

    return replace(change, apply=check_version_and_apply)


async def unused_declared_id(store: Store, namespace: str, name: str) -> ScheduleId:
    """The id of the first generation of a name that was never used (`declared_id`).

    Generations are used in order, so a binary search finds it however often the name was deleted.
    AlreadyExists if the latest generation is alive: another process has just created it, and a
    second schedule of the name would be a duplicate.
    """

    async def generation(number: int) -> Schedule | None:
        return await store.get_schedule(declared_id(namespace, name, number))

    used, free = 0, 1
    while await generation(free):
        used, free = free, free * 2
    while free - used > 1:
        middle = (used + free) // 2
        if await generation(middle):
            used = middle
        else:
            free = middle
    latest = await generation(used) if used else None
    if latest is not None and latest.deleted_at is None and latest.name == name:
        raise AlreadyExists(_("schedule {name!r} exists", name=name))
    return declared_id(namespace, name, free)


class SlotIsDue(Exception):
    """The change would move the cursor past a due slot, which must be fired first."""


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


#: A run that is requested by hand, for `check_permission`.
RUN_CHANGE = ScheduleChange(verb="run", apply=lambda schedule, now: schedule, operator_allowed=True)


def check_permission(actor: Actor, schedule: Schedule, change: ScheduleChange) -> None:
    """Raises NotAllowed."""
    allowed = actor.may_operate if change.operator_allowed else actor.may_write
    if not allowed(schedule.owner):
        raise NotAllowed()
    if not change.stops:
        refuse_agents(actor, schedule.target)


def _changes_between(before: Schedule | None, after: Schedule) -> dict[str, object]:
    """Field -> [before, after], without secrets and without bookkeeping fields."""
    old = schedule_to_plain(clear_source_marker(before)) if before else {}
    new = schedule_to_plain(clear_source_marker(after))
    # Compared before masking, so that a replaced secret shows up as a change.
    changed = sorted(name for name in {*old, *new} - _BOOKKEEPING if old.get(name) != new.get(name))
    was = mask_secrets({name: old[name] for name in changed if name in old})
    now = mask_secrets({name: new[name] for name in changed if name in new})
    return {name: [was.get(name), now.get(name)] for name in changed}


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
    return query if actor.sees_all_owners else replace(query, owner=actor.owner)
