"""Lists in a browser: filter completion, saved filters, live rows."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import Site, Visitor
from tests.browser.page_checks import accessible, fits

LIST = "/ui/schedules"
HOOK = {"kind": "http", "url": "http://127.0.0.1:9/hook"}
DAILY = {"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Bangkok"}


def test_filter_is_completed_saved_and_reopened_by_keyboard(
    site: Site, visitor: Callable[..., Visitor]
) -> None:
    site.post("/schedules", {"name": "one", "trigger": DAILY, "target": HOOK, "enabled": False})
    page = visitor(site).open(LIST)
    field = page.get_by_role("combobox", name="Filter", exact=True)
    field.focus()
    field.press_sequentially("sta")
    expect(page.get_by_role("option", name="status:")).to_be_visible()
    accessible(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("option", name="status:paused")).to_be_visible()
    field.press_sequentially("pau")
    expect(page.locator("#filter-words").get_by_role("option")).to_have_count(1)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(field).to_have_value("status:paused ")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"q=status%3Apaused"))
    expect(page.locator("tr[data-row]")).to_have_count(1)
    page.get_by_text("Save filter").press("Enter")
    page.get_by_label("Name", exact=True).fill("Stopped ones")
    page.get_by_label("Name", exact=True).press("Enter")
    expect(page.locator(".toast")).to_contain_text("Filter Stopped ones saved.")
    page.get_by_label("More actions for the filter Stopped ones").click()
    expect(page.get_by_label("New name")).to_be_visible()
    accessible(page)
    page.goto("/ui/")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search pages").fill("stopped")
    found = page.get_by_role("option", name="★ Stopped ones (schedules)")
    expect(found).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/ui/schedules\?q=status%3Apaused$"))
    page.get_by_role("link", name="Clear", exact=True).click()
    expect(page).to_have_url(re.compile(r"/ui/schedules$"))


def test_rows_are_updated_in_place(site: Site, visitor: Callable[..., Visitor]) -> None:
    ids = [
        site.post("/schedules", {"name": name, "trigger": DAILY, "target": HOOK})["id"]
        for name in ("one", "two")
    ]
    page = visitor(site).open(f"{LIST}?sort=name")
    expect(page.locator("live-dot")).to_have_attribute("data-state", "live")
    rows = page.locator("tr[data-row]")
    page.get_by_label("Select one").check()
    page.get_by_label("More actions for one").click()
    site.post(f"/schedules/{ids[0]}/pause", {"reason": "a move"})
    expect(rows.first).to_contain_text("a move")
    expect(page.get_by_role("button", name="Resume one")).to_be_visible()
    expect(page.get_by_label("Select one")).to_be_checked()
    expect(page.get_by_role("link", name="Preview")).to_be_visible()
    site.post(f"/schedules/{ids[1]}/run")
    expect(rows.last.locator("td.results")).to_contain_text(re.compile("running|failed|queued"))
    site.post("/schedules", {"name": "a new one", "trigger": DAILY, "target": HOOK})
    expect(page.get_by_role("link", name="1 new schedule – show")).to_be_visible()
    assert page.locator("[data-open-row]").all_inner_texts() == ["one", "two"]
    site.node.call("DELETE", f"/api/v1/schedules/{ids[1]}")
    expect(rows.last).to_have_class(re.compile("gone"))
    page.goto(f"{LIST}?view=month")
    page.get_by_role("link", name=re.compile("planned on")).last.click()
    expect(page.locator("#day")).to_contain_text("a new one")
    # axe cannot measure what the sticky header covers.
    page.wait_for_load_state("load")
    page.evaluate("() => scrollTo(0, 0)")
    accessible(page)
    fits(page)


def test_a_laptop_shows_fifteen_runs_and_twelve_schedules(
    site: Site, visitor: Callable[..., Visitor]
) -> None:
    labels = {"team": "operations", "tier": "gold"}
    name = "report on everything that has happened in the last day"
    ids = [
        site.post(
            "/schedules",
            {"name": f"{name} {number}", "trigger": DAILY, "target": HOOK, "labels": labels},
        )["id"]
        for number in range(16)
    ]
    for each in ids:
        site.post(f"/schedules/{each}/run")
    page = visitor(site).page
    page.set_viewport_size({"width": 1440, "height": 900})

    def heights() -> list[float]:
        found: list[float] = page.evaluate(
            """() => [...document.querySelectorAll("tr[data-row]")]
                .map((row) => row.getBoundingClientRect())
                .filter((box) => box.bottom <= innerHeight).map((box) => box.height)"""
        )
        return found

    for path, least in (("/ui/runs", 15), (LIST, 12)):
        page.goto(path)
        page.wait_for_load_state("load")
        expect(page.locator("tr[data-row]")).to_have_count(16)
        found = heights()
        assert len(found) >= least
        # One line each.
        assert max(found) < 40
        accessible(page)
        fits(page)
    above = page.goto("/ui/runs") and page.locator(".list.runs").bounding_box()
    controls = page.locator(".list-head").bounding_box()
    assert above is not None
    assert controls is not None
    assert above["y"] - controls["y"] <= 300, "filters and chart take a third of the screen at most"
    page.get_by_role("button", name="Comfortable rows").click()
    expect(page.locator(".list.runs.comfortable")).to_be_visible()
    expect(page.get_by_role("button", name="Comfortable rows")).to_have_attribute(
        "aria-pressed", "true"
    )
    assert min(heights()) > max(found)
