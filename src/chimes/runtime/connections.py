"""Connections of a node: the runners of engines and brokers, and `chimes connections test`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from chimes.config import Settings
from chimes.config.connections import Connection
from chimes.engine.events import Event, RunEnded, RunRescued
from chimes.i18n import _
from chimes.model.access import Owner, OwnerType
from chimes.model.target import CeleryTarget, DaskTarget, KubernetesTarget
from chimes.redaction import Redactor
from chimes.services.secrets import resolve_secrets
from chimes.store.port import Store
from chimes.targets.base import TargetError, TargetRunner
from chimes.targets.engines.port import Broker, Client, Engine, Resolve, require_client
from chimes.targets.engines.runner import EngineRunner, PublishRunner

logger = logging.getLogger("chimes.runtime")
#: The owner of the secrets that connections name.
SECRET_OWNER = Owner(type=OwnerType.SYSTEM, id="config")
#: Seconds for `chimes connections test`.
TEST_SECONDS = 20.0


def build_connection_runners(settings: Settings, store: Store) -> list[TargetRunner]:
    """A runner for each kind of connection that the node has. ConfigError if a client is not
    installed."""
    by_kind: dict[str, list[Connection]] = {}
    for each in settings.connections:
        require_client(each)
        by_kind.setdefault(each.kind, []).append(each)
    resolve = _resolver(store)
    source = settings.public_url or "/chimes"
    found: list[TargetRunner] = []
    for kind, connections in by_kind.items():
        if kind in _ENGINES:
            found.append(EngineRunner(kind, connections, _engine_builder(kind), resolve))
        elif kind in _BROKERS:
            name = "redis_stream" if kind == "redis" else kind
            found.append(PublishRunner(name, connections, _broker_builder(kind), resolve, source))
    return found


def _resolver(store: Store) -> Resolve:
    async def resolve(connection: Connection) -> Connection:
        names = connection.secret_names
        if not names:
            return connection
        secrets = await resolve_secrets(store, SECRET_OWNER, names)
        return connection.filled(secrets.values)

    return resolve


_ENGINES = ("celery", "dask", "kubernetes")
_BROKERS = ("amqp", "nats", "redis", "kafka")


def _engine_builder(kind: str) -> Callable[[Connection], Engine]:
    """The client libraries are imported with the first run."""

    def build(connection: Connection) -> Engine:
        match kind:
            case "celery":
                from chimes.targets.engines.celery import CeleryEngine

                return CeleryEngine(connection)
            case "dask":
                from chimes.targets.engines.dask import DaskEngine

                return DaskEngine(connection)
            case _:
                from chimes.targets.engines.kubernetes import KubernetesEngine

                return KubernetesEngine(connection)

    return build


def _broker_builder(kind: str) -> Callable[[Connection], Broker]:
    def build(connection: Connection) -> Broker:
        from chimes.targets.engines import brokers

        known: Mapping[str, Callable[[Connection], Broker]] = {
            "amqp": brokers.AmqpBroker,
            "nats": brokers.NatsBroker,
            "redis": brokers.RedisBroker,
            "kafka": brokers.KafkaBroker,
        }
        return known[kind](connection)

    return build


class EngineReleaser:
    """Deletes what engines keep of jobs whose end is stored; a listener of events."""

    event_types = (RunEnded, RunRescued)

    def __init__(self, runners: Iterable[TargetRunner]) -> None:
        self._runners = {each.kind: each for each in runners if isinstance(each, EngineRunner)}
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, event: Event) -> None:
        if not isinstance(event, RunEnded | RunRescued) or not event.run.status.terminal:
            return
        target = event.run.definition.target
        if not isinstance(target, CeleryTarget | DaskTarget | KubernetesTarget):
            return
        runner = self._runners.get(target.kind)
        if runner is None:
            return
        numbers = [each.number for each in event.run.attempts if each.number > 1]
        ids = [event.run.id, *(f"{event.run.id}-{number}" for number in numbers)]
        task = asyncio.get_running_loop().create_task(_release(runner, target.connection, ids))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _release(runner: EngineRunner, connection: str, ids: Sequence[str]) -> None:
    for each in ids:
        try:
            await runner.release(connection, each)
        except TargetError as error:
            logger.warning("a job was not released", extra={"job": each, "error": error.text})


# --- chimes connections test ----------------------------------------------------------------------
async def check_connection(connection: Connection, store: Store | None) -> str:
    """Connects and returns what answered. TargetError with the reason, without secrets. `store`:
    where the secrets of `system:config` are; None: they are not filled in."""
    require_client(connection)
    filled = connection if store is None else await _resolver(store)(connection)
    if filled.secret_names:
        raise TargetError(
            "unknown_secret",
            _(
                "secrets that are not stored for system:config: {names}",
                names=", ".join(sorted(filled.secret_names)),
            ),
        )
    try:
        async with asyncio.timeout(TEST_SECONDS):
            return await _check(filled)
    except TimeoutError:
        raise TargetError("timeout", _("no answer within {s:.0f} s", s=TEST_SECONDS)) from None
    except TargetError as error:
        raise TargetError(error.code, Redactor(filled.secrets).text(error.text)) from None


async def _check(connection: Connection) -> str:
    if connection.kind == "sql":
        return await _check_database(connection)
    client: Client
    if connection.kind in _ENGINES:
        client = _engine_builder(connection.kind)(connection)
    else:
        client = _broker_builder(connection.kind)(connection)
    try:
        return await client.check()
    finally:
        await client.close()


async def _check_database(connection: Connection) -> str:
    if connection.url.startswith("sqlite"):
        return await asyncio.to_thread(_check_sqlite, connection.url)
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.ext.asyncio import create_async_engine

    try:
        engine = create_async_engine(_async_url(connection.url))
    except (SQLAlchemyError, ImportError) as error:
        raise TargetError("bad_connection", str(error)) from None
    try:
        async with engine.connect() as database:
            await database.execute(text("SELECT 1"))
        return _("database answers")
    except (SQLAlchemyError, OSError) as error:
        raise TargetError("unreachable", str(error).splitlines()[0]) from None
    finally:
        await engine.dispose()


def _check_sqlite(url: str) -> str:
    import sqlite3

    path = url.partition("://")[2].removeprefix("/")
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            database.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.Error as error:
        raise TargetError("unreachable", str(error)) from None
    return _("database answers")


def _async_url(url: str) -> str:
    scheme, _mark, rest = url.partition("://")
    name = scheme.partition("+")[0]
    drivers = {
        "postgresql": "postgresql+asyncpg",
        "postgres": "postgresql+asyncpg",
        "mariadb": "mariadb+asyncmy",
        "mysql": "mysql+asyncmy",
    }
    return f"{drivers[name]}://{rest}"
