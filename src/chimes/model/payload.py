"""What a target is given to work with, apart from what it is: the part that one run may have
otherwise than its schedule says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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


def payload_of(target: Target) -> str | Mapping[str, object] | None:
    """The body of a call, the prompt of an agent, the text of a message, the parameters of the
    rest; a sync has none."""
    match target:
        case HttpTarget():
            return target.body
        case AgentTarget():
            return target.prompt
        case TaskTarget():
            return target.args
        case FlowTarget():
            return target.input
        case ActionTarget():
            return target.params
        case MessageTarget():
            return target.text
        case SyncTarget():
            return None


def payload_name(target: Target) -> str:
    """Its field; empty for a sync."""
    match target:
        case HttpTarget():
            return "body"
        case AgentTarget():
            return "prompt"
        case TaskTarget():
            return "args"
        case FlowTarget():
            return "input"
        case ActionTarget():
            return "params"
        case MessageTarget():
            return "text"
        case SyncTarget():
            return ""


def same_but_payload(target: Target, other: Target) -> bool:
    """Whether they do the same thing, at the same place, perhaps with other data."""
    match target, other:
        case HttpTarget(), HttpTarget():
            return replace(other, body=target.body) == target
        case AgentTarget(), AgentTarget():
            return replace(other, prompt=target.prompt) == target
        case TaskTarget(), TaskTarget():
            return replace(other, args=target.args) == target
        case FlowTarget(), FlowTarget():
            return replace(other, input=target.input) == target
        case ActionTarget(), ActionTarget():
            return replace(other, params=target.params) == target
        case MessageTarget(), MessageTarget():
            return True
        case _:
            return target == other
