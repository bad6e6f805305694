"""Pure conversion between the schemas of the native API and the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from chimes.config import Settings
from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, _, in_language
from chimes.language import describe
from chimes.model import replace
from chimes.model.access import Actor, ApiKey, Owner
from chimes.model.audit import AuditEntry
from chimes.model.ids import ScheduleId, canonical_namespace
from chimes.model.node import Node
from chimes.model.policy import PRIORITY, Policy, apply_task_defaults
from chimes.model.recipient import WEEKDAYS, Digest, QuietHours, Recipient
from chimes.model.run import Attempt, LogEntry, Run
from chimes.model.schedule import Dependency, Schedule, is_detached, source_marker
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    Target,
    TaskTarget,
    payload_name,
)
from chimes.model.validation import check_text
from chimes.redaction import (
    HIDDEN,
    is_secret_field,
    is_secret_name,
    mask_arguments,
    mask_headers,
)
from chimes.services.runs import RunRequest
from chimes.services.schedules.rules import default_policy
from chimes.store.codec.values import clock_text, owner_to_plain
from chimes.triggers import format_duration_iso, format_moment, parse_moment
from chimes.triggers.values import suggest_name
from chimes.web.api.schemas import (
    ActionTargetIn,
    AgentTargetIn,
    AnyTargetIn,
    DependencyIn,
    DigestIn,
    FlowTargetIn,
    HttpTargetIn,
    MessageTargetIn,
    OwnerIn,
    PolicyIn,
    QuietIn,
    RecipientIn,
    RunIn,
    ScheduleIn,
    SchedulePatch,
    StartIn,
    SyncTargetIn,
    TargetPatch,
    TaskTargetIn,
)

# Targets

Json = dict[str, object]
_FIELDS: Mapping[str, frozenset[str]] = {
    "http": frozenset(HttpTargetIn.model_fields) - {"kind"},
    "task": frozenset(TaskTargetIn.model_fields) - {"kind"},
    "flow": frozenset(FlowTargetIn.model_fields) - {"kind"},
    "sync": frozenset(SyncTargetIn.model_fields) - {"kind"},
    "agent": frozenset(AgentTargetIn.model_fields) - {"kind"},
    "action": frozenset(ActionTargetIn.model_fields) - {"kind"},
    "message": frozenset(MessageTargetIn.model_fields) - {"kind"},
}
_EMPTY: Mapping[str, Target] = {
    "http": HttpTarget(url=""),
    "task": TaskTarget(name=""),
    "flow": FlowTarget(name=""),
    "sync": SyncTarget(source="", collection=""),
    "agent": AgentTarget(prompt=""),
    "action": ActionTarget(action_type_id="", kn_id=""),
    "message": MessageTarget(text=""),
}
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "http": ("url",),
    "task": ("name",),
    "flow": ("name",),
    "sync": ("source", "collection"),
    "agent": ("prompt",),
    "action": ("action_type_id", "kn_id"),
    "message": ("text",),
}


def target_from(given: AnyTargetIn) -> Target:
    match given:
        case HttpTargetIn():
            return _merged_http(given, HttpTarget(url=given.url))
        case TaskTargetIn():
            return TaskTarget(name=given.name, args=given.args)
        case FlowTargetIn():
            return FlowTarget(name=given.name, input=given.input)
        case SyncTargetIn():
            return SyncTarget(source=given.source, collection=given.collection)
        case AgentTargetIn():
            return _merged_agent(given, AgentTarget(prompt=given.prompt))
        case ActionTargetIn():
            return _merged_action(given, ActionTarget(action_type_id="", kn_id=""))
        case MessageTargetIn():
            return MessageTarget(text=given.text)


def patched_target(given: TargetPatch, before: Target) -> Target:
    """Merges field by field within a kind; another kind replaces the target."""
    sent = given.model_fields_set - {"kind"}
    kind = given.kind if "kind" in given.model_fields_set else before.kind
    for name in sorted(sent - _FIELDS[kind]):
        raise InvalidInput(
            _("a target of kind {kind} has no {name}", kind=kind, name=name),
            field=f"target.{name}",
            code="unknown_field",
            hint=suggest_name(name, _FIELDS[kind]),
        )
    if kind != before.kind:
        before = _EMPTY[kind]
        for name in _REQUIRED[kind]:
            if name not in sent:
                raise InvalidInput(
                    _("a target of kind {kind} requires {name}", kind=kind, name=name),
                    field=f"target.{name}",
                    code="missing",
                )
    match before:
        case HttpTarget():
            return _merged_http(given, before)
        case TaskTarget():
            args = unmasked_arguments(given.args, before.args) if "args" in sent else before.args
            return TaskTarget(name=given.name if "name" in sent else before.name, args=args)
        case FlowTarget():
            start = (
                unmasked_arguments(given.input, before.input) if "input" in sent else before.input
            )
            return FlowTarget(name=given.name if "name" in sent else before.name, input=start)
        case SyncTarget():
            return SyncTarget(
                source=given.source if "source" in sent else before.source,
                collection=given.collection if "collection" in sent else before.collection,
            )
        case AgentTarget():
            return _merged_agent(given, before)
        case ActionTarget():
            return _merged_action(given, before)
        case MessageTarget():
            return MessageTarget(text=given.text if "text" in sent else before.text)


def target_out(target: Target) -> Json:
    match target:
        case HttpTarget():
            return {
                "kind": target.kind,
                "url": target.url,
                "method": target.method,
                "headers": mask_headers(target.headers),
                "body": target.body,
                "expected_status": list(target.expected_status),
                "signing_secrets": [HIDDEN for _unused in target.signing_secrets],
                "verify_tls": target.verify_tls,
            }
        case TaskTarget():
            return {
                "kind": target.kind,
                "name": target.name,
                "args": mask_arguments(target.args),
            }
        case FlowTarget():
            return {
                "kind": target.kind,
                "name": target.name,
                "input": mask_arguments(target.input),
            }
        case SyncTarget():
            return {
                "kind": target.kind,
                "source": target.source,
                "collection": target.collection,
            }
        case AgentTarget():
            return {
                "kind": target.kind,
                "prompt": target.prompt,
                "pipeline": target.pipeline,
                "model": target.model,
                "max_tokens": target.max_tokens,
            }
        case ActionTarget():
            return {
                "kind": target.kind,
                "action_type_id": target.action_type_id,
                "kn_id": target.kn_id,
                "branch": target.branch,
                "identities": [dict(each) for each in target.identities],
                "params": mask_arguments(target.params),
                "account": {"id": target.account_id, "type": target.account_type},
            }
        case MessageTarget():
            return {"kind": target.kind, "text": target.text}


def _merged_agent(given: AgentTargetIn | TargetPatch, before: AgentTarget) -> AgentTarget:
    sent = given.model_fields_set & _FIELDS["agent"]
    return replace(before, **{name: getattr(given, name) for name in sent})


def _merged_action(given: ActionTargetIn | TargetPatch, before: ActionTarget) -> ActionTarget:
    sent = given.model_fields_set & _FIELDS["action"]
    changes: dict[str, Any] = {name: getattr(given, name) for name in sent - {"account"}}
    if "identities" in changes:
        changes["identities"] = tuple(given.identities)
    if "params" in changes:
        changes["params"] = unmasked_arguments(given.params, before.params)
    if "account" in sent:
        changes |= {"account_id": given.account.id, "account_type": given.account.type}
    return replace(before, **changes)


def _merged_http(given: HttpTargetIn | TargetPatch, before: HttpTarget) -> HttpTarget:
    changes: dict[str, Any] = {
        name: getattr(given, name) for name in given.model_fields_set & _FIELDS["http"]
    }
    if "method" in changes:
        changes["method"] = given.method.upper()
    if "headers" in changes:
        changes["headers"] = _unmasked_headers(given.headers, before.headers)
    if "expected_status" in changes:
        changes["expected_status"] = tuple(given.expected_status)
    if "signing_secrets" in changes:
        changes["signing_secrets"] = unmasked_secrets(
            given.signing_secrets, before.signing_secrets, "target.signing_secrets"
        )
    return replace(before, **changes)


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


def _unmasked_headers(given: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Replaces `***` in secret headers by the stored values."""
    known = {name.lower(): value for name, value in before.items()}
    return {
        name: known.get(name.lower(), value) if value == HIDDEN and is_secret_name(name) else value
        for name, value in given.items()
    }


def unmasked_arguments(given: Mapping[str, object], before: Mapping[str, object]) -> Json:
    """Replaces `***` in secret arguments by the stored values, at any depth."""
    return {
        name: before.get(name, value)
        if value == HIDDEN and is_secret_field(name)
        else _unmasked_value(value, before.get(name))
        for name, value in given.items()
    }


def _unmasked_value(value: object, before: object) -> object:
    if isinstance(value, Mapping) and isinstance(before, Mapping):
        return unmasked_arguments(value, before)
    if isinstance(value, list) and isinstance(before, list) and len(value) == len(before):
        return [_unmasked_value(*pair) for pair in zip(value, before, strict=True)]
    return value


# Recipients


def recipients_from(
    given: Sequence[RecipientIn], before: Sequence[Recipient] = ()
) -> tuple[Recipient, ...]:
    """A secret sent as `***` is the stored one of the same channel and address."""
    secrets = {(each.channel, each.to): each.signing_secrets for each in before}
    return tuple(
        Recipient(
            channel=each.channel,
            to=str(each.to).strip(),
            on=tuple(dict.fromkeys(each.on)),
            language=each.language,
            signing_secrets=unmasked_secrets(
                each.signing_secrets,
                secrets.get((each.channel, str(each.to).strip()), ()),
                f"delivery[{position}].signing_secrets",
            ),
            late_after=each.late_after,
            quiet=_quiet_from(each.quiet),
            digest=_digest_from(each.digest),
        )
        for position, each in enumerate(given)
    )


def recipients_out(recipients: Sequence[Recipient]) -> list[Json]:
    return [
        {
            "channel": each.channel.value,
            "to": each.to,
            "on": [notify_on.value for notify_on in each.on],
            "language": each.language,
            "signing_secrets": [HIDDEN for _unused in each.signing_secrets],
            "late_after": format_duration_iso(each.late_after),
            "quiet": quiet_out(each.quiet),
            "digest": digest_out(each.digest),
        }
        for each in recipients
    ]


def quiet_out(quiet: QuietHours | None) -> Json | None:
    if quiet is None:
        return None
    return {
        "from": clock_text(quiet.start),
        "to": clock_text(quiet.end),
        "zone": quiet.zone,
        "except": [notify_on.value for notify_on in quiet.except_for],
    }


def digest_out(digest: Digest | None) -> Json | None:
    if digest is None:
        return None
    return {
        "every": digest.every.value,
        "at": clock_text(digest.at),
        "on": WEEKDAYS[digest.weekday],
        "zone": digest.zone,
        "except": [notify_on.value for notify_on in digest.except_for],
    }


def _quiet_from(given: QuietIn | None) -> QuietHours | None:
    if given is None:
        return None
    return QuietHours(
        start=given.start,
        end=given.end,
        zone=given.zone,
        except_for=tuple(dict.fromkeys(given.but)),
    )


def _digest_from(given: DigestIn | None) -> Digest | None:
    if given is None:
        return None
    return Digest(
        every=given.every,
        at=given.at,
        weekday=given.weekday,
        zone=given.zone,
        except_for=tuple(dict.fromkeys(given.but)),
    )


def owner_from(given: OwnerIn) -> Owner:
    return Owner(type=given.type, id=check_text(given.id, "owner.id"))


def policy_from(given: PolicyIn, base: Policy) -> Policy:
    return replace(base, **{name: getattr(given, name) for name in given.model_fields_set})


def _with_recipients(policy: Policy, given: ScheduleIn | StartIn) -> Policy:
    """Sets the recipients if the request has any; an empty list removes the defaults."""
    if "delivery" not in given.model_fields_set:
        return policy
    return replace(policy, delivery=recipients_from(given.delivery))


def explicit_fields(given: ScheduleIn | SchedulePatch | StartIn) -> frozenset[str]:
    """Fields that the request sets and that otherwise default to those of the task or flow."""
    found = frozenset(given.policy.model_fields_set)
    return found | ({PRIORITY} & given.model_fields_set)


def dependency_from(given: DependencyIn) -> Dependency:
    return Dependency(schedule_id=ScheduleId(given.schedule_id), within=given.within)


def draft_from(
    given: ScheduleIn, actor: Actor, settings: Settings, created_at: datetime
) -> Schedule:
    """A schedule from a request; the service adds the id, first slot and times."""
    if given.id == "":
        raise InvalidInput(
            _("an id must not be empty; omit it to have one generated"),
            field="id",
            code="too_short",
        )
    target = target_from(given.target)
    return Schedule(
        id=ScheduleId(given.id or ""),
        namespace=canonical_namespace(given.namespace),
        name=given.name,
        owner=owner_from(given.owner) if given.owner else actor.owner,
        trigger=given.trigger,
        target=target,
        policy=_with_recipients(policy_from(given.policy, default_policy(settings, target)), given),
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
    depends_on = schedule.depends_on
    return {
        "id": schedule.id,
        "namespace": canonical_namespace(schedule.namespace),
        "name": schedule.name,
        "owner": owner_to_plain(schedule.owner),
        "trigger": schedule.trigger.to_dict(),
        "timezone": schedule.trigger.zone,
        "words": describe(schedule.trigger, lang),
        "target": target_out(schedule.target),
        "policy": policy_out(schedule.policy),
        "priority": schedule.priority,
        "labels": labels_out(schedule.labels),
        "enabled": schedule.enabled,
        "pause": None
        if schedule.enabled
        else {
            "note": in_language(schedule.pause_note, lang),
            "until": time_out(schedule.pause_until),
        },
        "depends_on": depends_on
        and {
            "schedule_id": depends_on.schedule_id,
            "within": format_duration_iso(depends_on.within),
        },
        "delivery": recipients_out(schedule.policy.delivery),
        "next_run_at": time_out(schedule.next_run_at),
        "next_slot": time_out(schedule.next_slot),
        "last_slot": time_out(schedule.last_slot),
        "last_run_at": time_out(schedule.last_run_at),
        "last_enqueued_at": time_out(schedule.last_enqueued_at),
        "last_status": schedule.last_status and schedule.last_status.value,
        "last_error": schedule.last_error and in_language(schedule.last_error, lang),
        "fired_count": schedule.fired_count,
        "version": schedule.version,
        "created_at": time_out(schedule.created_at),
        "created_by": schedule.created_by,
        "updated_at": time_out(schedule.updated_at),
        "updated_by": schedule.updated_by,
        "declared": _declared_out(schedule),
    }


def _declared_out(schedule: Schedule) -> Json | None:
    mark = source_marker(schedule)
    return None if mark is None else {"at": mark.at, "detached": is_detached(schedule)}


def policy_out(policy: Policy) -> Json:
    return {
        "misfire": policy.misfire.value,
        "misfire_grace": format_duration_iso(policy.misfire_grace),
        "catch_up_limit": policy.catch_up_limit,
        "overlap": policy.overlap.value,
        "max_concurrent_runs": policy.max_concurrent_runs,
        "burst_allowed": policy.burst_allowed,
        "concurrency_key": policy.concurrency_key,
        "max_retries": policy.max_retries,
        "retry_backoff": format_duration_iso(policy.retry_backoff),
        "backoff": policy.backoff.value,
        "backoff_cap": format_duration_iso(policy.backoff_cap),
        "timeout": format_duration_iso(policy.timeout),
        "on_lost": policy.on_lost.value,
        "pause_on_gone": policy.pause_on_gone,
    }


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
    return {
        "id": run.id,
        "schedule_id": run.schedule_id,
        "schedule_name": run.schedule_name,
        "namespace": canonical_namespace(run.namespace),
        "owner": owner_to_plain(run.owner),
        "slot": time_out(run.slot),
        "origin": run.origin.value,
        "status": run.status.value,
        "attempt": run.attempt,
        "fence": run.fence,
        "priority": run.priority,
        "planned_at": time_out(run.planned_at),
        "created_at": time_out(run.created_at),
        "available_at": time_out(run.available_at),
        "claimed_at": time_out(run.claimed_at),
        "started_at": time_out(run.started_at),
        "finished_at": time_out(run.finished_at),
        "duration_ms": _milliseconds(run.started_at, run.finished_at),
        "lag_ms": _milliseconds(run.planned_at, run.started_at),
        "node": run.holder,
        "blocked": run.blocked,
        "cancel_requested": run.cancel_requested,
        "result": None if run.result is None else dict(run.result),
        "error": run.error and in_language(run.error, lang),
        "reason": run.reason,
        "missed_count": run.missed_count,
        "missed_until": time_out(run.missed_until),
        "retry_of": run.retry_of,
        "parent_id": run.parent_id,
        "step": run.step,
        "target": target_out(run.target),
        "attempts": [attempt_out(attempt, lang) for attempt in run.attempts],
    }


def attempt_out(attempt: Attempt, lang: str = ENGLISH) -> Json:
    return {
        "number": attempt.number,
        "fence": attempt.fence,
        "node": attempt.node,
        "started_at": time_out(attempt.started_at),
        "finished_at": time_out(attempt.finished_at),
        "duration_ms": _milliseconds(attempt.started_at, attempt.finished_at),
        "end": attempt.end.value,
        "error": attempt.error and in_language(attempt.error, lang),
    }


def log_out(entry: LogEntry) -> Json:
    return {
        "number": entry.number,
        "at": time_out(entry.at),
        "level": entry.level,
        "message": entry.message,
    }


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
        if not isinstance(target, HttpTarget):
            raise _unknown_payload(before, "body")
        target = replace(target, body=given.body)
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
        case HttpTarget():
            merged = _merged(params, _object_in(before.body))
            return replace(before, body=json.dumps(merged, ensure_ascii=False))
        case AgentTarget() | SyncTarget() | MessageTarget():
            raise _unknown_payload(before, "params")


def _merged(params: Mapping[str, object], before: Mapping[str, object]) -> dict[str, object]:
    return unmasked_arguments({**before, **params}, before)


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
