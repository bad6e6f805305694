"""PostgreSQL server: connections, error mapping, LISTEN and NOTIFY."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit
from uuid import uuid4
from weakref import WeakKeyDictionary

import asyncpg
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import ExceptionContext

from chimes.config.location import host_list
from chimes.errors import ConfigError, StoreUnavailable
from chimes.i18n import _, joined
from chimes.store.sql.database.server import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    LOCK_SECONDS,
    POOL_SECONDS,
    SILENCE_SECONDS,
    STATEMENT_SECONDS,
    DatabaseErrorKind,
    Server,
)
from chimes.store.sql.dialects.postgres import PostgresDialect

_log = logging.getLogger(__name__)

RECYCLE_SECONDS = 600
#: Of a list of hosts, the next one is tried if the last one has not answered for this long.
NEXT_HOST_SECONDS = 0.3
_SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")
#: Session limits and settings; sent with the start of the session, so they cost no round trip.
_SESSION = {
    "application_name": "chimes",
    "timezone": "UTC",
    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "lock_timeout": f"{LOCK_SECONDS}s",
    # Rows are looked up by their keys. A sequential plan, chosen while a table is small, would be
    # cached and become slower with every row; JIT compilation costs more than it saves.
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "jit": "off",
    # The queries finish sooner than parallel workers start.
    "max_parallel_workers_per_gather": "0",
    # Server-side detection of clients that vanished.
    "tcp_user_timeout": f"{SILENCE_SECONDS}s",
    "tcp_keepalives_idle": f"{SILENCE_SECONDS}s",
}
#: Stops a statement whose client has died. PostgreSQL 14 and later, not on all platforms.
_CHECK = {"client_connection_check_interval": "500ms"}

#: The server and its timeline, which a promotion raises; a standby has none.
_HISTORY = (
    "SELECT (SELECT system_identifier FROM pg_control_system()),"
    " CASE WHEN pg_is_in_recovery() THEN ''"
    " ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END"
)
#: Values of `target_session_attrs` with which a store can work; the others select standbys.
_WRITABLE = ("read-write", "primary")

_CONFLICT = {"40001", "40P01", "55P03", "23505"}
_READ_ONLY = "25006"
#: Terminated backend, crash, timeouts that end the session, protocol errors.
_LOST = {"57P01", "57P02", "25P03", "57P05"}
#: Canceled (statement_timeout), starting up, wrong password, no such database.
_REFUSED = {"57014", "57P03", "28000", "28P01", "3D000", "42501"}
#: No connection left, no space, input/output.
_REFUSED_CLASSES = ("53", "58")


def normalized(url: str) -> str:
    """Normalizes the URL for the driver. `postgres://` and `postgresql+asyncpg://` are
    equivalent."""
    scheme, _unused, rest = url.partition("://")
    if scheme not in _SCHEMES or not rest:
        raise ConfigError(
            _(
                "{scheme}:// is not a PostgreSQL URL; write postgresql://host/database",
                scheme=scheme,
            )
        )
    return f"postgresql://{rest}"


#: A host of the URL and its port; None: the default port.
Host = tuple[str, int | None]


class NoWritableServer(Exception):
    """No host of the list accepts writes; the message has the reason of each."""


class ReplacedServer(Exception):
    """A former leader that still accepts writes, although another server has replaced it."""


class PostgresServer(Server):
    def __init__(self, url: str) -> None:
        """`?pooler=transaction` declares a pooler (PgBouncer) that assigns a connection per
        transaction: then sessions keep no state, that is no prepared statements, settings or
        LISTEN. The rest of the query part goes to the driver.

        Of a list of hosts (`postgresql://a:5432,b:5432/database`) the one that accepts writes is
        used, also after a fail-over."""
        self.dialect = PostgresDialect()
        url = normalized(url)
        #: The list of hosts; empty if there is only one, which is left to the driver.
        self._hosts = _several_hosts(url)
        if self._hosts:
            url = _with_one_host(url)
        parts = urlsplit(url)
        query = parse_qsl(parts.query)
        given = dict(query)
        pooler = given.get("pooler", "")
        if pooler not in ("", "transaction"):
            raise ConfigError(_("pooler={pooler}: only pooler=transaction is known", pooler=pooler))
        attributes = given.get("target_session_attrs", _WRITABLE[0] if self._hosts else "any")
        if attributes not in _WRITABLE and (self._hosts or attributes != "any"):
            raise ConfigError(
                _(
                    "store: target_session_attrs={given}: a store needs a server that accepts"
                    " writes; write target_session_attrs=read-write",
                    given=attributes,
                )
            )
        rest = urlencode([pair for pair in query if pair[0] != "pooler"])
        self._dsn = urlunsplit(parts._replace(query=rest))
        self._attributes = attributes
        self._pooled = bool(pooler)
        self._check = _CHECK
        self.location = _without_password(self._dsn, self._hosts)
        #: Sender id, so that a process ignores its own notifications.
        self._me = f"{os.getpid()}-{uuid4().hex[:12]}"
        #: The host of the list that accepted writes last, and the connections to each, of all
        #: event loops.
        self._leader: Host | None = None
        self._connections: WeakKeyDictionary[
            asyncpg.Connection, tuple[Host, asyncio.AbstractEventLoop]
        ] = WeakKeyDictionary()
        #: System identifier and newest timeline of the servers that this process has used.
        self._newest = (0, 0)
        self._lock = threading.Lock()

    # --- connections --------------------------------------------------------------------------
    def engine(self, *, size: int, overflow: int) -> Engine:
        options: dict[str, Any] = {"async_creator_fn": self._connect}
        if self._pooled:
            options |= {
                "prepared_statement_cache_size": 0,
                "prepared_statement_name_func": lambda: f"chimes_{uuid4().hex}",
            }
        engine = create_engine(
            "postgresql+asyncpg://",
            connect_args=options,
            pool_size=size,
            max_overflow=overflow,
            pool_timeout=POOL_SECONDS,
            # LIFO, so that the least used connections expire when there is little to do.
            pool_use_lifo=True,
            # Limits how long a session keeps a plan that was made when tables were small.
            pool_recycle=RECYCLE_SECONDS,
        )
        event.listen(engine, "handle_error", self._drop_lost_connection)
        return engine

    def _drop_lost_connection(self, context: ExceptionContext) -> None:
        """Drops connections to a server that rejects writes now, if there may be another one."""
        if self.error_kind(context.original_exception) is DatabaseErrorKind.LOST:
            context.is_disconnect = True

    def reading(self, engine: Engine) -> Engine:
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def querying(self, engine: Engine) -> Engine:
        return engine.execution_options(isolation_level="AUTOCOMMIT")

    async def _connect(self, **_unused: object) -> asyncpg.Connection:
        try:
            connection = await self._open_connection()
        except (asyncpg.UndefinedObjectError, asyncpg.InvalidParameterValueError):
            if not self._check:
                raise
            self._check = {}
            connection = await self._open_connection()
        _keep_alive(connection)
        return connection

    async def _open_connection(self) -> asyncpg.Connection:
        return await (self._open_writable() if self._hosts else self._open())

    async def _open_writable(self) -> asyncpg.Connection:
        """Connects to the host of the list that accepts writes.

        The last leader is tried first. While a host does not answer, the next one is tried beside
        it, so a host that has vanished delays a connection by NEXT_HOST_SECONDS only."""
        waiting = sorted(self._hosts, key=lambda host: host != self._leader)
        tried: dict[asyncio.Task[asyncpg.Connection], Host] = {}
        failed: dict[Host, Exception] = {}
        try:
            while waiting or len(failed) < len(tried):
                if waiting:
                    host = waiting.pop(0)
                    tried[asyncio.create_task(self._open_leader(host))] = host
                await asyncio.wait(
                    [task for task, host in tried.items() if host not in failed],
                    timeout=NEXT_HOST_SECONDS if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task, host in tried.items():
                    if host in failed or not task.done():
                        continue
                    try:
                        connection = task.result()
                    except Exception as error:
                        if _error_kind_of_one(error) is None:
                            raise
                        failed[host] = error
                    else:
                        del tried[task]
                        self._follow(host, connection)
                        return connection
        finally:
            await _abandon(tried)
        reasons = [f"{_shown(host)}: {_reason(error)}" for host, error in failed.items()]
        raise NoWritableServer(
            _("no server of the list accepts writes ({reasons})", reasons="; ".join(reasons))
        )

    async def _open_leader(self, host: Host) -> asyncpg.Connection:
        connection = await self._open(host)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                system, timeline = await connection.fetchrow(_HISTORY)
            self._check_history(int(system), int(timeline or "0", 16))
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _check_history(self, system: int, timeline: int) -> None:
        """Rejects a former leader: one that was paused or cut off accepts writes again until it
        learns that it was replaced, and what it accepts is lost."""
        with self._lock:
            known, newest = self._newest
            if system != known or timeline >= newest:
                self._newest = system, timeline
                return
        raise ReplacedServer(
            _(
                "it has timeline {timeline}, but timeline {newest} was in use; if it was restored"
                " on purpose, restart this node",
                timeline=timeline,
                newest=newest,
            )
        )

    def _follow(self, host: Host, connection: asyncpg.Connection) -> None:
        """Closes the connections to the former leader, which may be paused or cut off: calls that
        wait for its answer fail now and are retried."""
        with self._lock:
            former, self._leader = self._leader, host
            self._connections[connection] = host, asyncio.get_running_loop()
            abandoned = [
                (each, self._connections.pop(each)[1])
                for each, (of, _loop) in list(self._connections.items())
                if of != host
            ]
        if former not in (None, host):
            _log.warning("store: %s accepts writes now, no longer %s", _shown(host), _shown(former))
        for each, loop in abandoned:
            with contextlib.suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(each.terminate)

    async def _open(self, host: Host | None = None) -> asyncpg.Connection:
        settings = {"application_name": "chimes"} if self._pooled else {**_SESSION, **self._check}
        more: dict[str, Any] = {"statement_cache_size": 0} if self._pooled else {}
        if host is not None:
            more |= {"host": host[0], "port": host[1], "target_session_attrs": self._attributes}
        try:
            return await asyncpg.connect(
                self._dsn, timeout=CONNECT_SECONDS, server_settings=settings, **more
            )
        except ValueError as error:
            raise ConfigError(joined(": ", (self.location, str(error)))) from None

    # --- errors -------------------------------------------------------------------------------
    def error_kind(self, error: BaseException) -> DatabaseErrorKind | None:
        kind = next((found for each in _causes(error) if (found := _error_kind_of_one(each))), None)
        if kind is DatabaseErrorKind.READ_ONLY and self._attributes in _WRITABLE:
            # It was demoted: there is, or will be, another one.
            return DatabaseErrorKind.LOST
        return kind

    def unwritten(self, error: BaseException) -> bool:
        # A connection that is lost while waiting for an answer raises another error.
        return any(
            getattr(each, "sqlstate", None) == _READ_ONLY
            or (isinstance(each, asyncpg.InterfaceError) and "connection is closed" in str(each))
            for each in _causes(error)
        )

    # --- set-up and migration -----------------------------------------------------------------
    def lock_set_up(self, connection: Connection) -> None:
        schema = connection.exec_driver_sql("SELECT current_schema()").scalar()
        if schema is None:
            named = connection.exec_driver_sql("SHOW search_path").scalar()
            raise StoreUnavailable(
                _("none of the schemas in search_path ({named}) exists", named=named)
            )
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")

    def lock_migration(self, connection: Connection) -> bool:
        locked = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_LOCK_KEY})").scalar()
        return locked is True

    def prepare_migration(self, connection: Connection) -> None:
        connection.exec_driver_sql("SET statement_timeout = 0")
        connection.exec_driver_sql("SET lock_timeout = '2s'")

    def identity(self, connection: Connection) -> str:
        row = connection.exec_driver_sql(_HISTORY).one()
        return f"{row[0]}/{row[1]}"

    # --- waking -------------------------------------------------------------------------------
    async def wake_connection(self, on_wake: Callable[[], None]) -> PostgresWakeConnection | None:
        if self._pooled:
            return None
        connection = await self._connect()
        try:
            schema = await connection.fetchval("SELECT current_schema()")
            wake_connection = PostgresWakeConnection(connection, f"chimes_{schema}"[:63], self._me)
            await wake_connection.listen(on_wake)
        except BaseException:
            connection.terminate()
            raise
        return wake_connection


#: One lock for each schema of a database.
_LOCK_KEY = "hashtext('chimes'), hashtext(current_schema())"


class PostgresWakeConnection:
    def __init__(self, connection: asyncpg.Connection, channel: str, me: str) -> None:
        self.lost = asyncio.Event()
        self._connection = connection
        self._channel = channel
        self._me = me

    async def listen(self, on_wake: Callable[[], None]) -> None:
        def on_notification(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            if payload != self._me:
                on_wake()

        self._connection.add_termination_listener(lambda _unused: self.lost.set())
        await self._connection.add_listener(self._channel, on_notification)

    async def notify(self) -> None:
        await self._connection.execute("SELECT pg_notify($1, $2)", self._channel, self._me)

    async def close(self) -> None:
        with contextlib.suppress(Exception):
            await self._connection.close(timeout=1)
        self._connection.terminate()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the error and its causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = getattr(cause, "orig", None) or cause.__cause__


def _error_kind_of_one(error: BaseException) -> DatabaseErrorKind | None:
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        if state in _CONFLICT:
            return DatabaseErrorKind.CONFLICT
        if state == _READ_ONLY:
            return DatabaseErrorKind.READ_ONLY
        if state in _LOST or state.startswith("08"):
            return DatabaseErrorKind.LOST
        if state in _REFUSED or state.startswith(_REFUSED_CLASSES):
            return DatabaseErrorKind.REFUSED
        return None
    if isinstance(error, _UNUSABLE):
        return DatabaseErrorKind.REFUSED
    if isinstance(error, ConnectionRefusedError | socket.gaierror):
        return DatabaseErrorKind.REFUSED
    if isinstance(error, OSError):
        return DatabaseErrorKind.LOST
    # A connection that is cut in the middle of an answer makes the driver raise an internal error.
    ended = isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError)
    if ended and _CLOSED.search(str(error)):
        return DatabaseErrorKind.LOST
    return None


_UNUSABLE = (
    TimeoutError,
    NoWritableServer,
    ReplacedServer,
    asyncpg.TargetServerAttributeNotMatched,
)
_CLOSED = re.compile("closed|closing|terminat|another operation", re.IGNORECASE)


def _keep_alive(connection: asyncpg.Connection) -> None:
    """Enables TCP keepalive, to detect a server that vanished. The driver has no option for it, so
    this sets it on the socket, if accessible."""
    transport = getattr(connection, "_transport", None)
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    milliseconds = SILENCE_SECONDS * 1000
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_USER_TIMEOUT", milliseconds),
        ("TCP_KEEPIDLE", SILENCE_SECONDS),
        ("TCP_KEEPINTVL", 2),
        ("TCP_KEEPCNT", 3),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _several_hosts(url: str) -> tuple[Host, ...]:
    """The list of hosts in the URL; empty if there is only one."""
    hosts = host_list(url.partition("://")[2])
    if len(hosts) < 2:
        return ()
    if any(port and not port.isdecimal() for _host, port in hosts):
        raise ConfigError(
            _("the port of a host is not a number; write IPv6 addresses as [::1]:5432")
        )
    found = [(unquote(host), int(port) if port else None) for host, port in hosts]
    return tuple(dict.fromkeys(found))


def _with_one_host(url: str) -> str:
    """Replaces the list of hosts, which the standard library cannot parse if it has IPv6 addresses;
    the host is an argument of each connection."""
    scheme, _mark, rest = url.partition("://")
    where, question, query = rest.partition("?")
    credentials, at, place = where.rpartition("@")
    database = place.partition("/")[2]
    return f"{scheme}://{credentials}{at}localhost/{database}{question}{query}"


def _without_password(dsn: str, hosts: tuple[Host, ...]) -> str:
    parts = urlsplit(dsn)
    where = ",".join(map(_shown, hosts)) or parts.netloc.rpartition("@")[2]
    user = parts.username
    return f"postgresql://{f'{user}@' if user else ''}{where}{parts.path}"


def _shown(host: Host | None) -> str:
    name, port = host or ("", None)
    name = f"[{name}]" if ":" in name else name
    return f"{name}:{port}" if port else name


def _reason(error: Exception) -> str:
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return _("it is a standby or read-only")
    if isinstance(error, TimeoutError):
        return _("no answer within {seconds} s", seconds=f"{CONNECT_SECONDS:g}")
    return str(error) or type(error).__name__


async def _abandon(tried: dict[asyncio.Task[asyncpg.Connection], Host]) -> None:
    """Ends attempts to connect that are not needed any more."""
    for task in tried:
        task.cancel()
    for result in await asyncio.gather(*tried, return_exceptions=True):
        if isinstance(result, asyncpg.Connection):
            result.terminate()
