"""Verification of the hash chain of the audit log."""

from __future__ import annotations

import pytest

from chimes.model import replace
from chimes.model.access import Actor, Role
from chimes.services import audit
from chimes.services.audit import AuditService, verify_chain
from chimes.store.memory import MemoryStore
from tests.builders import an_entry

LENGTH = 25


@pytest.fixture
async def chain(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    monkeypatch.setattr(audit, "_BATCH", 10)
    for number in range(LENGTH):
        await store.append_audit(an_entry(verb=f"verb-{number}"))
    return store


async def test_an_empty_chain_is_valid(store: MemoryStore) -> None:
    found = await verify_chain(store)
    assert (found.ok, found.checked, found.first_bad) == (True, 0, None)


async def test_unchanged_chain_is_valid(chain: MemoryStore) -> None:
    found = await verify_chain(chain)
    assert (found.ok, found.checked, found.first_bad) == (True, LENGTH, None)


@pytest.mark.parametrize("number", [1, 5, 15, 16, 25])
async def test_changed_entry_is_reported(chain: MemoryStore, number: int) -> None:
    """Also at the boundary of two batches."""
    entries = chain._state.audit
    entries[number - 1] = replace(entries[number - 1], actor="somebody else")
    found = await verify_chain(chain)
    assert (found.ok, found.first_bad) == (False, number)


@pytest.mark.parametrize("number", [1, 5, 15, 16])
async def test_removed_entry_is_reported(chain: MemoryStore, number: int) -> None:
    del chain._state.audit[number - 1]
    found = await verify_chain(chain)
    assert (found.ok, found.first_bad) == (False, number + 1)


async def test_the_oldest_invalid_entry_is_reported(chain: MemoryStore) -> None:
    entries = chain._state.audit
    for number in (3, 20):
        entries[number - 1] = replace(entries[number - 1], verb="x")
    assert (await verify_chain(chain)).first_bad == 3


async def test_the_last_verification_is_stored_and_ignored_if_unreadable(
    store: MemoryStore,
) -> None:
    service, admin = AuditService(store), Actor(role=Role.ADMIN)
    assert await service.get_last_verification(admin) is None
    await service.verify(admin)
    found = await service.get_last_verification(admin)
    assert found is not None
    assert (found.ok, found.checked) == (True, 0)
    for text in ("", "[]", "{}", '{"ok": 1, "checked": "x", "first_bad": null}'):
        await store.set_checkpoint("audit:verified", text)
        assert await service.get_last_verification(admin) is None
