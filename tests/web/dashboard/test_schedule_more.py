"""Schedule page: fire log, backfill limits, declared schedules, deliveries, expected slots."""

from __future__ import annotations

import re
from asyncio import gather
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from chimes.errors import NotFound
from chimes.model import replace
from chimes.model.access import Owner, OwnerType, Role
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import Result, StatusCounts
from chimes.model.notification import DeliveryState
from chimes.model.planning import plan
from chimes.model.recipient import Channel, Recipient
from chimes.model.run import Origin, Reason, RunStatus
from chimes.model.schedule import Schedule, is_detached, mark_source, plan_after
from chimes.services.schedules.history import Decision, FireLogEntry
from chimes.services.schedules.versions import (
    ORIGINAL,
    periods_of,
    versions_in,
    with_version,
)
from chimes.store.port import Store
from chimes.triggers import Cron, Every
from chimes.web.dashboard.charts.timeline import Fire
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.schedule.charts import MAX_MARKS, PAST, expected_marks
from chimes.web.dashboard.schedule.definition import MAX_HIGHLIGHTED, highlight
from chimes.web.dashboard.schedule.fire_log import oldest_unexplained
from chimes.web.dashboard.schedule.routes import destinations_of, in_your_zone
from tests.builders import (
    HOUR,
    MINUTE,
    NOW,
    a_delivery,
    a_delivery_completion,
    a_node,
    a_run,
    a_schedule,
    an_entry,
    claim_request,
)
from tests.web.dashboard.browsing import Browser, browsing

BANGKOK = {"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Bangkok"}


async def page_of(browser: Browser, **given: object) -> tuple[str, ScheduleId]:
    made = await browser.rig.create(**given)
    return f"/ui/schedules/{made['id']}", ScheduleId(made["id"])


def text_of(page: str) -> str:
    """Text of a page without tags, with single spaces."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


# --- fire log ---------------------------------------------------------------------------------
async def test_the_fire_log_explains_every_decision() -> None:
    async with browsing() as browser:
        store, clock = browser.rig.store, browser.rig.clock
        await store.join(a_node(), 24 * HOUR)
        page, own = await page_of(browser, trigger={"kind": "every", "every": "10m"})

        async def due(minutes: int) -> None:
            clock.advance(minutes * MINUTE)
            await store.fire_due(plan, limit=10, request=claim_request())

        # Fired, and still running when the next slot is due.
        await due(10)
        (running,) = await store.running_now(None, limit=5)
        await due(10)
        assert (
            f'href="/ui/runs/{running.id}">Blocking run' in (await browser.get(f"{page}/log")).text
        )
        # Run manually, skipped, moved, paused and resumed.
        await browser.send(f"{page}/run", on=page)
        await browser.send(f"{page}/skip", on=page)
        await browser.send(f"{page}/skip", reason="holiday")
        to = f"{clock.now() + 5 * MINUTE:%Y-%m-%dT%H:%M}"
        await browser.send(f"{page}/move", on=f"{page}/next", to=to)
        await browser.send(f"{page}/pause", on=page)
        await browser.send(f"{page}/pause", reason="stocktaking")
        await browser.send(f"{page}/resume", on=page)
        # No node for an hour, then a backfill.
        clock.advance(HOUR)
        await store.fire_due(plan, limit=10)
        back = {
            "from": f"{NOW - HOUR:%Y-%m-%dT%H:%M}",
            "to": f"{NOW:%Y-%m-%dT%H:%M}",
            "sure": "yes",
        }
        await browser.send(f"{page}/backfill", on=f"{page}/backfill", **back)
        shown = text_of((await browser.get(f"{page}/log")).text)
        for words in (
            "Due; started.",
            "Skipped: the previous run was still running.",
            "Requested by system:default.",
            "Skipped: skipped by a user.",
            "“holiday”",
            "system:default moved the next run.",
            "system:default paused the schedule.",
            "“stocktaking”",
            "system:default resumed the schedule.",
            "runs missed: no node was running. Misfire policy: run once.",
            "Backfill of a past slot.",
            "system:default created the schedule.",
        ):
            assert words in shown, words
        only = text_of((await browser.get(f"{page}/log?only=not")).text)
        assert "Due; started." not in only
        assert "runs missed" in only
        assert (await store.get_schedule(own)) is not None


async def test_the_fire_log_of_one_day() -> None:
    # Days are in the zone of the viewer.
    async with browsing() as browser:
        browser.client.cookies.set("chimes_look", "zone=Asia%2FBangkok")
        page, own = await page_of(browser)
        schedule = await browser.rig.store.get_schedule(own)
        assert schedule is not None
        today, night = day_of(NOW), NOW - 20 * HOUR
        missed = a_run(
            schedule, created_at=night, planned_at=night, finished_at=night,
            status=RunStatus.MISSED, reason=Reason.MISFIRE, origin=Origin.SCHEDULE,
        )  # fmt: skip
        fine = [
            a_run(schedule, created_at=at, planned_at=at, finished_at=at,
                  status=RunStatus.SUCCEEDED, origin=Origin.SCHEDULE)
            for at in (NOW - n * MINUTE for n in range(60))
        ]  # fmt: skip
        await browser.rig.store.load([missed, *fine])
        for path in (f"{page}/log?only=not", f"{page}/log?day={day_of(night)}"):
            shown = (await browser.get(path)).text
            assert "Missed: no node was running" in shown
            assert shown.count("<tr data-row") == 1
        # Links to the neighbouring days, and the text of an empty day.
        assert f'href="{page}/log?day={today}"' in shown
        empty = (await browser.get(f"{page}/log?day={today + timedelta(days=3)}")).text
        assert "No runs and no changes on this day" in empty
        fine_day = (await browser.get(f"{page}/log?only=not&day={today + timedelta(days=3)}")).text
        assert "Nothing was skipped, missed or paused on this day." in fine_day
        assert "did not exist yet" in (await browser.get(f"{page}/log?day=2001-01-01")).text
        # An earlier pause is shown on every day it covers.
        await browser.send(f"{page}/pause", on=page)
        await browser.send(f"{page}/pause", reason="stocktaking")
        held = (await browser.get(f"{page}/log?day={today + timedelta(days=2)}")).text
        assert "“stocktaking”" in held
        for wrong in ("yesterday", "0001-01-01", "9999-12-31"):
            assert (await browser.get(f"{page}/log?day={wrong}")).status_code == 422


def day_of(at: datetime) -> date:
    return at.astimezone(ZoneInfo("Asia/Bangkok")).date()


async def test_a_slot_that_waits_for_another_schedule_is_explained() -> None:
    async with browsing() as browser:
        other, _ = await page_of(browser, name="first")
        page, _ = await page_of(
            browser,
            trigger={"kind": "every", "every": "10m"},
            depends_on={"schedule_id": other.rpartition("/")[2]},
        )
        browser.rig.clock.advance(10 * MINUTE)
        await browser.rig.store.fire_due(plan, limit=10)
        assert "its dependency did not succeed" in (await browser.get(f"{page}/log?only=not")).text


async def test_the_blocking_run_is_found_on_earlier_pages() -> None:
    # Rows of an earlier release do not name the blocking run.
    async with browsing() as browser:
        page, own = await page_of(browser)
        schedule = await browser.rig.store.get_schedule(own)
        assert schedule is not None
        start = NOW - 3 * HOUR
        long = a_run(
            schedule, created_at=start, status=RunStatus.SUCCEEDED, finished_at=NOW + HOUR,
            origin=Origin.SCHEDULE,
        )  # fmt: skip
        skipped = [
            a_run(
                schedule,
                created_at=start + (n + 1) * MINUTE,
                status=RunStatus.SKIPPED,
                reason=Reason.OVERLAP,
                finished_at=start + (n + 1) * MINUTE,
                origin=Origin.SCHEDULE,
            )
            for n in range(60)
        ]
        await browser.rig.store.load([long, *skipped])
        shown = (await browser.get(f"{page}/log")).text
        assert shown.count(f'href="/ui/runs/{long.id}">Blocking run') == 49


def test_explained_entries_need_no_further_query() -> None:
    skipped = a_run(status=RunStatus.SKIPPED, reason=Reason.OVERLAP, created_at=NOW)
    entry = FireLogEntry(at=NOW, decision=Decision.SKIPPED, run=skipped)
    assert oldest_unexplained([entry]) == skipped
    known = replace(skipped, result={"in_the_way": "r1"})
    assert oldest_unexplained([replace(entry, run=known)]) is None


# --- backfill ---------------------------------------------------------------------------------
async def test_a_backfill_has_a_concurrency_limit() -> None:
    async with browsing() as browser:
        page, own = await page_of(browser, trigger={"kind": "cron", "expression": "0 * * * *"})
        fields = {
            "from": f"{NOW - 4 * HOUR:%Y-%m-%dT%H:%M}",
            "to": f"{NOW - MINUTE:%Y-%m-%dT%H:%M}",
            "concurrency": "2",
            "overlap": "allow",
        }
        shown = await browser.send(f"{page}/backfill", on=f"{page}/backfill", **fields)
        text = text_of(shown.text)
        assert "4 runs will be created" in text
        assert "Concurrency limit: 2." in text
        assert "They run in parallel with other runs of the schedule." in text
        # The button below the list keeps the limit.
        forms = shown.text[shown.text.index("4 runs will be created") :]
        browser.page = forms
        done = await browser.send(f"{page}/backfill")
        assert done.status_code == 303
        runs = [run for run in (await browser.rig.snapshot()) if getattr(run, "origin", "")]
        keys = {(run.concurrency_key, run.concurrency_limit) for run in runs}  # type: ignore[attr-defined]
        assert len(keys) == 1
        assert sorted(run.blocked for run in runs) == [False, False, True, True]  # type: ignore[attr-defined]
        assert next(iter(keys))[1] == 2
        assert own not in str(keys)
        for wrong, field in (("0", "concurrency"), ("x", "concurrency"), ("9999", "concurrency")):
            answer = await browser.send(
                f"{page}/backfill", on=f"{page}/backfill", **fields | {field: wrong}
            )
            assert answer.status_code == 422, wrong
            assert 'id="backfill-concurrency"' in answer.text
            assert 'aria-invalid="true"' in answer.text
        for overlap in ("skip", "sideways"):
            answer = await browser.send(
                f"{page}/backfill", on=f"{page}/backfill", **fields | {"overlap": overlap}
            )
            assert answer.status_code == 422


# --- declared schedules -----------------------------------------------------------------------
async def test_declared_schedules_detach_and_reattach() -> None:
    async with browsing() as browser:
        page, own = await page_of(browser, trigger=BANGKOK)
        assert "in code" not in (await browser.get(f"{page}/definition")).text
        store = browser.rig.store
        await store.change_schedule(own, lambda each, now: mark_source(each, "shop/<tasks>.py:12"))
        shown = (await browser.get(f"{page}/definition")).text
        assert "Declared in code at shop/&lt;tasks&gt;.py:12. Editing here detaches it" in shown
        await browser.rig.client.patch(f"/api/v1{page[3:]}", json={"priority": 3})
        shown = (await browser.get(f"{page}/definition")).text
        assert "and edited since: it is detached" in shown
        api = (await browser.rig.client.get(f"/api/v1{page[3:]}")).json()
        assert api["declared"] == {"at": "shop/<tasks>.py:12", "kind": "code", "detached": True}
        dialog = await browser.send(f"{page}/attach", on=f"{page}/definition")
        assert "overwrites what was edited here" in text_of(dialog.text)
        done = await browser.send(f"{page}/attach")
        assert "The next start applies the code" in (await browser.follow(done)).text
        after = await store.get_schedule(own)
        assert after is not None
        assert not is_detached(after)


async def test_schedules_of_files_say_so_where_they_are_edited() -> None:
    async with browsing() as browser:
        page, own = await page_of(browser, trigger=BANGKOK)
        assert "made from the file" not in (await browser.get(f"{page}/edit")).text
        store = browser.rig.store
        await store.change_schedule(own, lambda each, now: mark_source(each, "jobs.yaml", "file"))
        assert "made from the file jobs.yaml: the next" in (await browser.get(f"{page}/edit")).text
        shown = (await browser.get(f"{page}/definition")).text
        assert "Made from the file jobs.yaml. Change the file" in shown
        await browser.rig.client.patch(f"/api/v1{page[3:]}", json={"priority": 3})
        shown = (await browser.get(f"{page}/definition")).text
        assert "Made from the file jobs.yaml and edited since" in shown
        # Only code can be attached again; a file is applied.
        assert "/attach" not in shown


def test_highlighting_keeps_the_text() -> None:
    for text in (
        "name: 'a: b'\nlist:\n- 1\n- true\n- null\n- ข\ndeep:\n  x: 2.5\n",
        '{\n  "name": "a\\"b",\n  "list": [1, false, null, -2e3]\n}',
        "",
        "key: 'no end",
        "x" * (MAX_HIGHLIGHTED + 1),
    ):
        assert "".join(piece for piece, _ in highlight(text)) == text
    kinds = dict(highlight('{"a": "b", "c": -1.5, "d": true}'))
    assert kinds['"a"'] == kinds['"c"'] == kinds['"d"'] == "name"
    assert (kinds['"b"'], kinds["-1.5"], kinds["true"]) == ("text", "number", "word")
    assert highlight("key: 'no end") == (("key: 'no end", ""),)


async def deliver_next(store: Store) -> None:
    """Claims and completes the first due delivery."""
    while True:
        since = store.changes()
        taken = await store.claim_deliveries([Channel.INBOX], limit=1, lease=MINUTE, overdue=HOUR)
        if taken:
            await store.finish_deliveries([a_delivery_completion(taken[0])])
            return
        await store.wait_for_work(since, NOW + HOUR)


# --- deliveries -------------------------------------------------------------------------------
async def test_deliveries_tab_and_test_notification() -> None:
    async with browsing() as browser:
        page, own = await page_of(
            browser,
            delivery=[
                {"channel": "inbox"},
                {
                    "channel": "webhook",
                    "to": "http://127.0.0.1:9/hook?token=hush",
                    "on": ["failure", "late"],
                    "quiet": {"from": "22:00", "to": "07:00", "zone": "Asia/Bangkok"},
                },
            ],
        )
        schedule = await browser.rig.store.get_schedule(own)
        assert schedule is not None
        dead = a_delivery(
            schedule_id=own,
            recipient=schedule.policy.delivery[1],
            state=DeliveryState.DEAD,
            finished_at=NOW,
            error="<i>HTTP 500</i>",
        )
        await browser.rig.store.load([dead])
        shown = (await browser.get(f"{page}/deliveries")).text
        text = text_of(shown)
        assert "hush" not in shown
        assert "<i>HTTP" not in shown
        assert "quiet hours 22:00–07:00 (Asia/Bangkok)" in text
        assert "on failure , if late" in text or "on failure, if late" in text
        assert "failed" in text
        done, _ = await gather(
            browser.send(f"{page}/deliveries/0/test"), deliver_next(browser.rig.store)
        )
        assert "Test notification delivered (inbox)." in (await browser.follow(done)).text
        deliveries = (await browser.rig.client.get("/api/v1/deliveries")).json()["items"]
        assert {(each["channel"], each["run_id"]) for each in deliveries} >= {("inbox", None)}
        csrf = re.findall(r'name="csrf" value="([^"]+)"', shown)[0]
        for place in ("2", "-1", "x", "9" * 30):
            answer = await browser.post(f"{page}/deliveries/{place}/test", {"csrf": csrf})
            assert answer.status_code == 404


async def test_other_owners_cannot_see_or_send_deliveries() -> None:
    async with browsing() as browser:
        page, _ = await page_of(browser, delivery=[{"channel": "inbox"}])
        made = await browser.rig.key(Role.MEMBER, Owner(type=OwnerType.USER, id="bob"))
        key = made["Authorization"].removeprefix("Bearer ")
        await browser.send("/ui/login", on="/ui/login", key=key)
        shown = (await browser.get("/ui/schedules")).text
        csrf = re.findall(r'name="csrf" value="([^"]+)"', shown)[0]
        for address in ("deliveries", "definition", "backfill", "log"):
            assert (await browser.get(f"{page}/{address}")).status_code == 404
        for address in ("deliveries/0/test", "attach", "backfill", "deliveries/x/retry"):
            answer = await browser.post(f"{page}/{address}", {"csrf": csrf, "sure": "yes"})
            assert answer.status_code == 404, address


def test_the_newest_delivery_per_recipient_is_shown() -> None:
    hook = Recipient(channel=Channel.WEBHOOK, to="https://u:p@example.com/x?key=s")
    inbox = Recipient(channel=Channel.INBOX)
    newer = a_delivery(recipient=replace(hook, language="th"))
    older = a_delivery(recipient=hook)
    found = destinations_of([hook, inbox], [newer, older])
    assert [each.last for each in found] == [newer, None]
    assert "s" not in found[0].to.partition("key=")[2]


# --- versions ---------------------------------------------------------------------------------
async def test_versions_are_compared_side_by_side_and_the_original_is_listed() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(name="report")
        path, page = f"/api/v1/schedules/{made['id']}", f"/ui/schedules/{made['id']}/definition"
        for changes in ({"name": "second"}, {"labels": {"team": "ops"}}):
            answer = await browser.rig.client.patch(path, json=changes)
            assert answer.status_code == 200, answer.text
        shown = (await browser.get(page)).text
        numbers = re.findall(r'name="left" value="(\d+)"', shown)
        assert len(numbers) == 3, "two changes and the creation"
        assert "Comparison" not in shown
        compared = (await browser.get(f"{page}?left={numbers[0]}&right={numbers[-1]}")).text
        table = compared.partition('class="card compare"')[2].partition("</table>")[0]
        # The older version is at the left, whatever was chosen first.
        assert "<del>name: report</del></td><td><ins>name: second</ins>" in table
        assert "<ins>  team: ops</ins>" in table
        for wrong in (f"left={numbers[0]}&right={numbers[0]}", "left=0&right=1", "left=x&right=y"):
            assert "Comparison" not in (await browser.get(f"{page}?{wrong}")).text
        # Restoring names the change of the next fire.
        cron = {"kind": "cron", "expression": "0 5 * * *", "timezone": "Asia/Bangkok"}
        await browser.rig.client.patch(path, json={"trigger": cron})
        await browser.get(page)
        dialog = await browser.send(f"/ui/schedules/{made['id']}/versions/{numbers[0]}/restore")
        assert "The next run moves from" in dialog.text


def test_the_definition_before_the_oldest_version_is_the_original() -> None:
    renamed = an_entry(number=7, verb="update", changes={"name": ["first", "second"]})
    created = an_entry(number=7, verb="create", changes={"name": [None, "second"]})
    schedule = a_schedule(name="second")
    assert with_version(schedule, versions_in([renamed]), ORIGINAL).name == "first"
    with pytest.raises(NotFound):
        with_version(schedule, versions_in([created]), ORIGINAL)


# --- expected slots ---------------------------------------------------------------------------
def a_result(at: datetime, origin: Origin = Origin.SCHEDULE) -> Result:
    return Result(
        run_id=RunId(f"r{at:%d%H%M}"), status=RunStatus.SUCCEEDED, origin=origin, created_at=at,
        planned_at=at, started_at=at, finished_at=at,
    )  # fmt: skip


def expected_in(
    schedule: Schedule,
    results: Sequence[Result] = (),
    hours: Sequence[StatusCounts] = (),
    *entries: AuditEntry,
    complete: bool = True,
) -> list[Fire]:
    periods = periods_of(schedule, entries, NOW - PAST, NOW)
    return expected_marks(schedule, periods, results, hours, NOW, complete=complete)


def hourly(since: datetime = NOW - 30 * 24 * HOUR) -> Schedule:
    return replace(a_schedule(trigger=Cron("0 * * * *", timezone="UTC")), created_at=since)


def test_missing_runs_are_marked_as_missed() -> None:
    ran = [a_result(NOW - n * HOUR) for n in range(1, 60) if n not in (5, 7)]
    ran[3:3] = [a_result(NOW - 7 * HOUR, Origin.MANUAL)]
    marks = expected_in(hourly(NOW - 24 * HOUR), ran)
    missing = [mark.at for mark in marks if mark.status is RunStatus.MISSED]
    assert missing == [NOW - 7 * HOUR, NOW - 5 * HOUR]
    assert len(marks) == 23
    assert NOW not in [mark.at for mark in marks], "it has just become due"


def test_expected_slots_start_with_the_schedule() -> None:
    ran = [a_result(NOW - n * HOUR) for n in range(1, 4)]
    assert len(expected_in(hourly(), ran, complete=False)) == 3
    purged = replace(hourly(), purged_until=NOW - 2 * HOUR)
    assert len(expected_in(purged, ran)) == 1
    assert expected_in(hourly(NOW), ran) == []
    # A run that was moved or has jitter belongs to the slot before it.
    late = [a_result(NOW - n * HOUR + 17 * MINUTE) for n in range(1, 4)]
    marks = expected_in(hourly(NOW - 3 * HOUR - MINUTE), late)
    assert [mark.status for mark in marks] == [None, None, None]


def test_expected_slots_follow_the_versions_of_the_schedule() -> None:
    """A rename or a pause does not hide the slots before it, nor the misses among them."""
    now_daily = replace(hourly(NOW - 12 * HOUR), trigger=Cron("0 5 * * *", timezone="UTC"))
    trigger = Cron("0 * * * *", timezone="UTC").to_dict()
    changes = [
        an_entry(at=NOW - HOUR, verb="update", changes={"name": ["a", "b"]}),
        an_entry(
            at=NOW - 2 * HOUR - MINUTE,
            verb="update",
            changes={"trigger": [trigger, now_daily.trigger.to_dict()]},
        ),
        an_entry(at=NOW - 5 * HOUR - MINUTE, verb="resume", changes={"enabled": [False, True]}),
        an_entry(at=NOW - 8 * HOUR - MINUTE, verb="pause", changes={"enabled": [True, False]}),
    ]
    marks = expected_in(now_daily, [a_result(NOW - 9 * HOUR)], (), *changes)
    hours_ago = [round((NOW - mark.at) / HOUR) for mark in marks]
    assert hours_ago == [11, 10, 9, 5, 4, 3], "hourly until the change, without the pause"
    assert [mark.status for mark in marks].count(RunStatus.MISSED) == 5
    paused = replace(hourly(NOW - 3 * HOUR - MINUTE), enabled=False)
    pause = an_entry(at=NOW - HOUR - MINUTE, verb="pause", changes={"enabled": [True, False]})
    assert len(expected_in(paused, (), (), pause)) == 2


def test_many_expected_slots_are_merged_by_hour() -> None:
    often = replace(
        a_schedule(trigger=Every("1s", anchor=NOW - 30 * 24 * HOUR)),
        created_at=NOW - 30 * 24 * HOUR,
    )
    start = NOW - 5 * 24 * HOUR
    hours = [
        StatusCounts(at=start + n * HOUR, statuses={RunStatus.SUCCEEDED: 3600} if n != 50 else {})
        for n in range(120)
    ]
    marks = expected_in(often, (), hours, complete=False)
    assert len(marks) == 120 < MAX_MARKS
    assert [mark.at for mark in marks if mark.status] == [start + 50 * HOUR]


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        ("Europe/Berlin", "Next in your time zone (Europe/Berlin): Wed 16 Jan 03:00 CET."),
        ("Asia/Bangkok", None),
        ("Asia/Jakarta", None),
    ],
)
def test_next_fire_in_the_viewers_zone(zone: str, words: str | None) -> None:
    schedule = plan_after(
        a_schedule(trigger=Cron("0 9 * * *", timezone="Asia/Bangkok")),
        datetime(2030, 1, 15, 9, tzinfo=UTC),
    )
    assert in_your_zone(schedule, DisplayPreferences(zone=zone), NOW) == words


def test_no_zone_line_without_a_next_fire() -> None:
    over = replace(a_schedule(trigger=Cron("0 9 * * *", timezone="Asia/Bangkok")), next_slot=None)
    assert in_your_zone(over, DisplayPreferences(zone="UTC"), NOW) is None
