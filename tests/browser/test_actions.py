"""What forms, questions, toasts and lists do, with scripts and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, Visitor
from tests.browser.frame_pages import HOSTILE, Served, served_trial
from tests.browser.watching import accessible, fits


@pytest.fixture
def trial() -> Iterator[Served]:
    with served_trial() as served:
        yield served


def names(page: Page) -> list[str]:
    return page.locator("[data-open-row]").all_inner_texts()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_wide_action_asks_shows_names_and_can_be_undone(
    trial: Served, visitor: Callable[..., Visitor], scripts: bool
) -> None:
    page = visitor(trial, scripts=scripts).open("/ui/trial")
    for box in ("one", HOSTILE):
        page.get_by_label(box, exact=True).check()
    page.get_by_role("button", name="Remove").click()
    asked = page.get_by_role("dialog") if scripts else page.locator("section.card")
    expect(asked).to_contain_text("Remove 2 rows?")
    expect(asked.locator(".names li")).to_have_text(["one", HOSTILE])
    if scripts:
        accessible(asked)
        page.keyboard.press("Escape")
        expect(asked).to_have_count(0)
        # The focus is back where it was.
        expect(page.get_by_role("button", name="Remove 2")).to_be_focused()
        page.get_by_role("button", name="Remove 2").click()
    asked.get_by_label("Reason").fill("no longer needed")
    asked.get_by_role("button", name="Remove").click()
    expect(page.locator(".toast")).to_contain_text("Removed: no longer needed")
    assert names(page) == ["two"]
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_contain_text("There again.")
    assert names(page) == ["two", "one"]
    # Said once.
    page.reload()
    expect(page.locator(".toast")).to_have_count(0)


def test_a_refusal_is_a_toast_beside_the_page(
    trial: Served, visitor: Callable[..., Visitor]
) -> None:
    somebody = visitor(trial)
    somebody.watch.allow("409")
    page = somebody.open("/ui/trial")
    page.get_by_role("button", name="Fail").click()
    expect(page.locator(".toast.error")).to_contain_text(HOSTILE)
    accessible(page)
    page.locator(".toast [data-dismiss]").click()
    expect(page.locator(".toast")).to_have_count(0)
    assert len(names(page)) == 3


def test_lists_are_walked_through_and_selected_by_key(
    trial: Served, visitor: Callable[..., Visitor]
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


def test_changes_come_by_themselves_and_rows_do_not_jump(
    trial: Served, visitor: Callable[..., Visitor]
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
    # Morphed, not replaced: what was ticked is still ticked.
    expect(page.get_by_label("two", exact=True)).to_be_checked()
    expect(page.locator("new-rows a")).to_have_text("3 new rows – show")


@pytest.mark.parametrize("width", [PHONE, 1280])
def test_rows_are_cards_on_phones_and_charts_are_drawn(
    trial: Served, visitor: Callable[..., Visitor], width: int
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


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_more_rows_come_below_or_on_the_next_page(
    trial: Served, visitor: Callable[..., Visitor], scripts: bool
) -> None:
    trial.trial.more = True
    page = visitor(trial, scripts=scripts).open("/ui/trial")
    page.get_by_role("link", name="Load more").click()
    expect(page.get_by_role("link", name="Load more")).to_have_count(0)
    expect(page.locator("[data-open-row]")).to_have_count(5 if scripts else 2)
    assert names(page)[-2:] == ["five", "six"]


def test_the_palette_finds_schedules_and_what_the_page_can_do(
    trial: Served, visitor: Callable[..., Visitor]
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
