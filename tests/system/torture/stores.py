"""The store of a torture run: a private durable server, or a file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers import start_mariadb, start_postgres, start_redis
from tests.servers.server import PrivateServer
from tests.system.torture.wire import MysqlWatch, PostgresWatch, RedisWatch, Watch

STORES = ("pg", "mariadb", "redis", "sqlite", "json")
#: Stores with a server.
SERVERS = ("pg", "mariadb", "redis")


class StoreRunner:
    """`url` connects without a proxy."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self._directory = directory
        self.server: PrivateServer | None = None
        self.url = ""

    def start(self) -> None:
        match self.name:
            case "pg" | "mariadb":
                begin = start_postgres if self.name == "pg" else start_mariadb
                server = begin(durable=True)
                assert isinstance(server, PrivateServer)
                self.server = server
                self.url = server.new_database()
            case "redis":
                redis = start_redis(durable=True)
                assert isinstance(redis, PrivateServer)
                self.server = redis
                self.url = redis.kind.url(redis.port, "0")
            case "sqlite":
                self.url = f"sqlite:///{self._directory / 'chimes.db'}"
            case _:
                self.url = f"json:///{self._directory / 'data'}"

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()

    @property
    def shared(self) -> bool:
        """Whether several processes may use it."""
        return self.name != "json"

    @property
    def watch(self) -> Callable[[], Watch]:
        watches = {"pg": PostgresWatch, "mariadb": MysqlWatch, "redis": RedisWatch}
        return watches[self.name]

    def through(self, port: int) -> str:
        """The URL through a proxy."""
        parts = urlsplit(self.url)
        user = f"{parts.username}@" if parts.username else ""
        return parts._replace(netloc=f"{user}127.0.0.1:{port}").geturl()

    def describe(self) -> str:
        if self.server is None:
            return f"sqlite {sqlite3.sqlite_version}" if self.name == "sqlite" else self.name
        if self.name == "redis":
            return "redis"
        ((version,),) = self.server.admin(
            "SHOW server_version" if self.name == "pg" else "SELECT version()"
        )
        return f"{self.name} {version}"

    async def harm(self, kind: str, seconds: float) -> None:
        assert self.server is not None
        match kind:
            case "restart_fast":
                await asyncio.to_thread(self.server.restart, "fast")
            case "restart_crash":
                await asyncio.to_thread(self.server.restart, "crash")
            case _:
                await asyncio.to_thread(self.server.pause)
                await asyncio.sleep(seconds)
                await asyncio.to_thread(self.server.resume)

    async def lock(self, seconds: float) -> None:
        """Holds the write lock of SQLite in another connection."""
        if self.name == "sqlite":
            await asyncio.to_thread(self._locked, seconds)

    def _locked(self, seconds: float) -> None:
        import time

        connection = sqlite3.connect(
            self._directory / "chimes.db", timeout=10, isolation_level=None
        )
        try:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")
        finally:
            connection.close()
