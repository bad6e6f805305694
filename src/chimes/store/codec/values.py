"""Encodes schedules, policies, targets, recipients and owners; `Reader` decodes strictly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import TypeVar

from chimes.clock import EPOCH, MICROSECOND
from chimes.errors import InvalidInput, message_of
from chimes.i18n import _, from_stored, to_stored
from chimes.model.access import Owner, OwnerType
from chimes.model.ids import DEFAULT_NAMESPACE, ScheduleId
from chimes.model.policy import Backoff, Misfire, OnLost, Overlap, Policy
from chimes.model.recipient import (
    DEFAULT_LATE_AFTER,
    Channel,
    Digest,
    NotifyOn,
    Period,
    QuietHours,
    Recipient,
)
from chimes.model.run import RunStatus
from chimes.model.schedule import Dependency, Schedule
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
from chimes.triggers import trigger_from_dict

# --- strict reading of JSON data ------------------------------------------------------------------
T = TypeVar("T")
Plain = dict[str, object]


def to_text(moment: datetime) -> str:
    second, micros = divmod((moment - EPOCH) // MICROSECOND, 1_000_000)
    return f"{_second(second)}.{micros:06}Z" if micros else f"{_second(second)}Z"


# Cached: many times share the same second.
@lru_cache(maxsize=1024)
def _second(number: int) -> str:
    return (EPOCH + timedelta(seconds=number)).isoformat()[:-6]


def maybe_text(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)


def drop_empty(data: Mapping[str, object]) -> Plain:
    """Drop None, "", 0, False and empty collections. `Reader` uses these as defaults, so rows stay
    small and old rows still load."""
    return {name: value for name, value in data.items() if value}


class Reader:
    """Typed access to one JSON object; `done` rejects keys that were not read."""

    def __init__(self, data: object) -> None:
        if not isinstance(data, Mapping):
            raise InvalidInput(_("expected an object, got {type}", type=type(data).__name__))
        self._data = data
        self._read_names: set[str] = set()

    def done(self) -> None:
        """Reject unknown keys, which would be lost at the next write."""
        unknown = sorted(str(key) for key in self._data.keys() - self._read_names)
        if unknown:
            raise InvalidInput(
                _("unknown field {unknown!r}", unknown=unknown[0]),
                field=unknown[0],
                code="unknown",
            )

    def has(self, name: str) -> bool:
        return self._data.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        return self._get(name, str, default)

    def integer(self, name: str, default: int | None = None) -> int:
        return self._get(name, int, default)

    def flag(self, name: str, default: bool | None = None) -> bool:
        return self._get(name, bool, default)

    def mapping(self, name: str) -> dict[str, object]:
        return self._get(name, dict, {})

    def items(self, name: str) -> list[object]:
        return self._get(name, list, [])

    def maybe_text(self, name: str) -> str | None:
        return self.text(name) if self._present(name) else None

    def maybe_integer(self, name: str) -> int | None:
        return self.integer(name) if self._present(name) else None

    def time(self, name: str) -> datetime:
        return self.read(name, moment)

    def maybe_time(self, name: str) -> datetime | None:
        return self.time(name) if self._present(name) else None

    def seconds(self, name: str, default: timedelta) -> timedelta:
        """A duration, stored in microseconds."""
        return timedelta(microseconds=self.integer(name, default // MICROSECOND))

    def read(self, name: str, how: Callable[[object], T]) -> T:
        self._read_names.add(name)
        try:
            return how(self._data.get(name))
        except InvalidInput as error:
            raise error.within(name) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(message_of(error), field=name) from None

    def _present(self, name: str) -> bool:
        self._read_names.add(name)
        return self._data.get(name) is not None

    def _get(self, name: str, kind: type[T], default: T | None) -> T:
        self._read_names.add(name)
        value = self._data.get(name)
        if value is None:
            if default is None:
                raise InvalidInput(_("{field} is missing", field=name), field=name, code="missing")
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            expected, given = kind.__name__, type(value).__name__
            raise InvalidInput(
                _(
                    "{field}: expected {expected}, got {given}",
                    field=name,
                    expected=expected,
                    given=given,
                ),
                field=name,
            )
        return value


def moment(value: object) -> datetime:
    if not isinstance(value, str):
        raise InvalidInput(_("expected a time, got {type}", type=type(value).__name__))
    parsed = datetime.fromisoformat(value)
    if parsed.tzinfo is None:
        raise InvalidInput(_("{value!r} has no offset", value=value), code="naive_time")
    return parsed.astimezone(UTC)


# --- schedules and their parts --------------------------------------------------------------------
def recipient_to_plain(recipient: Recipient) -> Plain:
    plain = drop_empty(
        {
            "channel": recipient.channel.value,
            "to": recipient.to,
            "on": _event_names(recipient.on),
            "language": recipient.language,
            "signing_secrets": list(recipient.signing_secrets),
        }
    )
    # Only written if set, so that older versions can read recipients without them.
    if recipient.late_after != DEFAULT_LATE_AFTER:
        plain["late_after"] = recipient.late_after // MICROSECOND
    if recipient.quiet is not None:
        plain["quiet"] = _quiet_to_plain(recipient.quiet)
    if recipient.digest is not None:
        plain["digest"] = _digest_to_plain(recipient.digest)
    return plain


def recipient_from_plain(data: object) -> Recipient:
    read = Reader(data)
    recipient = Recipient(
        channel=Channel(read.text("channel")),
        to=read.text("to", ""),
        on=_read_events(read, "on"),
        language=read.text("language", ""),
        signing_secrets=tuple(str(each) for each in read.items("signing_secrets")),
        late_after=read.seconds("late_after", DEFAULT_LATE_AFTER),
        quiet=read.read("quiet", _quiet_from_plain) if read.has("quiet") else None,
        digest=read.read("digest", _digest_from_plain) if read.has("digest") else None,
    )
    read.done()
    return recipient


def _quiet_to_plain(quiet: QuietHours) -> Plain:
    return drop_empty(
        {
            "start": clock_text(quiet.start),
            "end": clock_text(quiet.end),
            "zone": quiet.zone,
            "but": _event_names(quiet.except_for),
        }
    )


def _quiet_from_plain(data: object) -> QuietHours:
    read = Reader(data)
    quiet = QuietHours(
        start=time.fromisoformat(read.text("start")),
        end=time.fromisoformat(read.text("end")),
        zone=read.text("zone", ""),
        except_for=_read_events(read, "but"),
    )
    read.done()
    return quiet


def _digest_to_plain(digest: Digest) -> Plain:
    return drop_empty(
        {
            "every": digest.every.value,
            "at": clock_text(digest.at),
            "weekday": digest.weekday,
            "zone": digest.zone,
            "but": _event_names(digest.except_for),
        }
    )


def _digest_from_plain(data: object) -> Digest:
    read = Reader(data)
    digest = Digest(
        every=Period(read.text("every")),
        at=time.fromisoformat(read.text("at")),
        weekday=read.integer("weekday", 0),
        zone=read.text("zone", ""),
        except_for=_read_events(read, "but"),
    )
    read.done()
    return digest


def clock_text(at: time) -> str:
    return at.strftime("%H:%M")


def _event_names(occasions: tuple[NotifyOn, ...]) -> list[str]:
    return [notify_on.value for notify_on in occasions]


def _read_events(read: Reader, name: str) -> tuple[NotifyOn, ...]:
    return tuple(NotifyOn(str(each)) for each in read.items(name))


def owner_to_plain(owner: Owner) -> Plain:
    return {"type": owner.type.value, "id": owner.id}


def owner_from_plain(data: object) -> Owner:
    read = Reader(data if data is not None else {})
    owner = Owner(type=OwnerType(read.text("type", "system")), id=read.text("id", "default"))
    read.done()
    return owner


def policy_to_plain(policy: Policy) -> Plain:
    plain: Plain = {
        "misfire": policy.misfire.value,
        "misfire_grace": _micros(policy.misfire_grace),
        "catch_up_limit": policy.catch_up_limit,
        "overlap": policy.overlap.value,
        "max_concurrent_runs": policy.max_concurrent_runs,
        "burst_allowed": policy.burst_allowed,
        "max_retries": policy.max_retries,
        "retry_backoff": _micros(policy.retry_backoff),
        "backoff": policy.backoff.value,
        "backoff_cap": _micros(policy.backoff_cap),
        "timeout": _micros(policy.timeout),
        "on_lost": policy.on_lost.value,
        "pause_on_gone": policy.pause_on_gone,
    }
    if policy.concurrency_key is not None:
        plain["concurrency_key"] = policy.concurrency_key
    if policy.delivery:
        plain["delivery"] = [recipient_to_plain(each) for each in policy.delivery]
    return plain


def policy_from_plain(data: object) -> Policy:
    read, usual = Reader(data), Policy()
    policy = Policy(
        misfire=Misfire(read.text("misfire", usual.misfire)),
        misfire_grace=read.seconds("misfire_grace", usual.misfire_grace),
        catch_up_limit=read.integer("catch_up_limit", usual.catch_up_limit),
        overlap=Overlap(read.text("overlap", usual.overlap)),
        max_concurrent_runs=read.maybe_integer("max_concurrent_runs"),
        burst_allowed=read.flag("burst_allowed", False),
        concurrency_key=read.maybe_text("concurrency_key"),
        max_retries=read.integer("max_retries", usual.max_retries),
        retry_backoff=read.seconds("retry_backoff", usual.retry_backoff),
        backoff=Backoff(read.text("backoff", usual.backoff)),
        backoff_cap=read.seconds("backoff_cap", usual.backoff_cap),
        timeout=read.seconds("timeout", usual.timeout),
        on_lost=OnLost(read.text("on_lost", usual.on_lost)),
        pause_on_gone=read.flag("pause_on_gone", usual.pause_on_gone),
        delivery=tuple(recipient_from_plain(each) for each in read.items("delivery")),
    )
    read.done()
    return policy


def target_to_plain(target: Target) -> Plain:
    match target:
        case HttpTarget():
            return _http_to_plain(target)
        case TaskTarget():
            return drop_empty({"kind": target.kind, "name": target.name, "args": dict(target.args)})
        case FlowTarget():
            return drop_empty(
                {"kind": target.kind, "name": target.name, "input": dict(target.input)}
            )
        case SyncTarget():
            return {
                "kind": target.kind,
                "source": target.source,
                "collection": target.collection,
            }
        case AgentTarget():
            return drop_empty(
                {
                    "kind": target.kind,
                    "prompt": target.prompt,
                    "pipeline": target.pipeline,
                    "model": target.model,
                    "max_tokens": target.max_tokens,
                }
            )
        case ActionTarget():
            return _action_to_plain(target)
        case MessageTarget():
            return {"kind": target.kind, "text": target.text}


def _http_to_plain(target: HttpTarget) -> Plain:
    plain = drop_empty(
        {
            "kind": target.kind,
            "url": target.url,
            "method": target.method,
            "headers": dict(target.headers),
            "body": target.body,
            "expected_status": list(target.expected_status),
            "signing_secrets": list(target.signing_secrets),
        }
    )
    return plain if target.verify_tls else plain | {"verify_tls": False}


def _http_target(read: Reader) -> HttpTarget:
    return HttpTarget(
        url=read.text("url"),
        method=read.text("method", "POST"),
        headers={name: str(value) for name, value in read.mapping("headers").items()},
        body=read.text("body", ""),
        expected_status=tuple(_int(status) for status in read.items("expected_status")),
        signing_secrets=tuple(str(secret) for secret in read.items("signing_secrets")),
        verify_tls=read.flag("verify_tls", True),
    )


def _task_target(read: Reader) -> TaskTarget:
    return TaskTarget(name=read.text("name"), args=read.mapping("args"))


def _flow_target(read: Reader) -> FlowTarget:
    return FlowTarget(name=read.text("name"), input=read.mapping("input"))


def _sync_target(read: Reader) -> SyncTarget:
    return SyncTarget(source=read.text("source"), collection=read.text("collection"))


def _agent_target(read: Reader) -> AgentTarget:
    return AgentTarget(
        prompt=read.text("prompt"),
        pipeline=read.text("pipeline", ""),
        model=read.text("model", ""),
        max_tokens=read.maybe_integer("max_tokens"),
    )


def _action_to_plain(target: ActionTarget) -> Plain:
    return drop_empty(
        {
            "kind": target.kind,
            "action_type_id": target.action_type_id,
            "kn_id": target.kn_id,
            "branch": target.branch,
            "identities": [dict(each) for each in target.identities],
            "params": dict(target.params),
            "account_id": target.account_id,
            "account_type": target.account_type,
        }
    )


def _action_target(read: Reader) -> ActionTarget:
    return ActionTarget(
        action_type_id=read.text("action_type_id"),
        kn_id=read.text("kn_id"),
        branch=read.text("branch", ""),
        identities=tuple(_object(each) for each in read.items("identities")),
        params=read.mapping("params"),
        account_id=read.text("account_id", ""),
        account_type=read.text("account_type", ""),
    )


def _message_target(read: Reader) -> MessageTarget:
    return MessageTarget(text=read.text("text"))


#: Decoder by kind of target.
TARGETS: Mapping[str, Callable[[Reader], Target]] = {
    "http": _http_target,
    "task": _task_target,
    "flow": _flow_target,
    "sync": _sync_target,
    "agent": _agent_target,
    "action": _action_target,
    "message": _message_target,
}


def target_from_plain(data: object) -> Target:
    read = Reader(data)
    kind = read.text("kind")
    if kind not in TARGETS:
        raise InvalidInput(_("unknown kind of target {kind!r}", kind=kind), field="kind")
    target = TARGETS[kind](read)
    read.done()
    return target


def schedule_to_plain(schedule: Schedule) -> Plain:
    depends_on = schedule.depends_on
    plain = drop_empty(
        {
            "id": schedule.id,
            "namespace": schedule.namespace,
            "name": schedule.name,
            "owner": owner_to_plain(schedule.owner),
            "trigger": schedule.trigger.to_dict(),
            "target": target_to_plain(schedule.target),
            "policy": policy_to_plain(schedule.policy),
            "priority": schedule.priority,
            "labels": dict(schedule.labels),
            "pause_note": to_stored(schedule.pause_note),
            "pause_until": maybe_text(schedule.pause_until),
            "depends_on": depends_on
            and {"schedule_id": depends_on.schedule_id, "within": _micros(depends_on.within)},
            "door_data": dict(schedule.compat_data),
            "next_slot": maybe_text(schedule.next_slot),
            "next_run_at": maybe_text(schedule.next_run_at),
            "last_slot": maybe_text(schedule.last_slot),
            "last_enqueued_at": maybe_text(schedule.last_enqueued_at),
            "last_run_at": maybe_text(schedule.last_run_at),
            "last_status": schedule.last_status and schedule.last_status.value,
            "last_error": to_stored(schedule.last_error),
            "last_success_at": maybe_text(schedule.last_success_at),
            "fired_count": schedule.fired_count,
            "purged_until": maybe_text(schedule.purged_until),
            "version": schedule.version,
            "created_at": to_text(schedule.created_at),
            "created_by": schedule.created_by,
            "updated_at": to_text(schedule.updated_at),
            "updated_by": schedule.updated_by,
            "deleted_at": maybe_text(schedule.deleted_at),
        }
    )
    return plain | {"enabled": schedule.enabled}


def schedule_from_plain(data: object) -> Schedule:
    read = Reader(data)
    last_status = read.maybe_text("last_status")
    schedule = Schedule(
        id=ScheduleId(read.text("id")),
        namespace=read.text("namespace", DEFAULT_NAMESPACE),
        name=read.text("name", ""),
        owner=read.read("owner", owner_from_plain),
        trigger=trigger_from_dict(read.mapping("trigger")),
        target=read.read("target", target_from_plain),
        policy=read.read("policy", policy_from_plain),
        priority=read.integer("priority", 0),
        labels=read.read("labels", labels_from_plain),
        enabled=read.flag("enabled", True),
        pause_note=from_stored(read.text("pause_note", "")),
        pause_until=read.maybe_time("pause_until"),
        depends_on=dependency_from_plain(read.mapping("depends_on")),
        compat_data=read.mapping("door_data"),
        next_slot=read.maybe_time("next_slot"),
        next_run_at=read.maybe_time("next_run_at"),
        last_slot=read.maybe_time("last_slot"),
        last_enqueued_at=read.maybe_time("last_enqueued_at"),
        last_run_at=read.maybe_time("last_run_at"),
        last_status=RunStatus(last_status) if last_status else None,
        last_error=from_stored(read.text("last_error", "")),
        last_success_at=read.maybe_time("last_success_at"),
        fired_count=read.integer("fired_count", 0),
        purged_until=read.maybe_time("purged_until"),
        version=read.integer("version", 1),
        created_at=read.time("created_at"),
        created_by=read.text("created_by", ""),
        updated_at=read.time("updated_at"),
        updated_by=read.text("updated_by", ""),
        deleted_at=read.maybe_time("deleted_at"),
    )
    read.done()
    return schedule


def _object(data: object) -> Mapping[str, object]:
    if not isinstance(data, dict):
        raise InvalidInput(_("expected an object, got {type}", type=type(data).__name__))
    return data


def labels_from_plain(data: object) -> dict[str, str | None]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InvalidInput(_("expected an object, got {type}", type=type(data).__name__))
    return {str(name): None if value is None else str(value) for name, value in data.items()}


def dependency_from_plain(data: Mapping[str, object]) -> Dependency | None:
    if not data:
        return None
    read = Reader(data)
    dependency = Dependency(
        schedule_id=ScheduleId(read.text("schedule_id")),
        within=read.seconds("within", timedelta(hours=1)),
    )
    read.done()
    return dependency


def _micros(duration: timedelta) -> int:
    return duration // MICROSECOND


def _int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(_("expected a whole number, got {value!r}", value=value))
    return value
