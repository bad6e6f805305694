"""What a schedule is: its definition, where it was declared, its versions, copies for elsewhere."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pprint import pformat

import yaml
from starlette.responses import Response
from yaml.tokens import KeyToken, ScalarToken, Token

from chimes.errors import NotFound
from chimes.i18n import _
from chimes.model.policy import Policy
from chimes.model.recipient import format_recipient
from chimes.model.schedule import Schedule, is_detached, reattach, source_marker
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
from chimes.services.schedule_history import list_schedule_audit, versions_in, with_version
from chimes.triggers import format_duration_iso
from chimes.triggers.duration import format_duration_go
from chimes.web.api.schemas import ScheduleIn
from chimes.web.api.translate import Json, recipients_out, schedule_out
from chimes.web.dashboard.core.flash import Undo
from chimes.web.dashboard.core.forms import ConfirmDialog
from chimes.web.dashboard.core.page_request import PageRequest
from chimes.web.dashboard.core.router import PageRouter
from chimes.web.dashboard.runs.views import UNSEEN
from chimes.web.dashboard.schedule.actions import page_of, schedule_in
from chimes.web.dashboard.schedule.routes import show
from chimes.web.dashboard.schedules.views import expression_of

# @@ A definition as people take it elsewhere: YAML, JSON, a command, a call, a program; and what
# differs between two of them.

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
        parts += ["--notify", format_recipient(recipient)]
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


# @@ YAML and JSON with their parts told apart, by YAML's own scanner: JSON is YAML too.

#: Above this many characters it is shown as it is.
LONGEST = 60_000
#: As our own dump writes them: what only looks like one is between quotes.
_NUMBER = re.compile(r"[-+]?\.?\d[\d_.]*(?:[eE][-+]?\d+)?")
_WORDS = frozenset({"true", "false", "null"})
#: Text, and what it is: `name`, `text`, `number`, `word`; empty: signs and blanks.
Piece = tuple[str, str]


def pieces_of(text: str) -> tuple[Piece, ...]:
    """Put together again they are the text. What the scanner does not take is one piece."""
    if len(text) > LONGEST:
        return ((text, ""),)
    try:
        return tuple(_pieces(text))
    except yaml.YAMLError:
        return ((text, ""),)


def _pieces(text: str) -> Iterator[Piece]:
    at, named = 0, False
    token: Token
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if isinstance(token, KeyToken):
            named = True
        elif isinstance(token, ScalarToken):
            start, end = token.start_mark.index, token.end_mark.index
            if start > at:
                yield text[at:start], ""
            yield text[start:end], "name" if named else _kind(token)
            at, named = end, False
        else:
            named = False
    if at < len(text):
        yield text[at:], ""


def _kind(token: ScalarToken) -> str:
    if not token.plain:
        return "text"
    if token.value in _WORDS:
        return "word"
    return "number" if _NUMBER.fullmatch(token.value) else "text"


router = PageRouter()


def _tab_of(schedule: Schedule) -> str:
    return f"{page_of(schedule.id)}/definition"


@router.get("/schedules/{id}/definition")
async def definition(request: PageRequest) -> Response:
    schedule = await schedule_in(request)
    form = "json" if request.query.get("format") == "json" else "yaml"
    shown = definition_of(schedule)
    versions = versions_in(
        await list_schedule_audit(request.context.store, request.actor, schedule)
    )
    return show(
        request,
        schedule,
        "definition",
        form=form,
        pieces=pieces_of(as_json(shown) if form == "json" else as_yaml(shown)),
        versions=[(each, differences(each.changes)) for each in versions],
        code=source_marker(schedule),
        detached=is_detached(schedule),
    )


@router.post("/schedules/{id}/attach")
async def attach(request: PageRequest) -> Response:
    """The code that declares it may write it again (ADR 33)."""
    schedule = await schedule_in(request)
    if not request.is_confirmed:
        question = ConfirmDialog(
            title=_("Follow the code again?"),
            text=_(
                "When the application starts the next time, what its code says "
                "takes the place of what was edited here."
            ),
            button=_("Follow the code"),
            names=[schedule.name],
            dangerous=False,
        )
        return request.confirm(question)
    await request.context.schedules.change(request.actor, schedule.id, reattach)
    text = _("{name} follows its code from the next start on.", name=schedule.name)
    return request.redirect_with_toast(text, to=_tab_of(schedule))


@router.post("/schedules/{id}/versions/{number}/restore")
async def restore_version(request: PageRequest) -> Response:
    """The definition as it was after that change; whether it is paused stays as it is."""
    schedule = await schedule_in(request)
    number = request.path_params["number"]
    if not number.isdigit() or len(number) > 15:
        raise NotFound(_("version {number} not found", number=number))
    versions = versions_in(
        await list_schedule_audit(request.context.store, request.actor, schedule)
    )
    wanted = with_version(schedule, versions, int(number))
    if not request.is_confirmed:
        question = ConfirmDialog(
            title=_("Take up this version again?"),
            text=_("It becomes the newest version; nothing of what was between is lost."),
            button=_("Restore"),
            names=_differing(schedule, wanted),
            dangerous=False,
        )
        return request.confirm(question)
    after = await request.context.schedules.change(
        request.actor, schedule.id, lambda before: wanted, expected_version=schedule.version
    )
    if after == schedule:
        return request.redirect_with_toast(_("It is like that already."), to=_tab_of(schedule))
    current = versions[0].number
    return request.redirect_with_toast(
        _("{name} is as it was then.", name=after.name),
        to=_tab_of(schedule),
        undo=Undo(
            action=f"{page_of(schedule.id)}/versions/{current}/restore", fields={"sure": "yes"}
        ),
    )


def _differing(schedule: Schedule, wanted: Schedule) -> list[str]:
    then = definition_of(wanted)
    changed = {
        name: (before, then.get(name))
        for name, before in definition_of(schedule).items()
        if then.get(name) != before
    }
    return [
        f"{each.place}: {each.before or '–'} → {each.after or '–'}" for each in differences(changed)
    ]


@router.get("/schedules/{id}/copy")
async def copy_as(request: PageRequest) -> Response:
    schedule = await schedule_in(request)
    server = str(request.http.base_url).rstrip("/")
    return request.render_page_or_block(
        "schedules/copy.html",
        "part",
        schedule=schedule,
        in_full=said_in_full(schedule),
        command=as_command(schedule),
        curl=as_curl(schedule, server),
        python=as_python(schedule, server),
        yaml=as_yaml([definition_of(schedule, copy=True)]),
    )
