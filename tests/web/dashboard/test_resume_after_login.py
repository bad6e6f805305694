"""A sign-in that ends while somebody types: nothing is lost, and nobody else can plant a form."""

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
from chimes.web.dashboard.core.auth import packed, unpack_pending_form
from chimes.web.dashboard.core.forms import PendingForm
from tests.web.dashboard.browsing import Browser, browsing
from tests.web.dashboard.test_login import PASSWORD, signed_in, with_user
from tests.web.rig import HOST

NEW = "/ui/schedules/new"
ENDED = "Your sign-in has ended. Sign in again; what you typed is kept here."
NAME = 'My <b>"first"</b> & more'
LABELS = "team=<b>\nnightly"
TYPED = {
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


async def end_all(browser: Browser) -> None:
    """As an admin does, elsewhere."""
    rig = browser.rig
    users = await with_user(browser, name="somebody-else")
    sign_ins = SessionService(rig.store, AccessService(rig.store, rig.clock), users, rig.clock)
    for session in await sign_ins.all(Actor()):
        await sign_ins.revoke(Actor(), session.id)
    rig.clock.advance(timedelta(seconds=2))


async def in_the_editor(browser: Browser) -> None:
    await with_user(browser, Role.MEMBER)
    await signed_in(browser, user="anna", password=PASSWORD)
    await browser.get(NEW)


def shown_form(page: str, action: str) -> dict[str, str]:
    part = page.partition(f'action="{action}"')[2].partition("</form>")[0]
    found = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', part)
    return {name: unescape(value) for name, value in found}


async def names(browser: Browser) -> list[str]:
    found = await browser.rig.store.list_schedules(ScheduleQuery())
    return [each.name for each in found.items]


async def test_what_was_typed_goes_along_through_the_sign_in() -> None:
    async with browsing() as browser:
        await in_the_editor(browser)
        await end_all(browser)
        answer = await browser.send(NEW, **TYPED)
        assert answer.status_code == 401
        assert ENDED in answer.text
        assert "/ui/look" not in answer.text, "another page would not have it"
        wrong = await browser.send("/ui/login", user="anna", password="a wrong password")
        assert wrong.status_code == 401
        assert ENDED in wrong.text
        entered = await browser.send("/ui/login", user="anna", password=PASSWORD)
        assert entered.status_code == 200
        assert "Send what I had typed" in entered.text
        form = shown_form(entered.text, NEW)
        assert {name: form[name] for name in TYPED} == TYPED
        assert await names(browser) == []
        sent = await browser.send(NEW)
        assert sent.status_code == 303, sent.text
        assert await names(browser) == [NAME]


async def test_who_gives_it_up_is_where_they_were() -> None:
    async with browsing() as browser:
        await in_the_editor(browser)
        await end_all(browser)
        form = shown_form(browser.page, NEW)
        await browser.post(NEW, form | TYPED, Referer=f"{HOST}{NEW}?preset=x")
        page = (await browser.send("/ui/login", user="anna", password=PASSWORD)).text
        assert f'href="{NEW}?preset=x">Go on without it' in page


async def test_a_cookie_that_has_ended_by_itself_takes_nothing_along() -> None:
    async with browsing() as browser:
        await in_the_editor(browser)
        await end_all(browser)
        form = shown_form(browser.page, NEW)
        browser.client.cookies.clear()
        answer = await browser.post(NEW, form | TYPED)
        assert answer.status_code == 401
        assert ENDED in answer.text
        await browser.send("/ui/login", user="anna", password=PASSWORD)
        assert (await browser.send(NEW)).status_code == 303
        assert await names(browser) == [NAME]


async def test_a_part_keeps_the_page_and_what_is_typed_in_it() -> None:
    async with browsing() as browser:
        await in_the_editor(browser)
        await end_all(browser)
        htmx = {"HX-Request": "true", "HX-Current-URL": f"{HOST}/ui/inbox?folder=all"}
        form = shown_form(browser.page, NEW)
        part = await browser.post(NEW, form | TYPED | {"do": "preview"}, **htmx)
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


async def test_a_part_for_which_nothing_was_typed_leads_to_the_sign_in_and_back() -> None:
    async with browsing() as browser:
        await in_the_editor(browser)
        await end_all(browser)
        htmx = {"HX-Request": "true", "HX-Current-URL": f"{HOST}/ui/inbox?folder=all"}
        token = {"csrf": shown_form(browser.page, NEW)["csrf"]}
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


async def test_secrets_do_not_go_along() -> None:
    # S31
    async with browsing() as browser:
        await with_user(browser)
        await signed_in(browser, user="anna", password=PASSWORD)
        await browser.get("/ui/system/access")
        await end_all(browser)
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
async def test_nobody_elsewhere_plants_a_form(
    token: str, headers: dict[str, str], status: int
) -> None:
    # S49
    async with browsing() as browser:
        await in_the_editor(browser)
        right = shown_form(browser.page, NEW)["csrf"]
        await end_all(browser)
        given = {"csrf": right if token == "right" else token, "name": "theirs"}
        answer = await browser.post(NEW, given, **headers)
        assert answer.status_code == status
        assert "theirs" not in answer.text


async def test_without_any_cookie_only_the_browsers_own_word_counts() -> None:
    # S49
    async with browsing() as browser:
        await in_the_editor(browser)
        await end_all(browser)
        browser.client.cookies.clear()
        silent = await browser.client.post(NEW, data={"name": "theirs"}, headers={"Origin": HOST})
        assert silent.status_code == 303
        typed = await browser.post(NEW, {"name": "theirs"}, **{"Sec-Fetch-Site": "none"})
        assert typed.status_code == 303


async def test_programs_get_no_page() -> None:
    async with browsing() as browser:
        await in_the_editor(browser)
        await end_all(browser)
        form = shown_form(browser.page, NEW)
        answer = await browser.post(NEW, form | TYPED, Accept="application/json")
        assert answer.status_code == 401
        assert answer.text == ""


async def test_a_form_of_before_can_be_sent_after_signing_in_in_another_tab() -> None:
    async with browsing() as browser:
        await in_the_editor(browser)
        before = browser.page
        await end_all(browser)
        await signed_in(browser, user="anna", password=PASSWORD)
        browser.page = before
        part = await browser.post(NEW, shown_form(before, NEW) | TYPED, **{"HX-Request": "true"})
        assert part.status_code == 403
        assert shown_form(part.text, NEW)["name"] == NAME
        browser.page = before
        answer = await browser.send(NEW, **TYPED)
        assert answer.status_code == 403
        assert await names(browser) == []
        assert (await browser.send(NEW)).status_code == 303
        assert await names(browser) == [NAME]


async def test_the_page_behind_the_sign_in_can_be_loaded_again() -> None:
    async with browsing() as browser:
        await in_the_editor(browser)
        await end_all(browser)
        await browser.send(NEW, **TYPED)
        login = browser.page
        for _ in range(2):
            browser.page = login
            answer = await browser.send("/ui/login", user="anna", password=PASSWORD)
            assert "Send what I had typed" in answer.text


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
def test_what_is_no_form_of_ours_is_not_carried(text: str) -> None:
    assert unpack_pending_form(text) is None


def test_what_is_carried_comes_out_as_it_went_in() -> None:
    unsent = PendingForm(action="/ui/x", csrf="", fields=(("a", "1\r\n2"), ("a", "ไทย"), ("b", "")))
    assert unpack_pending_form(packed(unsent)) == unsent
