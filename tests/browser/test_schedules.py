"""Schedule list and schedule page in a browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from chimes.clock import SystemClock
from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import Origin, Reason, Run, RunStatus
from chimes.model.schedule import Schedule, pause_schedule, plan_after
from chimes.triggers import Cron, Every
from tests.browser.conftest import DESK, EACH_LOOK, PHONE, WITH_AND_WITHOUT_SCRIPTS, Site, Visitor
from tests.browser.frame_pages import HOSTILE, TrialSite, serve_trial_pages
from tests.browser.page_checks import accessible, check_page, fits
from tests.builders import a_run, a_schedule

LIST = "/ui/schedules"
TODAY = f"{SystemClock().now():%Y-%m-%d}"
#: Smaller pages, each in one language at least and on a phone.
FURTHER_PAGES = {
    "en": (f"{LIST}/daily/log", f"{LIST}/daily/definition", f"{LIST}?view=cards"),
    "th": (
        f"{LIST}/daily/log",
        f"{LIST}/daily/copy",
        f"{LIST}/import",
        f"{LIST}?view=month",
        f"{LIST}/daily/run",
    ),
    "zh": (f"{LIST}?view=month&day={TODAY}", f"{LIST}?view=cards"),
}
HOOK = {"kind": "http", "url": "http://127.0.0.1:9/hook"}


def _history(schedule: Schedule, count: int) -> list[Run]:
    now = SystemClock().now()
    runs = []
    for number in range(count):
        at = now - timedelta(hours=3 * number + 1)
        status = {4: RunStatus.FAILED, 7: RunStatus.SKIPPED, 9: RunStatus.MISSED}.get(
            number % 11, RunStatus.SUCCEEDED
        )
        ran = status in (RunStatus.SUCCEEDED, RunStatus.FAILED)
        runs.append(
            a_run(
                id=RunId(f"{schedule.id}-{number}"),
                schedule_id=schedule.id,
                schedule_name=schedule.name,
                origin=Origin.SCHEDULE,
                slot=at,
                status=status,
                reason="" if ran else Reason.OVERLAP,
                error=HOSTILE if status is RunStatus.FAILED else "",
                created_at=at,
                planned_at=at,
                started_at=at + timedelta(milliseconds=40) if ran else None,
                finished_at=at + timedelta(seconds=2 + number % 5),
            )
        )
    return runs


@pytest.fixture(scope="module")
def seeded_site() -> Iterator[TrialSite]:
    """Trial site with schedules and history; tests do not change it."""
    now = SystemClock().now()
    daily = a_schedule(
        id=ScheduleId("daily"),
        name=HOSTILE,
        trigger=Cron("30 2 * * *", timezone="America/New_York"),
        labels={"billing": None, "team": HOSTILE},
        next_slot=None,
    )
    often = a_schedule(id=ScheduleId("often"), trigger=Every("15m", anchor=now), next_slot=None)
    many = [
        a_schedule(id=ScheduleId(f"s{each:02}"), name=f"row {each:02}", next_slot=None)
        for each in range(28)
    ]
    off = pause_schedule(a_schedule(), now, "me", note=HOSTILE, until=now + timedelta(days=2))
    with serve_trial_pages() as served:
        items: list[Schedule | Run] = [plan_after(each, now) for each in (daily, often, *many)]
        items += [off, *_history(daily, 40), *_history(often, 40)]
        asyncio.run(served.store.load(items))
        yield served


@EACH_LOOK
def test_list_and_schedule_pages_in_every_look(
    seeded_site: TrialSite, visitor: Callable[..., Visitor], language: str, theme: str, width: int
) -> None:
    user = visitor(seeded_site, language=language, theme=theme, width=width)
    for path in (LIST, f"{LIST}/daily", *FURTHER_PAGES[language]):
        page = user.open(path)
        expect(page.locator("h1, h2").first).to_be_visible()
        check_page(page, language)


@pytest.mark.parametrize(
    ("view", "width"),
    [("table", DESK), ("cards", PHONE), pytest.param("table", PHONE, marks=pytest.mark.long)],
)
def test_charts_in_rows_have_keyboard_accessible_tables(
    seeded_site: TrialSite, visitor: Callable[..., Visitor], view: str, width: int
) -> None:
    page = visitor(seeded_site, width=width).open(f"{LIST}?view={view}")
    row = page.locator("[data-row-id=often]")
    for name, cells in (("Results of", "succeeded"), ("Durations of", " s")):
        twin = row.locator("details.twin", has_text=name)
        summary = twin.locator("summary")
        expect(summary).to_have_count(1)
        assert summary.evaluate("(each) => each.getBoundingClientRect().width") <= 1
        summary.focus()
        page.keyboard.press("Enter")
        expect(twin.locator("tbody tr").first).to_contain_text(cells)
        expect(twin.locator("tbody tr").first).to_be_in_viewport()
    accessible(row)
    fits(page)


def test_load_more_in_place_and_keyboard_row_actions(
    seeded_site: TrialSite, visitor: Callable[..., Visitor]
) -> None:
    page = visitor(seeded_site).open(f"{LIST}?sort=name")
    rows = page.locator("tr[data-row]")
    expect(rows).to_have_count(25)
    page.get_by_role("link", name="Load more").click()
    expect(rows).to_have_count(31)
    expect(page.get_by_role("link", name="Load more")).to_have_count(0)
    # Without a selected row these keys do nothing.
    for key in ("p", "!", "e", "l"):
        page.keyboard.press(key)
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("[data-selected-count]")).to_have_text("1")
    page.keyboard.press(" ")
    expect(page.get_by_role("dialog")).to_contain_text("Next five fires")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("l")
    expect(page).to_have_url(re.compile(r"/log$"))


def test_filter_without_matches_is_named_and_can_be_cleared(
    seeded_site: TrialSite, visitor: Callable[..., Visitor]
) -> None:
    page = visitor(seeded_site).open(LIST)
    page.get_by_role("combobox", name="Filter").fill("label:billing status:paused")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No schedule matches Label: billing.")).to_be_visible()
    page.get_by_role("link", name="Clear Label: billing").click()
    expect(page.locator("tr[data-row]")).to_have_count(1)


def _names(page: Page) -> list[str]:
    return page.locator("[data-open-row]").all_inner_texts()


@WITH_AND_WITHOUT_SCRIPTS
def test_pause_run_and_delete_from_the_list(
    site: Site, visitor: Callable[..., Visitor], scripts: bool
) -> None:
    site.post("/schedules", {"name": "report", "trigger": _daily(9), "target": HOOK})
    page = visitor(site, scripts=scripts).open(LIST)
    page.get_by_role("button", name="Pause report").click()
    page.get_by_label("Reason").fill("until the move is over")
    page.get_by_label("Until (optional)").fill("2035-01-01T10:00")
    page.locator("#dialogs dialog, section.card").get_by_role("button", name="Pause").click()
    expect(page.locator(".toast")).to_contain_text("report paused.")
    expect(page.locator("tr[data-row]")).to_contain_text("until the move is over")
    expect(page.locator("tr[data-row]")).to_contain_text("1 Jan 2035 10:00 +07")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("tr[data-row] .status")).to_contain_text("on")
    page.get_by_label("More actions for report").click()
    page.locator(".menu-body").get_by_role("button", name="Delete").click()
    page.locator("#dialogs dialog, section.card").get_by_role("button", name="Delete").click()
    expect(page.locator(".toast")).to_contain_text("report deleted.")
    expect(page.get_by_text("No schedules yet")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("[data-open-row]")).to_have_text(["report"])
    page.get_by_role("link", name="Run report now").click()
    dialog = page.locator("#dialogs dialog, section.card")
    expect(dialog).to_contain_text("http://127.0.0.1:9/hook")
    dialog.get_by_text("With other parameters").click()
    dialog.get_by_label("body, for this run only").fill("only this once")
    if scripts:
        accessible(dialog)
    dialog.get_by_role("button", name="Run with these parameters").click()
    expect(page).to_have_url(re.compile(r"/ui/runs/[0-9a-f-]+$"))
    run = site.get(f"/runs/{page.url.rpartition('/')[2]}")
    assert run["target"]["body"] == "only this once"


def _daily(hour: int) -> dict[str, str]:
    return {"kind": "cron", "expression": f"0 {hour} * * *", "timezone": "Asia/Bangkok"}


def test_bulk_actions_and_palette_of_the_schedule_page(
    site: Site, visitor: Callable[..., Visitor]
) -> None:
    for hour, name in enumerate(("one", "two", "three")):
        site.post("/schedules", {"name": name, "trigger": _daily(hour), "target": HOOK})
    page = visitor(site).open(LIST)
    page.get_by_label("Select one").check()
    page.get_by_label("Select three").check()
    page.get_by_label("Action", exact=True).select_option("label")
    page.get_by_role("button", name="Selected (2)").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Label 2 schedules?")
    accessible(dialog)
    dialog.get_by_label("Label (name or name=value)").fill("team=sales")
    dialog.get_by_role("button", name="Change").click()
    expect(page.get_by_role("status").first).to_contain_text("2 schedules done.")
    page.get_by_role("link", name="Back to list").click()
    # Until its scripts are loaded, the form of the list opens a page instead of a dialog.
    page.wait_for_url(re.compile(rf"{LIST}(\?.*)?$"))
    expect(page.get_by_text("team=sales")).to_have_count(2)
    page.get_by_label("Action", exact=True).select_option("pause")
    page.get_by_role("button", name="All 3 matching").click()
    dialog.get_by_label("Reason").fill("holiday")
    dialog.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("3 schedules done.")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("3 schedules done.")).to_be_visible()
    page.get_by_role("link", name="two").click()
    expect(page.get_by_text(re.compile("First run"))).to_be_visible()
    page.get_by_role("link", name="Fire log").click()
    expect(page.locator("main tbody")).to_contain_text("paused the schedule")
    expect(page.locator("main tbody")).to_contain_text("holiday")
    page.get_by_label("More", exact=True).click()
    page.get_by_role("link", name="Copy as…").click()
    expect(dialog).to_contain_text("chimes add")
    accessible(dialog)
    page.keyboard.press("Escape")
    # Page actions are in the palette; a pending request shows the wait state.
    page.evaluate(
        """() => { const ask = window.fetch.bind(window); window.fetch = (...given) =>
            !/pause/.test(given[0]) ? ask(...given) : new Promise((done) => {
                window.release = () => { window.release = null; done(ask(...given)); }; }); }"""
    )
    page.keyboard.press("Control+k")
    page.keyboard.type("pau")
    expect(page.get_by_role("option", name="Pause")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.locator("html.waits")).to_be_attached()
    page.evaluate("() => window.release()")
    expect(dialog).to_contain_text("Pause two")
    expect(page.locator("html.waits")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.locator("#palette-text").fill("nobody is called so")
    expect(page.locator("#palette").get_by_role("status")).to_have_text("No matches")


def test_new_rows_are_announced_and_shown_on_request(
    site: Site, visitor: Callable[..., Visitor]
) -> None:
    site.post("/schedules", {"name": "one", "trigger": _daily(1), "target": HOOK})
    page = visitor(site, width=PHONE).open(LIST)
    expect(page.locator("live-dot")).to_have_attribute("data-state", "live")
    site.post("/schedules", {"name": "two", "trigger": _daily(2), "target": HOOK})
    shown = page.get_by_role("link", name="1 new schedule – show")
    expect(shown).to_be_visible()
    assert _names(page) == ["one"]
    shown.click()
    expect(page.locator("tr[data-row]")).to_have_count(2)


def test_crontab_import_creates_schedules(site: Site, visitor: Callable[..., Visitor]) -> None:
    page = visitor(site).open(f"{LIST}/import")
    text = "# Report\n0 9 * * 1-5 curl http://127.0.0.1:9/r\n0 1 * * * /bin/x\n"
    page.get_by_label("Text").fill(text)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("Every weekday at 09:00")).to_be_visible()
    expect(page.get_by_text("commands are not allowed")).to_be_visible()
    accessible(page)
    fits(page)
    page.get_by_role("button", name="Create 1 schedule").click()
    expect(page.locator(".toast")).to_contain_text("1 schedule created.")
    assert _names(page) == ["Report"]
