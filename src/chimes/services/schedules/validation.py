"""Validation of schedules, policies and recipients, and the run defaults of targets."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from chimes.config import Settings
from chimes.errors import InvalidInput, InvalidTrigger
from chimes.i18n import _
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.change import replace as replace_recipients
from chimes.model.definition import (
    PRIORITY,
    TASK_POLICY_FIELDS,
    ActionTarget,
    AgentTarget,
    Backoff,
    Channel,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    Overlap,
    Policy,
    Recipient,
    RunDefaults,
    SyncTarget,
    Target,
    apply_task_defaults,
    unchanged_fields,
)
from chimes.model.node import Node
from chimes.model.schedule import Schedule
from chimes.model.sync import (
    HIGH,
    MAX_SYNC_TIMEOUT,
    SYNC_TIMEOUT,
    is_pair_key,
    parse_pair_key,
    require_exclusive,
    task_policy,
)
from chimes.store.port import Store
from chimes.triggers import Cron, Every, Trigger, never_fires
from chimes.triggers.values import suggest_name

#: Capability of nodes that execute prompts.
AGENT = "agent"
#: Capability of nodes that execute actions.
ACTION = "action"
TASK_TIMEOUT = timedelta(minutes=5)
FLOW_TIMEOUT = timedelta(days=1)
#: Default and longest timeouts by kind of target. The timeout of a flow covers all its steps; the
#: default of HTTP targets is a setting.
DEFAULT_TIMEOUTS: Mapping[str, timedelta] = {
    "http": timedelta(seconds=10),
    "task": TASK_TIMEOUT,
    "flow": FLOW_TIMEOUT,
    "sync": SYNC_TIMEOUT,
    "agent": timedelta(minutes=10),
    "action": timedelta(minutes=10),
    "message": timedelta(seconds=10),
}
LONGEST_TIMEOUTS: Mapping[str, timedelta] = {
    "http": timedelta(minutes=15),
    "task": timedelta(days=7),
    "flow": timedelta(days=365),
    "sync": MAX_SYNC_TIMEOUT,
    "agent": timedelta(days=1),
    "action": timedelta(days=1),
    "message": timedelta(minutes=1),
}


def default_timeout(target: Target) -> timedelta:
    return DEFAULT_TIMEOUTS[target.kind]


def longest_timeout(target: Target) -> timedelta:
    return LONGEST_TIMEOUTS[target.kind]


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


NAME_LIMIT = 200
ID_LIMIT = 200
LABEL_LIMIT = 50
PRIORITY_LIMIT = 1000
SHORTEST_INTERVAL = timedelta(milliseconds=100)
LONGEST_WAIT = timedelta(days=365)
MAX_RETRIES = 100
MAX_CONCURRENT_RUNS = 1_000_000
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_MAX_CONSECUTIVE_MARKS = 8
_FIRES_CHECKED = 60
_SECOND = timedelta(seconds=1)


def clean_name(name: str, field: str = "name") -> str:
    """NFC and trimmed; rejects characters that are unsafe to store or display."""
    cleaned = unicodedata.normalize("NFC", check_text(name, field)).strip()
    if not cleaned:
        raise InvalidInput(_("a name is required"), field=field, code="missing")
    if len(cleaned) > NAME_LIMIT:
        raise InvalidInput(
            _(
                "a name has at most {most} characters, this one has {count}",
                most=NAME_LIMIT,
                count=len(cleaned),
            ),
            field=field,
            code="too_long",
        )
    return cleaned


def check_text(text: str, field: str) -> str:
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if (
            category in _FORBIDDEN_CATEGORIES
            or character in _BIDI_CONTROLS
            or marks > _MAX_CONSECUTIVE_MARKS
        ):
            raise InvalidInput(
                _("the character U+{code:04X} is not allowed here", code=ord(character)),
                field=field,
                code="bad_character",
            )
    return text


def check_id(schedule_id: str) -> str:
    if not 0 < len(schedule_id) <= ID_LIMIT:
        raise InvalidInput(
            _("an id has 1 to {most} characters", most=ID_LIMIT),
            field="id",
            code="too_long",
        )
    if any(character.isspace() or character in "/?#%\\" for character in schedule_id):
        raise InvalidInput(
            _("an id has no spaces and none of / ? # % \\"), field="id", code="bad_character"
        )
    return check_text(schedule_id, "id")


def validate_schedule(schedule: Schedule) -> Schedule:
    """The schedule with normalised name and policy. Raises InvalidInput with the invalid field."""
    policy = validate_policy(schedule.policy, schedule.target)
    check_priority(schedule.priority, schedule.target)
    if len(schedule.labels) > LABEL_LIMIT:
        raise InvalidInput(
            _("at most {most} labels", most=LABEL_LIMIT),
            field="labels",
            code="too_many",
        )
    for name, value in schedule.labels.items():
        clean_name(name, "labels")
        check_text(value or "", f"labels.{name}")
    if schedule.depends_on is not None and schedule.depends_on.schedule_id == schedule.id:
        raise InvalidInput(
            _("a schedule cannot depend on itself"), field="depends_on", code="cycle"
        )
    check_text(schedule.pause_note, "note")
    return replace(schedule, name=clean_name(schedule.name), policy=policy)


def check_priority(priority: int, target: Target | None = None) -> None:
    """The priority class of a sync task is positive."""
    least = 1 if isinstance(target, SyncTarget) else -PRIORITY_LIMIT
    if not least <= priority <= PRIORITY_LIMIT:
        raise InvalidInput(
            _(
                "priority must be between {least} and {most}",
                least=least,
                most=PRIORITY_LIMIT,
            ),
            field="priority",
            code="out_of_range",
        )


def validate_policy(policy: Policy, target: Target) -> Policy:
    """The policy as runs of this target use it. Raises InvalidInput."""
    if isinstance(target, SyncTarget):
        policy = require_exclusive(policy, target)
    elif policy.concurrency_key is not None and is_pair_key(policy.concurrency_key):
        raise InvalidInput(
            _("keys of this form are reserved for sync tasks"),
            field="policy.concurrency_key",
            code="reserved",
        )
    check_policy(policy, longest_timeout=longest_timeout(target))
    return policy


def check_policy(policy: Policy, *, longest_timeout: timedelta) -> None:
    zero = timedelta()
    for field, value, low, high in (
        ("misfire_grace", policy.misfire_grace, zero, LONGEST_WAIT),
        ("retry_backoff", policy.retry_backoff, zero, LONGEST_WAIT),
        ("backoff_cap", policy.backoff_cap, zero, LONGEST_WAIT),
        ("timeout", policy.timeout, timedelta(milliseconds=1), longest_timeout),
    ):
        if not low <= value <= high:
            raise InvalidInput(
                _("{field} must be between {least} and {most}", field=field, least=low, most=high),
                field=f"policy.{field}",
                code="out_of_range",
            )
    for field, number, least, most in (
        ("catch_up_limit", policy.catch_up_limit, 1, 100_000),
        ("max_retries", policy.max_retries, 0, MAX_RETRIES),
        ("max_concurrent_runs", policy.max_concurrent_runs or 1, 1, MAX_CONCURRENT_RUNS),
    ):
        if not least <= number <= most:
            raise InvalidInput(
                _(
                    "{field} must be between {least} and {most}",
                    field=field,
                    least=least,
                    most=most,
                ),
                field=f"policy.{field}",
                code="out_of_range",
            )
    if policy.concurrency_key is not None:
        clean_name(policy.concurrency_key, "policy.concurrency_key")
    if policy.max_concurrent_runs == 0:
        raise InvalidInput(
            _("max_concurrent_runs must be at least 1"),
            field="policy.max_concurrent_runs",
            code="out_of_range",
        )


def check_interval(trigger: Trigger, shortest: timedelta, now: datetime) -> None:
    """Checks an interval itself, and a cron expression by its next fires, because only one with a
    seconds field can be this fast. `@every` counts as an interval."""
    interval = isinstance(trigger, Cron) and "@every" in trigger.expression
    if isinstance(trigger, Every):
        closest = trigger.every
    elif shortest <= _SECOND and not interval:
        return
    else:
        fires = [fire.at for fire in trigger.fires(now, _FIRES_CHECKED)]
        closest = min((b - a for a, b in pairwise(fires)), default=shortest)
    if closest < shortest:
        raise InvalidTrigger(
            _("the shortest allowed interval is {shortest:g} s", shortest=shortest.total_seconds()),
            field="trigger.every" if isinstance(trigger, Every) else "trigger.expression",
            code="interval_too_short",
        )


def check_fires(trigger: Trigger, after: datetime) -> None:
    """Raises InvalidTrigger for a trigger that would never fire."""
    if never_fires(trigger, after):
        raise InvalidTrigger(
            _("this trigger would never fire"), field="trigger", code="never_fires"
        )


#: Prefix of the state of a linked Telegram chat, before the chat id.
LINKED_CHAT = "telegram:chat:"


def with_default_zones(policy: Policy, zone: str, trigger: Trigger | None = None) -> Policy:
    """The policy with a zone for quiet hours and digests that name none: the trigger's if it uses
    wall-clock time, else `zone`."""
    if all(each.quiet is None and each.digest is None for each in policy.delivery):
        return policy
    if trigger is not None and not isinstance(trigger, Every):
        zone = trigger.with_default_zone(zone).zone
    return replace_recipients(
        policy, delivery=tuple(each.with_default_zone(zone) for each in policy.delivery)
    )


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
