"""Linking a chat over the native API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from chimes.config import Settings
from chimes.engine.deliverer import RecipientPreferences
from chimes.model.access import Owner, OwnerType, Role
from chimes.model.listing import AuditQuery, ScheduleQuery
from chimes.model.recipient import Channel, Recipient
from chimes.notifications.telegram_api import BotApi
from chimes.telegram.bot import Bot
from tests.builders import a_delivery
from tests.telegram.bot_api import TOKEN, BotApiStub
from tests.telegram.conftest import Chats
from tests.web.rig import Rig, serving

ANNA = Owner(type=OwnerType.USER, id="anna")
BERT = Owner(type=OwnerType.USER, id="bert")
LINKS = "/api/v1/telegram/links"


@pytest.fixture
async def with_bot(chats: Chats, bot_api: BotApiStub) -> AsyncIterator[Rig]:
    api = BotApi(token=TOKEN, url=bot_api.url, timeout=timedelta(seconds=5))
    async with serving(chats.store, chats.clock) as rig:
        rig.app.state.telegram = Bot(chats.conversation, api, chats.store)
        yield rig
    await api.close()


async def test_chat_is_linked_confirmed_and_unlinked(
    with_bot: Rig, chats: Chats, bot_api: BotApiStub
) -> None:
    client = with_bot.client
    anna = await with_bot.key(Role.MEMBER, ANNA)
    bert = await with_bot.key(Role.MEMBER, BERT)
    made = (await client.post(LINKS, headers=anna)).json()
    assert made["url"] == f"https://t.me/chimes_bot?start={made['code']}"
    await chats.say(made["command"], sender=70)
    waiting = (await client.get(LINKS, headers=anna)).json()
    assert [each["chat_id"] for each in waiting["waiting"]] == ["7"]
    # Other owners cannot see or confirm it.
    assert (await client.get(LINKS, headers=bert)).json() == {"items": [], "waiting": []}
    assert (await client.post(f"{LINKS}/7/confirm", headers=bert)).status_code == 404
    done = await client.post(f"{LINKS}/7/confirm", headers=anna)
    assert done.json()["owner"] == "user:anna"
    assert "user:anna" in bot_api.texts()[-1]
    await chats.say("/schedule every day at 9:00 stretch", sender=70)
    (schedule,) = (await chats.store.list_schedules(ScheduleQuery())).items
    assert schedule.owner == ANNA
    shown = await client.get(f"/api/v1/schedules/{schedule.id}", headers=anna)
    assert shown.status_code == 200
    assert (await client.get(f"/api/v1/schedules/{schedule.id}", headers=bert)).status_code == 404
    assert (await client.delete(f"{LINKS}/7", headers=bert)).status_code == 404
    assert (await client.delete(f"{LINKS}/7", headers=anna)).status_code == 204
    assert (await client.get(LINKS, headers=anna)).json() == {"items": [], "waiting": []}
    # After unlinking nothing is sent there, even if the chat changes its language.
    await chats.say("/language th", sender=70)
    readers = RecipientPreferences(chats.store, Settings(telegram_allowed_chats=("7",)))
    hers = a_delivery(owner=ANNA, recipient=Recipient(channel=Channel.TELEGRAM, to="7"))
    refused = await readers.refusal(hers)
    assert refused is not None
    assert refused.code == "not_linked"
    entries = await chats.store.list_audit(AuditQuery(owner="user:anna", limit=100))
    verbs = [each.verb for each in reversed(entries) if each.verb.startswith("telegram_")]
    assert verbs == ["telegram_code", "telegram_link", "telegram_command", "telegram_unlink"]


async def test_viewer_cannot_create_a_link_code(with_bot: Rig) -> None:
    viewer = await with_bot.key(Role.VIEWER, ANNA)
    assert (await with_bot.client.post(LINKS, headers=viewer)).status_code == 403


async def test_test_message_requires_access_to_the_chat(with_bot: Rig, bot_api: BotApiStub) -> None:
    admin = await with_bot.key(Role.ADMIN)
    anna = await with_bot.key(Role.MEMBER, ANNA)
    path = "/api/v1/telegram/test"
    refused = await with_bot.client.post(path, json={"chat_id": "7"}, headers=anna)
    assert refused.status_code == 404
    sent = await with_bot.client.post(path, json={"chat_id": "7"}, headers=admin)
    assert sent.json() == {"status": "sent", "chat_id": "7"}
    assert "test message" in bot_api.texts()[-1]


async def test_without_a_bot_the_error_names_the_setting() -> None:
    async with serving() as rig:
        answer = await rig.client.get(LINKS)
    assert answer.status_code == 404
    assert "CHIMES_TELEGRAM_TOKEN" in answer.text
