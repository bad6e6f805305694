"""What a schedule does, as Ksana jobs show it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

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
