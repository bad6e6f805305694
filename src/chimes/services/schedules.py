"""What can be done with schedules."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

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
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.audit import AuditEntry
from chimes.model.change import replace as replace_putting_off
from chimes.model.ids import RunId, ScheduleId, manual_run_id, new_schedule_id
from chimes.model.listing import AuditQuery, Page, ScheduleQuery, ScheduleSort
from chimes.model.planning import (
    AnyFiring,
    FireContext,
    Firing,
    backfill_run,
    ended_at_once,
    manual_run,
    plan,
    slot_run,
)
from chimes.model.policy import RunDefaults
from chimes.model.recipient import Recipient
from chimes.model.run import Reason, Run, RunStatus
from chimes.model.schedule import (
    Schedule,
    brought_back,
    counts_against,
    deleted,
    edited,
    moved,
    passed,
    paused,
    planned,
    rescheduled,
    resumed,
    runs_left,
    with_overdue,
)
from chimes.model.sync import NOW as NOW_CLASS
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    HttpTarget,
    SyncTarget,
    Target,
    payload_name,
    same_but_payload,
)
from chimes.model.validation import check_recipients
from chimes.services.access import (
    NO_RUN_LIMITS,
    QuotaRule,
    QuotaUse,
    RunLimits,
    RunQuotas,
    no_quotas,
)
from chimes.services.audit import changes_between, entry, masked
from chimes.services.preferences import PreferenceService
from chimes.services.prompts import NAMESPACE
from chimes.services.run_requests import RunRequest, completed, order_shown, ordered_run
from chimes.services.slots import (
    AS_THE_SCHEDULE,
    UPCOMING_LIMIT,
    Backfill,
    Pace,
    SlotIsDue,
    Upcoming,
    check_pace,
    left_behind,
    paced,
    past_slots,
    planned_slot,
    upcoming_fires,
)
from chimes.services.validation import (
    SHORTEST_INTERVAL,
    check_chats,
    check_fires,
    check_interval,
    check_source,
    checked,
    checked_id,
    checked_text,
    clean_name,
    offered,
    offered_as,
    started_as,
    turned_to,
    usual_defaults,
    without_key_of,
    zoned,
)
from chimes.store.codec.schedule import target_to_plain
from chimes.store.port import Planner, ScheduleEdit, Store
from chimes.triggers import Every, Once, Trigger

# @@ How a change of a schedule gets into the store: access, version, due slots, audit.

Changed = TypeVar("Changed")

#: Here a schedule is known by its name (C22).
NAMED_NAMESPACE = "catbird"
#: A change waits for what is due before it; after an outage there may be much of that.
_FIRE_ROUNDS = 100
_FIRE_BATCH = 500
#: Where only one of them is wanted, which may be the last.
_FIRE_ALL = 100_000
#: What never has anything run.
HOLD_BACK = ("pause", "delete")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Of intervals only where keys are on; which quotas hold, their rule says."""

    quotas: QuotaRule = no_quotas
    shortest_interval_member: timedelta = SHORTEST_INTERVAL
    shortest_interval_admin: timedelta = SHORTEST_INTERVAL
    runs: RunLimits = NO_RUN_LIMITS


async def _nothing_to_see() -> None:
    """Where the limits do not change."""


class ScheduleChanges:
    def __init__(
        self,
        store: Store,
        *,
        check_target: Callable[[Target], None],
        check_recipients: Callable[[Sequence[Recipient]], None] = check_recipients,
        default_timezone: str = "UTC",
        limits: Callable[[], Limits] = Limits,
        look: Callable[[], Awaitable[object]] = _nothing_to_see,
        offers: Callable[[], Mapping[str, RunDefaults]] = dict,
        planner: Planner = plan,
        capped: bool = False,
    ) -> None:
        """`look`: awaited before `limits` is asked about a change, so that these are of now.
        `offers`: what an application of this process can carry out (`target.needs`) and how, also
        while no node of it has joined yet. `planner`, `capped`: how the schedulers fire, and
        whether only so many in a tick."""
        self._store = store
        self._check_target = check_target
        self._check_recipients = check_recipients
        self._default_timezone = default_timezone
        self._preferences = PreferenceService(store)
        self._limits = limits
        self._look = look
        self._offers = offers
        self._planner = planner
        self._capped = capped
        self._run_quotas = RunQuotas(store, lambda: limits().runs)

    async def check_recipient(self, actor: Actor, recipient: Recipient) -> None:
        """Raises InvalidInput if a schedule of the caller's may not have it."""
        try:
            self._check_recipients([recipient])
            await check_chats(self._store, actor, [recipient])
        except InvalidInput as error:
            error.field = (error.field or "").removeprefix("delivery[0].")
            raise

    async def get(self, actor: Actor, schedule_id: ScheduleId) -> Schedule:
        schedule = await self._store.get_schedule(schedule_id)
        if schedule is None or schedule.deleted_at or not actor.may_see(schedule.owner):
            raise NotFound(_("schedule {id} not found", id=schedule_id))
        return schedule

    async def _change(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        verb: str,
        apply: Callable[[Schedule, datetime], Schedule],
        *,
        may: Callable[[Owner], bool] | None = None,
        version: int | None = None,
        reason: str = "",
        runs: Callable[[Schedule, datetime], Sequence[Run]] | None = None,
    ) -> Schedule:
        seen = await self.get(actor, schedule_id)
        if not (may or actor.may_operate)(seen.owner):
            raise NotAllowed()
        if verb not in HOLD_BACK:
            refuse_agents(actor, seen.target)
        await self._look()

        def guarded(before: Schedule, now: datetime) -> Schedule:
            if version is not None and before.version != version:
                raise StaleVersion(version=before.version)
            return apply(before, now)

        now = await self._store.now()
        edit = self._edit(actor, seen, verb, guarded, now, reason=reason, runs=runs)

        async def attempt() -> Schedule:
            return await self._store.change_schedule(
                schedule_id,
                edit.change,
                edit.audit,
                runs=edit.runs,
                quotas=self._limits().quotas(seen.owner),
            )

        return await self._once_fired([schedule_id], attempt)

    async def delete_all(
        self,
        actor: Actor,
        schedule_ids: Sequence[ScheduleId],
        *,
        check: Callable[[Schedule], None] = lambda _unused: None,
    ) -> tuple[Schedule, ...]:
        """All of them or none (C16, R0.29). `check` raises for one that is not meant; it is asked
        in the order given, and again once they are held."""
        found: list[Schedule] = []
        for schedule_id in dict.fromkeys(schedule_ids):
            found.append(await self.get(actor, schedule_id))
            check(found[-1])
        if not all(actor.may_write(each.owner) for each in found):
            raise NotAllowed()
        await self._look()

        def apply(before: Schedule, now: datetime) -> Schedule:
            check(before)
            return deleted(before, now, actor.name)

        now = await self._store.now()
        edits = [self._edit(actor, each, "delete", apply, now) for each in found]
        return await self._once_fired(
            [each.id for each in found], lambda: self._store.change_schedules(edits)
        )

    def _edit(
        self,
        actor: Actor,
        seen: Schedule,
        verb: str,
        apply: Callable[[Schedule, datetime], Schedule],
        now: datetime,
        *,
        reason: str = "",
        runs: Callable[[Schedule, datetime], Sequence[Run]] | None = None,
    ) -> ScheduleEdit:
        """With what it leaves behind, and its audit entry. SlotIsDue: see `_once_fired`."""
        changes: dict[str, object] = {}
        behind: list[Run] = []

        def change(before: Schedule, now: datetime) -> Schedule:
            after = apply(before, now)
            behind.clear()
            if runs is None and after.next_slot != before.next_slot:
                behind.extend(left_behind(before, after, now, held=self._held(before, after)))
            # Filled here, inside the store's transaction, because only here both are known.
            changes.clear()
            changes.update(changes_between(before, after))
            return after

        note = entry(
            actor,
            verb,
            "schedule",
            seen.id,
            at=now,
            owner=seen.owner,
            changes=changes,
            reason=reason,
        )
        rows = runs or (lambda before, now: behind)
        return ScheduleEdit(schedule_id=seen.id, change=change, audit=note, runs=rows)

    async def _once_fired(
        self, schedule_ids: Sequence[ScheduleId], attempt: Callable[[], Awaitable[Changed]]
    ) -> Changed:
        """A change that would leave a due slot behind comes after the firing of that slot."""
        for _unused in range(_FIRE_ROUNDS):
            try:
                return await attempt()
            except SlotIsDue:
                await self._fire(schedule_ids)
        raise StoreUnavailable(_("the schedule is busy; try again"))

    def _held(self, before: Schedule, after: Schedule) -> bool:
        """Whether what is due is held back, so that a change must not have it run."""
        if self._planner is not plan and before.namespace == NAMESPACE:
            return True
        return self._capped and not after.enabled

    async def _fire(self, schedule_ids: Sequence[ScheduleId]) -> None:
        """What is due and stands in the way of a change of these schedules. With a cap that is
        these alone, for the others have to wait for their turn."""

        def only_these(schedule: Schedule, context: FireContext, now: datetime) -> AnyFiring:
            if schedule.id not in schedule_ids:
                return Firing(schedule=schedule, runs=())
            return self._planner(schedule, context, now)

        if self._capped:
            await self._store.fire_due(only_these, limit=_FIRE_ALL)
        else:
            await self._store.fire_due(self._planner, limit=_FIRE_BATCH)

    async def _add(self, run: Run, note: AuditEntry) -> tuple[Run, bool]:
        """A run by hand. False: it was not added, its pair is busy with the one answered."""
        if isinstance(run.target, SyncTarget):
            found, created = await self._store.add_unless_active(run, note)
            return found, created or found.id == run.id
        return (await self._store.add_runs([run], note))[0], True

    async def zone_for(self, owner: Owner, trigger: Trigger | None = None) -> str:
        """The zone of a trigger that names none (T11): its owner's, then the system's. Nobody is
        asked about one that needs none."""
        if trigger is not None and trigger.with_default_zone(self._default_timezone) == trigger:
            return self._default_timezone
        return (await self._preferences.of(owner)).timezone or self._default_timezone

    def _settled_trigger(
        self, trigger: Trigger, before: Trigger | None, now: datetime, zone: str
    ) -> Trigger:
        """With its zone and anchor. The same interval sent again keeps its grid."""
        trigger = trigger.with_default_zone(zone)
        if isinstance(trigger, Every) and isinstance(before, Every) and trigger.anchor is None:
            kept = replace(trigger, anchor=before.anchor)
            if kept.every == before.every:
                return kept
        return trigger.anchored(trigger.start_at or now)

    def _target_allowed(self, actor: Actor, target: Target, before: Target | None) -> None:
        refuse_agents(actor, target)
        if _foreign_account(actor, target, before):
            raise NotAllowed(_("only an admin may act for another account"))
        if _unchecked_tls(target) and not _unchecked_tls(before) and actor.role is not Role.ADMIN:
            raise NotAllowed(_("only an admin may switch certificate checks off"))
        self._check_target(target)

    async def defaults_of(self, target: Target) -> RunDefaults | None:
        """What a task or flow says about its runs; None where that is not known. InvalidInput if
        nobody offers it."""
        if isinstance(target, HttpTarget):
            return None
        # First of all, so that only a well-formed name is ever repeated in an answer.
        self._check_target(target)
        return await offered(self._store, target, self._offers())

    async def check_source(self, source: str) -> None:
        """InvalidInput if no node that is alive has it."""
        await check_source(self._store, source, self._offers())

    async def _defaults_before(self, target: Target) -> RunDefaults:
        """What was saved once stays valid while nobody is there to offer it."""
        try:
            return await self.defaults_of(target) or usual_defaults(target)
        except InvalidInput:
            return usual_defaults(target)

    def _check_trigger(
        self, actor: Actor, owner: Owner, trigger: Trigger, now: datetime, *, overdue: bool = False
    ) -> None:
        """`overdue`: a single moment may have passed already. A chat is never an admin."""
        limits = self._limits()
        admin = actor.role is Role.ADMIN and owner.type is not OwnerType.CHAT
        check_interval(
            trigger,
            limits.shortest_interval_admin if admin else limits.shortest_interval_member,
            now,
        )
        if not (overdue and isinstance(trigger, Once) and trigger.instant <= now):
            check_fires(trigger, now)

    async def _check_name(self, schedule: Schedule, before: Schedule | None) -> None:
        """C22. Two that come at the same instant both pass; the SDK and the client therefore make
        ids that follow from the name."""
        if schedule.namespace != NAMED_NAMESPACE or (before and before.name == schedule.name):
            return
        query = ScheduleQuery(namespace=schedule.namespace, name=schedule.name, limit=2)
        found = (await self._store.list_schedules(query)).items
        if any(each.id != schedule.id for each in found):
            raise AlreadyExists(
                _(
                    "there is a schedule {name!r} in the namespace {namespace!r}",
                    name=schedule.name,
                    namespace=schedule.namespace,
                ),
            )

    async def _check_dependency(self, actor: Actor, schedule: Schedule) -> None:
        """S05: a schedule that the owner cannot see does not exist for it."""
        if schedule.depends_on is None:
            return
        try:
            other: Schedule | None = await self.get(actor, schedule.depends_on.schedule_id)
        except NotFound:
            raise InvalidInput(
                _("schedule {id} not found", id=schedule.depends_on.schedule_id),
                field="depends_on.schedule_id",
                code="not_found",
            ) from None
        seen = {schedule.id}
        while other is not None and other.depends_on is not None and other.id not in seen:
            seen.add(other.id)
            other = await self._store.get_schedule(other.depends_on.schedule_id)
        if other is not None and other.id == schedule.id:
            raise InvalidInput(
                _("these schedules would wait for each other for ever"),
                field="depends_on.schedule_id",
                code="cycle",
            )


def refuse_agents(actor: Actor, target: Target) -> None:
    """An agent may not have an agent run: what multiplies itself has no end (F67, S75)."""
    if actor.is_agent and isinstance(target, AgentTarget):
        raise NotAllowed(_("an agent may not have prompts run"))


def _foreign_account(actor: Actor, target: Target, before: Target | None) -> bool:
    """The action service believes what it is told about the account."""
    if not isinstance(target, ActionTarget) or actor.role is Role.ADMIN:
        return False
    named = (target.account_id, target.account_type)
    if isinstance(before, ActionTarget) and named == (before.account_id, before.account_type):
        return False
    own = actor.owner
    return named[0] not in ("", own.id) or named[1] not in ("", own.type.value)


def _unchecked_tls(target: Target | None) -> bool:
    return isinstance(target, HttpTarget) and not target.verify_tls


# @@ Runs that somebody asks for: now, without a schedule, or for slots that have passed.

#: Characters of a payload in the audit.
_LONGEST_SHOWN = 2000


class RunsByHand(ScheduleChanges):
    async def start(self, actor: Actor, order: RunRequest, *, run_id: RunId | None = None) -> Run:
        """`asked_for`, without saying whether the run is a new one."""
        return (await self.asked_for(actor, order, run_id=run_id))[0]

    async def asked_for(
        self, actor: Actor, order: RunRequest, *, run_id: RunId | None = None
    ) -> tuple[Run, bool]:
        """A run without a schedule. With `run_id` the same order can be given again: the run that
        has the id is the answer. False: of a pair that is busy it is the task that is under way
        (R4.18), and nothing was added."""
        owner = order.owner or actor.owner
        if not actor.may_create(owner):
            raise NotAllowed()
        self._target_allowed(actor, order.target, None)
        self._check_recipients(order.policy.delivery)
        await check_chats(self._store, actor, order.policy.delivery)
        order = replace(order, policy=zoned(order.policy, self._default_timezone))
        order = completed(order, await self.defaults_of(order.target))
        await self._look()
        await self._run_quotas.check(actor, owner)
        now = await self._store.now()
        run = ordered_run(order, owner, run_id or manual_run_id(now), now)
        note = entry(actor, "start", "run", run.id, at=now, owner=owner, changes=order_shown(order))
        return await self._add(run, note)

    async def run_now(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        beside_others: bool = False,
        run_id: RunId | None = None,
    ) -> Run:
        """`run_asked_for`, without saying whether the run is a new one."""
        return (
            await self.run_asked_for(actor, schedule_id, beside_others=beside_others, run_id=run_id)
        )[0]

    async def run_asked_for(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        beside_others: bool = False,
        run_id: RunId | None = None,
        delay: timedelta = timedelta(0),
        target: Target | None = None,
    ) -> tuple[Run, bool]:
        """C7: allowed while paused; nothing about the schedule changes. `run_id` and the answer as
        in `asked_for`; a task is never `beside_others` of its pair. `delay`: it begins so much
        later, and until then stands in no slot's way; not a task, which would keep its pair busy
        (R4.18). `target`: the schedule's own with another payload, for whoever may give orders."""
        schedule = await self.get(actor, schedule_id)
        if not actor.may_operate(schedule.owner):
            raise NotAllowed()
        if target is not None and target != schedule.target:
            self._check_payload(actor, schedule, target)
            schedule = replace(schedule, target=target)
            changed = _shown_payload(target)
        else:
            changed = {}
        refuse_agents(actor, schedule.target)
        await self._look()
        await self._run_quotas.check(actor, schedule.owner)
        now = await self._store.now()
        is_task = isinstance(schedule.target, SyncTarget)
        run = manual_run(schedule, now, beside_others=beside_others and not is_task)
        if is_task:
            run = replace(run, priority=NOW_CLASS)
        elif delay:
            begins = now + delay
            run = replace(run, planned_at=begins, available_at=begins, concurrency_key=None)
        if run_id is not None:
            run = replace(run, id=run_id)
        note = entry(
            actor,
            "run",
            "schedule",
            schedule.id,
            at=now,
            owner=schedule.owner,
            changes={"run_id": run.id, **changed},
        )
        return await self._add(run, note)

    def _check_payload(self, actor: Actor, schedule: Schedule, target: Target) -> None:
        if not actor.may_create(schedule.owner):
            raise NotAllowed()
        if not same_but_payload(target, schedule.target):
            raise InvalidInput(
                _("a run can have other parameters than its schedule, but not another target"),
                field="target",
                code="other_target",
            )
        self._target_allowed(actor, target, schedule.target)

    async def backfill(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        start: datetime,
        end: datetime,
        *,
        dry_run: bool = False,
        pace: Pace = AS_THE_SCHEDULE,
    ) -> Backfill:
        """Runs for the past slots of a range (both ends included) that were not carried out."""
        check_pace(pace)
        schedule = await self.get(actor, schedule_id)
        if not actor.may_write(schedule.owner):
            raise NotAllowed()
        refuse_agents(actor, schedule.target)
        if isinstance(schedule.target, SyncTarget):
            raise InvalidInput(
                _("a sync task is not bound to a slot, so there is nothing to fill; run it now"),
                code="not_slot_bound",
            )
        now = await self._store.now()
        slots = past_slots(schedule, start, min(end, now))
        taken = await self._store.slots_taken(schedule.id, slots)
        made_up_for = (RunStatus.MISSED, RunStatus.SKIPPED)
        open_slots = tuple(
            slot for slot in slots if slot not in taken or taken[slot].status in made_up_for
        )
        if dry_run or not open_slots:
            return Backfill(slots=open_slots, runs=())
        await self._look()
        await self._run_quotas.check(actor, schedule.owner, count=len(open_slots))
        group = f"backfill:{manual_run_id(now)}"
        runs = [
            paced(backfill_run(schedule, slot, taken.get(slot), now), pace, group)
            for slot in open_slots
        ]
        note = entry(
            actor,
            "backfill",
            "schedule",
            schedule.id,
            at=now,
            owner=schedule.owner,
            changes={"slots": len(runs), "overlap": pace.overlap.value}
            | ({"concurrency": pace.concurrency} if pace.concurrency else {}),
        )
        return Backfill(slots=open_slots, runs=await self._store.add_runs(runs, note))


def _shown_payload(target: Target) -> dict[str, object]:
    """For the audit: without secrets, and no longer than an entry should be."""
    name = payload_name(target)
    shown = masked(target_to_plain(target)).get(name)
    if len(json.dumps(shown, ensure_ascii=False)) > _LONGEST_SHOWN:
        shown = "…"
    return {name: shown}


# @@ What is done to a schedule, as a value: to one of them, or to many in few transactions.


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    #: Its word in the audit.
    verb: str
    apply: Callable[[Schedule, datetime], Schedule]
    #: Whether whoever may operate a schedule may do it, or only whoever may write it.
    operates: bool = False
    reason: str = ""


def as_it_is(schedule: Schedule) -> Schedule:
    return schedule


def pausing(
    actor: Actor,
    *,
    note: str = "",
    until: datetime | None = None,
    also: Callable[[Schedule], Schedule] = as_it_is,
) -> Act:
    checked_text(note, "note")

    def apply(before: Schedule, now: datetime) -> Schedule:
        if until is not None and until <= now:
            raise InvalidInput(_("until lies in the past"), field="until", code="in_the_past")
        if not before.enabled and (before.pause_note, before.pause_until) == (note, until):
            return _noted(before, now, actor.name, also)
        return also(paused(before, now, actor.name, note=note, until=until))

    return Act(verb="pause", apply=apply, operates=True, reason=note)


def resuming(actor: Actor, *, also: Callable[[Schedule], Schedule] = as_it_is) -> Act:
    def apply(before: Schedule, now: datetime) -> Schedule:
        if before.enabled:
            return _noted(before, now, actor.name, also)
        return also(resumed(before, now, actor.name))

    return Act(verb="resume", apply=apply, operates=True)


def deleting(actor: Actor) -> Act:
    return Act(verb="delete", apply=lambda before, now: deleted(before, now, actor.name))


def _noted(
    before: Schedule, now: datetime, by: str, also: Callable[[Schedule], Schedule]
) -> Schedule:
    """It is as it is wanted already: nothing changes but what a door keeps of it, if anything."""
    same = edited(before, before, now, by)
    noted = also(same)
    return before if noted == same else noted


class ScheduleActs(RunsByHand):
    async def act_on_each(
        self,
        actor: Actor,
        seen: Sequence[Schedule],
        act: Callable[[Schedule], Awaitable[Act]],
    ) -> list[Schedule | ChimesError]:
        """Each as if it were alone: how it is then, or why it was refused, in their order. They go
        into the store together, and one by one only if one of them is refused there. StoreError
        is raised: nothing of these was done, or each can be done again."""
        await self._look()
        now = await self._store.now()
        answers: dict[ScheduleId, Schedule | ChimesError] = {}
        acts: dict[ScheduleId, Act] = {}
        together: list[ScheduleEdit] = []
        for each in seen:
            try:
                wanted = await act(each)
                self._check_may(actor, each, wanted)
            except StoreError:
                raise
            except ChimesError as error:
                answers[each.id] = error
                continue
            acts[each.id] = wanted
            if not self._counted_again(each, wanted):
                together.append(
                    self._edit(actor, each, wanted.verb, wanted.apply, now, reason=wanted.reason)
                )
        if together:
            ids = [edit.schedule_id for edit in together]
            try:
                changed = await self._once_fired(
                    ids, lambda: self._store.change_schedules(together)
                )
            except StoreError:
                raise
            except ChimesError:
                # Nothing was done. Alone, each of them says for itself whether it can be.
                pass
            else:
                answers |= {each.id: each for each in changed}
        for schedule_id, wanted in acts.items():
            if schedule_id not in answers:
                answers[schedule_id] = await self._alone(actor, schedule_id, wanted)
        return [answers[each.id] for each in seen]

    async def done_between(
        self,
        actor: Actor,
        verb: str,
        since: datetime,
        until: datetime,
        *,
        before: int | None = None,
        limit: int,
    ) -> tuple[list[ScheduleId], int | None]:
        """To which schedules this actor did this between two moments, newest first, without those
        that it left as they were; and the number of the entry before which to go on, if any."""
        notes = await self._store.list_audit(
            AuditQuery(
                actor=actor.name,
                door=actor.door,
                verb=verb,
                since=since,
                until=until,
                before=before,
                limit=limit,
            )
        )
        found = [
            ScheduleId(note.object_id)
            for note in notes
            if note.allowed and note.object_kind == "schedule" and _switched(note)
        ]
        return list(dict.fromkeys(found)), notes[-1].number if len(notes) == limit else None

    async def _alone(
        self, actor: Actor, schedule_id: ScheduleId, act: Act
    ) -> Schedule | ChimesError:
        try:
            return await self._acted(actor, schedule_id, act)
        except StoreError:
            raise
        except ChimesError as error:
            return error

    async def _acted(
        self, actor: Actor, schedule_id: ScheduleId, act: Act, *, version: int | None = None
    ) -> Schedule:
        return await self._change(
            actor,
            schedule_id,
            act.verb,
            act.apply,
            may=actor.may_operate if act.operates else actor.may_write,
            version=version,
            reason=act.reason,
        )

    def _check_may(self, actor: Actor, seen: Schedule, act: Act) -> None:
        if not (actor.may_operate if act.operates else actor.may_write)(seen.owner):
            raise NotAllowed()
        if act.verb not in HOLD_BACK:
            refuse_agents(actor, seen.target)

    def _counted_again(self, seen: Schedule, act: Act) -> bool:
        """Whether it may count against a quota afterwards and does not now: one transaction for
        many does not look at quotas. One that is there counts against those of all already."""
        return act.verb not in HOLD_BACK and any(
            quota.active and quota.namespace in (None, seen.namespace)
            for quota in self._limits().quotas(seen.owner)
        )

    async def editing(
        self,
        actor: Actor,
        seen: Schedule,
        edit: Callable[[Schedule], Schedule],
        *,
        said: Collection[str] | None = None,
        overdue: bool = False,
    ) -> Act:
        """Another definition, as `change` of the service tells."""
        wanted = edit(seen)
        turned = await self._turned(seen, wanted, said)
        zone = await self.zone_for(seen.owner, wanted.trigger)

        def apply(before: Schedule, now: datetime) -> Schedule:
            after = without_key_of(before, turned(edit(before)))
            if after == before:
                return before
            after = checked(after)
            if after.target != before.target:
                self._target_allowed(actor, after.target, before.target)
            if after.policy.delivery != before.policy.delivery:
                self._check_recipients(after.policy.delivery)
                after = replace(after, policy=zoned(after.policy, zone, after.trigger))
            if after.trigger != before.trigger:
                trigger = self._settled_trigger(after.trigger, before.trigger, now, zone)
                after = replace(after, trigger=trigger)
                if after == before:
                    return before
                if trigger != before.trigger:
                    self._check_trigger(actor, before.owner, trigger, now, overdue=overdue)
            if after.enabled and not before.enabled:
                after = replace(after, pause_note="", pause_until=None)
            changed = edited(before, after, now, actor.name)
            fresh = overdue and after.trigger != before.trigger
            return with_overdue(changed, now) if fresh else changed

        await check_chats(self._store, actor, wanted.policy.delivery, seen.policy.delivery)
        await self._check_name(replace(wanted, name=clean_name(wanted.name)), seen)
        await self._check_dependency(actor, wanted)
        return Act(verb=_verb_of(seen, wanted), apply=apply)

    async def _turned(
        self, seen: Schedule, wanted: Schedule, said: Collection[str] | None
    ) -> Callable[[Schedule], Schedule]:
        """What another target than that of `seen` brings along."""
        target = seen.target
        if offered_as(wanted.target) == offered_as(target):
            return lambda after: after
        defaults = await self.defaults_of(wanted.target)
        if said is None or (defaults is None and wanted.target.kind != target.kind):
            return lambda after: after
        before = await self._defaults_before(target)
        found = defaults or usual_defaults(wanted.target)
        return lambda after: (
            turned_to(after, target, before, found, said)
            if offered_as(after.target) == offered_as(wanted.target)
            else after
        )


def _verb_of(before: Schedule, after: Schedule) -> str:
    """A change that is nothing but a switch has the word of the switch (R1.15)."""
    if before.enabled == after.enabled or replace(after, enabled=before.enabled) != before:
        return "update"
    return "resume" if after.enabled else "pause"


def _switched(note: AuditEntry) -> bool:
    return note.verb == "delete" or "enabled" in note.changes


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
            raise NotFound(_("schedule {id} not found", id=schedule_id))
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
                raise Conflict(_("the schedule is there already"), code="not_deleted")
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
                    _("a sync task cannot be moved beyond the slot after it"), code="slot_taken"
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
                raise Conflict(_("the schedule is paused; resume it first"), code="paused")
            if not runs_left(before):
                raise Conflict(_("the schedule has had all its runs (max_runs)"), code="used_up")
            return rescheduled(before, to, now, actor.name)

        return await self._change(actor, schedule_id, "reschedule", apply)


def _restorable(actor: Actor, schedule: Schedule, now: datetime) -> bool:
    if not actor.may_see(schedule.owner):
        return False
    return schedule.deleted_at is None or schedule.deleted_at + RESTORE_WITHIN > now


def _visible(actor: Actor, query: ScheduleQuery) -> ScheduleQuery:
    return query if actor.sees_everything else replace(query, owner=actor.owner)


# @@ Schedules that this node is told not to fire (R1.38, SOFTNIX_SCHEDULER_ENABLED=false).

#: A slot that is due is looked at again this much later. It keeps its place, and runs when the
#: scheduler is switched on again.
PUT_OFF = timedelta(minutes=1)


def plan_without_prompts(schedule: Schedule, context: FireContext, now: datetime) -> AnyFiring:
    """As `plan`, but what was made through the Softnix door or in a chat is put off."""
    due = schedule.next_slot is not None and schedule.next_run_at is not None
    if schedule.namespace != NAMESPACE or not due:
        return plan(schedule, context, now)
    return Firing(schedule=replace_putting_off(schedule, next_run_at=now + PUT_OFF), runs=())


def is_put_off(before: Schedule, firing: AnyFiring) -> bool:
    """Its slot is still the next one, and nothing was made of it."""
    return not firing.runs and before.next_slot == firing.schedule.next_slot is not None
