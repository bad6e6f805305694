"""Saved filters of an owner."""

from __future__ import annotations

import pytest

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.model import replace
from chimes.model.access import Scope
from chimes.model.listing import AuditQuery
from chimes.services.preferences import MAX_SAVED_FILTERS, ListName, SavedFilter, SavedFilters
from chimes.store.memory import MemoryStore
from tests.builders import ALICE
from tests.services.conftest import MEMBER, STRANGER, VIEWER

RUNS, SCHEDULES = ListName.RUNS, ListName.SCHEDULES


@pytest.fixture
def filters(store: MemoryStore) -> SavedFilters:
    return SavedFilters(store)


async def test_filters_belong_to_an_owner_and_a_list(
    filters: SavedFilters, store: MemoryStore
) -> None:
    late = await filters.save(MEMBER, RUNS, "  Late \n ones ", " status:missed ")
    assert late == SavedFilter(list=RUNS, name="Late ones", text="status:missed")
    billing = await filters.save(MEMBER, SCHEDULES, "billing", "label:billing")
    also = await filters.save(VIEWER, RUNS, "billing", "schedule:x")
    assert await filters.list_filters(MEMBER) == (also, billing, late)
    assert await filters.list_filters(STRANGER) == ()
    verbs = [each.verb for each in await store.list_audit(AuditQuery(owner=str(ALICE)))]
    assert verbs == ["save_filter"] * 3


async def test_saving_replaces_a_filter_of_the_same_name(filters: SavedFilters) -> None:
    await filters.save(MEMBER, RUNS, "Mine", "status:failed")
    after = await filters.save(MEMBER, RUNS, "mine", "status:timeout")
    assert await filters.list_filters(MEMBER) == (after,)


async def test_filters_are_renamed_and_removed(filters: SavedFilters) -> None:
    saved = await filters.save(MEMBER, RUNS, "one", "status:failed")
    other = await filters.save(MEMBER, RUNS, "two", "status:queued")
    with pytest.raises(Conflict, match="already"):
        await filters.rename(MEMBER, RUNS, "one", "TWO")
    with pytest.raises(NotFound):
        await filters.rename(MEMBER, SCHEDULES, "one", "three")
    assert await filters.rename(MEMBER, RUNS, "one", "One") == replace(saved, name="One")
    assert await filters.remove(MEMBER, RUNS, "one") == replace(saved, name="One")
    assert await filters.list_filters(MEMBER) == (other,)
    with pytest.raises(NotFound):
        await filters.remove(MEMBER, RUNS, "one")
    with pytest.raises(NotFound):
        await filters.remove(STRANGER, RUNS, "two")
    await filters.remove(MEMBER, RUNS, "two")
    assert await filters.list_filters(MEMBER) == ()


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [
        (" ", "status:failed", "name"),
        ("x" * 61, "status:failed", "name"),
        ("a\u202eb", "status:failed", "name"),
        ("fine", "  ", "q"),
        ("fine", "x" * 501, "q"),
    ],
)
async def test_invalid_names_and_filters_are_rejected(
    filters: SavedFilters, name: str, text: str, field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await filters.save(MEMBER, RUNS, name, text)
    assert refused.value.field == field


async def test_number_of_filters_is_limited(filters: SavedFilters) -> None:
    for number in range(MAX_SAVED_FILTERS):
        await filters.save(MEMBER, RUNS, f"f{number}", "x")
    with pytest.raises(Conflict, match="remove one"):
        await filters.save(MEMBER, SCHEDULES, "one more", "x")
    await filters.save(MEMBER, RUNS, "f1", "y")


async def test_read_only_keys_save_nothing(filters: SavedFilters) -> None:
    with pytest.raises(NotAllowed):
        await filters.save(replace(MEMBER, scopes=(Scope.READ,)), RUNS, "a", "b")


async def test_corrupt_filters_are_ignored(filters: SavedFilters, store: MemoryStore) -> None:
    await store.set_checkpoint(f"filters:{ALICE}", '{"runs": {"a": 1, "b": "x"}, "schedules": []}')
    assert [each.name for each in await filters.list_filters(MEMBER)] == ["b"]
