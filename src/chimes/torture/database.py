"""The database under test: what it contains, its clock and version, locks and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from chimes.config import Settings, StoreLocation, masked_store_url, store_location
from chimes.errors import Conflict, InvalidInput, StoreUnavailable
from chimes.i18n import _
from chimes.torture.proxy import MysqlWatch, PostgresWatch, RedisWatch, Watch

_WATCHES: dict[str, type[Watch]] = {
    "postgresql": PostgresWatch,
    "mariadb": MysqlWatch,
    "redis": RedisWatch,
}
_PORTS = {"postgresql": 5432, "mariadb": 3306, "redis": 6379}
#: Modes of TLS that check the name of the host, which a proxy changes.
_CHECKS_HOST = ("verify-full",)
_RESTART_SECONDS = 180.0
_CONTENTS = {
    "postgresql": (
        "SELECT count(*) FROM information_schema.tables"
        " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
    ),
    "mariadb": ("SELECT count(*) FROM information_schema.tables WHERE table_schema = database()"),
}
_CLOCKS = {
    "postgresql": "SELECT clock_timestamp() AT TIME ZONE 'UTC'",
    "mariadb": "SELECT UTC_TIMESTAMP(6)",
}
_VERSIONS = {"postgresql": "SHOW server_version", "mariadb": "SELECT VERSION()"}
_OBJECTS = {
    "postgresql": (
        "SELECT format('DROP %s IF EXISTS %I.%I CASCADE', CASE relkind WHEN 'v' THEN 'VIEW'"
        " WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,"
        " current_schema(), relname) FROM pg_class"
        " WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r','p','v','m','S')"
        " ORDER BY relkind = 'S'"
    ),
    "mariadb": (
        "SELECT CONCAT('DROP ', IF(table_type = 'VIEW', 'VIEW', 'TABLE'), ' IF EXISTS `',"
        " table_name, '`') FROM information_schema.tables WHERE table_schema = database()"
    ),
}


class Database:
    """`url` connects without a proxy."""

    def __init__(self, url: str, *, restart_command: str = "") -> None:
        self.location: StoreLocation = store_location(Settings(store=url))
        self.kind = self.location.kind
        if self.kind == "memory":
            raise InvalidInput(_("A memory store cannot be shared by processes"), field="store")
        self.url = self.location.url
        self.restart_command = restart_command
        self._parts = urlsplit(self.url)
        if "," in self._parts.netloc:
            raise InvalidInput(
                _("--store must name one host, because a proxy stands before it"), field="store"
            )
        self.host = self._parts.hostname or "127.0.0.1"
        self._options = {name: each[-1] for name, each in parse_qs(self._parts.query).items()}
        #: Whether the nodes reach it through proxies.
        self.proxied = self.kind in _WATCHES and not self._checks_host()
        #: Whether commits can be recognised in what is sent.
        self.readable = self.proxied

    def _checks_host(self) -> bool:
        local = self.host.startswith("/") or "host" in self._options
        named = self._options.get("sslmode") in _CHECKS_HOST
        checked = self._options.get("ssl_cert_reqs") != "none"
        return local or named or (self._parts.scheme == "rediss" and checked)

    @property
    def shown(self) -> str:
        return masked_store_url(self.url)

    @property
    def port(self) -> int:
        return self._parts.port or _PORTS[self.kind]

    @property
    def watch(self) -> Callable[[], Watch]:
        return _WATCHES[self.kind]

    def through(self, port: int) -> str:
        """The URL through a proxy of this machine."""
        credentials = self._parts.netloc.rpartition("@")[0]
        netloc = f"{credentials}@127.0.0.1:{port}" if credentials else f"127.0.0.1:{port}"
        found = self._parts._replace(netloc=netloc)
        if self.kind == "postgresql" and self.readable and "sslmode" not in self._options:
            query = f"{found.query}&sslmode=disable" if found.query else "sslmode=disable"
            found = found._replace(query=query)
        return found.geturl()

    # --- contents -----------------------------------------------------------------------------
    async def check_empty(self) -> None:
        """Raises Conflict for a database that contains anything."""
        found = await self._contents()
        if found:
            raise Conflict(
                _(
                    "{store} is not empty ({found}). chimes torture fills a database with test"
                    " data and kills its nodes: create an empty one for it",
                    store=self.shown,
                    found=found,
                )
            )
        if self.kind == "postgresql" and self.readable:
            self.readable = self._options.get("sslmode", "disable") == "disable" and (
                "sslmode" in self._options or await self._accepts_plain_text()
            )
        elif self._parts.scheme == "rediss" or "ssl" in self._options:
            self.readable = False

    async def _contents(self) -> str:
        path = self.location.path
        match self.kind:
            case "postgresql" | "mariadb":
                ((count,),) = await self._query(_CONTENTS[self.kind])
                return f"{count} tables" if count else ""
            case "redis":
                count = int((await self._redis("DBSIZE")) or 0)
                return f"{count} keys" if count else ""
            case "sqlite":
                assert path is not None
                return f"{path.stat().st_size} bytes" if _size(path) else ""
            case _:
                assert path is not None
                names = sorted(each.name for each in path.iterdir()) if path.is_dir() else []
                return ", ".join(names[:3])

    async def drop(self) -> None:
        """Removes what the run has made. The database was empty before, so that is everything."""
        path = self.location.path
        match self.kind:
            case "postgresql" | "mariadb":
                rows = await self._query(_OBJECTS[self.kind])
                before = ["SET FOREIGN_KEY_CHECKS = 0"] if self.kind == "mariadb" else []
                await self._execute([*before, *(str(row[0]) for row in rows)])
            case "redis":
                await self._redis("FLUSHDB")
            case "sqlite":
                assert path is not None
                for each in path.parent.glob(f"{path.name}*"):
                    each.unlink()
            case _:
                assert path is not None
                for each in path.iterdir():
                    shutil.rmtree(each) if each.is_dir() else each.unlink()

    async def version(self) -> str:
        match self.kind:
            case "postgresql" | "mariadb":
                ((found,),) = await self._query(_VERSIONS[self.kind])
                return f"{self.kind} {str(found).partition(' ')[0]}"
            case "redis":
                lines = str(await self._redis("INFO", "server")).splitlines()
                number = [each for each in lines if each.startswith("redis_version:")]
                return f"redis {number[0].partition(':')[2]}" if number else "redis"
            case "sqlite":
                return f"sqlite {sqlite3.sqlite_version}"
            case _:
                return "json"

    async def clock_offset(self) -> int:
        """Microseconds by which its clock is ahead of this machine's."""
        if self.kind not in _WATCHES:
            return 0
        before = time.time_ns() // 1000
        if self.kind == "redis":
            seconds, micros = await self._redis("TIME")
            theirs = int(seconds) * 1_000_000 + int(micros)
            after = time.time_ns() // 1000
        else:
            # The second answer, because the first one includes the time of connecting.
            rows = await self._query(_CLOCKS[self.kind], _CLOCKS[self.kind])
            after = time.time_ns() // 1000
            now: datetime = rows[0][0]
            theirs = round(now.replace(tzinfo=UTC).timestamp() * 1_000_000)
            before = after
        return theirs - (before + after) // 2

    # --- faults -------------------------------------------------------------------------------
    async def restart(self) -> None:
        """Runs the command of the user that restarts the server."""
        process = await asyncio.create_subprocess_shell(
            self.restart_command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(_RESTART_SECONDS):
                output, _error = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise InvalidInput(
                _("--restart-command did not end within {seconds} s", seconds=_RESTART_SECONDS),
                field="restart_command",
            ) from None
        if process.returncode:
            raise InvalidInput(
                _(
                    "--restart-command failed with {code}: {output}",
                    code=process.returncode,
                    output=output.decode(errors="replace")[-500:],
                ),
                field="restart_command",
            )

    async def lock(self, seconds: float) -> None:
        """Holds the write lock of SQLite in another connection."""
        await asyncio.to_thread(self._locked, seconds)

    def _locked(self, seconds: float) -> None:
        assert self.location.path is not None
        # A node may be suspended while it holds the lock itself.
        connection = sqlite3.connect(self.location.path, timeout=60, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")
        finally:
            connection.close()

    # --- queries ------------------------------------------------------------------------------
    async def _query(self, *statements: str) -> Sequence[Sequence[Any]]:
        """The rows of the last statement."""
        return await self._run(statements, self.url)

    async def _execute(self, statements: Iterable[str]) -> None:
        await self._run(tuple(statements), self.url, rows=False)

    async def _accepts_plain_text(self) -> bool:
        with contextlib.suppress(StoreUnavailable):
            separator = "&" if "?" in self.url else "?"
            await self._run(("SELECT 1",), f"{self.url}{separator}sslmode=disable")
            return True
        return False

    async def _run(
        self, statements: Sequence[str], url: str, *, rows: bool = True
    ) -> Sequence[Sequence[Any]]:
        from sqlalchemy.util import greenlet_spawn

        from chimes.store.sql.database.mariadb import MariadbServer
        from chimes.store.sql.database.postgres import PostgresServer
        from chimes.store.sql.database.server import Server

        server: Server = MariadbServer(url) if self.kind == "mariadb" else PostgresServer(url)
        engine = server.engine(size=1, overflow=0)

        def run() -> list[Any]:
            found: list[Any] = []
            with engine.connect() as connection:
                for statement in statements:
                    result = connection.exec_driver_sql(statement)
                    found = list(result.all()) if rows else []
                connection.commit()
            return found

        try:
            return await greenlet_spawn(run)
        except Exception as error:
            if server.error_kind(error) is None:
                raise
            reason = getattr(error, "orig", None) or error
            raise StoreUnavailable(f"{server.location}: {reason}") from None
        finally:
            await greenlet_spawn(engine.dispose)

    async def _redis(self, *words: str) -> Any:
        from chimes.store.redis.connection import Connections, parse_address

        connections = Connections(parse_address(self.url))
        connections.open()
        try:
            found = await connections.command(*words)
        finally:
            await connections.close()
        return found.decode() if isinstance(found, bytes) else found


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
