"""Choices of the editor over ASGI: zones, described recipients, tasks, calendars."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest

from chimes.model.access import Actor
from chimes.model.policy import Policy, RunDefaults
from chimes.telegram.links import Links
from tests.builders import a_node
from tests.web.dashboard.browsing import Browser, browsing
from tests.web.dashboard.form_helpers import fields_on, fill

NEW = "/ui/schedules/new"
THAI = "ทุกวันทำการ 9 โมง ส่งสรุปยอดขายเข้าเทเลแกรม"
HTMX = {"HX-Request": "true", "Origin": "http://localhost:7100"}


async def only_schedule(browser: Browser) -> dict[str, Any]:
    (found,) = (await browser.rig.client.get("/api/v1/schedules")).json()["items"]
    whole: dict[str, Any] = found
    return whole


async def test_a_description_names_a_recipient_and_an_unknown_chat_is_requested() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="read", words=THAI)
        fields = fields_on(page.text)
        assert (fields["notify0_channel"], fields["notify0_to"]) == ("telegram", "")
        assert {"notify0_channel", "notify0_to"} <= set(
            re.findall(r'data-guess="(\w+)"', page.text)
        )
        assert "Notifications:" in page.text
        refused = await fill(browser, NEW)
        assert refused.status_code == 422
        assert 'aria-describedby="e-notify0_to" aria-invalid' in refused.text
        assert 'href="#f-notify0_to"' in refused.text
        done = await fill(browser, NEW, notify0_channel="inbox", notify0_on=["failure"])
        assert done.status_code == 303
        (result,) = (await only_schedule(browser))["delivery"]
        assert (result["channel"], result["to"], result["on"]) == ("inbox", "", ["failure"])


async def test_the_linked_chat_is_the_recipient() -> None:
    async with browsing() as browser:
        links, user = Links(browser.rig.store), Actor()
        code = await links.new_code(user)
        await links.use_code(code.text, "4711", "7")
        await links.confirm(user, "4711")
        page = await browser.get(f"{NEW}?words={THAI}")
        assert fields_on(page.text)["notify0_to"] == "4711"


async def test_est_is_ambiguous_and_the_choice_is_kept() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="preview", zone="EST", url="https://example.com/x")
        assert "(with daylight saving time) or UTC-5 all year?" in page.text
        assert re.findall(r'value="zone:([^"]+)"', page.text) == ["America/New_York", "EST"]
        page = await fill(browser, NEW, do_="zone:EST")
        assert fields_on(page.text)["zone"] == "EST"
        assert "aria-invalid" not in page.text
        assert (await fill(browser, NEW)).status_code == 303
        made = await only_schedule(browser)
        assert made["timezone"] == "EST"
        # An edit does not ask again.
        edit = await browser.get(f"/ui/schedules/{made['id']}/edit")
        assert (fields_on(edit.text)["zone"], "aria-invalid" in edit.text) == ("EST", False)


async def test_recent_zones_come_first_and_have_clocks() -> None:
    async with browsing() as browser:
        browser.client.cookies.set("chimes_look", "zone=Asia%2FBangkok")
        await browser.rig.create(
            trigger={"kind": "cron", "expression": "0 9 * * *", "timezone": "Europe/Paris"}
        )
        part = await browser.get("/ui/editor/zones?zone=", **HTMX)
        assert re.findall(r'data-zone="([^"]+)"', part.text) == [
            *("Asia/Bangkok", "Europe/Paris", "UTC"),
        ]
        assert "recently used" in part.text
        page = await browser.get(NEW)
        assert re.findall(r'data-clock="([^"]+)"', page.text) == [
            *("Asia/Bangkok", "Europe/Paris", "UTC"),
        ]


async def test_a_task_gets_fields_by_the_types_of_its_arguments() -> None:
    schema = {
        "type": "object",
        "description": "Cleans <b>up</b>.",
        "properties": {
            "days": {"type": "integer", "default": 7},
            "mode": {"type": "string", "enum": ["soft", "hard"]},
            "dry": {"type": "boolean"},
        },
        "required": ["mode"],
    }
    result = {"task:clean": RunDefaults(policy=Policy(), arguments=schema)}
    async with browsing() as browser:
        node = a_node("with-tasks", capabilities=("task:clean",), defaults=result)
        await browser.rig.store.join(node, timedelta(minutes=1))
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="preview", kind="task", task="clean")
        assert re.findall(r'name="(arg_\w+)"', page.text) == [
            *("arg_i_days", "arg_s_mode", "arg_b_dry"),
        ]
        assert "Cleans &lt;b&gt;up&lt;/b&gt;." in page.text
        missing = await fill(browser, NEW, arg_i_days="3")
        assert missing.status_code == 422
        assert 'aria-describedby="e-arg_s_mode" aria-invalid' in missing.text
        wrong = await fill(browser, NEW, arg_i_days="many", arg_s_mode="hard")
        assert wrong.status_code == 422
        assert 'aria-describedby="e-arg_i_days" aria-invalid' in wrong.text
        done = await fill(browser, NEW, arg_i_days="3", arg_b_dry="yes", args='{"more": [1]}')
        assert done.status_code == 303, done.text
        made = await only_schedule(browser)
        assert made["target"] == {
            "kind": "task",
            "name": "clean",
            "args": {"days": 3, "mode": "hard", "dry": True, "more": [1]},
        }
        # Opening and saving the form changes nothing.
        edit = f"/ui/schedules/{made['id']}/edit"
        fields = fields_on((await browser.get(edit)).text)
        assert (fields["arg_i_days"], fields["arg_b_dry"]) == ("3", "yes")
        assert '"more"' in str(fields["args"])
        assert "No changes yet." in (await fill(browser, edit, do_="preview")).text
        page = await fill(browser, edit, do_="preview", arg_i_days="4")
        assert re.findall(r"<dt>([^<]+)</dt><dd><del>", page.text) == ["Arguments"]
        # By script, when the name of the task changes.
        await browser.get(NEW)
        sent = fields_on(browser.page) | {"kind": "task", "task": "clean"}
        part = await browser.client.post("/ui/editor/arguments", data=sent, headers=HTMX)
        assert 'name="arg_s_mode"' in part.text
        assert "<html" not in part.text
        sent["task"] = "unknown"
        part = await browser.client.post("/ui/editor/arguments", data=sent, headers=HTMX)
        assert "arg_s_mode" not in part.text


async def test_holidays_are_chosen_by_name_and_excluded_times_are_shown() -> None:
    async with browsing() as browser:
        browser.client.cookies.set("chimes_look", "zone=Asia%2FBangkok&language=th")
        page = await browser.get(NEW)
        assert '<option value="TH">ไทย</option>' in page.text
        page = await fill(browser, NEW, do_="preview", ex0_kind="holidays", ex0_value="ไทย")
        assert 'id="left-out"' in page.text
        page = await fill(browser, NEW, do_="preview", ex1_kind="weekly", ex1_days=["SAT", "SUN"])
        assert "aria-invalid" not in page.text
        done = await fill(browser, NEW, url="https://example.com/x", ex1_from="08:00")
        assert done.status_code == 303
        made = await only_schedule(browser)
        assert made["trigger"]["exclude"] == [
            {"holidays": "TH"},
            {"weekly": [{"days": ["SUN", "SAT"], "from": "08:00", "to": "24:00"}]},
        ]
        wrong = await browser.get(f"{NEW}?from={made['id']}")
        wrong = await fill(browser, NEW, ex0_value="Atlantis")
        assert 'aria-describedby="e-ex0_value" aria-invalid' in wrong.text


async def test_the_preview_shows_the_day_and_the_parts_of_cron() -> None:
    async with browsing() as browser:
        for number in range(4):
            await browser.rig.create(name=f"at nine {number}")
        await browser.get(NEW)
        sent = fields_on(browser.page) | {
            "do": "preview",
            "when": "cron",
            "expression": "0 9 * * *",
            "zone": "Asia/Bangkok",
        }
        part = await browser.client.post(NEW, data=sent, headers=HTMX)
        assert "day-strip" in part.text
        assert re.findall(r'data-part="(\d)"', part.text) == ["0", "1", "2", "3", "4"]
        assert "4 other schedules fire at Wed 16 Jan 02:00 UTC" in part.text
        # A button fills in a quieter minute.
        assert 'value="cron:1 9 * * *"' in part.text
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="cron:1 9 * * *")
        assert fields_on(page.text)["expression"] == "1 9 * * *"


async def test_an_edit_shows_its_plan_in_fires() -> None:
    async with browsing() as browser:
        made = await browser.rig.create(name="nine")
        edit = f"/ui/schedules/{made['id']}/edit"
        await browser.get(edit)
        page = await fill(browser, edit, do_="preview", when="cron", expression="0 10 * * 1-5")
        plan = page.text.split('id="plan"')[1].split("</div>")[0]
        assert "Added: 5 (Wed 16 Jan 03:00 UTC" in plan
        assert "Dropped: 7 (" in plan
        assert "Moved" not in plan


async def test_a_described_reminder_is_a_message_and_can_be_edited() -> None:
    async with browsing() as browser:
        await browser.get(NEW)
        page = await fill(browser, NEW, do_="read", words="every day at 16:30 remind me to leave")
        fields = fields_on(page.text)
        assert (fields["kind"], fields["message"]) == ("message", "remind me to leave")
        assert (await fill(browser, NEW, message="")).status_code == 422
        assert 'aria-describedby="e-message" aria-invalid' in browser.page
        assert (await fill(browser, NEW, message="Time to leave")).status_code == 303
        made = await only_schedule(browser)
        assert made["target"] == {"kind": "message", "text": "Time to leave"}
        assert [each["channel"] for each in made["delivery"]] == ["inbox"]
        edit = f"/ui/schedules/{made['id']}/edit"
        page = await browser.get(edit)
        assert "--message &#39;Time to leave&#39;" in page.text
        page = await fill(browser, edit, do_="preview", message="Go home")
        assert "<dt>Text</dt><dd><del>Time to leave</del> <ins>Go home</ins>" in page.text
        assert (await fill(browser, edit)).status_code == 303
        assert (await only_schedule(browser))["target"]["text"] == "Go home"
        detail = await browser.get(f"/ui/schedules/{made['id']}")
        assert "Message" in detail.text


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "Every weekday at 09:00, Asia/Bangkok time"),
        ("th", "ทุกวันทำการ เวลา 09:00 น. ตามเวลา Asia/Bangkok"),
        ("zh", "工作日 09:00，Asia/Bangkok 时间"),
    ],
)
async def test_cron_is_described_while_typing(language: str, words: str) -> None:
    async with browsing() as browser:
        browser.client.cookies.set("chimes_look", f"zone=Asia%2FBangkok&language={language}")
        await browser.get(NEW)
        sent = fields_on(browser.page) | {"do": "preview", "when": "cron"}
        for typed in ("0 9 * * 1-5", "0 9 * *"):
            answer = await browser.client.post(
                NEW, data=sent | {"expression": typed, "last": sent["last"]}, headers=HTMX
            )
            description = re.search(r"<p class=\"words\" data-head>([^<]+)</p>", answer.text)
            assert description is not None
            assert description[1] == words, "invalid input keeps the last valid description"
            (sent["last"],) = re.findall(r'name="last" value="([^"]*)"', answer.text)
            sent["last"] = html.unescape(str(sent["last"]))
