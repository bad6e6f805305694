"""Run page in a browser: main action on phones, known failures."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from chimes.model.run import RunStatus
from chimes.model.target import TaskTarget
from tests.browser.conftest import PHONE, Site, Visitor
from tests.browser.page_checks import accessible, fits
from tests.browser.test_runs import SecondNode, now, second_node
from tests.builders import a_schedule
from tests.web.dashboard.test_runs import HOSTILE, ended

__all__ = ["second_node"]


def test_main_action_on_a_phone_follows_the_run_status(
    site: Site, second_node: SecondNode, visitor: Callable[..., Visitor]
) -> None:
    run = second_node.claimed()
    page = visitor(site, width=PHONE).open(f"/ui/runs/{run.id}")
    page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    cancel = page.get_by_role("button", name="Cancel run")
    expect(cancel).to_have_count(1)
    expect(cancel).to_be_in_viewport()
    # axe cannot measure what the sticky header covers.
    page.evaluate("() => scrollTo(0, 0)")
    accessible(page)
    fits(page)
    second_node.finish(run)
    retry = page.get_by_role("button", name="Retry", exact=True)
    expect(retry).to_be_in_viewport()
    expect(cancel).to_have_count(0)
    retry.click()
    expect(page.get_by_text("Run queued.")).to_be_visible()


def test_failure_is_marked_as_known(
    site: Site, second_node: SecondNode, visitor: Callable[..., Visitor]
) -> None:
    schedule = a_schedule(name="broken", last_status=RunStatus.FAILED, last_error="HTTP 500")
    given = TaskTarget(name="t", args={"deep": {"list": [{"name": HOSTILE}]}})
    run = ended(now(), RunStatus.FAILED, schedule=schedule, error="HTTP 500", target=given)
    second_node.run_on_loop(second_node.store.load([schedule, run]))
    page = visitor(site).open(f"/ui/runs/{run.id}?tab=data")
    tree = page.get_by_role("group", name="Input")
    item = tree.get_by_text("“<script>")
    expect(item).to_be_hidden()
    for name in ("deep", "list", "0"):
        tree.locator("summary", has_text=re.compile(f"^{name}:")).focus()
        page.keyboard.press("Enter")
    expect(item).to_be_visible()
    page.get_by_role("button", name="Mark as known").click()
    dialog = page.get_by_role("dialog")
    accessible(dialog)
    dialog.get_by_label("Reason").fill("the supplier is told")
    dialog.get_by_role("button", name="Mark as known").click()
    expect(page.locator("#run-head .note", has_text="the supplier is told")).to_be_visible()
    accessible(page)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Failure unmarked.")).to_be_visible()
    expect(page.get_by_role("button", name="Mark as known")).to_be_visible()
