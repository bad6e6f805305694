"""Targets between the native API and the model; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chimes.doors.api.inputs import (
    AgentTargetIn,
    AnyTargetIn,
    FlowTargetIn,
    HttpTargetIn,
    SyncTargetIn,
    TargetPatch,
    TaskTargetIn,
)
from chimes.doors.api.inputs_targets import ActionTargetIn, MessageTargetIn
from chimes.errors import InvalidInput
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
from chimes.redaction import (
    HIDDEN,
    is_secret_field,
    is_secret_name,
    masked_arguments,
    masked_headers,
)
from chimes.triggers.reading import nearest
from chimes.wording import say

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
_NEEDED: Mapping[str, tuple[str, ...]] = {
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
    """Field by field within a kind; another kind starts from nothing."""
    sent = given.model_fields_set - {"kind"}
    kind = given.kind if "kind" in given.model_fields_set else before.kind
    for name in sorted(sent - _FIELDS[kind]):
        raise InvalidInput(
            say("a target of kind {kind} has no {name}", kind=kind, name=name),
            field=f"target.{name}",
            code="unknown_field",
            hint=nearest(name, _FIELDS[kind]),
        )
    if kind != before.kind:
        before = _EMPTY[kind]
        for name in _NEEDED[kind]:
            if name not in sent:
                raise InvalidInput(
                    say("a target of kind {kind} needs its {name}", kind=kind, name=name),
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
                "headers": masked_headers(target.headers),
                "body": target.body,
                "expected_status": list(target.expected_status),
                "signing_secrets": [HIDDEN for _ in target.signing_secrets],
                "verify_tls": target.verify_tls,
            }
        case TaskTarget():
            return {
                "kind": target.kind,
                "name": target.name,
                "args": masked_arguments(target.args),
            }
        case FlowTarget():
            return {
                "kind": target.kind,
                "name": target.name,
                "input": masked_arguments(target.input),
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
                "params": masked_arguments(target.params),
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
    """`***` at a place means: the secret that was there."""
    kept = [HIDDEN] * len(given)
    for place, secret in enumerate(given):
        if secret == HIDDEN and place >= len(before):
            raise InvalidInput(
                say("there is no secret in place {place} to keep", place=place),
                field=f"{field}[{place}]",
                code="masked",
            )
        kept[place] = before[place] if secret == HIDDEN else secret
    return tuple(kept)


def _unmasked_headers(given: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """A header that was answered as `***` comes back so and is kept."""
    known = {name.lower(): value for name, value in before.items()}
    return {
        name: known.get(name.lower(), value) if value == HIDDEN and is_secret_name(name) else value
        for name, value in given.items()
    }


def unmasked_arguments(given: Mapping[str, object], before: Mapping[str, object]) -> Json:
    """The same for arguments, at any depth of objects."""
    return {
        name: before.get(name, value)
        if value == HIDDEN and is_secret_field(name)
        else _unmasked_inside(value, before.get(name))
        for name, value in given.items()
    }


def _unmasked_inside(value: object, before: object) -> object:
    if isinstance(value, Mapping) and isinstance(before, Mapping):
        return unmasked_arguments(value, before)
    if isinstance(value, list) and isinstance(before, list) and len(value) == len(before):
        return [_unmasked_inside(*pair) for pair in zip(value, before, strict=True)]
    return value
