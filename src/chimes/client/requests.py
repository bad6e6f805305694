"""Request bodies of the client: converts arguments of its methods to JSON of the API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TypedDict
from urllib.parse import quote

from msgspec import Struct

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.fields import fields_of, to_json
from chimes.model.policy import policy_options
from chimes.model.recipient import Recipient
from chimes.model.target import Target
from chimes.triggers import Trigger, format_duration_iso, format_moment, parse_duration
from chimes.triggers.text import parse_trigger_text

Json = dict[str, object]
Duration = str | timedelta | int | float
Moment = str | datetime
TargetLike = str | Target | Mapping[str, object]
RecipientLike = Recipient | Mapping[str, object]


class RunOptions(TypedDict, total=False):
    """Options of `enqueue` and `schedule`: policy, owner and recipients. Those of the policy are
    listed for type checkers; the fields of `Policy` decide."""

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
    limits: Iterable[str]
    auto_pause_after: int
    end_after_successes: int
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


#: Other fields of a recipient are only sent if they are set: older servers do not know them.
_ALWAYS_SENT = ("channel", "to", "on", "language", "signing_secrets")
_TRIGGER_OPTIONS = ("jitter", "start_at", "end_at", "max_runs", "exclude")


def check_options(verb: str, given: Mapping[str, object], known: Collection[str]) -> None:
    """Raises TypeError for unknown options, as for keyword arguments."""
    policy = policy_options("client")
    for name in given:
        if name not in known and name not in policy:
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
    if zone is not None and plain.get("kind") in ("cron", "once"):
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
    if isinstance(given, Struct):
        found = to_json(given)
    else:
        found = _target_from_text(given) if isinstance(given, str) else dict(given)
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
    for name, field in policy_options("client").items():
        value = options.get(name)
        if field.kind == "duration" and isinstance(value, str | timedelta | int | float):
            value = duration_text(value, name)
        if field.kind == "names" and isinstance(value, Iterable) and not isinstance(value, str):
            value = list(value)
        if value is not None:
            found[field.json] = value
    return found


def delivery_json(given: Iterable[RecipientLike]) -> list[Json]:
    """Recipients of notifications."""
    return [_recipient(each) for each in given]


def _recipient(given: RecipientLike) -> Json:
    if not isinstance(given, Recipient):
        return dict(given)
    plain = to_json(given)
    for field in fields_of(Recipient):
        if field.name not in _ALWAYS_SENT and getattr(given, field.name) == field.default:
            del plain[field.json]
    return plain


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
