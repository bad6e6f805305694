"""A node that starts while its server is being started again (F21)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chimes.clock import SystemClock
from chimes.config import StoreLocation
from chimes.errors import ConfigError, StoreLost, StoreUnavailable
from chimes.runtime import serve as store_away
from chimes.runtime.serve import once_there

SERVER = StoreLocation(kind="postgresql", server="postgresql://db/chimes")
FILE = StoreLocation(kind="sqlite", path=Path("chimes.db"))


class Store:
    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.asked = 0

    async def open(self) -> str:
        self.asked += 1
        if self._failures:
            raise self._failures.pop(0)
        return "open"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_away, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(store_away, "LONGEST_PAUSE", 0.002)


def away() -> StoreUnavailable:
    return StoreUnavailable("the database system is starting up")


async def test_a_server_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    store = Store(away(), away(), away())
    assert await once_there(SERVER, SystemClock(), store.open) == "open"
    assert store.asked == 4
    assert caplog.text.count("cannot be used yet") == 1


async def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_away, "PATIENCE", 0.05)
    store = Store(*(away() for _ in range(1000)))
    with pytest.raises(StoreUnavailable, match="starting up"):
        await once_there(SERVER, SystemClock(), store.open)
    assert 1 < store.asked < 1000


@pytest.mark.parametrize(
    ("location", "error"),
    [
        (FILE, away),
        (SERVER, lambda: StoreLost("emptied")),
        (SERVER, lambda: ConfigError("no such driver")),
    ],
    ids=["a file", "lost data", "a mistake"],
)
async def test_what_does_not_pass_is_said_at_once(
    location: StoreLocation, error: Callable[[], Exception]
) -> None:
    store = Store(error())
    with pytest.raises((StoreUnavailable, ConfigError)):
        await once_there(location, SystemClock(), store.open)
    assert store.asked == 1
