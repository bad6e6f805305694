"""Decisions about waiting flows in a chat: messages with buttons, and commands."""

from __future__ import annotations

from chimes.model.access import Actor
from chimes.model.recipient import NotifyOn
from chimes.model.wait import ApprovalStatus, approval_of
from chimes.notifications.message import build_approval_message
from chimes.notifications.telegram import Telegram
from chimes.notifications.telegram_api import decode
from chimes.services.waits import ApprovalService, announce_approval
from tests.builders import BOB
from tests.telegram.bot_api import TOKEN
from tests.telegram.conftest import Chats
from tests.telegram.test_proposals import ALICE, link, press, telegram_deliveries
from tests.waiting_flows import add_waiting_flow


async def test_linked_chats_get_a_message_with_buttons_that_decide(chats: Chats) -> None:
    await link(chats, ALICE, 7)
    flow, wait = await add_waiting_flow(
        chats.store, await chats.store.now(), owner=ALICE, prompt="Publish <it>?"
    )
    await announce_approval(chats.store, wait, ())
    await announce_approval(chats.store, wait, ())
    (delivery,) = (await telegram_deliveries(chats)).values()
    assert (delivery.notify_on, delivery.receipt) == (NotifyOn.APPROVAL, wait.id)
    approval = approval_of(wait, wait.created_at)
    assert approval is not None
    message = build_approval_message(
        delivery, approval, language="en", zone="Asia/Bangkok", public_url="https://c.example"
    )
    assert message.title == "report waits for an approval: approve"
    assert "Publish <it>?" in message.text
    assert message.link == f"https://c.example/ui/approvals/{wait.id}"
    assert message.facts["id"] == wait.id, "what a webhook receives"
    channel = Telegram(token=TOKEN, api_url="", fetcher=None)  # type: ignore[arg-type]
    rows = channel.buttons(message, "7")
    found = {each["text"]: each.get("callback_data", "") for row in rows for each in row}
    assert set(found) == {"Approve", "Reject", "Open"}
    assert all(len(each) <= 64 for each in found.values())
    assert decode(found["Approve"], chat="8", token=TOKEN) is None, "of another chat"
    assert "Approved: report, approve" in await chats.handle_update(press(chats, found["Approve"]))
    decided = await ApprovalService(chats.store).get(Actor(), wait.id)
    assert (decided.status, decided.decided_by) == (ApprovalStatus.APPROVED, "user:alice")
    assert "decided already" in await chats.handle_update(press(chats, found["Reject"]))
    after = await chats.store.get_run(flow.id)
    assert after is not None
    assert after.available_at < flow.available_at


async def test_commands_list_and_decide(chats: Chats) -> None:
    await link(chats, ALICE, 7)
    assert "No open approvals." in await chats.say("/approvals")
    now = await chats.store.now()
    _flow, wait = await add_waiting_flow(chats.store, now, owner=ALICE)
    _flow, other = await add_waiting_flow(chats.store, now, owner=BOB)
    listed = await chats.say("/approvals")
    assert f"/approve {wait.id}" in listed
    assert other.id not in listed
    assert "not found" in await chats.say(f"/approve {other.id}")
    assert "Write /reject and the id" in await chats.say("/reject")
    assert "Rejected: report, approve" in await chats.say(f"/reject {wait.id} wrong month")
    decided = await ApprovalService(chats.store).get(Actor(), wait.id)
    assert (decided.status, decided.reason) == (ApprovalStatus.REJECTED, "wrong month")
