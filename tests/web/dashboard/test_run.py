"""Run page over ASGI: tabs, log and actions."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Actor, Owner, Role
from chimes.model.ids import NodeId, RunId
from chimes.model.notification import DeliveryState
from chimes.model.run import Attempt, AttemptEnd, Cause, LogEntry, Origin, Reason, Run, RunStatus
from chimes.model.target import AgentTarget, HttpTarget, TaskTarget
from chimes.store.port import RunLog
from chimes.web.dashboard.core.preferences import DisplayPreferences
from chimes.web.dashboard.run.views import (
    MAX_LINE,
    TABS,
    build_waterfall,
    curl_of,
    events_of,
    exchange_of,
    failure_of,
    line_out,
    log_texts,
    plain_line,
    timeline_spans,
    trace_of,
    usage_of,
)
from tests.builders import (
    FLOW,
    NOW,
    a_completion,
    a_delivery,
    a_node,
    a_run,
    a_schedule,
    an_entry,
    claim_request,
    log_lines,
    with_definition,
)
from tests.web.dashboard.browsing import Browser, browsing
from tests.web.dashboard.test_runs import HOSTILE, ended

SECOND = timedelta(seconds=1)
ADMIN = Actor(role=Role.ADMIN)
HTTP = HttpTarget(
    url="https://example.com/hook?a=b",
    headers={"Authorization": "Bearer hush-hush", "X-Plain": "it's"},
    body='{"a": 1}',
)


@asynccontextmanager
async def with_run(
    run: Run, *others: object, messages: tuple[str, ...] = ()
) -> AsyncIterator[Browser]:
    async with browsing() as browser:
        entries = [
            LogEntry(at=NOW + n * timedelta(milliseconds=1), message=text)
            for n, text in enumerate(messages)
        ]
        await logged(browser, run, entries)
        await browser.rig.store.load(list(others))  # type: ignore[arg-type]
        yield browser


async def logged(browser: Browser, run: Run, entries: list[LogEntry]) -> None:
    """Serves the run with these lines in its log."""
    numbered = [replace(entry, number=n) for n, entry in enumerate(entries, 1)]
    log = [RunLog(run_id=run.id, entries=tuple(numbered))] if numbered else []
    await browser.rig.store.load([run, *log])


def page_of(run: Run, tab: str = "") -> str:
    return f"/ui/runs/{run.id}" + (f"?tab={tab}" if tab else "")


@pytest.mark.parametrize("tab", TABS)
async def test_every_tab_escapes_hostile_text(tab: str) -> None:
    schedule = a_schedule(name=HOSTILE)
    run = ended(
        NOW,
        RunStatus.FAILED,
        schedule=schedule,
        error=HOSTILE,
        target=replace(HTTP, body=HOSTILE),
        result={"status": 500, "headers": {HOSTILE: HOSTILE}, "body": HOSTILE, "duration_ms": 3.5},
    )
    async with with_run(run, schedule) as browser:
        answer = await browser.get(page_of(run, tab))
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "hush-hush" not in answer.text
        # Copied text is unchanged.
        assert "\u202e" not in re.sub(r'data-copy="[^"]*"', "", answer.text)
        assert answer.text.count('aria-current="page"') == 2
        part = await browser.get(page_of(run, tab), **{"HX-Request": "true"})
        assert "<html" not in part.text


async def test_the_header_shows_all_facts_in_both_zones() -> None:
    schedule = a_schedule(trigger=a_schedule().trigger, name="report")
    before = [ended(NOW - n * timedelta(hours=1), schedule=schedule, took=4) for n in (1, 2, 3)]
    run = ended(NOW, schedule=schedule, took=8, slot=NOW)
    async with with_run(run, schedule, *before) as browser:
        page = (await browser.get(page_of(run))).text
        assert "usually 4 s" in page
        assert "node-7" in page
        assert f'href="/ui/schedules/{schedule.id}"' in page
        assert "attempt 1" in page
        assert f"{page_of(run)}/retry" in page
        assert f"{page_of(run)}/cancel" not in page
        assert "Copy as curl" in page
        head = await browser.get(f"{page_of(run)}?part=head", **{"HX-Request": "true"})
        assert "attempt 1" in head.text
        assert "log-plain" not in head.text


async def test_a_queued_run_is_live_and_can_be_canceled() -> None:
    run = a_run()
    async with with_run(run) as browser:
        page = (await browser.get(page_of(run))).text
        assert 'hx-trigger="runs.changed from:#live, load delay:1500ms, log-ended"' in page
        assert "No log lines yet." in page
        dialog = await browser.send(f"{page_of(run)}/cancel")
        assert "Cancel this run?" in dialog.text
        done = await browser.send(f"{page_of(run)}/cancel")
        after = await browser.follow(done)
        assert "Run canceled." in after.text
        again = await browser.post(f"{page_of(run)}/cancel", {})
        assert again.status_code == 403, "no token"


async def test_the_phone_bar_has_the_main_action() -> None:
    waits, done = a_run(), ended(NOW)
    async with with_run(waits, done) as browser:
        for run, does in ((waits, "cancel"), (done, "retry")):
            page = (await browser.get(page_of(run))).text
            assert '<body class="has-phone-action">' in page
            bar = await browser.get(f"{page_of(run)}?part=bar", **{"HX-Request": "true"})
            assert re.findall(r'action="([^"]+)"', bar.text) == [f"{page_of(run)}/{does}"]
            assert f'name="back" value="{page_of(run)}"' in bar.text
        made = await browser.rig.context.access.create(ADMIN, name="v", role=Role.VIEWER)
        browser.rig.clock.advance(SECOND)
        await browser.send("/ui/login", on="/ui/login", key=made.text)
        page = (await browser.get(page_of(done))).text
        assert "has-phone-action" not in page
        assert f'action="{page_of(done)}/retry"' not in page


async def test_a_retry_redirects_to_the_new_run_and_both_link_to_each_other() -> None:
    run = ended(NOW, RunStatus.FAILED, error="no")
    async with with_run(run) as browser:
        done = await browser.send(f"{page_of(run)}/retry", on=page_of(run))
        page = (await browser.follow(done)).text
        assert "Run queued." in page
        assert f'href="/ui/runs/{run.id}"' in page
        assert "by " in page
        new = done.headers["location"].rpartition("/")[2]
        assert "Retried as" in (await browser.get(page_of(run))).text
        assert new[:13] in browser.page


async def test_retry_with_changes_keeps_secrets_and_reports_errors() -> None:
    run = ended(NOW, RunStatus.FAILED, target=HTTP, error="no")
    async with with_run(run) as browser:
        form = (await browser.get(f"{page_of(run)}/again")).text
        assert "hush-hush" not in form
        assert "***" in form
        target = {
            "kind": "http",
            "url": "https://example.com/other",
            "headers": {"Authorization": "***"},
        }
        path = f"{page_of(run)}/again"
        for text, result in (
            ("{", "Invalid JSON"),
            ('{"kind": "http", "wrong": 1}', "wrong"),
            ('{"kind": "task"}', "requires name"),
            ('{"kind": "http", "url": "ftp://x"}', "url"),
            ("[" * 20_000, "Invalid JSON"),
        ):
            refused = await browser.send(path, on=path, name="x", target=text)
            assert refused.status_code == 422, text[:50]
            assert result in refused.text
            assert 'aria-invalid="true"' in refused.text
        done = await browser.send(path, on=path, name="other", target=json.dumps(target))
        assert done.status_code == 303
        new = await browser.rig.store.get_run(RunId(done.headers["location"].rpartition("/")[2]))
        assert new is not None
        assert isinstance(new.target, HttpTarget)
        assert new.target.url == "https://example.com/other"
        assert new.target.headers["Authorization"] == "Bearer hush-hush"
        assert new.schedule_id is None


async def test_a_run_of_another_owner_is_not_found() -> None:
    run = ended(NOW, RunStatus.FAILED, owner=Owner(id="bert"), target=HTTP)
    async with with_run(run) as browser:
        made = await browser.rig.context.access.create(
            ADMIN, name="a", role=Role.MEMBER, owner=Owner(id="anna")
        )
        browser.rig.clock.advance(SECOND)
        await browser.send("/ui/login", on="/ui/login", key=made.text)
        for path in ("", "/log.json", "/log.txt", "/log/stream", "/again"):
            answer = await browser.get(f"{page_of(run)}{path}")
            assert answer.status_code == 404, path
        page = (await browser.get("/ui/runs")).text
        csrf = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
        for path in ("/retry", "/cancel", "/again", "/known", "/unknown"):
            answer = await browser.post(f"{page_of(run)}{path}", {"csrf": csrf, "sure": "yes"})
            assert answer.status_code == 404, path


async def test_an_operator_cannot_reuse_secrets_of_a_run() -> None:
    run = ended(NOW, RunStatus.FAILED, owner=Owner(id="bert"), target=HTTP)
    async with with_run(run) as browser:
        made = await browser.rig.context.access.create(
            ADMIN, name="o", role=Role.OPERATOR, owner=Owner(id="olga")
        )
        browser.rig.clock.advance(SECOND)
        await browser.send("/ui/login", on="/ui/login", key=made.text)
        page = (await browser.get(page_of(run))).text
        assert f"{page_of(run)}/retry" in page
        assert f"{page_of(run)}/again" not in page
        refused = await browser.send(
            f"{page_of(run)}/again",
            on=f"{page_of(run)}/again",
            target='{"url": "https://evil.example"}',
        )
        assert refused.status_code == 403


# --- known failures ---------------------------------------------------------------------------
async def test_a_failure_is_marked_as_known_and_unmarked() -> None:
    schedule = a_schedule(last_error="HTTP 500", last_status=RunStatus.FAILED, owner=SYSTEM_OWNER)
    run = ended(NOW, RunStatus.FAILED, schedule=schedule, error="HTTP 500", owner=SYSTEM_OWNER)
    earlier = ended(
        NOW - timedelta(hours=1),
        RunStatus.FAILED,
        schedule=schedule,
        error="HTTP 500",
        owner=SYSTEM_OWNER,
    )
    other = ended(NOW, RunStatus.FAILED, schedule=schedule, error="dns", owner=SYSTEM_OWNER)
    async with with_run(run, schedule, earlier, other) as browser:
        await browser.rig.store.join(a_node(), timedelta(days=1))
        assert "1 needs attention" in (await browser.get("/ui/")).text
        dialog = await browser.send(f"{page_of(run)}/known", on=page_of(run))
        assert "until it fails differently or succeeds" in dialog.text
        done = await browser.send(f"{page_of(run)}/known", reason="told <them>")
        page = (await browser.follow(done)).text
        assert "Marked as known by" in page
        assert "“told &lt;them&gt;”" in page
        today = (await browser.get("/ui/")).text
        assert "1 needs attention" not in today
        assert "1 is snoozed or known." in today
        # The same error in another run is known too, another error is not.
        assert "Marked as known by" in (await browser.get(page_of(earlier))).text
        assert "Marked as known by" not in (await browser.get(page_of(other))).text
        events = (await browser.get(page_of(run, "events"))).text
        assert "Marked as known by" in events
        await browser.send(f"{page_of(run)}/unknown", on=page_of(run))
        assert "1 needs attention" in (await browser.get("/ui/")).text


async def test_a_skipped_run_shows_the_reason_and_the_blocking_run() -> None:
    run = ended(
        NOW, RunStatus.SKIPPED, reason=Reason.OVERLAP, result={"in_the_way": "r7"}, attempts=()
    )
    async with with_run(run) as browser:
        page = (await browser.get(page_of(run))).text
        assert "the previous run was still running" in page
        assert '<a href="/ui/runs/r7">Open run</a>' in page


async def test_a_run_of_an_event_shows_its_cause() -> None:
    cause = Cause(
        kind="webhook",
        source=HOSTILE,
        delivery_id="d-<1>",
        at=NOW,
        payload='{"password": "hush-hush"}',
        events=3,
    )
    run = with_definition(ended(NOW), cause=cause)
    run = replace(run, origin=Origin.EVENT)
    async with with_run(run) as browser:
        page = (await browser.get(page_of(run))).text
        (shown,) = re.findall(r"<dt>Cause</dt><dd><bdi>(.*?)</bdi></dd>", page)
        assert shown.startswith("Started by a webhook: ")
        assert "delivery d-&lt;1&gt;. It stands for 3 events." in shown
        assert HOSTILE not in page
        assert "hush-hush" not in page
        assert re.search(r"<dt>Origin</dt><dd>\s*event\s*</dd>", page)
        events = (await browser.get(page_of(run, "events"))).text
        assert "Created by an event." in events


async def test_a_successful_run_cannot_be_marked_as_known() -> None:
    schedule = a_schedule(owner=SYSTEM_OWNER)
    run = ended(NOW, schedule=schedule, owner=SYSTEM_OWNER)
    async with with_run(run, schedule) as browser:
        page = (await browser.get(page_of(run))).text
        assert f"{page_of(run)}/known" not in page
        csrf = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
        refused = await browser.post(f"{page_of(run)}/known", {"csrf": csrf, "sure": "yes"})
        assert refused.status_code == 409


# --- values, events, trace --------------------------------------------------------------------
async def test_values_are_shown_as_a_tree_without_scripts() -> None:
    result = {"rows": [1, {"name": HOSTILE}], "long": "x" * 5000, "none": None}
    run = ended(NOW, target=TaskTarget(name="t", args={"api_key": "hush-hush"}), result=result)
    async with with_run(run) as browser:
        page = (await browser.get(page_of(run, "data"))).text
        assert page.count('class="json-tree') == 2
        assert '<summary><bdi class="j-name">rows</bdi>: ' in page
        assert "2 items" in page
        assert "… 5,000 characters in total" in page
        assert "<script>alert" not in page
        assert "hush-hush" not in page
        assert 'id="output-json"' in page


# Secrets are masked in results as in arguments; the API returns them.
async def test_secrets_in_results_are_masked_everywhere() -> None:
    # Long enough not to be part of a random value of the page.
    secrets = [{"password": "hunter2"}, {"token": 47110471104711}]
    result = {"value": secrets, "usage": {"total_tokens": 31}}
    run = ended(NOW, target=TaskTarget(name="t"), result=result)
    async with with_run(run) as browser:
        for path in (
            page_of(run, "data"),
            page_of(run, "raw"),
            f"/ui/editor/trial/{run.id}",
            "/ui/runs/export.ndjson",
        ):
            answer = await browser.get(path)
            assert answer.status_code == 200
            assert "hunter2" not in answer.text, path
            assert "47110471104711" not in answer.text, path
            assert "31" in answer.text, path
            assert "***" in answer.text, path
        assert "masked here" in (await browser.get(page_of(run, "raw"))).text
        kept = (await browser.rig.client.get(f"/api/v1/runs/{run.id}")).json()
        assert kept["result"] == result


def test_events_are_in_chronological_order() -> None:
    attempts = tuple(
        Attempt(
            number=n, fence=n, node=NodeId("a"), started_at=NOW + n * SECOND,
            finished_at=NOW + (n + 0.5) * SECOND, end=end, error=error,
        )
        for n, end, error in ((1, AttemptEnd.FAILED, "boom"), (2, AttemptEnd.SUCCEEDED, ""))
    )  # fmt: skip
    run = replace(ended(NOW), attempts=attempts, finished_at=NOW + 3 * SECOND, attempt=2)
    result = a_delivery(created_at=NOW + 3 * SECOND, finished_at=NOW + 4 * SECOND,
                      state=DeliveryState.DEAD, error="gone")  # fmt: skip
    entries = [
        an_entry(verb=verb, actor="anna", at=NOW + at * SECOND, reason="")
        for at, verb in enumerate(("cancel", "retry", "start", "mark_known", "other"), 5)
    ]
    refused = replace(entries[0], allowed=False)
    found = events_of(run, [result], [*reversed(entries), refused])
    assert [each.what for each in found] == [
        "Created by the schedule.",
        "Attempt 1 started on a.",
        "Attempt 1 did not succeed.",
        "Attempt 2 started on a.",
        "Attempt 2 succeeded.",
        "Succeeded.",
        "Notification created: inbox.",
        "Notification failed: inbox.",
        "Cancellation requested by anna.",
        "Retried by anna.",
        "Requested by anna.",
        "Marked as known by anna.",
        "anna: other",
    ]
    assert [each.remark for each in found if each.bad] == ["boom", "gone"]
    waiting = replace(run, status=RunStatus.RUNNING, finished_at=None, attempts=(),
                      claimed_at=NOW, holder=NodeId("b"))  # fmt: skip
    assert [each.what for each in events_of(waiting, [], [])][-1] == "Attempt 2 started on b."


def test_an_error_has_a_type_a_message_and_a_stack() -> None:
    lines = [("info", "working"), ("error", "Traceback (most recent call last):\n old"),
             ("info", "again"), ("error", f"Traceback (most recent call last):\n {HOSTILE}"),
             ("error", "ValueError: no"), ("info", "after")]  # fmt: skip
    log = [LogEntry(at=NOW, level=level, message=text) for level, text in lines]
    run = ended(NOW, RunStatus.FAILED, target=TaskTarget(name="t"), error="ValueError: a: b\nc")
    found = failure_of(run, log)
    assert (found.type, found.message) == ("ValueError", "a: b\nc")
    shown = HOSTILE.replace("\u202e", "⟨U+202E⟩")
    assert found.traceback == f"Traceback (most recent call last):\n {shown}\nValueError: no"
    plain = failure_of(with_definition(replace(run, error="HTTP 500: gone"), target=HTTP), log[:1])
    assert (plain.type, plain.message, plain.traceback) == ("", "HTTP 500: gone", "")


async def test_the_traceback_is_found_in_a_long_log() -> None:
    run = ended(NOW, RunStatus.FAILED, target=TaskTarget(name="t"), error="ValueError: no")
    entries = [LogEntry(at=NOW, message=f"line {n}") for n in range(500)]
    trace = 'Traceback (most recent call last):\n  File "x.py", line 3\nValueError: no'
    entries.append(LogEntry(at=NOW, level="error", message=trace))
    async with with_run(run) as browser:
        await logged(browser, run, entries)
        page = (await browser.get(page_of(run, "error"))).text
        assert '<b class="mono">ValueError</b>' in page
        assert "File &#34;x.py&#34;, line 3" in page
        assert "line 499" not in page


async def test_the_traceback_of_a_flow_is_that_of_the_failed_step() -> None:
    flow = ended(NOW, RunStatus.FAILED, target=FLOW, error="step 'two[1]' failed: ValueError: no")
    steps = [
        ended(NOW, status, target=TaskTarget(name="t"), parent_id=flow.id, step=step,
              origin=Origin.CHILD, error="" if status is RunStatus.SUCCEEDED else "ValueError: no")
        for step, status in (("one", RunStatus.SUCCEEDED), ("two[0]", RunStatus.FAILED),
                             ("two[1]", RunStatus.FAILED))
    ]  # fmt: skip
    async with with_run(flow) as browser:
        for run in steps:
            trace = f"Traceback (most recent call last):\n  in {run.step}"
            await logged(browser, run, [LogEntry(at=NOW, level="error", message=trace)])
        page = (await browser.get(page_of(flow, "error"))).text
        assert "  in two[1]" in page
        assert "  in two[0]" not in page
        assert f'href="/ui/runs/{steps[2].id}"' in page


async def test_the_traceback_is_shown_between_attempts() -> None:
    first = an_attempt(1, 0, 1, AttemptEnd.FAILED)
    run = replace(ended(NOW, target=TaskTarget(name="t"), error="ValueError: no"),
                  status=RunStatus.QUEUED, finished_at=None, attempts=(first,))  # fmt: skip
    entry = LogEntry(at=NOW, level="error", message="Traceback (most recent call last):\n  in x.py")
    async with with_run(run) as browser:
        await logged(browser, run, [entry])
        assert "  in x.py" in (await browser.get(page_of(run, "error"))).text


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"TraceResponse": f"00-{'a' * 32}-{'b' * 16}-01"}, "a" * 32),
        ({"traceparent": f"00-{'0' * 32}-{'b' * 16}-01"}, ""),
        ({"traceparent": "nonsense"}, ""),
        ({}, "c" * 32),
    ],
)
def test_the_trace_id_of_a_call(headers: dict[str, str], shown: str) -> None:
    sent = {"traceparent": f"00-{'c' * 32}-{'d' * 16}-00"} if not headers else {}
    target = replace(HTTP, headers=sent)
    assert trace_of(ended(NOW, target=target, result={"headers": headers})) == shown
    assert trace_of(ended(NOW, target=TaskTarget(name="t"))) == ""


# --- failure comparison ------------------------------------------------------------------------
async def test_a_failure_is_compared_with_the_last_successful_run() -> None:
    schedule = a_schedule()
    good = ended(NOW - timedelta(hours=5), schedule=schedule)
    first = ended(NOW - timedelta(hours=3), RunStatus.FAILED, schedule=schedule, error="500")
    other = ended(NOW - timedelta(hours=2), RunStatus.FAILED, schedule=schedule, error="dns")
    run = ended(NOW, RunStatus.FAILED, schedule=schedule, error="500")
    edit = an_entry(
        at=NOW - timedelta(hours=4),
        verb="update",
        object_kind="schedule",
        object_id=schedule.id,
        actor="mallory",
        changes={"target": [{"url": "https://old.example"}, {"url": "https://new.example"}]},
        reason="moved",
        owner=str(schedule.owner),
    )
    early = replace(edit, at=NOW - timedelta(hours=9), actor="early-bird")
    async with with_run(run, schedule, good, first, other) as browser:
        for each in (early, edit):
            await browser.rig.store.append_audit(each)
        page = (await browser.get(page_of(run, "error"))).text
        assert f'href="/ui/runs/{good.id}"' in page
        assert f'href="/ui/runs/{first.id}"' in page
        assert "2 runs with this error since then" in page
        assert "mallory" in page
        assert "https://new.example" in page
        assert "early-bird" not in page
        link = re.findall(r'href="(/ui/runs\?q=[^"]+same:[^"]+)"', page)[0]
        assert first.id in (await browser.get(link)).text
        fine = (await browser.get(page_of(good, "error"))).text
        assert "No error." in fine


async def test_a_failed_delivery_can_be_retried() -> None:
    run = ended(NOW)
    dead = a_delivery(run_id=run.id, state=DeliveryState.DEAD, finished_at=NOW, error="gone")
    async with with_run(run, dead) as browser:
        path = f"{page_of(run)}/deliveries/{dead.id}/retry"
        done = await browser.send(path, on=page_of(run, "deliveries"))
        assert done.status_code == 303
        assert "</span>pending</span>" in (await browser.follow(done)).text


# --- log --------------------------------------------------------------------------------------
async def test_the_log_can_be_read_page_by_page_without_scripts() -> None:
    messages = tuple(f"line {n}" for n in range(1, 251))
    run = a_run()
    async with with_run(run, messages=messages) as browser:
        page = (await browser.get(page_of(run))).text
        assert '<li id="L200"' in page
        assert '<li id="L201"' not in page
        (link,) = re.findall(r'rel="next" href="([^"]+)"', page)
        rest = (await browser.get(link.replace("&amp;", "&"))).text
        assert re.findall(r'<li id="L(\d+)"', rest) == [str(n) for n in range(201, 251)]


async def test_the_script_loads_many_lines_and_long_ones_are_truncated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = a_run()
    async with with_run(run, messages=("x" * 1_048_576, HOSTILE, "end")) as browser:
        found = (await browser.get(f"{page_of(run)}/log.json")).json()
        assert found["next"] is None
        assert found["ended"] is False
        assert [line[0] for line in found["lines"]] == [1, 2, 3]
        assert found["lines"][0][4] == 1_048_576
        assert len(found["lines"][0][3]) == MAX_LINE
        assert found["lines"][1][2:] == ["info", HOSTILE]
        monkeypatch.setattr("chimes.web.dashboard.run.routes._CHARACTERS", 10)
        first = (await browser.get(f"{page_of(run)}/log.json")).json()
        assert (len(first["lines"]), first["next"]) == (1, 1)
        monkeypatch.undo()
        monkeypatch.setattr("chimes.web.dashboard.run.routes._LINES", 2)
        second = (await browser.get(f"{page_of(run)}/log.json?after=1")).json()
        assert (len(second["lines"]), second["next"]) == (2, 3)
        assert (await browser.get(f"{page_of(run)}/log.json?after=x")).status_code == 422
        page = (await browser.get(page_of(run))).text
        assert len(page) < 200_000
        whole = await browser.get(f"{page_of(run)}/log.txt")
        assert "attachment" in whole.headers["content-disposition"]
        assert whole.headers["content-type"].startswith("text/plain")
        assert len(whole.text.splitlines()) == 3
        assert "x" * 1_048_576 in whole.text


async def test_the_log_is_followed_with_a_session_until_the_run_ends() -> None:
    async with browsing() as browser:
        store = browser.rig.store
        await store.join(a_node(), timedelta(minutes=1))
        await store.add_runs([a_run()])
        (run,) = await store.claim(claim_request())
        await store.append_logs(run.id, run.fence, log_lines("one", "two"))

        async def stream_log() -> str:
            return (await browser.client.get(f"{page_of(run)}/log/stream?after=1")).text

        following = asyncio.create_task(stream_log())
        await asyncio.sleep(0)
        await store.append_logs(run.id, run.fence, log_lines("three"))
        await store.finish([a_completion(run, NOW)])
        async with asyncio.timeout(60):
            text = await following
        assert '"message": "two"' in text
        assert '"message": "three"' in text
        assert '"message": "one"' not in text
        assert "event: end" in text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;https://evil.example\x07link\x1b]8;;\x07", "link"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("a\u202eb\u2066c", "a⟨U+202E⟩b⟨U+2066⟩c"),
        ("bell\x07 tab\t", "bell⟨U+0007⟩ tab\t"),
        ("\x1b", "⟨U+001B⟩"),
    ],
)
def test_log_lines_are_sanitized(given: str, shown: str) -> None:
    assert plain_line(given) == shown


def test_a_truncated_line_reports_its_length() -> None:
    long = LogEntry(at=NOW, message="x" * (MAX_LINE + 1), number=7)
    assert line_out(long)[4] == MAX_LINE + 1
    assert len(plain_line(long.message)) == MAX_LINE + 1
    assert len(line_out(replace(long, message="x"))) == 4


@pytest.mark.parametrize("language", ["en", "th", "zh"])
def test_the_script_has_all_texts(language: str) -> None:
    words = log_texts(language)
    assert "{count}" in words["new_many"]
    assert "1" in words["new_one"]


# --- waterfall --------------------------------------------------------------------------------
def an_attempt(number: int, start: int, end: int, how: AttemptEnd) -> Attempt:
    return Attempt(
        number=number,
        fence=number,
        node=NodeId("n"),
        started_at=NOW + start * SECOND,
        finished_at=NOW + end * SECOND,
        end=how,
    )


def names_of(run: Run, *children: Run, **given: Any) -> list[tuple[str, float]]:
    found = timeline_spans(run, children, given.get("deliveries", ()), NOW + 60 * SECOND, "en")
    return [(each.name, (each.end - each.start) / SECOND) for each in found]


def test_the_waterfall_has_queue_time_attempts_backoff_and_deliveries() -> None:
    run = ended(
        NOW,
        attempts=(
            an_attempt(1, 2, 5, AttemptEnd.FAILED),
            an_attempt(2, 15, 16, AttemptEnd.SUCCEEDED),
        ),
    )
    result = a_delivery(created_at=NOW + 16 * SECOND, finished_at=NOW + 17 * SECOND)
    channel = result.recipient.channel.value
    assert names_of(run, deliveries=(result,)) == [
        ("queued", 2),
        ("attempt 1", 3),
        ("backoff", 10),
        ("attempt 2", 1),
        (f"notified: {channel}", 1),
    ]


def test_the_waterfall_of_an_active_run_ends_now() -> None:
    assert names_of(a_run()) == [("queued", 60)]
    held = a_run(status=RunStatus.RUNNING, attempt=1, claimed_at=NOW + SECOND, started_at=NOW)
    assert names_of(held) == [("queued", 1), ("attempt 1", 59)]
    waits = a_run(attempt=1, attempts=(an_attempt(1, 1, 2, AttemptEnd.LOST),))
    assert names_of(waits) == [("queued", 1), ("attempt 1", 1), ("backoff", 58)]


def test_steps_of_a_flow_are_nested_and_link_to_their_runs() -> None:
    flow = ended(NOW, target=FLOW, took=9)
    step = ended(NOW + SECOND, origin=Origin.CHILD, parent_id=flow.id, step=HOSTILE, took=3)
    skipped = a_run(status=RunStatus.SKIPPED, origin=Origin.CHILD, parent_id=flow.id, step="b")
    found = timeline_spans(flow, [step, skipped], (), NOW, "en")
    assert [(each.depth, each.name) for each in found[2:]] == [(1, HOSTILE), (1, "b")]
    chart = build_waterfall(found, DisplayPreferences(zone="Asia/Tokyo"), None, NOW)
    assert f"/ui/runs/{step.id}" in chart.svg
    assert "<script" not in chart.svg + chart.table


def test_the_http_request_and_response() -> None:
    run = ended(NOW, target=HTTP, result={"status": 204, "duration_ms": 12, "truncated": True})
    found = exchange_of(run)
    assert found is not None
    assert found.headers["Authorization"] == "***"
    assert (found.status, found.duration, found.truncated) == (
        204,
        timedelta(milliseconds=12),
        True,
    )
    odd = exchange_of(ended(NOW, target=HTTP, result={"status": "x", "headers": 3}))
    assert odd is not None
    assert (odd.status, dict(odd.response_headers)) == (None, {})
    assert exchange_of(a_run(target=TaskTarget(name="t"))) is None


def test_tokens_and_cost_of_an_answer() -> None:
    used = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    run = ended(
        NOW, target=AgentTarget(prompt="p"), result={"usage": used, "cost": 0.02, "model": "m"}
    )
    found = usage_of(run)
    assert found is not None
    assert (found.total_tokens, found.cost, found.model) == (7, 0.02, "m")
    assert usage_of(ended(NOW, target=AgentTarget(prompt="p"), result={"usage": "?"})) is None


def test_curl_is_quoted_and_without_secrets() -> None:
    text = curl_of(ended(NOW, target=HTTP), "http://here")
    assert "hush-hush" not in text
    assert "'X-Plain: it'\"'\"'s'" in text
    assert "'https://example.com/hook?a=b'" in text
    task = curl_of(a_run(target=TaskTarget(name="$(rm -rf /)")), "http://here")
    assert '-H "Authorization: Bearer $CHIMES_API_KEY"' in task
    assert '\'{"name"' in task
