"""Monitors in a browser: list, details and form, in every look."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import EACH_LOOK, Site, Visitor
from tests.browser.page_checks import accessible, check_page


@EACH_LOOK
def test_pages_fit_and_are_accessible(
    site: Site, visitor: Callable[..., Visitor], language: str, theme: str, width: int
) -> None:
    every = {"kind": "every", "every": "PT1H"}
    made = site.post(
        "/monitors", {"name": "Backup of the database", "trigger": every, "tags": ["db"]}
    )
    site.post("/monitors", {"name": "Never seen", "trigger": every})
    path = made["ping_url"].removeprefix(site.url)
    for verb in ("/start", "", "/start", "/3"):
        assert site.node.call("GET", f"{path}{verb}").status == 200
    user = visitor(site, language=language, theme=theme, width=width)
    page = user.open("/ui/monitors")
    expect(page.locator("#monitor-rows tr")).to_have_count(2)
    expect(page.locator(".status.down").first).to_be_visible()
    check_page(page, language)
    page.locator("#monitor-rows a").first.click()
    expect(page.locator("main h1")).to_have_text("Backup of the database")
    check_page(page, language)
    page = user.open("/ui/monitors/new")
    check_page(page, language)
    page = user.open("/ui/")
    expect(page.locator("#needs")).to_contain_text("Backup of the database")
    check_page(page, language)


def test_a_monitor_is_created_and_its_url_copied(
    site: Site, visitor: Callable[..., Visitor]
) -> None:
    page = visitor(site).open("/ui/")
    page.get_by_role("link", name="Monitors").first.click()
    page.get_by_role("link", name="New monitor").first.click()
    page.get_by_label("Name").fill("Report")
    page.get_by_label("Check-ins are expected").fill("every weekday at 9am")
    page.get_by_label("Grace period").fill("10m")
    page.get_by_role("button", name="Create monitor").click()
    expect(page.locator("main h1")).to_have_text("Report")
    url = page.locator(".copyable code").first.inner_text()
    assert "/ping/" in url
    expect(page.locator(".copyable button").first).to_be_visible()
    assert site.node.call("POST", url.removeprefix(site.url)).status == 200
    # The open page shows the ping.
    expect(page.locator("#pings-title + .list")).to_contain_text("succeeded")
    page.get_by_role("button", name="Replace URLs").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Replace the URLs?")
    accessible(dialog)
