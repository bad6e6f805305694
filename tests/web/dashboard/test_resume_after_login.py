"""A session that ends while the user types: the form is kept, and other sites cannot inject one."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape

import pytest

from chimes.model.access import Actor, Role
from chimes.model.listing import ScheduleQuery
from chimes.services.access import AccessService
from chimes.services.users import SessionService
from chimes.web.dashboard.core.auth import PendingForm, pack_pending_form, unpack_pending_form
from tests.web.dashboard.browsing import Browser, browsing
from tests.web.dashboard.test_login import PASSWORD, create_user, sign_in
from tests.web.rig import HOST

NEW = "/ui/schedules/new"
ENDED = "Your session has ended. Sign in again; your input is kept."
NAME = 'My <b>"first"</b> & more'
LABELS = "team=<b>\nnightly"
FIELDS = {
    "name": NAME,
    "labels": LABELS,
    "when": "cron",
    "expression": "0 9 * * *",
    "zone": "Asia/Bangkok",
    "zone_sure": "Asia/Bangkok",
    "kind": "http",
    "method": "GET",
    "url": "https://example.com/report",
    "enabled": "on",
    "verify_tls": "on",
    "do": "save",
}


async def end_all_sessions(browser: Browser) -> None:
    """Ends all sessions, as an admin."""
    rig = browser.rig
    users = await create_user(browser, name="somebody-else")
    sessions = SessionService(rig.store, AccessService(rig.store, rig.clock), users, rig.clock)
    for session in await sessions.list_sessions(Actor()):
        await sessions.revoke(Actor(), session.id)
    rig.clock.advance(timedelta(seconds=2))


async def open_editor(browser: Browser) -> None:
    await create_user(browser, Role.MEMBER)
    await sign_in(browser, user="anna", password=PASSWORD)
    await browser.get(NEW)


def form_fields(page: str, action: str) -> dict[str, str]:
    part = page.partition(f'action="{action}"')[2].partition("</form>")[0]
    found = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', part)
    return {name: unescape(value) for name, value in found}


async def names(browser: Browser) -> list[str]:
    found = await browser.rig.store.list_schedules(ScheduleQuery())
    return [each.name for each in found.items]


async def test_a_form_is_resumed_after_login() -> None:
    async with browsing() as browser:
        await open_editor(browser)
        await end_all_sessions(browser)
        answer = await browser.send(NEW, **FIELDS)
        assert answer.status_code == 401
        assert ENDED in answer.text
        assert "/ui/look" not in answer.text, "other pages do not contain it"
        wrong = await browser.send("/ui/login", user="anna", password="a wrong password")
        assert wrong.status_code == 401
        assert ENDED in wrong.text
        entered = await browser.send("/ui/login", user="anna", password=PASSWORD)
        assert entered.status_code == 200
        assert "Send my input" in entered.text
        form = form_fields(entered.text, NEW)
        assert {name: form[name] for name in FIELDS} == FIELDS
        assert await names(browser) == []
        sent = await browser.send(NEW)
        assert sent.status_code == 303, sent.text
        assert await names(browser) == [NAME]


async def test_discarding_the_form_leads_back_to_its_page() -> None:
    async with browsing() as browser:
        await open_editor(browser)
        await end_all_sessions(browser)
        form = form_fields(browser.page, NEW)
        await browser.post(NEW, form | FIELDS, Referer=f"{HOST}{NEW}?preset=x")
        page = (await browser.send("/ui/login", user="anna", password=PASSWORD)).text
        assert f'href="{NEW}?preset=x">Discard it' in page


async def test_a_form_is_resumed_after_the_cookie_expired() -> None:
    async with browsing() as browser:
        await open_editor(browser)
        await end_all_sessions(browser)
        form = form_fields(browser.page, NEW)
        browser.client.cookies.clear()
        answer = await browser.post(NEW, form | FIELDS)
        assert answer.status_code == 401
        assert ENDED in answer.text
        await browser.send("/ui/login", user="anna", password=PASSWORD)
        assert (await browser.send(NEW)).status_code == 303
        assert await names(browser) == [NAME]


async def test_an_htmx_form_shows_a_toast_and_keeps_the_page() -> None:
    async with browsing() as browser:
        await open_editor(browser)
        await end_all_sessions(browser)
        htmx = {"HX-Request": "true", "HX-Current-URL": f"{HOST}/ui/inbox?folder=all"}
        form = form_fields(browser.page, NEW)
        part = await browser.post(NEW, form | FIELDS | {"do": "preview"}, **htmx)
        assert part.status_code == 401
        assert "hx-redirect" not in part.headers
        assert part.headers["hx-retarget"] == "#toasts"
        assert ENDED in part.text
        assert "<html" not in part.text
        assert (await browser.send(NEW)).status_code == 401
        await browser.send("/ui/login", user="anna", password=PASSWORD)
        sheet = await browser.send(NEW)
        assert sheet.status_code == 200
        assert 'value="My &lt;b&gt;&#34;first&#34;&lt;/b&gt; &amp; more"' in sheet.text


async def test_an_htmx_request_without_input_redirects_to_login() -> None:
    async with browsing() as browser:
        await open_editor(browser)
        await end_all_sessions(browser)
        htmx = {"HX-Request": "true", "HX-Current-URL": f"{HOST}/ui/inbox?folder=all"}
        token = {"csrf": form_fields(browser.page, NEW)["csrf"]}
        back = "/ui/login?next=%2Fui%2Finbox%3Ffolder%3Dall"
        for part in (
            await browser.post("/ui/inbox/x/seen", token, **htmx),
            await browser.get("/ui/?part=running", **htmx),
        ):
            assert part.status_code == 401
            assert part.headers["hx-redirect"] == back
        foreign = {"HX-Request": "true", "HX-Current-URL": "http://[evil/ui"}
        part = await browser.get("/ui/runs", **foreign)
        assert part.headers["hx-redirect"] == "/ui/login?next=%2Fui%2F"


async def test_secrets_are_not_kept_in_a_pending_form() -> None:
    async with browsing() as browser:
        await create_user(browser)
        await sign_in(browser, user="anna", password=PASSWORD)
        await browser.get("/ui/system/access")
        await end_all_sessions(browser)
        secret = "a password to be"
        answer = await browser.send("/ui/system/access/users", name="bob", password=secret)
        assert answer.status_code == 401
        assert "bob" in answer.text
        assert secret not in answer.text


@pytest.mark.parametrize(
    ("token", "headers", "status"),
    [
        ("0" * 40, {}, 303),
        ("", {}, 303),
        ("right", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("right", {"Origin": "http://evil.example"}, 403),
    ],
)
async def test_a_form_of_another_site_is_not_resumed(
    token: str, headers: dict[str, str], status: int
) -> None:
    async with browsing() as browser:
        await open_editor(browser)
        right = form_fields(browser.page, NEW)["csrf"]
        await end_all_sessions(browser)
        given = {"csrf": right if token == "right" else token, "name": "theirs"}
        answer = await browser.post(NEW, given, **headers)
        assert answer.status_code == status
        assert "theirs" not in answer.text


async def test_without_cookies_only_same_origin_forms_are_resumed() -> None:
    async with browsing() as browser:
        await open_editor(browser)
        await end_all_sessions(browser)
        browser.client.cookies.clear()
        silent = await browser.client.post(NEW, data={"name": "theirs"}, headers={"Origin": HOST})
        assert silent.status_code == 303
        typed = await browser.post(NEW, {"name": "theirs"}, **{"Sec-Fetch-Site": "none"})
        assert typed.status_code == 303


async def test_clients_that_do_not_accept_html_get_no_page() -> None:
    async with browsing() as browser:
        await open_editor(browser)
        await end_all_sessions(browser)
        form = form_fields(browser.page, NEW)
        answer = await browser.post(NEW, form | FIELDS, Accept="application/json")
        assert answer.status_code == 401
        assert answer.text == ""


async def test_a_form_can_be_resent_after_login_in_another_tab() -> None:
    async with browsing() as browser:
        await open_editor(browser)
        before = browser.page
        await end_all_sessions(browser)
        await sign_in(browser, user="anna", password=PASSWORD)
        browser.page = before
        part = await browser.post(NEW, form_fields(before, NEW) | FIELDS, **{"HX-Request": "true"})
        assert part.status_code == 403
        assert form_fields(part.text, NEW)["name"] == NAME
        browser.page = before
        answer = await browser.send(NEW, **FIELDS)
        assert answer.status_code == 403
        assert await names(browser) == []
        assert (await browser.send(NEW)).status_code == 303
        assert await names(browser) == [NAME]


async def test_the_resume_page_can_be_reloaded() -> None:
    async with browsing() as browser:
        await open_editor(browser)
        await end_all_sessions(browser)
        await browser.send(NEW, **FIELDS)
        login = browser.page
        for _ in range(2):
            browser.page = login
            answer = await browser.send("/ui/login", user="anna", password=PASSWORD)
            assert "Send my input" in answer.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "1",
        "[]",
        "[" * 100_000,
        json.dumps(["https://evil.example/ui/", []]),
        json.dumps(["//evil.example/ui", []]),
        json.dumps(["/api/v1/schedules", []]),
        json.dumps(["/ui/../api", []]),
        json.dumps(["/ui/logout", []]),
        json.dumps([1, []]),
        json.dumps(["/ui/x", [["a"]]]),
        json.dumps(["/ui/x", [["a", 1]]]),
        json.dumps(["/ui/x", [["a", "\0"]]]),
    ],
)
def test_an_invalid_pending_form_is_ignored(text: str) -> None:
    assert unpack_pending_form(text) is None


def test_pending_forms_round_trip() -> None:
    pending = PendingForm(
        action="/ui/x", csrf="", fields=(("a", "1\r\n2"), ("a", "ไทย"), ("b", ""))
    )
    assert unpack_pending_form(pack_pending_form(pending)) == pending
