"""How a change of a schedule gets into the store: access, version, due slots, audit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from chimes.errors import (
    AlreadyExists,
    InvalidInput,
    NotAllowed,
    NotFound,
    StaleVersion,
    StoreUnavailable,
)
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.audit import AuditEntry
from chimes.model.defaults import RunDefaults
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.planning import AnyFiring, FireContext, Firing, plan
from chimes.model.recipient import Recipient
from chimes.model.recipient_rules import check_recipients
from chimes.model.run import Run
from chimes.model.schedule import Schedule, deleted
from chimes.model.target import ActionTarget, AgentTarget, HttpTarget, SyncTarget, Target
from chimes.service.audit import changes_between, entry
from chimes.service.preferences import PreferenceService
from chimes.service.prompts import NAMESPACE
from chimes.service.quotas import QuotaRule, no_quotas
from chimes.service.recipients import check_chats
from chimes.service.rules import (
    SHORTEST_INTERVAL,
    check_fires,
    check_interval,
)
from chimes.service.run_quotas import NO_RUN_LIMITS, RunLimits, RunQuotas
from chimes.service.slots import (
    SlotIsDue,
    left_behind,
)
from chimes.service.targets import check_source, offered, usual_defaults
from chimes.store.edits import ScheduleEdit
from chimes.store.port import Planner, Store
from chimes.triggers import Every, Once, Trigger
from chimes.wording import say

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
            raise NotFound(say("schedule {id} not found", id=schedule_id))
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
        check: Callable[[Schedule], None] = lambda _: None,
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
        for _ in range(_FIRE_ROUNDS):
            try:
                return await attempt()
            except SlotIsDue:
                await self._fire(schedule_ids)
        raise StoreUnavailable(say("the schedule is busy; try again"))

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
            raise NotAllowed(say("only an admin may act for another account"))
        if _unchecked_tls(target) and not _unchecked_tls(before) and actor.role is not Role.ADMIN:
            raise NotAllowed(say("only an admin may switch certificate checks off"))
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
                say(
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
                say("schedule {id} not found", id=schedule.depends_on.schedule_id),
                field="depends_on.schedule_id",
                code="not_found",
            ) from None
        seen = {schedule.id}
        while other is not None and other.depends_on is not None and other.id not in seen:
            seen.add(other.id)
            other = await self._store.get_schedule(other.depends_on.schedule_id)
        if other is not None and other.id == schedule.id:
            raise InvalidInput(
                say("these schedules would wait for each other for ever"),
                field="depends_on.schedule_id",
                code="cycle",
            )


def refuse_agents(actor: Actor, target: Target) -> None:
    """An agent may not have an agent run: what multiplies itself has no end (F67, S75)."""
    if actor.is_agent and isinstance(target, AgentTarget):
        raise NotAllowed(say("an agent may not have prompts run"))


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
