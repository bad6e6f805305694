"""Today page and inbox in a browser: actions, live updates, phones, keyboard."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, WITH_AND_WITHOUT_SCRIPTS, Site, Visitor
from tests.browser.page_checks import accessible, check_page, fits

DAILY = {"kind": "cron", "expression": "0 9 * * *", "timezone": "America/New_York"}
HOSTILE = "<img src=x onerror=alert(1)> & co"


class _SlowHandler(BaseHTTPRequestHandler):
    """Responds immediately; `/slow` responds when `release` is set."""

    release: threading.Event

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.release.wait(30)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    handler = type("Slow", (_SlowHandler,), {"release": threading.Event()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    handler.release.set()
    server.shutdown()
    server.server_close()
    thread.join(10)


def schedule_on(site: Site, name: str, url: str, **given: Any) -> str:
    target = {"kind": "http", "url": url, "method": "GET"}
    body = {"name": name, "trigger": DAILY, "target": target} | given
    return str(site.post("/schedules", body)["id"])


def check_names_stay_in_view(page: Page, names: str) -> None:
    """The names next to a chart stay visible when it is scrolled horizontally."""
    gone = page.evaluate(
        """names => [...document.querySelectorAll(names)].filter(each => {
            const region = each.closest(".scroll");
            region.scrollLeft = 1000;
            const [mine, its] = [each.getBoundingClientRect(), region.getBoundingClientRect()];
            return region.scrollLeft === 0 || mine.left < its.left - 1 || mine.right > its.right;
        }).length""",
        names,
    )
    assert gone == 0


def test_empty_page_load_demo_and_remove_demo(
    site: Site, visitor: Callable[..., Visitor], looks: tuple[tuple[str, str, int], ...]
) -> None:
    """Also opens the page with demo data in every look."""
    page = visitor(site).open("/ui/")
    accessible(page)
    page.get_by_label("What should happen, and when?").fill("every day at 9")
    page.get_by_role("button", name="Preview").click()
    page.wait_for_url("**/ui/schedules/new?words=every+day+at+9")
    page.goto("/ui/")
    page.get_by_role("button", name="Load demo data").click()
    expect(page.locator(".toast")).to_contain_text("10 demo schedules")
    expect(page.locator(".note.demo")).to_contain_text("generated history")
    assert page.locator(".tile").count() == 5
    paths = cycle(["/ui/", "/ui/?lanes=label&span=7d&heat=14d&clock=utc"])
    for path, (language, theme, width) in zip(paths, looks, strict=False):
        other_page = visitor(site, language=language, theme=theme, width=width).open(path)
        expect(other_page.locator(".chart.heat")).to_be_visible()
        check_page(other_page, language)
        if width == PHONE:
            check_names_stay_in_view(other_page, ".chart.names")
    for language, theme, width in looks:
        other_page = visitor(site, language=language, theme=theme, width=width).open(
            "/ui/attention"
        )
        expect(
            other_page.locator("main a strong").filter(has_text="nightly backup")
        ).to_be_visible()
        check_page(other_page, language)
    # A cell of the heat map links to its runs.
    page.locator(".chart.heat a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/runs?q=since*")
    page.goto("/ui/")
    page.get_by_role("button", name="Remove demo").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove demo").click()
    expect(page.locator(".toast")).to_contain_text("Removed 10 demo schedules")
    expect(page.get_by_role("heading", name="Describe it")).to_be_visible()


@WITH_AND_WITHOUT_SCRIPTS
def test_planned_run_is_skipped_from_its_timeline_card(
    site: Site, visitor: Callable[..., Visitor], scripts: bool
) -> None:
    made = schedule_on(site, HOSTILE, "http://127.0.0.1:9/")
    before = site.get(f"/schedules/{made}")["next_run_at"]
    page = visitor(site, scripts=scripts).open("/ui/?span=7d")
    mark = page.locator('.timeline a[href^="/ui/fires/"]').first
    mark.focus()
    page.keyboard.press("Enter")
    card = page.get_by_role("dialog") if scripts else page.locator("section.card")
    expect(card).to_contain_text(HOSTILE)
    expect(card).to_contain_text("EST")
    if scripts:
        accessible(card)
    card.get_by_role("button", name="Skip").click()
    # The card has a button of the same name.
    expect(page.get_by_text("Skip the next run?")).to_be_visible()
    page.get_by_role("button", name="Skip").click()
    expect(page.locator(".toast")).to_contain_text("Skipped the next run")
    assert site.get(f"/schedules/{made}")["next_run_at"] > before
    expect(page.locator("h1")).to_have_text("Today")


def test_running_section_updates_live_and_cancels_a_run(
    serve: Callable[..., Site], visitor: Callable[..., Visitor], receiver: str
) -> None:
    # A worker receives the cancel request with its next heartbeat.
    site = serve(CHIMES_HEARTBEAT="500ms")
    made = schedule_on(site, "slow one", f"{receiver}/slow", policy={"timeout": "60s"})
    page = visitor(site).open("/ui/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    running = page.locator("#today-running")
    expect(running).to_contain_text("No runs in progress.")
    site.post(f"/schedules/{made}/run")
    expect(running.get_by_role("link", name="slow one")).to_be_visible()
    expect(running).to_contain_text("1 of 4")
    running.get_by_role("button", name="Cancel the run of slow one").click()
    sure = page.get_by_role("dialog").get_by_role("button").first
    sure.click()
    # Also if the run ends between page load and the start of the event stream.
    expect(page.locator(".toast")).to_be_visible()
    expect(page.locator("#today-running")).to_contain_text("No runs in progress.")


def test_failing_schedule_is_snoozed_and_unsnoozed_by_undo(
    site: Site, visitor: Callable[..., Visitor]
) -> None:
    made = schedule_on(site, "broken", "http://127.0.0.1:9/", policy={"max_retries": 0})
    page = visitor(site, width=PHONE).open("/ui/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    for _ in range(2):
        site.post(f"/schedules/{made}/run")
    need = page.locator(".need")
    expect(need).to_contain_text("2 failures in a row")
    expect(page.locator(".health")).to_contain_text("1 needs attention")
    accessible(page)
    fits(page)
    need.get_by_label("More actions for broken").click()
    # An open menu stays open during a live update.
    with page.expect_response(lambda answer: "part=health" in answer.url):
        page.evaluate("htmx.trigger(document.querySelector('#live'), 'nodes.changed')")
    need.get_by_role("button", name="Snooze 24 h").click()
    expect(page.locator(".health")).to_contain_text("All good")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".health")).to_contain_text("1 needs attention")


def test_new_messages_appear_live_and_are_handled_by_keyboard(
    site: Site,
    visitor: Callable[..., Visitor],
    receiver: str,
    looks: tuple[tuple[str, str, int], ...],
) -> None:
    recipients = [{"channel": "inbox", "on": ["always"]}]
    made = schedule_on(site, "tell me", receiver, delivery=recipients)
    user = visitor(site)
    page = user.open("/ui/inbox")
    expect(page.get_by_role("heading", name="Nothing yet")).to_be_visible()
    accessible(page)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    site.post(f"/schedules/{made}/run")
    page.get_by_role("link", name="1 new message – show").click()
    expect(page.locator(".message.unread")).to_have_count(1)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#message-title")).to_have_text("tell me: succeeded")
    accessible(page)
    expect(page.get_by_role("link", name="Edit schedule")).to_be_visible()
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    # The page marks the message as read.
    page.wait_for_function(
        "fetch('/ui/inbox/newer?known=0').then(a => a.json()).then(a => !a.count)"
    )
    page.keyboard.press("s")
    expect(page.locator(".toast")).to_contain_text("Starred")
    # Shortcuts work once the event stream is open.
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.keyboard.press("e")
    expect(page.locator(".toast")).to_contain_text("Archived.")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_contain_text("Moved to inbox.")
    for language, theme, width in looks:
        other_page = visitor(site, language=language, theme=theme, width=width).open("/ui/inbox")
        other_page.locator("[data-open-row]").first.click()
        expect(other_page.locator("#message-title")).to_be_visible()
        check_page(other_page, language)
