"""Editor in a browser: Thai description to a run, live preview, edits, phones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import EACH_LOOK, PHONE, Site, Visitor
from tests.browser.page_checks import accessible, check_page, fits, has_zoned_times
from tests.system.receiver import Receiver

NEW = "/ui/schedules/new"
FULL = {
    "name": "Night report",
    "trigger": {
        "kind": "cron",
        "expression": "30 2 * * *",
        "timezone": "America/New_York",
        "exclude": [{"dates": ["2030-12-25"]}],
    },
    "target": {"kind": "http", "url": "https://example.com/x"},
    "delivery": [{"channel": "inbox", "on": ["failure"]}],
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


def fires(page: Page) -> list[str]:
    return page.locator("#preview .fires time").evaluate_all("all => all.map(e => e.dateTime)")


def test_thai_description_becomes_a_schedule_that_runs_and_is_paused(
    site: Site, visitor: Callable[..., Visitor], receiver: Receiver
) -> None:
    """From a description to a live run, its log, a pause with a reason, and the fire log."""
    url = receiver.answer("/hook", 200)
    page = visitor(site, language="th").open(NEW)
    page.locator("#f-words").fill("ทุกวันทำการ 9 โมง ส่งสรุปยอดขายเข้าเทเลแกรม")
    page.locator("#f-words").press("Enter")
    expect(page.locator("#understood")).to_contain_text("09:00")
    expect(page.locator("#understood")).to_contain_text("Telegram")
    expect(page.locator("#f-expression")).to_have_value("0 9 * * 1-5")
    # No agent is configured: the guess is a message.
    expect(page.locator("[name=kind][value=message]")).to_be_checked()
    expect(page.locator("#f-message")).to_have_value("ส่งสรุปยอดขายเข้าเทเลแกรม")
    expect(page.locator("#f-notify0_channel")).to_have_value("telegram")
    expect(page.locator("[data-guess=notify0_channel]")).to_be_visible()
    assert len(fires(page)) == 5
    expect(page.locator("#neighbours svg")).to_be_visible()
    assert site.get("/schedules")["items"] == [], "a description saves nothing"
    # Something that fires soon: every two seconds, an HTTP request, the inbox.
    page.locator("[name=when][value=every]").check()
    page.locator("#f-every").fill("2")
    page.locator("#f-unit").select_option("s")
    page.locator("[name=kind][value=http]").check()
    page.locator("#f-url").fill(url)
    page.locator("#f-notify0_channel").select_option("inbox")
    # An edited field is no guess.
    expect(page.locator("[data-guess=notify0_channel]")).to_have_count(0)
    page.locator("#f-name").fill("ทดสอบ")
    expect(page.locator("[data-guess=name]")).to_have_count(0)
    expect(page.locator("#preview .words")).to_contain_text("2 วินาที")
    page.locator("#test-now").click()
    expect(page.locator("#trial .status.succeeded")).to_be_visible()
    assert len(receiver.calls("/hook")) == 1
    assert site.get("/schedules")["items"] == [], "a trial run saves nothing"
    page.locator("#save").click()
    page.wait_for_url(re.compile(r"/ui/schedules/[^/]+$"))
    expect(page.locator(".toast")).to_contain_text("ทดสอบ")
    (made,) = site.get("/schedules")["items"]
    assert made["trigger"]["every"] == "PT2S"
    home = f"/ui/schedules/{made['id']}"
    # The page updates live when it fires.
    fired = page.locator("#schedule-body .status.succeeded").first
    expect(fired).to_be_visible()
    receiver.wait_for("/hook", 2)
    page.locator('#schedule-body a[href^="/ui/runs/"]').first.click()
    page.wait_for_url(re.compile(r"/ui/runs/[^?]+$"))
    expect(page.locator("main h1")).to_contain_text("ทดสอบ")
    page.locator('main .tabs a[href*="log"]').first.click()
    expect(page.locator("run-log")).to_be_visible()
    page.goto(home)
    page.locator(f'main form[action="{home}/pause"] button').first.click()
    page.locator("dialog [name=reason], main [name=reason]").first.fill("รอข้อมูลใหม่")
    page.locator("dialog button.primary, dialog button[name=sure]").first.click()
    expect(page.locator(".toast")).to_contain_text("ทดสอบ")
    page.goto(f"{home}/log")
    expect(page.locator("#schedule-body tbody tr").first).to_contain_text("รอข้อมูลใหม่")
    assert not site.get(f"/schedules/{made['id']}")["enabled"]


def test_preview_updates_and_errors_are_shown_at_their_field(
    shared_site: Site, visitor: Callable[..., Visitor]
) -> None:
    page = visitor(shared_site).open(NEW)
    page.get_by_label("Cron", exact=True).check()
    page.locator("#f-expression").fill("30 2 * * *")
    expect(page.locator("#preview .words")).to_contain_text("Every day at 02:30")
    before = fires(page)
    assert len(before) == 5
    # The cron field under the caret is highlighted and can be replaced.
    page.locator("#f-expression").press("Home")
    marked = page.locator("#cron-parts li.on")
    expect(marked).to_contain_text("minute")
    page.locator("#f-expression").press("End")
    expect(marked).to_contain_text("weekday")
    marked.locator("[data-put='1-5']").click()
    expect(page.locator("#f-expression")).to_have_value("30 2 * * 1-5")
    expect(page.locator("#preview .words")).to_contain_text("weekday")
    expect(page.locator("#cron-parts li").last).to_contain_text("Mon–Fri")
    page.locator("#f-expression").fill("30 2 * * *")
    expect(page.locator("#preview .words")).to_contain_text("Every day at 02:30")
    page.locator("#f-expression").fill("30 2 * *")
    expect(page.locator("#e-expression")).to_contain_text("For example: 0 9 * * 1-5")
    expect(page.locator("#f-expression")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#preview .stale")).to_be_visible()
    assert fires(page) == before, "the last valid preview stays"
    accessible(page)
    page.get_by_role("button", name="0 9 * * 1-5").click()
    expect(page.locator("#e-expression")).to_be_hidden()
    expect(page.locator("#preview .words")).to_contain_text("weekday")
    # A zone by its Chinese name, by keyboard; two columns and clock changes.
    page.locator("#f-zone").fill("纽约")
    expect(page.locator("#zones [data-zone]").first).to_contain_text("America/New_York")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#f-zone")).to_have_value("America/New_York")
    expect(page.locator("#preview .fires th")).to_have_text(["America/New_York", "Asia/Bangkok"])
    expect(page.locator("#world")).to_contain_text("New York")
    # EST is ambiguous; the choice is kept.
    page.locator("#f-zone").fill("EST")
    expect(page.locator("#e-zone")).to_contain_text(
        "(with daylight saving time) or UTC-5 all year?"
    )
    page.locator("#zones [data-zone=EST]").click()
    expect(page.locator("#e-zone")).to_be_hidden()
    page.locator("#f-zone").fill("new york")
    page.locator("#zones [data-zone='America/New_York']").click()
    page.locator("#f-expression").fill("30 2 * * *")
    expect(page.locator("#preview .dst").first).to_contain_text("02:30 does not exist")
    has_zoned_times(page)


def test_edit_shows_changes_and_merges_with_a_concurrent_edit(
    site: Site, visitor: Callable[..., Visitor]
) -> None:
    made = site.post("/schedules", FULL)
    user = visitor(site)
    user.watch.allow("409")
    page = user.open(f"/ui/schedules/{made['id']}/edit")
    page.locator("#f-rule_time").fill("02:45")
    page.locator("#f-name").fill("Mine")
    expect(page.locator(".diff dt")).to_have_text(["Name", "When"])
    expect(page.locator(".diff .note")).to_contain_text("The next run moves from")
    answer = site.node.call("PATCH", f"/api/v1/schedules/{made['id']}", {"name": "Theirs"})
    assert answer.status == 200
    page.locator("#save").click()
    expect(page.locator("#conflict")).to_contain_text("Theirs: Theirs")
    accessible(page)
    page.get_by_label("Theirs: Theirs").check()
    page.locator("#save").click()
    page.wait_for_url(re.compile(r"/ui/schedules/[^/]+$"))
    found = site.get(f"/schedules/{made['id']}")
    assert (found["name"], found["trigger"]["expression"]) == ("Theirs", "45 2 * * *")
    assert found["trigger"]["exclude"] == FULL["trigger"]["exclude"]  # type: ignore[index]
    page.get_by_role("button", name="Undo").click()
    page.wait_for_load_state()
    assert site.get(f"/schedules/{made['id']}")["trigger"]["expression"] == "30 2 * * *"


def test_editor_works_without_scripts(site: Site, visitor: Callable[..., Visitor]) -> None:
    page = visitor(site, scripts=False).open(NEW)
    page.locator("#f-words").fill("every day call mum")
    page.locator("#read").click()
    expect(page.locator("#question")).to_contain_text("At what time?")
    page.locator("#question button").first.click()
    expect(page.locator("#understood")).to_be_visible()
    page.get_by_label("HTTP request").check()
    page.locator("#f-url").fill("https://example.com/x")
    page.locator("#f-zone").fill("โตเกียว")
    page.locator("#preview-button").click()
    expect(page.locator("#f-zone")).to_have_value("Asia/Tokyo")
    assert len(fires(page)) == 10
    page.locator("#save").click()
    page.wait_for_url(re.compile(r"/ui/schedules/[^/]+$"))
    (made,) = site.get("/schedules")["items"]
    assert made["timezone"] == "Asia/Tokyo"


@EACH_LOOK
def test_editor_is_accessible(
    shared_site: Site,
    visitor: Callable[..., Visitor],
    language: str,
    theme: str,
    width: int,
) -> None:
    made = shared_site.post("/schedules", FULL)
    user = visitor(shared_site, language=language, theme=theme, width=width)
    for path in (f"/ui/schedules/{made['id']}/edit", f"{NEW}?words=every day at 9am say hello"):
        page = user.open(path)
        check_page(page, language)
    if width == PHONE:
        summary = page.locator(".preview summary").first
        expect(page.locator("#preview")).to_be_hidden()
        summary.click()
        expect(page.locator("#preview .fires")).to_be_visible()
        fits(page)


def test_sections_are_folded_to_their_summaries_and_save_stays_in_view(
    shared_site: Site, visitor: Callable[..., Visitor]
) -> None:
    user = visitor(shared_site)
    user.watch.allow("422")
    page = user.open(NEW)
    expect(page.locator("#f-words")).to_be_focused()
    for name in ("how", "notifications", "more"):
        expect(page.locator(f"#{name} > summary .brief")).to_be_visible()
        expect(page.locator(f"#{name}")).not_to_have_attribute("open", "")
    expect(page.locator("#save")).to_be_in_viewport()
    page.locator("#how > summary").click()
    page.get_by_label("Retries").fill("4")
    page.locator("#how > summary").click()
    expect(page.locator("[data-brief=how]")).to_have_text("Retries: 4")
    expect(page.locator("#f-method")).to_have_value("GET")
    # An error unfolds its section; all errors are shown at once.
    page.locator("#how > summary").click()
    page.get_by_label("Retries").fill("many")
    page.locator("#how > summary").click()
    expect(page.locator("#how")).to_have_attribute("open", "")
    page.locator("#f-rule_time").fill("")
    page.locator("#save").click()
    expect(page.locator("#summary li")).to_have_count(3)
    for name in ("max_retries", "rule_time", "url"):
        expect(page.locator(f"#e-{name}")).to_be_visible()
    # The name follows from the URL: it is no error of its own.
    expect(page.locator("#e-name")).to_be_hidden()
    expect(page.locator("#save")).to_be_in_viewport()
    accessible(page)
