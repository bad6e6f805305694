"""Converts Ksana jobs to schedules and back. The messages are those of Ksana."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, _, in_language
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.fields import to_json
from chimes.model.ids import ScheduleId
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    CommandTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    Target,
    TaskTarget,
)
from chimes.redaction import (
    mask_arguments,
    mask_headers,
    mask_text,
    unmask_headers,
    unmask_text,
)
from chimes.triggers import (
    Cron,
    Every,
    Once,
    Trigger,
    format_duration_go,
    parse_duration,
    parse_moment,
)

_EMPTY_HTTP: Mapping[str, object] = {"method": "", "url": "", "headers": {}, "body": ""}


def target_out(target: Target, *, literal: bool) -> dict[str, object]:
    """`http` is always present, because Ksana clients rely on it."""
    match target:
        case HttpTarget():
            headers = dict(target.headers) if literal else mask_headers(target.headers)
            return {
                "http": {
                    "method": target.method,
                    "url": target.url if literal else mask_text(target.url),
                    "headers": headers,
                    "body": target.body if literal else mask_text(target.body),
                }
            }
        case TaskTarget():
            args = target.args if literal else mask_arguments(target.args)
            return {"http": dict(_EMPTY_HTTP), "task": {"name": target.name, "args": dict(args)}}
        case FlowTarget():
            start = target.input if literal else mask_arguments(target.input)
            return {"http": dict(_EMPTY_HTTP), "flow": {"name": target.name, "input": dict(start)}}
        case SyncTarget():
            pair = {"source": target.source, "collection": target.collection}
            return {"http": dict(_EMPTY_HTTP), "sync": pair}
        case AgentTarget():
            return {"http": dict(_EMPTY_HTTP), "agent": {"prompt": target.prompt}}
        case ActionTarget():
            params = target.params if literal else mask_arguments(target.params)
            action = {
                "action_type_id": target.action_type_id,
                "kn_id": target.kn_id,
                "branch": target.branch,
                "identities": [
                    dict(each) if literal else mask_arguments(each) for each in target.identities
                ],
                "params": dict(params),
            }
            return {"http": dict(_EMPTY_HTTP), "action": action}
        case MessageTarget():
            return {"http": dict(_EMPTY_HTTP), "message": {"text": target.text}}
        case CommandTarget():
            shell = target.shell if literal else mask_text(target.shell)
            command = {"command": list(target.command)} if target.command else {"shell": shell}
            return {"http": dict(_EMPTY_HTTP), "command": command}
        case _:
            plain = to_json(target, masked=not literal, without=("kind",))
            return {"http": dict(_EMPTY_HTTP), target.kind: plain}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobDefaults:
    """Values of fields that a job omits."""

    timeout: timedelta = timedelta(seconds=10)
    max_retries: int = 3
    retry_backoff: timedelta = timedelta(seconds=5)


NAMESPACE = "ksana"
#: An overdue `once` is missed; an overdue interval continues with the next slot.
MISFIRE_GRACE = timedelta(seconds=1)
#: Read-only fields, accepted and ignored so that a job can be sent back as it was read.
READ_ONLY = ("last_run_at", "next_run_at", "last_status", "last_error")
_SETTABLE = frozenset(
    {
        *("id", "name", "enabled", "type", "http", "schedule"),
        *("timeout", "max_retries", "retry_backoff"),
    }
)
_HTTP = frozenset({"method", "url", "headers", "body"})
_SCHEDULE = frozenset({"kind", "run_at", "every", "start_at", "jitter"})
_STATUS = {
    RunStatus.SUCCEEDED: "success",
    RunStatus.FAILED: "failed",
    RunStatus.TIMEOUT: "timeout",
    RunStatus.CANCELED: "failed",
    RunStatus.SKIPPED: "skipped",
    RunStatus.MISSED: "missed",
    RunStatus.UNKNOWN: "failed",
}

Job = dict[str, object]


def schedule_from_job(
    data: object, actor: Actor, defaults: JobDefaults, *, new_id: str, now: datetime
) -> Schedule:
    """A new schedule from the body of POST /jobs."""
    job = _object(data, "job", _SETTABLE.union(READ_ONLY))
    name = _text(job, "name")
    if not name.strip():
        raise InvalidInput(_("job name is required"), field="name")
    if _text(job, "type", "http") not in ("http", ""):
        raise InvalidInput(_("job type must be 'http'"), field="type")
    original_texts: dict[str, object] = {}
    target = _target(_object(job.get("http"), "http", _HTTP), HttpTarget(url="", method="POST"))
    trigger = _trigger(
        _object(job.get("schedule"), "schedule", _SCHEDULE), original_texts, now, None
    )
    policy = Policy(
        misfire=Misfire.SKIP,
        misfire_grace=MISFIRE_GRACE,
        overlap=Overlap.SKIP,
        max_retries=defaults.max_retries,
        retry_backoff=defaults.retry_backoff,
        timeout=defaults.timeout,
        pause_on_gone=False,
    )
    return Schedule(
        id=ScheduleId(_text(job, "id") or new_id),
        namespace=NAMESPACE,
        name=name,
        owner=actor.owner,
        trigger=trigger,
        target=target,
        policy=_policy(job, policy, original_texts),
        enabled=_flag(job, "enabled", True),
        compat_data={NAMESPACE: original_texts},
        created_at=now,
        updated_at=now,
    )


def edited_by_job(schedule: Schedule, data: object, now: datetime) -> Schedule:
    """The schedule after PATCH /jobs/{id}; omitted fields stay as they are."""
    kind = schedule.target.kind
    job = _object(data, "job", _SETTABLE.union(READ_ONLY, {kind}))
    if job.get("id", schedule.id) not in (schedule.id, ""):
        raise InvalidInput(_("id cannot be changed"), field="id")
    if "type" in job and _text(job, "type") != kind:
        raise InvalidInput(_("job type must be {kind!r}", kind=kind), field="type")
    name = _text(job, "name", schedule.name)
    if not name.strip():
        raise InvalidInput(_("job name is required"), field="name")
    original_texts = dict(_original_texts(schedule))
    target = _patched_target(job, schedule.target)
    trigger = schedule.trigger
    if job.get("schedule") is not None:
        patch = _object(job["schedule"], "schedule", _SCHEDULE | {"expression", "timezone"})
        trigger = _patched_trigger(patch, schedule, original_texts, now)
    return replace(
        schedule,
        name=name,
        target=target,
        trigger=trigger,
        policy=_policy(job, schedule.policy, original_texts),
        enabled=_flag(job, "enabled", schedule.enabled),
        compat_data={**schedule.compat_data, NAMESPACE: original_texts},
    )


def job_from_schedule(schedule: Schedule, actor: Actor, now: datetime, lang: str = ENGLISH) -> Job:
    """An empty time is "". Secrets are masked unless the actor may change the schedule."""
    policy = schedule.policy
    original_texts = _original_texts(schedule)
    literal = actor.may_write(schedule.owner)
    return {
        "id": schedule.id,
        "name": schedule.name,
        "enabled": schedule.enabled,
        "type": schedule.target.kind,
        **target_out(schedule.target, literal=literal),
        "schedule": _schedule_out(schedule.trigger, original_texts),
        "timeout": _duration_out(policy.timeout, original_texts.get("timeout")),
        "max_retries": policy.max_retries,
        "retry_backoff": _duration_out(policy.retry_backoff, original_texts.get("retry_backoff")),
        "last_run_at": _time_out(schedule.last_run_at),
        "next_run_at": _time_out(schedule.next_run_at),
        "last_status": _status_out(schedule, now),
        "last_error": in_language(schedule.last_error, lang),
    }


def _status_out(schedule: Schedule, now: datetime) -> str:
    """`paused` is shown until a manual run has a newer status. A `once` that was resumed after its
    time will not run: it is missed."""
    last_run_at = schedule.last_run_at
    if (
        not schedule.enabled
        and schedule.version > 1
        and (not last_run_at or last_run_at < schedule.updated_at)
    ):
        return "paused"
    if schedule.last_status is not None:
        return _STATUS[schedule.last_status]
    overdue = isinstance(schedule.trigger, Once) and schedule.trigger.instant <= now
    return "missed" if overdue and schedule.enabled and schedule.next_slot is None else ""


def _target(http: Mapping[str, object], before: HttpTarget) -> HttpTarget:
    method = _text(http, "method", before.method).upper() or "POST"
    if method not in ("GET", "POST"):
        raise InvalidInput(_("HTTP method must be GET or POST"), field="http.method")
    url = unmask_text(_text(http, "url", before.url), before.url)
    if not url:
        raise InvalidInput(_("HTTP URL is required"), field="http.url")
    headers = http.get("headers", before.headers)
    if headers is None:
        headers = {}
    if not isinstance(headers, Mapping) or not all(isinstance(v, str) for v in headers.values()):
        raise InvalidInput(_("headers must be an object of strings"), field="http.headers")
    body = unmask_text(_text(http, "body", before.body), before.body)
    return replace(
        before,
        method=method,
        url=url,
        headers=unmask_headers({str(k): v for k, v in headers.items()}, before.headers),
        body=body,
    )


def _patched_target(job: Mapping[str, object], before: Target) -> Target:
    """A target that Ksana does not know can be sent back unchanged, but not changed."""
    if isinstance(before, HttpTarget):
        http = job.get("http")
        return before if http is None else _target(_object(http, "http", _HTTP), before)
    current = [target_out(before, literal=literal) for literal in (True, False)]
    for name in ("http", before.kind):
        if job.get(name) is not None and all(job[name] != each[name] for each in current):
            raise InvalidInput(
                _(
                    "the target of this job is a {kind}; change it through /api/v1",
                    kind=before.kind,
                ),
                field=name,
            )
    return before


def _trigger(
    schedule: Mapping[str, object],
    original_texts: dict[str, object],
    now: datetime,
    unchanged: Trigger | None,
) -> Trigger:
    kind = _text(schedule, "kind")
    for name in ("every", "jitter", "start_at", "run_at"):
        # Also of fields that this kind does not use.
        _text(schedule, name)
        original_texts.pop(name, None)
    if kind == "once":
        run_at = _text(schedule, "run_at")
        if not run_at:
            raise InvalidInput(_("run_at is required for 'once' schedule"), field="schedule.run_at")
        once = Once(_moment(run_at, "run_at"))
        if once.instant <= now and once != unchanged:
            raise InvalidInput(_("run_at must be in the future"), field="schedule.run_at")
        return once
    if kind != "every":
        raise InvalidInput(_("schedule kind must be 'once' or 'every'"), field="schedule.kind")
    every = _duration(schedule, "every", "schedule.every")
    if every is None or every <= timedelta():
        raise InvalidInput(
            _("every must be greater than 0 for 'every' schedule"), field="schedule.every"
        )
    jitter = _duration(schedule, "jitter", "schedule.jitter") or timedelta()
    if jitter < timedelta():
        raise InvalidInput(_("jitter must be non-negative"), field="schedule.jitter")
    start_at = _text(schedule, "start_at")
    original_texts.update(
        {
            name: _text(schedule, name)
            for name in ("every", "jitter", "start_at")
            if _text(schedule, name)
        }
    )
    # Ksana counts from the creation of a job.
    counted_from: datetime | None = now
    if isinstance(unchanged, Every) and unchanged.every == every:
        counted_from = unchanged.anchor
    return Every(
        every,
        anchor=_moment(start_at, "start_at") if start_at else counted_from,
        jitter=jitter or None,
    )


def _patched_trigger(
    patch: Mapping[str, object],
    schedule: Schedule,
    original_texts: dict[str, object],
    now: datetime,
) -> Trigger:
    """Without a kind the patch changes single fields. A trigger sent back as it was read changes
    nothing, even if Ksana could not have created it (cron)."""
    current = _schedule_out(schedule.trigger, original_texts)
    if all(current.get(name, "") == value for name, value in patch.items()):
        return schedule.trigger
    if "kind" not in patch:
        patch = {**current, **patch}
    return _trigger(patch, original_texts, now, schedule.trigger)


def _policy(job: Mapping[str, object], before: Policy, original_texts: dict[str, object]) -> Policy:
    timeout = _duration(job, "timeout", "timeout")
    if timeout is not None and timeout <= timedelta():
        raise InvalidInput(_("timeout must be greater than 0"), field="timeout")
    backoff = _duration(job, "retry_backoff", "retry_backoff")
    if backoff is not None and backoff < timedelta():
        raise InvalidInput(_("retry_backoff must be non-negative"), field="retry_backoff")
    retries = job.get("max_retries")
    if retries is not None and (not isinstance(retries, int) or isinstance(retries, bool)):
        raise InvalidInput(_("max_retries must be a whole number"), field="max_retries")
    if retries is not None and retries < 0:
        raise InvalidInput(_("max_retries must be non-negative"), field="max_retries")
    original_texts.update({n: job[n] for n in ("timeout", "retry_backoff") if job.get(n)})
    return replace(
        before,
        timeout=before.timeout if timeout is None else timeout,
        retry_backoff=before.retry_backoff if backoff is None else backoff,
        max_retries=before.max_retries if retries is None else retries,
    )


def _object(value: object, what: str, known: frozenset[str]) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput(_("{what} must be an object", what=what), field=what)
    for name in (each for each in value if each not in known):
        near = get_close_matches(str(name), known, n=1)
        unknown = (
            _(
                "unknown field {name!r} in {what}; did you mean {near!r}?",
                name=str(name),
                what=what,
                near=near[0],
            )
            if near
            else _("unknown field {name!r} in {what}", name=str(name), what=what)
        )
        raise InvalidInput(unknown, field=str(name))
    return value


def _text(data: Mapping[str, object], name: str, default: str = "") -> str:
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise InvalidInput(_("{name} must be a string", name=name), field=name)
    return value


def _flag(data: Mapping[str, object], name: str, default: bool) -> bool:
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidInput(_("{name} must be true or false", name=name), field=name)
    return value


def _duration(data: Mapping[str, object], name: str, field: str) -> timedelta | None:
    """None if absent or empty; JSON numbers are refused, as in Ksana."""
    text = _text(data, name)
    if not text:
        return None
    if text in ("0", "+0", "-0"):
        return timedelta()
    return parse_duration(text, field=field, allow_zero=True, allow_negative=True)


def _moment(text: str, name: str) -> datetime:
    try:
        return parse_moment(text)
    except InvalidInput as error:
        raise InvalidInput(
            _("invalid {name}: {message}", name=name, message=error.message),
            field=f"schedule.{name}",
        ) from None


def _schedule_out(trigger: Trigger, original_texts: Mapping[str, object]) -> dict[str, str]:
    if isinstance(trigger, Once):
        return {"kind": "once", "run_at": _time_out(trigger.instant)}
    if isinstance(trigger, Cron):
        return {"kind": "cron", "expression": trigger.expression, "timezone": trigger.zone}
    if not isinstance(trigger, Every):
        return {"kind": trigger.kind}
    # An interval created here without start_at shows none; one of another interface does.
    start_at = (
        trigger.anchor if original_texts.get("start_at") or "every" not in original_texts else None
    )
    return {
        "kind": "every",
        "every": _duration_out(trigger.every, original_texts.get("every")),
        "start_at": _time_out(start_at),
        "jitter": _duration_out(trigger.jitter or timedelta(), original_texts.get("jitter")),
    }


def _original_texts(schedule: Schedule) -> Mapping[str, object]:
    original_texts = schedule.compat_data.get(NAMESPACE)
    return original_texts if isinstance(original_texts, Mapping) else {}


def _duration_out(value: timedelta, original_texts: object) -> str:
    """The text of the request while it still means this duration, else Go format."""
    if (
        isinstance(original_texts, str)
        and original_texts
        and parse_duration(original_texts, allow_zero=True, allow_negative=True) == value
    ):
        return original_texts
    return format_duration_go(value) if value else ""


def _time_out(moment: datetime | None) -> str:
    """RFC 3339 in UTC, with a fraction only if it is not zero, as Go writes it."""
    if moment is None:
        return ""
    text = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if "." in text:
        text = text.rstrip("Z").rstrip("0") + "Z"
    return text
