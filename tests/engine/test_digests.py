"""Digests and quiet hours, from the outbox to the letter (ADR 32, UX A.4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path

import pytest

from chimes.clock import SystemClock
from chimes.delivery.base import Refused, Retry, Sent
from chimes.delivery.inbox import Inbox
from chimes.engine import digests
from chimes.engine.digests import gathered, left_behind
from chimes.engine.events import DeliveryEnded, DeliveryRetrying
from chimes.model.delivery import (
    LEFT_BEHIND,
    Delivery,
    DeliveryState,
    DeliveryVerdict,
    digest_of,
    outbox,
)
from chimes.model.ids import RunId
from chimes.model.listing import DeliveryQuery, InboxQuery
from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Occasion, Recipient
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.telling_times import Digest, Period, Quiet
from chimes.store.memory import MemoryStore
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import ALICE, BOB, a_delivery, a_run, a_schedule
from tests.engine.rig import Rig, eventually, until
from tests.engine.test_deliverer import Recorded
from tests.store_contract.stores import KINDS, Home

CHAT = Recipient(channel=Channel.TELEGRAM, to="7")
DAILY = Digest(every=Period.DAY, at=time(8), zone="UTC")
TOLD_DAILY = replace(CHAT, digest=DAILY)
DAY = timedelta(days=1)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    home = Home(request.param, tmp_path, SystemClock())
    rig = Rig(await home.open(), request.param.name)
    yield rig
    await rig.close()
    await home.close()


def an_end(
    number: int, at: datetime, status: RunStatus = RunStatus.SUCCEEDED, told: Recipient = TOLD_DAILY
) -> Run:
    run = a_run(a_schedule(name=f"job {number}"))
    return replace(
        run,
        id=RunId(f"run-{number}"),
        schedule_name=f"job {number}",
        policy=Policy(delivery=(told,)),
        owner=ALICE,
        status=status,
        origin=Origin.SCHEDULE,
        created_at=at,
        planned_at=at,
        started_at=at,
        finished_at=at,
    )


async def posted(store: Store, *runs: Run, previous: RunStatus | None = None) -> list[Delivery]:
    """As the verdicts of those runs have written it."""
    rows = {
        each.id: each
        for run in runs
        for each in outbox(run, previous, run.finished_at or run.created_at)
    }
    await store.load([*runs, *rows.values()])
    return list(rows.values())


async def all_of(store: Store, *states: DeliveryState) -> dict[str, Delivery]:
    found = await store.list_deliveries(DeliveryQuery(states=states, limit=None))
    return {each.id: each for each in found.items}


# One message for all of a period, on every store, however many nodes there are
async def test_a_digest_is_sent_once_and_settles_what_is_in_it(rig: Rig) -> None:
    yesterday = await rig.now() - 2 * DAY
    rows = await posted(
        rig.store,
        an_end(1, yesterday),
        an_end(2, yesterday, RunStatus.FAILED),
        an_end(3, yesterday),
    )
    (digest,) = [each for each in rows if each.occasion is Occasion.DIGEST]
    other = a_delivery(recipient=TOLD_DAILY, owner=BOB, available_at=await rig.now() + DAY)
    await rig.store.load([other])
    telegram = Recorded()
    for _ in range(2):
        await rig.engine(senders=[telegram], telegram_allowed_chats=("7",))
    settled = await eventually(
        lambda: all_of(rig.store, DeliveryState.DELIVERED), lambda found: len(found) == 4
    )
    assert {each.receipt for each in settled.values() if each.id != digest.id} == {digest.id}
    (letter,) = telegram.letters
    assert (letter.delivery_id, letter.message.title) == (digest.id, "Digest: 3 runs")
    lines = letter.message.text.splitlines()
    assert {"Failed: 1", "Succeeded: 2"} <= set(lines)
    named = [line for line in lines if line.startswith("- job")]
    assert [line.split(" –")[0] for line in named] == [
        "- job 2: failed",
        "- job 3: succeeded",
        "- job 1: succeeded",
    ]
    assert all(line.endswith("(UTC)") for line in named)
    assert (await all_of(rig.store, DeliveryState.PENDING)).keys() == {other.id}
    await until(lambda: rig.told(DeliveryEnded))


async def test_in_the_inbox_a_digest_is_one_item(rig: Rig) -> None:
    yesterday = await rig.now() - 2 * DAY
    inbox = Recipient(channel=Channel.INBOX, digest=DAILY)
    await posted(rig.store, *(an_end(number, yesterday, told=inbox) for number in range(4)))
    await rig.engine(senders=[Inbox()])
    items = await eventually(lambda: _inbox(rig.store), bool)
    (item,) = items
    assert (item.title, item.run_id, item.status) == ("Digest: 4 runs", None, "digest")
    assert "- [job 3: succeeded – " in item.text
    assert "](/ui/runs/run-3)" in item.text


async def _inbox(store: Store) -> tuple[object, ...]:
    return (await store.list_inbox(InboxQuery(owner=ALICE))).items


async def test_what_cannot_be_sent_waits_with_its_digest(rig: Rig) -> None:
    yesterday = await rig.now() - 2 * DAY
    rows = await posted(rig.store, an_end(1, yesterday))
    telegram = Recorded(Channel.TELEGRAM, Refused(error="no", code="blocked"))
    await rig.engine(senders=[Inbox(), telegram], telegram_allowed_chats=("7",))
    (dead,) = (await eventually(lambda: all_of(rig.store, DeliveryState.DEAD), bool)).values()
    assert dead.occasion is Occasion.DIGEST
    (item,) = await _inbox(rig.store)
    assert item.title == "Not delivered by Telegram: Digest: 1 run"
    (member,) = [each for each in rows if each.run_id]
    waiting = await eventually(
        lambda: all_of(rig.store, DeliveryState.PENDING),
        lambda found: found[member.id].code == "digest",
    )
    assert waiting.keys() == {member.id}
    assert waiting[member.id].attempts == 0
    assert waiting[member.id].available_at > await rig.now() + LEFT_BEHIND / 2


async def test_a_digest_of_nothing_is_not_sent(rig: Rig) -> None:
    yesterday = await rig.now() - 2 * DAY
    member, digest = await posted(rig.store, an_end(1, yesterday))
    alone = DeliveryVerdict(delivery_id=member.id, fence=member.fence, sent=True)
    await rig.store.finish_deliveries([alone])
    telegram = Recorded()
    await rig.engine(senders=[telegram], telegram_allowed_chats=("7",))
    done = await eventually(
        lambda: all_of(rig.store, DeliveryState.DELIVERED), lambda found: digest.id in found
    )
    assert done[digest.id].receipt == ""
    assert telegram.letters == []


# --- what is left behind, by the hour of a clock that can be set --------------------------------
@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def store(clock: SettableClock) -> MemoryStore:
    return MemoryStore(clock)


async def test_what_a_digest_has_left_behind_goes_with_the_next(
    store: MemoryStore, clock: SettableClock
) -> None:
    """Written by somebody who took long, when its digest had gone already."""
    at = clock.now()
    member, digest = await posted(store, an_end(1, at))
    clock.advance(DAY)
    waits = await left_behind(store, member, clock.now())
    assert isinstance(waits, Retry)
    assert (waits.after, waits.holds_back) == (LEFT_BEHIND, True)
    sent = DeliveryVerdict(delivery_id=digest.id, fence=0, sent=True)
    await store.finish_deliveries([sent])
    moved = await left_behind(store, member, clock.now())
    following = digest_of(member, clock.now())
    assert following.id in await all_of(store)
    assert isinstance(moved, Retry)
    assert moved.after == following.available_at + LEFT_BEHIND - clock.now()
    assert (await gathered(store, following)).members == (member,)
    clock.advance(6 * DAY)
    given_up = await left_behind(store, member, clock.now())
    assert isinstance(given_up, Refused)
    assert given_up.code == "digest"


async def test_a_digest_has_room_for_so_many(
    store: MemoryStore, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "MOST_GATHERED", 5)
    monkeypatch.setattr(digests, "_PAGE", 2)
    rows = await posted(store, *(an_end(number, clock.now()) for number in range(7)))
    (digest,) = [each for each in rows if each.occasion is Occasion.DIGEST]
    found = await gathered(store, digest)
    assert (len(found.members), found.more) == (5, True)
    monkeypatch.setattr(digests, "MOST_GATHERED", 7)
    found = await gathered(store, digest)
    assert (len(found.members), found.more) == (7, False)


# --- quiet hours -----------------------------------------------------------------------------
async def test_what_came_before_the_quiet_hours_waits_as_well(rig: Rig) -> None:
    """It was to be sent before, and could not be."""
    now = await rig.now()
    quiet = Quiet(
        start=(now - timedelta(hours=1)).time().replace(second=0, microsecond=0),
        end=(now + timedelta(hours=2)).time().replace(second=0, microsecond=0),
        zone="UTC",
    )
    told = replace(CHAT, quiet=quiet)
    held = a_delivery(recipient=told, owner=ALICE, available_at=now, created_at=now)
    urgent = replace(quiet, but=(Occasion.FAILURE,))
    at_once = a_delivery(
        recipient=replace(CHAT, to="8", quiet=urgent),
        owner=ALICE,
        occasion=Occasion.FAILURE,
        available_at=now,
        created_at=now,
    )
    await rig.store.load([held, at_once])
    telegram = Recorded(Channel.TELEGRAM, Sent())
    await rig.engine(senders=[telegram], telegram_allowed_chats=("7", "8"))
    await until(lambda: rig.told(DeliveryRetrying) and rig.told(DeliveryEnded))
    (waiting,) = (await all_of(rig.store, DeliveryState.PENDING)).values()
    assert (waiting.id, waiting.code, waiting.attempts) == (held.id, "quiet", 0)
    end = quiet.until(now)
    assert end is not None
    assert abs(waiting.available_at - end) < timedelta(seconds=30)
    assert [letter.delivery_id for letter in telegram.letters] == [at_once.id]
