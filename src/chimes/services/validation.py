"""What a schedule must be like to be saved, whatever door it comes through."""

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
from chimes.model.sync import (
    HIGH,
    MAX_SYNC_TIMEOUT,
    SYNC_TIMEOUT,
    is_pair_key,
    parse_pair_key,
    require_exclusive,
    task_policy,
)
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    Target,
)
from chimes.store.port import Store
from chimes.triggers import Cron, Every, Trigger, never_fires
from chimes.triggers.json_values import nearest

# @@ What holds for a target by its kind, and whether anybody is there to carry it out.

#: `needs` of a prompt.
AGENT = "agent"
#: `needs` of an action.
ACTION = "action"
TASK_TIMEOUT = timedelta(minutes=5)
FLOW_TIMEOUT = timedelta(days=1)
#: By the kind of a target: where nobody said how long a run may take (of HTTP targets the settings
#: do), and the longest that may be asked for; of a flow all of its steps together.
USUAL_TIMEOUTS: Mapping[str, timedelta] = {
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


def usual_timeout(target: Target) -> timedelta:
    return USUAL_TIMEOUTS[target.kind]


def longest_timeout(target: Target) -> timedelta:
    return LONGEST_TIMEOUTS[target.kind]


def usual_defaults(target: Target) -> RunDefaults:
    """Of a task or flow that says nothing about itself."""
    if isinstance(target, SyncTarget):
        return RunDefaults(policy=task_policy(target), priority=HIGH)
    if isinstance(target, AgentTarget):
        return RunDefaults(policy=agent_policy(Settings()))
    if isinstance(target, ActionTarget):
        return RunDefaults(policy=action_policy(Settings()))
    if isinstance(target, MessageTarget):
        # Of a message that nobody is told, nobody would know.
        inbox = (Recipient(channel=Channel.INBOX),)
        return RunDefaults(policy=Policy(timeout=usual_timeout(target), delivery=inbox))
    return RunDefaults(policy=Policy(timeout=usual_timeout(target)))


def default_policy(settings: Settings, target: Target) -> Policy:
    """The policy of a target whose schedule sets no option itself."""
    if isinstance(target, SyncTarget | MessageTarget):
        return replace(usual_defaults(target).policy, misfire_grace=settings.misfire_grace)
    if isinstance(target, AgentTarget):
        return replace(agent_policy(settings), misfire_grace=settings.misfire_grace)
    if isinstance(target, ActionTarget):
        return replace(action_policy(settings), misfire_grace=settings.misfire_grace)
    usual = Policy(misfire_grace=settings.misfire_grace, timeout=usual_timeout(target))
    if not isinstance(target, HttpTarget):
        return usual
    return replace(
        usual,
        max_retries=settings.max_retries,
        retry_backoff=settings.retry_backoff,
        timeout=settings.default_timeout,
    )


def agent_policy(settings: Settings) -> Policy:
    """Of a prompt whose schedule says nothing: attempts are counted in total (R1.32, C14), and its
    owner finds the answer in the inbox (R1.1)."""
    return Policy(
        timeout=settings.agent_timeout,
        max_retries=settings.dispatch_attempts - 1,
        retry_backoff=settings.dispatch_backoff,
        backoff=Backoff.EXPONENTIAL,
        delivery=(Recipient(channel=Channel.INBOX),),
    )


def agent_offers(settings: Settings) -> dict[str, RunDefaults]:
    """What a node with these settings offers of prompts: empty where it has no pipeline."""
    if not settings.agent_pipeline or "worker" not in settings.roles:
        return {}
    return {AGENT: RunDefaults(policy=agent_policy(settings))}


def action_policy(settings: Settings) -> Policy:
    """Of an action whose schedule says nothing (R0.34). A dispatch that failed is tried again
    (C14), the oldest of the slots that were missed is made up for (C1), and one that comes while
    the last is at work is skipped."""
    return Policy(
        timeout=settings.schedule_execution_timeout,
        max_retries=settings.max_retries,
        retry_backoff=settings.retry_backoff,
        backoff=Backoff.EXPONENTIAL,
        max_concurrent_runs=1,
        overlap=Overlap.SKIP,
    )


def action_offers(settings: Settings) -> dict[str, RunDefaults]:
    """What a node with these settings offers of actions: empty where it knows no service."""
    if not settings.action_url or "worker" not in settings.roles:
        return {}
    return {ACTION: RunDefaults(policy=action_policy(settings))}


def offered_as(target: Target) -> str:
    """Under which name somebody says how its runs are carried out."""
    return target.key if isinstance(target, SyncTarget) else target.needs


async def offered(
    store: Store, target: Target, here: Mapping[str, RunDefaults]
) -> RunDefaults | None:
    """What a task or a flow says about its runs: to the application `here`, else to the live node
    that joined last. One that nobody offers would wait for ever: InvalidInput. Only names are
    compared; nothing is looked up or imported because of one (S66)."""
    if isinstance(target, HttpTarget | MessageTarget):
        return None
    if isinstance(target, SyncTarget):
        return await _offered_pair(store, target, here)
    if target.needs in here:
        return here[target.needs]
    alive = await _alive(store)
    having = [node for node in alive if target.needs in node.offers]
    if having:
        telling = [node for node in having if target.needs in node.defaults]
        latest = max(telling, key=lambda node: node.started_at, default=None)
        return None if latest is None else latest.defaults[target.needs]
    if isinstance(target, AgentTarget | ActionTarget):
        # Its runs say what is missing, should it still be missing then.
        return None
    known = _names(target.kind, {*here, *(each for node in alive for each in node.offers)})
    raise InvalidInput(
        _("no node that is alive offers the flow {name!r}", name=target.name)
        if isinstance(target, FlowTarget)
        else _("no node that is alive offers the task {name!r}", name=target.name),
        field="target.name",
        code=f"unknown_{target.kind}",
        hint=nearest(target.name, known),
    )


async def _offered_pair(
    store: Store, target: SyncTarget, here: Mapping[str, RunDefaults]
) -> RunDefaults:
    """A source is offered as such; its collections are known by what is said about their runs."""
    if target.key in here:
        return here[target.key]
    alive = await _alive(store)
    telling = [node for node in alive if target.key in node.defaults]
    if telling:
        return max(telling, key=lambda node: node.started_at).defaults[target.key]
    known = _collections(target.source, here, alive)
    raise InvalidInput(
        _(
            "the source {source!r} has no collection {collection!r}",
            source=target.source,
            collection=target.collection,
        ),
        field="target.collection",
        code="unknown_collection",
        hint=nearest(target.collection, known),
    )


async def pair_is_offered(store: Store, target: SyncTarget) -> bool:
    """By any node that is alive."""
    return any(target.key in node.defaults for node in await _alive(store))


async def pipeline_is_offered(store: Store) -> bool:
    """By any node that is alive; those without one do not say how its runs are carried out."""
    return any(AGENT in node.defaults for node in await _alive(store))


async def actions_are_offered(store: Store) -> bool:
    """By any node that is alive and knows an action service."""
    return any(ACTION in node.defaults for node in await _alive(store))


async def check_source(store: Store, source: str, here: Mapping[str, RunDefaults]) -> None:
    """InvalidInput if nobody has it."""
    _collections(source, here, await _alive(store))


def _collections(
    source: str, here: Mapping[str, RunDefaults], alive: Collection[Node]
) -> list[str]:
    known = {*here, *(key for node in alive for key in node.defaults)}
    pairs = sorted(parse_pair_key(key) for key in known if is_pair_key(key))
    found = [collection for theirs, collection in pairs if theirs == source]
    if not found:
        raise InvalidInput(
            _("no node that is alive has the source {source!r}", source=source),
            field="target.source",
            code="unknown_source",
            hint=nearest(source, sorted({theirs for theirs, _unused in pairs})),
        )
    return found


async def _alive(store: Store) -> list[Node]:
    now = await store.now()
    return [node for node in await store.nodes() if node.lease_until > now]


def started_as(schedule: Schedule, defaults: RunDefaults, said: Collection[str]) -> Schedule:
    """A new schedule, with what nobody `said` as its target has it."""
    return replace(
        schedule,
        policy=apply_task_defaults(schedule.policy, defaults.policy, said),
        priority=schedule.priority if PRIORITY in said else defaults.priority,
    )


def turned_to(
    after: Schedule,
    target: Target,
    before: RunDefaults,
    defaults: RunDefaults,
    said: Collection[str],
) -> Schedule:
    """A schedule that had another `target`: what it had from that it now has from this one, what
    was set for itself stays. What was set for a target of another kind does not: its calls are
    not comparable."""
    own = unchanged_fields(after.policy, before.policy)
    if after.target.kind != target.kind:
        own = TASK_POLICY_FIELDS
    elif after.policy.concurrency_key == target.needs:
        # The limit of the other task, also where nobody is there who could say so.
        own |= {"concurrency_key", "max_concurrent_runs", "overlap"}
    return replace(
        after,
        policy=apply_task_defaults(
            after.policy, defaults.policy, {*said, *(TASK_POLICY_FIELDS - own)}
        ),
        priority=defaults.priority
        if PRIORITY not in said and after.priority == before.priority
        else after.priority,
    )


def without_key_of(before: Schedule, after: Schedule) -> Schedule:
    """A schedule that was turned to another pair does not keep the key of the first."""
    was = before.target
    if (
        isinstance(was, SyncTarget)
        and after.target != was
        and after.policy.concurrency_key == was.key
    ):
        return replace(after, policy=replace(after.policy, concurrency_key=None))
    return after


def _names(kind: str, offers: Collection[str]) -> list[str]:
    """Steps (`flow/step`) are offered as tasks, but only their flow may ask for them."""
    prefix = f"{kind}:"
    names = (each.removeprefix(prefix) for each in offers if each.startswith(prefix))
    return [name for name in names if "/" not in name]


NAME_LIMIT = 200
ID_LIMIT = 200
LABEL_LIMIT = 50
PRIORITY_LIMIT = 1000
SHORTEST_INTERVAL = timedelta(milliseconds=100)
LONGEST_WAIT = timedelta(days=365)
MOST_RETRIES = 100
MOST_AT_ONCE = 1_000_000
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_MOST_MARKS_IN_A_ROW = 8
_FIRES_LOOKED_AT = 60
_SECOND = timedelta(seconds=1)


def clean_name(name: str, field: str = "name") -> str:
    """NFC and trimmed (S18); without characters that no store or screen takes safely (S15)."""
    cleaned = unicodedata.normalize("NFC", checked_text(name, field)).strip()
    if not cleaned:
        raise InvalidInput(_("a name is needed"), field=field, code="missing")
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


def checked_text(text: str, field: str) -> str:
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if (
            category in _FORBIDDEN_CATEGORIES
            or character in _BIDI_CONTROLS
            or marks > _MOST_MARKS_IN_A_ROW
        ):
            raise InvalidInput(
                _("the character U+{code:04X} is not allowed here", code=ord(character)),
                field=field,
                code="bad_character",
            )
    return text


def checked_id(schedule_id: str) -> str:
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
    return checked_text(schedule_id, "id")


def checked(schedule: Schedule) -> Schedule:
    """The schedule, tidied up; InvalidInput names the field that is wrong."""
    policy = checked_policy(schedule.policy, schedule.target)
    check_priority(schedule.priority, schedule.target)
    if len(schedule.labels) > LABEL_LIMIT:
        raise InvalidInput(
            _("at most {most} labels", most=LABEL_LIMIT),
            field="labels",
            code="too_many",
        )
    for name, value in schedule.labels.items():
        clean_name(name, "labels")
        checked_text(value or "", f"labels.{name}")
    if schedule.depends_on is not None and schedule.depends_on.schedule_id == schedule.id:
        raise InvalidInput(
            _("a schedule cannot depend on itself"), field="depends_on", code="cycle"
        )
    checked_text(schedule.pause_note, "note")
    return replace(schedule, name=clean_name(schedule.name), policy=policy)


def check_priority(priority: int, target: Target | None = None) -> None:
    """The class of a task is positive (R4.6, R4.8)."""
    least = 1 if isinstance(target, SyncTarget) else -PRIORITY_LIMIT
    if not least <= priority <= PRIORITY_LIMIT:
        raise InvalidInput(
            _(
                "priority lies between {least} and {most}",
                least=least,
                most=PRIORITY_LIMIT,
            ),
            field="priority",
            code="out_of_range",
        )


def checked_policy(policy: Policy, target: Target) -> Policy:
    """As runs of this target are carried out."""
    if isinstance(target, SyncTarget):
        policy = require_exclusive(policy, target)
    elif policy.concurrency_key is not None and is_pair_key(policy.concurrency_key):
        raise InvalidInput(
            _("a key of this form belongs to a pair of source and collection"),
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
                _("{field} must lie between {least} and {most}", field=field, least=low, most=high),
                field=f"policy.{field}",
                code="out_of_range",
            )
    for field, number, least, most in (
        ("catch_up_limit", policy.catch_up_limit, 1, 100_000),
        ("max_retries", policy.max_retries, 0, MOST_RETRIES),
        ("max_concurrent_runs", policy.max_concurrent_runs or 1, 1, MOST_AT_ONCE),
    ):
        if not least <= number <= most:
            raise InvalidInput(
                _(
                    "{field} must lie between {least} and {most}",
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
            _("max_concurrent_runs is at least 1"),
            field="policy.max_concurrent_runs",
            code="out_of_range",
        )


def check_interval(trigger: Trigger, shortest: timedelta, now: datetime) -> None:
    """An interval by itself; a cron expression by its next fires, because only one with a seconds
    field can be this fast, and it shows soon (S24). `@every` is an interval, too."""
    interval = isinstance(trigger, Cron) and "@every" in trigger.expression
    if isinstance(trigger, Every):
        closest = trigger.every
    elif shortest <= _SECOND and not interval:
        return
    else:
        fires = [fire.at for fire in trigger.fires(now, _FIRES_LOOKED_AT)]
        closest = min((b - a for a, b in pairwise(fires)), default=shortest)
    if closest < shortest:
        raise InvalidTrigger(
            _("the shortest interval here is {shortest:g} s", shortest=shortest.total_seconds()),
            field="trigger.every" if isinstance(trigger, Every) else "trigger.expression",
            code="interval_too_short",
        )


def check_fires(trigger: Trigger, after: datetime) -> None:
    """T14: what would never fire is not saved."""
    if never_fires(trigger, after):
        raise InvalidTrigger(
            _("this trigger would never fire"), field="trigger", code="never_fires"
        )


# @@ Whether a caller may have messages sent to the recipients that it names.

#: The kept state of a chat that is linked to an owner, by the number of the chat.
LINKED_CHAT = "telegram:chat:"


def zoned(policy: Policy, zone: str, trigger: Trigger | None = None) -> Policy:
    """The same, with a zone where quiet hours and digests name none: the trigger's if that goes by
    the wall clock, else the one given."""
    if all(each.quiet is None and each.digest is None for each in policy.delivery):
        return policy
    if trigger is not None and not isinstance(trigger, Every):
        zone = trigger.with_default_zone(zone).zone
    return replace_recipients(
        policy, delivery=tuple(each.in_zone(zone) for each in policy.delivery)
    )


async def check_chats(
    store: Store,
    actor: Actor,
    recipients: Sequence[Recipient],
    before: Collection[Recipient] = (),
) -> None:
    """S05: a chat that is not the caller's does not exist for it. An admin may name any, and what
    was there before may stay."""
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
                hint=_("link it first: send the code of your account to the bot"),
            )


async def _is_own(store: Store, owner: Owner, chat: str) -> bool:
    if owner.type is OwnerType.CHAT and owner.id == chat:
        return True
    state = await store.read_state(LINKED_CHAT + chat)
    if state is None:
        return False
    try:
        found = json.loads(state.value)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("owner") == str(owner)
