"""Pure conversion between the schemas of the native API and the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, get_origin

from msgspec import NODEFAULT, Struct

from chimes.config import Settings
from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, _, in_language
from chimes.language import describe
from chimes.model import replace
from chimes.model.access import Actor, ApiKey, Owner
from chimes.model.audit import AuditEntry
from chimes.model.fields import MASKED, Field, fields_of, is_enum, to_json
from chimes.model.ids import ScheduleId, canonical_namespace
from chimes.model.node import Node
from chimes.model.planning import MaintenanceWindow
from chimes.model.policy import PRIORITY, Policy, apply_task_defaults
from chimes.model.recipient import Recipient
from chimes.model.run import Attempt, LogEntry, Run
from chimes.model.schedule import Dependency, Schedule, is_detached, source_marker
from chimes.model.target import (
    TARGETS,
    ActionTarget,
    AgentTarget,
    AmqpTarget,
    CeleryTarget,
    CommandTarget,
    DaskTarget,
    FlowTarget,
    HttpTarget,
    KafkaTarget,
    KubernetesTarget,
    MessageTarget,
    NatsTarget,
    RedisStreamTarget,
    SyncTarget,
    Target,
    TaskTarget,
    payload_name,
)
from chimes.model.validation import check_id, check_text, clean_name
from chimes.redaction import (
    HIDDEN,
    has_secrets,
    is_secret_name,
    mask_text,
    unmask_arguments,
    unmask_headers,
    unmask_text,
    unmask_value,
)
from chimes.services.runs import RunRequest
from chimes.services.schedules.changeset import Changeset, ChangesetItem, WantedSchedule
from chimes.services.schedules.rules import default_policy
from chimes.services.schedules.setup import Misconfigured, SetupWarning
from chimes.services.schedules.slot_explanations import SlotExplanation
from chimes.services.schedules.versions import check_secrets_stay
from chimes.store.codec.values import owner_to_plain
from chimes.triggers import format_moment, parse_moment
from chimes.triggers.values import suggest_name
from chimes.web.api.responses import CauseOut, RunOut, ScheduleOut
from chimes.web.api.schemas import (
    AnyTargetIn,
    AppliedScheduleIn,
    Body,
    DependencyIn,
    OwnerIn,
    PolicyIn,
    RecipientIn,
    RunIn,
    ScheduleIn,
    SchedulePatch,
    StartIn,
    TargetPatch,
)
from chimes.web.requests import viewed_hook_url

Json = dict[str, object]


# Targets


def changes_of(given: Body, kind: type[Struct], before: Struct | None, path: str) -> dict[str, Any]:
    """The fields of a Struct that the request sets. A secret sent as `***` is that of `before`."""
    found: dict[str, Any] = {}
    for field in fields_of(kind):
        outer, dot, inner = field.json.partition(".")
        name = outer if dot else field.name
        if name not in given.model_fields_set:
            continue
        value = getattr(given, name)
        stored = getattr(before, field.name, field.default)
        found[field.name] = _value_from(
            field, getattr(value, inner) if dot else value, stored, f"{path}.{field.name}"
        )
    return found


def _value_from(field: Field, value: Any, before: Any, path: str) -> Any:
    """A value of the Struct from a value of the request."""
    if field.mark == MASKED:
        return _unmasked(field, value, before, path)
    if isinstance(value, Body):
        return field.type(**changes_of(value, field.type, None, path))
    if field.about.words:
        return field.about.words.index(value)
    if isinstance(value, list):
        return tuple(dict.fromkeys(value)) if is_enum(field.item) else tuple(value)
    return value


def _unmasked(field: Field, value: Any, before: Any, path: str) -> Any:
    """Keeps the stored secrets where the request has `***`."""
    if field.type is str:
        return unmask_text(value, before) if isinstance(before, str) else value
    if field.item is object and isinstance(value, Mapping) != (get_origin(field.type) is Mapping):
        # A patch accepts both: the arguments of a task have names, those of Celery are a list.
        raise InvalidInput(
            _("expected an object") if isinstance(value, list) else _("expected a list"),
            field=path,
            code="wrong_type",
        )
    if field.item is object and get_origin(field.type) is Mapping:
        return unmask_arguments(value, before)
    if get_origin(field.type) is Mapping:
        return unmask_headers(value, before)
    if field.item is str:
        return unmasked_secrets(value, before, path)
    kept = unmask_value(value, before)
    assert isinstance(kept, list)
    return tuple(kept)


def target_from(given: AnyTargetIn, before: Target | None = None) -> Target:
    """The target as sent; fields that were left out have their defaults. A secret sent as `***` is
    that of `before`, if it is of the same kind."""
    (kind,) = given.structs
    stored = before if isinstance(before, kind) else None
    target: Target = kind(**changes_of(given, kind, stored, "target"))
    if isinstance(stored, HttpTarget) and isinstance(target, HttpTarget):
        sent = {name: getattr(given, name) for name in type(given).model_fields}
        check_secrets_stay(_kept_secrets(sent, stored, target), stored.url, target.url)
    return target


def patched_target(given: TargetPatch, before: Target) -> Target:
    """Merges field by field within a kind; another kind replaces the target."""
    sent = given.model_fields_set - {"kind"}
    kind = given.kind if "kind" in given.model_fields_set else before.kind
    fields = fields_of(TARGETS[kind])
    known = frozenset(field.json.partition(".")[0] for field in fields) - {"kind"}
    for name in sorted(sent - known):
        raise InvalidInput(
            _("a target of kind {kind} has no {name}", kind=kind, name=name),
            field=f"target.{name}",
            code="unknown_field",
            hint=suggest_name(name, known),
        )
    if kind == before.kind:
        after = replace(before, **changes_of(given, type(before), before, "target"))
        if isinstance(before, HttpTarget) and isinstance(after, HttpTarget):
            values = {name: getattr(given, name) for name in given.model_fields_set}
            check_secrets_stay(_kept_secrets(values, before, after), before.url, after.url)
        return after
    for field in fields:
        if field.default is NODEFAULT and field.name not in sent:
            raise InvalidInput(
                _("a target of kind {kind} requires {name}", kind=kind, name=field.name),
                field=f"target.{field.name}",
                code="missing",
            )
    return TARGETS[kind](**changes_of(given, TARGETS[kind], None, "target"))


def _kept_secrets(sent: Mapping[str, Any], before: HttpTarget, after: HttpTarget) -> list[str]:
    """Where the target has stored secrets that the request has as `***` or leaves out."""
    found = ["url"] if sent.get("url", after.url) != after.url else []
    headers = sent.get("headers", {})
    found += [
        f"headers.{name}"
        for name, value in after.headers.items()
        if value and is_secret_name(name) and headers.get(name) != value
    ]
    if sent["body"] != after.body if "body" in sent else has_secrets(before.body):
        found.append("body")
    if not set(after.signing_secrets) <= set(sent.get("signing_secrets", ())):
        found.append("signing_secrets")
    return found


def target_out(target: Target) -> Json:
    return to_json(target, masked=True)


def unmasked_secrets(given: list[str], before: tuple[str, ...], field: str) -> tuple[str, ...]:
    """Replaces `***` by the stored secret at the same position."""
    unmasked = [HIDDEN] * len(given)
    for position, secret in enumerate(given):
        if secret == HIDDEN and position >= len(before):
            raise InvalidInput(
                _("there is no stored secret at position {position}", position=position),
                field=f"{field}[{position}]",
                code="masked",
            )
        unmasked[position] = before[position] if secret == HIDDEN else secret
    return tuple(unmasked)


# Recipients


def recipients_from(
    given: Sequence[RecipientIn], before: Sequence[Recipient] = ()
) -> tuple[Recipient, ...]:
    """A secret sent as `***` is the stored one of the same channel and address."""
    left = list(before)
    found = []
    for position, each in enumerate(given):
        sent = dict(each)
        same = _same_recipient(left, sent["channel"], sent["to"])
        if same is not None:
            left.remove(same)
        found.append(Recipient(**changes_of(each, Recipient, same, f"delivery[{position}]")))
    return tuple(found)


def _same_recipient(stored: Sequence[Recipient], channel: str, to: str) -> Recipient | None:
    """The one with this address or, if there is none, with this masked address."""
    of_channel = [each for each in stored if each.channel == channel]
    exact = (each for each in of_channel if each.to == to)
    return next(exact, None) or next((e for e in of_channel if mask_text(e.to) == to), None)


def recipients_out(recipients: Sequence[Recipient]) -> list[Json]:
    return [to_json(each, masked=True) for each in recipients]


def owner_from(given: OwnerIn) -> Owner:
    return Owner(type=given.type, id=check_text(given.id, "owner.id"))


def policy_from(given: PolicyIn, base: Policy) -> Policy:
    return replace(base, **changes_of(given, Policy, base, "policy"))


def _with_recipients(
    policy: Policy, given: ScheduleIn | StartIn, before: Sequence[Recipient] = ()
) -> Policy:
    """Sets the recipients if the request has any; an empty list removes the defaults."""
    if "delivery" not in given.model_fields_set:
        return policy
    return replace(policy, delivery=recipients_from(given.delivery, before))


def explicit_fields(given: ScheduleIn | SchedulePatch | StartIn) -> frozenset[str]:
    """Fields that the request sets and that otherwise default to those of the task or flow."""
    found = frozenset(given.policy.model_fields_set)
    return found | ({PRIORITY} & given.model_fields_set)


def dependency_from(given: DependencyIn) -> Dependency:
    return Dependency(**changes_of(given, Dependency, None, "depends_on"))


def draft_from(
    given: ScheduleIn,
    actor: Actor,
    settings: Settings,
    created_at: datetime,
    before: Schedule | None = None,
) -> Schedule:
    """A schedule from a request; the service adds the id, first slot and times. A secret sent as
    `***` is that of `before`."""
    if given.id == "":
        raise InvalidInput(
            _("an id must not be empty; omit it to have one generated"),
            field="id",
            code="too_short",
        )
    target = target_from(given.target, before.target if before else None)
    policy = policy_from(given.policy, default_policy(settings, target))
    return Schedule(
        id=ScheduleId(given.id or ""),
        namespace=canonical_namespace(given.namespace),
        name=given.name,
        owner=owner_from(given.owner) if given.owner else actor.owner,
        trigger=given.trigger,
        target=target,
        policy=_with_recipients(policy, given, before.policy.delivery if before else ()),
        priority=given.priority,
        labels=given.labels,
        enabled=given.enabled,
        depends_on=dependency_from(given.depends_on) if given.depends_on else None,
        created_at=created_at,
        updated_at=created_at,
    )


def run_request_from(given: StartIn, settings: Settings) -> RunRequest:
    target = target_from(given.target)
    return RunRequest(
        target=target,
        policy=_with_recipients(policy_from(given.policy, default_policy(settings, target)), given),
        name=given.name,
        namespace=canonical_namespace(given.namespace),
        priority=given.priority,
        owner=owner_from(given.owner) if given.owner else None,
        at=None if given.at is None else moment_from(given.at, given.timezone, "at"),
        explicit_fields=explicit_fields(given),
    )


def patch_from(given: SchedulePatch, settings: Settings) -> Callable[[Schedule], Schedule]:
    """The edit of a PATCH. Execution settings of a policy belong to a kind of target: another kind
    starts with its defaults."""
    plain = given.model_fields_set & {"name", "trigger", "priority", "labels", "enabled"}

    def edit(before: Schedule) -> Schedule:
        after = replace(before, **{name: getattr(given, name) for name in plain})
        if "target" in given.model_fields_set:
            target = patched_target(given.target, before.target)
            after = replace(after, target=target)
            if target.kind != before.target.kind:
                defaults = default_policy(settings, target)
                policy = apply_task_defaults(before.policy, defaults, ())
                if policy.delivery == default_policy(settings, before.target).delivery:
                    policy = replace(policy, delivery=defaults.delivery)
                after = replace(after, policy=policy)
        if "policy" in given.model_fields_set:
            after = replace(after, policy=policy_from(given.policy, after.policy))
        if "delivery" in given.model_fields_set:
            delivery = recipients_from(given.delivery, before.policy.delivery)
            after = replace(after, policy=replace(after.policy, delivery=delivery))
        if "depends_on" in given.model_fields_set:
            depends_on = dependency_from(given.depends_on) if given.depends_on else None
            after = replace(after, depends_on=depends_on)
        return after

    return edit


def moment_from(text: str, timezone: str | None, field: str) -> datetime:
    """Parses RFC 3339, RFC 9557, or local time in `timezone`."""
    return parse_moment(text, timezone, field=field)


def schedule_out(schedule: Schedule, lang: str = "en") -> Json:
    pause = {
        "note": in_language(schedule.pause_note, lang),
        "until": time_out(schedule.pause_until),
    }
    return to_json(schedule, masked=True, without=(*ScheduleOut.without, "trigger", "policy")) | {
        "namespace": canonical_namespace(schedule.namespace),
        "trigger": schedule.trigger.shown(),
        "hook_url": viewed_hook_url(schedule) if schedule.trigger.on_event else None,
        "timezone": schedule.trigger.zone,
        "words": describe(schedule.trigger, lang),
        "policy": policy_out(schedule.policy),
        "labels": labels_out(schedule.labels),
        "pause": None if schedule.enabled else pause,
        "delivery": recipients_out(schedule.policy.delivery),
        "last_error": schedule.last_error and in_language(schedule.last_error, lang),
        "declared": _declared_out(schedule),
    }


def slot_explanation_out(explanation: SlotExplanation, lang: str) -> Json:
    return {
        "schedule": explanation.schedule_id,
        "slot": time_out(explanation.slot),
        "outcome": explanation.outcome.value,
        "reason": explanation.reason,
        "message": in_language(explanation.message, lang),
        "run_id": explanation.run_id,
    }


def maintenance_out(window: MaintenanceWindow) -> Json:
    return {
        "namespace": window.namespace or None,
        "since": time_out(window.since),
        "until": time_out(window.until),
        "reason": window.reason,
        "by": window.by,
        "silence": window.silence,
    }


def warning_out(warning: SetupWarning, lang: str) -> Json:
    return {
        "code": warning.code,
        "field": warning.field,
        "message": in_language(warning.message, lang),
    }


def misconfigured_out(found: Misconfigured, lang: str) -> Json:
    return warning_out(found.warning, lang) | {
        "schedule_id": found.schedule.id,
        "schedule_name": found.schedule.name,
    }


def _declared_out(schedule: Schedule) -> Json | None:
    mark = source_marker(schedule)
    if mark is None:
        return None
    return {"at": mark.at, "kind": mark.kind, "detached": is_detached(schedule)}


def wanted_from(
    name: str,
    given: AppliedScheduleIn,
    actor: Actor,
    settings: Settings,
    now: datetime,
    namespace: str,
) -> WantedSchedule:
    """`namespace`: for items that name none."""
    sent = given.model_fields_set
    return WantedSchedule(
        name=clean_name(name),
        namespace=canonical_namespace(given.namespace if "namespace" in sent else namespace),
        owner=owner_from(given.owner) if given.owner else None,
        id=ScheduleId(check_id(given.id)) if given.id is not None else None,
        draft=lambda before: draft_from(given, actor, settings, now, before),
        explicit_fields=explicit_fields(given),
        sets_enabled="enabled" in sent,
    )


def changeset_out(changeset: Changeset, lang: str, *, applied: bool) -> Json:
    return {
        "plan": [_changeset_item_out(each, lang) for each in changeset.items],
        "applied": applied,
        "digest": changeset.digest,
    }


def _changeset_item_out(item: ChangesetItem, lang: str) -> Json:
    return {
        "action": item.action.value,
        "name": item.name,
        "namespace": item.namespace,
        "id": item.id,
        "version": item.version,
        "fields": {path: list(pair) for path, pair in item.fields.items()},
        "fires": {
            "added": len(item.fires.added),
            "dropped": len(item.fires.dropped),
            "moved": len(item.fires.moved),
            "until": time_out(item.fires.until),
        },
        "marked": _is_marked(item),
        "warnings": [warning_out(each, lang) for each in item.warnings],
    }


def _is_marked(item: ChangesetItem) -> bool:
    mark = source_marker(item.before) if item.before else None
    return mark is not None and mark.kind == "file"


def policy_out(policy: Policy) -> Json:
    """Without the recipients, which a schedule shows beside its policy."""
    return to_json(policy, without=("delivery",))


def labels_out(labels: Mapping[str, str | None]) -> Json | list[str]:
    """A list if no label has a value, as in the request."""
    if labels and all(value is None for value in labels.values()):
        return list(labels)
    return dict(labels)


def time_out(moment: datetime | None) -> str | None:
    return None if moment is None else format_moment(moment)


# Runs, keys, nodes and audit entries


def run_out(run: Run, lang: str = ENGLISH) -> Json:
    """Messages of Chimes are translated; output of the target is not."""
    definition = to_json(run.definition, masked=True, without=(*RunOut.without, "cause"))
    cause = run.definition.cause
    state = to_json(run, without=(*RunOut.without, "attempts"))
    return {
        **state,
        **definition,
        "namespace": canonical_namespace(run.namespace),
        "cause": None if cause is None else to_json(cause, without=CauseOut.without),
        "node": run.holder,
        "duration_ms": _milliseconds(run.started_at, run.finished_at),
        "lag_ms": _milliseconds(run.planned_at, run.started_at),
        "error": run.error and in_language(run.error, lang),
        "reason": run.shown_reason,
        "attempts": [attempt_out(attempt, lang) for attempt in run.attempts],
    }


def attempt_out(attempt: Attempt, lang: str = ENGLISH) -> Json:
    return to_json(attempt) | {
        "duration_ms": _milliseconds(attempt.started_at, attempt.finished_at),
        "error": attempt.error and in_language(attempt.error, lang),
    }


def log_out(entry: LogEntry) -> Json:
    return to_json(entry)


def key_out(key: ApiKey) -> Json:
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role.value,
        "scopes": [scope.value for scope in key.scopes],
        "owner": owner_to_plain(key.owner),
        "created_at": time_out(key.created_at),
        "created_by": key.created_by,
        "expires_at": time_out(key.expires_at),
        "last_used_at": time_out(key.last_used_at),
        "revoked_at": time_out(key.revoked_at),
    }


def node_out(node: Node, now: datetime) -> Json:
    report = node.report
    return {
        "id": node.id,
        "version": node.version,
        "roles": list(node.roles),
        "capacity": node.capacity,
        "started_at": time_out(node.started_at),
        "heartbeat_at": time_out(node.heartbeat_at),
        "lease_until": time_out(node.lease_until),
        "alive": node.lease_until > now,
        "state": node.state(now).value,
        "drain": node.drain,
        "running": None if report is None else report.running,
        "sending": None if report is None else report.sending,
        "claims_per_minute": None if report is None else report.claims_per_minute,
        "memory_bytes": None if report is None else report.memory,
        "queues": None if report is None else list(report.queues),
        "clock_offset_seconds": round(node.clock_offset, 6),
        "offers": list(node.capabilities),
    }


def audit_out(entry: AuditEntry) -> Json:
    return {
        "number": entry.number,
        "at": time_out(entry.at),
        "actor": entry.actor,
        "interface": entry.interface,
        "verb": entry.verb,
        "object_kind": entry.object_kind,
        "object_id": entry.object_id,
        "owner": entry.owner,
        "changes": dict(entry.changes),
        "reason": entry.reason,
        "address": entry.address,
        "allowed": entry.allowed,
        "previous_hash": entry.previous_hash,
        "prev_hash": entry.previous_hash,
        "hash": entry.hash,
    }


def _milliseconds(begin: datetime | None, end: datetime | None) -> float | None:
    if begin is None or end is None:
        return None
    return (end - begin) / timedelta(milliseconds=1)


# Parameters of a single run

#: Field of a target -> field of a request.
_REQUEST_FIELDS: Mapping[str, str] = {
    "args": "params",
    "kwargs": "params",
    "fields": "params",
    "input": "params",
    "params": "params",
    "body": "body",
    "prompt": "prompt",
    "text": "text",
}


def changes_payload(given: RunIn) -> bool:
    return bool(given.model_fields_set & set(_REQUEST_FIELDS.values()))


def with_parameters(given: RunIn, before: Target) -> Target:
    """The target with the payload of the request. Raises InvalidInput for unknown fields."""
    sent, target = given.model_fields_set, before
    if "body" in sent:
        if not isinstance(target, HttpTarget | AmqpTarget | NatsTarget | KafkaTarget):
            raise _unknown_payload(before, "body")
        target = replace(target, body=unmask_text(given.body, target.body))
    if "prompt" in sent:
        if not isinstance(target, AgentTarget):
            raise _unknown_payload(before, "prompt")
        target = replace(target, prompt=given.prompt)
    if "text" in sent:
        if not isinstance(target, MessageTarget):
            raise _unknown_payload(before, "text")
        target = replace(target, text=given.text)
    return with_params(target, given.params) if "params" in sent else target


def with_params(before: Target, params: Mapping[str, object]) -> Target:
    """Merges parameters by name; `***` keeps the stored secret."""
    match before:
        case TaskTarget():
            return replace(before, args=_merged(params, before.args))
        case FlowTarget():
            return replace(before, input=_merged(params, before.input))
        case ActionTarget():
            return replace(before, params=_merged(params, before.params))
        case CeleryTarget() | DaskTarget():
            return replace(before, kwargs=_merged(params, before.kwargs))
        case RedisStreamTarget():
            texts = {name: str(value) for name, value in params.items()}
            return replace(before, fields=unmask_headers({**before.fields, **texts}, before.fields))
        case HttpTarget() | AmqpTarget() | NatsTarget() | KafkaTarget():
            merged = _merged(params, _object_in(before.body))
            return replace(before, body=json.dumps(merged, ensure_ascii=False))
        case AgentTarget() | SyncTarget() | MessageTarget() | CommandTarget() | KubernetesTarget():
            raise _unknown_payload(before, "params")


def _merged(params: Mapping[str, object], before: Mapping[str, object]) -> dict[str, object]:
    return unmask_arguments({**before, **params}, before)


def _object_in(body: str) -> Mapping[str, object]:
    try:
        found = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput(
            _("the body of this target is not a JSON object; replace it with body"),
            field="params",
            code="not_an_object",
        )
    return found


def _unknown_payload(target: Target, field: str) -> InvalidInput:
    return InvalidInput(
        _("a target of kind {kind} has no {name}", kind=target.kind, name=field),
        field=field,
        code="unknown_field",
        hint=_REQUEST_FIELDS.get(payload_name(target)),
    )
