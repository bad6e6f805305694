"""What a run does: a closed union of plain data. Carrying it out is the business of `targets/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpTarget:
    """An HTTP callback (R3.3). Placeholders in url, headers and body are filled at each attempt."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    #: Status codes that count as success; empty means any 2xx (R3.48).
    expected_status: tuple[int, ...] = ()
    #: Standard Webhooks keys (`whsec_...`); two while a key is being rotated.
    signing_secrets: tuple[str, ...] = ()
    #: Only an admin may switch certificate checks off, and the audit says so (F61).
    verify_tls: bool = True
    kind: Literal["http"] = "http"

    @property
    def requirement(self) -> str:
        """What a node must offer to carry this out."""
        return self.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskTarget:
    """A Python task, by the name under which an application registered it. Nothing is imported
    because of a name (S66): only nodes that have the task offer it."""

    name: str
    args: Mapping[str, object] = field(default_factory=dict)
    kind: Literal["task"] = "task"

    @property
    def requirement(self) -> str:
        return f"task:{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowTarget:
    """A flow: its steps become child runs, whose targets are tasks named `flow/step`."""

    name: str
    input: Mapping[str, object] = field(default_factory=dict)
    kind: Literal["flow"] = "flow"

    @property
    def requirement(self) -> str:
        return f"flow:{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncTarget:
    """Synchronise one collection of a source of `chimes.yaml` (R4.1). Its runs are what seed 4
    calls tasks: at most one of each pair is active, so all of them share one concurrency key."""

    source: str
    collection: str
    kind: Literal["sync"] = "sync"

    @property
    def requirement(self) -> str:
        return f"sync:{self.source}"

    @property
    def key(self) -> str:
        """The concurrency key of the pair, also the name of the state kept for it. No id has a
        `#` in it."""
        return f"sync:{self.source}#{self.collection}"


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentTarget:
    """A prompt for the configured run pipeline (R1.10). Output is data: it calls nothing here."""

    prompt: str
    #: `openai` or `runs`; empty: as configured.
    pipeline: str = ""
    #: Empty: as configured.
    model: str = ""
    #: Of the answer; None: as configured.
    max_tokens: int | None = None
    kind: Literal["agent"] = "agent"

    @property
    def requirement(self) -> str:
        return self.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionTarget:
    """An action type of a knowledge network, executed by the configured action service (R0.24)."""

    action_type_id: str
    kn_id: str
    branch: str = "main"
    #: The objects that the action is for, each a JSON object (R0.10).
    identities: tuple[Mapping[str, object], ...] = ()
    params: Mapping[str, object] = field(default_factory=dict)
    #: On whose behalf: the account of whoever made the schedule, not of whoever runs it.
    account_id: str = ""
    account_type: str = ""
    kind: Literal["action"] = "action"

    @property
    def requirement(self) -> str:
        return self.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageTarget:
    """A text, told to whom the schedule tells: a reminder. It is the result of the run."""

    #: Markdown.
    text: str
    kind: Literal["message"] = "message"

    @property
    def requirement(self) -> str:
        return self.kind


Target = (
    HttpTarget | TaskTarget | FlowTarget | SyncTarget | AgentTarget | ActionTarget | MessageTarget
)


# @@ What a target is given to work with, apart from what it is: the part that one run may have
# otherwise than its schedule says.


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
