"""Decisions about proposals in a chat: messages with buttons, and commands."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from chimes.model.access import SYSTEM_OWNER, Actor, Owner, OwnerType, Role
from chimes.model.listing import DeliveryQuery
from chimes.model.proposal import Proposal, ProposalStatus
from chimes.model.recipient import Channel
from chimes.notifications.message import build_proposal_message
from chimes.notifications.telegram import Telegram
from chimes.notifications.telegram_api import SEPARATOR, Action, decode, encode
from chimes.services.users import UserService
from tests.telegram.bot_api import TOKEN
from tests.telegram.conftest import NOW, Chats

ALICE = Owner(type=OwnerType.USER, id="alice")
CRON = {"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Bangkok"}
NINE = {"trigger": CRON, "target": {"kind": "http", "url": "http://127.0.0.1:9/"}}
TEN = NINE | {"trigger": CRON | {"expression": "0 10 * * *"}}


async def link(chats: Chats, owner: Owner, chat: int) -> None:
    links = chats.conversation.links
    actor = Actor(owner=owner, role=Role.MEMBER)
    code = await links.new_code(actor)
    await links.use_code(code.text, str(chat), str(chat))
    await links.confirm(actor, str(chat))


async def propose(chats: Chats, owner: Owner = ALICE, **given: Any) -> Proposal:
    changes = given.pop("changes", {"schedules": {"nightly": NINE}})
    return await chats.proposals.propose(
        Actor(owner=owner, role=Role.VIEWER), changes, reason="to save <money>", title="claude"
    )


def press(chats: Chats, data: str, chat: int = 7) -> dict[str, Any]:
    chats.number += 1
    return {
        "update_id": chats.number,
        "callback_query": {
            "id": "press",
            "from": {"id": chat},
            "data": data,
            "message": {"message_id": 1, "chat": {"id": chat, "type": "private"}},
        },
    }


def buttons(chats: Chats, proposal: Proposal, delivery: Any) -> dict[str, str]:
    """Text of a button of the message -> its data."""
    message = build_proposal_message(
        delivery, proposal, language="en", zone="Asia/Bangkok", public_url="https://c.example"
    )
    channel = Telegram(token=TOKEN, api_url="", fetcher=None)  # type: ignore[arg-type]
    rows = channel.buttons(message, delivery.recipient.to)
    return {each["text"]: each.get("callback_data", "") for row in rows for each in row}


async def telegram_deliveries(chats: Chats) -> dict[str, Any]:
    found = (await chats.store.list_deliveries(DeliveryQuery())).items
    return {each.recipient.to: each for each in found if each.recipient.channel is Channel.TELEGRAM}


async def test_linked_chats_get_a_message_with_buttons_that_decide(chats: Chats) -> None:
    await link(chats, ALICE, 7)
    proposal = await propose(chats)
    deliveries = await telegram_deliveries(chats)
    assert list(deliveries) == ["7"]
    message = build_proposal_message(
        deliveries["7"], proposal, language="th", zone="Asia/Bangkok", public_url=""
    )
    assert "claude" in message.text
    assert "<money>" in message.text
    found = buttons(chats, proposal, deliveries["7"])
    assert set(found) == {"Approve", "Reject", "Open"}
    assert all(len(each) <= 64 for each in found.values())
    pressed = decode(found["Approve"], chat="7", token=TOKEN)
    assert pressed is not None
    assert pressed.object_id == f"{proposal.id}{SEPARATOR}{proposal.digest[:16]}"
    # In another chat the button is worth nothing.
    assert decode(found["Approve"], chat="8", token=TOKEN) is None
    reply = await chats.handle_update(press(chats, found["Approve"]))
    assert "Proposal approved." in reply
    assert "Create nightly: adds 7 fires" in reply
    decided = await chats.proposals.get(Actor(), proposal.id)
    assert (decided.status, decided.decided_by) == (ProposalStatus.APPROVED, "user:alice")
    again = await chats.handle_update(press(chats, found["Reject"]))
    assert "the proposal is approved already" in again
    second = await propose(chats, changes={"schedules": {"other": NINE}})
    found = buttons(chats, second, deliveries["7"])
    assert "Proposal rejected." in await chats.handle_update(press(chats, found["Reject"]))
    assert (await chats.proposals.get(Actor(), second.id)).status is ProposalStatus.REJECTED


async def test_a_button_does_not_approve_a_later_plan(chats: Chats) -> None:
    await link(chats, ALICE, 7)
    first = await propose(chats)
    await chats.proposals.approve(Actor(), first.id)
    change = await propose(chats, changes={"schedules": {"nightly": TEN}})
    data = buttons(chats, change, (await telegram_deliveries(chats))["7"])["Approve"]
    schedule_id = first.plan[0].id
    await chats.schedules.pause(Actor(), schedule_id)  # type: ignore[arg-type]
    reply = await chats.handle_update(press(chats, data))
    assert "look at the new plan" in reply
    # The stored plan is the new one: the button is for the old one.
    reply = await chats.handle_update(press(chats, data))
    assert "look at the new plan" in reply
    assert f"/proposal_approve {change.id}" in reply
    assert (await chats.proposals.get(Actor(), change.id)).status is ProposalStatus.OPEN
    assert "Proposal approved." in await chats.say(f"/proposal_approve {change.id}")


async def test_commands_list_show_and_decide(chats: Chats) -> None:
    await link(chats, ALICE, 7)
    assert "No open proposals." in await chats.say("/proposals")
    proposal = await propose(chats)
    assert proposal.id in await chats.say("/proposals")
    shown = await chats.say(f"/proposal {proposal.id}")
    assert "Proposal by claude" in shown
    assert "to save <money>" in shown
    assert "not found" in await chats.say("/proposal nothing")
    assert "/proposals lists them" in await chats.say("/proposal_approve")
    # Another chat, of another owner, does not see it.
    assert "No open proposals." in await chats.say("/proposals", chat=8)
    assert "not found" in await chats.say(f"/proposal_approve {proposal.id}", chat=8)
    rejected = await chats.say(f"/proposal_reject {proposal.id} not on Mondays")
    assert "Proposal rejected." in rejected
    decided = await chats.proposals.get(Actor(), proposal.id)
    assert decided.decision == "not on Mondays"
    late = await propose(chats)
    chats.clock.set(NOW + timedelta(days=2))
    assert "has expired" in await chats.say(f"/proposal_approve {late.id}")


async def test_the_role_of_the_linked_user_decides(chats: Chats) -> None:
    """An admin decides about proposals of the system; a viewer decides about none."""
    users = UserService(chats.store)
    await users.create(Actor(), name="root", password="long enough 1", role=Role.ADMIN)
    await users.create(Actor(), name="alice", password="long enough 1", role=Role.VIEWER)
    await link(chats, Owner(type=OwnerType.USER, id="root"), 7)
    await link(chats, ALICE, 8)
    of_system = await propose(chats, SYSTEM_OWNER)
    assert list(await telegram_deliveries(chats)) == ["7"]
    of_alice = await propose(chats)
    assert "not found" in await chats.say(f"/proposal_approve {of_system.id}", chat=8)
    assert "Not possible" in await chats.say(f"/proposal_approve {of_alice.id}", chat=8)
    assert "Proposal approved." in await chats.say(f"/proposal_approve {of_system.id}")
    assert "Proposal approved." in await chats.say(f"/proposal_approve {of_alice.id}")


def test_buttons_carry_ids_with_a_suffix() -> None:
    for object_id in ("01980b1e-6f2a-7c31-9d57-0a4b2f6c8e13.0123456789abcdef", "short.x", "plain"):
        data = encode(Action.APPROVE, object_id, chat="7", token=TOKEN)
        assert data is not None
        found = decode(data, chat="7", token=TOKEN)
        assert found is not None
        assert found.object_id == object_id
