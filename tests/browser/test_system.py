"""System pages in a browser: every tab, and live updates while a node drains."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import PHONE, Site, Visitor
from tests.browser.page_checks import accessible, fits, fits_with_longer_texts, has_zoned_times
from tests.system.receiver import Receiver

TABS = ("", "/audit", "/access", "/channels", "/settings?country=TH", "/about")
#: A node receives its drain state within a second.
SOON = {"CHIMES_LEASE": "3s", "CHIMES_HEARTBEAT": "500ms"}


def test_every_tab_fits_and_is_accessible(
    shared_site: Site, visitor: Callable[..., Visitor]
) -> None:
    user = visitor(shared_site, language="th", theme="dark", width=PHONE)
    for tab in TABS:
        page = user.open(f"/ui/system{tab}")
        expect(page.locator("main h1")).to_be_visible()
        accessible(page)
        fits(page)
        has_zoned_times(page)
    page = visitor(shared_site).open("/ui/system/channels")
    accessible(page)
    fits_with_longer_texts(page)


def test_draining_and_resuming_a_node_updates_live(
    serve: Callable[..., Site], visitor: Callable[..., Visitor]
) -> None:
    site = serve(**SOON)
    page = visitor(site).open("/ui/system")
    card = page.locator("article.node")
    expect(card).to_contain_text("alive")
    card.get_by_role("button", name="Drain").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Drain this node?")
    accessible(dialog)
    dialog.get_by_label("Reason").fill("new kernel")
    dialog.get_by_role("button", name="Drain").click()
    # The page updates live.
    expect(card).to_contain_text("drained")
    expect(page.locator("main")).to_contain_text("All nodes are drained")
    with Receiver() as receiver:
        target = {"kind": "http", "url": receiver.url("/x"), "method": "POST"}
        every = {"kind": "every", "every": "8760h"}
        made = site.post("/schedules", {"name": "waits", "trigger": every, "target": target})
        site.post(f"/schedules/{made['id']}/run")
        page.get_by_role("button", name="Undo").first.click()
        expect(card).to_contain_text("alive")
        expect(page.locator("main")).not_to_contain_text("All nodes are drained")
        receiver.wait_for("/x", 1)

    # Without scripts the confirmation is a page.
    plain = visitor(site, scripts=False).open("/ui/system")
    plain.get_by_role("button", name="Drain").click()
    expect(plain.locator("main")).to_contain_text("Drain this node?")
    plain.get_by_role("button", name="Drain").click()
    expect(plain.locator("article.node")).to_contain_text("drain")
    audit = visitor(site).open("/ui/system/audit?verb=drain")
    expect(audit.locator("#rows")).to_contain_text("new kernel")
