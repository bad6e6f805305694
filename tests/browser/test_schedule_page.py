"""Schedule page in a browser: definition, deliveries, fire log, backfill."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from playwright.sync_api import expect

from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Recipient
from chimes.model.schedule import mark_source
from chimes.services.webhooks import hook_url
from chimes.triggers import Cron, Webhook
from tests.browser.conftest import EACH_LOOK, PHONE, Site, Visitor
from tests.browser.page_checks import check_page
from tests.browser.test_runs import SecondNode, now, second_node
from tests.builders import a_schedule

__all__ = ["second_node"]
HOOK = Recipient(channel=Channel.WEBHOOK, to="https://example.com/x?token=abc")


@EACH_LOOK
def test_tabs_of_the_schedule_page_in_every_look(
    site: Site,
    second_node: SecondNode,
    visitor: Callable[..., Visitor],
    language: str,
    theme: str,
    width: int,
) -> None:
    schedule = a_schedule(
        trigger=Cron("0 * * * *", timezone="America/New_York"),
        policy=Policy(delivery=(Recipient(channel=Channel.INBOX), HOOK)),
        next_slot=None,
    )
    second_node.run_on_loop(second_node.store.load([mark_source(schedule, "shop/tasks.py:12")]))
    own = f"/ui/schedules/{schedule.id}"
    user = visitor(site, language=language, theme=theme, width=width)
    for path, shown in (("definition", "shop/tasks.py:12"), ("deliveries", "token=***")):
        page = user.open(f"{own}/{path}")
        expect(page.locator("main")).to_contain_text(shown)
        check_page(page, language)
    # The main action stays visible on phones.
    page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    if width == PHONE:
        expect(page.locator(f"form[action='{own}/run'] button:visible")).to_be_in_viewport()
    page = user.open(own)
    now_at, left, right = page.locator(".scroll:has(.now)").evaluate(
        """(room) => {
            const line = room.querySelector(".now").getBoundingClientRect();
            const box = room.getBoundingClientRect(), names = room.querySelector(".names");
            return [line.left, box.left + names.clientWidth, box.right]; }"""
    )
    assert left < now_at < right, "the current time is visible at every width"
    page = user.open(f"{own}/log?only=not&day={now():%Y-%m-%d}")
    check_page(page, language)
    page = user.open(f"{own}/backfill")
    page.locator("#backfill-from").fill(f"{now() - timedelta(hours=30):%Y-%m-%dT%H:%M}")
    page.locator("#backfill-to").fill(f"{now() - timedelta(hours=8):%Y-%m-%dT%H:%M}")
    page.locator("#backfill-concurrency").fill("2")
    page.locator("form.card button[type=submit]").click()
    expect(page.locator(".slots li").first).to_be_visible()
    check_page(page, language)


def test_the_address_of_a_webhook_can_be_copied(
    site: Site, second_node: SecondNode, visitor: Callable[..., Visitor]
) -> None:
    schedule = a_schedule(trigger=Webhook(token="t" * 32), next_slot=None)
    second_node.run_on_loop(second_node.store.load([schedule]))
    user = visitor(site)
    user.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site.url)
    page = user.open(f"/ui/schedules/{schedule.id}")
    card = page.locator("section.card", has_text="Keep it secret")
    address = card.locator("code").inner_text()
    assert address == hook_url(schedule, site.url)
    card.get_by_role("button", name="Copy").click()
    page.wait_for_function(
        "async (text) => await navigator.clipboard.readText() === text", arg=address
    )
    check_page(page, "en")
