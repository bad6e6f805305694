"""A definition as people take it elsewhere: YAML, JSON, a command, a call, a program; and what
differs between two of them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pprint import pformat

import yaml

from chimes.doors.api.inputs import ScheduleIn
from chimes.doors.api.wire import Json, schedule_out
from chimes.doors.api.wire_recipients import recipients_out
from chimes.doors.dashboard.views_runs import UNSEEN
from chimes.doors.dashboard.views_schedules import expression_of
from chimes.model.policy import Policy
from chimes.model.recipient_text import recipient_text
from chimes.model.schedule import Schedule
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    TaskTarget,
)
from chimes.redaction import masked_arguments, masked_headers
from chimes.triggers import format_duration_iso
from chimes.triggers.duration import format_duration_go

_KEPT = frozenset(ScheduleIn.model_fields)
#: Kept in microseconds; people read durations.
_DURATIONS = frozenset({"misfire_grace", "retry_backoff", "backoff_cap", "timeout", "within"})
_MICROSECOND = timedelta(microseconds=1)


def definition_of(schedule: Schedule, *, copy: bool = False) -> Json:
    """What makes the same schedule again, as the API takes it; secrets stand as `***`. `copy`:
    without what only one can have."""
    shown = {name: value for name, value in schedule_out(schedule).items() if name in _KEPT}
    if copy:
        for name in ("id", "owner"):
            del shown[name]
    for name in ("target", "policy"):
        shown[name] = _said(shown[name])
    return {name: value for name, value in shown.items() if value not in (None, [], {})}


def _said(part: object) -> object:
    """Without what is the same as leaving it out."""
    if not isinstance(part, Mapping):
        return part
    return {name: value for name, value in part.items() if value not in (None, "", [], {})}


def as_yaml(value: object) -> str:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    if UNSEEN.search(text):
        # What would turn or hide other text is escaped, and stays what it is.
        return yaml.safe_dump(value, sort_keys=False, width=100)
    return text


def as_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_curl(schedule: Schedule, server: str) -> str:
    body = shlex.quote(as_json(definition_of(schedule, copy=True)))
    return "\n".join(
        (
            f"curl -X POST {shlex.quote(f'{server}/api/v1/schedules')} \\",
            "  -H 'Content-Type: application/json' \\",
            '  -H "Authorization: Bearer $CHIMES_API_KEY" \\',
            f"  --data-raw {body}",
        )
    )


def as_python(schedule: Schedule, server: str) -> str:
    """The key is that of CHIMES_API_KEY."""
    shown = definition_of(schedule, copy=True)
    options = {"labels": dict(schedule.labels), "priority": schedule.priority}
    lines = [f"    {name}={value!r}," for name, value in options.items() if value]
    policy, usual = schedule.policy, Policy()
    if policy.overlap is not usual.overlap:
        lines.append(f"    overlap={policy.overlap.value!r},")
    if policy.max_retries:
        lines.append(f"    retries={policy.max_retries!r},")
    lines.append(f"    timeout={format_duration_go(policy.timeout)!r},")
    if not schedule.enabled:
        lines.append("    enabled=False,")
    named = {"trigger": shown["trigger"], "target": shown["target"]}
    written = [f"    {pformat(value, width=88, sort_dicts=False)}," for value in named.values()]
    written = [text.replace("\n", "\n    ") for text in written]
    return "\n".join(
        (
            "from chimes.client import Client",
            "",
            f"client = Client({server!r}, namespace={schedule.namespace!r})",
            "client.schedule(",
            f"    {schedule.name!r},",
            *written,
            *lines,
            ")",
        )
    )


def as_command(schedule: Schedule) -> str:
    """`chimes add …`; see `said_in_full` for what it cannot say."""
    parts = ["chimes", "add", expression_of(schedule.trigger), "--tz", schedule.trigger.zone]
    parts += ["--name", schedule.name, *_target(schedule)]
    for name, value in schedule.labels.items():
        parts += ["--label", name if value is None else f"{name}={value}"]
    policy = schedule.policy
    parts += ["--overlap", policy.overlap.value, "--misfire", policy.misfire.value]
    parts += ["--retry", str(policy.max_retries)]
    parts += ["--timeout", format_duration_go(policy.timeout)]
    if schedule.priority:
        parts += ["--priority", str(schedule.priority)]
    for recipient in recipients_out(policy.delivery):
        parts += ["--notify", recipient_text(recipient)]
    if not schedule.enabled:
        parts.append("--paused")
    return shlex.join(parts)


def said_in_full(schedule: Schedule) -> bool:
    """Whether the command line has an option for everything that the trigger says."""
    trigger = schedule.trigger
    bounds = (trigger.start_at, trigger.end_at, trigger.max_runs)
    return not any(bounds) and not trigger.exclude and schedule.depends_on is None


def _target(schedule: Schedule) -> list[str]:
    match schedule.target:
        case HttpTarget() as http:
            found = ["--http", http.url, "--method", http.method]
            for name, value in masked_headers(http.headers).items():
                found += ["--header", f"{name}: {value}"]
            body = http.body if isinstance(http.body, str) else ""
            return [*found, "--body", body] if body else found
        case TaskTarget() as task:
            args = masked_arguments(task.args)
            return ["--task", task.name, *(["--args", _compact(args)] if args else [])]
        case FlowTarget() as flow:
            given = masked_arguments(flow.input)
            return ["--flow", flow.name, *(["--input", _compact(given)] if given else [])]
        case SyncTarget() as sync:
            return ["--sync", f"{sync.source}/{sync.collection}"]
        case AgentTarget() as agent:
            model = ["--model", agent.model] if agent.model else []
            return ["--agent", "--prompt", agent.prompt, *model]
        case ActionTarget() as action:
            return ["--action", action.action_type_id, "--kn", action.kn_id]
        case MessageTarget() as message:
            return ["--message", message.text]


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- what differs ---------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    #: `policy.timeout`
    place: str
    before: str
    after: str


def differences(changes: Mapping[str, tuple[object, object]]) -> tuple[Difference, ...]:
    """Leaf by leaf, in the order of the fields."""
    return tuple(
        each for name, (before, after) in changes.items() for each in _leaves(name, before, after)
    )


def _leaves(place: str, before: object, after: object) -> Iterator[Difference]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys([*before, *after]):
            yield from _leaves(f"{place}.{name}", before.get(name), after.get(name))
        return
    yield Difference(place=place, before=_text(place, before), after=_text(place, after))


def _text(place: str, value: object) -> str:
    if value is None:
        return ""
    if place.rpartition(".")[2] in _DURATIONS and isinstance(value, int):
        return format_duration_iso(value * _MICROSECOND)
    if isinstance(value, Mapping):
        value = {
            name: _text(f"{place}.{name}", each) if name in _DURATIONS else each
            for name, each in value.items()
        }
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
