from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chimes.testing import SettableClock
from tests.store_contract.stores import KINDS, Home, StoreKind
from tests.web.rig import Rig, serving


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """A server in open mode on the memory store."""
    async with serving() as rig:
        yield rig


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def any_rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A server in open mode, once per store."""
    kind: StoreKind = request.param
    clock = SettableClock()
    home = Home(kind, tmp_path, clock)
    store = await home.open()
    try:
        async with serving(store, clock) as rig:
            yield rig
    finally:
        await home.close()
