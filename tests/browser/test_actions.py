"""Forms, confirm dialogs, toasts and lists, with and without scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, WITH_AND_WITHOUT_SCRIPTS, Visitor
from tests.browser.frame_pages import HOSTILE, TrialSite, serve_trial_pages
from tests.browser.page_checks import accessible, fits


@pytest.fixture
def trial() -> Iterator[TrialSite]:
    with serve_trial_pages() as served:
        yield served


def names(page: Page) -> list[str]:
    return page.locator("[data-open-row]").all_inner_texts()


@WITH_AND_WITHOUT_SCRIPTS
def test_bulk_action_confirms_with_names_and_can_be_undone(
    trial: TrialSite, visitor: Callable[..., Visitor], scripts: bool
) -> None:
    page = visitor(trial, scripts=scripts).open("/ui/trial")
    for box in ("one", HOSTILE):
        page.get_by_label(box, exact=True).check()
    page.get_by_role("button", name="Remove").click()
    dialog = page.get_by_role("dialog") if scripts else page.locator("section.card")
    expect(dialog).to_contain_text("Remove 2 rows?")
    expect(dialog.locator(".names li")).to_have_text(["one", HOSTILE])
    if scripts:
        accessible(dialog)
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        # The focus returns to the button.
        expect(page.get_by_role("button", name="Remove 2")).to_be_focused()
        page.get_by_role("button", name="Remove 2").click()
    dialog.get_by_label("Reason").fill("no longer needed")
    dialog.get_by_role("button", name="Remove").click()
    expect(page.locator(".toast")).to_contain_text("Removed: no longer needed")
    assert names(page) == ["two"]
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_contain_text("There again.")
    assert names(page) == ["two", "one"]
    # A toast is shown once.
    page.reload()
    expect(page.locator(".toast")).to_have_count(0)


def test_error_of_an_action_is_shown_as_a_toast(
    trial: TrialSite, visitor: Callable[..., Visitor]
) -> None:
    user = visitor(trial)
    user.watch.allow("409")
    page = user.open("/ui/trial")
    page.get_by_role("button", name="Fail").click()
    expect(page.locator(".toast.error")).to_contain_text(HOSTILE)
    accessible(page)
    page.locator(".toast [data-dismiss]").click()
    expect(page.locator(".toast")).to_have_count(0)
    assert len(names(page)) == 3


def test_list_is_navigated_and_selected_by_keyboard(
    trial: TrialSite, visitor: Callable[..., Visitor]
) -> None:
    page = visitor(trial).open("/ui/trial")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("tr.current a")).to_have_text("two")
    page.keyboard.press("x")
    expect(page.get_by_label("two", exact=True)).to_be_checked()
    expect(page.locator("[data-selected-count]")).to_have_text("1")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    assert page.url.endswith("#1")
    page.locator("[data-select-all]").check()
    expect(page.locator("[data-selected-count]")).to_have_text("3")


def test_live_update_keeps_rows_and_selection(
    trial: TrialSite, visitor: Callable[..., Visitor]
) -> None:
    page = visitor(trial).open("/ui/trial")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.get_by_label("two", exact=True).check()
    trial.trial.names.append("four")
    page.evaluate(
        "() => document.querySelector('#live')"
        ".dispatchEvent(new CustomEvent('schedules.changed', { bubbles: true }))"
    )
    expect(page.locator("[data-open-row]")).to_have_count(4)
    # Rows are morphed, not replaced, so the selection stays.
    expect(page.get_by_label("two", exact=True)).to_be_checked()
    expect(page.locator("new-rows a")).to_have_text("3 new rows – show")


@pytest.mark.parametrize("width", [PHONE, 1280])
def test_rows_are_cards_on_phones_and_charts_are_rendered(
    trial: TrialSite, visitor: Callable[..., Visitor], width: int
) -> None:
    page = visitor(trial, width=width, theme="dark").open("/ui/trial")
    page.locator("main time").click()
    expect(page.locator(".tap-card")).to_contain_text("Unix")
    fits(page)
    accessible(page)
    expect(page.locator("line-chart canvas")).to_be_visible()
    shown = page.locator("tr[data-row] td").first.evaluate(
        "(cell) => getComputedStyle(cell).display"
    )
    assert shown == ("block" if width == PHONE else "table-cell")


@WITH_AND_WITHOUT_SCRIPTS
def test_load_more_appends_rows_or_opens_the_next_page(
    trial: TrialSite, visitor: Callable[..., Visitor], scripts: bool
) -> None:
    trial.trial.more = True
    page = visitor(trial, scripts=scripts).open("/ui/trial")
    page.get_by_role("link", name="Load more").click()
    expect(page.get_by_role("link", name="Load more")).to_have_count(0)
    expect(page.locator("[data-open-row]")).to_have_count(5 if scripts else 2)
    assert names(page)[-2:] == ["five", "six"]


def test_command_palette_finds_schedules_and_page_actions(
    trial: TrialSite, visitor: Callable[..., Visitor]
) -> None:
    page = visitor(trial).open("/ui/trial")
    page.keyboard.press("Control+k")
    page.keyboard.type("trial")
    expect(page.get_by_role("option", name="Edit the trial")).to_have_attribute(
        "aria-selected", "true"
    )
    accessible(page.locator("#palette"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/trial#pressed")
    expect(page.locator("#palette")).to_be_hidden()
    page.keyboard.press("e")
    page.evaluate(
        """() => fetch("/api/v1/schedules", {
            method: "POST", headers: { "Content-Type": "application/json" },
            body: JSON.stringify({ name: "Nightly <b>backup</b>",
                trigger: { kind: "cron", expression: "0 9 * * *" },
                target: { kind: "http", url: "http://127.0.0.1:9/" } }) })"""
    )
    page.keyboard.press("Control+k")
    page.keyboard.type("Nightly")
    expect(page.get_by_role("option", name="Nightly <b>backup</b>")).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/schedules/*")
