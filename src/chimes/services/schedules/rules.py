"""Rules for saving schedules and starting runs, and the run defaults of targets.

`ScheduleRules` checks access to targets, limits, time zones, names and dependencies. Run defaults
are the policy and priority of a target whose schedule sets none: those that a task or flow declares
on a live node, else those of its kind. `model/validation.py` has the checks of the values alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from chimes.config import Settings
from chimes.config.connections import Connection, find_connection
from chimes.egress import Egress
from chimes.envelope import VARIABLE
from chimes.errors import AlreadyExists, InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import (
    Actor,
    Owner,
    OwnerType,
    Quota,
    Role,
    secret_fields,
    secret_names,
    unknown_secret,
)
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
from chimes.model.sync import HIGH, SYNC_TIMEOUT, task_policy
from chimes.model.sync import NOW as NOW_CLASS
from chimes.model.target import (
    CONNECTION_KINDS,
    ActionTarget,
    AgentTarget,
    CommandTarget,
    ConnectionTarget,
    FlowTarget,
    HttpTarget,
    KubernetesTarget,
    MessageTarget,
    SyncTarget,
    Target,
    TaskTarget,
    command_requirements,
    connection_name,
    is_pair_key,
    parse_pair_key,
)
from chimes.model.validation import (
    PRIORITY_LIMIT,
    SHORTEST_INTERVAL,
    check_fires,
    check_interval,
    check_recipients,
    signing_key,
)
from chimes.services.access import (
    CALCULATIONS,
    NO_RUN_LIMITS,
    QuotaRule,
    RunLimits,
    RunQuotas,
    no_quotas,
)
from chimes.services.calendars import CalendarService
from chimes.services.documents import DocumentStore
from chimes.services.limits import LimitService
from chimes.services.preferences import PreferenceService
from chimes.services.secrets import SecretService
from chimes.store.codec.values import recipient_to_plain, secrets_of, target_to_plain
from chimes.store.port import Store
from chimes.triggers import (
    AnyOf,
    BusinessDay,
    Cron,
    Every,
    Once,
    OnFile,
    OnRunEnd,
    OnSql,
    Trigger,
    Webhook,
)
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
        command_roles: Collection[str] = (Role.ADMIN,),
        file_directories: Collection[str] = (),
        file_roles: Collection[str] = (Role.ADMIN,),
        connections: Sequence[Connection] = (),
    ) -> None:
        """`refresh_limits` is awaited before `limits` is called for a change.

        `capabilities`: what the application of this process can execute, with the run defaults;
        valid before its node has joined. `egress`: the rules that `check_target` applies.
        `command_roles`: the roles that may create commands. `file_directories`: below which file
        triggers may watch, `file_roles`: the roles that may create them. `connections`: those of
        this process, which targets and SQL triggers may name.
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
        self._command_roles = frozenset(command_roles)
        self._file_directories = tuple(file_directories)
        self._file_roles = frozenset(file_roles)
        self._connections = connections
        self._preferences = PreferenceService(store)
        self._secrets = SecretService(store)
        self.limits = LimitService(store)
        self.calendars = CalendarService(store)

    def quotas(self, owner: Owner) -> tuple[Quota, ...]:
        return self._limits().quotas(owner)

    async def get_schedule(self, actor: Actor, schedule_id: ScheduleId) -> Schedule:
        """The schedule if the actor may see it, else NotFound."""
        schedule = await self._store.get_schedule(schedule_id)
        if schedule is None or schedule.deleted_at or not actor.may_read(schedule.owner):
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
        self, trigger: Trigger, before: Trigger | None, zone: str, schedule_id: ScheduleId
    ) -> Trigger:
        """Adds zone, anchor and the seed of hashed fields. An unchanged interval keeps its anchor,
        a webhook its address and its masked secret."""
        if isinstance(trigger, Webhook):
            return trigger.completed(before)
        trigger = trigger.with_default_zone(zone).seeded(schedule_id)
        if (
            isinstance(trigger, Cron)
            and isinstance(before, Cron)
            and trigger.anchor is None
            and replace(trigger, anchor=before.anchor) == before
        ):
            # An unchanged `@every`, the only expression with an anchor.
            return before
        if isinstance(trigger, Every) and isinstance(before, Every) and trigger.anchor is None:
            anchored = replace(trigger, anchor=before.anchor)
            if anchored.every == before.every:
                return anchored
        return trigger.with_default_anchor()

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
        trigger in the past. Schedules of chats always have the limit of members. Of an event
        trigger, checks that the actor may use it."""
        if trigger.on_event:
            self._check_event_trigger(actor, trigger)
            return
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

    def _check_event_trigger(self, actor: Actor, trigger: Trigger) -> None:
        match trigger:
            case Webhook():
                if trigger.scheme == "standard":
                    try:
                        signing_key(trigger.secret)
                    except InvalidInput as error:
                        error.field = "trigger.secret"
                        raise
                if trigger.secret and self._lacks_key:
                    self._refuse_secrets("trigger.secret", {"secret": trigger.secret}, [])
            case OnFile():
                self._check_file_trigger(actor, trigger)
            case OnSql():
                known = find_connection(self._connections, trigger.connection, "sql")
                if known is None:
                    names = [each.name for each in self._connections if each.kind == "sql"]
                    raise InvalidInput(
                        _(
                            "there is no connection {name!r} of kind sql; chimes.yaml has {known}",
                            name=trigger.connection,
                            known=", ".join(names) or "-",
                        ),
                        field="trigger.connection",
                        code="unknown_connection",
                        hint=suggest_name(trigger.connection, names),
                    )
                if actor.role not in known.roles:
                    raise NotAllowed(
                        _(
                            "only these roles may use the connection {name}: {roles}",
                            name=known.name,
                            roles=", ".join(known.roles),
                        )
                    )
            case _:
                pass

    def _check_file_trigger(self, actor: Actor, trigger: OnFile) -> None:
        if actor.role not in self._file_roles:
            raise NotAllowed(
                _(
                    "only these roles may use file triggers: {roles} (CHIMES_FILE_TRIGGER_ROLES)",
                    roles=", ".join(sorted(self._file_roles)),
                )
            )
        if not is_watchable(trigger.path, self._file_directories):
            raise InvalidInput(
                _(
                    "file triggers may watch only below {allowed} (CHIMES_FILE_TRIGGER_DIRS)",
                    allowed=", ".join(self._file_directories),
                ),
                field="trigger.path",
                code="directory_not_allowed",
            )

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
        if isinstance(target, CommandTarget) and actor.role not in self._command_roles:
            raise NotAllowed(
                _(
                    "only these roles may use commands: {roles} (CHIMES_COMMAND_ROLES)",
                    roles=", ".join(sorted(self._command_roles)),
                )
            )
        if isinstance(target, ConnectionTarget):
            self._check_connection_allowed(actor, target)
        if _acts_for_another_account(actor, target, before):
            raise NotAllowed(_("only an admin may act for another account"))
        disables_tls_check = _skips_tls_check(target) and not _skips_tls_check(before)
        if disables_tls_check and actor.role is not Role.ADMIN:
            raise NotAllowed(_("only an admin may disable TLS certificate checks"))
        self.check_target(target)
        if self._lacks_key:
            known = [] if before is None else secrets_of(target_to_plain(before))
            self._refuse_secrets("target", target_to_plain(target), known)

    def _check_connection_allowed(self, actor: Actor, target: ConnectionTarget) -> None:
        """The roles and patterns of the connection in the file of this process. A connection that
        only other nodes have is for admins; their files limit what their runs may use."""
        found = next(
            (each for each in self._connections if each.capability == target.requirement), None
        )
        roles = ("admin",) if found is None else found.roles
        if actor.role not in roles:
            raise NotAllowed(
                _(
                    "only these roles may use the connection {name!r}: {roles} (roles in "
                    "chimes.yaml)",
                    name=target.connection,
                    roles=", ".join(roles),
                )
            )
        if found is not None and not found.allows(connection_name(target)):
            raise InvalidInput(
                _(
                    "the connection {name!r} does not allow {used!r}; allowed: {allowed}",
                    name=target.connection,
                    used=connection_name(target),
                    allowed=", ".join(found.allow),
                ),
                field="target",
                code="not_allowed_there",
            )
        if found is not None and isinstance(target, KubernetesTarget):
            _check_kubernetes_allowed(actor, target, found)

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

    async def get_run_defaults(
        self, target: Target, *, allow_missing: bool = False
    ) -> RunDefaults | None:
        """The run defaults that a task or flow declares, None if it declares none.

        Raises InvalidInput if no live node can execute the target. `allow_missing`: for schedules,
        whose task or flow may come with a worker that is not up yet; the result is then None, and
        the schedule has a warning (`SetupService`).
        """
        if isinstance(target, HttpTarget):
            return None
        # Checked first, so that an error message repeats only well-formed names.
        self.check_target(target)
        try:
            return await find_run_defaults(self._store, target, self._capabilities())
        except InvalidInput:
            if allow_missing and isinstance(target, TaskTarget | FlowTarget):
                return None
            raise

    def local_capabilities(self) -> Collection[str]:
        """What the application of this process can execute."""
        return self._capabilities().keys()

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

    async def check_dependency(
        self,
        actor: Actor,
        schedule: Schedule,
        planned: Mapping[ScheduleId, Schedule] = MappingProxyType({}),
    ) -> None:
        """Raises InvalidInput for an unknown or invisible dependency or source of a trigger, and
        for a cycle. `planned`: schedules that are saved together with this one, as they will be."""
        if isinstance(schedule.trigger, OnRunEnd):
            await self._check_source_schedule(actor, schedule, schedule.trigger, planned)
        if schedule.depends_on is None:
            return
        first = schedule.depends_on.schedule_id
        try:
            other: Schedule | None = planned.get(first)
            if other is None:
                other = await self.get_schedule(actor, first)
        except NotFound:
            raise InvalidInput(
                _("schedule {id} not found", id=first),
                field="depends_on.schedule_id",
                code="not_found",
            ) from None
        visited = {schedule.id}
        while other is not None and other.depends_on is not None and other.id not in visited:
            visited.add(other.id)
            following = other.depends_on.schedule_id
            other = planned.get(following) or await self._store.get_schedule(following)
        if other is not None and other.id == schedule.id:
            raise InvalidInput(
                _("these schedules would depend on each other in a cycle"),
                field="depends_on.schedule_id",
                code="cycle",
            )

    async def _check_source_schedule(
        self,
        actor: Actor,
        schedule: Schedule,
        trigger: OnRunEnd,
        planned: Mapping[ScheduleId, Schedule],
    ) -> None:
        first = ScheduleId(trigger.schedule)
        chain = [schedule.id]
        try:
            other = planned.get(first)
            if other is None and first != schedule.id:
                other = await self.get_schedule(actor, first)
        except NotFound:
            raise InvalidInput(
                _("schedule {id} not found", id=first), field="trigger.schedule", code="not_found"
            ) from None
        following: ScheduleId | None = first
        while following is not None and following not in chain:
            chain.append(following)
            if other is None or not isinstance(other.trigger, OnRunEnd):
                return
            following = ScheduleId(other.trigger.schedule)
            other = planned.get(following) or await self._store.get_schedule(following)
        if following == schedule.id:
            raise InvalidInput(
                _(
                    "these schedules would start each other without end: {chain}",
                    chain=" → ".join(reversed([*chain, schedule.id])),
                ),
                field="trigger.schedule",
                code="cycle",
            )


def is_watchable(path: str, directories: Collection[str]) -> bool:
    """Whether a file trigger may watch this path; links are followed first. Without directories it
    may watch any."""
    if not directories:
        return True
    folder = os.path.realpath(os.path.dirname(path))
    for each in directories:
        allowed = os.path.realpath(each)
        if folder == allowed or folder.startswith(allowed.rstrip("/") + "/"):
            return True
    return False


def _places(recipients: Sequence[Recipient]) -> list[tuple[str, Recipient]]:
    return [(f"delivery[{place}]", each) for place, each in enumerate(recipients)]


def _is_admin(actor: Actor, owner: Owner) -> bool:
    """Schedules of chats always have the limits of members."""
    return actor.role is Role.ADMIN and owner.type is not OwnerType.CHAT


def refuse_agents(actor: Actor, target: Target) -> None:
    """An agent may not start agents: that could recurse without end. What it reads may make it run
    any command."""
    if actor.is_agent and isinstance(target, AgentTarget):
        raise NotAllowed(_("an agent may not run prompts"))
    if actor.is_agent and isinstance(target, CommandTarget):
        raise NotAllowed(_("an agent may not run commands"))
    if actor.is_agent and isinstance(target, ConnectionTarget):
        raise NotAllowed(_("an agent may not use engines and brokers"))


def _acts_for_another_account(actor: Actor, target: Target, before: Target | None) -> bool:
    """The action service trusts the account in the request, so only an admin may set another."""
    if not isinstance(target, ActionTarget) or actor.role is Role.ADMIN:
        return False
    account = (target.account_id, target.account_type)
    if isinstance(before, ActionTarget) and account == (before.account_id, before.account_type):
        return False
    own = actor.owner
    return account[0] not in ("", own.id) or account[1] not in ("", own.type.value)


def _check_kubernetes_allowed(
    actor: Actor, target: KubernetesTarget, connection: Connection
) -> None:
    """A manifest and another namespace reach all that the token of the connection can: service
    accounts, secrets and directories of nodes."""
    if actor.role is Role.ADMIN or connection.allow_manifest:
        return
    field = "manifest" if target.manifest else "namespace"
    if target.manifest or target.namespace not in ("", connection.namespace):
        raise InvalidInput(
            _(
                "only an admin may set {field} with the connection {name!r}: leave it out, or ask "
                "for `allow_manifest: true` of the connection in chimes.yaml",
                field=field,
                name=target.connection,
            ),
            field=f"target.{field}",
            code="not_allowed_there",
        )


def _skips_tls_check(target: Target | None) -> bool:
    return isinstance(target, HttpTarget) and not target.verify_tls


# --- run defaults and capabilities ----------------------------------------------------------------
#: Capability of nodes that execute prompts.
AGENT = "agent"
#: Capability of nodes that execute actions.
ACTION = "action"
#: Capability of nodes that execute commands.
COMMAND = "command"
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
    "command": timedelta(hours=1),
    "celery": timedelta(hours=1),
    "dask": timedelta(hours=1),
    "kubernetes": timedelta(hours=1),
    "amqp": timedelta(seconds=10),
    "nats": timedelta(seconds=10),
    "redis_stream": timedelta(seconds=10),
    "kafka": timedelta(seconds=10),
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


def command_capabilities(settings: Settings) -> dict[str, RunDefaults]:
    """What schedules may require of a node with these settings; empty if it allows no commands. A
    server that only serves the API accepts commands with the setting, for workers to come."""
    if not settings.allow_commands:
        return {}
    defaults = RunDefaults(policy=Policy(timeout=DEFAULT_TIMEOUTS[COMMAND]))
    return dict.fromkeys(command_requirements(dict(settings.labels)), defaults)


def connection_capabilities(settings: Settings) -> dict[str, RunDefaults]:
    """The connections in the file of a node with these settings, `kind:name`."""
    return {
        each.capability: RunDefaults(policy=Policy(timeout=DEFAULT_TIMEOUTS["celery"]))
        for each in settings.connections
    }


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
    if isinstance(target, CommandTarget):
        await _check_commands_allowed(store, here)
        return None
    if isinstance(target, ConnectionTarget):
        await _check_connection_known(store, target, here)
        return None
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
    known = {*here, *(each for node in alive for each in node.capabilities)}
    raise InvalidInput(
        _("no running node offers the flow {name!r}", name=target.name)
        if isinstance(target, FlowTarget)
        else _("no running node offers the task {name!r}", name=target.name),
        field="target.name",
        code=f"unknown_{target.kind}",
        hint=suggest_capability(target, known),
    )


NO_COMMANDS = _(
    "commands are not allowed: no running node is started with CHIMES_ALLOW_COMMANDS=true "
    "(--allow-commands)"
)


async def _check_commands_allowed(store: Store, here: Collection[str]) -> None:
    """Raises InvalidInput if neither this process nor a live node allows commands. A worker with
    the required labels may start later."""
    if COMMAND in here or any(COMMAND in node.capabilities for node in await _alive(store)):
        return
    raise InvalidInput(NO_COMMANDS, field="target", code="commands_not_allowed")


async def _check_connection_known(
    store: Store, target: ConnectionTarget, here: Collection[str]
) -> None:
    """Raises InvalidInput if neither this process nor a live node has the connection."""
    known = await known_connections(store, here)
    if target.requirement in known:
        return
    kind = target.requirement.partition(":")[0]
    names = sorted(each.partition(":")[2] for each in known if each.startswith(f"{kind}:"))
    raise InvalidInput(
        _(
            "no running node has a connection {name!r} of kind {kind}; known: {names}",
            name=target.connection,
            kind=kind,
            names=", ".join(names),
        )
        if names
        else _(
            "no running node has a connection {name!r} of kind {kind}: add it to `connections:` "
            "in chimes.yaml",
            name=target.connection,
            kind=kind,
        ),
        field="target.connection",
        code="unknown_connection",
        hint=suggest_name(target.connection, names),
    )


async def known_connections(store: Store, here: Collection[str]) -> dict[str, list[Node]]:
    """The connections of this process and of live nodes, `kind:name`, with the nodes that have
    them."""
    prefixes = tuple(f"{kind}:" for kind in CONNECTION_KINDS)
    found: dict[str, list[Node]] = {each: [] for each in here if each.startswith(prefixes)}
    for node in await _alive(store):
        for name in {*node.capabilities, *node.defaults}:
            if name.startswith(prefixes):
                found.setdefault(name, []).append(node)
    return found


def suggest_capability(target: TaskTarget | FlowTarget, known: Collection[str]) -> str | None:
    """A hint with the nearest name of a task or flow that nodes offer."""
    return suggest_name(target.name, _names(target.kind, known))


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
#: Prefix of the chats that are linked to an owner, or wait for it, before the owner.
LINKED_CHATS = "telegram:links:"


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


async def deciding_recipients(
    store: Store, owner: Owner, *, admins: bool = False
) -> list[tuple[Owner, Recipient]]:
    """Inbox and linked chats of those who may decide for an owner: the owner, and the admins if it
    is not a person, or if only they may."""
    owners = [owner]
    if admins or owner.type is OwnerType.SYSTEM:
        from chimes.services.users import UserService

        users = await UserService(store).list_users(Actor())
        found = (each.owner for each in users if each.role is Role.ADMIN)
        owners = list(dict.fromkeys([owner, *found]))
    recipients: list[tuple[Owner, Recipient]] = []
    for each in owners:
        recipients.append((each, Recipient(channel=Channel.INBOX)))
        recipients += [
            (each, Recipient(channel=Channel.TELEGRAM, to=chat))
            for chat in await linked_chats(store, each)
        ]
    return recipients


async def linked_chats(store: Store, owner: Owner) -> list[str]:
    """Telegram chats of an owner."""
    if owner.type is OwnerType.CHAT:
        return [owner.id]
    found = await DocumentStore(store, f"{LINKED_CHATS}{owner}").read()
    return [chat for chat in found if await _is_own(store, owner, chat)]


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
    if isinstance(trigger, AnyOf):
        return any(map(excludes_holidays, (*trigger.of, *trigger.except_))) or any(
            calendar.holidays for calendar in trigger.exclude
        )
    if isinstance(trigger, BusinessDay) and trigger.calendar is not None:
        return True
    return any(calendar.holidays for calendar in trigger.exclude)


async def calculate(triggers: Iterable[Trigger], compute: Callable[[], T]) -> T:
    """Calls a function that searches fires of the triggers: in a thread if one of them excludes
    public holidays, which take milliseconds per country and year. Once searched, they are cached.
    """
    return await CALCULATIONS.run(compute) if any(map(excludes_holidays, triggers)) else compute()


async def load_calendars(text: str | bytes) -> None:
    """Loads what is needed to parse the triggers in a text, such as the body of a request."""
    raw = text if isinstance(text, bytes) else text.encode(errors="replace")
    if (b"holidays" in raw or b'"calendar"' in raw) and not holidays_are_loaded():
        await CALCULATIONS.run(load_holidays)


async def parse_sentence(text: str, *, now: datetime, timezone: str, lang: str | None) -> Parsed:
    """`chimes.language.parse` in a thread: a long text takes half a second. The grammars are loaded
    with the first one, because most nodes never parse a sentence."""

    def parse_text() -> Parsed:
        from chimes.language import parse

        return parse(text, now=now, timezone=timezone, lang=lang)

    return await CALCULATIONS.run(parse_text)
