"""The keys of a job, one by one, strictly: an error names the key that makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from chimes.errors import InvalidInput
from chimes.model.http_url import parse_http_url
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.schedule import Schedule
from chimes.model.target_rules import check_target
from chimes.store.codec.schedule import target_from_plain
from chimes.store.jsonfile.job import (
    JOB_KEYS,
    SCHEDULE_KEYS,
    TARGET_KEYS,
    Extras,
    given_texts,
    target_part,
)
from chimes.store.plain import MICROSECOND, Plain
from chimes.triggers import (
    Every,
    Trigger,
    format_moment,
    parse_duration,
    parse_moment,
    trigger_from_dict,
)
from chimes.wording import say

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
#: What a plain Ksana job means (C1, R3.15).
KSANA_POLICY = Policy(
    misfire=Misfire.SKIP,
    misfire_grace=timedelta(seconds=1),
    overlap=Overlap.SKIP,
    max_retries=3,
    retry_backoff=timedelta(seconds=5),
    timeout=timedelta(seconds=10),
    pause_on_gone=False,
)
#: How Go writes a time that is not there.
GO_ZERO_TIME = "0001-01-01T00:00:00Z"


def trigger_of(keys: Plain, before: Schedule | None, implied: datetime) -> Trigger:
    """`implied` is where an interval without start_at starts, unless it goes on as before."""
    kind = text_of(keys, "kind")
    if kind not in SCHEDULE_KEYS:
        raise InvalidInput(
            say("schedule kind must be 'once' or 'every', not {kind!r}", kind=kind), field="kind"
        )
    old = before.trigger if before is not None and before.trigger.kind == kind else None
    plain = old.to_dict() if old is not None else {"kind": kind}
    if kind == "once":
        run_at = time_of(keys, "run_at")
        if run_at is None:
            raise InvalidInput(say("run_at is required for 'once' schedule"), field="run_at")
        return trigger_from_dict(plain | {"at": format_moment(run_at)})
    if kind == "cron":
        plain = {name: value for name, value in plain.items() if name not in SCHEDULE_KEYS["cron"]}
        return trigger_from_dict(
            plain | {name: keys[name] for name in SCHEDULE_KEYS["cron"] if keys.get(name)}
        )
    every = parse_duration(text_of(keys, "every"), field="every")
    anchor = time_of(keys, "start_at")
    if anchor is None and isinstance(old, Every) and old.every == every:
        given = given_texts(before) if before is not None else {}
        anchor = old.anchor if given and not given.get("start_at") else None
    plain |= {"every": text_of(keys, "every"), "anchor": format_moment(anchor or implied)}
    plain.pop("jitter", None)
    jitter = parse_duration(text_of(keys, "jitter") or "0", field="jitter", allow_zero=True)
    return trigger_from_dict(plain | ({"jitter": text_of(keys, "jitter")} if jitter else {}))


def policy_of(raw: Plain, recorded: Plain, *, check: bool) -> Plain:
    policy = dict(recorded)
    for name, usual in (
        ("timeout", KSANA_POLICY.timeout),
        ("retry_backoff", KSANA_POLICY.retry_backoff),
    ):
        text = text_of(raw, name)
        zero = not check or name != "timeout"
        value = parse_duration(text, field=name, allow_zero=zero) if text else usual
        policy[name] = value // MICROSECOND
    retries = raw.get("max_retries")
    if retries is None:
        retries = KSANA_POLICY.max_retries
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        raise InvalidInput(say("max_retries must be non-negative"), field="max_retries")
    return policy | {"max_retries": retries}


def checked_http(http: Plain) -> Plain:
    method = (text_of(http, "method") or "POST").upper()
    if method not in METHODS:
        raise InvalidInput(
            say("unknown HTTP method {method!r}", method=method), field="http.method"
        )
    url = text_of(http, "url")
    parse_http_url(url)
    headers = mapping(http.get("headers"), "headers")
    if not all(isinstance(value, str) for value in headers.values()):
        raise InvalidInput(say("headers must be an object of strings"), field="http.headers")
    return {"method": method, "url": url, "headers": headers, "body": text_of(http, "body")}


def target_of(raw: Plain, *, check: bool) -> Plain:
    """What the part that is named after the job's type says."""
    kind = text_of(raw, "type") or "http"
    part = mapping(raw.get(kind), kind)
    keys = {name: part.get(name) for name in TARGET_KEYS.get(kind, ())}
    if check and kind == "http":
        keys |= checked_http(keys)
    elif check:
        check_target(target_from_plain({"kind": kind, **keys}))
    return {"kind": kind, **keys}


def texts_given(raw: Plain) -> Plain:
    keys = mapping(raw.get("schedule"), "schedule")
    texts = {name: keys.get(name) for name in ("every", "jitter", "start_at")}
    texts |= {name: raw.get(name) for name in ("timeout", "retry_backoff")}
    return {name: text for name, text in texts.items() if text}


def extras_of(raw: Plain) -> Extras:
    part = target_part(raw)
    target, keys = mapping(raw.get(part), part), mapping(raw.get("schedule"), "schedule")
    known = SCHEDULE_KEYS.get(text_of(keys, "kind"), frozenset())
    return Extras(
        job={name: value for name, value in raw.items() if name not in JOB_KEYS | {part}},
        target={name: value for name, value in target.items() if name not in TARGET_KEYS[part]},
        schedule={name: value for name, value in keys.items() if name not in known},
    )


def mapping(value: object, name: str) -> Plain:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput(say("{field} must be an object", field=name), field=name)
    return dict(value)


def text_of(data: Mapping[str, object], name: str) -> str:
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(say("{field} must be a string", field=name), field=name)
    return value


def flag(data: Mapping[str, object], name: str, default: bool) -> bool:
    value = data.get(name, default)
    if not isinstance(value, bool):
        raise InvalidInput(say("{field} must be true or false", field=name), field=name)
    return value


def time_of(data: Mapping[str, object], name: str) -> datetime | None:
    text = text_of(data, name)
    return None if text in ("", GO_ZERO_TIME) else parse_moment(text, field=name)
