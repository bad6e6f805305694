"""From the arguments of `app.schedule(...)` to a declaration. What is wrong is said here, where
the call is, and not when a worker starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from chimes.app.declared import DependsOn, PolicyOptions
from chimes.app.reading import Duration, duration_of, moment_of, with_nearest, word_of
from chimes.app.tasks import AppTask
from chimes.errors import InvalidInput, InvalidTrigger, NeedsClarification
from chimes.model.policy import Backoff, Misfire, OnLost, Overlap, Policy
from chimes.model.recipient import Recipient
from chimes.model.recipient_rules import check_recipients
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    Target,
    TaskTarget,
)
from chimes.model.target_rules import check_target
from chimes.service.rules import check_policy
from chimes.service.targets import longest_timeout
from chimes.targets.flow import FlowBuilder
from chimes.targets.python_task.arguments import dump
from chimes.targets.python_task.registry import Registry
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
from chimes.wording import Wording, say

if TYPE_CHECKING:
    from chimes.language import Parsed

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
            say(
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
            say("the trigger never fires: no moment matches it"), field="trigger", code=NEVER_FIRES
        )
    return trigger, task


def _from_text(text: str, timezone: str | None, now: datetime) -> tuple[Trigger, str]:
    try:
        return trigger_from_text(text, timezone), ""
    except InvalidTrigger as error:
        read = _from_words(text, timezone, now, error)
    if isinstance(read.trigger, Once):
        raise InvalidTrigger(
            say("{text!r} is another moment each time that the application starts", text=text),
            field="trigger",
            code="relative",
            hint=say("write a moment such as 2030-02-10T09:00:00+07:00"),
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
            say("{text!r} does not say exactly when: {problem}", text=text, problem=error.message),
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
            say("the words say also what to do ({task!r}), and so does the target", task=task),
            field="trigger",
            code="residue",
        )
    check_target(target)
    return target


def read_delivery(given: Iterable[Recipient | Mapping[str, object]]) -> tuple[Recipient, ...]:
    """Who is told how runs end."""
    found = tuple(each if isinstance(each, Recipient) else _plain_recipient(each) for each in given)
    check_recipients(found)
    return found


def _plain_recipient(given: Mapping[str, object]) -> Recipient:
    """As the API takes it."""
    from pydantic import ValidationError

    from chimes.doors.api.inputs import RecipientIn
    from chimes.doors.api.wire_recipients import recipients_from

    try:
        (found,) = recipients_from([RecipientIn.model_validate(dict(given))])
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(["delivery", *(str(each) for each in first["loc"])])
        raise InvalidInput(
            say("{where}: {problem}", where=where, problem=first["msg"]), field=where
        ) from None
    return found


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
            say("args are for a task; this target is of kind {kind}", kind=target.kind),
            field="args",
        )
    if input is not None and not isinstance(target, FlowTarget):
        raise InvalidInput(
            say("input is for a flow; this target is of kind {kind}", kind=target.kind),
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
            return _plain_target(given)
        case _:
            raise InvalidInput(
                say(
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
            say("{given!r} is a task and a flow; write task:{given} or flow:{given}", given=given),
            field="target",
            code="ambiguous",
        )
    if given in flows:
        return _flow_target(given, input, flows)
    if given in registry:
        return _task_target(given, args, registry)
    raise _unknown(
        say(
            "there is no task or flow {name!r} in this application; declare it before its schedule",
            name=given,
        ),
        given,
        [*registry.names, *flows],
    )


def _task_target(name: str, args: Mapping[str, object], registry: Registry) -> TaskTarget:
    if name not in registry:
        raise _unknown(
            say(
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
            say(
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
            say("input has no form in JSON: {error}", error=str(error)), field="input"
        ) from None
    found: dict[str, object] = json.loads(text)
    return found


def _plain_target(given: Mapping[str, object]) -> Target:
    """As the API takes it."""
    from pydantic import TypeAdapter, ValidationError

    from chimes.doors.api.inputs import AnyTargetIn, TargetField
    from chimes.doors.api.wire_targets import target_from

    adapter: TypeAdapter[AnyTargetIn] = TypeAdapter(TargetField)
    try:
        return target_from(adapter.validate_python(dict(given)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(["target", *(str(each) for each in first["loc"][1:])])
        raise InvalidInput(
            say("{where}: {problem}", where=where, problem=first["msg"]), field=where
        ) from None


def _unknown(message: Wording, name: str, known: Iterable[str]) -> InvalidInput:
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
            raise InvalidInput(say("depends_within needs depends_on"), field="depends_within")
        return None
    wait = _ONE_HOUR if within is None else duration_of(within, "depends_within", allow_zero=False)
    return DependsOn(name=name, within=wait)
