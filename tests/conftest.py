"""Set-up of the test session: servers, order and selection of tests, databases for each test."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest

from tests import examples
from tests.bytecode import compile_all
from tests.ordering import distribute, is_slow
from tests.selection import is_everything, split
from tests.servers import MARIADB, POSTGRES, session
from tests.servers.kinds import Kind

# Stores on servers need a key to encrypt secrets; processes that tests start inherit it.
os.environ.setdefault("CHIMES_SECRET_KEY", "p9U0xkCq3vJ1mYwN8sT5bHfR2dLgZoE7iAaX6uVtKyM=")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        action="store_true",
        default=os.environ.get("CHIMES_TEST_LONG") == "1",
        help="run every test on every store, as `make test-all` does (see tests/selection.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with SIGINT ignored. Processes that tests start inherit that,
    # and would not end when a test interrupts them.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    examples.choose(everything=is_everything(config))
    if not hasattr(config, "workerinput"):
        if config.getoption("numprocesses", None):
            compile_all(config)
        session.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and session.has_begun():
        session.stop_all()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collected tests live until the end of the session, so the garbage collector skips them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs after the shuffle of pytest-randomly, with the same result in every worker."""
    if not is_everything(config):
        items[:], left_out = split(items)
        config.hook.pytest_deselected(items=left_out)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if is_slow(item.nodeid)]
    quick = [item for item in items if not is_slow(item.nodeid)]
    items[:] = distribute(slow, quick, workers, lambda item: item.path)


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


@pytest.fixture
def patient_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer timeouts of connections, locks and transactions, for tests that are not about them.

    A connection may take seconds while other tests use the machine, and so may the transactions of
    twenty concurrent callers that wait for the same lock.
    """
    from chimes.store.sql.database import mariadb, postgres, server, sqlite

    monkeypatch.setattr(server, "UNIT_SECONDS", 60.0)
    monkeypatch.setattr(server, "RETRY_SECONDS", 60.0)
    monkeypatch.setattr(sqlite, "LOCK_SECONDS", 60.0)
    for limit in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
        monkeypatch.setitem(postgres._SESSION, limit, "60s")
    longer = (
        "SET SESSION innodb_lock_wait_timeout = 60, lock_wait_timeout = 60,"
        " max_statement_time = 60, idle_transaction_timeout = 60"
    )
    monkeypatch.setattr(mariadb, "_SESSION", (*mariadb._SESSION, longer))
    for database in (mariadb, postgres):
        monkeypatch.setattr(database, "CONNECT_SECONDS", 30.0)
        monkeypatch.setattr(database, "POOL_SECONDS", 30.0)
