from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chimes.config import Settings
from chimes.services.access import OwnerQuotas
from chimes.services.schedules.rules import Limits
from chimes.testing import SettableClock
from chimes.web.compat.softnix.routes import softnix_router
from tests.store_contract.stores import KINDS, Home, StoreKind
from tests.web.rig import Rig, serving

QUOTAS = OwnerQuotas(schedules=1000, active=None, auth_enabled=True)


@pytest.fixture
async def softnix() -> AsyncIterator[Rig]:
    """A server in open mode on the memory store."""
    async with serving(routers=[softnix_router]) as rig:
        yield rig


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def on_any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    kind: StoreKind = request.param
    clock = SettableClock()
    home = Home(kind, tmp_path, clock)
    store = await home.open()
    try:
        async with serving(store, clock, routers=[softnix_router]) as rig:
            yield rig
    finally:
        await home.close()


@pytest.fixture
async def with_keys() -> AsyncIterator[Rig]:
    """A server with keys and quotas."""
    settings = Settings(requests_per_second=1000)
    async with serving(
        routers=[softnix_router],
        fixed_keys=["root"],
        settings=settings,
        limits=lambda: Limits(quotas=QUOTAS),
    ) as rig:
        yield rig


@pytest.fixture
def without_keys() -> Callable[[int | None], Any]:
    """Starts servers in open mode with a configured limit of active schedules."""

    def started(active: int | None) -> Any:
        quotas = replace(QUOTAS, active=active, auth_enabled=False)
        return serving(routers=[softnix_router], limits=lambda: Limits(quotas=quotas))

    return started
