"""Rules for saving schedules and starting runs, and the run defaults of targets.

`ScheduleRules` checks access to targets, limits, time zones, names and dependencies. Run defaults
are the policy and priority of a target whose schedule sets none: those that a task or flow declares
on a live node, else those of its kind. `model/validation.py` has the checks of the values alone.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from chimes.config import Settings
from chimes.egress import Egress
from chimes.envelope import VARIABLE
from chimes.errors import AlreadyExists, InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType, Quota, Role
from chimes.model.ids import DEFAULT_NAMESPACE, ScheduleId, canonical_namespace, declared_ids
from chimes.model.listing import ScheduleQuery
from chimes.model.node import Node
from chimes.model.policy import (
    PRIORITY,
    TASK_POLICY_FIELDS,
    Backoff,
    Overlap,
    Policy,
    RunDefaults,
    apply_task_defaults,
    unchanged_fields,
)
from chimes.model.recipient import Channel, Recipient
from chimes.model.schedule import Schedule
from chimes.model.secret import secret_fields, secret_names, unknown_secret
from chimes.model.sync import HIGH, SYNC_TIMEOUT, task_policy
from chimes.model.sync import NOW as NOW_CLASS
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    Target,
    is_pair_key,
    parse_pair_key,
)
from chimes.model.validation import (
    PRIORITY_LIMIT,
    SHORTEST_INTERVAL,
    check_fires,
    check_interval,
    check_recipients,
)
from chimes.services.access import (
    CALCULATIONS,
    NO_RUN_LIMITS,
    QuotaRule,
    RunLimits,
    RunQuotas,
    no_quotas,
)
from chimes.services.preferences import PreferenceService
from chimes.services.secrets import SecretService
from chimes.store.codec.values import recipient_to_plain, secrets_of, target_to_plain
from chimes.store.port import Store
from chimes.triggers import Every, Once, Trigger
from chimes.triggers.calendars import holidays_are_loaded, load_holidays
from chimes.triggers.values import suggest_name

if TYPE_CHECKING:
    from chimes.language import Parsed

T = TypeVar("T")


# --- rules ----------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of owners. The defaults are those of open mode, without API keys."""

    quotas: QuotaRule = no_quotas
    shortest_interval_member: timedelta = SHORTEST_INTERVAL
    shortest_interval_admin: timedelta = SHORTEST_INTERVAL
    #: The highest priority that members may choose.
    priority_member: int = PRIORITY_LIMIT
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
        egress: Egress | None = None,
    ) -> None:
        """`refresh_limits` is awaited before `limits` is called for a change.

        `capabilities`: what the application of this process can execute, with the run defaults;
        valid before its node has joined. `egress`: the rules that `check_target` applies.
        """
        self._store = store
        self.check_target = check_target
        self._check_recipients = check_recipients
        self.egress = egress
        self.default_timezone = default_timezone
        self.refresh_limits = refresh_limits
        self.run_quotas = RunQuotas(store, lambda: limits().runs)
        self._limits = limits
        self._capabilities = capabilities
        self._preferences = PreferenceService(store)
        self._secrets = SecretService(store)

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
        check_interval(
            trigger,
            limits.shortest_interval_admin
            if _is_admin(actor, owner)
            else limits.shortest_interval_member,
            now,
        )
        if not (allow_overdue and isinstance(trigger, Once) and trigger.instant <= now):
            check_fires(trigger, now)

    def check_priority_allowed(
        self, actor: Actor, owner: Owner, priority: int, target: Target
    ) -> None:
        """Raises InvalidInput for a chosen priority above the limit of members: their runs would
        go before those of all others. Sync tasks have classes of their own."""
        most = self._limits().priority_member
        if isinstance(target, SyncTarget):
            most = max(most, NOW_CLASS)
        if priority > most and not _is_admin(actor, owner):
            raise InvalidInput(
                _(
                    "the priority of members is at most {most} (max_priority_member): choose a"
                    " lower one, or ask an admin",
                    most=most,
                ),
                field="priority",
                code="priority_limit",
            )

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
        if self._lacks_key:
            known = [] if before is None else secrets_of(target_to_plain(before))
            self._refuse_secrets("target", target_to_plain(target), known)

    def check_recipients(self, recipients: Sequence[Recipient]) -> None:
        self._check_recipients(recipients)
        if self._lacks_key:
            for each in recipients:
                self._refuse_secrets("delivery", recipient_to_plain(each), [])

    @property
    def _lacks_key(self) -> bool:
        keyring = self._store.keyring
        return keyring.durable and not keyring.can_seal

    def _refuse_secrets(self, field: str, plain: dict[str, object], known: list[object]) -> None:
        """The store cannot encrypt new secrets. Those that it has in plain text may stay."""
        if any(each not in known for each in secrets_of(plain)):
            raise InvalidInput(
                _(
                    "secrets cannot be stored: this store needs {variable}. Set it to the output "
                    "of `chimes secret generate-key` on all nodes, or leave the secret out",
                    variable=VARIABLE,
                ),
                field=field,
                code="secret_key_missing",
            )

    async def check_recipient(self, actor: Actor, recipient: Recipient) -> None:
        """Raises InvalidInput if the actor's schedules may not notify this recipient."""
        try:
            self.check_recipients([recipient])
            await self.check_secrets(actor, actor.owner, None, [recipient])
            await check_chats(self._store, actor, [recipient])
        except InvalidInput as error:
            error.field = (error.field or "").removeprefix("delivery[0].")
            raise

    async def check_secrets(
        self,
        actor: Actor,
        owner: Owner,
        target: Target | None,
        recipients: Sequence[Recipient],
        known: Collection[str] = (),
    ) -> None:
        """Raises InvalidInput if the target or a recipient names a secret that the owner does not
        have. `known`: names that the schedule has already; its runs fail with the reason."""
        names = secret_names(target, recipients) - frozenset(known)
        if names and actor.is_agent:
            # What an agent reads may make it send the secrets elsewhere.
            raise NotAllowed(_("an agent may not use secrets"))
        parts = [("target", target), *_places(recipients)]
        for name in await self._secrets.missing(owner, names):
            place = next(
                f"{part}.{field}"
                for part, value in parts
                for field, used in secret_fields(value)
                if used == name
            )
            raise InvalidInput(unknown_secret(name, owner), field=place, code="unknown_secret")

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


def _places(recipients: Sequence[Recipient]) -> list[tuple[str, Recipient]]:
    return [(f"delivery[{place}]", each) for place, each in enumerate(recipients)]


def _is_admin(actor: Actor, owner: Owner) -> bool:
    """Schedules of chats always have the limits of members."""
    return actor.role is Role.ADMIN and owner.type is not OwnerType.CHAT


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


# --- run defaults and capabilities ----------------------------------------------------------------
#: Capability of nodes that execute prompts.
AGENT = "agent"
#: Capability of nodes that execute actions.
ACTION = "action"
TASK_TIMEOUT = timedelta(minutes=5)
FLOW_TIMEOUT = timedelta(days=1)
#: Default timeouts by kind of target; the one of HTTP targets is a setting.
DEFAULT_TIMEOUTS: Mapping[str, timedelta] = {
    "http": timedelta(seconds=10),
    "task": TASK_TIMEOUT,
    "flow": FLOW_TIMEOUT,
    "sync": SYNC_TIMEOUT,
    "agent": timedelta(minutes=10),
    "action": timedelta(minutes=10),
    "message": timedelta(seconds=10),
}


def default_timeout(target: Target) -> timedelta:
    return DEFAULT_TIMEOUTS[target.kind]


def fallback_run_defaults(target: Target) -> RunDefaults:
    """Run defaults of a target that declares none."""
    if isinstance(target, SyncTarget):
        return RunDefaults(policy=task_policy(target), priority=HIGH)
    if isinstance(target, AgentTarget):
        return RunDefaults(policy=agent_policy(Settings()))
    if isinstance(target, ActionTarget):
        return RunDefaults(policy=action_policy(Settings()))
    if isinstance(target, MessageTarget):
        # Without a recipient a message would have no effect.
        inbox = (Recipient(channel=Channel.INBOX),)
        return RunDefaults(policy=Policy(timeout=default_timeout(target), delivery=inbox))
    return RunDefaults(policy=Policy(timeout=default_timeout(target)))


def default_policy(settings: Settings, target: Target) -> Policy:
    """The policy of a target whose schedule sets no option itself."""
    if isinstance(target, SyncTarget | MessageTarget):
        return replace(fallback_run_defaults(target).policy, misfire_grace=settings.misfire_grace)
    if isinstance(target, AgentTarget):
        return replace(agent_policy(settings), misfire_grace=settings.misfire_grace)
    if isinstance(target, ActionTarget):
        return replace(action_policy(settings), misfire_grace=settings.misfire_grace)
    policy = Policy(misfire_grace=settings.misfire_grace, timeout=default_timeout(target))
    if not isinstance(target, HttpTarget):
        return policy
    return replace(
        policy,
        max_retries=settings.max_retries,
        retry_backoff=settings.retry_backoff,
        timeout=settings.default_timeout,
    )


def agent_policy(settings: Settings) -> Policy:
    """Default policy of a prompt. `dispatch_attempts` counts all attempts, not only retries; the
    answer goes to the owner's inbox."""
    return Policy(
        timeout=settings.agent_timeout,
        max_retries=settings.dispatch_attempts - 1,
        retry_backoff=settings.dispatch_backoff,
        backoff=Backoff.EXPONENTIAL,
        delivery=(Recipient(channel=Channel.INBOX),),
    )


def agent_capabilities(settings: Settings) -> dict[str, RunDefaults]:
    """The agent capability of a node with these settings; empty without a pipeline."""
    if not settings.agent_pipeline or "worker" not in settings.roles:
        return {}
    return {AGENT: RunDefaults(policy=agent_policy(settings))}


def action_policy(settings: Settings) -> Policy:
    """Default policy of an action: failed dispatches are retried, one missed slot is caught up, and
    a slot is skipped while the previous run is active."""
    return Policy(
        timeout=settings.schedule_execution_timeout,
        max_retries=settings.max_retries,
        retry_backoff=settings.retry_backoff,
        backoff=Backoff.EXPONENTIAL,
        max_concurrent_runs=1,
        overlap=Overlap.SKIP,
    )


def action_capabilities(settings: Settings) -> dict[str, RunDefaults]:
    """The action capability of a node with these settings; empty without an action service."""
    if not settings.action_url or "worker" not in settings.roles:
        return {}
    return {ACTION: RunDefaults(policy=action_policy(settings))}


def capability_of(target: Target) -> str:
    """The name under which nodes declare the run defaults of the target."""
    return target.key if isinstance(target, SyncTarget) else target.requirement


async def find_run_defaults(
    store: Store, target: Target, here: Mapping[str, RunDefaults]
) -> RunDefaults | None:
    """The run defaults that a task or flow declares: in the application `here`, else on the live
    node that started last.

    Raises InvalidInput if no live node has the capability, because its runs would wait for ever.
    Only names are compared; nothing is imported.
    """
    if isinstance(target, HttpTarget | MessageTarget):
        return None
    if isinstance(target, SyncTarget):
        return await _find_pair_defaults(store, target, here)
    if target.requirement in here:
        return here[target.requirement]
    alive = await _alive(store)
    capable = [node for node in alive if target.requirement in node.capabilities]
    if capable:
        declaring = [node for node in capable if target.requirement in node.defaults]
        latest = max(declaring, key=lambda node: node.started_at, default=None)
        return None if latest is None else latest.defaults[target.requirement]
    if isinstance(target, AgentTarget | ActionTarget):
        # Accepted: if the service is still missing at run time, the run fails with that reason.
        return None
    known = _names(target.kind, {*here, *(each for node in alive for each in node.capabilities)})
    raise InvalidInput(
        _("no running node offers the flow {name!r}", name=target.name)
        if isinstance(target, FlowTarget)
        else _("no running node offers the task {name!r}", name=target.name),
        field="target.name",
        code=f"unknown_{target.kind}",
        hint=suggest_name(target.name, known),
    )


async def _find_pair_defaults(
    store: Store, target: SyncTarget, here: Mapping[str, RunDefaults]
) -> RunDefaults:
    """Collections of a source are known by the run defaults that nodes declare for them."""
    if target.key in here:
        return here[target.key]
    alive = await _alive(store)
    declaring = [node for node in alive if target.key in node.defaults]
    if declaring:
        return max(declaring, key=lambda node: node.started_at).defaults[target.key]
    known = _collections(target.source, here, alive)
    raise InvalidInput(
        _(
            "the source {source!r} has no collection {collection!r}",
            source=target.source,
            collection=target.collection,
        ),
        field="target.collection",
        code="unknown_collection",
        hint=suggest_name(target.collection, known),
    )


async def is_pair_available(store: Store, target: SyncTarget) -> bool:
    """Whether any live node has the pair of source and collection."""
    return any(target.key in node.defaults for node in await _alive(store))


async def is_agent_available(store: Store) -> bool:
    """Whether any live node has an agent pipeline; only those declare run defaults for it."""
    return any(AGENT in node.defaults for node in await _alive(store))


async def are_actions_available(store: Store) -> bool:
    """Whether any live node has an action service."""
    return any(ACTION in node.defaults for node in await _alive(store))


async def check_source(store: Store, source: str, here: Mapping[str, RunDefaults]) -> None:
    """Raises InvalidInput if no live node has the source."""
    _collections(source, here, await _alive(store))


def _collections(
    source: str, here: Mapping[str, RunDefaults], alive: Collection[Node]
) -> list[str]:
    known = {*here, *(key for node in alive for key in node.defaults)}
    pairs = sorted(parse_pair_key(key) for key in known if is_pair_key(key))
    found = [collection for name, collection in pairs if name == source]
    if not found:
        raise InvalidInput(
            _("no running node has the source {source!r}", source=source),
            field="target.source",
            code="unknown_source",
            hint=suggest_name(source, sorted({name for name, _collection in pairs})),
        )
    return found


async def _alive(store: Store) -> list[Node]:
    now = await store.now()
    return [node for node in await store.nodes() if node.lease_until > now]


def apply_run_defaults(
    schedule: Schedule, defaults: RunDefaults, explicit: Collection[str]
) -> Schedule:
    """A new schedule with the run defaults for all but the `explicit` fields."""
    return replace(
        schedule,
        policy=apply_task_defaults(schedule.policy, defaults.policy, explicit),
        priority=schedule.priority if PRIORITY in explicit else defaults.priority,
    )


def switch_run_defaults(
    after: Schedule,
    target: Target,
    before: RunDefaults,
    defaults: RunDefaults,
    explicit: Collection[str],
) -> Schedule:
    """Replaces the run defaults of the old `target` by those of the new one.

    Values that were set on the schedule stay, unless the kind of target changes: they would not be
    comparable.
    """
    own = unchanged_fields(after.policy, before.policy)
    if after.target.kind != target.kind:
        own = TASK_POLICY_FIELDS
    elif after.policy.concurrency_key == target.requirement:
        # The concurrency limit of the old task, even if no live node declares it any more.
        own |= {"concurrency_key", "max_concurrent_runs", "overlap"}
    return replace(
        after,
        policy=apply_task_defaults(
            after.policy, defaults.policy, {*explicit, *(TASK_POLICY_FIELDS - own)}
        ),
        priority=defaults.priority
        if PRIORITY not in explicit and after.priority == before.priority
        else after.priority,
    )


def drop_pair_key(before: Schedule, after: Schedule) -> Schedule:
    """Removes the concurrency key of the old pair from a schedule with another target."""
    was = before.target
    if (
        isinstance(was, SyncTarget)
        and after.target != was
        and after.policy.concurrency_key == was.key
    ):
        return replace(after, policy=replace(after.policy, concurrency_key=None))
    return after


def _names(kind: str, capabilities: Collection[str]) -> list[str]:
    """Names of tasks or flows, without steps (`flow/step`), which only their flow may run."""
    prefix = f"{kind}:"
    names = (each.removeprefix(prefix) for each in capabilities if each.startswith(prefix))
    return [name for name in names if "/" not in name]


#: Prefix of the state of a linked Telegram chat, before the chat id.
LINKED_CHAT = "telegram:chat:"


def with_default_zones(policy: Policy, zone: str, trigger: Trigger | None = None) -> Policy:
    """The policy with a zone for quiet hours and digests that name none: the trigger's if it uses
    wall-clock time, else `zone`."""
    if all(each.quiet is None and each.digest is None for each in policy.delivery):
        return policy
    if trigger is not None and not isinstance(trigger, Every):
        zone = trigger.with_default_zone(zone).zone
    return replace(policy, delivery=tuple(each.with_default_zone(zone) for each in policy.delivery))


async def check_chats(
    store: Store,
    actor: Actor,
    recipients: Sequence[Recipient],
    before: Collection[Recipient] = (),
) -> None:
    """Raises InvalidInput for Telegram chats that are not linked to the actor's owner. An admin may
    use any chat, and chats in `before` may stay."""
    if actor.role is Role.ADMIN:
        return
    known = {each.to for each in before if each.channel is Channel.TELEGRAM}
    for place, recipient in enumerate(recipients):
        if recipient.channel is not Channel.TELEGRAM or recipient.to in known:
            continue
        if not await _is_own(store, actor.owner, recipient.to):
            raise InvalidInput(
                _("chat {chat} not found", chat=recipient.to),
                field=f"delivery[{place}].to",
                code="not_found",
                hint=_("link the chat first: send your account's link code to the bot"),
            )


async def _is_own(store: Store, owner: Owner, chat: str) -> bool:
    if owner.type is OwnerType.CHAT and owner.id == chat:
        return True
    state = await store.get_checkpoint(LINKED_CHAT + chat)
    if state is None:
        return False
    try:
        found = json.loads(state.value)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("owner") == str(owner)


# --- long computations ----------------------------------------------------------------------------
def excludes_holidays(trigger: Trigger) -> bool:
    return any(calendar.holidays for calendar in trigger.exclude)


async def calculate(triggers: Iterable[Trigger], compute: Callable[[], T]) -> T:
    """Calls a function that searches fires of the triggers: in a thread if one of them excludes
    public holidays, which take milliseconds per country and year. Once searched, they are cached.
    """
    return await CALCULATIONS.run(compute) if any(map(excludes_holidays, triggers)) else compute()


async def load_calendars(text: str | bytes) -> None:
    """Loads what is needed to parse the triggers in a text, such as the body of a request."""
    found = b"holidays" in text if isinstance(text, bytes) else "holidays" in text
    if found and not holidays_are_loaded():
        await CALCULATIONS.run(load_holidays)


async def parse_sentence(text: str, *, now: datetime, timezone: str, lang: str | None) -> Parsed:
    """`chimes.language.parse` in a thread: a long text takes half a second. The grammars are loaded
    with the first one, because most nodes never parse a sentence."""

    def parse_text() -> Parsed:
        from chimes.language import parse

        return parse(text, now=now, timezone=timezone, lang=lang)

    return await CALCULATIONS.run(parse_text)
