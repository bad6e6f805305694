"""Updates are processed once, by webhook or polling, however often they arrive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import httpx2
import pytest

from chimes.model.access import Owner, OwnerType, Role
from chimes.model.listing import ScheduleQuery
from chimes.notifications.telegram_api import BotApi, BotApiError
from chimes.telegram.bot import TAKE_OVER_AFTER, Bot, LongPolling, UpdateInProgress
from chimes.telegram.commands import Reply
from chimes.telegram.routes import SECRET_HEADER, telegram_router
from tests.builders import a_node
from tests.telegram.bot_api import TOKEN, BotApiStub, message
from tests.telegram.conftest import NOW, Chats
from tests.web.rig import serving

WORDS = "/schedule every day at 9:00 water the plants"
SECRET = "the-secret-of-the-webhook"
NO_WAIT = timedelta()


@dataclass
class ConnectedBot:
    """A bot connected to the stub."""

    bot: Bot
    api: BotApi
    polling: LongPolling
    chats: Chats

    async def schedules(self) -> int:
        return len((await self.chats.store.list_schedules(ScheduleQuery())).items)


@pytest.fixture
async def connected(chats: Chats, bot_api: BotApiStub) -> AsyncIterator[ConnectedBot]:
    api = BotApi(token=TOKEN, url=bot_api.url, timeout=timedelta(seconds=5))
    bot = Bot(chats.conversation, api, chats.store)
    yield ConnectedBot(bot, api, LongPolling(bot, api, chats.store), chats)
    await bot.close()
    await api.close()


async def test_polling_answers_before_it_confirms(
    connected: ConnectedBot, bot_api: BotApiStub
) -> None:
    await bot_api.say(WORDS)
    assert await connected.polling.poll_once() == 1
    await connected.bot.flush()
    (answer,) = bot_api.texts()
    assert "Schedule created" in answer
    assert len(bot_api.updates) == 1, "confirmed only after processing"
    assert await connected.polling.poll_once(wait=NO_WAIT) == 0
    assert not bot_api.updates


async def test_concurrent_deliveries_of_an_update_are_processed_once(
    connected: ConnectedBot, bot_api: BotApiStub
) -> None:
    update = message(5, WORDS)
    handled = await asyncio.gather(
        *(connected.bot.process(update) for _ in range(5)), return_exceptions=True
    )
    assert sum(each is True for each in handled) == 1
    assert all(each in (True, False) or isinstance(each, UpdateInProgress) for each in handled)
    assert await connected.schedules() == 1
    await connected.bot.flush()
    assert len(bot_api.texts()) == 1
    assert not await connected.bot.process(update)
    assert connected.bot.counts["duplicates"] >= 1


# The node that started it has died.
async def test_update_of_a_dead_node_is_taken_over(
    connected: ConnectedBot, bot_api: BotApiStub
) -> None:
    store = connected.chats.store
    begun = (await store.now()).isoformat()
    await store.remember_request("telegram:", "9", begun, keep=timedelta(days=1))
    with pytest.raises(UpdateInProgress):
        await connected.bot.process(message(9, WORDS))
    connected.chats.clock.advance(TAKE_OVER_AFTER)
    assert await connected.bot.process(message(9, WORDS))
    assert await connected.schedules() == 1


async def test_reply_is_retried(connected: ConnectedBot, bot_api: BotApiStub) -> None:
    busy = {"ok": False, "error_code": 429, "parameters": {"retry_after": 0}}
    bot_api.answers.extend([(429, busy), (502, {})])
    # The delays are Retry-After of Telegram and one second.
    assert await connected.bot.send(Reply(chat_id="7", text="hello"))
    assert bot_api.texts() == ["hello"]


async def test_refused_reply_keeps_the_command(
    connected: ConnectedBot, bot_api: BotApiStub
) -> None:
    bot_api.answers.append((403, {"ok": False, "error_code": 403, "description": "blocked"}))
    assert await connected.bot.process(message(5, WORDS))
    await connected.bot.flush()
    assert await connected.schedules() == 1
    assert bot_api.texts() == []


async def test_rate_limited_chat_does_not_delay_others(
    connected: ConnectedBot, bot_api: BotApiStub
) -> None:
    busy = {"ok": False, "error_code": 429, "parameters": {"retry_after": 20}}
    bot_api.answers.append((429, busy))
    async with asyncio.timeout(60):
        assert await connected.bot.process(message(5, "/schedules", chat=7))
        await bot_api.wait_until(lambda: not bot_api.answers)
        assert await connected.bot.process(message(6, "/schedules", chat=8))
        await bot_api.wait_until(lambda: bool(bot_api.texts(8)))
    assert bot_api.texts(7) == []


# Dates outside of the calendar, and other invalid values.
@pytest.mark.parametrize("date", [2**50, 10**12, -5, True, "now"])
async def test_invalid_date_does_not_stop_processing(
    connected: ConnectedBot, bot_api: BotApiStub, date: object
) -> None:
    await connected.bot.process(message(5, "/schedules", date=date))
    await connected.bot.process(message(6, "/schedules"))
    await connected.bot.flush()
    assert bot_api.texts()


async def test_nodes_poll_in_turns(
    connected: ConnectedBot, chats: Chats, bot_api: BotApiStub
) -> None:
    lease = timedelta(minutes=5)
    for name in ("a", "b"):
        await chats.store.join(a_node(name), lease)
    other = LongPolling(connected.bot, connected.api, chats.store)
    chats.clock.set(NOW.replace(second=0))
    assert [await connected.polling.poll_in_turn(), await other.poll_in_turn()] == [True, False]
    assert await connected.polling.poll_in_turn(), "the turn has not ended"
    chats.clock.set(NOW.replace(second=11))
    assert [await other.poll_in_turn(), await connected.polling.poll_in_turn()] == [True, False]


async def test_long_replies_are_split(connected: ConnectedBot, bot_api: BotApiStub) -> None:
    text = "\n".join(f"line {number} {'x' * 80}" for number in range(120))
    assert await connected.bot.send(Reply(chat_id="7", text=text))
    parts = bot_api.texts()
    assert len(parts) > 2
    assert all(len(part) <= 4096 for part in parts)
    assert "\n".join(parts) == text


async def test_replies_are_plain_text_without_preview(
    connected: ConnectedBot, bot_api: BotApiStub
) -> None:
    await connected.bot.send(Reply(chat_id="7", text="<b>_*[]()</b> https://example.org"))
    ((_, body),) = bot_api.sent
    assert body["link_preview_options"] == {"is_disabled": True}
    assert "parse_mode" not in body
    assert body["text"] == "<b>_*[]()</b> https://example.org"


async def test_errors_and_logs_do_not_contain_the_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    api = BotApi(token=TOKEN, url="http://127.0.0.1:9", timeout=timedelta(seconds=1))
    with pytest.raises(BotApiError) as failed:
        await api.call("getMe", {})
    await api.close()
    secret = TOKEN.partition(":")[2]
    assert failed.value.__cause__ is None
    for text in (str(failed.value), repr(failed.value), caplog.text):
        assert secret not in text


async def test_wrong_token_is_an_error(bot_api: BotApiStub) -> None:
    api = BotApi(token="1:wrong", url=bot_api.url)
    with pytest.raises(BotApiError, match="Unauthorized") as failed:
        await api.call("getMe", {})
    assert failed.value.status == 401
    await api.close()


class TestRoutes:
    @pytest.fixture
    async def client(self, connected: ConnectedBot) -> AsyncIterator[httpx2.AsyncClient]:
        def router(context):  # type: ignore[no-untyped-def]
            return telegram_router(
                context, connected.bot, connected.polling, secret=SECRET, webhook=False
            )

        async with serving(
            connected.chats.store, connected.chats.clock, routers=[router], documented=False
        ) as rig:
            self.rig = rig
            yield rig.client

    async def test_webhook_requires_its_secret(
        self, client: httpx2.AsyncClient, connected: ConnectedBot
    ) -> None:
        for headers in ({}, {SECRET_HEADER: "wrong"}, {SECRET_HEADER: SECRET + "x"}):
            answer = await client.post("/telegram/webhook", json=message(5, WORDS), headers=headers)
            assert answer.status_code == 401
            # The body is not parsed before the secret is checked.
            answer = await client.post("/telegram/webhook", content=b"{", headers=headers)
            assert answer.status_code == 401
        assert await connected.schedules() == 0
        good = {SECRET_HEADER: SECRET}
        answer = await client.post("/telegram/webhook", json=message(5, WORDS), headers=good)
        assert (answer.status_code, answer.json()) == (200, {"ok": True, "handled": True})
        again = await client.post("/telegram/webhook", json=message(5, WORDS), headers=good)
        assert again.json() == {"ok": True, "handled": False}
        assert await connected.schedules() == 1

    async def test_poll_route_processes_updates(
        self, client: httpx2.AsyncClient, connected: ConnectedBot, bot_api: BotApiStub
    ) -> None:
        await bot_api.say(WORDS)
        answer = await client.post("/telegram/poll?limit=5")
        assert answer.json() == {"processed": 1}
        assert (await client.post("/telegram/poll?limit=0")).status_code == 422

    async def test_concurrent_poll_is_a_conflict(
        self, client: httpx2.AsyncClient, connected: ConnectedBot, bot_api: BotApiStub
    ) -> None:
        number = await bot_api.say(WORDS)
        begun = (await connected.chats.store.now()).isoformat()
        keep = timedelta(days=1)
        await connected.chats.store.remember_request("telegram:", str(number), begun, keep=keep)
        answer = await client.post("/telegram/poll")
        assert (answer.status_code, answer.json()["code"]) == (409, "under_way")

    async def test_metrics_and_audit_of_updates(
        self, client: httpx2.AsyncClient, connected: ConnectedBot, bot_api: BotApiStub
    ) -> None:
        await connected.bot.process(message(5, WORDS))
        await connected.bot.process(message(6, "/schedules", chat=8))
        await connected.bot.process(message(7, "/schedules", chat=99))
        counts = (await client.get("/telegram/metrics")).json()
        assert (counts["updates"], counts["unauthorized"]) == (3, 1)
        strangers = (await client.get("/telegram/audit?chat_id=99")).json()["items"]
        assert [row["event"] for row in strangers] == ["refused"]
        rows = (await client.get("/telegram/audit?chat_id=7")).json()["items"]
        commands = [row for row in rows if row["event"] == "telegram_command"]
        assert [(r["chat_id"], r["update_id"], r["command"], r["ok"]) for r in commands] == [
            ("7", 5, "schedule", True)
        ]
        assert commands[0]["arg_preview"].startswith("every day")
        assert {"ts", "event", "chat_id", "update_id", "command", "arg_preview", "ok"} <= set(
            commands[0]
        )

    async def test_routes_require_the_operator_role(self, client: httpx2.AsyncClient) -> None:
        anna = Owner(type=OwnerType.USER, id="anna")
        member = await self.rig.key(Role.MEMBER, anna)
        for method, path in (
            ("GET", "/telegram/metrics"),
            ("GET", "/telegram/audit"),
            ("POST", "/telegram/poll"),
        ):
            assert (await client.request(method, path)).status_code == 401
            assert (await client.request(method, path, headers=member)).status_code == 403
