"""Checkpoints of targets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from chimes.errors import StaleVersion
from chimes.model.checkpoint import MAX_CHECKPOINT_LENGTH, Checkpoint, version_of
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery
from chimes.model.run import Run
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    CAPABILITIES,
    HOUR,
    LEASE,
    NOW,
    ODD_JSON,
    SYNC,
    a_completion,
    a_sync_run,
    an_entry,
    claim_request,
)
from tests.store_contract.scenes import contents, joined
from tests.store_contract.stores import Home


async def running_task(store: Store, node_id: str = "node-1") -> Run:
    await joined(store, node_id)
    await store.add_unless_active(a_sync_run())
    (run,) = await store.claim(claim_request(node_id, capabilities=CAPABILITIES))
    return run


async def test_unknown_checkpoint_is_none(store: Store) -> None:
    assert await store.get_checkpoint(SYNC.key) is None


async def test_checkpoint_is_kept_for_the_next_run(store: Store, clock: SettableClock) -> None:
    run = await running_task(store)
    for cursor in ("1", "2"):
        now = clock.advance(0.000001)
        assert await store.save_checkpoint(run.id, run.fence, SYNC.key, cursor)
        kept = Checkpoint(name=SYNC.key, value=cursor, changed_at=now, run_id=run.id)
        assert await store.get_checkpoint(SYNC.key) == kept
    assert [item for item in await contents(store) if isinstance(item, Checkpoint)] == [kept]


async def test_checkpoints_of_different_names_are_independent(store: Store) -> None:
    run = await running_task(store)
    names = ["sync:a#b", "sync:A#b", "sync:a#b ", "sync:a#ü", "x" * 206]
    for name in names:
        await store.save_checkpoint(run.id, run.fence, name, json.dumps(name))
    kept = [await store.get_checkpoint(name) for name in names]
    assert [each.value for each in kept if each] == [json.dumps(name) for name in names]
    assert await store.get_checkpoint("sync:a#") is None


@pytest.mark.parametrize("ascii_only", [True, False])
async def test_checkpoint_round_trip_keeps_any_json(store: Store, ascii_only: bool) -> None:
    run = await running_task(store)
    value = json.dumps(ODD_JSON, ensure_ascii=ascii_only)
    await store.save_checkpoint(run.id, run.fence, SYNC.key, value)
    kept = await store.get_checkpoint(SYNC.key)
    assert kept is not None
    assert kept.value == value


async def test_longest_checkpoint_is_stored(store: Store) -> None:
    run = await running_task(store)
    value = json.dumps("\U0001f514" * (MAX_CHECKPOINT_LENGTH - 2), ensure_ascii=False)
    assert len(value) == MAX_CHECKPOINT_LENGTH
    assert await store.save_checkpoint(run.id, run.fence, SYNC.key, value)
    kept = await store.get_checkpoint(SYNC.key)
    assert kept is not None
    assert kept.value == value


# A lost run must not overwrite the checkpoint of the node that took over.
async def test_checkpoint_with_an_old_fence_is_rejected(store: Store, clock: SettableClock) -> None:
    first = await running_task(store)
    clock.advance(LEASE)
    await store.rescue(limit=10)
    second = await running_task(store, "node-2")
    assert (second.id, second.fence) == (first.id, first.fence + 1)
    assert await store.save_checkpoint(second.id, second.fence, SYNC.key, "new")
    rows = await contents(store)
    assert not await store.save_checkpoint(first.id, first.fence, SYNC.key, "old")
    assert not await store.save_checkpoint(second.id, second.fence + 1, SYNC.key, "future")
    assert not await store.save_checkpoint(RunId("nobody"), 1, SYNC.key, "x")
    assert await contents(store) == rows


async def test_only_a_running_run_saves_a_checkpoint(store: Store, clock: SettableClock) -> None:
    waiting, _ = await store.add_unless_active(a_sync_run())
    assert not await store.save_checkpoint(waiting.id, waiting.fence, SYNC.key, "early")
    run = await running_task(store)
    await store.finish([a_completion(run, clock.now())])
    assert not await store.save_checkpoint(run.id, run.fence, SYNC.key, "late")
    assert await store.get_checkpoint(SYNC.key) is None


async def test_checkpoint_outlives_its_runs(store: Store, clock: SettableClock) -> None:
    run = await running_task(store)
    await store.save_checkpoint(run.id, run.fence, SYNC.key, "7")
    kept = await store.get_checkpoint(SYNC.key)
    await store.finish([a_completion(run, clock.now())])
    assert await store.prune_runs(before=clock.now() + HOUR, limit=10) == 1
    assert await store.get_checkpoint(SYNC.key) == kept


async def test_checkpoint_outlives_a_restart(durable_home: Home, clock: SettableClock) -> None:
    store = await durable_home.open()
    run = await running_task(store)
    await store.save_checkpoint(run.id, run.fence, SYNC.key, "7")
    await store.set_checkpoint("by hand", "[]")
    await store.set_checkpoint("forgotten", "{}")
    await store.set_checkpoint("forgotten", None)
    clock.advance(1)
    store = await durable_home.reopen()
    assert await store.get_checkpoint(SYNC.key) == Checkpoint(
        name=SYNC.key, value="7", changed_at=NOW, run_id=run.id
    )
    by_hand = Checkpoint(name="by hand", value="[]", changed_at=NOW)
    assert await store.get_checkpoint("by hand") == by_hand
    assert await store.get_checkpoint("forgotten") is None


# --- manual changes ---------------------------------------------------------------------------
async def test_checkpoint_is_set_and_deleted_manually(store: Store, clock: SettableClock) -> None:
    run = await running_task(store)
    await store.save_checkpoint(run.id, run.fence, SYNC.key, "7")
    kept = await store.get_checkpoint(SYNC.key)
    now = clock.advance(1)
    assert await store.set_checkpoint(SYNC.key, "3", an_entry(verb="set")) == kept
    by_hand = Checkpoint(name=SYNC.key, value="3", changed_at=now)
    assert await store.get_checkpoint(SYNC.key) == by_hand
    assert await store.set_checkpoint(SYNC.key, None, an_entry(verb="forget")) == by_hand
    assert await store.get_checkpoint(SYNC.key) is None
    assert await store.set_checkpoint(SYNC.key, None, an_entry(verb="again")) is None
    assert await store.set_checkpoint(SYNC.key, "1") is None
    verbs = [entry.verb for entry in await store.list_audit(AuditQuery())]
    assert verbs == ["again", "forget", "set"]


async def test_running_run_overwrites_a_manually_set_checkpoint(
    store: Store, clock: SettableClock
) -> None:
    run = await running_task(store)
    await store.set_checkpoint(SYNC.key, "3")
    assert await store.save_checkpoint(run.id, run.fence, SYNC.key, "4")
    kept = await store.get_checkpoint(SYNC.key)
    assert kept is not None
    assert (kept.value, kept.run_id) == ("4", run.id)


async def _set_at_once(stores: list[Store]) -> None:
    """Each change returns the value of the previous one, so the changes have a serial order."""
    values = [str(number) for number in range(12)]
    before = await asyncio.gather(
        *(
            stores[number % len(stores)].set_checkpoint(SYNC.key, value)
            for number, value in enumerate(values)
        )
    )
    last = await stores[0].get_checkpoint(SYNC.key)
    seen = Counter(None if each is None else each.value for each in (*before, last))
    assert seen == Counter([None, *values])


async def test_concurrent_manual_checkpoint_changes_are_serial(store: Store) -> None:
    await _set_at_once([store])


async def test_manual_checkpoint_changes_of_two_processes_are_serial(shared_home: Home) -> None:
    await _set_at_once([await shared_home.open(), await shared_home.open()])


# --- compare and set --------------------------------------------------------------------------
async def _verbs(store: Store) -> list[str]:
    return [entry.verb for entry in await store.list_audit(AuditQuery())]


async def test_checkpoint_is_created_changed_and_deleted_with_its_version(store: Store) -> None:
    assert await store.set_checkpoint(SYNC.key, "1", an_entry(verb="create"), expected=0) is None
    first = await store.get_checkpoint(SYNC.key)
    assert first is not None
    changed = await store.set_checkpoint(
        SYNC.key, "2", an_entry(verb="change"), expected=first.version
    )
    assert changed == first
    second = await store.get_checkpoint(SYNC.key)
    assert second is not None
    assert second.value == "2"
    deleted = await store.set_checkpoint(
        SYNC.key, None, an_entry(verb="delete"), expected=second.version
    )
    assert deleted == second
    assert await store.get_checkpoint(SYNC.key) is None
    assert await store.set_checkpoint(SYNC.key, None, expected=0) is None
    assert await _verbs(store) == ["delete", "change", "create"]


@pytest.mark.parametrize("value", ["3", None])
async def test_checkpoint_with_a_stale_version_is_neither_changed_nor_deleted(
    store: Store, clock: SettableClock, value: str | None
) -> None:
    await store.set_checkpoint(SYNC.key, "1")
    seen = version_of(await store.get_checkpoint(SYNC.key))
    await store.set_checkpoint(SYNC.key, "2", expected=seen)
    rows = await contents(store)
    clock.advance(1)
    for stale in (seen, 0):
        with pytest.raises(StaleVersion):
            await store.set_checkpoint(SYNC.key, value, an_entry(verb="late"), expected=stale)
    assert await contents(store) == rows


@pytest.mark.parametrize("value", ["3", None])
async def test_checkpoint_deleted_meanwhile_does_not_come_back(
    store: Store, value: str | None
) -> None:
    await store.set_checkpoint(SYNC.key, "1")
    seen = version_of(await store.get_checkpoint(SYNC.key))
    await store.set_checkpoint(SYNC.key, None, expected=seen)
    with pytest.raises(StaleVersion):
        await store.set_checkpoint(SYNC.key, value, an_entry(verb="late"), expected=seen)
    assert await store.get_checkpoint(SYNC.key) is None
    assert await _verbs(store) == []


async def test_version_survives_a_restart(durable_home: Home) -> None:
    store = await durable_home.open()
    await store.set_checkpoint(SYNC.key, json.dumps(ODD_JSON, ensure_ascii=False))
    seen = version_of(await store.get_checkpoint(SYNC.key))
    store = await durable_home.reopen()
    assert version_of(await store.get_checkpoint(SYNC.key)) == seen
    await store.set_checkpoint(SYNC.key, "2", expected=seen)


async def _one_writer_wins(stores: list[Store], seen: int) -> None:
    """Of concurrent writers that expect the same version, one succeeds and has its audit entry."""
    values = [str(number) for number in range(12)]
    answers = await asyncio.gather(
        *(
            stores[number % len(stores)].set_checkpoint(
                SYNC.key, value, an_entry(verb=f"set {value}"), expected=seen
            )
            for number, value in enumerate(values)
        ),
        return_exceptions=True,
    )
    (won,) = (
        value
        for value, answer in zip(values, answers, strict=True)
        if not isinstance(answer, StaleVersion)
    )
    kept = await stores[0].get_checkpoint(SYNC.key)
    assert kept is not None
    assert kept.value == won
    assert (await _verbs(stores[0]))[0] == f"set {won}"


@pytest.mark.parametrize("exists", [False, True])
async def test_one_of_concurrent_writers_with_the_same_version_wins(
    store: Store, exists: bool
) -> None:
    if exists:
        await store.set_checkpoint(SYNC.key, "before")
    await _one_writer_wins([store], version_of(await store.get_checkpoint(SYNC.key)))
    assert len(await _verbs(store)) == 1


@pytest.mark.parametrize("exists", [False, True])
async def test_one_of_two_processes_with_the_same_version_wins(
    shared_home: Home, exists: bool
) -> None:
    stores = [await shared_home.open(), await shared_home.open()]
    if exists:
        await stores[0].set_checkpoint(SYNC.key, "before")
    await _one_writer_wins(stores, version_of(await stores[0].get_checkpoint(SYNC.key)))
