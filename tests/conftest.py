"""What every test may count on."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.ordering import dealt_out, is_slow
from tests.servers import MARIADB, POSTGRES, session
from tests.servers.kinds import Kind

# The same examples on every machine; CHIMES_HYPOTHESIS=search looks for new ones, longer.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", parent=settings.get_profile("default"), deadline=None)
settings.load_profile(os.environ.get("CHIMES_HYPOTHESIS", "repeatable"))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        session.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        session.stop_all()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All tests and what they import stay to the end, so nobody looks for rubbish among them:
    neither while they become more nor with each test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After they were shuffled, and in every worker alike."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if is_slow(item.nodeid)]
    items[:] = dealt_out(slow, [item for item in items if not is_slow(item.nodeid)], workers)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """An empty database on the session's PostgreSQL (see tests/servers)."""
    yield from _database(POSTGRES)


@pytest.fixture
def mariadb_url() -> Iterator[str]:
    """An empty database on the session's MariaDB (see tests/servers)."""
    yield from _database(MARIADB)


def _database(kind: Kind) -> Iterator[str]:
    server = session.shared(kind)
    url = server.new_database()
    yield url
    server.drop_database(url)
