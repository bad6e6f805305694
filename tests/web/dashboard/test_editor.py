"""Editor over ASGI: create, edit, merge, copy and trial run, without scripts."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType, Role, Scope
from chimes.model.ids import NodeId
from chimes.model.node import Node
from chimes.model.policy import Policy, RunDefaults
from chimes.model.run import RunStatus
from tests.builders import a_run, an_entry
from tests.web.dashboard.browsing import HOST, Browser, browsing
from tests.web.dashboard.form_helpers import fields_on, fill

NEW = "/ui/schedules/new"


async def only_schedule(browser: Browser) -> dict[str, Any]:
    items = (await browser.rig.client.get("/api/v1/schedules")).json()["items"]
    assert len(items) == 1
    found: dict[str, Any] = items[0]
    return found


def definition(found: dict[str, Any]) -> dict[str, Any]:
    """The schedule without fields that the server sets."""
    gone = {"version", "updated_at", "updated_by", "next_run_at", "next_slot", "words", "warnings"}
    return {name: value for name, value in found.items() if name not in gone}


@pytest.mark.parametrize(
    ("words", "expression", "zone"),
    [
        ("ทุกวันทำการ 9 โมง เรียก https://example.com/report", "0 9 * * 1-5", "Asia/Bangkok"),
        ("every Monday at 8am Tokyo time call https://example.com/r", "0 8 * * 1", "Asia/Tokyo"),
        ("每天早上9点 调用 https://example.com/r", "0 9 * * *", "Asia/Bangkok"),
    ],
)
async def test_a_description_fills_in_fields_marks_guesses_and_saves_nothing(
    words: str, expression: str, zone: str
) -> None:
    async with browsing() as browser:
        browser.client.cookies.set("chimes_look", "zone=Asia%2FBangkok")
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="read", words=words)
        assert (page.status_code, "Understood:" in page.text) == (200, True)
        fields = fields_on(page.text)
        # Shown as a calendar rule, with the cron expression.
        assert (fields["when"], fields["expression"], fields["zone"]) == ("days", expression, zone)
        assert fields["kind"] == "http"
        assert str(fields["url"]).startswith("https://example.com/r")
        guessed = set(re.findall(r'data-guess="(\w+)"', page.text))
        assert {"method", "name"} <= guessed
        assert "url" not in guessed, "the description contains the URL"
        assert ("zone" in guessed) == (zone == "Asia/Bangkok"), "an explicit zone is not a guess"
        assert (await browser.rig.client.get("/api/v1/schedules")).json()["items"] == []
        # It can be saved unchanged.
        done = await fill(browser, NEW)
        assert done.status_code == 303
        made = await only_schedule(browser)
        assert made["trigger"]["timezone"] == zone
        assert done.headers["location"] == f"/ui/schedules/{made['id']}"


async def test_an_unclear_description_gets_one_question_with_examples() -> None:
    async with browsing() as browser:
        page = await browser.get(f"{NEW}?words=every day call mum")
        assert "At what time?" in page.text
        (first, *_) = re.findall(r'value="words:([^"]+)"', page.text)
        assert first == "every day 09:00 call mum", "the example completes the given description"
        page = await fill(browser, NEW, do_=f"words:{first}")
        assert "Understood:" in page.text
        assert fields_on(page.text)["prompt"] == "call mum"
        assert 'id="question"' not in page.text


async def test_templates_fill_in_the_form_and_are_previewed() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        ids = re.findall(r'value="preset:(\w+)"', browser.page)
        assert len(ids) == 16
        for each in ("hourly", "morning_brief", "cleanup"):
            page = await fill(browser, NEW, do_=f"preset:{each}")
            assert page.text.count('<span class="when">') >= 5, each
        # The last template is a clean-up that notifies the inbox on failure.
        assert fields_on(page.text)["notify0_on"] == ["failure", "recovery"]
        assert (await browser.get(f"{NEW}?preset=no_such")).status_code == 404


async def test_errors_are_shown_at_their_field_with_an_example() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        page = await fill(browser, NEW, when="cron", expression="0 9 * *", url="ftp://x")
        assert page.status_code == 422
        assert (
            'id="f-expression" name="expression" aria-describedby="e-expression" aria-invalid'
            in (page.text)
        )
        assert "For example: 0 9 * * 1-5" in page.text
        # The last valid preview stays, greyed out.
        assert 'class="shown stale"' in page.text
        assert fields_on(page.text)["url"] == "ftp://x", "the input is kept"
        page = await fill(browser, NEW, expression="0 9 * * *")
        assert (page.status_code, 'href="#f-url"' in page.text) == (422, True)
        page = await fill(browser, NEW, url="https://example.com/x", timeout="soon")
        assert (
            'id="f-timeout" name="timeout" aria-describedby="e-timeout" aria-invalid' in page.text
        )
        page = await fill(browser, NEW, timeout="10s", kind="task", task="t", args="{nope")
        assert 'aria-describedby="e-args" aria-invalid' in page.text
        assert (await browser.rig.client.get("/api/v1/schedules")).json()["items"] == []


async def test_empty_fields_show_no_errors_before_saving() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="preview")
        assert (page.status_code, "aria-invalid" in page.text) == (200, False)


FULL: dict[str, Any] = {
    "name": "Everything",
    "trigger": {
        "kind": "cron",
        "expression": "30 2 * * *",
        "timezone": "America/New_York",
        "dst": "vixie",
        "start_at": "2030-02-01T00:00:00Z",
        "end_at": "2031-11-02T06:30:00Z",
        "max_runs": 500,
        "exclude": [
            {"holidays": "TH", "on_excluded": "next"},
            {"dates": ["2030-12-25", "2030-12-26"]},
            {"weekly": [{"days": ["MON", "TUE"], "from": "22:00", "to": "06:00"}]},
        ],
    },
    "target": {
        "kind": "http",
        "url": "https://example.com/a?b=c",
        "method": "PUT",
        "headers": {"X-Team": "billing", "Authorization": "Bearer secret"},
        "body": '{"run": "{{run_id}}"}\n',
        "expected_status": [200, 204],
        "signing_secrets": ["whsec_" + "A" * 32],
        "verify_tls": False,
    },
    "policy": {
        "misfire": "all",
        "misfire_grace": "PT2M",
        "catch_up_limit": 7,
        "overlap": "queue",
        "max_concurrent_runs": 3,
        "burst_allowed": True,
        "concurrency_key": "shared",
        "max_retries": 4,
        "retry_backoff": "PT7S",
        "backoff": "exponential",
        "backoff_cap": "PT30M",
        "timeout": "PT45S",
        "on_lost": "stop",
        "pause_on_gone": False,
    },
    "priority": 5,
    "labels": {"team": "a=b", "nightly": None},
    "enabled": False,
    "delivery": [
        {"channel": "inbox", "on": ["failure", "recovery"], "language": "th"},
        {
            "channel": "webhook",
            "to": "https://example.com/told",
            "signing_secrets": ["whsec_" + "B" * 32],
        },
    ],
}


async def test_saving_an_untouched_form_changes_nothing_and_one_field_changes_one() -> None:
    """Every field of the API survives, including secrets in the store."""
    async with browsing() as browser:
        other = await browser.rig.create(name="other")
        made = await browser.rig.create(
            **FULL, depends_on={"schedule_id": other["id"], "within": "PT3H"}
        )
        kept = await browser.rig.store.get_schedule(made["id"])
        edit = f"/ui/schedules/{made['id']}/edit"
        await browser.get(edit)
        done = await fill(browser, edit)
        assert done.status_code == 303
        assert await browser.rig.store.get_schedule(made["id"]) == kept, (
            "the version is unchanged too"
        )
        await browser.get(edit)
        page = await fill(browser, edit, do_="preview", name="Renamed", timeout="1m")
        assert re.findall(r"<dt>([^<]+)</dt>", page.text) == ["Name", "Timeout"]
        assert (await fill(browser, edit)).status_code == 303
        found = (await browser.rig.client.get(f"/api/v1/schedules/{made['id']}")).json()
        wanted = definition(made) | {"name": "Renamed"}
        wanted["policy"] = wanted["policy"] | {"timeout": "PT1M"}
        assert definition(found) == wanted
        after = await browser.rig.store.get_schedule(made["id"])
        assert kept is not None
        assert after is not None
        assert after.target == kept.target
        assert after.policy.delivery == kept.policy.delivery


@pytest.mark.parametrize(
    "given",
    [
        {"trigger": {"kind": "every", "every": "PT1H30M", "jitter": "PT5S"}},
        {"trigger": {"kind": "every", "every": "PT0.25S", "anchor": "2030-02-01T10:00:00.5Z"}},
        {"trigger": {"kind": "once", "at": "2031-11-02T06:30:00Z", "timezone": "America/New_York"}},
        {"trigger": {"kind": "once", "at": "2031-03-09T02:30:00", "timezone": "America/New_York"}},
        {"trigger": {"kind": "cron", "expression": "@every 90s"}},
        {"trigger": {"kind": "cron", "expression": "CRON_TZ=Asia/Tokyo 0 9 * * *"}},
        {"labels": ["a", "b"]},
        {"labels": {"odd": " = "}},
    ],
    ids=str,
)
async def test_another_notation_in_the_form_is_no_change(given: dict[str, Any]) -> None:
    async with browsing() as browser:
        browser.client.cookies.set("chimes_look", "zone=Asia%2FBangkok")
        made = await browser.rig.create(**given)
        edit = f"/ui/schedules/{made['id']}/edit"
        page = await browser.get(edit)
        assert page.status_code == 200
        assert (await fill(browser, edit, priority="3")).status_code == 303
        found = (await browser.rig.client.get(f"/api/v1/schedules/{made['id']}")).json()
        assert definition(found) == definition(made) | {"priority": 3}


async def test_the_form_covers_all_fields_of_the_api() -> None:
    """A copy of a full schedule has the same definition, with secrets taken from the source."""
    async with browsing() as browser:
        made = await browser.rig.create(**FULL)
        await browser.get(f"{NEW}?from={made['id']}")
        assert (await fill(browser, NEW, name="Everything")).status_code == 303
        items = (await browser.rig.client.get("/api/v1/schedules")).json()["items"]
        copy = next(each for each in items if each["id"] != made["id"])
        own = {"id", "created_at", "updated_at"}
        assert {name: value for name, value in definition(copy).items() if name not in own} == {
            name: value for name, value in definition(made).items() if name not in own
        }
        one, two = [await browser.rig.store.get_schedule(each["id"]) for each in (made, copy)]
        assert one is not None
        assert two is not None
        assert one.target == two.target
        assert one.policy == two.policy


async def test_the_preview_shows_how_the_next_fire_moves() -> None:
    async with browsing() as browser:
        made = await browser.rig.create()
        edit = f"/ui/schedules/{made['id']}/edit"
        await browser.get(edit)
        page = await fill(browser, edit, do_="preview", rule_time="10:30")
        (note,) = re.findall(r"The next run moves from [^<]+", page.text)
        assert "02:00 UTC" in note
        assert "03:30 UTC" in note
        assert "keep the old definition" in page.text
        assert (await fill(browser, edit)).status_code == 303
        found = await only_schedule(browser)
        assert found["next_run_at"].endswith("T03:30:00Z")


async def test_a_change_can_be_undone_and_so_can_a_new_schedule() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        done = await fill(browser, NEW, name="n", url="https://example.com/x")
        made = await only_schedule(browser)
        await browser.follow(done)
        assert "n saved. Next run:" in browser.page
        edit = f"/ui/schedules/{made['id']}/edit"
        await browser.get(edit)
        await browser.follow(await fill(browser, edit, name="m", method="PUT", every="3"))
        assert (await only_schedule(browser))["name"] == "m"
        await browser.follow(await browser.send(f"/ui/schedules/{made['id']}/unedit"))
        found = await only_schedule(browser)
        assert definition(found) == definition(made)
        await browser.get(NEW)
        await browser.follow(await fill(browser, NEW, name="gone", url="https://example.com/x"))
        (unmake,) = re.findall(r'action="(/ui/schedules/[^"]+/unmake)"', browser.page)
        assert (await browser.send(unmake)).status_code == 303
        assert (await only_schedule(browser))["name"] == "n"


async def test_concurrent_edits_merge_field_by_field() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(name="first", policy={"timeout": "PT10S"})
        address, edit = f"/api/v1/schedules/{made['id']}", f"/ui/schedules/{made['id']}/edit"
        await browser.get(edit)
        mine = browser.page
        other = {"name": "theirs", "policy": {"max_retries": 9}, "labels": {"by": "them"}}
        assert (await browser.rig.client.patch(address, json=other)).status_code == 200
        browser.page = mine
        page = await fill(browser, edit, name="mine", timeout="20s", priority="4")
        assert page.status_code == 409
        assert "Another user changed this schedule" in page.text
        assert re.findall(r'name="take\.([\w.]+)" value="theirs"', page.text) == ["name"]
        fields = fields_on(page.text)
        assert (fields["max_retries"], fields["timeout"], fields["labels"]) == (
            "9",
            "20s",
            "by=them",
        )
        assert (await browser.rig.client.get(address)).json()["name"] == "theirs", "nothing saved"
        page = await fill(browser, edit, take__name="theirs")
        assert page.status_code == 303
        found = (await browser.rig.client.get(address)).json()
        assert (found["name"], found["priority"], found["labels"]) == ("theirs", 4, {"by": "them"})
        assert (found["policy"]["timeout"], found["policy"]["max_retries"]) == ("PT20S", 9)


async def test_another_kind_of_target_is_merged_as_a_whole() -> None:
    async with browsing() as browser:
        made = await browser.rig.create()
        address, edit = f"/api/v1/schedules/{made['id']}", f"/ui/schedules/{made['id']}/edit"
        await browser.get(edit)
        mine = browser.page
        change = {"target": {"url": "https://example.com/theirs"}}
        assert (await browser.rig.client.patch(address, json=change)).status_code == 200
        browser.page = mine
        page = await fill(browser, edit, kind="sync", pair="shop/orders")
        assert re.findall(r'name="take\.([\w.]+)" value="theirs"', page.text) == ["target"]
        assert (await fill(browser, edit, take__target="theirs")).status_code == 303
        assert (await browser.rig.client.get(address)).json()["target"]["url"].endswith("theirs")


async def test_test_now_runs_once_without_saving() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="test", url="https://example.com/x", max_retries="3")
        assert page.status_code == 200
        (run,) = (await browser.rig.client.get("/api/v1/runs")).json()["items"]
        assert (run["schedule_id"], run["origin"], run["status"]) == (None, "manual", "queued")
        assert f'class="button quiet" href="/ui/runs/{run["id"]}"' in page.text
        # Without scripts, the user refreshes the page.
        assert 'name="do" value="look"' in page.text
        found = await browser.rig.store.get_run(run["id"])
        assert found is not None
        await browser.rig.context.runs.cancel(Actor(), found.id)
        again = await fill(browser, NEW, do_="look")
        assert re.search(r'class="trial">\s*<p><a [^>]+>.*canceled', again.text), "its result"
        assert 'value="look"' not in again.text
        assert fields_on(again.text)["url"] == "https://example.com/x", "nothing is lost"
        part = await browser.get(f"/ui/editor/trial/{run['id']}", **{"HX-Request": "true"})
        assert "canceled" in part.text
        assert (await browser.rig.client.get("/api/v1/schedules")).json()["items"] == []
        wrong = await browser.get(NEW) and await fill(browser, NEW, do_="test", url="nonsense")
        assert (wrong.status_code, 'aria-describedby="e-url" aria-invalid' in wrong.text) == (
            422,
            True,
        )


@pytest.mark.parametrize(
    ("anchor", "field"),
    [
        ("2030-01-15T08:00:00Z", "datetime-local"),
        # A datetime-local field would be empty and remove the anchor.
        ("2030-01-15T08:00:00.123456Z", "text"),
    ],
)
async def test_a_time_without_a_browser_field_is_text(anchor: str, field: str) -> None:
    async with browsing() as browser:
        trigger = {"kind": "every", "every": "1h", "anchor": anchor}
        made = await browser.rig.create(trigger=trigger)
        page = (await browser.get(f"/ui/schedules/{made['id']}/edit")).text
        found = re.search(r'<input id="f-anchor"[^>]*>', page)
        assert found
        assert f'type="{field}"' in found[0]


async def test_missing_configuration_is_shown_before_and_after_saving() -> None:
    async with browsing() as browser:
        node = Node(
            id=NodeId("n1"),
            version="1",
            roles=("worker",),
            capacity=1,
            started_at=browser.rig.clock.now(),
            heartbeat_at=browser.rig.clock.now(),
            lease_until=browser.rig.clock.now(),
            # Like every node: claims prompts, and reports that no pipeline is configured.
            capabilities=("agent", "http"),
        )
        await browser.rig.store.join(node, timedelta(minutes=5))
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="read", words="every day at 09:00 summarize the news")
        # The guessed target can be executed.
        assert "No agent is configured, so the text itself is sent as a message." in page.text
        assert fields_on(page.text)["kind"] == "message"
        page = await fill(browser, NEW, do_="preview", kind="agent")
        assert 'id="not-set-up">No agent is configured.' in page.text
        part = await browser.client.post(
            NEW,
            data=fields_on(page.text) | {"do": "preview"},
            headers={"Origin": HOST, "Sec-Fetch-Site": "same-origin", "HX-Request": "true"},
        )
        assert "No agent is configured." in part.text
        saved = await browser.follow(await fill(browser, NEW))
        assert "saved. No agent is configured." in saved.text
        await browser.rig.store.join(
            replace(node, defaults={"agent": RunDefaults(policy=Policy())}), timedelta(minutes=5)
        )
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="read", words="every day at 09:00 summarize the news")
        assert "No agent is configured" not in page.text
        again = (await browser.follow(await fill(browser, NEW))).text
        assert "saved. Next run:" in again
        # The first one had the same name.
        assert "Warning: the owner has another schedule of this name" in again


async def test_schedules_of_others_are_not_found_and_copies_leak_no_secrets() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(**FULL)
        ann = Owner(type=OwnerType.USER, id="ann")
        keys = {
            role: (await browser.rig.key(role, ann))["Authorization"].partition(" ")[2]
            for role in (Role.MEMBER, Role.OPERATOR)
        }
        browser.rig.clock.advance(timedelta(seconds=1))
        await browser.send("/ui/login", on="/ui/login", key=keys[Role.MEMBER])
        for path in (f"/ui/schedules/{made['id']}/edit", f"{NEW}?from={made['id']}"):
            answer = await browser.get(path)
            assert (answer.status_code, "Everything" in answer.text) == (404, False)
        assert made["id"] not in (await browser.get(NEW)).text
        await browser.client.post("/ui/logout")
        browser.client.cookies.clear()
        await browser.send("/ui/login", on="/ui/login", key=keys[Role.OPERATOR])
        assert (await browser.get(f"/ui/schedules/{made['id']}/edit")).status_code == 403
        browser.client.cookies.clear()
        # An operator sees everything, and creates only its own schedules.
        agent = await browser.rig.context.access.create(
            Actor(), name="a", role=Role.ADMIN, scopes=(Scope.AGENT, Scope.AGENT_SCHEDULES)
        )
        await browser.send("/ui/login", on="/ui/login", key=agent.text)
        seen = await browser.get(f"{NEW}?from={made['id']}")
        assert seen.status_code == 200
        fields = fields_on(seen.text)
        assert fields["source"] == ""
        hidden = [name for name, value in fields.items() if "***" in value]
        assert not hidden, "users without write permission copy no secret"
        assert (await browser.get(f"/ui/schedules/{made['id']}/edit")).status_code == 403


async def test_hostile_text_is_escaped() -> None:
    hostile = '"><script>alert(1)</script>'
    async with browsing() as browser:
        made = await browser.rig.create(name=hostile, labels={"x": hostile})
        page = await browser.get(f"/ui/schedules/{made['id']}/edit")
        assert hostile not in page.text
        page = await browser.get(f"{NEW}?words={hostile}")
        assert hostile not in page.text


async def test_a_preview_by_htmx_is_a_fragment() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        sent = fields_on(browser.page) | {"do": "preview", "when": "cron", "expression": "nope"}
        answer = await browser.client.post(
            NEW, data=sent, headers={"HX-Request": "true", "Origin": "http://localhost:7100"}
        )
        assert answer.status_code == 200
        assert "<html" not in answer.text
        assert 'data-for="expression"' in answer.text
        assert 'class="shown stale"' in answer.text


async def test_an_invalid_base_is_ignored() -> None:
    async with browsing() as browser:
        made = await browser.rig.create()
        edit = f"/ui/schedules/{made['id']}/edit"
        for base in ("", "[]", "{", json.dumps({"trigger": 3, "target": [], "policy": "x"})):
            await browser.get(edit)
            page = await fill(browser, edit, do_="preview", base=base)
            assert page.status_code == 200, base


async def test_several_errors_are_shown_and_zones_are_suggested() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="preview", when="cron", expression="x", zone="UTC+7")
        assert 'aria-describedby="e-expression" aria-invalid' in page.text
        assert "matches several time zones" in page.text
        assert 'value="zone:Asia/Bangkok"' in page.text
        page = await fill(browser, NEW, do_="zone:Asia/Bangkok", expression="0 9 * * *")
        assert fields_on(page.text)["zone"] == "Asia/Bangkok"
        assert "aria-invalid" not in page.text


async def test_zone_search_lists_the_viewers_zone_first() -> None:
    async with browsing() as browser:
        browser.client.cookies.set("chimes_look", "zone=Asia%2FBangkok&language=th")
        part = await browser.get("/ui/editor/zones?zone=utc%2B7", **{"HX-Request": "true"})
        names = re.findall(r'data-zone="([^"]+)"', part.text)
        assert names[0] == "Asia/Bangkok"
        assert "กรุงเทพ" in part.text
        own = await browser.get("/ui/editor/zones?zone=", **{"HX-Request": "true"})
        assert re.findall(r'data-zone="([^"]+)"', own.text) == ["Asia/Bangkok", "UTC"]


async def test_runs_longer_than_the_interval_are_reported() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(
            trigger={"kind": "every", "every": "PT5S"},
            target=FULL["target"],
            policy={"max_retries": 2},
        )
        schedule = await browser.rig.store.get_schedule(made["id"])
        assert schedule is not None
        begun = browser.rig.clock.now()
        run = a_run(
            schedule,
            status=RunStatus.SUCCEEDED,
            started_at=begun,
            finished_at=begun + timedelta(seconds=40),
        )
        await browser.rig.store.add_runs([run], an_entry())
        page = await browser.get(f"/ui/schedules/{made['id']}/edit")
        assert "Runs take about 40 s" in page.text
        assert "it is retried at" in page.text, "also with masked secrets"


async def test_an_unapplied_description_prevents_saving() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        page = await fill(browser, NEW, words="every day at 10:00", url="https://example.com/x")
        assert (page.status_code, "The description is not applied yet" in page.text) == (422, True)
        assert (await browser.rig.client.get("/api/v1/schedules")).json()["items"] == []
        # While typing, the preview shows the fields, which would be saved.
        sent = fields_on(page.text) | {"do": "preview"}
        part = await browser.client.post(
            NEW, data=sent, headers={"HX-Request": "true", "Origin": "http://localhost:7100"}
        )
        assert "Every weekday at 09:00" in part.text
        # Without scripts, Enter presses the first button, which applies the description.
        read = await fill(browser, NEW, do_="preview")
        assert fields_on(read.text)["expression"] == "0 10 * * *"
        assert (await fill(browser, NEW)).status_code == 303
        assert (await only_schedule(browser))["trigger"]["expression"] == "0 10 * * *"


async def test_a_conflict_during_saving_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with browsing() as browser:
        made = await browser.rig.create(name="first")
        address, edit = f"/api/v1/schedules/{made['id']}", f"/ui/schedules/{made['id']}/edit"
        service = browser.rig.context.schedules
        change = service.change

        async def overtaken(*given: Any, **more: Any) -> Any:
            monkeypatch.setattr(service, "change", change)
            answer = await browser.rig.client.patch(address, json={"priority": 7})
            assert answer.status_code == 200
            return await change(*given, **more)

        await browser.get(edit)
        monkeypatch.setattr(service, "change", overtaken)
        page = await fill(browser, edit, name="mine")
        assert "Another user changed this schedule" in page.text
        assert (await browser.rig.client.get(address)).json()["name"] == "first"
        assert (await fill(browser, edit)).status_code == 303
        found = (await browser.rig.client.get(address)).json()
        assert (found["name"], found["priority"]) == ("mine", 7)


async def test_named_secrets_are_accepted_and_shown_as_placeholders() -> None:
    async with browsing() as browser:
        await browser.rig.context.secrets.put(Actor(), "TOKEN", "the-5ecret-value")
        target = {
            "kind": "http",
            "url": "http://127.0.0.1:9/x?token={{secret.TOKEN}}",
            "headers": {"Authorization": "Bearer {{secret.TOKEN}}"},
        }
        made = await browser.rig.create(target=target)
        kept = await browser.rig.store.get_schedule(made["id"])
        edit = f"/ui/schedules/{made['id']}/edit"
        form = await browser.get(edit)
        preview = await fill(browser, edit, do_="preview", name="Renamed")
        details = await browser.get(f"/ui/schedules/{made['id']}/definition")
        for page in (form, preview, details):
            assert "?token={{secret.TOKEN}}" in page.text, page.url
            assert "Bearer {{secret.TOKEN}}" in page.text
            assert "5ecret" not in page.text
        await browser.get(edit)
        assert (await fill(browser, edit)).status_code == 303
        assert await browser.rig.store.get_schedule(made["id"]) == kept
        await browser.get(edit)
        refused = await fill(browser, edit, url="http://127.0.0.1:9/{{secret.OTHER}}")
        assert refused.status_code == 422
        assert "chimes secret set OTHER" in refused.text
