"""Pages of proposals in a browser: every look, and a decision with and without scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.conftest import EACH_LOOK, Site, Visitor
from tests.browser.page_checks import check_page
from tests.system.node import wait_until

CRON = {"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Bangkok"}
NINE = {"trigger": CRON, "target": {"kind": "http", "url": "http://127.0.0.1:8099/"}}
TEN = NINE | {"trigger": CRON | {"expression": "0 10 * * *"}}


def propose(site: Site, **changes: Any) -> str:
    body = {"reason": "Less load\nin the morning", "asker": "claude via MCP"} | changes
    return str(site.post("/proposals", body)["id"])


def test_a_person_decides(site: Site, visitor: Callable[..., Visitor]) -> None:
    made = site.post("/schedules", NINE | {"name": "report"})
    proposal = propose(site, schedules={"report": TEN, "new": NINE}, run=[made["id"]])
    page = visitor(site).open("/ui/")
    page.get_by_role("link", name="Open proposals").click()
    page.get_by_role("link", name="Update report").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Proposal by claude via MCP")
    expect(page.locator("main")).to_contain_text("moves 7 fires")
    expect(page.locator("main")).to_contain_text("trigger.expression")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".toast")).to_contain_text("Proposal approved.")
    assert site.get(f"/proposals/{proposal}")["status"] == "approved"
    assert site.get(f"/schedules/{made['id']}")["trigger"]["expression"] == "0 10 * * *"

    second = propose(site, delete=[made["id"]])
    plain = visitor(site, scripts=False).open(f"/ui/proposals/{second}")
    # Enter in the field rejects; it never approves.
    plain.get_by_label("Reason for the rejection").fill("keep it")
    plain.keyboard.press("Enter")
    expect(plain.locator("main")).to_contain_text("keep it")
    assert site.get(f"/proposals/{second}")["status"] == "rejected"
    # An open page offers new messages, it does not insert them.
    wait_until(lambda: site.get("/inbox")["items"], "the messages about the proposals")
    inbox = visitor(site).open("/ui/inbox")
    expect(inbox.locator(".message .badge").first).to_have_text("proposal")
    inbox.locator(".message a").first.click()
    expect(inbox.get_by_role("link", name="Open the proposal")).to_be_visible()


@EACH_LOOK
def test_pages_are_accessible_and_fit(
    shared_site: Site, visitor: Callable[..., Visitor], language: str, theme: str, width: int
) -> None:
    long_name = f"report-{language}-{theme}-{width}-" + "x" * 60
    proposal = propose(
        shared_site,
        schedules={long_name: NINE | {"labels": {"team": "night"}}, f"{long_name}2": TEN},
    )
    user = visitor(shared_site, language=language, theme=theme, width=width)
    for path in ("/ui/proposals", "/ui/proposals?status=all", f"/ui/proposals/{proposal}"):
        page = user.open(path)
        expect(page.locator("main h1")).to_be_visible()
        check_page(page, language)
    shared_site.post(f"/proposals/{proposal}/reject", {"reason": "of a test"})
    check_page(user.open(f"/ui/proposals/{proposal}"), language)
