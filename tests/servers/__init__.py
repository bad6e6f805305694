"""Real database servers for the tests: thrown away afterwards, on free loopback ports.

For most tests one server of each kind is enough. It starts when the first test asks for it, is
shared by all xdist workers, runs with settings for speed (no fsync, data in memory where there is
a tmpfs) and ends with the pytest session, also when that is killed. The fixtures `postgres_url`
and `mariadb_url` of tests/conftest.py give every test an empty database of its own:

    async def test_something(postgres_url: str) -> None:
        store = open_postgres(postgres_url)

    shared(POSTGRES).new_database()   # what the fixtures do; `drop_database` in the end

A test that stops, kills or pauses its server starts a private one, with the settings of
production (`durable`: fsync on, data on disk). It ends with the process that started it:

    with start_postgres(durable=True) as server:
        url = server.new_database()
        server.kill9()
        server.restart()              # also "fast": an orderly shutdown first
        server.pause(); server.resume()
        server.admin("ALTER SYSTEM ...")   # as superuser; rows come back

The user of the URLs owns its databases and is no superuser. A server whose binaries are missing
fails the tests that need it; tools/packages.sh says what to install.
"""

from __future__ import annotations

from tests.servers.kinds import KINDS, MARIADB, POSTGRES, REDIS
from tests.servers.server import Server, start
from tests.servers.session import shared, stop_all

__all__ = [
    "KINDS",
    "MARIADB",
    "POSTGRES",
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
