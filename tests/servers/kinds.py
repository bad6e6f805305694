"""The kinds of servers: where their binaries are, how to set them up and start them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from signal import SIGINT, SIGQUIT, SIGTERM, Signals
from typing import Any, ClassVar

HOST = "127.0.0.1"
#: The owner of the databases of the tests, not a superuser.
USER = "chimes"

Row = tuple[Any, ...]


class MissingServer(Exception):
    """The binaries of a server are missing; tools/packages.sh installs them."""


class Kind(ABC):
    name: ClassVar[str]
    #: The user that it runs as if the tests run as root.
    system_user: ClassVar[str]
    #: Shuts it down without waiting for clients.
    stop_signal: ClassVar[Signals]
    #: Sent to it when its parent dies.
    orphan_signal: ClassVar[Signals]

    @abstractmethod
    def set_up(self, directory: Path, as_user: list[str]) -> None:
        """Creates the data directory; `as_user` is the prefix of each command."""

    @abstractmethod
    def command(
        self, directory: Path, port: int, durable: bool, settings: dict[str, str]
    ) -> list[str]: ...

    @abstractmethod
    def url(self, port: int, database: str) -> str: ...

    @abstractmethod
    async def admin(self, port: int, statements: tuple[str, ...]) -> list[Row]:
        """Runs statements as superuser in autocommit and returns the rows of the last."""

    @abstractmethod
    async def prepare(self, port: int) -> None:
        """Runs once, after the first start."""

    async def create_database(self, port: int, name: str) -> None:
        await self.admin(port, (f"CREATE DATABASE {name}",))

    @abstractmethod
    async def drop_database(self, port: int, name: str) -> None: ...


class Postgres(Kind):
    name = "postgres"
    system_user = "postgres"
    stop_signal = SIGINT
    orphan_signal = SIGQUIT

    FAST: ClassVar = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

    def set_up(self, directory: Path, as_user: list[str]) -> None:
        options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]
        data = str(directory / "data")
        _run([*as_user, _postgres_binary("initdb"), "-D", data, *options], directory)

    def command(
        self, directory: Path, port: int, durable: bool, settings: dict[str, str]
    ) -> list[str]:
        chosen = {
            "port": str(port),
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "max_connections": "300",
            "shared_buffers": "64MB",
            "max_wal_senders": "0",
            "wal_level": "minimal",
            **({} if durable else self.FAST),
            **settings,
        }
        options = [f"--{name}={value}" for name, value in chosen.items()]
        return [_postgres_binary("postgres"), "-D", str(directory / "data"), *options]

    def url(self, port: int, database: str) -> str:
        return f"postgresql://{USER}@{HOST}:{port}/{database}"

    async def admin(self, port: int, statements: tuple[str, ...]) -> list[Row]:
        import asyncpg

        connection = await asyncpg.connect(
            host=HOST, port=port, user="postgres", database="postgres", ssl=False, timeout=10
        )
        rows: list[Any] = []
        try:
            for statement in statements:
                rows = await connection.fetch(statement, timeout=60)
        finally:
            await connection.close(timeout=10)
        return [tuple(row) for row in rows]

    async def prepare(self, port: int) -> None:
        await self.admin(port, (f"CREATE ROLE {USER} LOGIN",))

    async def create_database(self, port: int, name: str) -> None:
        # Twice as fast as writing every page to the log.
        await self.admin(
            port, (f"CREATE DATABASE {name} OWNER {USER} TEMPLATE template0 STRATEGY file_copy",)
        )

    async def drop_database(self, port: int, name: str) -> None:
        await self.admin(port, (f"DROP DATABASE IF EXISTS {name} WITH (FORCE)",))


class Mariadb(Kind):
    name = "mariadb"
    system_user = "mysql"
    stop_signal = SIGTERM
    orphan_signal = Signals.SIGKILL

    FAST: ClassVar = {
        "innodb_flush_log_at_trx_commit": "0",
        "innodb_doublewrite": "0",
        "innodb_fast_shutdown": "2",
    }

    def set_up(self, directory: Path, as_user: list[str]) -> None:
        options = [
            f"--datadir={directory / 'data'}",
            f"--tmpdir={directory}",
            "--auth-root-authentication-method=normal",
        ]
        command = [_binary("mariadb-install-db"), "--no-defaults", "--skip-test-db", *options]
        _run([*as_user, *command], directory)

    def command(
        self, directory: Path, port: int, durable: bool, settings: dict[str, str]
    ) -> list[str]:
        chosen = {
            "port": str(port),
            "bind_address": HOST,
            "datadir": str(directory / "data"),
            # A starting server deletes the temporary tables that it finds, also of other servers.
            "tmpdir": str(directory),
            "socket": str(directory / "socket"),
            "pid_file": str(directory / "pid"),
            "skip_name_resolve": "1",
            "max_connections": "500",
            "innodb_buffer_pool_size": "128M",
            "innodb_log_file_size": "96M" if durable else "24M",
            "innodb_use_native_aio": "0",
            **({} if durable else self.FAST),
            **settings,
        }
        options = [f"--{name}={value}" for name, value in chosen.items()]
        return [_binary("mariadbd"), "--no-defaults", *options]

    def url(self, port: int, database: str) -> str:
        return f"mariadb://{USER}@{HOST}:{port}/{database}"

    async def admin(self, port: int, statements: tuple[str, ...]) -> list[Row]:
        import asyncmy

        connection = await asyncmy.connect(
            host=HOST, port=port, user="root", autocommit=True, connect_timeout=10
        )
        rows: list[Row] = []
        try:
            async with connection.cursor() as cursor:
                for statement in statements:
                    await cursor.execute(statement)
                    rows = [tuple(row) for row in await cursor.fetchall() or ()]
        finally:
            await connection.ensure_closed()
        return rows

    async def prepare(self, port: int) -> None:
        await self.admin(
            port,
            (
                f"CREATE USER {USER}@'%'",
                # Without SUPER and READ_ONLY ADMIN, so that `read_only` applies.
                rf"GRANT ALL ON `chimes\_%`.* TO {USER}@'%'",
            ),
        )

    async def drop_database(self, port: int, name: str) -> None:
        # A connection that a test left open may still hold locks on its tables.
        using = f"SELECT id FROM information_schema.processlist WHERE db = '{name}'"
        for (connection,) in await self.admin(port, (using,)):
            with contextlib.suppress(Exception):  # it has just ended
                await self.admin(port, (f"KILL SOFT CONNECTION {connection}",))
        await self.admin(port, ("SET lock_wait_timeout = 10", f"DROP DATABASE IF EXISTS {name}"))


class Redis(Kind):
    name = "redis"
    system_user = "redis"
    stop_signal = SIGTERM
    orphan_signal = Signals.SIGKILL

    def set_up(self, directory: Path, as_user: list[str]) -> None:
        (directory / "data").mkdir()
        shutil.chown(directory / "data", directory.owner())

    def command(
        self, directory: Path, port: int, durable: bool, settings: dict[str, str]
    ) -> list[str]:
        chosen = {
            "port": str(port),
            "bind": HOST,
            "dir": str(directory / "data"),
            "save": "",
            "databases": "64",
            # Chimes requires it, and with data in memory it costs little.
            "appendonly": "yes",
            "appendfsync": "always",
            **settings,
        }
        options = [word for name, value in chosen.items() for word in (f"--{name}", value)]
        return [_binary("redis-server"), *options]

    def url(self, port: int, database: str) -> str:
        return f"redis://{HOST}:{port}/{database}"

    async def admin(self, port: int, statements: tuple[str, ...]) -> list[Row]:
        import asyncio

        reader, writer = await asyncio.wait_for(asyncio.open_connection(HOST, port), 10)
        answers: list[Row] = []
        try:
            for statement in statements:
                writer.write(statement.encode() + b"\r\n")
                answer = await asyncio.wait_for(reader.readline(), 10)
                if answer.startswith(b"-"):
                    raise RuntimeError(answer.decode().strip())
                answers = [(answer.decode().strip(),)]
        finally:
            writer.close()
            await writer.wait_closed()
        return answers

    async def prepare(self, port: int) -> None:
        pass

    async def create_database(self, port: int, name: str) -> None:
        raise NotImplementedError("a database of Redis is a number or a prefix of the user's")

    async def drop_database(self, port: int, name: str) -> None:
        raise NotImplementedError("a database of Redis is a number or a prefix of the user's")


class Broker(Kind):
    """A broker has no databases; `admin` only finds out whether it answers."""

    #: What is sent, and how the answer begins.
    greeting: ClassVar[bytes]
    answer: ClassVar[bytes]

    async def admin(self, port: int, statements: tuple[str, ...]) -> list[Row]:
        import asyncio

        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(self.greeting)
                found = await reader.readexactly(len(self.answer))
            finally:
                writer.close()
        if found != self.answer:
            raise RuntimeError(f"{self.name} answers {found!r}")
        return []

    async def prepare(self, port: int) -> None:
        pass

    async def create_database(self, port: int, name: str) -> None:
        raise NotImplementedError("a broker has no databases")

    async def drop_database(self, port: int, name: str) -> None:
        raise NotImplementedError("a broker has no databases")


class Rabbitmq(Broker):
    """Takes five seconds to start, so that all tests share one. Its port mapper (epmd) runs on a
    port of its own, and ends with it."""

    name = "rabbitmq"
    system_user = "rabbitmq"
    stop_signal = SIGTERM
    orphan_signal = Signals.SIGKILL
    greeting = b"AMQP\x00\x00\x09\x01"
    #: A frame of type `method` on channel 0.
    answer = b"\x01\x00\x00"

    def set_up(self, directory: Path, as_user: list[str]) -> None:
        (directory / "plugins").write_text("[].")
        _binary("epmd")

    def command(
        self, directory: Path, port: int, durable: bool, settings: dict[str, str]
    ) -> list[str]:
        server = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        if not server.exists():
            raise MissingServer("rabbitmq-server is not installed; tools/packages.sh installs it")
        # The ports after that of the server are below those that Linux gives to clients.
        distribution, mapper = port + 1, port + 2
        variables = {
            "HOME": str(directory),
            "PATH": os.environ.get("PATH", ""),
            # The script replaces itself by the server, which gets the signals then.
            "RUNNING_UNDER_SYSTEMD": "1",
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": f"chimes{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(directory / "none"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none.sh"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}"
            ),
        }
        mapper_command = f"epmd -port {mapper} -address {HOST}"
        script = f"setpriv --pdeathsig=KILL {mapper_command} & exec {server}"
        listed = [f"{name}={value}" for name, value in variables.items()]
        return ["env", "-i", *listed, "sh", "-c", script]

    def url(self, port: int, database: str) -> str:
        return f"amqp://guest:guest@{HOST}:{port}/{database}"


class Nats(Broker):
    name = "nats"
    system_user = "nats"
    stop_signal = SIGTERM
    orphan_signal = Signals.SIGKILL
    greeting = b""
    answer = b"INFO {"

    def set_up(self, directory: Path, as_user: list[str]) -> None:
        (directory / "data").mkdir()
        shutil.chown(directory / "data", directory.owner())

    def command(
        self, directory: Path, port: int, durable: bool, settings: dict[str, str]
    ) -> list[str]:
        data = str(directory / "data")
        return [_binary("nats-server"), "-a", HOST, "-p", str(port), "-js", "-sd", data]

    def url(self, port: int, database: str) -> str:
        return f"nats://{HOST}:{port}"


POSTGRES, MARIADB, REDIS = Postgres(), Mariadb(), Redis()
RABBITMQ, NATS = Rabbitmq(), Nats()
KINDS: dict[str, Kind] = {kind.name: kind for kind in (POSTGRES, MARIADB, REDIS, RABBITMQ, NATS)}


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{command} failed:\n{done.stdout}\n{done.stderr}")


def _binary(name: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise MissingServer(f"{name} is not installed; tools/packages.sh installs what tests need")
    return found


def _postgres_binary(name: str) -> str:
    """Debian has one folder per version, outside the PATH."""
    folders = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / name).exists()]
    if folders:
        return str(max(folders, key=_version) / name)
    return _binary(name)


def _version(folder: Path) -> int:
    number = re.match(r"\d+", folder.parent.name)
    return int(number[0]) if number else 0
