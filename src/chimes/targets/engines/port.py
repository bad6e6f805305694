"""The ports of engines and brokers, and the clients that a node has of its connections.

An engine executes work of its own: Celery, Dask, Kubernetes. `Engine` is everything that Chimes
needs of one, so that hand-over, takeover after a crash, following, cancellation and time-out are
written once (`chimes.targets.engines.runner`). A broker only takes a message.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from importlib.util import find_spec
from typing import Generic, TypeVar

from msgspec import Struct

from chimes.config.connections import Connection
from chimes.errors import ConfigError
from chimes.i18n import Message, _
from chimes.model.target import ConnectionTarget, EngineTarget, PublishTarget
from chimes.targets.base import TargetError, fill_placeholders

#: The module of each client and the extra that installs it.
CLIENTS: Mapping[str, tuple[str, str]] = {
    "celery": ("celery", "celery"),
    "dask": ("distributed", "dask"),
    "amqp": ("aio_pika", "amqp"),
    "nats": ("nats", "nats"),
    "redis": ("redis", "redis"),
    "kafka": ("aiokafka", "kafka"),
}


class JobEnd(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


class JobReport(Struct, frozen=True, kw_only=True):
    """What an engine says of a job."""

    #: In the words of the engine.
    status: str
    #: None: it is not over.
    end: JobEnd | None = None
    #: Return value, as JSON.
    value: object = None
    error: str = ""
    #: The last lines that it has written, if the engine keeps them.
    output: Sequence[str] = ()


class Job(Struct, frozen=True, kw_only=True):
    """Work for an engine, with its placeholders filled in."""

    #: The id over there, chosen here: the same after a crash or a lost answer.
    id: str
    target: EngineTarget
    #: Seconds after which the run times out.
    seconds: float


class Client(ABC):
    """The client of one connection. Errors are TargetError."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @abstractmethod
    async def check(self) -> str:
        """Connects, and returns what answered, for `chimes connections test`."""

    @abstractmethod
    async def close(self) -> None: ...


class Engine(Client):
    @abstractmethod
    async def submit(self, job: Job) -> bool:
        """Hands the job over. False: an earlier call has, whose answer was lost. Returns only when
        the engine has confirmed it."""

    @abstractmethod
    async def poll(self, job: Job) -> JobReport:
        """The state of a job. The end can be read again: the node may die before it is stored."""

    @abstractmethod
    async def cancel(self, job: Job) -> None: ...

    async def release(self, job_id: str) -> None:
        """Deletes what is kept over there of a job whose end is stored here."""


class Receipt(Struct, frozen=True, kw_only=True):
    """What a broker confirmed."""

    #: Place in the stream, offset and so on.
    facts: Mapping[str, object] = {}
    #: Whether the broker has had this message before.
    duplicate: bool = False


class Publication(Struct, frozen=True, kw_only=True):
    """A message for a broker, with its placeholders filled in."""

    #: The run id.
    id: str
    target: PublishTarget
    body: bytes
    content_type: str
    #: Additional facts of the run, by name.
    headers: Mapping[str, str]


class Broker(Client):
    @abstractmethod
    async def publish(self, message: Publication) -> Receipt:
        """Returns when the broker has confirmed the message."""


C = TypeVar("C", bound=Client)
Resolve = Callable[[Connection], Awaitable[Connection]]


class Clients(Generic[C]):
    """The clients of the connections of one kind. A client is built with the first use, and again
    when a secret of its connection has changed."""

    def __init__(
        self, connections: Sequence[Connection], build: Callable[[Connection], C], resolve: Resolve
    ) -> None:
        self.connections = {each.name: each for each in connections}
        self._build = build
        self._resolve = resolve
        self._clients: dict[str, C] = {}
        self._lock = asyncio.Lock()

    async def get(self, target: ConnectionTarget, name: str) -> C:
        """`name`: what is used of the connection; TargetError if the operator does not allow it."""
        connection = self.connections[target.connection]
        if not connection.allows(name):
            raise TargetError(
                "not_allowed_there",
                _(
                    "the connection {name!r} does not allow {used!r}",
                    name=connection.name,
                    used=name,
                ),
            )
        filled = await self._resolve(connection)
        if missing := filled.secret_names:
            raise TargetError(
                "unknown_secret",
                _(
                    "the connection {name!r} names secrets that are not stored: {missing} (chimes "
                    "secret set NAME --owner system:config)",
                    name=connection.name,
                    missing=", ".join(sorted(missing)),
                ),
            )
        async with self._lock:
            client = self._clients.get(connection.name)
            if client is None or client.connection != filled:
                if client is not None:
                    await client.close()
                client = self._clients[connection.name] = self._build(filled)
            return client

    def opened(self, name: str) -> C | None:
        return self._clients.get(name)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()


def missing_client(connection: Connection) -> Message | None:
    """What to install for a connection, if it is not installed."""
    module, extra = CLIENTS.get(connection.kind, ("", ""))
    if not module or find_spec(module) is not None:
        return None
    return _(
        "connections.{name}: {kind} requires its client: pip install 'chimes[{extra}]'",
        name=connection.name,
        kind=connection.kind,
        extra=extra,
    )


def require_client(connection: Connection) -> None:
    if (message := missing_client(connection)) is not None:
        raise ConfigError(message, key=f"connections.{connection.name}")


def fill(value: object, facts: Mapping[str, str]) -> object:
    """JSON-like data with the placeholders in its texts filled in."""
    if isinstance(value, str):
        return fill_placeholders(value, facts)
    if isinstance(value, Mapping):
        return {name: fill(each, facts) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [fill(each, facts) for each in value]
    return value


def unreachable(connection: Connection, error: BaseException) -> TargetError:
    """A failure before the work was taken: it may be tried again."""
    why = str(error).strip() or type(error).__name__
    return TargetError(
        "unreachable",
        _("{name} ({kind}): {why}", name=connection.name, kind=connection.kind, why=why[:500]),
        retryable=True,
    )
