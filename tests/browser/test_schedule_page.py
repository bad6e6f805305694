"""Further parts of a schedule's page in a real browser: code and edits, who is told, a backfill."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from playwright.sync_api import expect

from chimes.model.policy import Policy
from chimes.model.recipient import Channel, Recipient
from chimes.model.schedule import mark_source
from chimes.triggers import Cron
from tests.browser.conftest import EACH_LOOK, PHONE, Site, Visitor
from tests.browser.test_runs import Hand, hand, now
from tests.browser.watching import for_everybody
from tests.builders import a_schedule

__all__ = ["hand"]
HOOK = Recipient(channel=Channel.WEBHOOK, to="https://example.com/x?token=abc")


@EACH_LOOK
def test_the_rest_of_the_page_is_for_everybody(
    site: Site,
    hand: Hand,
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
    hand.do(hand.store.load([mark_source(schedule, "shop/tasks.py:12")]))
    own = f"/ui/schedules/{schedule.id}"
    somebody = visitor(site, language=language, theme=theme, width=width)
    for path, shown in (("definition", "shop/tasks.py:12"), ("deliveries", "token=***")):
        page = somebody.open(f"{own}/{path}")
        expect(page.locator("main")).to_contain_text(shown)
        for_everybody(page, language)
    # What one does most is in reach wherever one is on the page.
    page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    if width == PHONE:
        expect(page.locator(f"form[action='{own}/run'] button:visible")).to_be_in_viewport()
    page = somebody.open(own)
    now_at, left, right = page.locator(".scroll:has(.now)").evaluate(
        """(room) => {
            const line = room.querySelector(".now").getBoundingClientRect();
            const box = room.getBoundingClientRect(), names = room.querySelector(".names");
            return [line.left, box.left + names.clientWidth, box.right]; }"""
    )
    assert left < now_at < right, "what is now is in sight, however narrow the page is"
    page = somebody.open(f"{own}/log?only=not&day={now():%Y-%m-%d}")
    for_everybody(page, language)
    page = somebody.open(f"{own}/backfill")
    page.locator("#backfill-from").fill(f"{now() - timedelta(hours=30):%Y-%m-%dT%H:%M}")
    page.locator("#backfill-to").fill(f"{now() - timedelta(hours=8):%Y-%m-%dT%H:%M}")
    page.locator("#backfill-concurrency").fill("2")
    page.locator("form.card button[type=submit]").click()
    expect(page.locator(".slots li").first).to_be_visible()
    for_everybody(page, language)
