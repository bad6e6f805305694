"""A rejected form is shown again with its values and the error."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chimes.model.access import SYSTEM_OWNER, Owner, OwnerType, Role
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import AuditQuery
from chimes.model.notification import InboxItem
from chimes.model.run import RunStatus
from chimes.services.access import RunLimits
from chimes.services.schedules.rules import Limits
from chimes.testing import SettableClock
from tests.builders import a_run, an_item
from tests.web.dashboard.browsing import Browser, browsing
from tests.web.dashboard.form_helpers import fill
from tests.web.dashboard.test_empty_pages import UnavailableStore
from tests.web.dashboard.test_inbox_pages import an_answer, item_in
from tests.web.dashboard.test_login import PASSWORD, create_user, sign_in
from tests.web.rig import CRON, HTTP

ANNA = Owner(type=OwnerType.USER, id="anna")
TYPED = 'My <b>text</b> & "more"\nin two lines'
SHOWN = "My &lt;b&gt;text&lt;/b&gt; &amp; &#34;more&#34;\nin two lines"
ONE_A_DAY = Limits(runs=RunLimits(per_day=1))


async def sign_in_as_anna(browser: Browser) -> None:
    await create_user(browser, Role.MEMBER)
    await sign_in(browser, user="anna", password=PASSWORD)


# --- replies --------------------------------------------------------------------------------------
async def test_a_reply_rejected_by_a_quota_is_kept() -> None:
    async with browsing(limits=lambda: ONE_A_DAY) as browser:
        store = browser.rig.store
        await sign_in_as_anna(browser)
        run = an_answer(owner=ANNA)
        await store.load([run])
        item = await item_in(browser, run_id=run.id, owner=ANNA)
        address = f"/ui/inbox/{item.id}"
        first = await browser.send(f"{address}/reply", on=address, text="One")
        assert first.status_code == 303
        second = await browser.send(f"{address}/reply", on=f"{address}?folder=all", text=TYPED)
        assert second.status_code == 409
        assert "user:anna may start 1 runs a day" in second.text
        assert f">\n{SHOWN}</textarea>" in second.text
        assert f'name="back" value="{address}?folder=all"' in second.text
        refusals = await store.list_audit(AuditQuery(verb="refused"))
        assert [each.object_id for each in refusals] == [f"POST {address}/reply"]
        browser.rig.clock.advance(timedelta(days=2))
        ended = await browser.send(f"{address}/reply", text=TYPED)
        assert ended.status_code == 401, "the session has expired"
        await browser.send("/ui/login", user="anna", password=PASSWORD)
        again = await browser.send(f"{address}/reply")
        assert again.status_code == 303, "the returned form can be sent"
        assert again.headers["location"].startswith("/ui/")
        assert "/ui/login" not in again.headers["location"]


async def test_a_reply_to_a_deleted_run_can_be_copied() -> None:
    async with browsing() as browser:
        item = await item_in(browser, run_id=RunId("gone"))
        other = await with_reply_form(browser)
        action = f"/ui/inbox/{item.id}/reply"
        browser.page = browser.page.replace(f"/ui/inbox/{other.id}/reply", action)
        answer = await browser.send(action, text=TYPED)
        assert answer.status_code == 404
        assert SHOWN in answer.text
        assert "This run accepts no more replies." in answer.text
        assert "Send reply" not in answer.text


async def with_reply_form(browser: Browser) -> InboxItem:
    run = an_answer()
    await browser.rig.store.load([run])
    item = await item_in(browser, run_id=run.id)
    await browser.get(f"/ui/inbox/{item.id}")
    return item


async def test_a_too_long_reply_is_kept() -> None:
    async with browsing() as browser:
        item = await with_reply_form(browser)
        text = "y" * 4001
        answer = await browser.send(f"/ui/inbox/{item.id}/reply", text=text)
        assert answer.status_code == 422
        assert text in answer.text
        assert 'id="reply-error" role="alert">at most 4000 characters' in answer.text


async def test_an_invalid_snooze_time_is_kept() -> None:
    async with browsing() as browser:
        item = await browser.rig.store.add_inbox(an_item(owner=SYSTEM_OWNER))
        address = f"/ui/inbox/{item.id}"
        answer = await browser.send(f"{address}/snooze", on=address, until="2001-01-01T00:00")
        assert answer.status_code == 422
        assert 'value="2001-01-01T00:00"' in answer.text
        assert 'id="snooze-error"' in answer.text


# --- schedules ------------------------------------------------------------------------------------
async def test_parameters_rejected_by_a_quota_are_kept() -> None:
    async with browsing(limits=lambda: ONE_A_DAY) as browser:
        await sign_in_as_anna(browser)
        key = await browser.rig.key(Role.MEMBER, ANNA)
        made = await browser.rig.client.post(
            "/api/v1/schedules", json={"name": "r", "trigger": CRON, "target": HTTP}, headers=key
        )
        address = f"/ui/schedules/{made.json()['id']}"
        first = await browser.send(f"{address}/run/with", on=f"{address}/run", payload="1")
        assert first.status_code == 303
        second = await browser.send(f"{address}/run/with", on=f"{address}/run", payload=TYPED)
        assert second.status_code == 409
        assert "may start 1 runs a day" in second.text
        assert SHOWN in second.text
        run = first.headers["location"]
        changed = await browser.send(f"{run}/again", on=f"{run}/again", name="N", target="{}")
        assert changed.status_code == 409
        assert 'value="N"' in changed.text
        assert ">{}</textarea>" in changed.text


async def test_a_backfill_range_rejected_by_a_quota_is_kept() -> None:
    async with browsing(limits=lambda: ONE_A_DAY) as browser:
        await sign_in_as_anna(browser)
        key = await browser.rig.key(Role.MEMBER, ANNA)
        made = await browser.rig.client.post(
            "/api/v1/schedules", json={"name": "r", "trigger": CRON, "target": HTTP}, headers=key
        )
        address = f"/ui/schedules/{made.json()['id']}/backfill"
        day = browser.rig.clock.now() - timedelta(days=5)
        fields = {
            "from": f"{day:%Y-%m-%d}T00:00",
            "to": f"{day + timedelta(days=3):%Y-%m-%d}T00:00",
        }
        answer = await browser.send(address, on=address, **fields, sure="yes", concurrency="2")
        assert answer.status_code == 409
        for value in (*fields.values(), "2"):
            assert f'value="{value}"' in answer.text
        assert "may start 1 runs a day" in answer.text


async def test_a_reason_is_kept_when_the_action_fails() -> None:
    async with browsing() as browser:
        schedule = await browser.rig.create(enabled=False)
        address = f"/ui/schedules/{schedule['id']}"
        await browser.get(f"{address}/next")
        token = {"csrf": browser.page.partition('name="csrf" value="')[2].partition('"')[0]}
        answer = await browser.post(
            f"{address}/skip", token | {"sure": "yes", "reason": "holiday", "back": address}
        )
        assert answer.status_code == 409
        assert "the schedule has no next run" in answer.text
        assert 'name="reason" maxlength="500" value="holiday"' in answer.text


async def test_the_reason_of_a_known_failure_is_kept() -> None:
    async with browsing() as browser:
        schedule = await browser.rig.create()
        run = a_run(
            schedule_id=ScheduleId(schedule["id"]),
            status=RunStatus.FAILED,
            owner=SYSTEM_OWNER,
            error="boom",
        )
        await browser.rig.store.load([run])
        address, reason = f"/ui/runs/{run.id}", "z" * 301
        await browser.send(f"{address}/known", on=address)
        answer = await browser.send(f"{address}/known", reason=reason)
        assert answer.status_code == 422
        assert f'value="{reason}"' in answer.text
        assert "at most 300 characters" in answer.text


async def test_the_fields_of_a_key_are_kept() -> None:
    async with browsing() as browser:
        answer = await browser.send(
            "/ui/system/access/keys",
            on="/ui/system/access",
            name="mine",
            role="viewer",
            owner="user:anna",
            days="0",
            scope="read",
        )
        assert answer.status_code == 422
        form = answer.text.partition('action="/ui/system/access/keys"')[2].partition("</form>")[0]
        for kept in (
            'value="mine"',
            '<option value="viewer" selected',
            'value="user:anna"',
            'name="days" inputmode="numeric" value="0"',
            'value="read" checked',
            "between 1 and 3650 days",
        ):
            assert kept in form


async def test_an_edit_of_a_deleted_schedule_can_become_a_new_one() -> None:
    async with browsing() as browser:
        schedule = await browser.rig.create()
        edit = f"/ui/schedules/{schedule['id']}/edit"
        await browser.get(edit)
        await browser.rig.client.delete(f"/api/v1/schedules/{schedule['id']}")
        answer = await fill(browser, edit, name="Mine <b>")
        assert answer.status_code == 422
        assert "This schedule was deleted." in answer.text
        assert 'value="Mine &lt;b&gt;"' in answer.text
        made = await fill(browser, "/ui/schedules/new")
        assert made.status_code == 303
        new = await browser.rig.store.get_schedule(
            ScheduleId(made.headers["location"].rpartition("/")[2])
        )
        assert new is not None
        assert (new.name, new.id == schedule["id"]) == ("Mine <b>", False)


async def test_an_unknown_zone_is_kept_for_correction() -> None:
    async with browsing() as browser:
        answer = await browser.send("/ui/look", on="/ui/runs", zone="Asia/Bangkokk")
        assert answer.status_code == 422
        assert 'name="zone" value="Asia/Bangkokk"' in answer.text
        browser.page = answer.text.partition("<main")[2]
        mended = await browser.send("/ui/look", zone="Asia/Bangkok")
        assert (mended.status_code, mended.headers["location"]) == (303, "/ui/runs")


# --- resending ------------------------------------------------------------------------------------
async def test_a_form_sent_during_a_store_outage_can_be_resent() -> None:
    clock = SettableClock()
    store = UnavailableStore(clock)
    async with browsing(store=store, clock=clock) as browser:
        schedule = await browser.rig.create()
        address = f"/ui/schedules/{schedule['id']}"
        await browser.get(f"{address}/next")
        token = {"csrf": browser.page.partition('name="csrf" value="')[2].partition('"')[0]}
        store.away = True
        answer = await browser.post(f"{address}/pause", token | {"sure": "yes", "reason": "<b>"})
        assert answer.status_code == 503
        assert 'name="reason" value="&lt;b&gt;"' in answer.text
        store.away = False
        assert (await browser.send(f"{address}/pause")).status_code == 303
        found = await store.get_schedule(ScheduleId(schedule["id"]))
        assert found is not None
        assert found.pause_note == "<b>"


@pytest.mark.parametrize("token", ["", "0" * 40])
async def test_only_a_form_with_a_valid_token_can_be_resent(token: str) -> None:
    clock = SettableClock()
    store = UnavailableStore(clock)
    async with browsing(store=store, clock=clock) as browser:
        await browser.get("/ui/")
        store.away = True
        answer = await browser.post("/ui/schedules/x/pause", {"csrf": token, "reason": "theirs"})
        assert answer.status_code == 503
        assert "theirs" not in answer.text


async def test_a_password_is_not_rendered_into_a_page() -> None:
    clock = SettableClock()
    store = UnavailableStore(clock)
    async with browsing(store=store, clock=clock) as browser:
        await browser.get("/ui/system/access")
        page = browser.page
        store.away = True
        browser.page = page
        answer = await browser.send("/ui/system/access/users", name="anna", password=PASSWORD)
        assert answer.status_code == 503
        assert 'name="name" value="anna"' in answer.text
        assert PASSWORD not in answer.text
