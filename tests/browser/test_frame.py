"""The frame in a real browser: what holds for every page."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import EACH_LOOK, PHONE, Site, Visitor
from tests.browser.watching import accessible, fits_longer, for_everybody

PAGES = ("/ui/", "/ui/schedules", "/ui/schedules/new", "/ui/runs", "/ui/inbox", "/ui/system")


@EACH_LOOK
def test_every_page_is_accessible_and_fits(
    shared_site: Site, visitor: Callable[..., Visitor], language: str, theme: str, width: int
) -> None:
    somebody = visitor(shared_site, language=language, theme=theme, width=width)
    for path in PAGES:
        page = somebody.open(path)
        assert page.get_attribute("html", "lang") == {"zh": "zh-Hans"}.get(language, language)
        for_everybody(page, language)
        if width == PHONE:
            fits_longer(page)


def test_the_rail_is_below_on_phones_and_at_the_left_on_desks(
    shared_site: Site, visitor: Callable[..., Visitor]
) -> None:
    rail = visitor(shared_site).open("/ui/").locator("nav.rail").bounding_box()
    assert rail is not None
    assert rail["x"] == 0
    assert rail["height"] > 400
    rail = visitor(shared_site, width=PHONE).open("/ui/").locator("nav.rail").bounding_box()
    assert rail is not None
    assert rail["width"] == PHONE
    assert rail["y"] + rail["height"] == 800


def test_the_dot_is_live_and_hears_of_a_change(site: Site, visitor: Callable[..., Visitor]) -> None:
    page = visitor(site).open("/ui/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.evaluate(
        "() => document.addEventListener('schedules.changed', () => { document.title = 'heard'; })"
    )
    site.post(
        "/schedules",
        {
            "name": "report",
            "trigger": {"kind": "cron", "expression": "0 9 * * *"},
            "target": {"kind": "http", "url": "http://127.0.0.1:9/"},
        },
    )
    expect(page).to_have_title("heard")


def test_theme_and_language_are_chosen_without_scripts(
    shared_site: Site, visitor: Callable[..., Visitor]
) -> None:
    page = visitor(shared_site, scripts=False).open("/ui/runs")
    page.locator("summary[aria-label='Theme']").click()
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.url.endswith("/ui/runs")


def test_the_browsers_own_zone_is_noticed(
    shared_site: Site, visitor: Callable[..., Visitor]
) -> None:
    somebody = visitor(shared_site, timezone_id="America/New_York", look={"seen_zone": "UTC"})
    page = somebody.open("/ui/")
    expect(page.locator("html")).to_have_attribute("data-zone", "America/New_York")


def test_keys_lead_everywhere(shared_site: Site, visitor: Callable[..., Visitor]) -> None:
    page = visitor(shared_site).open("/ui/")
    for key, path in (("s", "schedules"), ("r", "runs"), ("i", "inbox"), ("y", "system")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"**/ui/{path}")
    page.keyboard.press("?")
    expect(page.locator("#cheat-sheet")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#cheat-sheet")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    # In a field keys are letters.
    page.keyboard.press("n")
    expect(page.locator("#search")).to_have_value("n")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_visible()
    accessible(page.locator("#palette"))
    page.keyboard.type("inb")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/inbox")


def test_shortcuts_can_be_switched_off(shared_site: Site, visitor: Callable[..., Visitor]) -> None:
    # WCAG 2.1.4
    page = visitor(shared_site, look={"shortcuts": "off"}).open("/ui/")
    page.keyboard.press("?")
    expect(page.locator("#cheat-sheet")).to_be_hidden()


def test_an_error_says_the_next_step(shared_site: Site, visitor: Callable[..., Visitor]) -> None:
    somebody = visitor(shared_site, language="th")
    somebody.watch.allow("404")
    page = somebody.open("/ui/nowhere")
    accessible(page)
    expect(page.locator("main a.button")).to_have_attribute("href", "/ui/")
    expect(page.locator(".copyable")).to_contain_text("404")
