"""What a run does: a closed union of values. `chimes.targets` executes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, get_args

from msgspec import Struct, field

from chimes.model import replace
from chimes.model.fields import (
    About,
    SecretArguments,
    SecretHeaders,
    SecretObjects,
    Secrets,
    SecretText,
    fields_of,
)


class HttpTarget(Struct, frozen=True, kw_only=True, gc=False):
    """An HTTP callback. Placeholders in url, headers and body are filled at each attempt."""

    about: ClassVar[Mapping[str, About]] = {
        "expected_status": About(at_most=50, between=(100, 599)),
        "signing_secrets": About(at_most=10),
    }
    #: The fields that may name secrets of the owner (`chimes.model.secret`).
    takes_secrets: ClassVar[Sequence[str]] = ("url", "headers", "body", "signing_secrets")

    kind: Literal["http"] = "http"
    url: SecretText
    method: str = "POST"
    headers: SecretHeaders = field(default_factory=dict)
    body: SecretText = ""
    #: Status codes that count as success; empty means any 2xx.
    expected_status: tuple[int, ...] = ()
    #: Standard Webhooks keys (`whsec_...`); two while a key is being rotated.
    signing_secrets: Secrets = ()
    #: Only an admin may disable certificate checks; it is audited.
    verify_tls: bool = True

    @property
    def requirement(self) -> str:
        """The capability that a node must have to execute this."""
        return self.kind


class TaskTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A Python task, by its registered name. The name is never imported: only nodes that have the
    task can execute it."""

    kind: Literal["task"] = "task"
    name: str
    args: SecretArguments = field(default_factory=dict)

    @property
    def requirement(self) -> str:
        return f"task:{self.name}"


class FlowTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A flow: its steps become child runs, whose targets are tasks named `flow/step`."""

    kind: Literal["flow"] = "flow"
    name: str
    input: SecretArguments = field(default_factory=dict)

    @property
    def requirement(self) -> str:
        return f"flow:{self.name}"


_PAIR_KEY_PREFIX = "sync:"


class SyncTarget(Struct, frozen=True, kw_only=True, gc=False):
    """Synchronise one collection of a source of `chimes.yaml`. EventNative calls its runs tasks: at
    most one per pair is active, so they share one concurrency key."""

    kind: Literal["sync"] = "sync"
    source: str
    collection: str

    @property
    def requirement(self) -> str:
        return f"sync:{self.source}"

    @property
    def key(self) -> str:
        """The concurrency key of the pair and the name of its checkpoint. Ids contain no `#`."""
        return f"{_PAIR_KEY_PREFIX}{self.source}#{self.collection}"


def parse_pair_key(key: str) -> tuple[str, str]:
    """Source and collection of a key that `is_pair_key`."""
    source, _unused, collection = key.removeprefix(_PAIR_KEY_PREFIX).partition("#")
    return source, collection


def is_pair_key(key: str) -> bool:
    """Whether a concurrency key belongs to a pair. No other schedule may use one: its runs would
    count as runs of the pair."""
    return key.startswith(_PAIR_KEY_PREFIX) and "#" in key


class AgentTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A prompt for the configured run pipeline. Its output is only data."""

    about: ClassVar[Mapping[str, About]] = {
        "pipeline": About(
            texts=("", "openai", "runs"),
            description="Empty for the configured one.",
            response_description="`openai` or `runs`; empty for the configured one.",
        ),
        "model": About(
            description="Empty for the configured one.",
            response_description="Empty for the configured one.",
        ),
        "max_tokens": About(description="Limit of the response; default: as configured."),
    }

    kind: Literal["agent"] = "agent"
    prompt: str
    #: `openai` or `runs`; empty: the configured one.
    pipeline: str = ""
    #: Empty: the configured one.
    model: str = ""
    #: Of the response; None: the configured limit.
    max_tokens: int | None = None

    @property
    def requirement(self) -> str:
        return self.kind


class ActionTarget(Struct, frozen=True, kw_only=True, gc=False):
    """An action type of a knowledge network, executed by the configured action service."""

    about: ClassVar[Mapping[str, About]] = {
        "account_id": About(json="account.id"),
        "account_type": About(json="account.type"),
    }
    takes_secrets: ClassVar[Sequence[str]] = ("identities", "params")

    kind: Literal["action"] = "action"
    action_type_id: str
    kn_id: str
    branch: str = "main"
    #: The objects of the action, each a JSON object.
    identities: SecretObjects = ()
    params: SecretArguments = field(default_factory=dict)
    #: The account that created the schedule; the action runs on its behalf.
    account_id: str = ""
    account_type: str = ""

    @property
    def requirement(self) -> str:
        return self.kind


class MessageTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A reminder: the text is the result of the run and goes to the recipients of the schedule."""

    about: ClassVar[Mapping[str, About]] = {"text": About(response_description="Markdown.")}

    kind: Literal["message"] = "message"
    #: Markdown.
    text: str

    @property
    def requirement(self) -> str:
        return self.kind


Target = (
    HttpTarget | TaskTarget | FlowTarget | SyncTarget | AgentTarget | ActionTarget | MessageTarget
)
#: The Struct of each kind.
TARGETS: Mapping[str, type[Target]] = {
    each.default: kind
    for kind in get_args(Target)
    for each in fields_of(kind)
    if each.name == "kind"
}


# --- payload: the part of a target that a single run may override


def payload_of(target: Target) -> str | Mapping[str, object] | None:
    """Body, prompt, text or parameters, depending on the target; None for a sync."""
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
    """The field of the payload; empty for a sync."""
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
    """Whether the targets differ only in their payload."""
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
