from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.store_contract.stores import DURABLE, KINDS, SHARED, Home, StoreKind


@pytest.fixture(autouse=True)
def _patient(patient_store: None) -> None:
    """Applies to every store of these tests."""


def _name(kind: StoreKind) -> str:
    return kind.name


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture(params=KINDS, ids=_name)
async def home(
    request: pytest.FixtureRequest, tmp_path: Path, clock: SettableClock
) -> AsyncIterator[Home]:
    home = Home(request.param, tmp_path, clock)
    yield home
    await home.close()


@pytest.fixture
async def store(home: Home) -> Store:
    return await home.open()


@pytest.fixture(params=DURABLE, ids=_name)
async def durable_home(
    request: pytest.FixtureRequest, tmp_path: Path, clock: SettableClock
) -> AsyncIterator[Home]:
    home = Home(request.param, tmp_path, clock)
    yield home
    await home.close()


@pytest.fixture(params=SHARED, ids=_name)
async def shared_home(
    request: pytest.FixtureRequest, tmp_path: Path, clock: SettableClock
) -> AsyncIterator[Home]:
    home = Home(request.param, tmp_path, clock)
    yield home
    await home.close()
