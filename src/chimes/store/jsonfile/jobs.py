"""Converts schedules to Ksana jobs and back; what Ksana's keys cannot express is under `chimes`.

Users edit the keys of a job. `chimes.seen` is the digest of the defining keys as written; if it
differs on load, the job was edited.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from chimes.clock import EPOCH, MICROSECOND
from chimes.egress import parse_http_url
from chimes.envelope import NO_KEYS, Keyring
from chimes.errors import InvalidInput, message_of
from chimes.i18n import Message, _, from_stored, to_stored
from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule, apply_edit, plan_after, set_cursor
from chimes.model.sync import require_exclusive
from chimes.model.target import (
    TARGETS,
    ActionTarget,
    AgentTarget,
    CommandTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    Target,
    TaskTarget,
    is_pair_key,
)
from chimes.model.validation import check_target
from chimes.store.codec.values import (
    Plain,
    codec_of,
    drop_empty,
    maybe_text,
    open_plain,
    policy_to_plain,
    schedule_from_plain,
    schedule_to_plain,
    seal_fields,
    target_from_plain,
    target_to_plain,
    to_text,
)
from chimes.triggers import (
    Cron,
    Every,
    Once,
    Trigger,
    Webhook,
    format_duration_go,
    format_moment,
    parse_duration,
    parse_moment,
    trigger_from_dict,
)

KSANA = "ksana"
#: Kinds whose part of the job has all fields of the trigger.
WHOLE_KINDS = ("webhook", "run_end", "file", "sql", "any", "rrule", "business_day", "sun")
DETAILS = "chimes"
SEEN = "seen"

#: Keys that users edit, besides the target, and keys that the service writes.
DEFINITION = (
    *("name", "enabled", "type", "schedule"),
    *("timeout", "max_retries", "retry_backoff"),
)
RECORD = ("last_run_at", "next_run_at", "last_status", "last_error")
JOB_KEYS = frozenset({"id", *DEFINITION, *RECORD, DETAILS})
#: Kinds whose part of the job has all fields of the target.
_WHOLE = ("celery", "dask", "kubernetes", "amqp", "nats", "redis_stream", "kafka")
#: Keys of the target part, by the type of the job.
TARGET_KEYS: Mapping[str, frozenset[str]] = {
    "http": frozenset({"method", "url", "headers", "body"}),
    "task": frozenset({"name", "args"}),
    "flow": frozenset({"name", "input"}),
    "sync": frozenset({"source", "collection"}),
    "agent": frozenset({"prompt", "pipeline", "model", "max_tokens"}),
    "action": frozenset({"action_type_id", "kn_id", "branch", "identities", "params"}),
    "message": frozenset({"text"}),
    "command": frozenset({"command", "shell"}),
    **{kind: codec_of(TARGETS[kind]).names - {"kind"} for kind in _WHOLE},
}
SCHEDULE_KEYS: Mapping[str, frozenset[str]] = {
    "once": frozenset({"kind", "run_at"}),
    "every": frozenset({"kind", "every", "start_at", "jitter"}),
    "cron": frozenset({"kind", "expression", "timezone", "dialect", "dst", "anchor"}),
}

#: Ksana's status words; `pause_schedule` is only displayed.
WORDS = {
    RunStatus.SUCCEEDED: "success",
    RunStatus.FAILED: "failed",
    RunStatus.TIMEOUT: "timeout",
    RunStatus.CANCELED: "failed",
    RunStatus.SKIPPED: "skipped",
    RunStatus.MISSED: "missed",
    RunStatus.UNKNOWN: "failed",
}
STATUSES = {
    "success": RunStatus.SUCCEEDED,
    "failed": RunStatus.FAILED,
    "timeout": RunStatus.TIMEOUT,
    "skipped": RunStatus.SKIPPED,
    "missed": RunStatus.MISSED,
}

_IN_POLICY = ("timeout", "max_retries", "retry_backoff")
_IN_JOB = ("id", "name", "next_run_at", "last_run_at", "last_error")


@dataclass(frozen=True, kw_only=True, slots=True)
class Extras:
    """Unknown keys of a job; they are written back unchanged."""

    job: Plain = field(default_factory=dict)
    target: Plain = field(default_factory=dict)
    schedule: Plain = field(default_factory=dict)


NO_EXTRAS = Extras()


def job_to_plain(
    schedule: Schedule, keyring: Keyring = NO_KEYS, extras: Extras = NO_EXTRAS
) -> Plain:
    """`seen` is the digest of the job as it is written, with its secrets sealed."""
    given, policy, target = given_texts(schedule), schedule.policy, schedule.target
    job: Plain = {
        "id": schedule.id,
        "name": schedule.name,
        "enabled": schedule.enabled,
        "type": target.kind,
        target.kind: {**target_keys(target), **extras.target},
        "schedule": {**schedule_keys(schedule.trigger, given), **extras.schedule},
        "timeout": duration_text(policy.timeout, given.get("timeout")),
        "max_retries": policy.max_retries,
        "retry_backoff": duration_text(policy.retry_backoff, given.get("retry_backoff")),
        "last_run_at": to_text(schedule.last_run_at) if schedule.last_run_at else "",
        "next_run_at": to_text(schedule.next_run_at) if schedule.next_run_at else "",
        "last_status": status_word(schedule),
        "last_error": schedule.last_error,
        **extras.job,
    }
    job = seal_fields(job, keyring)
    return job | {DETAILS: {**seal_fields(_details(schedule), keyring), SEEN: digest(job)}}


def _details(schedule: Schedule) -> Plain:
    """The `chimes` part, without what the job's keys express exactly."""
    whole = schedule_to_plain(schedule)
    target, policy = whole.pop("target"), whole.pop("policy")
    assert isinstance(target, dict)
    assert isinstance(policy, dict)
    in_job = TARGET_KEYS[schedule.target.kind] | {"kind"}
    parts = {
        "target": {name: value for name, value in target.items() if name not in in_job},
        "policy": {name: value for name, value in policy.items() if name not in _IN_POLICY},
    }
    left = {name: value for name, value in whole.items() if name not in _IN_JOB}
    if isinstance(schedule.last_error, Message):
        # The job's own key has the English text; the code and parameters are kept here.
        left["last_error"] = whole["last_error"]
    return left | {name: part for name, part in parts.items() if part}


def _last_error(raw: Plain, own: Mapping[str, object]) -> str:
    """The stored message if the job's own key still has its text, else that text."""
    text, stored = text_of(raw, "last_error"), own.get("last_error")
    if isinstance(stored, str) and from_stored(stored) == text:
        return stored
    return to_stored(text)


def digest(job: Mapping[str, object]) -> str:
    definition = {name: job.get(name) for name in (*DEFINITION, target_part(job))}
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode("ascii"), digest_size=8).hexdigest()


def target_part(job: Mapping[str, object]) -> str:
    """The name of the key that holds the job's target."""
    kind = job.get("type")
    return kind if isinstance(kind, str) and kind in TARGET_KEYS else "http"


def target_keys(target: Target) -> Plain:
    match target:
        case HttpTarget():
            return {
                "method": target.method,
                "url": target.url,
                "headers": dict(target.headers),
                "body": target.body,
            }
        case TaskTarget():
            return {"name": target.name, "args": dict(target.args)}
        case FlowTarget():
            return {"name": target.name, "input": dict(target.input)}
        case SyncTarget():
            return {"source": target.source, "collection": target.collection}
        case AgentTarget():
            own = {
                "pipeline": target.pipeline,
                "model": target.model,
                "max_tokens": target.max_tokens,
            }
            return {"prompt": target.prompt, **drop_empty(own)}
        case ActionTarget():
            return {
                "action_type_id": target.action_type_id,
                "kn_id": target.kn_id,
                "branch": target.branch,
                "identities": [dict(each) for each in target.identities],
                "params": dict(target.params),
            }
        case MessageTarget():
            return {"text": target.text}
        case CommandTarget():
            return drop_empty({"command": list(target.command), "shell": target.shell})
        case _:
            plain = target_to_plain(target)
            return {name: value for name, value in plain.items() if name != "kind"}


def given_texts(schedule: Schedule) -> Mapping[str, object]:
    """Durations and times as the Ksana API received them."""
    given = schedule.compat_data.get(KSANA)
    return given if isinstance(given, Mapping) else {}


def schedule_keys(trigger: Trigger, given: Mapping[str, object]) -> Plain:
    if trigger.kind in WHOLE_KINDS:
        return trigger.shown()
    if isinstance(trigger, Once):
        return {"kind": "once", "run_at": to_text(trigger.instant)}
    if isinstance(trigger, Cron):
        known = SCHEDULE_KEYS["cron"]
        return {name: value for name, value in trigger.to_dict().items() if name in known}
    assert isinstance(trigger, Every)
    shown = trigger.anchor if given.get("start_at") or not given else None
    return {
        "kind": "every",
        "every": duration_text(trigger.every, given.get("every")),
        "start_at": to_text(shown) if shown else "",
        "jitter": duration_text(trigger.jitter, given.get("jitter")) if trigger.jitter else "",
    }


def duration_text(value: timedelta, given: object) -> str:
    """In the given form, if it still has the same value."""
    if isinstance(given, str) and given:
        try:
            if parse_duration(given, allow_zero=True) == value:
                return given
        except InvalidInput:
            pass
    return format_duration_go(value)


def status_word(schedule: Schedule) -> str:
    """`pause_schedule` shows until a run by hand has something newer to say."""
    ran = schedule.last_run_at
    if not schedule.enabled and schedule.version > 1 and (not ran or ran < schedule.updated_at):
        return "paused"
    return WORDS[schedule.last_status] if schedule.last_status else ""


# --- strict parsing of the keys of a job

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
#: Defaults of a Ksana job.
KSANA_POLICY = Policy(
    misfire=Misfire.SKIP,
    misfire_grace=timedelta(seconds=1),
    overlap=Overlap.SKIP,
    max_retries=3,
    retry_backoff=timedelta(seconds=5),
    timeout=timedelta(seconds=10),
    pause_on_gone=False,
)
#: Go's zero time.
GO_ZERO_TIME = "0001-01-01T00:00:00Z"


def trigger_of(keys: Plain, before: Schedule | None, implied: datetime) -> Trigger:
    """`implied` is the start of an interval without start_at, unless it continues unchanged."""
    kind = text_of(keys, "kind")
    if kind in WHOLE_KINDS:
        given = trigger_from_dict(dict(keys))
        old = None if before is None else before.trigger
        if isinstance(given, Webhook):
            return given.completed(old)
        if before is None:
            return given
        return given.seeded(before.id).with_calendars(before.trigger.calendars())
    if kind not in SCHEDULE_KEYS:
        raise InvalidInput(
            _("schedule kind must be 'once' or 'every', not {kind!r}", kind=kind), field="kind"
        )
    old = before.trigger if before is not None and before.trigger.kind == kind else None
    plain = old.to_dict() if old is not None else {"kind": kind}
    if kind == "once":
        run_at = time_of(keys, "run_at")
        if run_at is None:
            raise InvalidInput(_("run_at is required for 'once' schedule"), field="run_at")
        return trigger_from_dict(plain | {"at": format_moment(run_at)})
    if kind == "cron":
        plain = {name: value for name, value in plain.items() if name not in SCHEDULE_KEYS["cron"]}
        return trigger_from_dict(
            plain | {name: keys[name] for name in SCHEDULE_KEYS["cron"] if keys.get(name)}
        )
    every = parse_duration(text_of(keys, "every"), field="every")
    anchor = time_of(keys, "start_at")
    if anchor is None and isinstance(old, Every) and old.every == every:
        texts = given_texts(before) if before is not None else {}
        anchor = old.anchor if texts and not texts.get("start_at") else None
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
        raise InvalidInput(_("max_retries must be non-negative"), field="max_retries")
    return policy | {"max_retries": retries}


def check_http(http: Plain) -> Plain:
    method = (text_of(http, "method") or "POST").upper()
    if method not in METHODS:
        raise InvalidInput(_("unknown HTTP method {method!r}", method=method), field="http.method")
    url = text_of(http, "url")
    parse_http_url(url)
    headers = mapping(http.get("headers"), "headers")
    if not all(isinstance(value, str) for value in headers.values()):
        raise InvalidInput(_("headers must be an object of strings"), field="http.headers")
    return {"method": method, "url": url, "headers": headers, "body": text_of(http, "body")}


def target_of(raw: Plain, *, check: bool) -> Plain:
    """The target from the part named after the job's type."""
    kind = text_of(raw, "type") or "http"
    part = mapping(raw.get(kind), kind)
    keys = {name: part.get(name) for name in TARGET_KEYS.get(kind, ())}
    if check and kind == "http":
        keys |= check_http(keys)
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
        raise InvalidInput(_("{field} must be an object", field=name), field=name)
    return dict(value)


def text_of(data: Mapping[str, object], name: str) -> str:
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInput(_("{field} must be a string", field=name), field=name)
    return value


def flag(data: Mapping[str, object], name: str, default: bool) -> bool:
    value = data.get(name, default)
    if not isinstance(value, bool):
        raise InvalidInput(_("{field} must be true or false", field=name), field=name)
    return value


def time_of(data: Mapping[str, object], name: str) -> datetime | None:
    text = text_of(data, name)
    return None if text in ("", GO_ZERO_TIME) else parse_moment(text, field=name)


# --- loading jobs: Ksana's keys win over the `chimes` part, and an edited job is the next version
# of its schedule

EDITOR = "jobs.json"
ERROR_PREFIX = f"{EDITOR}: "
#: Placeholder trigger of an invalid job; it never fires.
UNREADABLE = Once("9998-12-31T23:59:59Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedJob:
    schedule: Schedule
    extras: Extras = NO_EXTRAS
    #: The original of an invalid job, written back until it is fixed.
    broken: Plain | None = None
    edited: bool = False


def read_job(raw: Plain, job_id: ScheduleId, *, now: datetime, written_at: datetime) -> LoadedJob:
    """Never drops: an invalid job is loaded disabled, with its error. SecretUnreadable if a secret
    cannot be decrypted."""
    written = digest(raw)
    original, raw = raw, open_plain(raw)
    try:
        details = raw.get(DETAILS)
        if details is None:
            schedule, by_hand = _plain_job(raw, job_id, now, written_at), False
        else:
            details = mapping(details, DETAILS)
            by_hand = written != details.get(SEEN)
            schedule = _known_job(raw, job_id, details, now, by_hand=by_hand)
        return LoadedJob(
            schedule=_with_record(schedule, raw), extras=extras_of(raw), edited=by_hand
        )
    except (InvalidInput, ValueError, TypeError, OverflowError) as error:
        return _broken(
            original, job_id, str(_("jobs.json: {message}", message=message_of(error))), written_at
        )


def _known_job(
    raw: Plain, job_id: ScheduleId, details: Plain, now: datetime, *, by_hand: bool
) -> Schedule:
    policy = policy_of(raw, mapping(details.get("policy"), "policy"), check=by_hand)
    target = target_of(raw, check=by_hand)
    own = {name: value for name, value in details.items() if name != SEEN}
    before = schedule_from_plain(
        own
        | {
            "id": job_id,
            "name": raw.get("name"),
            "target": {**target, **mapping(own.get("target"), "target")},
            "policy": policy,
            "next_run_at": maybe_text(time_of(raw, "next_run_at")),
            "last_run_at": maybe_text(time_of(raw, "last_run_at")),
            "last_error": _last_error(raw, own),
        }
    )
    return _edited_job(before, raw, now) if by_hand else _with_cursor(before, now)


def _edited_job(before: Schedule, raw: Plain, now: datetime) -> Schedule:
    keys = mapping(raw.get("schedule"), "schedule")
    shown = schedule_keys(before.trigger, given_texts(before))
    known = SCHEDULE_KEYS.get(str(shown["kind"]), frozenset({*shown, *keys}))
    trigger = before.trigger
    if any((keys.get(name) or "") != shown.get(name, "") for name in known | {"kind"}):
        trigger = trigger_of(keys, before, now)
    enabled = flag(raw, "enabled", True)
    resumed = enabled and not before.enabled
    before = _with_cursor(replace(before, policy=_policy_for(before.target, before.policy)), now)
    after = apply_edit(
        before,
        replace(
            before,
            trigger=trigger,
            enabled=enabled,
            pause_note="" if resumed else before.pause_note,
            pause_until=None if resumed else before.pause_until,
            compat_data={**before.compat_data, KSANA: texts_given(raw)},
        ),
        now,
        EDITOR,
    )
    return _overdue_once(after, now)


def _policy_for(target: Target, policy: Policy) -> Policy:
    """A sync target keeps the concurrency key of its pair."""
    if policy.concurrency_key is not None and is_pair_key(policy.concurrency_key):
        policy = replace(policy, concurrency_key=None)
    return require_exclusive(policy, target) if isinstance(target, SyncTarget) else policy


def _plain_job(raw: Plain, job_id: ScheduleId, now: datetime, written_at: datetime) -> Schedule:
    """A job without a `chimes` part, written by Ksana or a user."""
    if text_of(raw, "type") not in ("http", ""):
        raise InvalidInput(_("job type must be 'http'"), field="type")
    policy = policy_of(raw, policy_to_plain(KSANA_POLICY), check=True)
    next_at = time_of(raw, "next_run_at")
    http = check_http(mapping(raw.get("http"), "http"))
    schedule = schedule_from_plain(
        {
            "id": job_id,
            "namespace": KSANA,
            "name": text_of(raw, "name"),
            "trigger": UNREADABLE.to_dict(),
            "target": {"kind": "http", **http},
            "policy": policy,
            "enabled": flag(raw, "enabled", True),
            "door_data": {KSANA: texts_given(raw)},
            "last_run_at": maybe_text(time_of(raw, "last_run_at")),
            "last_error": to_stored(text_of(raw, "last_error")),
            "created_at": format_moment(written_at),
            "updated_at": format_moment(written_at),
        }
    )
    trigger = trigger_of(mapping(raw.get("schedule"), "schedule"), None, next_at or now)
    return _first_cursor(replace(schedule, trigger=trigger), raw, next_at, now)


def _first_cursor(
    schedule: Schedule, raw: Plain, next_at: datetime | None, now: datetime
) -> Schedule:
    """Keep a stale cursor, so that missed slots are recorded; plan a missing one."""
    trigger = schedule.trigger
    if not schedule.enabled:
        return schedule
    if isinstance(trigger, Once):
        done = next_at is None and (schedule.last_run_at or text_of(raw, "last_status"))
        return schedule if done else set_cursor(schedule, trigger.next_after(EPOCH))
    if next_at is not None:
        slot = trigger.previous_before(next_at + MICROSECOND)
        delay = (trigger.jitter or timedelta()) + (trigger.spread or timedelta())
        if slot is not None and next_at - slot <= delay:
            return replace(schedule, next_slot=slot, next_run_at=next_at)
    return plan_after(schedule, now)


def _with_cursor(schedule: Schedule, now: datetime) -> Schedule:
    """An emptied next_run_at is planned again; a changed one moves the next slot."""
    if schedule.next_slot is not None and schedule.next_run_at is None:
        return _overdue_once(plan_after(schedule, now), now)
    if schedule.next_slot is None and schedule.next_run_at is not None:
        return replace(schedule, next_slot=schedule.next_run_at)
    return schedule


def _overdue_once(schedule: Schedule, now: datetime) -> Schedule:
    """A past `once` job without a run becomes `missed` when it fires."""
    if not schedule.enabled or schedule.next_slot or schedule.policy.misfire is not Misfire.SKIP:
        return schedule
    slot = schedule.trigger.next_after(EPOCH) if isinstance(schedule.trigger, Once) else None
    if slot is None or slot > now or (schedule.last_slot and schedule.last_slot >= slot):
        return schedule
    return set_cursor(schedule, slot)


def _with_record(schedule: Schedule, raw: Plain) -> Schedule:
    if schedule.last_error.startswith(ERROR_PREFIX):
        return replace(schedule, last_status=None, last_error="")
    word = text_of(raw, "last_status")
    if word == status_word(schedule) or word == "paused":
        return schedule
    return replace(schedule, last_status=STATUSES.get(word))


def _broken(raw: Plain, job_id: ScheduleId, error: str, written_at: datetime) -> LoadedJob:
    http, name = raw.get("http"), raw.get("name")
    url = http.get("url") if isinstance(http, dict) else ""
    schedule = Schedule(
        id=job_id,
        namespace=KSANA,
        name=name if isinstance(name, str) else "",
        trigger=UNREADABLE,
        target=HttpTarget(url=url if isinstance(url, str) else ""),
        policy=KSANA_POLICY,
        enabled=False,
        last_status=RunStatus.FAILED,
        last_error=error,
        created_at=written_at,
        updated_at=written_at,
    )
    raw = {**raw, "id": job_id, "last_status": "failed", "last_error": error}
    return LoadedJob(schedule=schedule, broken=raw)
