"""Telling people, in a real browser: a test to oneself, keys as in mail, whom to tell."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, Site, Visitor
from tests.browser.watching import accessible, fits


def pressed(page: Page, key: str, told: str) -> None:
    """On the first row; keys are heard as soon as there is a stream."""
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.keyboard.press("j")
    page.keyboard.press(key)
    expect(page.locator(".toast")).to_contain_text(told)


def test_a_test_to_oneself_is_dealt_with_by_keys_and_times_can_be_chosen(
    site: Site, visitor: Callable[..., Visitor]
) -> None:
    page = visitor(site).open("/ui/inbox")
    page.get_by_role("button", name="Send yourself a test").click()
    expect(page.locator(".toast")).to_contain_text("Test notification delivered (inbox).")
    expect(page.locator(".message .badge")).to_have_text("test")
    pressed(page, "u", "Marked as read.")
    pressed(page, "u", "Marked as unread.")
    # D1.16: what is shown on a button is part of its name in Thai too.
    accessible(visitor(site, language="th").open("/ui/inbox"))
    # What is open is read, and the list says so at once.
    expect(page.locator(".message.unread")).to_have_count(1)
    page.locator(".message a").click()
    expect(page.locator(".message.current")).to_be_visible()
    expect(page.locator(".message.unread")).to_have_count(0)
    expect(page.locator("#inbox-head")).to_contain_text("0 unread")
    page.goto("/ui/inbox")
    pressed(page, "s", "Starred")
    pressed(page, "e", "Archived.")
    # Whom to tell: what is chosen decides what is asked.
    phone = visitor(site, width=PHONE, theme="dark").open("/ui/schedules/new")
    phone.locator("#f-notify0_channel").select_option("telegram")
    expect(phone.get_by_role("link", name="Connect a Telegram chat")).to_be_visible()
    phone.locator("#tell summary").first.click()
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
