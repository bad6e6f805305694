from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chimes.config import Settings
from chimes.testing import SettableClock
from chimes.web.compat.kweaver.routes import kweaver_router
from tests.store_contract.stores import KINDS, Home, StoreKind
from tests.web.rig import Rig, serving


@pytest.fixture
async def kweaver() -> AsyncIterator[Rig]:
    """A server in open mode on the memory store."""
    async with serving(routers=[kweaver_router]) as rig:
        yield rig


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def on_any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    kind: StoreKind = request.param
    clock = SettableClock()
    home = Home(kind, tmp_path, clock)
    store = await home.open()
    try:
        async with serving(store, clock, routers=[kweaver_router]) as rig:
            yield rig
    finally:
        await home.close()


@pytest.fixture
async def with_keys() -> AsyncIterator[Rig]:
    """A server with keys and an internal token."""
    settings = Settings(requests_per_second=1000, internal_token="inside")
    async with serving(routers=[kweaver_router], fixed_keys=["root"], settings=settings) as rig:
        yield rig
