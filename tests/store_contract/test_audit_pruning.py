"""Old audit entries are pruned behind a signed checkpoint; the rest of the chain stays
verifiable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chimes.errors import Conflict, StaleVersion
from chimes.model import replace
from chimes.model.audit import AUDIT_CHECKPOINT, AuditCheckpoint, AuditEntry, checkpoint_from_text
from chimes.model.listing import AuditQuery
from chimes.services import audit
from chimes.services.audit import CheckpointState, prune_audit, verify_chain
from chimes.store.port import Item, Store
from chimes.testing import SettableClock
from tests.builders import HOUR, MINUTE, NOW, an_entry
from tests.store_contract.stores import Home

KEY = "a key of thirty-two characters.."
#: Entries 1 to 20, one per minute.
LENGTH = 20


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_BATCH", 3)


@pytest.fixture
async def log(store: Store, clock: SettableClock) -> Store:
    for number in range(LENGTH):
        await store.append_audit(an_entry(at=NOW + number * MINUTE, verb=f"verb-{number + 1}"))
    clock.advance(HOUR)
    return store


def before(number: int) -> Any:
    """Entries up to this number are older."""
    return NOW + (number - 1) * MINUTE


async def numbers(store: Store) -> list[int]:
    return [entry.number for entry in await store.list_audit(AuditQuery(limit=1000))][::-1]


async def checkpoint_of(store: Store) -> AuditCheckpoint:
    stored = await store.get_checkpoint(AUDIT_CHECKPOINT)
    assert stored is not None
    found = checkpoint_from_text(stored.value)
    assert found is not None
    return found


async def everything(store: Store) -> list[Item]:
    return [item async for item in store.dump()]


async def test_old_entries_are_replaced_by_a_checkpoint(
    log: Store, clock: SettableClock, home: Home
) -> None:
    entries = await log.list_audit(AuditQuery(limit=100))
    assert await prune_audit(log, KEY, before=before(8)) == 8
    store = await home.reopen() if home.kind.durable else log
    # The last one records the pruning.
    assert await numbers(store) == [*range(9, LENGTH + 2)]
    (newest,) = await store.list_audit(AuditQuery(limit=1))
    assert (newest.verb, newest.changes) == (
        "prune_audit",
        {"number": [0, 8], "deleted": [0, 8]},
    )
    found = await checkpoint_of(store)
    last = next(entry for entry in entries if entry.number == 8)
    assert (found.number, found.hash, found.deleted) == (8, last.hash, 8)
    assert found.at == clock.now()
    verified = await verify_chain(store, KEY)
    assert (verified.ok, verified.checked, verified.first_bad) == (True, 13, None)
    assert (verified.state, verified.checkpoint) == (CheckpointState.VALID, found)
    # The chain goes on.
    await store.append_audit(an_entry())
    assert (await verify_chain(store, KEY)).ok


async def test_prune_twice(log: Store, home: Home) -> None:
    assert await prune_audit(log, KEY, before=before(5)) == 5
    assert await prune_audit(log, KEY, before=before(5)) == 0
    store = await home.reopen() if home.kind.durable else log
    assert await prune_audit(store, KEY, before=before(12)) == 7
    store = await home.reopen() if home.kind.durable else log
    found = await checkpoint_of(store)
    assert (found.number, found.deleted) == (12, 12)
    assert (await numbers(store))[0] == 13
    assert (await verify_chain(store, KEY)).ok


async def test_entries_are_pruned_in_batches(log: Store) -> None:
    pruned = []
    while count := await prune_audit(log, KEY, before=before(10), limit=4):
        pruned.append(count)
    assert pruned == [4, 4, 2]
    assert (await numbers(log))[0] == 11
    assert (await verify_chain(log, KEY)).ok


async def test_all_entries_can_be_pruned(log: Store, home: Home) -> None:
    assert await prune_audit(log, KEY, before=before(LENGTH)) == LENGTH
    store = await home.reopen() if home.kind.durable else log
    await store.append_audit(an_entry())
    assert await numbers(store) == [LENGTH + 1, LENGTH + 2]
    assert (await verify_chain(store, KEY)).ok


async def test_entry_that_is_dated_back_does_not_prune_younger_ones(log: Store) -> None:
    await log.append_audit(an_entry(at=NOW - HOUR))
    assert await prune_audit(log, KEY, before=before(3)) == 3
    assert (await numbers(log))[0] == 4


@pytest.mark.parametrize("change", ["number", "hash", "at", "deleted", "signature", "text"])
async def test_changed_checkpoint_is_reported(log: Store, change: str) -> None:
    await prune_audit(log, KEY, before=before(8))
    stored = await log.get_checkpoint(AUDIT_CHECKPOINT)
    assert stored is not None
    plain = json.loads(stored.value)
    other = {"number": 7, "hash": "0" * 64, "at": NOW.isoformat(), "deleted": 9, "signature": ""}
    text = "{}" if change == "text" else json.dumps(plain | {change: other[change]})
    await log.set_checkpoint(AUDIT_CHECKPOINT, text)
    found = await verify_chain(log, KEY)
    assert (found.ok, found.state) == (False, CheckpointState.INVALID)
    with pytest.raises(Conflict):
        await prune_audit(log, KEY, before=before(12))
    assert (await numbers(log))[0] == 9


async def test_checkpoint_needs_its_key(log: Store) -> None:
    await prune_audit(log, KEY, before=before(8))
    wrong = await verify_chain(log, "another key of many characters")
    assert (wrong.ok, wrong.state, wrong.first_bad) == (False, CheckpointState.INVALID, None)
    unknown = await verify_chain(log)
    assert (unknown.ok, unknown.state, unknown.first_bad) == (
        False,
        CheckpointState.UNCHECKED,
        None,
    )


async def test_removed_checkpoint_is_reported(log: Store) -> None:
    await prune_audit(log, KEY, before=before(8))
    await log.set_checkpoint(AUDIT_CHECKPOINT, None)
    found = await verify_chain(log, KEY)
    assert (found.ok, found.first_bad) == (False, 9)


async def test_checkpoint_of_another_place_in_the_chain_is_reported(log: Store) -> None:
    """An earlier checkpoint, although signed, does not hide removed entries."""
    await prune_audit(log, KEY, before=before(5))
    early = await log.get_checkpoint(AUDIT_CHECKPOINT)
    assert early is not None
    await prune_audit(log, KEY, before=before(8))
    await log.set_checkpoint(AUDIT_CHECKPOINT, early.value)
    found = await verify_chain(log, KEY)
    assert (found.ok, found.first_bad) == (False, 9)


async def test_export_and_import_keep_the_chain_verifiable(
    log: Store, home: Home, tmp_path: Path, clock: SettableClock
) -> None:
    await prune_audit(log, KEY, before=before(8))
    items = await everything(log)
    other = Home(home.kind, _directory(tmp_path, "copy"), clock)
    changed = Home(home.kind, _directory(tmp_path, "changed"), clock)
    try:
        store = await other.open()
        await store.load(items)
        found = await verify_chain(store, KEY)
        assert (found.ok, found.checked) == (True, 13)
        assert await checkpoint_of(store) == await checkpoint_of(log)
        assert await prune_audit(store, KEY, before=before(12)) == 4
        assert (await verify_chain(store, KEY)).ok
        # A changed entry is found, and not pruned.
        forged = await changed.open()
        await forged.load(
            [
                replace(item, actor="somebody else")
                if isinstance(item, AuditEntry) and item.number == 11
                else item
                for item in items
            ]
        )
        found = await verify_chain(forged, KEY)
        assert (found.ok, found.first_bad, found.state) == (False, 11, CheckpointState.VALID)
        with pytest.raises(Conflict, match="11"):
            await prune_audit(forged, KEY, before=before(12))
        assert (await numbers(forged))[0] == 9
    finally:
        await other.close()
        await changed.close()


async def test_removed_entry_is_not_pruned_over(
    log: Store, home: Home, tmp_path: Path, clock: SettableClock
) -> None:
    items = await everything(log)
    gap = Home(home.kind, _directory(tmp_path, "gap"), clock)
    try:
        store = await gap.open()
        await store.load([i for i in items if not (isinstance(i, AuditEntry) and i.number == 4)])
        with pytest.raises(Conflict, match="4"):
            await prune_audit(store, KEY, before=before(8))
        assert len(await numbers(store)) == LENGTH - 1
    finally:
        await gap.close()


async def test_stale_checkpoint_changes_nothing(log: Store) -> None:
    """Of two nodes that prune at a time, one does it."""
    kept = await numbers(log)
    with pytest.raises(StaleVersion):
        await log.prune_audit(upto=5, checkpoint="{}", expected=1, audit=an_entry())
    assert await numbers(log) == kept
    assert await log.get_checkpoint(AUDIT_CHECKPOINT) is None


def _directory(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name
