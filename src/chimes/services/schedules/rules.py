"""Rules for saving schedules and starting runs: access to targets, limits, time zones, names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from chimes.errors import AlreadyExists, InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model.access import Actor, Owner, OwnerType, Quota, Role
from chimes.model.definition import (
    ActionTarget,
    AgentTarget,
    HttpTarget,
    Recipient,
    RunDefaults,
    Target,
)
from chimes.model.ids import DEFAULT_NAMESPACE, ScheduleId, canonical_namespace, declared_ids
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.model.validation import check_recipients
from chimes.services.access import NO_RUN_LIMITS, QuotaRule, RunLimits, RunQuotas, no_quotas
from chimes.services.preferences import PreferenceService
from chimes.services.schedules.validation import (
    SHORTEST_INTERVAL,
    check_chats,
    check_fires,
    check_interval,
    check_source,
    fallback_run_defaults,
    find_run_defaults,
)
from chimes.store.port import Store
from chimes.triggers import Every, Once, Trigger


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of owners. The defaults are those of open mode, without API keys."""

    quotas: QuotaRule = no_quotas
    shortest_interval_member: timedelta = SHORTEST_INTERVAL
    shortest_interval_admin: timedelta = SHORTEST_INTERVAL
    runs: RunLimits = NO_RUN_LIMITS


async def _no_refresh() -> None:
    """For limits that never change."""


class ScheduleRules:
    """Checks that `ScheduleService` and `ManualRuns` share."""

    def __init__(
        self,
        store: Store,
        *,
        check_target: Callable[[Target], None],
        check_recipients: Callable[[Sequence[Recipient]], None] = check_recipients,
        default_timezone: str = "UTC",
        limits: Callable[[], Limits] = Limits,
        refresh_limits: Callable[[], Awaitable[object]] = _no_refresh,
        capabilities: Callable[[], Mapping[str, RunDefaults]] = dict,
    ) -> None:
        """`refresh_limits` is awaited before `limits` is called for a change.

        `capabilities`: what the application of this process can execute, with the run defaults;
        valid before its node has joined.
        """
        self._store = store
        self.check_target = check_target
        self.check_recipients = check_recipients
        self.default_timezone = default_timezone
        self.refresh_limits = refresh_limits
        self.run_quotas = RunQuotas(store, lambda: limits().runs)
        self._limits = limits
        self._capabilities = capabilities
        self._preferences = PreferenceService(store)

    def quotas(self, owner: Owner) -> tuple[Quota, ...]:
        return self._limits().quotas(owner)

    async def get_schedule(self, actor: Actor, schedule_id: ScheduleId) -> Schedule:
        """The schedule if the actor may see it, else NotFound."""
        schedule = await self._store.get_schedule(schedule_id)
        if schedule is None or schedule.deleted_at or not actor.may_see(schedule.owner):
            raise NotFound(_("schedule {id} not found", id=schedule_id))
        return schedule

    # --- triggers and time zones --------------------------------------------------------------
    async def zone_for(self, owner: Owner, trigger: Trigger | None = None) -> str:
        """The zone of a trigger that names none: its owner's, else the system's.

        The preferences are not read for a trigger that needs no zone.
        """
        if trigger is not None and trigger.with_default_zone(self.default_timezone) == trigger:
            return self.default_timezone
        return (await self._preferences.get(owner)).timezone or self.default_timezone

    def complete_trigger(
        self, trigger: Trigger, before: Trigger | None, now: datetime, zone: str
    ) -> Trigger:
        """Adds zone and anchor. An unchanged interval keeps its anchor."""
        trigger = trigger.with_default_zone(zone)
        if isinstance(trigger, Every) and isinstance(before, Every) and trigger.anchor is None:
            anchored = replace(trigger, anchor=before.anchor)
            if anchored.every == before.every:
                return anchored
        return trigger.anchored(trigger.start_at or now)

    def check_trigger(
        self,
        actor: Actor,
        owner: Owner,
        trigger: Trigger,
        now: datetime,
        *,
        allow_overdue: bool = False,
    ) -> None:
        """Checks the interval limit and that the trigger fires. `allow_overdue` accepts a `once`
        trigger in the past. Schedules of chats always have the limit of members."""
        limits = self._limits()
        admin = actor.role is Role.ADMIN and owner.type is not OwnerType.CHAT
        check_interval(
            trigger,
            limits.shortest_interval_admin if admin else limits.shortest_interval_member,
            now,
        )
        if not (allow_overdue and isinstance(trigger, Once) and trigger.instant <= now):
            check_fires(trigger, now)

    # --- targets and recipients ---------------------------------------------------------------
    def check_target_allowed(self, actor: Actor, target: Target, before: Target | None) -> None:
        """Raises if the target is invalid or the actor may not use it. `before`: the target that
        it replaces; what an admin allowed there stays allowed."""
        refuse_agents(actor, target)
        if _acts_for_another_account(actor, target, before):
            raise NotAllowed(_("only an admin may act for another account"))
        disables_tls_check = _skips_tls_check(target) and not _skips_tls_check(before)
        if disables_tls_check and actor.role is not Role.ADMIN:
            raise NotAllowed(_("only an admin may disable TLS certificate checks"))
        self.check_target(target)

    async def check_recipient(self, actor: Actor, recipient: Recipient) -> None:
        """Raises InvalidInput if the actor's schedules may not notify this recipient."""
        try:
            self.check_recipients([recipient])
            await check_chats(self._store, actor, [recipient])
        except InvalidInput as error:
            error.field = (error.field or "").removeprefix("delivery[0].")
            raise

    async def get_run_defaults(self, target: Target) -> RunDefaults | None:
        """The run defaults that a task or flow declares, None if it declares none.

        Raises InvalidInput if no live node can execute the target.
        """
        if isinstance(target, HttpTarget):
            return None
        # Checked first, so that an error message repeats only well-formed names.
        self.check_target(target)
        return await find_run_defaults(self._store, target, self._capabilities())

    async def get_saved_run_defaults(self, target: Target) -> RunDefaults:
        """The run defaults of a saved target, also while no live node can execute it."""
        try:
            return await self.get_run_defaults(target) or fallback_run_defaults(target)
        except InvalidInput:
            return fallback_run_defaults(target)

    async def check_source(self, source: str) -> None:
        """Raises InvalidInput if no live node has the source."""
        await check_source(self._store, source, self._capabilities())

    # --- relations between schedules ----------------------------------------------------------
    async def check_name(self, schedule: Schedule, before: Schedule | None) -> None:
        """Raises AlreadyExists if a schedule that code declares in the namespace has the name.

        Two concurrent requests can both pass; the SDK and the client therefore derive the id from
        the name.
        """
        namespace = canonical_namespace(schedule.namespace)
        if namespace != DEFAULT_NAMESPACE or (before and before.name == schedule.name):
            return
        ids = tuple(declared_ids(namespace, schedule.name))
        query = ScheduleQuery(ids=ids, name=schedule.name, limit=2)
        found = (await self._store.list_schedules(query)).items
        if any(each.id != schedule.id for each in found):
            raise AlreadyExists(
                _(
                    "schedule {name!r} already exists in namespace {namespace!r}",
                    name=schedule.name,
                    namespace=namespace,
                ),
            )

    async def check_dependency(self, actor: Actor, schedule: Schedule) -> None:
        """Raises InvalidInput for an unknown or invisible dependency, and for a cycle."""
        if schedule.depends_on is None:
            return
        try:
            other: Schedule | None = await self.get_schedule(actor, schedule.depends_on.schedule_id)
        except NotFound:
            raise InvalidInput(
                _("schedule {id} not found", id=schedule.depends_on.schedule_id),
                field="depends_on.schedule_id",
                code="not_found",
            ) from None
        visited = {schedule.id}
        while other is not None and other.depends_on is not None and other.id not in visited:
            visited.add(other.id)
            other = await self._store.get_schedule(other.depends_on.schedule_id)
        if other is not None and other.id == schedule.id:
            raise InvalidInput(
                _("these schedules would depend on each other in a cycle"),
                field="depends_on.schedule_id",
                code="cycle",
            )


def refuse_agents(actor: Actor, target: Target) -> None:
    """An agent may not start agents: that could recurse without end."""
    if actor.is_agent and isinstance(target, AgentTarget):
        raise NotAllowed(_("an agent may not run prompts"))


def _acts_for_another_account(actor: Actor, target: Target, before: Target | None) -> bool:
    """The action service trusts the account in the request, so only an admin may set another."""
    if not isinstance(target, ActionTarget) or actor.role is Role.ADMIN:
        return False
    account = (target.account_id, target.account_type)
    if isinstance(before, ActionTarget) and account == (before.account_id, before.account_type):
        return False
    own = actor.owner
    return account[0] not in ("", own.id) or account[1] not in ("", own.type.value)


def _skips_tls_check(target: Target | None) -> bool:
    return isinstance(target, HttpTarget) and not target.verify_tls
