"""The deliverer sends every notification at least once, and never changes a run."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.clock import SystemClock
from chimes.engine import deliverer as admission
from chimes.engine import deliverer as module
from chimes.engine.events import (
    DeliveryEnded,
    DeliveryFenced,
    DeliveryRetrying,
    DutyFailed,
    MessagesPruned,
    SenderRaised,
)
from chimes.errors import StoreUnavailable
from chimes.i18n import in_language
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Owner, OwnerType
from chimes.model.listing import DeliveryQuery, InboxQuery
from chimes.model.notification import (
    MAX_DELIVERY_ATTEMPTS,
    Delivery,
    DeliveryCompletion,
    DeliveryState,
)
from chimes.model.policy import Misfire, Policy
from chimes.model.recipient import Channel, NotifyOn, Recipient
from chimes.model.run import AttemptEnd, Outcome, RunStatus
from chimes.model.schedule import Schedule
from chimes.notifications import outcomes as completions
from chimes.notifications.base import DeliveryAttempt, Refused, Result, Retry, Sent
from chimes.notifications.inbox import Inbox
from chimes.triggers import Once
from tests.builders import ALICE, a_delivery, an_item
from tests.engine.rig import Faults, Rig, eventually, until
from tests.store_contract.stores import KINDS, Home

INBOX = Recipient(channel=Channel.INBOX)
CHAT = Recipient(channel=Channel.TELEGRAM, to="7")
HOOK = Recipient(channel=Channel.WEBHOOK, to="http://127.0.0.1:1/")
ANSWER = Outcome(end=AttemptEnd.SUCCEEDED, result={"text": "**all** is well"})
Step = Result | Callable[[DeliveryAttempt], Awaitable[Result]]


class Recorded:
    """A channel that records its attempts and answers by script, the last answer for all."""

    def __init__(
        self, channel: Channel = Channel.TELEGRAM, *script: Step, capacity: int = 4
    ) -> None:
        self.channel = channel
        self.capacity = capacity
        self.script: list[Step] = list(script or [Sent(receipt="1")])
        self.attempts: list[DeliveryAttempt] = []
        self.most = self.now = 0
        self.opened = self.closed = False
        self.gate = asyncio.Event()

    async def open(self) -> None:
        self.opened = True

    async def close(self) -> None:
        self.closed = True

    async def send(self, attempt: DeliveryAttempt) -> Result:
        self.attempts.append(attempt)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            return await step(attempt) if callable(step) else step
        finally:
            self.now -= 1

    async def wait(self, attempt: DeliveryAttempt) -> Result:
        """A step: waits until the gate opens."""
        await self.gate.wait()
        return Sent()


@pytest.fixture(params=[k for k in KINDS if k.name in ("memory", "sqlite")], ids=lambda k: k.name)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with _rig(request, tmp_path) as rig:
        yield rig


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def any_rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with _rig(request, tmp_path) as rig:
        yield rig


class _rig:
    def __init__(self, request: pytest.FixtureRequest, directory: Path) -> None:
        self._home = Home(request.param, directory, SystemClock())
        self._name = request.param.name

    async def __aenter__(self) -> Rig:
        self._rig = Rig(await self._home.open(), self._name)
        self._rig.runner.script = [ANSWER]
        self._rig.settings = replace(
            self._rig.settings, telegram_allowed_chats=("1", "7", "8", "9")
        )
        return self._rig

    async def __aexit__(self, *_: object) -> None:
        await self._rig.close()
        await self._home.close()


@pytest.fixture
def no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries do not wait."""
    monkeypatch.setattr(
        completions, "delivery_retry_delay", lambda attempts, asked=None: timedelta(0)
    )


async def notifying_schedule(rig: Rig, *recipients: Recipient, **given: object) -> Schedule:
    """A schedule that is due now and notifies the recipients at its end."""
    return await rig.due_now(policy=Policy(delivery=recipients), owner=ALICE, **given)


async def deliveries(rig: Rig, *states: DeliveryState) -> list[Delivery]:
    return list((await rig.store.list_deliveries(DeliveryQuery(states=states, limit=None))).items)


async def finished(rig: Rig, count: int = 1) -> list[Delivery]:
    return await eventually(
        lambda: deliveries(rig, DeliveryState.DELIVERED, DeliveryState.DEAD),
        lambda found: len(found) >= count,
    )


async def test_the_end_of_a_run_is_sent_on_every_channel(any_rig: Rig) -> None:
    rig = any_rig
    telegram = Recorded()
    await rig.engine(senders=[Inbox(), telegram])
    schedule = await notifying_schedule(rig, INBOX, CHAT, name="Morning report")
    (run,) = await rig.ended(schedule)
    found = {each.recipient.channel: each for each in await finished(rig, 2)}
    assert found[Channel.TELEGRAM].receipt == "1"
    assert all(each.state is DeliveryState.DELIVERED for each in found.values())
    assert all((each.attempts, each.run_id) == (1, run.id) for each in found.values())
    (attempt,) = telegram.attempts
    assert attempt.message.text.startswith(f"Run {run.id}: succeeded\nMorning report: succeeded")
    assert attempt.message.text.endswith("\n\nall is well")
    (item,) = (await rig.store.list_inbox(InboxQuery(owner=ALICE))).items
    assert (item.run_id, item.title) == (run.id, "Morning report: succeeded")
    assert item.id == found[Channel.INBOX].receipt
    assert item.text.endswith("**all** is well")
    assert await rig.run(run.id) == run
    await until(lambda: len(rig.emitted(DeliveryEnded)) == 2)


async def test_a_failure_is_retried_and_resumes_its_progress(
    rig: Rig, no_retry_delay: None
) -> None:
    async def half(attempt: DeliveryAttempt) -> Result:
        attempt.progress.parts = 2
        return Retry(error="HTTP 500", code="http_500")

    telegram = Recorded(Channel.TELEGRAM, half, Sent(receipt="9"))
    await rig.engine(senders=[telegram])
    schedule = await notifying_schedule(rig, CHAT)
    (done,) = await finished(rig)
    assert (done.state, done.attempts, done.error) == (DeliveryState.DELIVERED, 2, "")
    assert [attempt.progress.parts for attempt in telegram.attempts] == [2, 2]
    assert len({attempt.delivery_id for attempt in telegram.attempts}) == 1
    await until(lambda: rig.emitted(DeliveryRetrying))
    (retrying,) = rig.emitted(DeliveryRetrying)
    assert (retrying.delivery.code, retrying.delivery.progress) == ("http_500", 2)
    assert (await rig.runs(schedule))[0].attempt == 1


async def test_a_retry_waits_for_retry_after(rig: Rig) -> None:
    telegram = Recorded(
        Channel.TELEGRAM, Retry(error="429", code="rate_limited", after=timedelta(seconds=90))
    )
    await rig.engine(senders=[telegram])
    await notifying_schedule(rig, CHAT)
    await until(lambda: rig.emitted(DeliveryRetrying))
    (waiting,) = await deliveries(rig, DeliveryState.PENDING)
    wait = waiting.available_at - await rig.now()
    assert timedelta(seconds=80) < wait <= timedelta(seconds=90)


# A dead letter is visible, and its text is in the inbox.
@pytest.mark.parametrize("refused", [False, True])
async def test_an_undeliverable_message_is_a_dead_letter(
    rig: Rig, no_retry_delay: None, refused: bool
) -> None:
    retry = Retry(error="HTTP 500", code="http_500")
    telegram = Recorded(
        Channel.TELEGRAM, Refused(error="Forbidden", code="blocked") if refused else retry
    )
    await rig.engine(senders=[Inbox(), telegram])
    schedule = await notifying_schedule(rig, CHAT, name="Morning report")
    (run,) = await rig.ended(schedule)
    (dead,) = await finished(rig)
    assert dead.state is DeliveryState.DEAD
    assert dead.attempts == (1 if refused else MAX_DELIVERY_ATTEMPTS) == len(telegram.attempts)
    assert dead.code == ("blocked" if refused else "http_500")
    (item,) = (await rig.store.list_inbox(InboxQuery(owner=ALICE))).items
    assert item.title == "Not delivered (Telegram): Morning report: succeeded"
    assert dead.error in item.text
    assert item.text.endswith("**all** is well")
    await until(lambda: rig.emitted(DeliveryEnded))
    assert rig.emitted(DeliveryEnded)[0].delivery == dead
    assert await rig.run(run.id) == run


async def test_a_dead_letter_can_be_retried_manually(rig: Rig) -> None:
    telegram = Recorded(Channel.TELEGRAM, Refused(error="no", code="blocked"), Sent(receipt="2"))
    await rig.engine(senders=[telegram])
    await notifying_schedule(rig, CHAT)
    (dead,) = await finished(rig)
    await rig.store.retry_delivery(dead.id)
    (done,) = await eventually(lambda: deliveries(rig, DeliveryState.DELIVERED), bool)
    assert (done.id, done.receipt, done.attempts) == (dead.id, "2", 1)


async def test_a_hanging_channel_delays_no_other(rig: Rig) -> None:
    telegram = Recorded(capacity=2)
    telegram.script = [telegram.wait]
    webhook = Recorded(Channel.WEBHOOK)
    await rig.engine(senders=[telegram, webhook])
    for _ in range(4):
        await notifying_schedule(rig, CHAT)
    await until(lambda: telegram.now == 2)
    for _ in range(6):
        await notifying_schedule(rig, HOOK)
    assert len(await finished(rig, 6)) == 6
    assert telegram.most == 2
    assert len(webhook.attempts) == 6
    telegram.gate.set()
    await finished(rig, 10)
    assert telegram.most == 2


# Without faults no message is sent twice.
async def test_two_nodes_share_the_work(rig: Rig) -> None:
    telegram = Recorded()
    for _ in range(2):
        await rig.engine(senders=[telegram])
    for _ in range(10):
        await notifying_schedule(rig, CHAT)
    await finished(rig, 10)
    counted = Counter(attempt.delivery_id for attempt in telegram.attempts)
    assert (len(counted), set(counted.values())) == (10, {1})


async def test_a_missing_channel_names_the_setting(
    rig: Rig, no_retry_delay: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits a minute for a node with the channel, and the reason is known meanwhile."""
    assert timedelta(0) < module.CHANNEL_WAIT <= timedelta(minutes=1)
    await rig.engine(senders=[Inbox()])
    await rig.ended(await notifying_schedule(rig, CHAT))
    (waiting,) = await eventually(
        lambda: deliveries(rig), lambda found: [each.code for each in found] == ["waits"]
    )
    assert waiting.state is DeliveryState.PENDING
    assert "CHIMES_TELEGRAM_TOKEN" in waiting.error
    assert waiting.available_at <= waiting.created_at + module.CHANNEL_WAIT + timedelta(seconds=5)
    monkeypatch.setattr(module, "CHANNEL_WAIT", timedelta(0))
    await rig.store.retry_delivery(waiting.id)
    (dead,) = await finished(rig)
    assert (dead.code, dead.state) == ("not_configured", DeliveryState.DEAD)
    assert "CHIMES_TELEGRAM_TOKEN" in dead.error
    (item,) = (await rig.store.list_inbox(InboxQuery())).items
    assert "CHIMES_TELEGRAM_TOKEN" in item.text


async def test_a_channel_that_raises_is_reported_and_retried(
    rig: Rig, no_retry_delay: None
) -> None:
    async def broken(attempt: DeliveryAttempt) -> Result:
        raise ZeroDivisionError("by nought")

    telegram = Recorded(Channel.TELEGRAM, broken, Sent())
    await rig.engine(senders=[telegram])
    await notifying_schedule(rig, CHAT)
    (done,) = await finished(rig)
    assert (done.state, done.attempts) == (DeliveryState.DELIVERED, 2)
    assert len(rig.emitted(SenderRaised)) == 1


async def test_messages_use_the_language_and_zone_of_the_recipient(rig: Rig) -> None:
    await rig.store.set_checkpoint(
        f"me:{ALICE}", json.dumps({"timezone": "Asia/Tokyo", "language": "zh"})
    )
    await rig.store.set_checkpoint("telegram:chat:7", json.dumps({"language": "th"}))
    await rig.store.set_checkpoint("telegram:chat:8", "no JSON")
    telegram = Recorded()
    await rig.engine(senders=[telegram], default_timezone="Europe/Berlin")
    other = replace(CHAT, to="8")
    await notifying_schedule(rig, CHAT, other, replace(other, to="9", language="en"))
    await finished(rig, 3)
    messages = {attempt.recipient.to: attempt.message for attempt in telegram.attempts}
    assert {to: message.language for to, message in messages.items()} == {
        "7": "th",
        "8": "zh",
        "9": "en",
    }
    assert all("Asia/Tokyo" in message.text for message in messages.values())
    chat = Owner(type=OwnerType.CHAT, id="7")
    await rig.due_now(policy=Policy(delivery=(replace(CHAT, to="1"),)), owner=chat)
    await until(lambda: any("Asia/Bangkok" in each.message.text for each in telegram.attempts))


async def test_a_message_about_a_pruned_run_says_so(rig: Rig) -> None:
    telegram = Recorded()
    now = await rig.now()
    await rig.store.load([a_delivery(recipient=CHAT, available_at=now, created_at=now)])
    await rig.engine(senders=[telegram])
    await finished(rig)
    assert "no longer stored" in telegram.attempts[0].message.text


async def test_a_delivery_whose_senders_all_died_is_given_up(rig: Rig) -> None:
    telegram = Recorded()
    now = await rig.now()
    begun = a_delivery(
        recipient=CHAT, available_at=now, created_at=now, attempts=MAX_DELIVERY_ATTEMPTS, fence=9
    )
    await rig.store.load([begun])
    await rig.engine(senders=[telegram])
    (dead,) = await finished(rig)
    assert (dead.state, dead.code) == (DeliveryState.DEAD, "lost")
    assert telegram.attempts == []


# A long text is rendered in a thread.
async def test_a_long_answer_is_delivered(rig: Rig) -> None:
    rig.runner.script = [replace(ANSWER, result={"text": "**word** " * 3000})]
    telegram = Recorded()
    await rig.engine(senders=[telegram])
    await notifying_schedule(rig, CHAT)
    await finished(rig)
    assert telegram.attempts[0].message.text.count("word") == 3000


async def test_missed_slots_are_sent_immediately(rig: Rig) -> None:
    telegram = Recorded()
    await rig.engine(senders=[telegram])
    past = await rig.now() - timedelta(hours=1)
    await rig.every(7200, past, policy=Policy(misfire=Misfire.SKIP, delivery=(CHAT,)), owner=ALICE)
    (done,) = await finished(rig)
    assert done.notify_on is NotifyOn.FAILURE
    assert telegram.attempts[0].message.status == RunStatus.MISSED


async def test_a_drain_waits_for_messages_being_sent(rig: Rig) -> None:
    telegram = Recorded()
    telegram.script = [telegram.wait]
    engine = await rig.engine(senders=[telegram])
    await notifying_schedule(rig, CHAT)
    await until(lambda: telegram.now)
    draining = asyncio.create_task(engine.drain(timedelta(seconds=10)))
    await until(lambda: engine.draining)
    telegram.gate.set()
    await draining
    (done,) = await deliveries(rig)
    assert done.state is DeliveryState.DELIVERED
    assert telegram.closed


async def test_a_message_that_outlasts_the_grace_is_sent_by_another_node(rig: Rig) -> None:
    telegram = Recorded()
    telegram.script = [telegram.wait]
    engine = await rig.engine(senders=[telegram])
    await notifying_schedule(rig, CHAT)
    await until(lambda: telegram.now)
    await engine.drain(timedelta(0))
    (left,) = await deliveries(rig)
    assert (left.state, left.attempts) == (DeliveryState.PENDING, 1)
    assert telegram.now == 0


async def test_a_completion_survives_an_outage(rig: Rig) -> None:
    faults = Faults(rig.store)
    telegram = Recorded()
    faults.failing["finish_deliveries"] = StoreUnavailable("gone")
    await rig.engine(store=faults.store, senders=[telegram])
    await notifying_schedule(rig, CHAT)
    await until(lambda: any(e.duty == "delivery recorder" for e in rig.emitted(DutyFailed)))
    del faults.failing["finish_deliveries"]
    (done,) = await finished(rig)
    assert (done.state, len(telegram.attempts)) == (DeliveryState.DELIVERED, 1)


async def test_claimed_deliveries_are_sent_after_an_outage(rig: Rig) -> None:
    faults = Faults(rig.store)
    telegram = Recorded()
    faults.failing["get_checkpoint"] = StoreUnavailable("gone")
    await rig.engine(store=faults.store, senders=[telegram])
    await notifying_schedule(rig, CHAT)
    await until(lambda: any(e.duty == "deliverer" for e in rig.emitted(DutyFailed)))
    del faults.failing["get_checkpoint"]
    (done,) = await finished(rig)
    assert (done.attempts, len(telegram.attempts)) == (1, 1)


async def test_an_unwritable_completion_delays_no_other(rig: Rig) -> None:
    class Picky(Faults):
        def __getattr__(self, name: str) -> Any:
            verb = super().__getattr__(name)
            if name != "finish_deliveries":
                return verb

            async def picky(completions: Sequence[DeliveryCompletion]) -> object:
                if any(each.receipt == "bad" for each in completions):
                    raise ValueError("no room for it")
                return await verb(completions)

            return picky

    telegram = Recorded(Channel.TELEGRAM, Sent(receipt="bad"), Sent(receipt="good"))
    now = await rig.now()
    waiting = [a_delivery(recipient=CHAT, available_at=now, created_at=now) for _ in range(3)]
    await rig.store.load(waiting)
    await rig.engine(store=Picky(rig.store).store, senders=[telegram])
    done = await finished(rig, 2)
    assert [each.receipt for each in done] == ["good", "good"]
    await until(lambda: any(e.duty == "delivery recorder" for e in rig.emitted(DutyFailed)))
    assert len(await deliveries(rig, DeliveryState.PENDING)) == 1


async def test_a_completion_after_the_lease_is_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    telegram = Recorded()
    telegram.script = [telegram.wait, Sent(receipt="second")]
    monkeypatch.setattr(module, "LEASE", timedelta(seconds=0.3))
    await rig.engine(senders=[telegram])
    await notifying_schedule(rig, CHAT)
    await until(lambda: telegram.now)
    (done,) = await finished(rig)
    telegram.gate.set()
    await until(lambda: rig.emitted(DeliveryFenced))
    assert (done.receipt, done.attempts) == ("second", 2)
    assert await deliveries(rig) == [done]


async def test_old_messages_are_deleted_after_the_retention(rig: Rig) -> None:
    then = await rig.now() - timedelta(days=40)
    old, starred, new = (
        an_item(created_at=then),
        an_item(created_at=then, starred=True),
        an_item(created_at=await rig.now()),
    )
    for item in (old, starred, new):
        await rig.store.add_inbox(item)
    await rig.store.load([a_delivery(state=DeliveryState.DEAD, finished_at=then)])
    await rig.engine(retention=timedelta(days=30))
    await until(lambda: rig.emitted(MessagesPruned))
    assert rig.emitted(MessagesPruned)[0].count == 2
    left = (await rig.store.list_inbox(InboxQuery())).items
    assert {item.id for item in left} == {starred.id, new.id}
    assert await deliveries(rig) == []


async def test_an_idle_deliverer_does_not_query_the_store(rig: Rig) -> None:
    faults = Faults(rig.store)
    await rig.engine(store=faults.store, senders=[Recorded()], roles=("worker",))
    await until(lambda: faults.count["next_delivery"])
    polls = faults.count["next_available"]
    await until(lambda: faults.count["next_available"] >= polls + 6)
    # At the start, and once more if another write of the start was seen after that.
    assert faults.count["next_delivery"] <= 2
    assert faults.count["claim_deliveries"] == 0


# A 429 uses up no attempt, and delays only its own chat.
async def test_retry_after_of_a_chat_delays_only_that_chat(rig: Rig) -> None:
    asked = timedelta(seconds=90)

    async def busy(attempt: DeliveryAttempt) -> Result:
        if attempt.recipient.to != CHAT.to:
            return Sent(receipt="other")
        return Retry(error="429", code="rate_limited", after=asked, rate_limited=True)

    telegram = Recorded(Channel.TELEGRAM, busy)
    await rig.engine(senders=[telegram])
    await notifying_schedule(rig, CHAT)
    await until(lambda: rig.emitted(DeliveryRetrying))
    await notifying_schedule(rig, CHAT, replace(CHAT, to="8"))
    (other,) = await finished(rig)
    assert other.receipt == "other"
    await until(lambda: len(rig.emitted(DeliveryRetrying)) == 2)
    assert [attempt.recipient.to for attempt in telegram.attempts].count(CHAT.to) == 1
    now = await rig.now()
    for waiting in await deliveries(rig, DeliveryState.PENDING):
        assert (waiting.attempts, waiting.code) == (0, "rate_limited")
        assert timedelta(seconds=70) < waiting.available_at - now <= asked


# Permissions are checked at sending time.
@pytest.mark.parametrize(
    ("allowed", "state", "owner", "code"),
    [
        ((), None, Owner(type=OwnerType.CHAT, id="7"), "not_allowed"),
        (("8",), {"owner": str(ALICE)}, ALICE, ""),
        ((), None, SYSTEM_OWNER, ""),
        (("7",), {"owner": str(ALICE)}, SYSTEM_OWNER, ""),
        (("7",), None, ALICE, ""),
        (("7",), {"owner": str(ALICE)}, ALICE, ""),
        (("7",), {"owner": "user:bob"}, ALICE, "not_linked"),
        (("7",), {"left": str(ALICE), "language": "th"}, ALICE, "not_linked"),
        (("7",), {"left": "user:bob"}, ALICE, ""),
        (("7",), {"owner": str(ALICE)}, Owner(type=OwnerType.CHAT, id="7"), ""),
    ],
)
async def test_a_chat_gets_messages_only_while_it_is_allowed(
    rig: Rig,
    allowed: tuple[str, ...],
    state: dict[str, str] | None,
    owner: Owner,
    code: str,
) -> None:
    if state is not None:
        await rig.store.set_checkpoint("telegram:chat:7", json.dumps(state))
    telegram = Recorded()
    await rig.engine(senders=[Inbox(), telegram], telegram_allowed_chats=allowed)
    await rig.due_now(policy=Policy(delivery=(CHAT,)), owner=owner)
    (done,) = await finished(rig)
    assert (done.code, len(telegram.attempts)) == (code, 0 if code else 1)
    notices = (await rig.store.list_inbox(InboxQuery(owner=owner))).items
    # The notice is in the language of the chat, the stored error in English.
    language = (state or {}).get("language", "en")
    texts_found = [in_language(done.error, language) in item.text for item in notices]
    assert texts_found == ([True] if code else [])
    if code == "not_allowed":
        assert "CHIMES_TELEGRAM_ALLOWED_CHATS" in done.error


async def test_mail_is_sent_to_allowed_domains_only(rig: Rig) -> None:
    email = Recorded(Channel.EMAIL)
    await rig.engine(senders=[email], smtp_allowed=("Example.com",))
    mails = [Recipient(channel=Channel.EMAIL, to=f"ada@{at}") for at in ("example.com", "evil.org")]
    await notifying_schedule(rig, *mails)
    found = {each.recipient.to: each for each in await finished(rig, 2)}
    assert [attempt.recipient.to for attempt in email.attempts] == ["ada@example.com"]
    assert found["ada@evil.org"].code == "not_allowed"
    assert "CHIMES_SMTP_ALLOWED" in found["ada@evil.org"].error


async def test_an_owner_has_an_hourly_mail_limit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "EMAILS_PER_HOUR", 2)
    email = Recorded(Channel.EMAIL)
    await rig.engine(senders=[email])
    to = [Recipient(channel=Channel.EMAIL, to=f"{name}@example.com") for name in "abc"]
    await notifying_schedule(rig, *to)
    await finished(rig, 2)
    await until(lambda: rig.emitted(DeliveryRetrying))
    (waiting,) = await deliveries(rig, DeliveryState.PENDING)
    assert (waiting.code, waiting.attempts, len(email.attempts)) == ("rate_limited", 0, 2)
    assert waiting.available_at - await rig.now() > timedelta(minutes=20)
    await rig.due_now(policy=Policy(delivery=(to[2],)), owner=Owner(type=OwnerType.USER, id="bob"))
    await finished(rig, 3)


async def test_a_message_falls_back_to_the_zone_of_its_schedule(rig: Rig) -> None:
    await rig.engine(senders=[Inbox()], default_timezone="Europe/Berlin")
    soon = await rig.now()
    trigger = Once(at=soon, timezone="Asia/Bangkok")
    await notifying_schedule(rig, INBOX, trigger=trigger)
    await finished(rig)
    (item,) = (await rig.store.list_inbox(InboxQuery(owner=ALICE))).items
    assert "(Asia/Bangkok)" in item.text
    await rig.store.set_checkpoint(f"me:{ALICE}", json.dumps({"timezone": "Asia/Tokyo"}))
    await notifying_schedule(rig, INBOX, trigger=trigger)
    await finished(rig, 2)
    texts = [item.text for item in (await rig.store.list_inbox(InboxQuery(owner=ALICE))).items]
    assert sum("(Asia/Tokyo)" in text for text in texts) == 1


async def test_a_message_that_cannot_be_built_ends_with_a_notice(
    rig: Rig, no_retry_delay: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "build_message", broken)
    telegram = Recorded()
    await rig.engine(senders=[telegram])
    await notifying_schedule(rig, CHAT, name="Morning report")
    (dead,) = await finished(rig)
    assert (dead.state, dead.code) == (DeliveryState.DEAD, "broken")
    (item,) = (await rig.store.list_inbox(InboxQuery(owner=ALICE))).items
    assert item.title == "Not delivered (Telegram): Morning report: ended"
    assert (item.run_id, "ZeroDivisionError" in item.text) == (dead.run_id, True)
    assert telegram.attempts == []


async def test_a_node_without_the_channel_leaves_it_to_a_live_node_that_has_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes may have different settings: what any live node offers is not given up."""
    monkeypatch.setattr(module, "CHANNEL_WAIT", timedelta(0))
    monkeypatch.setattr(module, "CHANNEL_CACHE", 0.0)
    telegram = Recorded()
    able = await rig.engine(senders=[telegram])
    nodes = [node.capabilities for node in await rig.store.nodes()]
    assert [name for name in nodes[0] if name.startswith("channel:")] == ["channel:telegram"]
    await able.drain(timedelta(seconds=5))
    await rig.store.set_checkpoint("sends:telegram", "2020-01-01T00:00:00+00:00")
    other = await rig.engine(senders=[Inbox()])
    policy = module.DeliveryPolicy(
        rig.store, {Channel.INBOX}, time=other._deliverer._time, clock=SystemClock()
    )
    assert set(await policy.orphaned_channels()) == {
        Channel.TELEGRAM,
        Channel.EMAIL,
        Channel.APPRISE,
    }
    await rig.engine(senders=[telegram])
    assert set(await policy.orphaned_channels()) == {Channel.EMAIL, Channel.APPRISE}
    await notifying_schedule(rig, CHAT)
    (done,) = await finished(rig)
    assert (done.state, done.attempts) == (DeliveryState.DELIVERED, 1)


# A channel that was announced lately is waited for, as in a rolling restart.
async def test_a_delivery_waits_for_a_node_with_its_channel(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert timedelta(hours=1) <= admission.OVERDUE
    able = await rig.engine(senders=[Recorded()])
    await eventually(lambda: rig.store.get_checkpoint("sends:telegram"), bool)
    await able.drain(timedelta(seconds=5))
    await rig.engine(senders=[Inbox()])
    monkeypatch.setattr(module, "EMPTY_CLAIM_PAUSE", 0.1)
    now = await rig.now()
    long_ago = now - timedelta(hours=2)
    await rig.store.load([a_delivery(recipient=CHAT, available_at=long_ago, created_at=long_ago)])
    rig.store.wake()
    (waiting,) = await eventually(
        lambda: deliveries(rig), lambda found: [each.code for each in found] == ["waits"]
    )
    assert (waiting.state, waiting.attempts) == (DeliveryState.PENDING, 0)
    telegram = Recorded()
    await rig.engine(senders=[telegram])
    await rig.store.retry_delivery(waiting.id)
    (done,) = await finished(rig)
    assert (done.state, len(telegram.attempts)) == (DeliveryState.DELIVERED, 1)
