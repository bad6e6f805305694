"""Real database servers for tests, on free loopback ports, removed after the session.

Most tests share one server of each kind. The first test that needs it starts it, all xdist workers
use it, it is configured for speed (no fsync, data in memory where there is a tmpfs) and it ends
with the pytest session, also if that is killed. The fixtures `postgres_url` and `mariadb_url` of
tests/conftest.py give every test its own empty database:

    async def test_something(postgres_url: str) -> None:
        store = open_postgres(postgres_url)

    shared(POSTGRES).new_database()   # as the fixtures do; call `drop_database` at the end

A test that stops, kills or pauses a server starts a private one, with the settings of production
(`durable`: fsync on, data on disk). It ends with the process that started it:

    with start_postgres(durable=True) as server:
        url = server.new_database()
        server.kill9()
        server.restart()              # also "fast": an orderly shutdown first
        server.pause(); server.resume()
        server.admin("ALTER SYSTEM ...")   # as superuser; rows come back

The user in the URLs owns its databases and is not a superuser. If the binaries of a server are
missing, the tests that need it fail; tools/packages.sh installs them.
"""

from __future__ import annotations

from tests.servers.kinds import KINDS, MARIADB, NATS, POSTGRES, RABBITMQ, REDIS
from tests.servers.server import Server, start
from tests.servers.session import shared, stop_all

__all__ = [
    "KINDS",
    "MARIADB",
    "NATS",
    "POSTGRES",
    "RABBITMQ",
    "REDIS",
    "Server",
    "shared",
    "start",
    "start_mariadb",
    "start_postgres",
    "start_redis",
    "stop_all",
]


def start_postgres(*, durable: bool = False, settings: dict[str, str] | None = None) -> Server:
    return start(POSTGRES, durable=durable, settings=settings)


def start_mariadb(*, durable: bool = False, settings: dict[str, str] | None = None) -> Server:
    return start(MARIADB, durable=durable, settings=settings)


def start_redis(*, durable: bool = False, settings: dict[str, str] | None = None) -> Server:
    return start(REDIS, durable=durable, settings=settings)
