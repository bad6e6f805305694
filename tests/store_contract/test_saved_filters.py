"""Concurrently saved filters are all kept."""

from __future__ import annotations

import asyncio

from chimes.model.access import Actor
from chimes.services.preferences import ListName, SavedFilters
from chimes.store.port import Store


async def test_concurrently_saved_filters_are_all_kept(store: Store) -> None:
    filters, actor = SavedFilters(store), Actor()
    names = [f"ตัวกรอง {number}" for number in range(5)]
    await asyncio.gather(
        *(filters.save(actor, ListName.RUNS, name, "status:failed") for name in names)
    )
    assert [each.name for each in await filters.list_filters(actor)] == names
    await filters.remove(actor, ListName.RUNS, names[0])
    assert [each.name for each in await filters.list_filters(actor)] == names[1:]
