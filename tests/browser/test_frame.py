"""The page frame in a browser: navigation, shortcuts, live indicator, errors."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import EACH_LOOK, PHONE, Site, Visitor
from tests.browser.page_checks import accessible, check_page, fits_with_longer_texts

PAGES = ("/ui/", "/ui/schedules", "/ui/schedules/new", "/ui/runs", "/ui/inbox", "/ui/system")


@EACH_LOOK
def test_every_page_is_accessible_and_fits(
    shared_site: Site, visitor: Callable[..., Visitor], language: str, theme: str, width: int
) -> None:
    user = visitor(shared_site, language=language, theme=theme, width=width)
    for path in PAGES:
        page = user.open(path)
        assert page.get_attribute("html", "lang") == {"zh": "zh-Hans"}.get(language, language)
        check_page(page, language)
        if width == PHONE:
            fits_with_longer_texts(page)


def test_navigation_is_at_the_bottom_on_phones_and_left_on_desktops(
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


def test_live_indicator_is_live_and_receives_change_events(
    site: Site, visitor: Callable[..., Visitor]
) -> None:
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


def test_browser_time_zone_is_detected(shared_site: Site, visitor: Callable[..., Visitor]) -> None:
    user = visitor(shared_site, timezone_id="America/New_York", look={"seen_zone": "UTC"})
    page = user.open("/ui/")
    expect(page.locator("html")).to_have_attribute("data-zone", "America/New_York")


def test_keyboard_shortcuts_navigate_search_and_open_the_palette(
    shared_site: Site, visitor: Callable[..., Visitor]
) -> None:
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
    # Shortcuts are off inside fields.
    page.keyboard.press("n")
    expect(page.locator("#search")).to_have_value("n")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_visible()
    accessible(page.locator("#palette"))
    groups = page.locator("#palette [role=group]:visible")
    assert groups.evaluate_all("(all) => all.map((each) => each.ariaLabel)") == ["Actions", "Pages"]
    expect(page.locator("#go-schedules kbd")).to_have_text("g s")
    page.keyboard.type("inb")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/inbox")


def test_keyboard_shortcuts_can_be_disabled(
    shared_site: Site, visitor: Callable[..., Visitor]
) -> None:
    # WCAG 2.1.4
    page = visitor(shared_site, look={"shortcuts": "off"}).open("/ui/")
    page.keyboard.press("?")
    expect(page.locator("#cheat-sheet")).to_be_hidden()


def test_error_page_links_to_the_next_step(
    shared_site: Site, visitor: Callable[..., Visitor]
) -> None:
    user = visitor(shared_site, language="th")
    user.watch.allow("404")
    page = user.open("/ui/nowhere")
    accessible(page)
    expect(page.locator("main a.button")).to_have_attribute("href", "/ui/")
    expect(page.locator(".copyable")).to_contain_text("404")
