"""pytest plugin of `chimes[testing]`: the fixture `chimes_harness` runs the application that the
fixture `chimes_app` of a project returns. docs/guides/testing.md describes it.

pytest imports this module in every project that has Chimes installed, so it imports little.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from chimes.sdk.app import Chimes
    from chimes.testing import AppHarness

async_fixture: Callable[[Callable[..., Any]], Callable[..., Any]] = pytest.fixture
try:
    import pytest_asyncio
except ImportError:  # only `chimes_harness` needs it
    pass
else:
    async_fixture = pytest_asyncio.fixture


@pytest.fixture
def chimes_app() -> Chimes:
    """The application under test; a project defines its own fixture of this name."""
    raise pytest.UsageError(
        "define a fixture chimes_app in conftest.py that returns your application: "
        "def chimes_app(): from shop.tasks import app; return app"
    )


@pytest.fixture
def chimes_store() -> str:
    """The store of the test: memory:// unless a project defines its own fixture."""
    return "memory://"


@async_fixture
async def chimes_harness(chimes_app: Chimes, chimes_store: str) -> AsyncIterator[AppHarness]:
    """The application on a store of its own, under a clock that the test moves."""
    from chimes.testing import AppHarness

    async with AppHarness(chimes_app, store=chimes_store) as harness:
        yield harness
