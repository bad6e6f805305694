"""From the arguments of `app.schedule(...)` to a declaration. What is wrong is said here, where
the call is, and not when a worker starts."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

from chimes.errors import (
    AlreadyExists,
    InvalidInput,
    InvalidTrigger,
    NeedsClarification,
    NotFound,
    StoreUnavailable,
)
from chimes.i18n import Message, _
from chimes.model.access import SYSTEM_OWNER, Actor, Owner
from chimes.model.ids import ScheduleId, declared_id
from chimes.model.listing import ScheduleQuery
from chimes.model.policy import Backoff, Misfire, OnLost, Overlap, Policy
from chimes.model.recipient import Recipient
from chimes.model.schedule import Dependency, Schedule, found_at, is_detached, marked, unmarked
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    Target,
    TaskTarget,
)
from chimes.model.validation import check_recipients, check_target
from chimes.runtime.composition import Services
from chimes.sdk.arguments import Duration, duration_of, moment_of, with_nearest, word_of
from chimes.sdk.tasks import AppTask
from chimes.services.definitions import recipient_from_json, target_from_json
from chimes.services.validation import check_policy, longest_timeout
from chimes.targets.flow import FlowBuilder
from chimes.targets.python.arguments import dump
from chimes.targets.python.registry import Registry
from chimes.triggers import (
    NEVER_FIRES,
    Calendar,
    Cron,
    Every,
    Once,
    Trigger,
    format_duration_iso,
    format_moment,
    never_fires,
    trigger_from_dict,
)
from chimes.triggers.expression import trigger_from_text

if TYPE_CHECKING:
    from chimes.language import Parsed


# @@ Schedules as an application declares them, and how they relate to what the store has; pure.

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ModeWord = Literal["db", "memory"]
T = TypeVar("T")


class Mode(StrEnum):
    """Who computes when a declared schedule fires."""

    #: The store keeps it and decides; every node may fire it.
    DB = "db"
    #: Each worker of this application computes it; the store only keeps its runs (R2.1).
    MEMORY = "memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class DependsOn:
    """Another schedule of the namespace, by name (R2.39)."""

    name: str
    within: timedelta


class PolicyOptions(TypedDict, total=False):
    """Fields of a Policy."""

    misfire: Misfire
    misfire_grace: timedelta
    catch_up_limit: int
    overlap: Overlap
    max_concurrent_runs: int
    burst_allowed: bool
    max_retries: int
    retry_backoff: timedelta
    backoff: Backoff
    timeout: timedelta
    on_lost: OnLost
    delivery: tuple[Recipient, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    name: str
    trigger: Trigger
    target: Target
    #: None: as `use_db_driven_scheduling` says.
    mode: Mode | None = None
    #: Fields of the policy that this declaration sets itself.
    policy: PolicyOptions = field(default_factory=PolicyOptions)
    priority: int | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    enabled: bool = True
    depends_on: DependsOn | None = None
    #: None: the system's, or whoever has it already.
    owner: Owner | None = None
    #: Where the code is that declares it: `shop/tasks.py:12`.
    at: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Complete:
    """A declaration with everything that only a started application knows."""

    declared: Declared
    policy: Policy
    priority: int
    default_timezone: str
    depends_on: Dependency | None = None


def settled_trigger(trigger: Trigger, default_timezone: str) -> Trigger:
    """With its zone and anchor. An interval without an anchor lies on the grid of 1970 in UTC:
    nodes that know nothing of each other must come to the same slots."""
    return trigger.with_default_zone(default_timezone).anchored(trigger.start_at or EPOCH)


def same_trigger(declared: Trigger, stored: Trigger, default_timezone: str) -> bool:
    """Whether the store's trigger is what is declared, apart from an anchor that it was given by
    whoever created it."""
    settled = settled_trigger(declared, default_timezone)
    if settled == stored:
        return True
    for kind in (Every, Cron):
        if isinstance(declared, kind) and isinstance(stored, kind) and declared.anchor is None:
            zoned = declared.with_default_zone(default_timezone)
            return replace(zoned, anchor=stored.anchor) == stored
    return False


def draft(complete: Complete, schedule_id: ScheduleId, namespace: str, now: datetime) -> Schedule:
    """The schedule as it is first written."""
    declared = complete.declared
    drafted = Schedule(
        id=schedule_id,
        namespace=namespace,
        name=declared.name,
        owner=declared.owner or SYSTEM_OWNER,
        trigger=settled_trigger(declared.trigger, complete.default_timezone),
        target=declared.target,
        policy=complete.policy,
        priority=complete.priority,
        labels=declared.labels,
        enabled=declared.enabled,
        depends_on=complete.depends_on,
        created_at=now,
        updated_at=now,
    )
    return marked(drafted, declared.at)


def updated(complete: Complete, stored: Schedule) -> Schedule:
    """The stored schedule as it is declared now. The same trigger keeps its cursor and with it
    what is still to be caught up; whether it is switched on is the operator's business. One that
    somebody edited stays as it is (ADR 33)."""
    declared = complete.declared
    wanted = _as_declared(complete, stored)
    if is_detached(stored) and unmarked(wanted) != unmarked(stored):
        return found_at(stored, declared.at)
    return marked(wanted, declared.at)


def _as_declared(complete: Complete, stored: Schedule) -> Schedule:
    declared = complete.declared
    trigger = stored.trigger
    if not same_trigger(declared.trigger, stored.trigger, complete.default_timezone):
        trigger = settled_trigger(declared.trigger, complete.default_timezone)
    return replace(
        stored,
        trigger=trigger,
        target=declared.target,
        policy=complete.policy,
        priority=complete.priority,
        labels=declared.labels,
        depends_on=complete.depends_on,
        owner=declared.owner or stored.owner,
    )


def check_memory(declared: Declared) -> None:
    """What only the store could keep cannot be had without it."""
    if declared.trigger.max_runs is not None:
        raise InvalidInput(
            _(
                "schedule {name!r}: max_runs is counted in the store; it needs mode='db'",
                name=declared.name,
            ),
            field="max_runs",
            code="needs_db",
        )


_WEB = ("http://", "https://")
#: Of words that name none; to be told from what they name.
_NO_ZONE = "Etc/UTC"
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_ONE_HOUR = timedelta(hours=1)


def read_bounds(
    *,
    jitter: str | timedelta | None,
    start_at: datetime | str | None,
    end_at: datetime | str | None,
    max_runs: int | None,
    exclude: Iterable[object] | None,
) -> dict[str, object]:
    """What is given, as `trigger_from_dict` reads it."""
    found: dict[str, object] = {}
    if jitter is not None:
        given = jitter if isinstance(jitter, str) else format_duration_iso(jitter)
        found["jitter"] = given
    for name, moment in (("start_at", start_at), ("end_at", end_at)):
        if moment is not None:
            given = moment if isinstance(moment, str) else format_moment(moment_of(moment, name))
            found[name] = given
    if max_runs is not None:
        found["max_runs"] = max_runs
    if exclude is not None:
        found["exclude"] = [
            each.to_dict() if isinstance(each, Calendar) else each for each in exclude
        ]
    return found


def read_trigger(
    given: Trigger | str, timezone: str | None, bounds: dict[str, object], now: datetime
) -> tuple[Trigger, str]:
    """A trigger, or text as `chimes add` reads it, and what words say besides the time. One that
    is over by now is taken: the code that declares it is still there. One that can never fire is
    not (T14)."""
    task = ""
    if isinstance(given, str):
        trigger, task = _from_text(given, timezone, now)
    elif isinstance(given, Cron | Every | Once):
        trigger = given if timezone is None else given.with_default_zone(timezone)
    else:
        raise InvalidTrigger(
            _(
                "expected a trigger or text such as '0 9 * * *' or 'every 5m', not {type}",
                type=type(given).__name__,
            ),
            field="trigger",
            code="wrong_type",
        )
    if bounds:
        trigger = trigger_from_dict(trigger.to_dict() | bounds)
    if never_fires(trigger, _LONG_AGO):
        raise InvalidTrigger(
            _("the trigger never fires: no moment matches it"), field="trigger", code=NEVER_FIRES
        )
    return trigger, task


def _from_text(text: str, timezone: str | None, now: datetime) -> tuple[Trigger, str]:
    try:
        return trigger_from_text(text, timezone), ""
    except InvalidTrigger as error:
        read = _from_words(text, timezone, now, error)
    if isinstance(read.trigger, Once):
        raise InvalidTrigger(
            _("{text!r} is another moment each time that the application starts", text=text),
            field="trigger",
            code="relative",
            hint=_("write a moment such as 2030-02-10T09:00:00+07:00"),
        )
    if read.timezone != _NO_ZONE:
        return read.trigger, read.task
    # Nobody named a zone: it is the one of the settings, which are not read yet.
    plain = read.trigger.to_dict()
    return trigger_from_dict({k: plain[k] for k in plain if k != "timezone"}), read.task


def _from_words(text: str, timezone: str | None, now: datetime, wrong: InvalidTrigger) -> Parsed:
    """`wrong`: why it is no expression. Raised again where it looks like one."""
    from chimes.language import read_trigger as read_words

    try:
        read = read_words(text, now=now, timezone=timezone or _NO_ZONE)
    except NeedsClarification as error:
        if wrong.code != "not_a_time" and text.isascii():
            raise wrong from None
        raise InvalidTrigger(
            _("{text!r} does not say exactly when: {problem}", text=text, problem=error.message),
            field="trigger",
            code="not_a_time",
            hint="; ".join(error.examples),
        ) from None
    return read


def with_task(target: Target, task: str) -> Target:
    """What the words of the time say besides it is the prompt of a target that has none."""
    if isinstance(target, AgentTarget) and not target.prompt.strip():
        target = replace(target, prompt=task)
    elif task:
        raise InvalidTrigger(
            _("the words say also what to do ({task!r}), and so does the target", task=task),
            field="trigger",
            code="residue",
        )
    check_target(target)
    return target


def read_delivery(given: Iterable[Recipient | Mapping[str, object]]) -> tuple[Recipient, ...]:
    """Who is told how runs end."""
    recipients = tuple(
        each if isinstance(each, Recipient) else _within("delivery", recipient_from_json, each)
        for each in given
    )
    check_recipients(recipients)
    return recipients


def _within(
    field: str, read: Callable[[Mapping[str, object]], T], given: Mapping[str, object]
) -> T:
    """Reads a JSON object; errors name `field` as the place."""
    try:
        return read(given)
    except InvalidInput as error:
        raise InvalidInput(
            _("{where}: {problem}", where=error.within(field).field, problem=error.message),
            field=error.field,
            code=error.code,
            hint=error.hint,
        ) from None


def read_target(
    given: object,
    args: Mapping[str, object] | None,
    input: Mapping[str, object] | None,
    *,
    registry: Registry,
    flows: Mapping[str, FlowBuilder],
) -> Target:
    target = _target(given, args or {}, input or {}, registry, flows)
    if args is not None and not isinstance(target, TaskTarget):
        raise InvalidInput(
            _("args are for a task; this target is of kind {kind}", kind=target.kind),
            field="args",
        )
    if input is not None and not isinstance(target, FlowTarget):
        raise InvalidInput(
            _("input is for a flow; this target is of kind {kind}", kind=target.kind),
            field="input",
        )
    return target


def _target(
    given: object,
    args: Mapping[str, object],
    input: Mapping[str, object],
    registry: Registry,
    flows: Mapping[str, FlowBuilder],
) -> Target:
    match given:
        case AppTask():
            return _task_target(given.name, args, registry)
        case FlowBuilder():
            return _flow_target(given.name, input, flows)
        case HttpTarget() | AgentTarget() | ActionTarget() | MessageTarget():
            return given
        case TaskTarget() | FlowTarget():
            return given
        case str():
            return _named_target(given, args, input, registry, flows)
        case Mapping():
            return _within("target", target_from_json, given)
        case _:
            raise InvalidInput(
                _(
                    "a target is a task or a flow of this application, its name, a URL, an "
                    "HttpTarget, an AgentTarget or an ActionTarget, not {type}",
                    type=type(given).__name__,
                ),
                field="target",
                code="wrong_type",
            )


def _named_target(
    given: str,
    args: Mapping[str, object],
    input: Mapping[str, object],
    registry: Registry,
    flows: Mapping[str, FlowBuilder],
) -> Target:
    if given.startswith(_WEB):
        return HttpTarget(url=given)
    kind, separator, name = given.partition(":")
    if separator and kind == "task":
        return _task_target(name, args, registry)
    if separator and kind == "flow":
        return _flow_target(name, input, flows)
    if given in registry and given in flows:
        raise InvalidInput(
            _("{given!r} is a task and a flow; write task:{given} or flow:{given}", given=given),
            field="target",
            code="ambiguous",
        )
    if given in flows:
        return _flow_target(given, input, flows)
    if given in registry:
        return _task_target(given, args, registry)
    raise _unknown(
        _(
            "there is no task or flow {name!r} in this application; declare it before its schedule",
            name=given,
        ),
        given,
        [*registry.names, *flows],
    )


def _task_target(name: str, args: Mapping[str, object], registry: Registry) -> TaskTarget:
    if name not in registry:
        raise _unknown(
            _(
                "there is no task {name!r} in this application; declare it before its schedule",
                name=name,
            ),
            name,
            registry.names,
        )
    return TaskTarget(name=name, args=dump(registry.get(name), args))


def _flow_target(
    name: str, input: Mapping[str, object], flows: Mapping[str, FlowBuilder]
) -> FlowTarget:
    if name not in flows:
        raise _unknown(
            _(
                "there is no flow {name!r} in this application; declare it before its schedule",
                name=name,
            ),
            name,
            flows,
        )
    return FlowTarget(name=name, input=plain_input(input))


def plain_input(input: Mapping[str, object]) -> dict[str, object]:
    """As it comes back from the store: what JSON cannot say is refused."""
    import json

    try:
        text = json.dumps(input, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            _("input has no form in JSON: {error}", error=str(error)), field="input"
        ) from None
    found: dict[str, object] = json.loads(text)
    return found


def _unknown(message: Message, name: str, known: Iterable[str]) -> InvalidInput:
    return InvalidInput(
        with_nearest(message, name, [each for each in known if "/" not in each]),
        field="target",
        code="unknown_target",
    )


def read_policy(
    target: Target,
    *,
    catch_up: str | None,
    misfire_grace: Duration | None,
    catch_up_limit: int | None,
    overlap: str | None,
    max_concurrent_runs: int | None,
    burst_allowed: bool | None,
    retries: int | None,
    retry_backoff: Duration | None,
    backoff: str | None,
    timeout: Duration | None,
    on_lost: str | None,
) -> PolicyOptions:
    """Fields of the policy, only those that were given."""
    found: PolicyOptions = {}
    if catch_up is not None:
        found["misfire"] = word_of(Misfire, catch_up, "catch_up")
    if misfire_grace is not None:
        found["misfire_grace"] = duration_of(misfire_grace, "misfire_grace")
    if catch_up_limit is not None:
        found["catch_up_limit"] = catch_up_limit
    if overlap is not None:
        found["overlap"] = word_of(Overlap, overlap, "overlap")
    if max_concurrent_runs is not None:
        found["max_concurrent_runs"] = max_concurrent_runs
    if burst_allowed is not None:
        found["burst_allowed"] = burst_allowed
    if retries is not None:
        found["max_retries"] = retries
    if retry_backoff is not None:
        found["retry_backoff"] = duration_of(retry_backoff, "retry_backoff")
    if backoff is not None:
        found["backoff"] = word_of(Backoff, backoff, "backoff")
    if timeout is not None:
        found["timeout"] = duration_of(timeout, "timeout", allow_zero=False)
    if on_lost is not None:
        found["on_lost"] = word_of(OnLost, on_lost, "on_lost")
    check_policy(replace(Policy(), **found), longest_timeout=longest_timeout(target))
    return found


def read_dependency(name: str | None, within: Duration | None) -> DependsOn | None:
    if name is None:
        if within is not None:
            raise InvalidInput(_("depends_within needs depends_on"), field="depends_within")
        return None
    wait = _ONE_HOUR if within is None else duration_of(within, "depends_within", allow_zero=False)
    return DependsOn(name=name, within=wait)


# @@ Declared schedules into the store: created once, changed where they differ, else left alone.

logger = logging.getLogger("chimes.runtime")
#: How often others may get in between before we say so.
_ROUNDS = 20
_NAMES_FOR_HINT = 1000


class Syncing:
    """Schedules of one namespace, where the name is the identity (C22)."""

    def __init__(self, services: Services, actor: Actor, namespace: str) -> None:
        self._services = services
        self._actor = actor
        self._namespace = namespace

    async def find(self, name: str) -> Schedule | None:
        """By name, whoever created it; the oldest, where another door made several."""
        query = ScheduleQuery(namespace=self._namespace, name=name, limit=1)
        page = await self._services.schedules.find(self._actor, query)
        return page.items[0] if page.items else None

    async def get(self, name: str) -> Schedule:
        found = await self.find(name)
        if found is None:
            query = ScheduleQuery(namespace=self._namespace, limit=_NAMES_FOR_HINT)
            page = await self._services.schedules.find(self._actor, query)
            raise NotFound(
                with_nearest(
                    _("there is no schedule {name!r}", name=name),
                    name,
                    (each.name for each in page.items),
                )
            )
        return found

    async def id_of(self, name: str) -> ScheduleId:
        """Of the schedule that is there, or that would be created."""
        for _unused in range(_ROUNDS):
            found = await self.find(name)
            if found is not None:
                return found.id
            with contextlib.suppress(AlreadyExists):
                return await self._free_id(name)
        raise _too_fast(name)

    async def upsert(self, complete: Complete) -> Schedule:
        """By (namespace, name), also if several nodes do it at once (R2, C22). Nothing is written
        where nothing differs."""
        name = complete.declared.name
        for _unused in range(_ROUNDS):
            stored = await self.find(name)
            try:
                if stored is None:
                    return await self._create(complete)
                wanted = updated(complete, stored)
                if is_detached(wanted):
                    logger.warning(
                        "a declared schedule was edited elsewhere and stays as it is",
                        extra={"job_name": name},
                    )
                if wanted == stored:
                    return stored
                if unmarked(wanted) == unmarked(stored):
                    return await self._noted(complete, stored)
                return await self._services.schedules.change(
                    self._actor, stored.id, partial(_written, complete)
                )
            except (AlreadyExists, NotFound):
                # Another node created it, or somebody deleted it, since we looked.
                continue
        raise _too_fast(name)

    async def _noted(self, complete: Complete, stored: Schedule) -> Schedule:
        """Only where the code stands is new: that is no new version, and nobody's change."""

        def noted(before: Schedule, now: datetime) -> Schedule:
            wanted = updated(complete, before)
            return wanted if unmarked(wanted) == unmarked(before) else before

        return await self._services.store.change_schedule(stored.id, noted)

    async def insert(self, complete: Complete) -> Schedule | None:
        """R2.7: as INSERT .. ON CONFLICT DO NOTHING; None if there is one of this name."""
        if await self.find(complete.declared.name) is not None:
            return None
        try:
            return await self._create(complete)
        except AlreadyExists:
            return None

    async def _create(self, complete: Complete) -> Schedule:
        new_id = await self._free_id(complete.declared.name)
        now = await self._services.store.now()
        return await self._services.schedules.create(
            self._actor, draft(complete, new_id, self._namespace, now)
        )

    async def _free_id(self, name: str) -> ScheduleId:
        """The first generation that was never used. They are used in order, so it is found by
        doubling and then halving, however often the name was deleted. AlreadyExists if the last
        one is in use: somebody created it since we looked, and a second would be a double."""
        taken, free = 0, 1
        while await self._used(name, free):
            taken, free = free, free * 2
        while free - taken > 1:
            middle = (taken + free) // 2
            if await self._used(name, middle):
                taken = middle
            else:
                free = middle
        last = await self._used(name, taken) if taken else None
        if last is not None and last.deleted_at is None and last.name == name:
            raise AlreadyExists(_("schedule {name!r} exists", name=name))
        return declared_id(self._namespace, name, free)

    async def _used(self, name: str, generation: int) -> Schedule | None:
        return await self._services.store.get_schedule(
            declared_id(self._namespace, name, generation)
        )


def _written(complete: Complete, before: Schedule) -> Schedule:
    """Somebody may have edited it since we looked: then it is left alone, as a whole."""
    wanted = updated(complete, before)
    return before if unmarked(wanted) == unmarked(before) else wanted


def _too_fast(name: str) -> StoreUnavailable:
    return StoreUnavailable(_("schedule {name!r} changes too fast; try again", name=name))


def in_order(dependencies: Mapping[str, str | None]) -> list[str]:
    """Names so that what one depends on comes before it. InvalidInput for a circle."""
    ordered: list[str] = []
    for name in dependencies:
        chain: list[str] = []
        at: str | None = name
        while at is not None and at in dependencies and at not in ordered:
            if at in chain:
                circle = " -> ".join([*chain[chain.index(at) :], at])
                raise InvalidInput(
                    _(
                        "these schedules would wait for each other for ever: {circle}",
                        circle=circle,
                    ),
                    field="depends_on",
                    code="cycle",
                )
            chain.append(at)
            at = dependencies[at]
        ordered.extend(reversed(chain))
    return ordered
