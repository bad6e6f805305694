"""The inbox of an owner."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from chimes.errors import Conflict, NotFound
from chimes.model import replace
from chimes.model.ids import InboxId, RunId, ScheduleId
from chimes.model.listing import InboxQuery
from chimes.model.notification import InboxItem
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import ALICE, BOB, HOUR, MINUTE, NOW, SECOND, an_item, full_item
from tests.store_contract.scenes import contents


def read(item: InboxItem, now: datetime) -> InboxItem:
    return replace(item, read_at=now)


async def test_inbox_item_round_trip_keeps_every_field(store: Store) -> None:
    full, bare = full_item(), an_item()
    assert await store.add_inbox(full) == full
    assert await store.load([bare]) == 1
    assert await contents(store) == [full, bare]
    page = await store.list_inbox(InboxQuery(archived=None))
    assert set(page.items) == {full, bare}


async def test_inbox_item_is_added_once(store: Store) -> None:
    item = await store.add_inbox(an_item())
    assert await store.add_inbox(replace(item, title="other")) == item
    assert await store.load([replace(item, title="other")]) == 0
    assert (await store.list_inbox(InboxQuery())).items == (item,)


async def test_one_of_many_concurrent_equal_items_is_kept(store: Store) -> None:
    first = an_item()
    answers = await asyncio.gather(
        *(store.add_inbox(replace(first, title=str(number))) for number in range(10))
    )
    assert len(set(answers)) == 1
    assert (await store.list_inbox(InboxQuery())).items == (answers[0],)


async def test_inbox_item_is_changed_atomically(store: Store, clock: SettableClock) -> None:
    item = await store.add_inbox(an_item())
    other = await store.add_inbox(an_item())
    now = clock.advance(1.000007)
    after = await store.change_inbox(item.id, read)
    assert after == replace(item, read_at=now)
    until = now + HOUR
    after = await store.change_inbox(
        item.id, lambda i, now: replace(i, starred=True, archived_at=now, snoozed_until=until)
    )
    assert (after.starred, after.archived_at, after.snoozed_until) == (True, now, until)
    assert after.read_at == now
    assert set((await store.list_inbox(InboxQuery(archived=None))).items) == {after, other}


async def test_raising_inbox_change_changes_nothing(store: Store) -> None:
    item = await store.add_inbox(an_item())

    def refuse(before: InboxItem, now: datetime) -> InboxItem:
        raise Conflict("no")

    with pytest.raises(Conflict):
        await store.change_inbox(item.id, refuse)
    with pytest.raises(NotFound):
        await store.change_inbox(InboxId("nobody"), read)
    assert await contents(store) == [item]


async def test_concurrent_inbox_changes_lose_nothing(store: Store) -> None:
    item = await store.add_inbox(an_item(title=""))
    await asyncio.gather(
        *(
            store.change_inbox(item.id, lambda i, now: replace(i, title=f"{i.title}x"))
            for _ in range(10)
        )
    )
    (after,) = (await store.list_inbox(InboxQuery())).items
    assert after.title == "x" * 10


async def test_inbox_items_are_listed_newest_first(store: Store) -> None:
    rows = [an_item(created_at=NOW + number // 2 * SECOND) for number in range(7)]
    await store.load(rows)
    expected = tuple(sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True))
    assert (await store.list_inbox(InboxQuery())).items == expected
    found: list[InboxItem] = []
    query = InboxQuery(limit=3)
    for _ in range(4):
        page = await store.list_inbox(query)
        found += page.items
        if page.next is None:
            break
        await store.add_inbox(an_item(created_at=NOW + HOUR))
        query = replace(query, after=page.next)
    assert tuple(found) == expected


async def test_inbox_items_are_filtered(store: Store) -> None:
    run, schedule = RunId("r"), ScheduleId("s")
    plain = an_item(run_id=run)
    starred = an_item(starred=True, schedule_id=schedule, read_at=NOW)
    archived = an_item(archived_at=NOW, run_id=run)
    asleep = an_item(snoozed_until=NOW + MINUTE, schedule_id=schedule)
    of_bob = an_item(owner=BOB)
    await store.load([plain, starred, archived, asleep, of_bob])

    async def found(**given: object) -> set[str]:
        query = InboxQuery(**given)
        ids = {item.id for item in (await store.list_inbox(query)).items}
        unread = InboxQuery(**(given | {"unread": True, "limit": None}))
        count = len((await store.list_inbox(unread)).items)
        assert await store.count_unread(replace(query, limit=1)) == count
        return ids

    assert await found() == {plain.id, starred.id, asleep.id, of_bob.id}
    assert await found(owner=ALICE) == {plain.id, starred.id, asleep.id}
    assert await found(owner=BOB) == {of_bob.id}
    assert await found(unread=True) == {plain.id, asleep.id, of_bob.id}
    assert await found(unread=False) == {starred.id}
    assert await found(starred=True) == {starred.id}
    assert await found(starred=False, owner=ALICE) == {plain.id, asleep.id}
    assert await found(archived=True) == {archived.id}
    assert await found(archived=None, run_id=run) == {plain.id, archived.id}
    assert await found(schedule_id=schedule) == {starred.id, asleep.id}
    just_before = NOW + MINUTE - timedelta(microseconds=1)
    assert await found(awake_at=just_before, owner=ALICE) == {plain.id, starred.id}
    assert await found(awake_at=NOW + MINUTE, schedule_id=schedule) == {starred.id, asleep.id}


async def test_unread_items_are_counted_across_pages(store: Store) -> None:
    await store.load([an_item() for _ in range(5)])
    page = await store.list_inbox(InboxQuery(limit=2))
    assert page.next is not None
    assert await store.count_unread(InboxQuery(limit=2, after=page.next)) == 5
    await store.change_inbox(page.items[0].id, read)
    assert await store.count_unread(InboxQuery()) == 4
    assert await store.count_unread(InboxQuery(unread=False)) == 4
    assert await store.count_unread(InboxQuery(owner=BOB)) == 0


async def test_long_message_is_stored(store: Store) -> None:
    item = await store.add_inbox(an_item(text="น้ำ 水 \U0001f514\n" * 20_000))
    assert (await store.list_inbox(InboxQuery())).items == (item,)


async def test_inbox_items_are_filtered_by_status(store: Store) -> None:
    failed, digest, notice = an_item(status="failed"), an_item(status="digest"), an_item(status="")
    await store.load([failed, digest, notice])
    found = (await store.list_inbox(InboxQuery(statuses=("failed", "timeout")))).items
    assert found == (failed,)
    assert await store.count_unread(InboxQuery(statuses=("digest", "failed"))) == 2


async def test_snoozed_items_can_be_listed(store: Store) -> None:
    awake, woken = an_item(), an_item(snoozed_until=NOW)
    asleep = an_item(snoozed_until=NOW + timedelta(seconds=1))
    await store.load([awake, woken, asleep])
    found = (await store.list_inbox(InboxQuery(asleep_at=NOW))).items
    assert found == (asleep,)
    assert await store.count_unread(InboxQuery(asleep_at=NOW)) == 1
    assert await store.count_unread(InboxQuery(awake_at=NOW)) == 2
