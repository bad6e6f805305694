from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chimes.clock import SystemClock
from tests.engine.rig import Rig
from tests.store_contract.stores import KINDS, Home, StoreKind


@pytest.fixture(autouse=True)
def _patient(patient_store: None) -> None:
    """Longer connection timeouts, because the machine may be busy."""


def _name(kind: StoreKind) -> str:
    return kind.name


@pytest.fixture(params=KINDS, ids=_name)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    home = Home(request.param, tmp_path, SystemClock())
    rig = Rig(await home.open(), request.param.name)
    yield rig
    await rig.close()
    await home.close()
