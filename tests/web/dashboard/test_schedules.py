"""Schedule list over ASGI: rows, filters and actions."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import Origin, RunStatus
from chimes.model.target import payload_of
from chimes.triggers import Cron, Every, Once, Trigger
from chimes.web.dashboard.core import times
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.schedules.views import Sorting, expression_of, parse_sorting
from tests.builders import SYNC, a_run, a_schedule
from tests.web.dashboard.browsing import Browser, browsing
from tests.web.test_targets_api import join_node

LIST = "/ui/schedules"
THAI = DisplayPreferences(language="th")
HOSTILE = '<img src=x onerror=alert(1)>"></script>'


def tables(page: str) -> list[list[tuple[str, str]]]:
    """Cells of the two-column tables that accompany charts."""
    twins = re.findall(r'<details class="twin.*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    return [re.findall(r"<tr><td>([^<]+)</td><td>([^<]+)</td></tr>", each) for each in twins]


def names(page: str) -> list[str]:
    return re.findall(r"data-open-row>([^<]+)</a>", page)


async def test_the_empty_list_explains_the_next_step() -> None:
    async with browsing() as browser:
        page = (await browser.get(LIST)).text
        assert "No schedules yet" in page
        assert "chimes add" in page


async def test_a_row_shows_trigger_target_and_owner() -> None:
    async with browsing() as browser:
        await browser.rig.create(name=HOSTILE, labels={"billing": None, "team": "a"})
        page = (await browser.get(LIST)).text
        assert HOSTILE not in page
        for part in ("Every day at 09:00", "0 9 * * *", "Asia/Bangkok", "HTTP", "system:default"):
            assert part in page
        assert "label%3A%22billing%22" in page
        assert "team=a" in page
        assert "no runs yet" in page


async def test_sorting_by_next_fire_and_by_columns() -> None:
    async with browsing() as browser:
        now = browser.rig.clock.now()
        for name, hours in (("late", 23), ("early", 1), ("noon", 12)):
            trigger = {"kind": "once", "at": (now + timedelta(hours=hours)).isoformat()}
            await browser.rig.create(name=name, trigger=trigger)
        await browser.rig.create(name="paused", enabled=False)
        assert names((await browser.get(LIST)).text) == ["early", "noon", "late", "paused"]
        by_name = (await browser.get(f"{LIST}?sort=-name")).text
        assert names(by_name) == ["paused", "noon", "late", "early"]
        assert names((await browser.get(f"{LIST}?sort=nonsense")).text)[0] == "early"


async def test_filters_and_the_condition_without_matches() -> None:
    async with browsing() as browser:
        await browser.rig.create(name="a", labels={"billing": None})
        await browser.rig.create(name="b", enabled=False)
        assert names((await browser.get(f"{LIST}?q=label:billing")).text) == ["a"]
        assert names((await browser.get(f"{LIST}?q=status:paused")).text) == ["b"]
        assert names((await browser.get(f"{LIST}?q=next:<24h")).text) == ["a"]
        assert "No schedule matches" in (await browser.get(f"{LIST}?q=next:<1m+label:billing")).text
        page = (await browser.get(f"{LIST}?q=label:billing+status:paused")).text
        assert "No schedule matches Label: billing." in page
        assert 'href="/ui/schedules?q=status%3Apaused"' in page
        both = (await browser.get(f"{LIST}?q=label:x+kind:flow")).text
        assert "No schedule matches all filters" in both
        broken = a_schedule(name="c", last_status=RunStatus.FAILED)
        await browser.rig.store.load([broken])
        assert names((await browser.get(f"{LIST}?q=status:failed+status:enabled")).text) == ["c"]
        assert names((await browser.get(f"{LIST}?q=status:failed+status:paused")).text) == []
        wrong = (await browser.get(f"{LIST}?q=status:broken")).text
        assert "one of enabled, paused" in wrong


async def test_paging_by_cursor_and_new_rows() -> None:
    async with browsing() as browser:
        for number in range(30):
            await browser.rig.create(name=f"s{number:02}")
        first = (await browser.get(f"{LIST}?sort=name")).text
        assert len(names(first)) == 25
        (more,) = re.findall(r'rel="next" href="([^"]+)"', first)
        more = more.replace("&amp;", "&")
        rest = await browser.get(more)
        assert names(rest.text) == [f"s{number}" for number in range(25, 30)]
        part = await browser.get(more, **{"HX-Request": "true"})
        assert part.text.lstrip().startswith("<tr")
        assert (await browser.get(more.replace("sort=name", "sort=next"))).status_code == 422
        newer = (await browser.get(f"{LIST}/newer?known=28")).json()
        assert newer == {"count": 2, "text": "2 new schedules – show"}
        assert (await browser.get(f"{LIST}/newer?known=x")).status_code == 422


async def test_rows_show_results_and_durations() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(name="report")
        now = browser.rig.clock.now()
        runs = [
            a_run(
                id=RunId(f"r{number}"),
                schedule_id=ScheduleId(made["id"]),
                origin=Origin.SCHEDULE,
                status=RunStatus.FAILED if number == 3 else RunStatus.SUCCEEDED,
                created_at=now - timedelta(hours=number),
                planned_at=now - timedelta(hours=number),
                started_at=now - timedelta(hours=number),
                finished_at=now - timedelta(hours=number) + timedelta(seconds=2),
            )
            for number in range(1, 6)
        ]
        await browser.rig.store.load(runs)
        page = (await browser.get(LIST)).text
        assert page.count('class="s-succeeded"') == 4
        assert page.count('class="s-failed"') == 1
        assert '2 s<span class="usual">, usually 2 s</span>' in page
        assert 'href="/ui/runs/r1"' in page
        for view in (f"{LIST}?view=table", f"{LIST}?view=cards"):
            page = (await browser.get(view, **{"Accept-Language": "th"})).text
            results, lengths = tables(page)
            assert results[0] == (times.format_with_year(runs[0].planned_at, "UTC", THAI), "สำเร็จ")
            assert results[2] == (times.format_with_year(runs[2].planned_at, "UTC", THAI), "ล้มเหลว")
            assert lengths == [(f"{number}", "2 วินาที") for number in range(1, 6)]
        (results, *_) = tables((await browser.get(f"{LIST}/{made['id']}")).text)
        assert [ended for _, ended in results] == ["succeeded"] * 2 + ["failed"] + ["succeeded"] * 2


async def test_many_results_are_merged_to_the_worst() -> None:
    # More than 30 results a day.
    async with browsing() as browser:
        made = await browser.rig.create(name="often")
        now = browser.rig.clock.now()
        moments = [now - timedelta(minutes=10 * number) for number in range(1, 101)]
        runs = [
            a_run(
                id=RunId(f"r{number:03}"),
                schedule_id=ScheduleId(made["id"]),
                origin=Origin.SCHEDULE,
                status=RunStatus.FAILED if number == 80 else RunStatus.SUCCEEDED,
                created_at=at,
                planned_at=at,
                started_at=at,
                finished_at=at + timedelta(seconds=2),
            )
            for number, at in enumerate(moments)
        ]
        await browser.rig.store.load(runs)
        page = (await browser.get(LIST)).text
        assert page.count('class="s-succeeded"') == 29
        assert page.count('class="s-failed"') == 1, "though it is not among the last 30"
        assert "failed, worst of 3 runs from" in page


async def page_of(browser: Browser, **given: object) -> str:
    return f"{LIST}/{(await browser.rig.create(**given))['id']}"


async def test_run_now_shows_the_target_and_redirects_to_the_run() -> None:
    target = {
        "kind": "http",
        "url": "http://127.0.0.1:9/hook?token=hush",
        "headers": {"Authorization": "Bearer hush", "X-Day": "monday"},
        "body": f'{{"name": "{HOSTILE[:4]}"}}',
    }
    async with browsing() as browser:
        page = await page_of(browser, target=target)
        assert f'href="{page}/run?back=' in (await browser.get(LIST)).text
        dialog = (await browser.get(f"{page}/run")).text
        for part in ("Run report now?", "http://127.0.0.1:9/hook", "X-Day", "monday", "&lt;img"):
            assert part in dialog
        assert "hush" not in dialog
        answer = await browser.send(f"{page}/run")
        assert answer.headers["location"].startswith("/ui/runs/")


@pytest.mark.parametrize(
    ("target", "given", "after"),
    [
        ({"kind": "http", "url": "http://127.0.0.1:9/", "body": "a"}, "b\nc", "b\nc"),
        (
            {"kind": "task", "name": "greet", "args": {"api_key": "hush", "n": 1}},
            '{"api_key": "***", "n": 2}',
            {"api_key": "hush", "n": 2},
        ),
        ({"kind": "flow", "name": "pipeline", "input": {"n": 1}}, "", {}),
    ],
    ids=["http", "task", "flow"],
)
async def test_a_manual_run_can_have_other_parameters(
    target: dict[str, object], given: str, after: object
) -> None:
    async with browsing() as browser:
        await join_node(browser.rig)
        made = await browser.rig.create(target=target)
        page = f"{LIST}/{made['id']}"
        done = await browser.send(f"{page}/run/with", on=f"{page}/run", payload=given)
        assert done.status_code == 303, done.text
        run = await browser.rig.store.get_run(RunId(done.headers["location"].rpartition("/")[2]))
        assert run is not None
        assert payload_of(run.target) == after
        kept = (await browser.rig.client.get(f"/api/v1/schedules/{made['id']}")).json()
        assert kept["target"] == made["target"]


async def test_invalid_parameters_are_reported_in_the_dialog() -> None:
    async with browsing() as browser:
        await join_node(browser.rig)
        page = await page_of(browser, target={"kind": "task", "name": "greet", "args": {}})
        for given, why in (("{", "invalid JSON"), ("[1]", "a JSON object")):
            wrong = await browser.send(f"{page}/run/with", on=f"{page}/run", payload=given)
            assert (wrong.status_code, 'aria-invalid="true"' in wrong.text) == (422, True)
            assert why in wrong.text
        assert (await browser.rig.client.get("/api/v1/runs")).json()["items"] == []
        await browser.rig.store.load([a_schedule(id=ScheduleId("pair"), target=SYNC)])
        assert "With other parameters" not in (await browser.get(f"{LIST}/pair/run")).text


async def test_pause_has_a_reason_and_an_end_and_can_be_undone() -> None:
    async with browsing() as browser:
        page = await page_of(browser)
        dialog = await browser.send(f"{page}/pause", on=LIST)
        assert (dialog.status_code, "Until (optional)" in dialog.text) == (200, True)
        past = await browser.send(f"{page}/pause", reason="move", until="2020-01-01T00:00")
        assert (past.status_code, "is in the past" in past.text) == (422, True)
        until = browser.rig.clock.now() + timedelta(days=5)
        done = await browser.send(f"{page}/pause", reason=HOSTILE, until=f"{until:%Y-%m-%dT%H:%M}")
        shown = (await browser.follow(done)).text
        assert HOSTILE not in shown
        assert "report paused." in shown
        assert f'datetime="{until:%Y-%m-%dT%H:%M}' in shown
        undone = await browser.send(f"{page}/resume")
        toast_page = (await browser.follow(undone)).text
        assert "report resumed." in toast_page
        browser.page = toast_page[toast_page.index('class="toast ') :]
        again = await browser.send(f"{page}/pause")
        assert again.status_code == 303, "undoing a resume needs no confirmation"
        (schedule,) = (await browser.rig.client.get("/api/v1/schedules")).json()["items"]
        assert schedule["pause"]["note"] == HOSTILE
        assert schedule["pause"]["until"].startswith(f"{until:%Y-%m-%d}")


async def test_a_deletion_can_be_undone() -> None:
    async with browsing() as browser:
        page = await page_of(browser)
        dialog = await browser.send(f"{page}/delete", on=page)
        assert "Delete this schedule?" in dialog.text
        done = await browser.send(f"{page}/delete")
        assert done.headers["location"] == LIST
        gone = (await browser.follow(done)).text
        assert "report deleted." in gone
        assert (await browser.get(page)).status_code == 404
        await browser.get(LIST)
        browser.page = gone
        back = await browser.send(f"{page}/restore")
        assert back.status_code == 303
        assert (await browser.get(page)).status_code == 200


async def test_schedules_of_other_owners_are_not_found() -> None:
    async with browsing() as browser:
        page = await page_of(browser, owner={"type": "user", "id": "bob"}, name="bobs own")
        password = "correct horse battery"
        await browser.send(
            "/ui/system/access/users",
            on="/ui/system/access",
            name="anna",
            password=password,
            role="member",
        )
        browser.rig.clock.advance(timedelta(seconds=1))
        await browser.send("/ui/logout", on=LIST)
        await browser.send("/ui/login", on="/ui/login", user="anna", password=password)
        assert "No schedules yet" in (await browser.get(LIST)).text
        assert "bobs own" not in (await browser.get(f"{LIST}/export")).text
        csrf = re.findall(r'name="csrf" value="([^"]+)"', (await browser.get(LIST)).text)[0]
        for tab in ("", "/runs", "/log", "/definition", "/deliveries", "/copy", "/next", "/run"):
            assert (await browser.get(page + tab)).status_code == 404, tab
        for verb in (
            "run",
            "run/with",
            "pause",
            "resume",
            "delete",
            "skip",
            "move",
            "restore",
            "backfill",
        ):
            answer = await browser.post(f"{page}/{verb}", {"csrf": csrf, "sure": "yes"})
            assert answer.status_code == 404, verb
        fields = {"csrf": csrf, "verb": "delete", "which": "selected", "sure": "yes"}
        bulk = await browser.post(f"{LIST}/bulk", fields | {"id": page.rpartition("/")[2]})
        assert bulk.status_code == 303, "no schedule selected"


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (Cron("0 9 * * 1-5"), "0 9 * * 1-5"),
        (Every("15m"), "every 15m"),
        (Every("2h"), "every 2h"),
        (Every("90s"), "every 1m30s"),
        (Once("2030-02-10T09:00:00", timezone="Asia/Bangkok"), "2030-02-10T09:00:00"),
    ],
)
def test_trigger_expressions(trigger: Trigger, text: str) -> None:
    assert expression_of(trigger) == text


def test_a_click_on_a_header_reverses_the_order() -> None:
    assert parse_sorting("-name") == Sorting(name="name", descending=True)
    assert Sorting().toggled("next") == Sorting(descending=True)
    assert Sorting(descending=True).toggled("next") == Sorting()
    assert Sorting(descending=True).toggled("name") == Sorting(name="name")
