"""Maintenance rolls up ended runs in batches that do not delay other work."""

from __future__ import annotations

import pytest

from chimes.engine.maintenance import ROLLUP_BATCH, ROLLUP_BATCHES, ROLLUP_INTERVAL
from tests.builders import NOW
from tests.engine.test_membership import Node, maintenance_of


class RollupBacklog:
    """A store with a number of runs that are not rolled up yet."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.calls = 0

    async def roll_up(self, *, limit: int) -> int:
        assert limit == ROLLUP_BATCH
        self.calls += 1
        rolled = min(limit, self.left)
        self.left -= rolled
        return rolled


@pytest.fixture
async def node() -> Node:
    node = Node()
    await node.membership.join()
    return node


async def test_rollups_run_every_few_seconds(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    backlog = RollupBacklog(10)
    monkeypatch.setattr(node.memory, "roll_up", backlog.roll_up)
    maintenance = maintenance_of(node)
    for _ in range(3):
        await maintenance.run_once()
    assert (backlog.calls, backlog.left) == (1, 0)
    node.clock.advance(ROLLUP_INTERVAL)
    await maintenance.run_once()
    assert backlog.calls == 2


# The rollup detects a store whose clock was set back, so it must not wait for that clock.
async def test_rollups_ignore_the_store_clock(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    backlog = RollupBacklog(0)
    monkeypatch.setattr(node.memory, "roll_up", backlog.roll_up)
    maintenance = maintenance_of(node)
    await maintenance.run_once()
    node.clock.advance(ROLLUP_INTERVAL)
    node.clock.set(NOW.replace(year=2029))
    await maintenance.run_once()
    assert backlog.calls == 2


async def test_a_backlog_is_rolled_up_in_bounded_passes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog = RollupBacklog((ROLLUP_BATCHES + 5) * ROLLUP_BATCH)
    monkeypatch.setattr(node.memory, "roll_up", backlog.roll_up)
    maintenance = maintenance_of(node)
    await maintenance.run_once()
    assert backlog.left == 5 * ROLLUP_BATCH
    await maintenance.run_once()
    assert backlog.left == 0
