"""What holds for a target by its kind, and whether anybody is there to carry it out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta

from chimes.config import Settings
from chimes.errors import InvalidInput
from chimes.model.defaults import (
    OWN_FIELDS,
    PRIORITY,
    RunDefaults,
    unchanged_fields,
    with_own,
)
from chimes.model.node import Node
from chimes.model.policy import Backoff, Overlap, Policy
from chimes.model.recipient import Channel, Recipient
from chimes.model.schedule import Schedule
from chimes.model.source import HIGH, LONGEST_SYNC_TIMEOUT, SYNC_TIMEOUT, task_policy
from chimes.model.sync_policy import is_pair_key, pair_of_key
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
from chimes.triggers.reading import nearest
from chimes.wording import say

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
    "sync": LONGEST_SYNC_TIMEOUT,
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
        say("no node that is alive offers the flow {name!r}", name=target.name)
        if isinstance(target, FlowTarget)
        else say("no node that is alive offers the task {name!r}", name=target.name),
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
        say(
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
    pairs = sorted(pair_of_key(key) for key in known if is_pair_key(key))
    found = [collection for theirs, collection in pairs if theirs == source]
    if not found:
        raise InvalidInput(
            say("no node that is alive has the source {source!r}", source=source),
            field="target.source",
            code="unknown_source",
            hint=nearest(source, sorted({theirs for theirs, _ in pairs})),
        )
    return found


async def _alive(store: Store) -> list[Node]:
    now = await store.now()
    return [node for node in await store.nodes() if node.lease_until > now]


def started_as(schedule: Schedule, defaults: RunDefaults, said: Collection[str]) -> Schedule:
    """A new schedule, with what nobody `said` as its target has it."""
    return replace(
        schedule,
        policy=with_own(schedule.policy, defaults.policy, said),
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
        own = OWN_FIELDS
    elif after.policy.concurrency_key == target.needs:
        # The limit of the other task, also where nobody is there who could say so.
        own |= {"concurrency_key", "max_concurrent_runs", "overlap"}
    return replace(
        after,
        policy=with_own(after.policy, defaults.policy, {*said, *(OWN_FIELDS - own)}),
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
