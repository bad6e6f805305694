"""Definition tab: the definition as YAML or JSON, its versions, and copies as code or commands."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import SequenceMatcher
from itertools import zip_longest
from pprint import pformat

import yaml
from starlette.responses import Response
from yaml.tokens import KeyToken, ScalarToken, Token

from chimes.errors import InvalidInput, NotFound
from chimes.i18n import _, in_language
from chimes.model.fields import fields_of, to_json
from chimes.model.policy import Policy
from chimes.model.recipient import format_recipient
from chimes.model.schedule import Dependency, Schedule, is_detached, reattach, source_marker
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    CommandTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    TaskTarget,
)
from chimes.redaction import HIDDEN, mask_arguments, mask_headers, mask_text
from chimes.services.schedules.versions import ORIGINAL, Version, has_original, with_version
from chimes.triggers import OnFile, OnRunEnd, OnSql, Trigger, Webhook, format_duration_iso
from chimes.triggers.values import format_duration_go
from chimes.web.api.schemas import ScheduleIn
from chimes.web.api.translate import Json, recipients_out, schedule_out
from chimes.web.dashboard.core.page_request import ConfirmDialog, PageRequest, PageRouter, Undo
from chimes.web.dashboard.core.times import absolute
from chimes.web.dashboard.editor.target_fields import command_words
from chimes.web.dashboard.runs.views import INVISIBLE
from chimes.web.dashboard.schedule.actions import page_of, schedule_of
from chimes.web.dashboard.schedule.routes import render_tab
from chimes.web.dashboard.schedules.views import expression_of

_DEFINITION_FIELDS = frozenset(ScheduleIn.model_fields)
#: Stored in microseconds, shown as durations.
_DURATIONS = frozenset(
    each.stored
    for kind in (Policy, Dependency, CommandTarget)
    for each in fields_of(kind)
    if each.kind == "duration"
)
_MICROSECOND = timedelta(microseconds=1)


def definition_of(schedule: Schedule, *, copy: bool = False) -> Json:
    """The definition in the format of the API, with secrets masked as `***`. `copy` omits the
    fields that are unique to this schedule."""
    shown = {
        name: value for name, value in schedule_out(schedule).items() if name in _DEFINITION_FIELDS
    }
    if copy:
        for name in ("id", "owner"):
            del shown[name]
    for name in ("target", "policy"):
        shown[name] = _without_empty(shown[name])
    return {name: value for name, value in shown.items() if value not in (None, [], {})}


def _without_empty(part: object) -> object:
    if not isinstance(part, Mapping):
        return part
    return {name: value for name, value in part.items() if value not in (None, "", [], {})}


def as_yaml(value: object) -> str:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    if INVISIBLE.search(text):
        # Escapes characters that reorder or hide text.
        return yaml.safe_dump(value, sort_keys=False, width=100)
    return text


def as_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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
    """The client reads the API key from CHIMES_API_KEY."""
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
    """`chimes add …`; may be incomplete, see `command_is_complete`."""
    parts = ["chimes", "add", *_when_arguments(schedule.trigger)]
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


def _when_arguments(trigger: Trigger) -> list[str]:
    """The expression and zone, or the options of an event, without its secret."""
    found: list[str]
    match trigger:
        case Webhook():
            found = ["--on-webhook"]
            if trigger.scheme != "none":
                found += ["--scheme", trigger.scheme, "--secret", HIDDEN]
        case OnRunEnd():
            found = ["--after", trigger.schedule]
            for status in trigger.status:
                found += ["--status", status]
        case OnFile():
            found = ["--on-file", trigger.path]
        case OnSql():
            found = ["--on-sql", trigger.query, "--connection", trigger.connection]
            found += ["--interval", format_duration_go(trigger.interval)]
        case _:
            return [expression_of(trigger), "--tz", trigger.zone]
    if trigger.debounce is not None:
        found += ["--debounce", format_duration_go(trigger.debounce)]
    if trigger.throttle is not None:
        found += ["--throttle", format_duration_go(trigger.throttle)]
    if trigger.batch is not None:
        within = format_duration_go(trigger.batch.within)
        found += ["--batch", f"{trigger.batch.count}/{within}"]
    return found


def command_is_complete(schedule: Schedule) -> bool:
    """Whether the command line supports all options of the schedule."""
    trigger = schedule.trigger
    bounds = (trigger.start_at, trigger.end_at, trigger.max_runs)
    return not any(bounds) and not trigger.exclude and schedule.depends_on is None


def _target(schedule: Schedule) -> list[str]:
    match schedule.target:
        case HttpTarget() as http:
            found = ["--http", mask_text(http.url), "--method", http.method]
            for name, value in mask_headers(http.headers).items():
                found += ["--header", f"{name}: {value}"]
            return [*found, "--body", mask_text(http.body)] if http.body else found
        case TaskTarget() as task:
            args = mask_arguments(task.args)
            return ["--task", task.name, *(["--args", _compact(args)] if args else [])]
        case FlowTarget() as flow:
            given = mask_arguments(flow.input)
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
        case CommandTarget() as command:
            return command_words(to_json(command, masked=True))
        case _:
            return ["--target", _compact(to_json(schedule.target, masked=True))]


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- differences ---------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    #: `policy.timeout`
    path: str
    before: str
    after: str


def differences(changes: Mapping[str, tuple[object, object]]) -> tuple[Difference, ...]:
    """Per nested field, in the order of the fields."""
    return tuple(
        each for name, (before, after) in changes.items() for each in _leaves(name, before, after)
    )


def _leaves(path: str, before: object, after: object) -> Iterator[Difference]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys([*before, *after]):
            yield from _leaves(f"{path}.{name}", before.get(name), after.get(name))
        return
    yield Difference(path=path, before=_text(path, before), after=_text(path, after))


def _text(path: str, value: object) -> str:
    if value is None:
        return ""
    if path.rpartition(".")[2] in _DURATIONS and isinstance(value, int):
        return format_duration_iso(value * _MICROSECOND)
    if isinstance(value, Mapping):
        value = {
            name: _text(f"{path}.{name}", each) if name in _DURATIONS else each
            for name, each in value.items()
        }
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- syntax highlighting --------------------------------------------------------------------------
# By the YAML scanner, which also reads JSON.

#: Longer texts are not highlighted.
MAX_HIGHLIGHTED = 60_000
#: Strings that look like numbers are quoted in our dumps.
_NUMBER = re.compile(r"[-+]?\.?\d[\d_.]*(?:[eE][-+]?\d+)?")
_KEYWORDS = frozenset({"true", "false", "null"})
#: Text and its CSS class: `name`, `text`, `number`, `word`; empty: punctuation.
Highlighted = tuple[str, str]


def highlight(text: str) -> tuple[Highlighted, ...]:
    """Concatenated they give the text. Text that the scanner rejects is one token."""
    if len(text) > MAX_HIGHLIGHTED:
        return ((text, ""),)
    try:
        return tuple(_highlight(text))
    except yaml.YAMLError:
        return ((text, ""),)


def _highlight(text: str) -> Iterator[Highlighted]:
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
    if token.value in _KEYWORDS:
        return "word"
    return "number" if _NUMBER.fullmatch(token.value) else "text"


router = PageRouter()


def _tab_of(schedule: Schedule) -> str:
    return f"{page_of(schedule.id)}/definition"


@router.get("/schedules/{id}/definition")
async def definition(request: PageRequest) -> Response:
    schedule = await schedule_of(request)
    format_ = "json" if request.query.get("format") == "json" else "yaml"
    shown = definition_of(schedule)
    versions = await request.context.insights.list_versions(request.actor, schedule)
    return render_tab(
        request,
        schedule,
        "definition",
        format=format_,
        highlighted=highlight(as_json(shown) if format_ == "json" else as_yaml(shown)),
        versions=[(each, differences(each.changes)) for each in versions],
        original=has_original(versions),
        compared=_compared(request, schedule, versions),
        code=source_marker(schedule),
        detached=is_detached(schedule),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """Two versions side by side, line by line."""

    left: int
    right: int
    #: Kind (`same`, `changed`), line of the left and of the right version.
    lines: tuple[tuple[str, str, str], ...]

    @property
    def same(self) -> bool:
        return all(kind == "same" for kind, _left, _right in self.lines)


def _compared(
    request: PageRequest, schedule: Schedule, versions: Sequence[Version]
) -> Compared | None:
    """The versions of the query, the older one at the left; None without two valid numbers."""
    given = [request.query.get(name, "") for name in ("left", "right")]
    known = {str(each.number) for each in versions} | {str(ORIGINAL)}
    if len(set(given)) < 2 or not set(given) <= known:
        return None
    left, right = sorted(int(each) for each in given)
    try:
        texts = [as_yaml(definition_of(with_version(schedule, versions, n))) for n in (left, right)]
    except (InvalidInput, NotFound):
        # A secret of that version is gone.
        return None
    return Compared(left=left, right=right, lines=side_by_side(*texts))


def side_by_side(before: str, after: str) -> tuple[tuple[str, str, str], ...]:
    old, new = before.splitlines(), after.splitlines()
    found: list[tuple[str, str, str]] = []
    for kind, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        pairs = zip_longest(old[i1:i2], new[j1:j2], fillvalue="")
        name = "same" if kind == "equal" else "changed"
        found += [(name, left, right) for left, right in pairs]
    return tuple(found)


@router.post("/schedules/{id}/attach")
async def attach(request: PageRequest) -> Response:
    """Lets the code that declares the schedule overwrite it again (ADR 33)."""
    schedule = await schedule_of(request)
    return await request.run_confirmed(
        ConfirmDialog(
            title=_("Reattach to the code?"),
            text=_("The next start of the application overwrites what was edited here."),
            button=_("Reattach"),
            names=[schedule.name],
            dangerous=False,
        ),
        lambda: request.context.schedules.change(request.actor, schedule.id, reattach),
        _("{name} reattached. The next start applies the code.", name=schedule.name),
        to=_tab_of(schedule),
    )


@router.post("/schedules/{id}/versions/{number}/restore")
async def restore_version(request: PageRequest) -> Response:
    """Restores the definition as of that version; a pause is not affected."""
    schedule = await schedule_of(request)
    number = request.path_params["number"]
    if not number.isdigit() or len(number) > 15:
        raise NotFound(_("version {number} not found", number=number))
    versions = await request.context.insights.list_versions(request.actor, schedule)
    restored = with_version(schedule, versions, int(number))
    if not request.is_confirmed:
        return request.confirm(
            ConfirmDialog(
                title=_("Restore this version?"),
                text=_("It becomes the newest version. No other version is lost."),
                button=_("Restore"),
                names=[
                    *_next_run_change(request, schedule, restored),
                    *_list_differences(schedule, restored),
                ],
                dangerous=False,
            )
        )
    after = await request.context.schedules.change(
        request.actor, schedule.id, lambda before: restored, expected_version=schedule.version
    )
    if after == schedule:
        return request.redirect_with_toast(
            _("The schedule already matches this version."), to=_tab_of(schedule)
        )
    current = versions[0].number
    return request.redirect_with_toast(
        _("Version of {name} restored.", name=after.name),
        to=_tab_of(schedule),
        undo=Undo(
            action=f"{page_of(schedule.id)}/versions/{current}/restore", fields={"sure": "yes"}
        ),
    )


def _next_run_change(request: PageRequest, before: Schedule, after: Schedule) -> list[str]:
    """What restoring does to the next fire."""
    display, now = request.display, request.now
    if before.trigger == after.trigger or after.trigger.on_event:
        return []
    old, new = before.trigger.next_after(now), after.trigger.next_after(now)
    if old is None or new is None or old == new:
        return []
    text = _(
        "The next run moves from {before} to {after}.",
        before=absolute(old, display.zone, display, now=now),
        after=absolute(new, display.zone, display, now=now),
    )
    return [in_language(text, display.language)]


def _list_differences(schedule: Schedule, restored: Schedule) -> list[str]:
    then = definition_of(restored)
    changed = {
        name: (before, then.get(name))
        for name, before in definition_of(schedule).items()
        if then.get(name) != before
    }
    return [
        f"{each.path}: {each.before or '–'} → {each.after or '–'}" for each in differences(changed)
    ]


@router.get("/schedules/{id}/copy")
async def copy_as(request: PageRequest) -> Response:
    schedule = await schedule_of(request)
    server = str(request.http.base_url).rstrip("/")
    return request.render_page_or_block(
        "schedules/copy.html",
        "part",
        schedule=schedule,
        is_complete=command_is_complete(schedule),
        command=as_command(schedule),
        curl=as_curl(schedule, server),
        python=as_python(schedule, server),
        yaml=as_yaml([definition_of(schedule, copy=True)]),
    )
