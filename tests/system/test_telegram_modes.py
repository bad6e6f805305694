"""The Telegram bot of a real node: webhook, long polling, and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forking import run_chimes
from tests.system.conftest import Start
from tests.system.services import BotServer

pytestmark = pytest.mark.timeout(120)
CHAT = 42


@pytest.fixture
def bot() -> Iterator[BotServer]:
    with BotServer() as server:
        yield server


def settings(bot: BotServer, **more: str) -> dict[str, str]:
    return {
        "CHIMES_TELEGRAM_TOKEN": bot.TOKEN,
        "CHIMES_TELEGRAM_API_URL": bot.url,
        "CHIMES_TELEGRAM_ALLOWED_CHATS": str(CHAT),
    } | more


def message(number: int, text: str) -> dict[str, object]:
    fields = {"message_id": 1, "chat": {"id": CHAT, "type": "private"}, "from": {"id": CHAT}}
    return {"update_id": number, "message": fields | {"text": text}}


@pytest.mark.parametrize("path", ["", "/telegram/webhook"])
def test_a_webhook_is_registered_and_answered(
    sqlite: str, start: Start, bot: BotServer, path: str
) -> None:
    given = f"https://hooks.example.org{path}"
    node = start(sqlite, **settings(bot, CHIMES_TELEGRAM_WEBHOOK_URL=given))
    (request,) = bot.wait(lambda: bot.requests("/setWebhook"), "the registration")
    assert request.json["url"] == "https://hooks.example.org/telegram/webhook"
    secret = {"X-Telegram-Bot-Api-Secret-Token": request.json["secret_token"]}
    update = message(7, "/schedule every day at 9:00 stretch")
    assert node.call("POST", "/telegram/webhook", update).status == 401
    assert node.call("POST", "/telegram/webhook", update, secret).status == 200
    (answer,) = bot.wait(lambda: bot.texts(CHAT), "the answer")
    assert "Schedule created" in answer
    again = node.call("POST", "/telegram/webhook", update, secret)
    assert again.json == {"ok": True, "handled": False}
    assert not bot.requests("/getUpdates"), "a bot with a webhook does not poll"


def test_polling_deletes_the_webhook_first(sqlite: str, start: Start, bot: BotServer) -> None:
    start(sqlite, **settings(bot))
    bot.wait(lambda: bot.requests("/getUpdates"), "the first poll")
    assert bot.requests()[0].path.endswith("/deleteWebhook")


def test_chat_is_linked_with_a_code_from_the_command_line(
    sqlite: str, start: Start, bot: BotServer, tmp_path: Path
) -> None:
    node = start(sqlite, **settings(bot))
    reach = {"CHIMES_URL": f"http://127.0.0.1:{node.port}"}

    def chimes(*words: str) -> str:
        done = run_chimes(("telegram", *words), cwd=tmp_path, env=reach)
        assert done.returncode == 0, done.stderr
        return done.stdout

    bot.receive_message(chimes("connect").strip(), CHAT)
    bot.wait(lambda: any("confirm" in text for text in bot.texts(CHAT)), "the reply in the chat")
    assert "waiting" in chimes("list")
    assert "system:default" in chimes("confirm", str(CHAT))
    assert "linked" in chimes("list")
    chimes("test", str(CHAT))
    assert any("test message" in text for text in bot.texts(CHAT))
