"""Inbox in a browser: test message, keyboard shortcuts, notification fields."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, Site, Visitor
from tests.browser.page_checks import accessible, fits


def pressed(page: Page, key: str, result: str) -> None:
    """Selects the first row; shortcuts work as soon as the stream is open."""
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.keyboard.press("j")
    page.keyboard.press(key)
    expect(page.locator(".toast")).to_contain_text(result)


def test_test_message_is_read_and_archived_by_keyboard(
    site: Site, visitor: Callable[..., Visitor]
) -> None:
    page = visitor(site).open("/ui/inbox")
    page.get_by_role("button", name="Send yourself a test").click()
    expect(page.locator(".toast")).to_contain_text("Test notification delivered (inbox).")
    expect(page.locator(".message .badge")).to_have_text("test")
    pressed(page, "u", "Marked as read.")
    pressed(page, "u", "Marked as unread.")
    # The visible text is part of the accessible name in Thai, too.
    accessible(visitor(site, language="th").open("/ui/inbox"))
    # An open message is marked as read in the list.
    expect(page.locator(".message.unread")).to_have_count(1)
    page.locator(".message a").click()
    expect(page.locator(".message.current")).to_be_visible()
    expect(page.locator(".message.unread")).to_have_count(0)
    expect(page.locator("#inbox-head")).to_contain_text("0 unread")
    page.goto("/ui/inbox")
    pressed(page, "s", "Starred")
    pressed(page, "e", "Archived.")
    # Notification fields depend on the channel.
    phone = visitor(site, width=PHONE, theme="dark").open("/ui/schedules/new")
    phone.locator("#notifications > summary").click()
    phone.locator("#f-notify0_channel").select_option("telegram")
    expect(phone.get_by_role("link", name="Connect a Telegram chat")).to_be_visible()
    phone.locator("#notifications .recipient summary").first.click()
    expect(phone.locator("#f-notify0_digest_at")).to_be_hidden()
    phone.locator("#f-notify0_digest").select_option("weekly")
    expect(phone.locator("#f-notify0_digest_day")).to_be_visible()
    phone.locator("#f-notify0_quiet_from").fill("22:00")
    accessible(phone)
    fits(phone)
    phone.locator("#f-notify0_channel").select_option("inbox")
    expect(phone.locator("#f-notify0_quiet_from")).to_be_hidden()
    phone.goto("/ui/telegram")
    expect(phone.get_by_text("CHIMES_TELEGRAM_TOKEN=… chimes serve")).to_be_visible()
    accessible(phone)
    fits(phone)
