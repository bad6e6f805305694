"""Deliveries, inbox and limits on Redis: round trips, cleanup, corrupt records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta

import pytest
import redis

from chimes.errors import Conflict, QuotaExceeded
from chimes.model import replace
from chimes.model.access import Quota
from chimes.model.ids import DeliveryId
from chimes.model.listing import DeliveryQuery, InboxQuery
from chimes.model.notification import DeliveryState
from chimes.model.planning import plan
from chimes.model.policy import Misfire, Policy
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.run import AttemptEnd, Reason, RunStatus
from chimes.store.redis import RedisStore, notifications
from chimes.store.redis.context import Context
from chimes.testing import SettableClock
from tests.builders import (
    ALICE,
    BOB,
    HOUR,
    LEASE,
    MINUTE,
    NOW,
    SECOND,
    a_completion,
    a_delivery,
    a_delivery_completion,
    a_key,
    a_node,
    a_run,
    a_schedule,
    an_entry,
    an_item,
    claim_request,
    due_schedule,
)
from tests.servers.redis_places import empty_redis_url
from tests.store.redis_calls import Calls
from tests.store.redis_rig import opened, plain_client, published_wakeups
from tests.store.server_rig import until_listening

WITH_RECIPIENTS = Policy(
    delivery=(
        Recipient(channel=Channel.INBOX),
        Recipient(channel=Channel.TELEGRAM, to="7", on=(NotifyOn.RECOVERY,)),
    )
)
CLAIM_LIMITS = {"lease": MINUTE, "overdue": HOUR}


@pytest.fixture
def url() -> str:
    return empty_redis_url().partition("?")[0]


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with plain_client(url) as client:
        yield client


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
async def store(url: str, clock: SettableClock) -> AsyncIterator[RedisStore]:
    async with opened(url, clock) as store:
        await store.join(a_node("node-1"), HOUR)
        yield store


# --- round trips ------------------------------------------------------------------------------
async def test_deliveries_are_written_without_an_extra_round_trip(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, clock: SettableClock
) -> None:
    """The script also detects recoveries without another read."""
    await store.add_schedule(due_schedule(policy=WITH_RECIPIENTS))
    calls = Calls(store, monkeypatch)
    notified = []
    for end in (AttemptEnd.FAILED, AttemptEnd.SUCCEEDED, AttemptEnd.SUCCEEDED):
        (run,) = (await store.fire_due(plan, limit=5, request=claim_request())).claimed
        calls.reset()
        await store.finish([replace(a_completion(run, clock.now(), end), run=run)])
        assert calls.trips == 1
        page = await store.list_deliveries(DeliveryQuery(run_id=run.id))
        notified.append(sorted((each.recipient.channel, each.notify_on) for each in page.items))
        clock.advance(MINUTE)
    assert notified == [
        [("inbox", "failure")],
        [("inbox", "recovery"), ("telegram", "recovery")],
        [("inbox", "success")],
    ]


async def test_many_deliveries_take_as_many_round_trips_as_one(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.load([a_delivery() for _ in range(100)])
    calls = Calls(store, monkeypatch)
    claimed = await store.claim_deliveries([Channel.INBOX], limit=100, **CLAIM_LIMITS)
    assert (len(claimed), calls.trips) == (100, 1)
    completions = [a_delivery_completion(each, inbox=an_item()) for each in claimed]
    assert (len(await store.finish_deliveries(completions)), calls.trips) == (100, 3)


@pytest.mark.parametrize("awake_at", [None, NOW])
async def test_counting_unread_items_loads_no_records(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, awake_at: object
) -> None:
    """Every page shows the count, however many items are unread."""
    given = (
        [an_item() for _ in range(20)]
        + [an_item(owner=BOB), an_item(read_at=NOW), an_item(archived_at=NOW)]
        + [an_item(snoozed_until=NOW + SECOND), an_item(snoozed_until=NOW)]
        + [an_item(snoozed_until=NOW + SECOND, archived_at=NOW)]
    )
    await store.load(given)
    calls = Calls(store, monkeypatch)
    query = InboxQuery(owner=ALICE, awake_at=NOW if awake_at else None)
    assert await store.count_unread(query) == (21 if awake_at else 22)
    assert await store.count_unread(replace(query, owner=None)) == (22 if awake_at else 23)
    assert (calls.trips, calls.records) == (2, 0)


@pytest.mark.parametrize(
    "query",
    [
        InboxQuery(limit=5, owner=BOB),
        InboxQuery(limit=5, owner=BOB, unread=True),
        InboxQuery(limit=5, starred=True),
        InboxQuery(limit=5, archived=True),
        InboxQuery(limit=5, after=(1_894_698_000_000_000 + 200_000_000, "item-x")),
    ],
    ids=str,
)
async def test_inbox_page_loads_only_its_records(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, query: InboxQuery
) -> None:
    await store.load(
        [
            an_item(
                created_at=NOW + number * SECOND,
                owner=ALICE if number % 50 else BOB,
                starred=number % 50 == 1,
                archived_at=None if number % 50 else NOW,
            )
            for number in range(400)
        ]
        + [an_item(owner=BOB)]
    )
    calls = Calls(store, monkeypatch)
    assert (await store.list_inbox(query)).items
    assert calls.records <= 60


# --- cleanup ----------------------------------------------------------------------------------
async def test_pruned_messages_leave_no_keys(
    store: RedisStore, client: redis.Redis, clock: SettableClock
) -> None:
    """Index keys are deleted with their records."""
    before = set(client.scan_iter())
    await store.add_runs([a_run(policy=WITH_RECIPIENTS, owner=ALICE)])
    (run,) = await store.claim(claim_request())
    await store.finish([a_completion(run, clock.now())])
    (sent,) = await store.claim_deliveries(list(Channel), limit=5, **CLAIM_LIMITS)
    item = an_item(run_id=run.id, schedule_id="a schedule", snoozed_until=NOW + HOUR)
    await store.finish_deliveries([a_delivery_completion(sent, inbox=item)])
    await store.change_inbox(item.id, lambda is_, now: replace(is_, starred=True))
    end = clock.advance(SECOND)
    assert await store.prune_runs(before=end, limit=10) == 1
    assert await store.prune_messages(before=end, limit=10) == 1
    # Starred items stay and do not stop the pruning of later ones.
    assert await store.prune_messages(before=end, limit=10) == 0
    await store.change_inbox(item.id, lambda is_, now: replace(is_, starred=False, read_at=now))
    assert await store.prune_messages(before=end, limit=10) == 1
    end = clock.advance(timedelta(days=3))
    assert await store.prune_unused(before=end, limit=10) == 1, "the definition of the run"
    assert set(client.scan_iter()) == before


async def test_token_bucket_expires_when_full(url: str, client: redis.Redis) -> None:
    async with opened(url) as store:
        before = set(client.scan_iter())
        await store.take_tokens("\ud800 any name " + "x" * 9999, rate=2, burst=60, count=40)
        (bucket,) = set(client.scan_iter()) - before
        # Full in twenty seconds, plus a margin for clock differences.
        assert 19_000 < client.pttl(bucket) <= 30_000
        assert len(bucket) < 100
        assert client.hget(bucket, "tokens") == "20"


# --- wake-ups ---------------------------------------------------------------------------------
async def test_delivery_wakes_other_nodes(
    url: str, store: RedisStore, clock: SettableClock
) -> None:
    await store.add_runs([a_run(policy=WITH_RECIPIENTS), a_run()])
    notified, unnotified = sorted(
        await store.claim(claim_request()), key=lambda run: not run.policy.delivery
    )
    async with opened(url, clock) as other:
        await until_listening(other)
        with published_wakeups(url) as published:
            await store.finish([a_completion(unnotified, clock.now())])
            assert published() == []
        seen = other.changes()
        await store.finish([a_completion(notified, clock.now())])
        await asyncio.wait_for(other.wait_for_work(seen, None), 60)


async def test_delivery_of_a_missed_slot_wakes_this_node(
    store: RedisStore, clock: SettableClock
) -> None:
    """A missed slot leaves no work for a worker, but a delivery."""
    policy = replace(WITH_RECIPIENTS, misfire=Misfire.SKIP, misfire_grace=SECOND)
    await until_listening(store)
    await store.add_schedule(due_schedule(NOW - 10 * SECOND, policy=policy))
    seen = store.changes()
    fired = await store.fire_due(plan, limit=5)
    assert [run.status for run in fired.others] == [RunStatus.MISSED]
    assert await store.next_delivery() == clock.now()
    assert store.changes() > seen


# --- races ------------------------------------------------------------------------------------
async def test_concurrent_completions_of_one_delivery_are_fenced(
    url: str, store: RedisStore, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first completion is stored while the second is in flight; the second reads again and is
    rejected."""
    await store.load([a_delivery()])
    (sending,) = await store.claim_deliveries([Channel.INBOX], limit=1, **CLAIM_LIMITS)
    async with opened(url, clock) as other:
        read = notifications._read_deliveries

        async def overtaken(ctx: Context, ids: Sequence[DeliveryId]) -> object:
            monkeypatch.setattr(notifications, "_read_deliveries", read)
            found = await read(ctx, ids)
            await other.finish_deliveries([a_delivery_completion(sending, receipt="first")])
            return found

        monkeypatch.setattr(notifications, "_read_deliveries", overtaken)
        late = a_delivery_completion(sending, retry_in=MINUTE, error="a timeout", inbox=an_item())
        assert await store.finish_deliveries([late]) == ()
        (kept,) = (await other.list_deliveries(DeliveryQuery())).items
        assert (kept.state, kept.receipt, kept.error) == (DeliveryState.DELIVERED, "first", "")
        assert (await other.list_inbox(InboxQuery())).items == ()


async def test_clock_set_back_removes_no_tokens(store: RedisStore, clock: SettableClock) -> None:
    assert (await store.take_tokens("a", rate=1, burst=5)).remaining == 4
    clock.set(NOW - HOUR)
    assert (await store.take_tokens("a", rate=1, burst=5)).remaining == 3


# --- quotas -----------------------------------------------------------------------------------
async def test_quota_check_loads_only_schedules_of_the_owner(store: RedisStore) -> None:
    """The count uses existing index sets, which every schedule change updates."""
    quota = Quota(limit=2, active=True, namespace="softnix")
    given = {"owner": ALICE, "namespace": "softnix"}
    await store.load(
        [
            a_schedule(**given),
            a_schedule(**given, enabled=False),
            a_schedule(**given | {"owner": BOB}),
            a_schedule(**given | {"namespace": "native"}),
        ]
    )
    fired = due_schedule(**given)
    await store.add_schedule(fired, quotas=[Quota(limit=99), quota])
    with pytest.raises(QuotaExceeded) as caught:
        await store.add_schedule(a_schedule(**given), an_entry(), quotas=[Quota(limit=99), quota])
    assert caught.value.details["limit"] == 2

    def used_up(schedule: object, context: object, now: object) -> object:
        firing = plan(schedule, context, now)  # type: ignore[arg-type]
        done = replace(firing.schedule, next_slot=None, next_run_at=None)
        return replace(firing, schedule=done)

    await store.fire_due(used_up, limit=5)  # type: ignore[arg-type]
    await store.add_schedule(a_schedule(**given), quotas=[quota])


# --- records of older versions ----------------------------------------------------------------
async def test_records_of_older_versions_are_readable(
    store: RedisStore, client: redis.Redis
) -> None:
    key = await store.add_key(a_key())
    schedule = await store.add_schedule(a_schedule())
    plain = json.loads(str(client.hget("chimes:keys", key.id)))
    del plain["scopes"]
    client.hset("chimes:keys", key.id, json.dumps(plain))
    policy = json.loads(str(client.hget(f"chimes:schedule:{schedule.id}", "body")))["policy"]
    assert "delivery" not in policy
    assert await store.get_key(key.id) == key
    assert await store.get_schedule(schedule.id) == schedule


# --- corrupt records --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("body", "junk"),
        ("body", "[]"),
        ("body", '{"recipient": {"channel": "pigeon"}}'),
        ("rest", "junk"),
        ("progress", "many"),
        ("created", ""),
        ("attempts", ""),
    ],
)
async def test_corrupt_delivery_is_dead_and_the_others_are_claimed(
    store: RedisStore, client: redis.Redis, field: str, value: str
) -> None:
    good, bad = a_delivery(), a_delivery(schedule_id="its schedule")
    await store.load([bad, good])
    client.hset(f"chimes:delivery:{bad.id}", field, value)
    listed = {each.id: each for each in (await store.list_deliveries(DeliveryQuery())).items}
    assert listed[good.id] == good
    shown = listed[bad.id]
    assert (shown.run_id, shown.schedule_id, shown.owner) == (bad.run_id, "its schedule", ALICE)
    claimed = await store.claim_deliveries([Channel.INBOX], limit=10, **CLAIM_LIMITS)
    if (field, value) == ("attempts", ""):
        # The claim has rewritten the attempt count.
        assert {each.id for each in claimed} == {good.id, bad.id}
        return
    assert [each.id for each in claimed] == [good.id]
    (ended,) = (await store.list_deliveries(DeliveryQuery(states=(DeliveryState.DEAD,)))).items
    assert (ended.id, ended.code) == (bad.id, Reason.UNREADABLE)
    assert "cannot be read" in ended.error
    assert (await store.counts()).deliveries == {DeliveryState.PENDING: 1, DeliveryState.DEAD: 1}
    assert await store.prune_messages(before=NOW + SECOND, limit=10) == 1


async def test_corrupt_inbox_item_hides_no_other(store: RedisStore, client: redis.Redis) -> None:
    good, bad = an_item(), an_item()
    await store.load([good, bad])
    client.hset(f"chimes:inbox:item:{bad.id}", "body", "junk")
    listed = {item.id: item for item in (await store.list_inbox(InboxQuery(owner=ALICE))).items}
    assert listed[good.id] == good
    assert "cannot be read" in listed[bad.id].title
    with pytest.raises(Conflict):
        await store.change_inbox(bad.id, lambda item, now: replace(item, read_at=now))
    assert client.hget(f"chimes:inbox:item:{bad.id}", "body") == "junk"
    assert await store.prune_messages(before=NOW + SECOND, limit=10) == 2


async def test_externally_deleted_messages_do_not_affect_others(
    store: RedisStore, client: redis.Redis
) -> None:
    """Records deleted by other clients; indexes still refer to them."""
    gone, good = a_delivery(available_at=NOW - SECOND), a_delivery()
    ended = a_delivery(state=DeliveryState.DEAD, finished_at=NOW)
    item = an_item()
    await store.load([gone, good, ended, item])
    client.delete(
        f"chimes:delivery:{gone.id}",
        f"chimes:delivery:{ended.id}",
        f"chimes:inbox:item:{item.id}",
    )
    await store.claim_deliveries([Channel.INBOX], limit=1, **CLAIM_LIMITS)
    assert await store.next_delivery() in (NOW, NOW + MINUTE)
    claimed = await store.claim_deliveries([Channel.INBOX], limit=1, **CLAIM_LIMITS)
    assert [each.id for each in claimed] == [good.id]
    assert (await store.list_deliveries(DeliveryQuery())).items == claimed
    assert (await store.list_inbox(InboxQuery())).items == ()
    assert await store.finish_deliveries([a_delivery_completion(gone)]) == ()
    await store.prune_messages(before=NOW + timedelta(days=1), limit=10)
    assert await store.prune_messages(before=NOW + timedelta(days=1), limit=10) == 0
    assert await store.heartbeat(a_node("node-1").id, LEASE, clock=NOW)
