"""Digests and quiet hours, from the outbox to the sent message (ADR 32)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, time, timedelta
from pathlib import Path

import pytest

from chimes.clock import SystemClock
from chimes.engine import deliverer
from chimes.engine import deliverer as delivery_recorder
from chimes.engine import deliverer as digests
from chimes.engine.deliverer import (
    DeliveryPolicy,
    RecipientPreferences,
    defer_to_digest,
    gather_members,
)
from chimes.engine.events import DeliveryEnded, DeliveryRetrying, SenderRaised
from chimes.errors import InvalidInput
from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.listing import DeliveryQuery, InboxQuery
from chimes.model.notification import (
    DELIVERY_LEASE,
    DIGEST_TIMEOUT,
    Delivery,
    DeliveryCompletion,
    DeliveryState,
    digest_of,
    plan_deliveries,
)
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Digest, NotifyOn, Period, QuietHours, Recipient
from chimes.model.run import Origin, Run, RunStatus
from chimes.notifications.base import DeliveryAttempt, Refused, Result, Retry, Sent
from chimes.notifications.digest import DigestMembers
from chimes.notifications.inbox import Inbox
from chimes.notifications.message import build_fallback_message
from chimes.notifications.outcomes import completion_of
from chimes.store.memory import MemoryStore
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import ALICE, BOB, a_delivery, a_run, a_schedule
from tests.engine.rig import Rig, eventually, until
from tests.engine.test_deliverer import Recorded
from tests.store_contract.stores import KINDS, Home

CHAT = Recipient(channel=Channel.TELEGRAM, to="7")
DAILY = Digest(every=Period.DAY, at=time(8), zone="UTC")
DAILY_RECIPIENT = replace(CHAT, digest=DAILY)
DAY = timedelta(days=1)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    home = Home(request.param, tmp_path, SystemClock())
    rig = Rig(await home.open(), request.param.name)
    yield rig
    await rig.close()
    await home.close()


def ended_run(
    number: int,
    at: datetime,
    status: RunStatus = RunStatus.SUCCEEDED,
    recipient: Recipient = DAILY_RECIPIENT,
) -> Run:
    return a_run(
        a_schedule(name=f"job {number}"),
        id=RunId(f"run-{number}"),
        policy=Policy(delivery=(recipient,)),
        owner=ALICE,
        status=status,
        origin=Origin.SCHEDULE,
        created_at=at,
        planned_at=at,
        started_at=at,
        finished_at=at,
    )


async def add_with_deliveries(
    store: Store, *runs: Run, previous: RunStatus | None = None
) -> list[Delivery]:
    """Stores the runs with the deliveries that their completions write."""
    rows = {
        each.id: each
        for run in runs
        for each in plan_deliveries(run, previous, run.finished_at or run.created_at)
    }
    await store.load([*runs, *rows.values()])
    return list(rows.values())


async def deliveries_by_id(store: Store, *states: DeliveryState) -> dict[str, Delivery]:
    found = await store.list_deliveries(DeliveryQuery(states=states, limit=None))
    return {each.id: each for each in found.items}


# One message per period, on every store, with any number of nodes.
async def test_a_digest_is_sent_once_and_completes_its_members(rig: Rig) -> None:
    yesterday = await rig.now() - 2 * DAY
    rows = await add_with_deliveries(
        rig.store,
        ended_run(1, yesterday),
        ended_run(2, yesterday, RunStatus.FAILED),
        ended_run(3, yesterday),
    )
    (digest,) = [each for each in rows if each.notify_on is NotifyOn.DIGEST]
    other = a_delivery(recipient=DAILY_RECIPIENT, owner=BOB, available_at=await rig.now() + DAY)
    await rig.store.load([other])
    telegram = Recorded()
    for _ in range(2):
        await rig.engine(senders=[telegram], telegram_allowed_chats=("7",))
    settled = await eventually(
        lambda: deliveries_by_id(rig.store, DeliveryState.DELIVERED), lambda found: len(found) == 4
    )
    assert {each.receipt for each in settled.values() if each.id != digest.id} == {digest.id}
    (attempt,) = telegram.attempts
    assert (attempt.delivery_id, attempt.message.title) == (digest.id, "Digest: 3 runs")
    lines = attempt.message.text.splitlines()
    assert {"Failed: 1", "Succeeded: 2"} <= set(lines)
    named = [line for line in lines if line.startswith("- job")]
    assert [line.split(" –")[0] for line in named] == [
        "- job 2: failed",
        "- job 3: succeeded",
        "- job 1: succeeded",
    ]
    assert all(line.endswith("(UTC)") for line in named)
    assert (await deliveries_by_id(rig.store, DeliveryState.PENDING)).keys() == {other.id}
    await until(lambda: rig.emitted(DeliveryEnded))


async def test_a_digest_is_one_inbox_item(rig: Rig) -> None:
    yesterday = await rig.now() - 2 * DAY
    inbox = Recipient(channel=Channel.INBOX, digest=DAILY)
    await add_with_deliveries(
        rig.store, *(ended_run(number, yesterday, recipient=inbox) for number in range(4))
    )
    await rig.engine(senders=[Inbox()])
    items = await eventually(lambda: _inbox(rig.store), bool)
    (item,) = items
    assert (item.title, item.run_id, item.status) == ("Digest: 4 runs", None, "digest")
    assert "- [job 3: succeeded – " in item.text
    assert "](/ui/runs/run-3)" in item.text


async def _inbox(store: Store) -> tuple[object, ...]:
    return (await store.list_inbox(InboxQuery(owner=ALICE))).items


async def test_members_of_a_failed_digest_wait_with_it(rig: Rig) -> None:
    yesterday = await rig.now() - 2 * DAY
    rows = await add_with_deliveries(rig.store, ended_run(1, yesterday))
    telegram = Recorded(Channel.TELEGRAM, Refused(error="no", code="blocked"))
    await rig.engine(senders=[Inbox(), telegram], telegram_allowed_chats=("7",))
    (dead,) = (
        await eventually(lambda: deliveries_by_id(rig.store, DeliveryState.DEAD), bool)
    ).values()
    assert dead.notify_on is NotifyOn.DIGEST
    (item,) = await _inbox(rig.store)
    assert item.title == "Not delivered (Telegram): Digest: 1 run"
    (member,) = [each for each in rows if each.run_id]
    waiting = await eventually(
        lambda: deliveries_by_id(rig.store, DeliveryState.PENDING),
        lambda found: found[member.id].code == "digest",
    )
    assert waiting.keys() == {member.id}
    assert waiting[member.id].attempts == 0
    assert waiting[member.id].available_at > await rig.now() + DIGEST_TIMEOUT / 2


async def test_an_empty_digest_is_not_sent(rig: Rig) -> None:
    yesterday = await rig.now() - 2 * DAY
    member, digest = await add_with_deliveries(rig.store, ended_run(1, yesterday))
    alone = DeliveryCompletion(delivery_id=member.id, fence=member.fence, sent=True)
    await rig.store.finish_deliveries([alone])
    telegram = Recorded()
    await rig.engine(senders=[telegram], telegram_allowed_chats=("7",))
    done = await eventually(
        lambda: deliveries_by_id(rig.store, DeliveryState.DELIVERED),
        lambda found: digest.id in found,
    )
    assert done[digest.id].receipt == ""
    assert telegram.attempts == []


# --- members without a digest, on a settable clock ------------------------------------------------
@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def store(clock: SettableClock) -> MemoryStore:
    return MemoryStore(clock)


async def test_a_late_member_is_included_in_the_next_digest(
    store: MemoryStore, clock: SettableClock
) -> None:
    """Written late, after its digest was sent."""
    at = clock.now()
    member, digest = await add_with_deliveries(store, ended_run(1, at))
    clock.advance(DAY)
    waits = await defer_to_digest(store, member, clock.now())
    assert isinstance(waits, Retry)
    assert (waits.after, waits.rate_limited) == (DIGEST_TIMEOUT, True)
    sent = DeliveryCompletion(delivery_id=digest.id, fence=0, sent=True)
    await store.finish_deliveries([sent])
    moved = await defer_to_digest(store, member, clock.now())
    following = digest_of(member, clock.now())
    assert following.id in await deliveries_by_id(store)
    assert isinstance(moved, Retry)
    assert moved.after == following.available_at + DIGEST_TIMEOUT - clock.now()
    assert moved.digest == following.id
    assert (await gather_members(store, following)).members == (), "it must be moved first"
    attempt = DeliveryAttempt(
        delivery_id=member.id,
        recipient=member.recipient,
        owner=member.owner,
        message=build_fallback_message(member, "en"),
        now=clock.now(),
    )
    completion = completion_of(member, attempt, moved)
    (member,) = await store.finish_deliveries([completion])
    assert (await gather_members(store, following)).members == (member,)
    assert (await gather_members(store, digest)).members == ()
    clock.advance(6 * DAY)
    waits = await defer_to_digest(store, member, clock.now())
    assert isinstance(waits, Retry), "the next digest is still pending"
    await store.finish_deliveries(
        [DeliveryCompletion(delivery_id=following.id, fence=0, code="blocked")]
    )
    given_up = await defer_to_digest(store, member, clock.now())
    assert isinstance(given_up, Refused)
    assert given_up.code == "digest"


async def test_a_digest_shows_a_limited_number_of_members(
    store: MemoryStore, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "MAX_DIGEST_MEMBERS", 5)
    monkeypatch.setattr(digests, "_PAGE", 2)
    rows = await add_with_deliveries(
        store, *(ended_run(number, clock.now()) for number in range(7))
    )
    (digest,) = [each for each in rows if each.notify_on is NotifyOn.DIGEST]
    found = await gather_members(store, digest)
    assert (len(found.members), found.more) == (5, True)
    monkeypatch.setattr(digests, "MAX_DIGEST_MEMBERS", 7)
    found = await gather_members(store, digest)
    assert (len(found.members), found.more) == (7, False)


# A member that another node claims while its digest is sent belongs to that digest.
async def test_a_member_claimed_while_its_digest_is_sent_is_included_once(rig: Rig) -> None:
    before = await rig.now() - 2 * DAY
    rows = await add_with_deliveries(rig.store, ended_run(1, before), ended_run(2, before))
    (digest,) = [each for each in rows if each.notify_on is NotifyOn.DIGEST]

    async def claimed_meanwhile(attempt: DeliveryAttempt) -> Result:
        taken = await rig.store.claim_deliveries(
            [Channel.TELEGRAM], limit=10, lease=DELIVERY_LEASE, overdue=DAY
        )
        assert {each.id for each in taken} <= {each.id for each in rows} - {digest.id}
        return Sent()

    telegram = Recorded(Channel.TELEGRAM, claimed_meanwhile, capacity=1)
    await rig.engine(senders=[telegram], telegram_allowed_chats=("7",))
    settled = await eventually(
        lambda: deliveries_by_id(rig.store, DeliveryState.DELIVERED), lambda found: len(found) == 3
    )
    assert {each.receipt for each in settled.values()} == {"", digest.id}
    assert len(telegram.attempts) == 1


# Digests that are due together, after a night or an outage, include each run once.
async def test_digests_due_together_include_each_run_once(rig: Rig) -> None:
    hourly = replace(CHAT, digest=Digest(every=Period.HOUR, at=time(0), zone="UTC"))
    hour = timedelta(hours=1)
    now = await rig.now()
    runs = [ended_run(number, now - (number + 2) * hour, recipient=hourly) for number in range(5)]
    await add_with_deliveries(rig.store, *runs)
    telegram = Recorded()
    for _ in range(2):
        await rig.engine(senders=[telegram], telegram_allowed_chats=("7",))
    await eventually(
        lambda: deliveries_by_id(rig.store, DeliveryState.DELIVERED), lambda found: len(found) == 10
    )
    listed = [
        line.split(":")[0]
        for attempt in telegram.attempts
        for line in attempt.message.text.splitlines()
        if line.startswith("- job")
    ]
    assert sorted(listed) == [f"- job {number}" for number in range(5)]


async def test_members_beyond_the_limit_are_completed_with_the_digest(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "MAX_DIGEST_MEMBERS", 3)
    monkeypatch.setattr(digests, "_PAGE", 2)
    before = await rig.now() - 2 * DAY
    rows = await add_with_deliveries(rig.store, *(ended_run(number, before) for number in range(8)))
    (digest,) = [each for each in rows if each.notify_on is NotifyOn.DIGEST]
    telegram = Recorded()
    await rig.engine(senders=[telegram], telegram_allowed_chats=("7",))
    settled = await eventually(
        lambda: deliveries_by_id(rig.store, DeliveryState.DELIVERED), lambda found: len(found) == 9
    )
    assert {each.receipt for each in settled.values() if each.run_id} == {digest.id}
    (attempt,) = telegram.attempts
    assert attempt.message.title == "Digest: more than 3 runs"


async def test_a_digest_uses_the_recipient_of_its_newest_member(rig: Rig) -> None:
    before = await rig.now() - 2 * DAY
    _, first = await add_with_deliveries(rig.store, ended_run(1, before))
    later = ended_run(
        2, before + timedelta(microseconds=1), recipient=replace(DAILY_RECIPIENT, language="th")
    )
    member, same = plan_deliveries(later, None, later.created_at)
    assert same.id == first.id
    await rig.store.load([later, member])
    telegram = Recorded()
    await rig.engine(senders=[telegram], telegram_allowed_chats=("7",))
    await until(lambda: telegram.attempts)
    assert telegram.attempts[0].recipient.language == "th"
    assert telegram.attempts[0].message.language == "th"


async def test_gathering_members_counts_against_the_send_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never_returns(*_: object) -> DigestMembers:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(deliverer, "gather_members", never_returns)
    monkeypatch.setattr(deliverer, "SEND_TIMEOUT", 0.05)
    rig = Rig(MemoryStore(SystemClock()), "memory")
    try:
        await add_with_deliveries(rig.store, ended_run(1, await rig.now() - 2 * DAY))
        await rig.engine(senders=[Recorded()], telegram_allowed_chats=("7",))
        await until(
            lambda: [
                each for each in rig.emitted(DeliveryRetrying) if each.delivery.code == "timeout"
            ]
        )
    finally:
        await rig.close()


async def test_an_error_in_the_policy_delays_no_other_delivery(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = await rig.now()
    bad, good = (
        a_delivery(recipient=replace(CHAT, to=to), owner=ALICE, available_at=now, created_at=now)
        for to in ("7", "8")
    )
    asked = DeliveryPolicy.decide

    async def breaks(
        self: DeliveryPolicy, delivery: Delivery, readers: RecipientPreferences
    ) -> Result | None:
        if delivery.id == bad.id:
            raise InvalidInput("there is no such zone", field="zone")
        return await asked(self, delivery, readers)

    monkeypatch.setattr(DeliveryPolicy, "decide", breaks)
    await rig.store.load([bad, good])
    telegram = Recorded()
    await rig.engine(senders=[telegram], telegram_allowed_chats=("7", "8"))
    await until(lambda: rig.emitted(DeliveryRetrying) and rig.emitted(DeliveryEnded))
    assert [attempt.delivery_id for attempt in telegram.attempts] == [good.id]
    waiting = await deliveries_by_id(rig.store, DeliveryState.PENDING)
    assert (waiting[bad.id].code, waiting.keys()) == ("broken", {bad.id})
    assert rig.emitted(SenderRaised)


@pytest.mark.parametrize("first", ["digest", "member"])
async def test_a_retry_of_a_member_may_be_in_the_same_batch(first: str, rig: Rig) -> None:
    before = await rig.now() - 2 * DAY
    member, digest = await add_with_deliveries(rig.store, ended_run(1, before))
    taken = await rig.store.claim_deliveries(
        [Channel.TELEGRAM], limit=2, lease=DELIVERY_LEASE, overdue=DAY
    )
    assert {each.id for each in taken} == {member.id, digest.id}
    sent = DeliveryCompletion(delivery_id=digest.id, fence=1, sent=True)
    along = DeliveryCompletion(delivery_id=member.id, fence=0, sent=True, receipt=digest.id)
    waits = DeliveryCompletion(
        delivery_id=member.id, fence=1, retry_in=DIGEST_TIMEOUT, counts=False
    )
    recorder = delivery_recorder.DeliveryRecorder(rig.store, lambda _: None)
    if first == "member":
        recorder.record(waits, member, 0.0)
    recorder.record(sent, digest, 0.0, (along,))
    if first == "digest":
        recorder.record(waits, member, 0.0)
    await recorder.run_once()
    settled = await deliveries_by_id(rig.store, DeliveryState.DELIVERED)
    assert settled.keys() == {member.id, digest.id}
    assert settled[member.id].receipt == digest.id


# A transaction is bounded, however many members digests have.
async def test_a_batch_of_completions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_recorder, "MAX_COMPLETIONS", 6)
    store = MemoryStore(SystemClock())
    batches: list[int] = []
    finish = store.finish_deliveries

    async def counted(completions: Sequence[DeliveryCompletion]) -> tuple[Delivery, ...]:
        batches.append(len(completions))
        return await finish(completions)

    monkeypatch.setattr(store, "finish_deliveries", counted)
    recorder = delivery_recorder.DeliveryRecorder(store, lambda _: None)
    for along in (9, 2, 2, 0):
        main, *others = (a_delivery() for _ in range(along + 1))
        await store.load([main, *others])
        completion, *members = (
            DeliveryCompletion(delivery_id=each.id, fence=each.fence, sent=True)
            for each in (main, *others)
        )
        recorder.record(completion, main, 0.0, tuple(members))
    while recorder.queued:
        await recorder.run_once()
    assert batches == [10, 6, 1]
    assert len(await deliveries_by_id(store, DeliveryState.DELIVERED)) == 17


# --- quiet hours -----------------------------------------------------------------------------
async def test_an_older_delivery_waits_for_the_end_of_the_quiet_hours(rig: Rig) -> None:
    """It was due before the quiet hours, and could not be sent."""
    now = await rig.now()
    quiet = QuietHours(
        start=(now - timedelta(hours=1)).time().replace(second=0, microsecond=0),
        end=(now + timedelta(hours=2)).time().replace(second=0, microsecond=0),
        zone="UTC",
    )
    recipient = replace(CHAT, quiet=quiet)
    delayed = a_delivery(recipient=recipient, owner=ALICE, available_at=now, created_at=now)
    urgent = replace(quiet, except_for=(NotifyOn.FAILURE,))
    at_once = a_delivery(
        recipient=replace(CHAT, to="8", quiet=urgent),
        owner=ALICE,
        notify_on=NotifyOn.FAILURE,
        available_at=now,
        created_at=now,
    )
    await rig.store.load([delayed, at_once])
    telegram = Recorded(Channel.TELEGRAM, Sent())
    await rig.engine(senders=[telegram], telegram_allowed_chats=("7", "8"))
    await until(lambda: rig.emitted(DeliveryRetrying) and rig.emitted(DeliveryEnded))
    (waiting,) = (await deliveries_by_id(rig.store, DeliveryState.PENDING)).values()
    assert (waiting.id, waiting.code, waiting.attempts) == (delayed.id, "quiet", 0)
    end = quiet.until(now)
    assert end is not None
    assert abs(waiting.available_at - end) < timedelta(seconds=30)
    assert [attempt.delivery_id for attempt in telegram.attempts] == [at_once.id]
