"""Runs and run page in a browser: range selection, bulk actions, a log of 50,000 lines."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Page, expect

from chimes.clock import SystemClock
from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.model.target import TaskTarget
from chimes.store.port import ClaimRequest, RunLog, Store
from chimes.store.sql import open_sqlite
from tests.browser.conftest import EACH_LOOK, PHONE, Site, Visitor
from tests.browser.page_checks import accessible, check_page
from tests.builders import a_completion, a_node, a_run, a_schedule
from tests.web.dashboard.test_runs import HOSTILE, ended

T = TypeVar("T")
ESCAPED_HOSTILE = HOSTILE.replace("\u202e", "⟨U+202E⟩")
LINES = 50_000
#: Every tab is opened in one language at least.
TABS_BY_LANGUAGE = {
    "en": ("log", "error", "data"),
    "th": ("log", "data"),
    "zh": ("attempts", "events", "deliveries"),
}
#: No served node has this capability: the test executes the runs.
TASK = TaskTarget(name="greet")


class SecondNode:
    """Acts as a second node on the same store."""

    def __init__(self, site: Site) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        path = site.node._home / "chimes.db"
        self.store: Store = open_sqlite(str(path), clock=SystemClock())
        self.run_on_loop(self.store.open())

    def run_on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def close(self) -> None:
        self.run_on_loop(self.store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def claimed(self, **given: Any) -> Run:
        """Adds a run and claims it."""
        now = self.run_on_loop(self.store.now())
        node = a_node("tester", started_at=now, heartbeat_at=now, capabilities=(TASK.requirement,))
        self.run_on_loop(self.store.join(node, timedelta(minutes=5)))
        moments = {"created_at": now, "planned_at": now, "available_at": now}
        self.run_on_loop(self.store.add_runs([a_run(target=TASK, **(moments | given))]))
        (run,) = self.run_on_loop(
            self.store.claim(
                ClaimRequest(node_id=node.id, capabilities=frozenset({TASK.requirement}), free=1)
            )
        )
        return run

    def log(self, run: Run, *messages: str, level: str = "info") -> None:
        now = self.run_on_loop(self.store.now())
        entries = [LogEntry(at=now, message=text, level=level) for text in messages]
        assert self.run_on_loop(self.store.append_logs(run.id, run.fence, entries))

    def finish(self, run: Run) -> None:
        completion = a_completion(run, self.run_on_loop(self.store.now()))
        self.run_on_loop(self.store.finish([completion]))


@pytest.fixture
def second_node(site: Site) -> Iterator[SecondNode]:
    found = SecondNode(site)
    yield found
    found.close()


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def history(second_node: SecondNode) -> list[Run]:
    """Two days of runs of a schedule with a hostile name; the last hours failed."""
    schedule = a_schedule(name=f"nightly {HOSTILE}")
    runs = []
    for hours in range(1, 20):
        bad = hours < 5
        runs.append(
            ended(
                now() - timedelta(hours=hours),
                RunStatus.FAILED if bad else RunStatus.SUCCEEDED,
                took=3 + hours % 4,
                schedule=schedule,
                error=f"HTTP 500 {HOSTILE}" if bad else "",
            )
        )
    second_node.run_on_loop(second_node.store.load([replace(schedule, enabled=False), *runs]))
    return runs


def lines_of(page: Page) -> list[str]:
    return page.locator(".log-view .line .text").all_inner_texts()


def height_of(page: Page) -> float:
    box = page.locator(".log-view").bounding_box()
    assert box is not None
    return box["height"]


@EACH_LOOK
def test_runs_and_run_page_in_every_look(
    site: Site,
    second_node: SecondNode,
    visitor: Callable[..., Visitor],
    language: str,
    theme: str,
    width: int,
) -> None:
    runs = history(second_node)
    user = visitor(site, language=language, theme=theme, width=width)
    page = user.open("/ui/runs")
    expect(page.locator("tr[data-row]")).to_have_count(19)
    expect(page.locator(".groups a")).to_contain_text("4")
    # A wide chart is scrolled to its newest end.
    expect(page.locator("svg.histogram g[data-from]").last).to_be_in_viewport()
    check_page(page, language)
    # The error column is visible without scrolling.
    cut = page.locator(".list.runs").evaluate("(list) => list.scrollWidth - list.clientWidth")
    assert cut <= 0
    for tab in TABS_BY_LANGUAGE[language]:
        page = user.open(f"/ui/runs/{runs[0].id}?tab={tab}")
        expect(page.locator("h1")).to_contain_text(ESCAPED_HOSTILE)
        check_page(page, language)


def test_range_selection_error_groups_and_bulk_actions(
    site: Site, second_node: SecondNode, visitor: Callable[..., Visitor]
) -> None:
    history(second_node)
    page = visitor(site).open("/ui/runs")
    bars = page.locator("svg.histogram g[data-from]")
    count = bars.count()
    first, last = (bars.nth(place).bounding_box() for place in (count - 14, count - 4))
    assert first
    assert last
    page.mouse.move(first["x"] + 2, first["y"] + 60)
    page.mouse.down()
    page.mouse.move(last["x"] - 20, last["y"] + 50)
    page.mouse.move(last["x"] + 2, last["y"] + 60)
    expect(page.locator(".in-brush")).not_to_have_count(0)
    page.mouse.up()
    page.wait_for_url(re.compile("since.*until"))
    expect(page.locator(".chips")).to_contain_text(re.compile(r"since .*until .*\+07"))
    shown = page.locator("tr[data-row]").count()
    assert 1 <= shown < 19
    # Filter by error group, then clear the filter.
    page = visitor(site).open("/ui/runs")
    page.locator(".groups a").click()
    expect(page.locator("tr[data-row]")).to_have_count(4)
    page.get_by_label("All matching runs").check()
    page.get_by_role("button", name="Retry selected").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Retry 4 runs?")
    accessible(dialog)
    dialog.get_by_role("button", name="Retry").click()
    expect(page.locator("main")).to_contain_text("4 of 4 runs processed.")
    expect(page.locator("tr[data-row]")).to_have_count(4)


def test_new_runs_are_announced_and_selected_range_is_counted(
    site: Site, second_node: SecondNode, visitor: Callable[..., Visitor]
) -> None:
    history(second_node)
    page = visitor(site).open("/ui/runs")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("[data-selected-count]")).to_have_text("1")
    expect(page.locator("#window-total")).to_have_text("19 runs in this window")
    page.locator("run-brush summary").click()
    second_node.claimed()
    expect(page.locator("new-rows a")).to_have_text("1 new run – show")
    expect(page.locator("tr[data-row]")).to_have_count(19)
    # The chart refreshes, but not during a selection.
    expect(page.locator("#window-total")).to_have_text("20 runs in this window")
    expect(page.locator("run-brush rect.s-running")).to_have_count(1)
    expect(page.locator("run-brush table")).to_be_visible()
    first, last = (page.locator("svg.histogram g[data-from]").nth(n) for n in (4, 8))
    first.hover()
    page.mouse.down()
    last.hover()
    drawn = page.locator(".in-brush").count()
    assert drawn
    with page.expect_response(re.compile("part=picture")):
        second_node.claimed()
    expect(page.locator("new-rows a")).to_have_text("2 new runs – show")
    assert page.locator(".in-brush").count() == drawn
    expect(page.locator("#window-total")).to_have_text("20 runs in this window")
    page.get_by_role("heading", name="Runs", exact=True).hover()
    page.mouse.up()
    expect(page.locator("#window-total")).to_have_text("21 runs in this window", timeout=10_000)
    page.locator("new-rows a").click()
    expect(page.locator("tr[data-row]")).to_have_count(21)


def test_run_page_follows_a_run_live_to_its_end(
    site: Site, second_node: SecondNode, visitor: Callable[..., Visitor]
) -> None:
    run = second_node.claimed(schedule_name="live one")
    page = visitor(site).open(f"/ui/runs/{run.id}")
    expect(page.locator("h1 .status.running")).to_be_visible()
    second_node.log(
        run, "first", "\x1b[1;31mred\x1b[0m plain", HOSTILE, "\x1b[38;5;46mgreen\x1b[0m"
    )
    expect(page.locator(".log-view .line")).to_have_count(4)
    assert height_of(page) > 300, "space for new lines"
    expect(page.locator(".log-view .a-bold.a-f1")).to_have_text("red")
    expect(page.locator(".log-view .a-f2")).to_have_text("green")
    assert lines_of(page)[2] == ESCAPED_HOSTILE
    second_node.log(run, *(f"line {n}" for n in range(200)))
    view = page.locator(".log-view")
    view.scroll_into_view_if_needed()
    expect(view.get_by_text("line 199", exact=True)).to_be_in_viewport()
    # Scrolled up: the view stays and counts new lines.
    view.evaluate("(view) => { view.scrollTop = 0; }")
    expect(page.get_by_label("Follow")).not_to_be_checked()
    second_node.log(run, *(f"more {n}" for n in range(128)))
    expect(page.locator(".log-new")).to_have_text("↓ 128 new lines")
    expect(view.get_by_text("first", exact=True)).to_be_in_viewport()
    page.locator(".log-new").click()
    expect(view.get_by_text("more 127", exact=True)).to_be_in_viewport()
    second_node.log(run, "watch out", level="warning")
    page.get_by_label("Level").select_option("30")
    expect(page.locator(".log-view .line")).to_have_count(1)
    page.get_by_label("Level").select_option("0")
    page.get_by_label("Times", exact=True).select_option("start")
    expect(page.locator(".log-view .at").last).to_contain_text("+")
    accessible(page)
    second_node.finish(run)
    expect(page.locator("h1 .status.succeeded")).to_be_visible()
    expect(page.get_by_role("button", name="Retry", exact=True)).to_be_visible()
    # An ended log is as high as its lines, up to the maximum. Its stream ends after the head of the
    # page has changed.
    expect(page.locator(".log-view.ended")).to_be_visible()
    assert height_of(page) > 300
    page.get_by_label("Level").select_option("30")
    expect(page.locator(".log-view .line")).to_have_count(1)
    assert height_of(page) < 100


def test_running_run_advances_every_second(
    site: Site, second_node: SecondNode, visitor: Callable[..., Visitor]
) -> None:
    run = second_node.claimed(schedule_name="live one")
    second_node.log(run, *(f"line {n}" for n in range(100)))
    page = visitor(site).open(f"/ui/runs/{run.id}")
    page.evaluate("() => { window.stays = true; }")
    duration = page.locator("#run-head [data-since]")
    bars = page.locator("svg.waterfall g[data-start]")
    queued = bars.first.locator("rect")
    before = duration.inner_text(), bars.last.locator("text").text_content() or ""
    wide = float((queued.get_attribute("width") or "").removesuffix("%"))
    expect(duration).not_to_have_text(before[0])
    expect(bars.last.locator("text")).not_to_have_text(before[1])
    # The scale follows: an ended bar shrinks while another grows.
    page.wait_for_function(
        "wide => parseFloat(document.querySelector('svg.waterfall g[data-start] rect')"
        ".getAttribute('width')) < wide",
        arg=max(wide, 0.21),
    )
    view = page.locator(".log-view")
    expect(view.get_by_text("line 99", exact=True)).to_be_in_viewport()
    box = view.bounding_box()
    assert box is not None
    assert 740 <= box["y"] + box["height"] <= 800, "the log takes the rest of the window"
    second_node.finish(run)
    expect(page.locator("h1 .status.succeeded")).to_be_visible()
    expect(duration).to_have_count(0)
    expect(page).to_have_title(re.compile("^✓ live one"))
    assert page.evaluate("() => window.stays"), "the page was not loaded again"


def cpu_seconds_of(page: Page) -> Callable[[], float]:
    """A function that returns the CPU seconds of the page, independent of other load."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def cpu_seconds() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))

    return cpu_seconds


@pytest.mark.long
def test_log_of_fifty_thousand_lines_stays_responsive(
    site: Site, second_node: SecondNode, visitor: Callable[..., Visitor]
) -> None:
    begin = now() - timedelta(hours=1)
    run = ended(begin, schedule_name="long one")
    entries = [
        LogEntry(
            at=begin + number * timedelta(milliseconds=10),
            number=number,
            level="error" if number % 10_000 == 0 else "info",
            message=f"line {number} of the log" + (" needle" if number % 12_345 == 0 else ""),
        )
        for number in range(1, LINES + 1)
    ]
    entries[999] = replace(entries[999], message="x" * 1_048_576)
    second_node.run_on_loop(
        second_node.store.load([run, RunLog(run_id=run.id, entries=tuple(entries))])
    )
    page = visitor(site).open(f"/ui/runs/{run.id}#L25000")
    view = page.locator(".log-view")
    expect(view.locator(".line.current .no")).to_have_text("25000", timeout=30_000)
    expect(view.locator(".line.current")).to_be_in_viewport()
    cpu_seconds = cpu_seconds_of(page)
    before = cpu_seconds()
    page.get_by_label("Search the log").fill("needle")
    expect(page.locator(".log-matches")).to_have_text("1 of 4")
    expect(view.locator(".line.current .no")).to_have_text("12345")
    expect(view.locator(".line.current mark")).to_have_text("needle")
    page.get_by_role("button", name="Next match").click()
    expect(view.locator(".line.current .no")).to_have_text("24690")
    expect(view.locator(".line.current")).to_be_in_viewport()
    for _ in range(2):
        page.get_by_role("button", name="Previous match").click()
    expect(view.locator(".line.current .no")).to_have_text("49380")
    expect(view.locator(".line.current")).to_be_in_viewport()
    assert cpu_seconds() - before < 2
    view.evaluate("(view) => { view.scrollTop = view.scrollHeight; }")
    expect(view.get_by_text(f"line {LINES} of the log", exact=True)).to_be_in_viewport()
    view.evaluate("(view) => { view.scrollTop = view.scrollHeight / 2; }")
    expect(view.locator(".line").first).to_be_attached()
    # Scrolling is cheap: below 0.1 CPU seconds per jump.
    before = cpu_seconds()
    view.evaluate(
        """async (view) => {
          for (let step = 1; step <= 60; step += 1) {
            view.scrollTop = (view.scrollHeight * ((step * 37) % 60)) / 60;
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
          }
        }"""
    )
    assert (cpu_seconds() - before) / 60 < 0.1
    # Lines outside the viewport are not rendered.
    expect(view.locator(".line >> nth=600")).to_have_count(0)
    heap = page.evaluate("() => performance.memory.usedJSHeapSize")
    assert heap < 150 * 1024 * 1024
    page.goto(f"/ui/runs/{run.id}#L1000")
    expect(view.locator(".line.current")).to_contain_text("1,048,576 characters in total")
    page.get_by_label("Level").select_option("40")
    expect(view.locator(".line")).to_have_count(5)


def test_runs_and_run_page_work_without_scripts(
    site: Site, second_node: SecondNode, visitor: Callable[..., Visitor]
) -> None:
    runs = history(second_node)
    page = visitor(site, scripts=False, width=PHONE).open("/ui/runs?q=status:failed")
    page.locator("tr[data-row] input[type=checkbox]").first.check()
    page.get_by_role("button", name="Retry selected").click()
    page.locator("section.card").get_by_role("button", name="Retry").click()
    expect(page.locator("main")).to_contain_text("1 of 1 run processed.")
    page.goto(f"/ui/runs/{runs[0].id}")
    page.get_by_role("link", name="Retry with changes").click()
    page.get_by_label("Name").fill("once more")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".toast")).to_contain_text("Run queued.")


def test_run_now_opens_the_live_run(site: Site, visitor: Callable[..., Visitor]) -> None:
    made = site.post(
        "/schedules",
        {
            "name": "manual",
            "trigger": {"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Tokyo"},
            "target": {"kind": "http", "url": "http://127.0.0.1:9/nobody", "method": "POST"},
            "policy": {"max_retries": 0},
        },
    )
    run = site.post(f"/schedules/{made['id']}/run")
    page = visitor(site).open(f"/ui/runs/{RunId(run['id'])}")
    expect(page.locator("h1 .status.failed")).to_be_visible()
    expect(page.locator(".log-view .line").first).to_be_visible()
    expect(page.locator("time .also").first).to_contain_text("JST")
    page.keyboard.press("!")
    page.wait_for_url(lambda address: run["id"] not in address)
    expect(page.locator("h1 .status.failed")).to_be_visible()
    expect(page.locator("main")).to_contain_text(run["id"][:13])
