from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sdk.process import Start, Worker
from tests.servers import POSTGRES, session
from tests.servers.copies import copied_database
from tests.servers.redis_places import empty_redis_url
from tests.store_contract.stores import empty_sqlite

#: Stores that several processes can share.
SHARED = ("sqlite", "postgresql", "mariadb")
ALL = ("memory", *SHARED)


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Isolates tests from the settings of the machine."""
    for name in list(os.environ):
        if name.startswith("CHIMES_") and not name.startswith("CHIMES_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A database with the schema already created."""
    url = copied_database()
    yield url
    session.shared(POSTGRES).drop_database(url)


def store_url(request: pytest.FixtureRequest, kind: str) -> str:
    match kind:
        case "memory":
            return "memory://"
        case "sqlite":
            path: Path = request.getfixturevalue("tmp_path") / "chimes.db"
            path.write_bytes(empty_sqlite())
            return f"sqlite:///{path}"
        case "postgresql":
            found: str = request.getfixturevalue("postgres_url")
            return found
        case "redis":
            return empty_redis_url()
        case _:
            there: str = request.getfixturevalue("mariadb_url")
            return there


@pytest.fixture(params=ALL)
def url(request: pytest.FixtureRequest) -> str:
    """A store of each kind that the SDK supports."""
    return store_url(request, request.param)


@pytest.fixture(params=SHARED)
def shared_url(request: pytest.FixtureRequest) -> str:
    return store_url(request, request.param)


@pytest.fixture
def sqlite_url(request: pytest.FixtureRequest) -> str:
    return store_url(request, "sqlite")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `chimes worker` or `chimes serve` in `tmp_path`; stops remaining ones by pid."""
    started: list[Worker] = []

    def run(*arguments: str, executed: bool = False, **environment: str) -> Worker:
        process = Worker(arguments, tmp_path, environment, executed=executed)
        started.append(process)
        return process

    yield run
    for process in started:
        process.close()
