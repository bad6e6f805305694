"""Telegram page: deep link, QR code, confirmation and unlinking of chats."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from chimes.model.listing import AuditQuery, DeliveryQuery
from chimes.model.recipient import Channel, NotifyOn
from chimes.services import notifications as messages
from chimes.telegram.links import Links
from chimes.web.dashboard.account.routes import deep_link, qr_code
from tests.web.dashboard.browsing import Browser, browsing

HERE = "/ui/telegram"


class FakeBot:
    """Stands in for the bot as used by the page."""

    def __init__(self, name: str = "chimes_bot") -> None:
        self.name = name
        self.sent: list[str] = []
        self.conversation = self

    async def username(self) -> str:
        return self.name

    async def send_message(self, chat: Any, sentence: str) -> bool:
        self.sent.append(f"{chat.id}: {sentence}")
        return True


def with_bot(browser: Browser, name: str = "chimes_bot") -> FakeBot:
    bot = FakeBot(name)
    browser.rig.app.state.telegram = bot
    return bot


def test_qr_code_encodes_the_link_without_styles() -> None:
    svg = qr_code(deep_link("chimes_bot", "abc"), "a < b")
    assert svg.startswith("<svg")
    assert "<title>a &lt; b</title>" in svg
    assert "style" not in svg
    assert qr_code("other", "a < b") != svg
    assert deep_link("", "abc") == ""


async def test_chat_is_connected_tested_and_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    async with browsing() as browser:
        bot = with_bot(browser)
        links = Links(browser.rig.store)
        page = await browser.send(f"{HERE}/code", on=HERE)
        assert page.status_code == 200
        assert page.headers["cache-control"] == "no-store"
        (code,) = set(re.findall(r"https://t\.me/chimes_bot\?start=([\w-]+)", page.text))
        assert f"/link {code}" in page.text
        assert '<svg viewBox="0 0' in page.text
        owner = await links.use_code(code, "42", "7")
        assert owner is not None
        page = await browser.get(HERE)
        assert code not in page.text
        answer = await browser.send(f"{HERE}/42/confirm")
        page = await browser.follow(answer)
        assert "Chat 42 linked." in page.text
        assert bot.sent == [f"42: This chat now belongs to {owner}."]
        assert [chat.id for chat in await links.linked(owner)] == ["42"]

        monkeypatch.setattr(messages.NotificationService.send_test, "__kwdefaults__", _no_wait())
        page = await browser.follow(await browser.send(f"{HERE}/42/test"))
        assert "Test notification queued (Telegram)." in page.text
        (test,) = (await browser.rig.store.list_deliveries(DeliveryQuery())).items
        recipient = test.recipient
        assert (test.notify_on, recipient.channel, recipient.to) == (
            NotifyOn.TEST,
            Channel.TELEGRAM,
            "42",
        )

        dialog = await browser.send(f"{HERE}/42/unlink", on=HERE)
        assert "Unlink chat 42?" in dialog.text
        done = await browser.send(f"{HERE}/42/unlink")
        assert "Chat 42 unlinked." in (await browser.follow(done)).text
        assert await links.linked(owner) == []
        verbs = [each.verb for each in await browser.rig.store.list_audit(AuditQuery())]
        assert {"telegram_code", "telegram_link", "telegram_unlink", "test"} <= set(verbs)


def _no_wait() -> dict[str, object]:
    return {"schedule": None, "wait": timedelta()}


async def test_page_without_a_bot_names_the_missing_setting() -> None:
    async with browsing() as browser:
        page = await browser.get(HERE)
        assert page.status_code == 200
        assert "CHIMES_TELEGRAM_TOKEN" in page.text
        assert "/ui/telegram/code" not in page.text


async def test_bot_without_a_known_name_shows_manual_instructions() -> None:
    async with browsing() as browser:
        with_bot(browser, "")
        page = await browser.send(f"{HERE}/code", on=HERE)
        assert "t.me" not in page.text
        assert re.search(r"/link [\w-]{16,}", page.text)


async def test_chats_of_other_owners_are_not_found() -> None:
    async with browsing() as browser:
        with_bot(browser)
        await browser.send(f"{HERE}/code", on=HERE)
        for verb in ("confirm", "test", "unlink"):
            fields = {"csrf": re.findall(r'name="csrf" value="([^"]+)"', browser.page)[0]}
            answer = await browser.post(f"{HERE}/43/{verb}", fields)
            assert answer.status_code == 404, verb
            await browser.get(HERE)
