"""A node that starts while its database server restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chimes.clock import SystemClock
from chimes.config import StoreLocation
from chimes.errors import ConfigError, StoreLost, StoreUnavailable
from chimes.runtime import serve as serve_module
from chimes.runtime.serve import retry_startup

SERVER = StoreLocation(kind="postgresql", server="postgresql://db/chimes")
FILE = StoreLocation(kind="sqlite", path=Path("chimes.db"))


class Store:
    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.calls = 0

    async def open(self) -> str:
        self.calls += 1
        if self._failures:
            raise self._failures.pop(0)
        return "open"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "MIN_PAUSE", 0.001)
    monkeypatch.setattr(serve_module, "MAX_PAUSE", 0.002)


def unavailable() -> StoreUnavailable:
    return StoreUnavailable("the database system is starting up")


async def test_an_unavailable_server_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(unavailable(), unavailable(), unavailable())
    assert await retry_startup(SERVER, SystemClock(), store.open) == "open"
    assert store.calls == 4
    assert caplog.text.count("unavailable; retrying") == 1


async def test_retries_end_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "STARTUP_TIMEOUT", 0.05)
    store = Store(*(unavailable() for _ in range(1000)))
    with pytest.raises(StoreUnavailable, match="starting up"):
        await retry_startup(SERVER, SystemClock(), store.open)
    assert 1 < store.calls < 1000


@pytest.mark.parametrize(
    ("location", "error"),
    [
        (FILE, unavailable),
        (SERVER, lambda: StoreLost("emptied")),
        (SERVER, lambda: ConfigError("no such driver")),
    ],
    ids=["a file", "lost data", "a mistake"],
)
async def test_permanent_errors_are_raised_immediately(
    location: StoreLocation, error: Callable[[], Exception]
) -> None:
    store = Store(error())
    with pytest.raises((StoreUnavailable, ConfigError)):
        await retry_startup(location, SystemClock(), store.open)
    assert store.calls == 1
