"""Declarations of schedules: the value, its construction from the arguments of `app.schedule`,
and its comparison with the stored schedule.

Invalid arguments are rejected at the call of `app.schedule`, not when a worker starts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import PurePath
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from chimes.errors import InvalidInput, InvalidTrigger, NeedsClarification
from chimes.i18n import Message, _
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Owner
from chimes.model.ids import ScheduleId
from chimes.model.policy import Policy, policy_options
from chimes.model.recipient import Recipient
from chimes.model.schedule import (
    Dependency,
    Schedule,
    clear_source_marker,
    is_detached,
    mark_source,
    move_source,
    source_marker,
)
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    AmqpTarget,
    CeleryTarget,
    CommandTarget,
    DaskTarget,
    FlowTarget,
    HttpTarget,
    KafkaTarget,
    KubernetesTarget,
    MessageTarget,
    NatsTarget,
    RedisStreamTarget,
    Target,
    TaskTarget,
)
from chimes.model.validation import check_policy, check_recipients, check_target, longest_timeout
from chimes.sdk.arguments import (
    Duration,
    to_datetime,
    to_duration,
    to_enum,
    to_names,
    with_suggestion,
)
from chimes.sdk.tasks import AppTask
from chimes.services.schedules.definitions import recipient_from_json, target_from_json
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
    Webhook,
    format_duration_iso,
    format_moment,
    never_fires,
    trigger_from_dict,
)
from chimes.triggers.text import parse_trigger_text

if TYPE_CHECKING:
    from chimes.language import Parsed

ModeWord = Literal["db", "memory"]
#: Fields of a policy by name.
PolicyOptions = dict[str, Any]
T = TypeVar("T")


class Mode(StrEnum):
    """Where the fire times of a declared schedule are computed."""

    #: In the store: the schedule is a stored row, and any node may fire it.
    DB = "db"
    #: In each worker of this application: only the runs are stored.
    MEMORY = "memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class DependsOn:
    """A dependency on another schedule of the namespace, by name."""

    name: str
    within: timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class Declaration:
    """A schedule as the application declares it."""

    name: str
    trigger: Trigger
    target: Target
    #: None: the mode that `use_db_driven_scheduling` selects.
    mode: Mode | None = None
    #: Only the fields that this declaration sets; the rest comes from the target's defaults.
    policy: PolicyOptions = field(default_factory=dict)
    priority: int | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    enabled: bool = True
    depends_on: DependsOn | None = None
    #: None: the current owner of the stored schedule; the system for a new one.
    owner: Owner | None = None
    #: Call site of the declaration, such as `shop/tasks.py:12`.
    at: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedDeclaration:
    """A declaration with the values that only a started application knows."""

    declared: Declaration
    policy: Policy
    priority: int
    default_timezone: str
    depends_on: Dependency | None = None


# --- comparison with the stored schedule ----------------------------------------------------------
def resolve_trigger(trigger: Trigger, default_timezone: str) -> Trigger:
    """The trigger with its zone and anchor; that of a webhook gets an address."""
    if isinstance(trigger, Webhook):
        return trigger.completed(None)
    return trigger.with_default_zone(default_timezone).with_default_anchor()


def is_same_trigger(declared: Trigger, stored: Trigger, default_timezone: str) -> bool:
    """Whether the stored trigger equals the declared one, ignoring an anchor that was added when
    the schedule was created."""
    if isinstance(declared, Webhook) and isinstance(stored, Webhook):
        return declared.completed(stored) == stored
    # Without seeds and contents of calendars, which the schedule adds.
    shown = stored.shown()
    if not declared.on_event and resolve_trigger(declared, default_timezone).shown() == shown:
        return True
    for kind in (Every, Cron):
        if isinstance(declared, kind) and isinstance(stored, kind) and declared.anchor is None:
            zoned = declared.with_default_zone(default_timezone)
            return replace(zoned, anchor=stored.anchor).shown() == shown
    return False


def new_schedule(
    resolved: ResolvedDeclaration, schedule_id: ScheduleId, namespace: str, now: datetime
) -> Schedule:
    """The schedule to create for a declaration."""
    declared = resolved.declared
    schedule = Schedule(
        id=schedule_id,
        namespace=namespace,
        name=declared.name,
        owner=declared.owner or SYSTEM_OWNER,
        trigger=resolve_trigger(declared.trigger, resolved.default_timezone).seeded(schedule_id),
        target=declared.target,
        policy=resolved.policy,
        priority=resolved.priority,
        labels=declared.labels,
        enabled=declared.enabled,
        depends_on=resolved.depends_on,
        created_at=now,
        updated_at=now,
    )
    return mark_source(schedule, declared.at)


def apply_declaration(resolved: ResolvedDeclaration, stored: Schedule) -> Schedule:
    """The stored schedule updated to its declaration.

    An unchanged trigger keeps its cursor and thereby pending catch-up; `enabled` belongs to the
    operator. A schedule that was edited elsewhere is detached from the code and keeps its
    definition (ADR 33).
    """
    declared = resolved.declared
    trigger = stored.trigger
    if not is_same_trigger(declared.trigger, stored.trigger, resolved.default_timezone):
        trigger = resolve_trigger(declared.trigger, resolved.default_timezone)
        if isinstance(trigger, Webhook):
            trigger = trigger.completed(stored.trigger)
    updated = replace(
        stored,
        trigger=trigger,
        target=declared.target,
        policy=resolved.policy,
        priority=resolved.priority,
        labels=declared.labels,
        depends_on=resolved.depends_on,
        owner=declared.owner or stored.owner,
    )
    marker = source_marker(stored)
    declared_before = marker is not None and marker.kind == "code"
    if (
        declared_before
        and is_detached(stored)
        and clear_source_marker(updated) != clear_source_marker(stored)
    ):
        return move_source(stored, declared.at)
    return mark_source(updated, declared.at)


def check_memory_mode(declared: Declaration) -> None:
    """InvalidInput for options that need a row in the store."""
    if declared.trigger.on_event:
        raise InvalidInput(
            _(
                "schedule {name!r}: events are kept in the store; a trigger on events needs"
                " mode='db'",
                name=declared.name,
            ),
            field="trigger",
            code="needs_db",
        )
    if declared.trigger.max_runs is not None:
        raise InvalidInput(
            _(
                "schedule {name!r}: max_runs is counted in the store; it needs mode='db'",
                name=declared.name,
            ),
            field="max_runs",
            code="needs_db",
        )


def dependency_order(dependencies: Mapping[str, str | None]) -> list[str]:
    """Names sorted so that a schedule comes after the one it depends on. InvalidInput for a
    cycle."""
    ordered: list[str] = []
    for name in dependencies:
        chain: list[str] = []
        at: str | None = name
        while at is not None and at in dependencies and at not in ordered:
            if at in chain:
                cycle = " -> ".join([*chain[chain.index(at) :], at])
                raise InvalidInput(
                    _("these schedules depend on each other in a cycle: {cycle}", cycle=cycle),
                    field="depends_on",
                    code="cycle",
                )
            chain.append(at)
            at = dependencies[at]
        ordered.extend(reversed(chain))
    return ordered


# --- trigger arguments ----------------------------------------------------------------------------
#: Passed to the parser if no zone is given. A result with another zone has it from the text.
_NO_ZONE = "Etc/UTC"
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def parse_bounds(
    *,
    jitter: str | timedelta | None,
    start_at: datetime | str | None,
    end_at: datetime | str | None,
    max_runs: int | None,
    exclude: Iterable[object] | None,
) -> dict[str, object]:
    """The given bounds of a trigger, in the form of `trigger_from_dict`."""
    bounds: dict[str, object] = {}
    if jitter is not None:
        bounds["jitter"] = jitter if isinstance(jitter, str) else format_duration_iso(jitter)
    for name, time in (("start_at", start_at), ("end_at", end_at)):
        if time is not None:
            text = time if isinstance(time, str) else format_moment(to_datetime(time, name))
            bounds[name] = text
    if max_runs is not None:
        bounds["max_runs"] = max_runs
    if exclude is not None:
        bounds["exclude"] = [
            each.to_dict() if isinstance(each, Calendar) else each
            for each in ([exclude] if isinstance(exclude, (Calendar, Mapping)) else exclude)
        ]
    return bounds


def parse_trigger(
    given: Trigger | str, timezone: str | None, bounds: dict[str, object], now: datetime
) -> tuple[Trigger, str]:
    """A trigger, from a trigger or text, and the rest of a text that is not about time.

    A trigger that has ended is valid, because the code that declares it stays; one that can never
    fire is not.
    """
    rest = ""
    if isinstance(given, str):
        trigger, rest = _trigger_from_text(given, timezone, now)
    elif isinstance(given, Trigger):
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
    named = bool(trigger.calendar_names() - trigger.countries())
    if not named and never_fires(trigger, _LONG_AGO):
        raise InvalidTrigger(
            _("the trigger never fires: no time matches it"), field="trigger", code=NEVER_FIRES
        )
    return trigger, rest


def _trigger_from_text(text: str, timezone: str | None, now: datetime) -> tuple[Trigger, str]:
    try:
        return parse_trigger_text(text, timezone), ""
    except InvalidTrigger as error:
        parsed = _parse_words(text, timezone, now, error)
    if isinstance(parsed.trigger, Once):
        raise InvalidTrigger(
            _(
                "{text!r} is relative: it means another time at each start of the application",
                text=text,
            ),
            field="trigger",
            code="relative",
            hint=_("give a fixed time such as 2030-02-10T09:00:00+07:00"),
        )
    if parsed.timezone != _NO_ZONE:
        return parsed.trigger, parsed.task
    # The text names no zone: the default of the settings applies, which are not loaded yet.
    fields = parsed.trigger.to_dict()
    return trigger_from_dict({k: fields[k] for k in fields if k != "timezone"}), parsed.task


def _parse_words(
    text: str, timezone: str | None, now: datetime, expression_error: InvalidTrigger
) -> Parsed:
    """Natural language. Raises `expression_error` if the text looks like an expression."""
    from chimes.language import read_trigger

    try:
        return read_trigger(text, now=now, timezone=timezone or _NO_ZONE)
    except NeedsClarification as error:
        if expression_error.code != "not_a_time" and text.isascii():
            raise expression_error from None
        raise InvalidTrigger(
            _("{text!r} does not say exactly when: {problem}", text=text, problem=error.message),
            field="trigger",
            code="not_a_time",
            hint="; ".join(error.examples),
        ) from None


# --- target arguments -----------------------------------------------------------------------------
def parse_target(
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
            _("args are for a task; the target is of kind {kind}", kind=target.kind),
            field="args",
        )
    if input is not None and not isinstance(target, FlowTarget):
        raise InvalidInput(
            _("input is for a flow; the target is of kind {kind}", kind=target.kind),
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
        case HttpTarget() | AgentTarget() | ActionTarget() | MessageTarget() | CommandTarget():
            return given
        case TaskTarget() | FlowTarget():
            return given
        case CeleryTarget() | DaskTarget() | KubernetesTarget():
            return given
        case AmqpTarget() | NatsTarget() | RedisStreamTarget() | KafkaTarget():
            return given
        case str():
            return _named_target(given, args, input, registry, flows)
        case Mapping():
            return _from_json("target", target_from_json, given)
        case _:
            raise InvalidInput(
                _(
                    "a target must be a task or a flow of this application, its name, a URL, an "
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
    if given.startswith(("http://", "https://")):
        return HttpTarget(url=given)
    kind, separator, name = given.partition(":")
    if separator and kind == "task":
        return _task_target(name, args, registry)
    if separator and kind == "flow":
        return _flow_target(name, input, flows)
    if given in registry and given in flows:
        raise InvalidInput(
            _("{given!r} is a task and a flow; use task:{given} or flow:{given}", given=given),
            field="target",
            code="ambiguous",
        )
    if given in flows:
        return _flow_target(given, input, flows)
    if given in registry:
        return _task_target(given, args, registry)
    raise _unknown_target(
        _(
            "there is no task or flow {name!r} in this application; declare it before its schedule",
            name=given,
        ),
        given,
        [*registry.names, *flows],
    )


def _task_target(name: str, args: Mapping[str, object], registry: Registry) -> TaskTarget:
    if name not in registry:
        raise _unknown_target(
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
        raise _unknown_target(
            _(
                "there is no flow {name!r} in this application; declare it before its schedule",
                name=name,
            ),
            name,
            flows,
        )
    return FlowTarget(name=name, input=json_input(input))


def _unknown_target(message: Message, name: str, known: Iterable[str]) -> InvalidInput:
    # Steps of flows (`flow/step`) are tasks too, but no targets of schedules.
    names = [each for each in known if "/" not in each]
    return InvalidInput(
        with_suggestion(message, name, names), field="target", code="unknown_target"
    )


def json_input(input: Mapping[str, object]) -> dict[str, object]:
    """The input of a flow as the store will return it. InvalidInput if it is not JSON."""
    try:
        text = json.dumps(input, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            _("input cannot be represented as JSON: {error}", error=str(error)), field="input"
        ) from None
    plain: dict[str, object] = json.loads(text)
    return plain


def with_prompt(target: Target, text: str) -> Target:
    """The target, checked; the part of the trigger text that is not about time becomes the prompt
    of an agent target without one."""
    if isinstance(target, AgentTarget) and not target.prompt.strip():
        target = replace(target, prompt=text)
    elif text:
        raise InvalidTrigger(
            _(
                "the trigger text also says what to do ({task!r}), and so does the target; "
                "leave it out of the trigger",
                task=text,
            ),
            field="trigger",
            code="residue",
        )
    check_target(target)
    return target


def parse_recipients(
    given: Iterable[Recipient | Mapping[str, object]],
) -> tuple[Recipient, ...]:
    recipients = tuple(
        each if isinstance(each, Recipient) else _from_json("delivery", recipient_from_json, each)
        for each in given
    )
    check_recipients(recipients)
    return recipients


def _from_json(
    field: str, read: Callable[[Mapping[str, object]], T], given: Mapping[str, object]
) -> T:
    """Reads a JSON object; errors name the path below `field` and have the code `invalid`."""
    try:
        return read(given)
    except InvalidInput as error:
        raise InvalidInput(
            _("{where}: {problem}", where=error.within(field).field, problem=error.message),
            field=error.field,
            hint=error.hint,
        ) from None


# --- policy arguments -----------------------------------------------------------------------------
def parse_policy(target: Target, arguments: Mapping[str, Any]) -> PolicyOptions:
    """The policy fields among the arguments that were given."""
    options: PolicyOptions = {}
    for name, each in policy_options("sdk").items():
        value = arguments.get(name)
        if value is None:
            continue
        if each.kind == "choice":
            value = to_enum(each.type, value, name)
        elif each.kind == "duration":
            value = to_duration(value, name, allow_zero=each.about.allow_zero)
        elif each.kind == "names":
            value = to_names(value, name)
        options[each.name] = value
    check_policy(replace(Policy(), **options), longest_timeout=longest_timeout(target))
    return options


def parse_dependency(name: str | None, within: Duration | None) -> DependsOn | None:
    if name is None:
        if within is not None:
            raise InvalidInput(_("depends_within needs depends_on"), field="depends_within")
        return None
    if within is None:
        return DependsOn(name=name, within=timedelta(hours=1))
    return DependsOn(name=name, within=to_duration(within, "depends_within", allow_zero=False))


# --- call site ------------------------------------------------------------------------------------
_SDK_PREFIX = f"{__name__.rpartition('.')[0]}."


def call_site() -> str:
    """File and line of the nearest caller outside the SDK, such as `shop/tasks.py:12`; empty if
    unknown."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module_name(frame).startswith(_SDK_PREFIX):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{module_path(frame.f_code.co_filename, _module_name(frame))}:{frame.f_lineno}"


def module_path(path: str, module: str) -> str:
    """The path relative to the root of its package, so that it is the same on every machine:
    `/srv/shop/tasks.py` of the module `shop.tasks` is `shop/tasks.py`."""
    parts = PurePath(path).parts
    count = module.count(".") + 1 + (PurePath(path).stem == "__init__")
    return "/".join(parts[-count:])


def _module_name(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if isinstance(name, str) else ""
