"""Deliveries: claim, complete under the fence, give up, retry, list, prune."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from chimes.model import replace
from chimes.model.ids import DeliveryId, InboxId, RunId, ScheduleId
from chimes.model.listing import AuditQuery, DeliveryQuery, InboxQuery
from chimes.model.notification import (
    MAX_DELIVERY_ATTEMPTS,
    Delivery,
    DeliveryState,
    claim_delivery,
    complete_delivery,
    reopen_delivery,
)
from chimes.model.recipient import Channel, NotifyOn
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    BOB,
    CHAT,
    HOOK,
    HOUR,
    INBOX,
    MINUTE,
    NOW,
    SECOND,
    a_delivery,
    a_delivery_completion,
    an_entry,
    an_item,
    full_delivery,
)
from tests.store_contract.scenes import all_deliveries, contents
from tests.store_contract.stores import Home

CLAIM_LEASE = 2 * MINUTE
OVERDUE = timedelta(minutes=10)


async def claimed(store: Store, *channels: Channel, limit: int = 100) -> tuple[Delivery, ...]:
    wanted = channels or tuple(Channel)
    return await store.claim_deliveries(wanted, limit=limit, lease=CLAIM_LEASE, overdue=OVERDUE)


async def one_claimed(store: Store, **given: object) -> Delivery:
    await store.load([a_delivery(**given)])
    (delivery,) = await claimed(store)
    return delivery


def ids_of(*rows: Delivery) -> list[DeliveryId]:
    return [row.id for row in rows]


async def test_delivery_round_trip_keeps_every_field(store: Store) -> None:
    full, bare = full_delivery(), a_delivery()
    assert await store.load([full, bare]) == 2
    assert await all_deliveries(store) == {full.id: full, bare.id: bare}
    assert await store.load([replace(full, error="other")]) == 0
    assert await contents(store) == sorted([full, bare], key=lambda each: each.id)


# --- claiming ---------------------------------------------------------------------------------
async def test_deliveries_are_claimed_oldest_first(store: Store) -> None:
    late = a_delivery(id=DeliveryId("a"), available_at=NOW)
    twin_b = a_delivery(id=DeliveryId("c"), available_at=NOW - SECOND)
    twin_a = a_delivery(id=DeliveryId("b"), available_at=NOW - SECOND)
    first = a_delivery(id=DeliveryId("d"), available_at=NOW - MINUTE)
    later = a_delivery(id=DeliveryId("0"), available_at=NOW + timedelta(microseconds=1))
    await store.load([late, twin_b, twin_a, first, later])
    assert await claimed(store, limit=2) == (
        claim_delivery(first, NOW, CLAIM_LEASE),
        claim_delivery(twin_a, NOW, CLAIM_LEASE),
    )
    assert ids_of(*await claimed(store)) == [twin_b.id, late.id]
    assert await claimed(store) == ()
    assert (await all_deliveries(store))[later.id] == later


async def test_claim_counts_an_attempt_and_raises_the_fence(
    store: Store, clock: SettableClock
) -> None:
    before = a_delivery(attempts=2, fence=5, progress=1)
    await store.load([before])
    now = clock.advance(1.000007)
    (after,) = await claimed(store)
    assert after == replace(before, attempts=3, fence=6, available_at=now + CLAIM_LEASE)
    assert await all_deliveries(store) == {after.id: after}
    assert await store.next_delivery() == now + CLAIM_LEASE


async def test_claim_without_deliveries_limit_or_channels_is_empty(store: Store) -> None:
    assert await claimed(store) == ()
    await store.load([a_delivery()])
    assert await claimed(store, limit=0) == ()
    none = await store.claim_deliveries([], limit=9, lease=CLAIM_LEASE, overdue=OVERDUE)
    assert none == ()
    assert len(await claimed(store)) == 1


async def test_ended_deliveries_are_not_claimed(store: Store) -> None:
    ended = {"finished_at": NOW, "available_at": NOW - HOUR}
    await store.load(
        [
            a_delivery(state=DeliveryState.DELIVERED, **ended),
            a_delivery(state=DeliveryState.DEAD, **ended),
        ]
    )
    assert await claimed(store) == ()
    assert await store.next_delivery() is None


async def test_claim_returns_only_the_given_channels(store: Store) -> None:
    inbox, chat, hook = (a_delivery(recipient=each) for each in (INBOX, CHAT, HOOK))
    await store.load([inbox, chat, hook])
    assert ids_of(*await claimed(store, Channel.TELEGRAM)) == [chat.id]
    assert await claimed(store, Channel.TELEGRAM, Channel.EMAIL) == ()
    both = await claimed(store, Channel.INBOX, Channel.WEBHOOK)
    assert sorted(ids_of(*both)) == sorted([inbox.id, hook.id])


# No sender has this channel: any claim returns the delivery, so that it can be recorded as dead.
async def test_overdue_delivery_is_claimed_for_any_channel(
    store: Store, clock: SettableClock
) -> None:
    chat = a_delivery(recipient=CHAT)
    inbox = a_delivery(available_at=NOW + OVERDUE)
    await store.load([chat, inbox])
    clock.set(NOW + OVERDUE - timedelta(microseconds=1))
    assert await claimed(store, Channel.WEBHOOK) == ()
    clock.set(NOW + OVERDUE)
    assert ids_of(*await claimed(store, Channel.INBOX)) == [chat.id, inbox.id]


async def test_delivery_is_claimed_again_after_its_claim_lease(
    store: Store, clock: SettableClock
) -> None:
    first = await one_claimed(store)
    clock.advance(CLAIM_LEASE - timedelta(microseconds=1))
    assert await claimed(store) == ()
    clock.advance(timedelta(microseconds=1))
    (again,) = await claimed(store)
    assert (again.id, again.attempts, again.fence) == (first.id, 2, 2)
    # The first claim reports too late.
    assert await store.finish_deliveries([a_delivery_completion(first)]) == ()
    assert await all_deliveries(store) == {again.id: again}
    (sent,) = await store.finish_deliveries([a_delivery_completion(again)])
    assert sent.state is DeliveryState.DELIVERED


async def test_concurrent_claims_never_share_a_delivery(shared_home: Home) -> None:
    stores = [await shared_home.open() for _ in range(3)]
    await stores[0].load([a_delivery() for _ in range(60)])
    answers = await asyncio.gather(*(claimed(stores[number % 3], limit=7) for number in range(12)))
    got = [delivery for answer in answers for delivery in answer]
    # Deliveries locked by another claim may be left out; none is claimed twice.
    while more := await claimed(stores[0]):
        got += more
    assert len(got) == len({delivery.id for delivery in got}) == 60
    assert {delivery.fence for delivery in got} == {1}


# --- completions ------------------------------------------------------------------------------
async def test_sent_delivery_is_delivered(store: Store, clock: SettableClock) -> None:
    delivery = await one_claimed(store)
    now = clock.advance(1)
    completion = a_delivery_completion(delivery, progress=3, receipt="message 17")
    sent = complete_delivery(delivery, completion, now)
    assert (sent.state, sent.finished_at) == (DeliveryState.DELIVERED, now)
    assert (sent.progress, sent.receipt, sent.error) == (3, "message 17", "")
    assert await store.finish_deliveries([completion]) == (sent,)
    assert await all_deliveries(store) == {sent.id: sent}
    # A repeated completion is rejected: the delivery has ended.
    assert await store.finish_deliveries([completion]) == ()
    assert await all_deliveries(store) == {sent.id: sent}
    assert await store.next_delivery() is None


async def test_failed_delivery_is_retried_with_its_progress(
    store: Store, clock: SettableClock
) -> None:
    delivery = await one_claimed(store)
    now = clock.advance(1)
    before = store.changes()
    completion = a_delivery_completion(
        delivery, retry_in=30 * SECOND, progress=2, error="429 水", code="busy", receipt="m1"
    )
    (waiting,) = await store.finish_deliveries([completion])
    assert waiting == replace(
        delivery,
        progress=2,
        error="429 水",
        code="busy",
        receipt="m1",
        available_at=now + 30 * SECOND,
    )
    assert waiting.state is DeliveryState.PENDING
    assert store.changes() > before, "the retry may be due before the current wait ends"
    assert await store.next_delivery() == now + 30 * SECOND
    assert await claimed(store) == ()
    clock.advance(30)
    (again,) = await claimed(store)
    assert (again.attempts, again.progress) == (2, 2)
    # Progress never decreases, and the receipt is kept.
    (sent,) = await store.finish_deliveries([a_delivery_completion(again, progress=1)])
    assert (sent.progress, sent.receipt, sent.error, sent.code) == (2, "m1", "", "")


async def test_undeliverable_delivery_is_dead(store: Store, clock: SettableClock) -> None:
    delivery = await one_claimed(store)
    completion = a_delivery_completion(delivery, sent=False, error="403", code="blocked")
    (dead,) = await store.finish_deliveries([completion])
    assert (dead.state, dead.finished_at) == (DeliveryState.DEAD, clock.now())
    assert (dead.error, dead.code, dead.attempts) == ("403", "blocked", 1)
    clock.advance(CLAIM_LEASE)
    assert await claimed(store) == ()


async def test_delivery_is_dead_after_its_last_attempt(store: Store, clock: SettableClock) -> None:
    await store.load([a_delivery()])
    for number in range(1, MAX_DELIVERY_ATTEMPTS + 1):
        (delivery,) = await claimed(store)
        assert delivery.attempts == number
        (after,) = await store.finish_deliveries(
            [a_delivery_completion(delivery, retry_in=SECOND, error=f"no {number}")]
        )
        clock.advance(1)
    assert (after.state, after.error) == (DeliveryState.DEAD, f"no {MAX_DELIVERY_ATTEMPTS}")
    assert await claimed(store) == ()


async def test_batch_of_delivery_completions(store: Store) -> None:
    await store.load([a_delivery(id=DeliveryId(name)) for name in "abcd"])
    one, two, three, four = await claimed(store)
    nobody = replace(one, id=DeliveryId("nobody"))
    stale = replace(two, fence=two.fence - 1)
    accepted = await store.finish_deliveries(
        [
            a_delivery_completion(four),
            a_delivery_completion(nobody),
            a_delivery_completion(stale),
            a_delivery_completion(one, sent=False),
            a_delivery_completion(four, sent=False),
            a_delivery_completion(three, retry_in=MINUTE),
        ]
    )
    assert [(row.id, row.state) for row in accepted] == [
        ("d", DeliveryState.DELIVERED),
        ("a", DeliveryState.DEAD),
        ("c", DeliveryState.PENDING),
    ]
    rows = await all_deliveries(store)
    assert rows[two.id] == two
    assert rows[four.id].state is DeliveryState.DELIVERED
    assert await store.finish_deliveries([]) == ()


async def test_inbox_item_is_added_with_its_delivery_completion(store: Store) -> None:
    delivery = await one_claimed(store)
    item = an_item(run_id=delivery.run_id)
    stale = replace(delivery, fence=0)
    assert await store.finish_deliveries([a_delivery_completion(stale, inbox=item)]) == ()
    assert (await store.list_inbox(InboxQuery())).items == ()
    await store.finish_deliveries([a_delivery_completion(delivery, inbox=item)])
    assert (await store.list_inbox(InboxQuery())).items == (item,)


async def test_existing_inbox_item_is_not_overwritten(store: Store) -> None:
    item = await store.add_inbox(an_item(starred=True))
    delivery = await one_claimed(store)
    new = replace(item, title="other", starred=False)
    (sent,) = await store.finish_deliveries([a_delivery_completion(delivery, inbox=new)])
    assert sent.state is DeliveryState.DELIVERED
    assert (await store.list_inbox(InboxQuery())).items == (item,)


# --- manual retry -----------------------------------------------------------------------------
async def test_manual_retry_reopens_a_dead_delivery(store: Store, clock: SettableClock) -> None:
    delivery = await one_claimed(store, attempts=4)
    (dead,) = await store.finish_deliveries(
        [a_delivery_completion(delivery, sent=False, error="403")]
    )
    now = clock.advance(HOUR)
    before = store.changes()
    reopened = reopen_delivery(dead, now)
    assert (reopened.state, reopened.attempts) == (DeliveryState.PENDING, 0)
    assert await store.retry_delivery(dead.id, an_entry(verb="retry")) == reopened
    assert store.changes() > before
    assert await all_deliveries(store) == {dead.id: reopened}
    assert [entry.verb for entry in await store.list_audit(AuditQuery())] == ["retry"]
    (again,) = await claimed(store)
    assert (again.attempts, again.fence) == (1, delivery.fence + 1)


async def test_manual_retry_makes_a_pending_delivery_due(
    store: Store, clock: SettableClock
) -> None:
    delivery = await one_claimed(store)
    await store.finish_deliveries([a_delivery_completion(delivery, retry_in=HOUR)])
    assert await claimed(store) == ()
    await store.retry_delivery(delivery.id)
    assert ids_of(*await claimed(store)) == [delivery.id]


async def test_manual_retry_of_a_delivered_delivery_changes_nothing(
    store: Store, clock: SettableClock
) -> None:
    delivery = await one_claimed(store)
    (sent,) = await store.finish_deliveries([a_delivery_completion(delivery)])
    clock.advance(1)
    assert await store.retry_delivery(sent.id) == sent
    assert await claimed(store) == ()


async def test_manual_retry_of_an_unknown_delivery_is_none(store: Store) -> None:
    assert await store.retry_delivery(DeliveryId("nobody"), an_entry()) is None
    assert await store.list_audit(AuditQuery()) == ()


# --- listing ----------------------------------------------------------------------------------
async def test_deliveries_are_listed_newest_first(store: Store) -> None:
    rows = [a_delivery(created_at=NOW + number // 2 * SECOND) for number in range(7)]
    await store.load(rows)
    expected = tuple(sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True))
    assert (await store.list_deliveries(DeliveryQuery())).items == expected
    found: list[Delivery] = []
    query = DeliveryQuery(limit=3)
    for _ in range(4):
        page = await store.list_deliveries(query)
        found += page.items
        if page.next is None:
            break
        # New deliveries do not shift the pages.
        await store.load([a_delivery(created_at=NOW + HOUR)])
        query = replace(query, after=page.next)
    assert tuple(found) == expected


async def test_deliveries_are_filtered(store: Store) -> None:
    run, schedule = RunId("r"), ScheduleId("s")
    one = a_delivery(run_id=run, schedule_id=schedule)
    two = a_delivery(run_id=run, owner=BOB, recipient=CHAT, state=DeliveryState.DEAD)
    three = a_delivery(schedule_id=schedule, state=DeliveryState.DELIVERED)
    await store.load([one, two, three])

    async def found(**given: object) -> set[str]:
        return {row.id for row in (await store.list_deliveries(DeliveryQuery(**given))).items}

    assert await found(run_id=run) == {one.id, two.id}
    assert await found(run_id=RunId("x")) == set()
    assert await found(schedule_id=schedule) == {one.id, three.id}
    assert await found(owner=ALICE) == {one.id, three.id}
    assert await found(owner=BOB, run_id=run) == {two.id}
    assert await found(states=(DeliveryState.DEAD,)) == {two.id}
    assert await found(states=(DeliveryState.DEAD, DeliveryState.PENDING)) == {one.id, two.id}
    assert await found(channel=Channel.TELEGRAM) == {two.id}
    assert await found(channel=Channel.EMAIL) == set()
    assert await found(ids=(one.id, three.id, DeliveryId("x"))) == {one.id, three.id}
    assert await found(ids=()) == set()
    assert await found(ids=(one.id, two.id), run_id=run, channel=Channel.INBOX) == {one.id}


# --- retention --------------------------------------------------------------------------------
async def test_old_messages_are_pruned(store: Store) -> None:
    old, edge = NOW - timedelta(microseconds=1), NOW
    gone = [
        a_delivery(state=DeliveryState.DELIVERED, finished_at=old),
        a_delivery(state=DeliveryState.DEAD, finished_at=old),
        an_item(created_at=old),
        an_item(created_at=old, read_at=old, archived_at=old),
    ]
    stays = [
        a_delivery(created_at=old, available_at=old),
        a_delivery(state=DeliveryState.DELIVERED, finished_at=edge, created_at=old),
        an_item(created_at=old, starred=True),
        an_item(created_at=edge),
    ]
    await store.load([*gone, *stays])
    assert await store.prune_messages(before=NOW, limit=100) == 4
    assert {item.id for item in await contents(store)} == {item.id for item in stays}
    assert await store.prune_messages(before=NOW, limit=100) == 0


async def test_items_are_deleted_by_id_even_if_starred(store: Store) -> None:
    starred, archived, stays = an_item(starred=True), an_item(archived_at=NOW), an_item()
    await store.load([starred, archived, stays])
    wanted = [starred.id, archived.id, archived.id, InboxId("nobody")]
    assert await store.forget_inbox(wanted) == 2
    assert await contents(store) == [stays]
    assert await store.count_unread(InboxQuery(archived=None)) == 1
    assert await store.forget_inbox(wanted) == 0
    assert await store.forget_inbox([]) == 0


async def test_messages_are_pruned_oldest_first_up_to_the_limit(store: Store) -> None:
    """Deliveries are pruned before items."""
    ended = [
        a_delivery(state=DeliveryState.DEAD, finished_at=NOW - number * MINUTE)
        for number in range(1, 4)
    ]
    items = [an_item(created_at=NOW - number * HOUR) for number in range(1, 4)]
    await store.load([*ended, *items])
    assert await store.prune_messages(before=NOW, limit=2) == 2
    assert await all_deliveries(store) == {ended[0].id: ended[0]}
    assert await store.prune_messages(before=NOW, limit=3) == 3
    assert await contents(store) == [items[0]]
    assert await store.prune_messages(before=NOW, limit=3) == 1
    assert await contents(store) == []


async def test_pruning_runs_keeps_their_deliveries(store: Store) -> None:
    delivery = a_delivery()
    await store.load([delivery])
    await store.prune_runs(before=NOW + HOUR, limit=100)
    assert await all_deliveries(store) == {delivery.id: delivery}


@pytest.mark.parametrize("text", ["", "x" * 50_000, "น้ำ 水 \U0001f514 %_'\"\\ \n\t"])
async def test_delivery_errors_of_any_size_are_stored(store: Store, text: str) -> None:
    delivery = await one_claimed(store)
    completion = a_delivery_completion(delivery, retry_in=SECOND, error=text, receipt=text)
    (after,) = await store.finish_deliveries([completion])
    assert await all_deliveries(store) == {after.id: after}
    assert (after.error, after.receipt) == (text, text)


# --- deliveries without a run, and digests ------------------------------------------------------
async def test_delivery_without_a_run_is_added_once(store: Store) -> None:
    added = a_delivery(
        run_id=None,
        schedule_id=None,
        schedule_name="",
        notify_on=NotifyOn.TEST,
        fence=0,
        attempts=0,
    )
    before = store.changes()
    assert await store.add_delivery(added, an_entry(object_id="first")) == added
    assert store.changes() > before
    again = replace(added, error="another")
    assert await store.add_delivery(again, an_entry(object_id="second")) == added
    assert await all_deliveries(store) == {added.id: added}
    assert [each.object_id for each in await store.list_audit(AuditQuery())] == ["first"]


async def test_digest_and_its_members_are_completed_together(store: Store) -> None:
    """Members of a digest are not claimed, so they are completed with fence 0."""
    digest = await one_claimed(store, run_id=None, notify_on=NotifyOn.DIGEST)
    member = a_delivery(id=DeliveryId("member"), fence=0, attempts=0, available_at=NOW + HOUR)
    taken = a_delivery(id=DeliveryId("taken"), fence=1, attempts=1, available_at=NOW + HOUR)
    await store.load([member, taken])
    completions = [
        a_delivery_completion(digest, sent=True),
        a_delivery_completion(member, sent=True, receipt=digest.id),
        a_delivery_completion(replace(taken, fence=0), sent=True, receipt=digest.id),
    ]
    settled = await store.finish_deliveries(completions)
    assert {each.id: each.state for each in settled} == {
        digest.id: DeliveryState.DELIVERED,
        member.id: DeliveryState.DELIVERED,
    }
    assert (await all_deliveries(store))[taken.id] == taken


async def test_deliveries_are_listed_by_several_run_ids(store: Store) -> None:
    rows = [
        a_delivery(id=DeliveryId(f"d{number}"), run_id=RunId(f"r{number // 2}"), owner=ALICE)
        for number in range(6)
    ]
    test = a_delivery(id=DeliveryId("test"), run_id=None, owner=ALICE)
    await store.load([*rows, test])
    wanted = (RunId("r0"), RunId("r2"), RunId("none"))
    for query in (
        DeliveryQuery(run_ids=wanted),
        DeliveryQuery(run_ids=wanted, owner=ALICE, states=(DeliveryState.PENDING,)),
    ):
        found = (await store.list_deliveries(query)).items
        assert sorted(each.id for each in found) == ["d0", "d1", "d4", "d5"]
    assert (await store.list_deliveries(DeliveryQuery(run_ids=()))).items == ()
