"""Checkpoints of targets, and republished capabilities of a node."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from chimes.engine import executor
from chimes.engine.events import Events, RunEnded, RunRescued
from chimes.engine.executor import checkpoint_of
from chimes.engine.maintenance import CheckpointCleaner
from chimes.engine.membership import Membership, StoreClock
from chimes.errors import StoreUnavailable
from chimes.model import replace
from chimes.model.checkpoint import agent_callback_name, agent_checkpoint_name
from chimes.model.policy import Policy, RunDefaults
from chimes.model.run import Run, RunStatus
from chimes.model.sync import task_run
from chimes.model.target import AgentTarget, SyncTarget
from chimes.store.memory import MemoryStore
from chimes.store.port import ClaimRequest
from chimes.testing import SettableClock
from tests.builders import NOW, a_node, a_run, with_definition

PAIR = SyncTarget(source="shop", collection="orders")
LEASE = timedelta(seconds=30)


class FailingStore(MemoryStore):
    """A store that fails the first checkpoint operations."""

    failures = 0

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("away")

    async def get_checkpoint(self, name: str):  # type: ignore[no-untyped-def]
        self._fail()
        return await super().get_checkpoint(name)

    async def save_checkpoint(self, *given):  # type: ignore[no-untyped-def]
        self._fail()
        return await super().save_checkpoint(*given)


async def claim_sync_run(store: MemoryStore) -> Run:
    node = await store.join(a_node(capabilities=(PAIR.requirement,)), LEASE)
    await store.add_runs([task_run(PAIR, None, NOW)])
    request = ClaimRequest(node_id=node.id, capabilities=frozenset({PAIR.requirement}), free=1)
    (run,) = await store.claim(request)
    return run


async def test_a_sync_checkpoint_is_stored_per_pair_and_fenced() -> None:
    store = MemoryStore(SettableClock(NOW))
    run = await claim_sync_run(store)
    state = checkpoint_of(store, run)
    assert state is not None
    assert await state.read() is None
    assert await state.save('{"n": 1}')
    assert await state.read() == '{"n": 1}'
    kept = await store.get_checkpoint("sync:shop#orders")
    assert kept is not None
    assert (kept.value, kept.run_id) == ('{"n": 1}', run.id)
    await store.leave(run.holder)  # type: ignore[arg-type]
    assert not await state.save('{"n": 2}')
    assert await state.read() == '{"n": 1}'


async def test_an_unavailable_store_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "CHECKPOINT_RETRY_PAUSE", 0.001)
    store = FailingStore(SettableClock(NOW))
    state = checkpoint_of(store, await claim_sync_run(store))
    assert state is not None
    store.failures = 3
    async with asyncio.timeout(60):
        assert await state.save("1")
    store.failures = 3
    async with asyncio.timeout(60):
        assert await state.read() == "1"
    assert store.failures == 0


def test_other_targets_have_no_checkpoint() -> None:
    assert checkpoint_of(MemoryStore(SettableClock(NOW)), a_run()) is None


async def test_announce_publishes_changed_capabilities() -> None:
    clock = SettableClock(NOW)
    store = MemoryStore(clock)
    capabilities = frozenset({"http"})
    published = RunDefaults(policy=Policy(), priority=200)
    defaults = {"task:elsewhere": published}
    member = Membership(
        store,
        clock=clock,
        time=StoreClock(store, clock),
        events=Events([]),
        lease=LEASE,
        version="test",
        roles=("worker",),
        capacity=1,
        capabilities=lambda: capabilities,
        defaults=defaults,
    )
    await member.announce()
    assert await store.nodes() == ()
    await member.join()
    capabilities = frozenset({"http", PAIR.requirement})
    defaults[PAIR.key] = published
    await member.announce()
    (node,) = await store.nodes()
    assert node.id == member.node_id
    assert node.capabilities == ("http", "sync:shop")
    assert dict(node.defaults) == {"sync:shop#orders": published}
    assert member.trusted


# --- agent runs -----------------------------------------------------------------------------------
async def claim_agent_run(store: MemoryStore) -> Run:
    node = await store.join(a_node(capabilities=("agent",)), LEASE)
    await store.add_runs([a_run(target=AgentTarget(prompt="x"))])
    (run,) = await store.claim(
        ClaimRequest(node_id=node.id, capabilities=frozenset({"agent"}), free=1)
    )
    return run


async def test_an_agent_run_has_its_own_checkpoint_and_reads_callbacks() -> None:
    store = MemoryStore(SettableClock(NOW))
    run = await claim_agent_run(store)
    state = checkpoint_of(store, run)
    assert state is not None
    assert await state.save("kept")
    assert await state.read() == "kept"
    assert await state.read_callback() is None
    await store.set_checkpoint(agent_callback_name(run.id), "said")
    assert (await state.read_callback(), await state.read()) == ("said", "kept")


async def test_agent_checkpoints_are_deleted_when_the_run_ends() -> None:
    store = FailingStore(SettableClock(NOW))
    cleaner = CheckpointCleaner(store)
    run = await claim_agent_run(store)
    for name in (agent_checkpoint_name(run.id), agent_callback_name(run.id), "sync:shop#orders"):
        await store.set_checkpoint(name, "1")
    ended = replace(run, status=RunStatus.SUCCEEDED)
    # Neither a retried run nor one of another kind.
    cleaner(RunRescued(run=run))
    cleaner(RunEnded(run=with_definition(ended, target=PAIR), seconds=0.0))
    await cleaner.run_once()
    assert await store.get_checkpoint(agent_checkpoint_name(run.id)) is not None
    cleaner(RunEnded(run=ended, seconds=0.0))
    store.failures = 1
    with pytest.raises(StoreUnavailable):
        await cleaner.run_once()
    await cleaner.run_once()
    assert await store.get_checkpoint(agent_checkpoint_name(run.id)) is None
    assert await store.get_checkpoint(agent_callback_name(run.id)) is None
    assert await store.get_checkpoint("sync:shop#orders") is not None
