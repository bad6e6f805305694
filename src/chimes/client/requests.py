"""Request bodies of the client: converts arguments of its methods to JSON of the API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TypedDict
from urllib.parse import quote

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.recipient import DEFAULT_LATE_AFTER, WEEKDAYS, Recipient
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    TaskTarget,
)
from chimes.triggers import Trigger, format_duration_iso, format_moment, parse_duration
from chimes.triggers.forms import parse_trigger_text

Json = dict[str, object]
Duration = str | timedelta | int | float
Moment = str | datetime
TargetLike = (
    str
    | HttpTarget
    | TaskTarget
    | FlowTarget
    | SyncTarget
    | AgentTarget
    | ActionTarget
    | MessageTarget
    | Mapping[str, object]
)
RecipientLike = Recipient | Mapping[str, object]


class RunOptions(TypedDict, total=False):
    """Options of `enqueue` and `schedule`: policy, owner and recipients."""

    catch_up: str
    misfire_grace: Duration
    catch_up_limit: int
    overlap: str
    max_concurrent_runs: int
    burst_allowed: bool
    concurrency_key: str
    retries: int
    retry_backoff: Duration
    backoff: str
    timeout: Duration
    on_lost: str
    priority: int
    owner: str
    timezone: str
    delivery: Iterable[RecipientLike]


class Options(RunOptions, total=False):
    """Options of `schedule`; omitted ones stay as they are."""

    args: Mapping[str, object]
    input: Mapping[str, object]
    labels: Mapping[str, str | None]
    enabled: bool
    jitter: Duration
    start_at: Moment
    end_at: Moment
    max_runs: int
    exclude: Iterable[object]
    #: Another schedule of the namespace; None removes the dependency.
    depends_on: str | None
    depends_within: Duration
    #: Only `db`: a client cannot time schedules in memory.
    mode: str


#: Option -> field of the policy in the API.
_POLICY = {
    "catch_up": "misfire",
    "misfire_grace": "misfire_grace",
    "catch_up_limit": "catch_up_limit",
    "overlap": "overlap",
    "max_concurrent_runs": "max_concurrent_runs",
    "burst_allowed": "burst_allowed",
    "concurrency_key": "concurrency_key",
    "retries": "max_retries",
    "retry_backoff": "retry_backoff",
    "backoff": "backoff",
    "timeout": "timeout",
    "on_lost": "on_lost",
}
_TRIGGER_OPTIONS = ("jitter", "start_at", "end_at", "max_runs", "exclude")


def check_options(verb: str, given: Mapping[str, object], known: Collection[str]) -> None:
    """Raises TypeError for unknown options, as for keyword arguments."""
    for name in given:
        if name not in known:
            raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}")
    if given.get("mode", "db") != "db":
        raise InvalidInput(
            _(
                "{field} is one of {known}, not {value!r}",
                field="mode",
                known="db",
                value=given["mode"],
            ),
            field="mode",
            code="unknown_word",
        )
    if "depends_within" in given and given.get("depends_on") is None:
        raise InvalidInput(_("depends_within requires depends_on"), field="depends_within")


def path_of(*parts: str) -> str:
    """Joins path segments, quoted: clients choose their ids freely."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def trigger_json(given: Trigger | str | Mapping[str, object], options: Options) -> Json:
    """From text (`0 9 * * 1-5`, `every 5m`, a time), a trigger, or JSON of the API."""
    zone = options.get("timezone")
    if isinstance(given, str):
        plain: Json = dict(parse_trigger_text(given, zone).to_dict())
    elif isinstance(given, Mapping):
        plain = dict(given)
    else:
        plain = dict(given.to_dict())
    if zone is not None and plain.get("kind") != "every":
        plain.setdefault("timezone", zone)
    for name in _TRIGGER_OPTIONS:
        value = options.get(name)
        if value is not None:
            plain[name] = _trigger_option(name, value)
    return plain


def _trigger_option(name: str, value: object) -> object:
    if isinstance(value, datetime):
        return moment_text(value, name)
    if name == "jitter" and isinstance(value, timedelta | int | float):
        return duration_text(value, name)
    if name == "exclude" and isinstance(value, Iterable):
        return list(value)
    return value


def target_json(
    given: TargetLike,
    args: Mapping[str, object] | None = None,
    flow_input: Mapping[str, object] | None = None,
) -> Json:
    """From text (`task:NAME`, `flow:NAME`, `sync:SOURCE/COLLECTION`, a URL, a task name), a target,
    or JSON of the API."""
    match given:
        case HttpTarget():
            found: Json = {
                "kind": "http",
                "url": given.url,
                "method": given.method,
                "headers": dict(given.headers),
                "body": given.body,
                "expected_status": list(given.expected_status),
                "signing_secrets": list(given.signing_secrets),
                "verify_tls": given.verify_tls,
            }
        case TaskTarget():
            found = {"kind": "task", "name": given.name, "args": dict(given.args)}
        case FlowTarget():
            found = {"kind": "flow", "name": given.name, "input": dict(given.input)}
        case SyncTarget():
            found = {"kind": "sync", "source": given.source, "collection": given.collection}
        case AgentTarget():
            found = {
                "kind": "agent",
                "prompt": given.prompt,
                "pipeline": given.pipeline,
                "model": given.model,
                "max_tokens": given.max_tokens,
            }
        case ActionTarget():
            found = {
                "kind": "action",
                "action_type_id": given.action_type_id,
                "kn_id": given.kn_id,
                "branch": given.branch,
                "identities": [dict(each) for each in given.identities],
                "params": dict(given.params),
                "account": {"id": given.account_id, "type": given.account_type},
            }
        case MessageTarget():
            found = {"kind": "message", "text": given.text}
        case str():
            found = _target_from_text(given)
        case _:
            found = dict(given)
    if args is not None:
        found["args"] = dict(args)
    if flow_input is not None:
        found["input"] = dict(flow_input)
    return found


def _target_from_text(text: str) -> Json:
    if "://" in text:
        return {"kind": "http", "url": text, "method": "POST", "headers": {}, "body": ""}
    kind, colon, name = text.partition(":")
    if not colon:
        return {"kind": "task", "name": text, "args": {}}
    if kind == "task":
        return {"kind": "task", "name": name, "args": {}}
    if kind == "flow":
        return {"kind": "flow", "name": name, "input": {}}
    source, slash, collection = name.partition("/")
    if kind == "sync" and slash:
        return {"kind": "sync", "source": source, "collection": collection}
    raise InvalidInput(
        _("a target is task:NAME, flow:NAME, sync:SOURCE/COLLECTION or a URL"),
        field="target",
        code="unknown_kind",
    )


def policy_json(options: RunOptions) -> Json:
    found: Json = {}
    for name, api_name in _POLICY.items():
        value = options.get(name)
        if value is None:
            continue
        is_duration = name in ("misfire_grace", "retry_backoff", "timeout")
        if is_duration and isinstance(value, str | timedelta | int | float):
            value = duration_text(value, name)
        found[api_name] = value
    return found


def delivery_json(given: Iterable[RecipientLike]) -> list[Json]:
    """Recipients of notifications."""
    return [_recipient(each) for each in given]


def _recipient(given: RecipientLike) -> Json:
    if not isinstance(given, Recipient):
        return dict(given)
    found: Json = {
        "channel": given.channel.value,
        "to": given.to,
        "on": [each.value for each in given.on],
        "language": given.language,
        "signing_secrets": list(given.signing_secrets),
    }
    if given.late_after != DEFAULT_LATE_AFTER:
        found["late_after"] = format_duration_iso(given.late_after)
    if (quiet := given.quiet) is not None:
        found["quiet"] = {
            "from": quiet.start.strftime("%H:%M"),
            "to": quiet.end.strftime("%H:%M"),
            "zone": quiet.zone,
            "except": [each.value for each in quiet.except_for],
        }
    if (digest := given.digest) is not None:
        found["digest"] = {
            "every": digest.every.value,
            "at": digest.at.strftime("%H:%M"),
            "on": WEEKDAYS[digest.weekday],
            "zone": digest.zone,
            "except": [each.value for each in digest.except_for],
        }
    return found


def owner_json(text: str) -> Json:
    kind, colon, owner = text.partition(":")
    if not colon:
        raise InvalidInput(
            _("an owner is written as type:id, for example user:alice"),
            field="owner",
            code="bad_owner",
        )
    return {"type": kind, "id": owner}


def moment_text(value: Moment, field: str) -> str:
    """From an aware datetime, or text that the server parses."""
    if isinstance(value, str):
        return value
    if value.utcoffset() is None:
        raise InvalidInput(
            _(
                "{field} must be an aware datetime, or text such as 2030-02-10T09:00:00Z",
                field=field,
            ),
            field=field,
            code="naive_time",
        )
    return format_moment(value)


def duration_text(value: Duration, field: str) -> str:
    """From text such as `90s`, a timedelta, or seconds."""
    given = timedelta(seconds=value) if isinstance(value, int | float) else value
    return format_duration_iso(parse_duration(given, field=field, allow_zero=True))
