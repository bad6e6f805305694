"""Other parameters for one run, between the native API and the model; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from chimes.doors.api.inputs import RunIn
from chimes.doors.api.wire_targets import unmasked_arguments
from chimes.errors import InvalidInput
from chimes.model.payload import payload_name
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
from chimes.wording import say

#: By the field of a target, what a request calls it.
_NAMES: Mapping[str, str] = {
    "args": "params",
    "input": "params",
    "params": "params",
    "body": "body",
    "prompt": "prompt",
    "text": "text",
}


def changes_payload(given: RunIn) -> bool:
    return bool(given.model_fields_set & set(_NAMES.values()))


def with_parameters(given: RunIn, before: Target) -> Target:
    """The target with what was sent in place of its own. InvalidInput for what it has not."""
    sent, target = given.model_fields_set, before
    if "body" in sent:
        if not isinstance(target, HttpTarget):
            raise _has_no(before, "body")
        target = replace(target, body=given.body)
    if "prompt" in sent:
        if not isinstance(target, AgentTarget):
            raise _has_no(before, "prompt")
        target = replace(target, prompt=given.prompt)
    if "text" in sent:
        if not isinstance(target, MessageTarget):
            raise _has_no(before, "text")
        target = replace(target, text=given.text)
    return with_params(target, given.params) if "params" in sent else target


def with_params(before: Target, params: Mapping[str, object]) -> Target:
    """Each by its name, the others stay; `***` is the secret that was there."""
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
            raise _has_no(before, "params")


def _merged(params: Mapping[str, object], before: Mapping[str, object]) -> dict[str, object]:
    return unmasked_arguments({**before, **params}, before)


def _object_in(body: str) -> Mapping[str, object]:
    try:
        found = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput(
            say("the body of this call is not a JSON object; send another as body"),
            field="params",
            code="not_an_object",
        )
    return found


def _has_no(target: Target, field: str) -> InvalidInput:
    return InvalidInput(
        say("a target of kind {kind} has no {name}", kind=target.kind, name=field),
        field=field,
        code="unknown_field",
        hint=_NAMES.get(payload_name(target)),
    )
