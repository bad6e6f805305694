"""Ksana jobs to schedules and back. Pure; the messages are those that Ksana's users know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, _
from chimes.model.access import Actor
from chimes.model.ids import ScheduleId
from chimes.model.policy import Misfire, Overlap, Policy
from chimes.model.run import RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    Target,
    TaskTarget,
)
from chimes.redaction import masked_arguments, masked_headers
from chimes.retelling import retold
from chimes.triggers import (
    Cron,
    Every,
    Once,
    Trigger,
    format_duration_go,
    parse_duration,
    parse_moment,
)

# @@ What a schedule does, as Ksana jobs show it. Pure.

_NO_HTTP: Mapping[str, object] = {"method": "", "url": "", "headers": {}, "body": ""}


def target_out(target: Target, *, literal: bool) -> dict[str, object]:
    """`http` is always there, because Ksana's users read it without asking."""
    match target:
        case HttpTarget():
            headers = dict(target.headers) if literal else masked_headers(target.headers)
            return {
                "http": {
                    "method": target.method,
                    "url": target.url,
                    "headers": headers,
                    "body": target.body,
                }
            }
        case TaskTarget():
            args = target.args if literal else masked_arguments(target.args)
            return {"http": dict(_NO_HTTP), "task": {"name": target.name, "args": dict(args)}}
        case FlowTarget():
            start = target.input if literal else masked_arguments(target.input)
            return {"http": dict(_NO_HTTP), "flow": {"name": target.name, "input": dict(start)}}
        case SyncTarget():
            pair = {"source": target.source, "collection": target.collection}
            return {"http": dict(_NO_HTTP), "sync": pair}
        case AgentTarget():
            return {"http": dict(_NO_HTTP), "agent": {"prompt": target.prompt}}
        case ActionTarget():
            params = target.params if literal else masked_arguments(target.params)
            action = {
                "action_type_id": target.action_type_id,
                "kn_id": target.kn_id,
                "branch": target.branch,
                "identities": [dict(each) for each in target.identities],
                "params": dict(params),
            }
            return {"http": dict(_NO_HTTP), "action": action}
        case MessageTarget():
            return {"http": dict(_NO_HTTP), "message": {"text": target.text}}


# @@ What a job gets that does not say otherwise.


@dataclass(frozen=True, kw_only=True, slots=True)
class JobDefaults:
    timeout: timedelta = timedelta(seconds=10)
    max_retries: int = 3
    retry_backoff: timedelta = timedelta(seconds=5)


NAMESPACE = "ksana"
#: C1 on this door: an overdue once is missed, an overdue interval rolls on.
MISFIRE_GRACE = timedelta(seconds=1)
#: What the service writes itself; a job that is sent back as it was read may carry it.
_BOOKKEEPING = frozenset({"last_run_at", "next_run_at", "last_status", "last_error"})
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
    job = _object(data, "job", _SETTABLE | _BOOKKEEPING)
    name = _text(job, "name")
    if not name.strip():
        raise InvalidInput(_("job name is required"), field="name")
    if _text(job, "type", "http") not in ("http", ""):
        raise InvalidInput(_("job type must be 'http'"), field="type")
    given: dict[str, object] = {}
    target = _target(_object(job.get("http"), "http", _HTTP), HttpTarget(url="", method="POST"))
    trigger = _trigger(_object(job.get("schedule"), "schedule", _SCHEDULE), given, now, None)
    usual = Policy(
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
        policy=_policy(job, usual, given),
        enabled=_flag(job, "enabled", True),
        compat_data={NAMESPACE: given},
        created_at=now,
        updated_at=now,
    )


def edited_by_job(schedule: Schedule, data: object, now: datetime) -> Schedule:
    """The schedule after PATCH /jobs/{id}: only what the body names changes."""
    kind = schedule.target.kind
    job = _object(data, "job", _SETTABLE | _BOOKKEEPING | {kind})
    if job.get("id", schedule.id) not in (schedule.id, ""):
        raise InvalidInput(_("id cannot be changed"), field="id")
    if "type" in job and _text(job, "type") != kind:
        raise InvalidInput(_("job type must be {kind!r}", kind=kind), field="type")
    name = _text(job, "name", schedule.name)
    if not name.strip():
        raise InvalidInput(_("job name is required"), field="name")
    given = dict(_given(schedule))
    target = _patched_target(job, schedule.target)
    trigger = schedule.trigger
    if job.get("schedule") is not None:
        patch = _object(job["schedule"], "schedule", _SCHEDULE | {"expression", "timezone"})
        trigger = _patched_trigger(patch, schedule, given, now)
    return replace(
        schedule,
        name=name,
        target=target,
        trigger=trigger,
        policy=_policy(job, schedule.policy, given),
        enabled=_flag(job, "enabled", schedule.enabled),
        compat_data={**schedule.compat_data, NAMESPACE: given},
    )


def job_from_schedule(schedule: Schedule, actor: Actor, now: datetime, lang: str = ENGLISH) -> Job:
    """R3.15, with "" for a time that is not there. Secrets are for those who may change them."""
    policy = schedule.policy
    given = _given(schedule)
    literal = actor.may_write(schedule.owner)
    return {
        "id": schedule.id,
        "name": schedule.name,
        "enabled": schedule.enabled,
        "type": schedule.target.kind,
        **target_out(schedule.target, literal=literal),
        "schedule": _schedule_out(schedule.trigger, given),
        "timeout": _duration_out(policy.timeout, given.get("timeout")),
        "max_retries": policy.max_retries,
        "retry_backoff": _duration_out(policy.retry_backoff, given.get("retry_backoff")),
        "last_run_at": _time_out(schedule.last_run_at),
        "next_run_at": _time_out(schedule.next_run_at),
        "last_status": _status_out(schedule, now),
        "last_error": retold(schedule.last_error, lang),
    }


def _status_out(schedule: Schedule, now: datetime) -> str:
    """`paused` is a view: shown until a run by hand has something newer to say. An overdue
    once that was resumed too late never ran and never will: missed."""
    ran = schedule.last_run_at
    if not schedule.enabled and schedule.version > 1 and (not ran or ran < schedule.updated_at):
        return "paused"
    if schedule.last_status is not None:
        return _STATUS[schedule.last_status]
    overdue = isinstance(schedule.trigger, Once) and schedule.trigger.instant <= now
    return "missed" if overdue and schedule.enabled and schedule.next_slot is None else ""


# --- in -----------------------------------------------------------------------------------------
def _target(http: Mapping[str, object], before: HttpTarget) -> HttpTarget:
    method = _text(http, "method", before.method).upper() or "POST"
    if method not in ("GET", "POST"):
        raise InvalidInput(_("HTTP method must be GET or POST"), field="http.method")
    url = _text(http, "url", before.url)
    if not url:
        raise InvalidInput(_("HTTP URL is required"), field="http.url")
    headers = http.get("headers", before.headers)
    if headers is None:
        headers = {}
    if not isinstance(headers, Mapping) or not all(isinstance(v, str) for v in headers.values()):
        raise InvalidInput(_("headers must be an object of strings"), field="http.headers")
    body = _text(http, "body", before.body)
    return replace(
        before, method=method, url=url, headers={str(k): v for k, v in headers.items()}, body=body
    )


def _patched_target(job: Mapping[str, object], before: Target) -> Target:
    """A task or a flow of another door may come back as it was read, and that is all."""
    if isinstance(before, HttpTarget):
        http = job.get("http")
        return before if http is None else _target(_object(http, "http", _HTTP), before)
    shown = [target_out(before, literal=literal) for literal in (True, False)]
    for name in ("http", before.kind):
        if job.get(name) is not None and all(job[name] != each[name] for each in shown):
            raise InvalidInput(
                _(
                    "this job is a {kind}; what it does is changed through /api/v1",
                    kind=before.kind,
                ),
                field=name,
            )
    return before


def _trigger(
    schedule: Mapping[str, object],
    given: dict[str, object],
    now: datetime,
    unchanged: Trigger | None,
) -> Trigger:
    kind = _text(schedule, "kind")
    for name in ("every", "jitter", "start_at", "run_at"):
        given.pop(name, None)
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
    given.update(
        {
            name: _text(schedule, name)
            for name in ("every", "jitter", "start_at")
            if _text(schedule, name)
        }
    )
    return Every(
        every,
        anchor=_moment(start_at, "start_at") if start_at else None,
        jitter=jitter or None,
    )


def _patched_trigger(
    patch: Mapping[str, object], schedule: Schedule, given: dict[str, object], now: datetime
) -> Trigger:
    """Without a kind the patch changes single fields. A job that is sent back as it was read
    changes nothing, also where this door could not have made it (cron)."""
    shown = _schedule_out(schedule.trigger, given)
    if all(shown.get(name, "") == value for name, value in patch.items()):
        return schedule.trigger
    if "kind" not in patch:
        patch = {**shown, **patch}
    return _trigger(patch, given, now, schedule.trigger)


def _policy(job: Mapping[str, object], before: Policy, given: dict[str, object]) -> Policy:
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
    given.update({n: job[n] for n in ("timeout", "retry_backoff") if job.get(n)})
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
    for name in value.keys() - known:
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
    """None for an absent or empty one; JSON numbers are refused as they always were."""
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


# --- out ----------------------------------------------------------------------------------------
def _schedule_out(trigger: Trigger, given: Mapping[str, object]) -> dict[str, str]:
    if isinstance(trigger, Once):
        return {"kind": "once", "run_at": _time_out(trigger.instant)}
    if isinstance(trigger, Cron):
        return {"kind": "cron", "expression": trigger.expression, "timezone": trigger.zone}
    # An interval that this door was given without a start shows none; one of another door does.
    start_at = trigger.anchor if given.get("start_at") or "every" not in given else None
    return {
        "kind": "every",
        "every": _duration_out(trigger.every, given.get("every")),
        "start_at": _time_out(start_at),
        "jitter": _duration_out(trigger.jitter or timedelta(), given.get("jitter")),
    }


def _given(schedule: Schedule) -> Mapping[str, object]:
    given = schedule.compat_data.get(NAMESPACE)
    return given if isinstance(given, Mapping) else {}


def _duration_out(value: timedelta, given: object) -> str:
    """In the form it was given, as long as that still says the same."""
    if (
        isinstance(given, str)
        and given
        and parse_duration(given, allow_zero=True, allow_negative=True) == value
    ):
        return given
    return format_duration_go(value) if value else ""


def _time_out(moment: datetime | None) -> str:
    """RFC 3339 in UTC; fractions only where there are any, as Go writes them."""
    if moment is None:
        return ""
    text = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if "." in text:
        text = text.rstrip("Z").rstrip("0") + "Z"
    return text
