"""What a run does: a closed union of values. `chimes.targets` executes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import combinations
from typing import ClassVar, Literal, get_args

from msgspec import Struct, field, structs

from chimes.i18n import _
from chimes.model.fields import (
    About,
    SecretArguments,
    SecretHeaders,
    SecretObjects,
    Secrets,
    SecretText,
    SecretValues,
    fields_of,
)


class HttpTarget(Struct, frozen=True, kw_only=True, gc=False):
    """An HTTP callback. Placeholders in url, headers and body are filled at each attempt."""

    about: ClassVar[Mapping[str, About]] = {
        "expected_status": About(at_most=50, between=(100, 599)),
        "signing_secrets": About(at_most=10),
    }
    #: The fields that may name secrets of the owner (`chimes.model.access`).
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


#: Requirements are stored in a column of limited length.
MAX_REQUIRED_LABELS = 4


class CommandTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A program, executed by a worker that allows commands and has the labels in `requires`.

    Either `command` or `shell` is given. Placeholders are filled in arguments, variables and
    standard input, never in the text of a shell, which would interpret their values."""

    about: ClassVar[Mapping[str, About]] = {
        "command": About(
            at_most=1000,
            description="The program and its arguments; no shell interprets them. Placeholders such"
            " as `{{run_id}}` are filled in.",
        ),
        "shell": About(
            description="A text for `/bin/sh -c`, instead of `command`. Nothing is filled in: read"
            " the variables `CHIMES_RUN_ID`, `CHIMES_SLOT` and those of `env`.",
        ),
        "cwd": About(
            label=_("Working directory"),
            hint=_("Absolute path on the worker. Empty: the home directory of the user."),
            example="/srv/shop",
            placeholder=True,
            description="Absolute path; default: the home directory of the user.",
        ),
        "env": About(
            at_most=200,
            description="Variables in addition to `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`,"
            " `LANG`, `LC_*`, `TZ` and `TMPDIR` of the worker; no others are passed on. Values may"
            " contain `{{secret.NAME}}`.",
        ),
        "stdin": About(description="Standard input; default: empty."),
        "user": About(
            label=_("Run as user"),
            hint=_("Only where the worker runs as root. Empty: the user of the worker."),
            description="Only where the worker runs as root; default: its user.",
        ),
        "umask": About(
            label=_("File mode mask (umask)"),
            example="027",
            placeholder=True,
            description="Octal, such as `027`; default: that of the worker.",
        ),
        "success_codes": About(
            at_most=50,
            between=(0, 255),
            description="Exit codes that count as success; default: 0.",
        ),
        "memory_limit": About(
            label=_("Memory limit"),
            hint=_("Of each process, in bytes. Empty: none."),
            description="Bytes of address space of each process.",
        ),
        "cpu_limit": About(
            label=_("CPU time limit"),
            hint=_("Of each process, such as 30s. Empty: none."),
            example="30s",
            description="CPU time of each process, in whole seconds.",
        ),
        "output_limit": About(
            label=_("Output limit"),
            hint=_("In bytes; a command that writes more is stopped. Empty: none."),
            description="Bytes of standard output and standard error together; a command that"
            " writes more is stopped and fails. Without a limit the log is cut.",
        ),
        "kill_after": About(
            label=_("Kill after"),
            hint=_("Time between SIGTERM and SIGKILL when the command is stopped."),
            example="10s",
            description="Time between SIGTERM and SIGKILL at a timeout or a cancellation.",
        ),
        "requires": About(
            at_most=MAX_REQUIRED_LABELS,
            description="Labels that a worker must have (`chimes worker --label`).",
        ),
    }
    takes_secrets: ClassVar[Sequence[str]] = ("env", "stdin")

    kind: Literal["command"] = "command"
    command: tuple[str, ...] = ()
    shell: SecretText = ""
    cwd: str = ""
    env: SecretHeaders = field(default_factory=dict)
    stdin: SecretText = ""
    user: str = ""
    umask: str = ""
    success_codes: tuple[int, ...] = ()
    memory_limit: int | None = None
    cpu_limit: timedelta | None = None
    output_limit: int | None = None
    kill_after: timedelta = timedelta(seconds=10)
    requires: Mapping[str, str] = field(default_factory=dict)

    @property
    def requirement(self) -> str:
        return command_requirement(self.requires)


def command_requirement(labels: Mapping[str, str]) -> str:
    """What a command that requires these labels requires of a node. Stores compare requirements as
    texts, so that a claim costs the same with labels as without."""
    listed = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return f"command:{listed}" if listed else "command"


def command_requirements(labels: Mapping[str, str]) -> Iterator[str]:
    """What a node with these labels offers: every selection of them that a command may require."""
    for count in range(min(len(labels), MAX_REQUIRED_LABELS) + 1):
        for chosen in combinations(labels.items(), count):
            yield command_requirement(dict(chosen))


# --- connections: engines and brokers that the operator names in `chimes.yaml` (ADR 72) -----------

_CONNECTION = About(
    label=_("Connection"),
    hint=_("A name under `connections:` in chimes.yaml."),
    description="Name of a connection of this kind in `chimes.yaml`; a node that has it executes"
    " the run.",
)
_CLOUD_EVENT = About(
    label=_("CloudEvents envelope"),
    description="Send a CloudEvents 1.0 envelope (JSON) whose `id` is the run id and whose `data`"
    " is the message.",
)


class CeleryTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A task of Celery workers. Its id is the run id; the run ends as the task ends."""

    about: ClassVar[Mapping[str, About]] = {
        "connection": _CONNECTION,
        "task": About(label=_("Task"), description="Registered name of the task."),
        "args": About(
            at_most=1000,
            description="Positional arguments. Placeholders such as `{{run_id}}` are filled in.",
        ),
        "kwargs": About(description="Keyword arguments, likewise."),
        "queue": About(
            label=_("Queue"),
            hint=_("Empty: that of the connection."),
            description="Empty: that of the connection.",
            response_description="Empty: that of the connection.",
        ),
    }
    takes_secrets: ClassVar[Sequence[str]] = ("args", "kwargs")

    kind: Literal["celery"] = "celery"
    connection: str
    task: str
    args: SecretValues = ()
    kwargs: SecretArguments = field(default_factory=dict)
    queue: str = ""

    @property
    def requirement(self) -> str:
        return f"celery:{self.connection}"


class DaskTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A function that workers of a Dask cluster import and call. Its key is the run id."""

    about: ClassVar[Mapping[str, About]] = {
        "connection": _CONNECTION,
        "function": About(
            label=_("Function"),
            example="shop.reports:daily",
            placeholder=True,
            description="`module:function`, imported by the Dask worker and not by Chimes.",
        ),
        "args": About(at_most=1000, description="Positional arguments, with placeholders."),
        "kwargs": About(description="Keyword arguments, likewise."),
    }
    takes_secrets: ClassVar[Sequence[str]] = ("args", "kwargs")

    kind: Literal["dask"] = "dask"
    connection: str
    function: str
    args: SecretValues = ()
    kwargs: SecretArguments = field(default_factory=dict)

    @property
    def requirement(self) -> str:
        return f"dask:{self.connection}"


class KubernetesTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A Job of a Kubernetes cluster, with one container. Its name is made of the run id."""

    about: ClassVar[Mapping[str, About]] = {
        "connection": _CONNECTION,
        "image": About(
            label=_("Image"),
            example="registry.example.com/report:3",
            placeholder=True,
            description="Image of the container.",
        ),
        "command": About(
            at_most=1000,
            description="Program and arguments; empty: those of the image. Placeholders such as"
            " `{{run_id}}` are filled in.",
        ),
        "env": About(at_most=200, description="Variables; values may contain `{{secret.NAME}}`."),
        "namespace": About(
            label=_("Namespace"),
            hint=_("Empty: that of the connection."),
            description="Empty: that of the connection.",
            response_description="Empty: that of the connection.",
        ),
        "manifest": About(
            description="Parts of a Job (`spec`, `metadata`) that are merged with what the other"
            " fields say, such as resources or a service account.",
        ),
    }
    takes_secrets: ClassVar[Sequence[str]] = ("env",)

    kind: Literal["kubernetes"] = "kubernetes"
    connection: str
    image: str
    command: tuple[str, ...] = ()
    env: SecretHeaders = field(default_factory=dict)
    namespace: str = ""
    manifest: SecretArguments = field(default_factory=dict)

    @property
    def requirement(self) -> str:
        return f"kubernetes:{self.connection}"


class AmqpTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A message for an AMQP 0-9-1 broker such as RabbitMQ, confirmed by it. `message_id` is the run
    id."""

    about: ClassVar[Mapping[str, About]] = {
        "connection": _CONNECTION,
        "exchange": About(
            label=_("Exchange"),
            hint=_("Empty: the default exchange, which routes to the queue of that name."),
            description="Empty: the default exchange, whose routing key is the name of a queue.",
        ),
        "routing_key": About(label=_("Routing key"), description="With placeholders."),
        "cloudevents": _CLOUD_EVENT,
    }
    takes_secrets: ClassVar[Sequence[str]] = ("body",)

    kind: Literal["amqp"] = "amqp"
    connection: str
    exchange: str = ""
    routing_key: str = ""
    body: SecretText = ""
    cloudevents: bool = False

    @property
    def requirement(self) -> str:
        return f"amqp:{self.connection}"


class NatsTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A message for a stream of NATS JetStream, acknowledged by it. `Nats-Msg-Id` is the run id, by
    which the stream de-duplicates."""

    about: ClassVar[Mapping[str, About]] = {
        "connection": _CONNECTION,
        "subject": About(
            label=_("Subject"),
            description="Subject of a stream, with placeholders.",
        ),
        "cloudevents": _CLOUD_EVENT,
    }
    takes_secrets: ClassVar[Sequence[str]] = ("body",)

    kind: Literal["nats"] = "nats"
    connection: str
    subject: str
    body: SecretText = ""
    cloudevents: bool = False

    @property
    def requirement(self) -> str:
        return f"nats:{self.connection}"


class RedisStreamTarget(Struct, frozen=True, kw_only=True, gc=False):
    """An entry of a Redis stream. Its field `message_id` is the run id, and one run adds one entry
    within a day."""

    about: ClassVar[Mapping[str, About]] = {
        "connection": _CONNECTION,
        "stream": About(label=_("Stream"), description="Key of the stream, with placeholders."),
        "fields": About(
            at_most=200, description="Fields of the entry. Placeholders are filled in the values."
        ),
        "cloudevents": About(
            label=_("CloudEvents envelope"),
            description="Send a CloudEvents 1.0 envelope (JSON) in the field `event`, whose `data`"
            " is the fields.",
        ),
    }
    takes_secrets: ClassVar[Sequence[str]] = ("fields",)

    kind: Literal["redis_stream"] = "redis_stream"
    connection: str
    stream: str
    fields: SecretHeaders = field(default_factory=dict)
    cloudevents: bool = False

    @property
    def requirement(self) -> str:
        return f"redis:{self.connection}"


class KafkaTarget(Struct, frozen=True, kw_only=True, gc=False):
    """A record of a Kafka topic, acknowledged by all in-sync replicas. The header `message-id` is
    the run id."""

    about: ClassVar[Mapping[str, About]] = {
        "connection": _CONNECTION,
        "topic": About(label=_("Topic"), description="Name of the topic, with placeholders."),
        "key": About(
            label=_("Key"),
            hint=_("Empty: the run id."),
            description="Key of the record, with placeholders; empty: the run id.",
            response_description="Empty: the run id.",
        ),
        "cloudevents": _CLOUD_EVENT,
    }
    takes_secrets: ClassVar[Sequence[str]] = ("body",)

    kind: Literal["kafka"] = "kafka"
    connection: str
    topic: str
    key: str = ""
    body: SecretText = ""
    cloudevents: bool = False

    @property
    def requirement(self) -> str:
        return f"kafka:{self.connection}"


#: Handed over to an engine and followed to the end.
EngineTarget = CeleryTarget | DaskTarget | KubernetesTarget
#: Published to a broker.
PublishTarget = AmqpTarget | NatsTarget | RedisStreamTarget | KafkaTarget
#: Targets that name a connection of `chimes.yaml`.
ConnectionTarget = EngineTarget | PublishTarget
#: The kinds of connections. Those of kind `sql` are for conditions, not for targets.
CONNECTION_KINDS = ("celery", "amqp", "nats", "redis", "kafka", "dask", "kubernetes", "sql")


def connection_name(target: ConnectionTarget) -> str:
    """What is used of the connection: the task, function, image, exchange, subject, stream or
    topic. The operator may limit them by patterns."""
    match target:
        case CeleryTarget():
            return target.task
        case DaskTarget():
            return target.function
        case KubernetesTarget():
            return target.image
        case AmqpTarget():
            return target.exchange or target.routing_key
        case NatsTarget():
            return target.subject
        case RedisStreamTarget():
            return target.stream
        case KafkaTarget():
            return target.topic


Target = (
    HttpTarget
    | TaskTarget
    | FlowTarget
    | SyncTarget
    | AgentTarget
    | ActionTarget
    | MessageTarget
    | CommandTarget
    | CeleryTarget
    | DaskTarget
    | KubernetesTarget
    | AmqpTarget
    | NatsTarget
    | RedisStreamTarget
    | KafkaTarget
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
    """Body, prompt, text or parameters, depending on the target; None for those without any."""
    match target:
        case HttpTarget() | AmqpTarget() | NatsTarget() | KafkaTarget():
            return target.body
        case CeleryTarget() | DaskTarget():
            return target.kwargs
        case RedisStreamTarget():
            return target.fields
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
        case SyncTarget() | CommandTarget() | KubernetesTarget():
            return None


def payload_name(target: Target) -> str:
    """The field of the payload; empty for targets without any."""
    match target:
        case HttpTarget() | AmqpTarget() | NatsTarget() | KafkaTarget():
            return "body"
        case CeleryTarget() | DaskTarget():
            return "kwargs"
        case RedisStreamTarget():
            return "fields"
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
        case SyncTarget() | CommandTarget() | KubernetesTarget():
            return ""


def same_but_payload(target: Target, other: Target) -> bool:
    """Whether the targets differ only in their payload."""
    name = payload_name(target)
    if not name or type(target) is not type(other):
        return target == other
    return bool(structs.replace(other, **{name: getattr(target, name)}) == target)
