"""Concurrent changes of a document are all kept."""

from __future__ import annotations

import asyncio

from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.listing import AuditQuery
from chimes.services.documents import Document, DocumentStore
from chimes.services.preferences import ListName, SavedFilters
from chimes.store.port import Store
from tests.builders import an_entry
from tests.store_contract.stores import Home

TASKS = 20


async def _count_at_once(stores: list[Store]) -> None:
    """Every task adds a name and raises a counter; the document starts absent and ends deleted."""

    async def add(number: int) -> None:
        def changed(document: Document) -> tuple[Document, AuditEntry]:
            count = int(str(document.get("count", 0))) + 1
            return {**document, f"ชื่อ {number}": number, "count": count}, an_entry(verb="add")

        await DocumentStore(stores[number % len(stores)], "names").change(changed)

    await asyncio.gather(*(add(number) for number in range(TASKS)))
    names = DocumentStore(stores[0], "names")
    expected = {f"ชื่อ {number}": number for number in range(TASKS)} | {"count": TASKS}
    assert await names.read() == expected
    assert len(await stores[0].list_audit(AuditQuery())) == TASKS
    await names.change(lambda document: ({}, None))
    assert await stores[0].get_checkpoint("names") is None


async def test_concurrent_changes_of_a_document_are_all_kept(store: Store) -> None:
    await _count_at_once([store])


async def test_concurrent_changes_of_two_processes_are_all_kept(shared_home: Home) -> None:
    await _count_at_once([await shared_home.open(), await shared_home.open()])


async def test_concurrently_saved_filters_are_all_kept(store: Store) -> None:
    filters, actor = SavedFilters(store), Actor()
    names = [f"ตัวกรอง {number}" for number in range(5)]
    await asyncio.gather(
        *(filters.save(actor, ListName.RUNS, name, "status:failed") for name in names)
    )
    assert [each.name for each in await filters.list_filters(actor)] == names
    await filters.remove(actor, ListName.RUNS, names[0])
    assert [each.name for each in await filters.list_filters(actor)] == names[1:]
