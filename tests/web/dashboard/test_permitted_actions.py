"""Pages offer only permitted actions, and errors do not mention keys to users without one."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from chimes.config import Settings
from chimes.errors import NotAllowed
from chimes.model.access import Owner, OwnerType, Role
from chimes.model.listing import AuditQuery, ScheduleQuery
from chimes.web.dashboard.core.page_request import form_error_from
from tests.web.dashboard.browsing import Browser, browsing
from tests.web.dashboard.test_login import PASSWORD, create_user, sign_in

PAGES = ("/ui/", "/ui/schedules", "/ui/runs", "/ui/inbox")
NEW = "/ui/schedules/new"
_TO_NEW = re.compile(rf'"{NEW}["?]')


async def enter(browser: Browser, role: Role) -> None:
    await create_user(browser, role)
    await sign_in(browser, user="anna", password=PASSWORD)


@pytest.mark.parametrize(
    ("role", "creates", "sees_the_system"),
    [
        (Role.VIEWER, False, False),
        (Role.MEMBER, True, False),
        (Role.OPERATOR, False, True),
        (Role.ADMIN, True, True),
    ],
)
async def test_each_role_sees_only_permitted_actions(
    role: Role, creates: bool, sees_the_system: bool
) -> None:
    async with browsing() as browser:
        await enter(browser, role)
        pages = (*PAGES, "/ui/system/audit", "/ui/system/settings") if sees_the_system else PAGES
        for path in pages:
            page = await browser.get(path)
            assert page.status_code == 200, path
            # Top bar, navigation, palette, list of shortcuts, empty states.
            assert bool(_TO_NEW.search(page.text)) is creates, path
            assert ("New schedule" in page.text) is creates, path
            assert ("/ui/system" in page.text) is sees_the_system, path
            assert ("<kbd>g</kbd> <kbd>y</kbd>" in page.text) is sees_the_system, path
            # Palette and tabs: only admins are linked to the access page.
            assert ("/ui/system/access" in page.text) is (role is Role.ADMIN), path
            assert ("/ui/schedules/import" in page.text) is creates, path
        assert (await browser.get("/ui/system")).status_code == (200 if sees_the_system else 403)
        editor = await browser.get(NEW)
        assert editor.status_code == (200 if creates else 403)
        assert ('id="editor"' in editor.text) is creates
        assert ("You cannot create schedules" in editor.text) is not creates


async def test_errors_for_password_users_do_not_mention_keys() -> None:
    async with browsing() as browser:
        await enter(browser, Role.VIEWER)
        refused = await browser.get("/ui/system")
        assert refused.status_code == 403
        assert "You are not allowed to do that" in refused.text
        assert "This key" not in refused.text
        part = await browser.get("/ui/system", **{"HX-Request": "true"})
        assert "You are not allowed to do that" in part.text
        await browser.get("/ui/")
        csrf = browser.page.partition('name="csrf" value="')[2].partition('"')[0]
        sent = await browser.post(
            NEW,
            {"csrf": csrf, "do": "save", "kind": "http", "url": "https://example.com/"}
            | {"when": "cron", "expression": "0 9 * * *", "zone": "UTC", "verify_tls": "on"},
        )
        assert sent.status_code in (403, 422)
        assert "You are not allowed to do that" in sent.text
        assert "This key" not in sent.text
        assert not (await browser.rig.store.list_schedules(ScheduleQuery())).items


@pytest.mark.parametrize("sees", ["own", "all"])
async def test_viewers_read_schedules_of_others_only_if_the_operator_says_so(sees: str) -> None:
    async with browsing(settings=Settings(viewers_see=sees)) as browser:
        made = await browser.rig.create(name="of the system")
        page = f"/ui/schedules/{made['id']}"
        run = (await browser.rig.client.post(f"/api/v1/schedules/{made['id']}/run")).json()
        await enter(browser, Role.VIEWER)
        seen = sees == "all"
        for path in ("/ui/schedules", "/ui/runs"):
            shown = (await browser.get(path)).text
            assert ("of the system" in shown) is seen, path
            assert ("You only see your own schedules" in shown) is not seen, path
        for path in (page, f"{page}/log", f"{page}/runs", f"/ui/runs/{run['id']}"):
            assert (await browser.get(path)).status_code == (200 if seen else 404), path
        # Read-only, and without the pages of operators.
        shown = (await browser.get(page)).text
        assert f'action="{page}/' not in shown.partition("<main")[2].partition("</main>")[0]
        csrf = re.findall(r'name="csrf" value="([^"]+)"', browser.page)[0]
        for action in ("run", "pause", "delete"):
            answer = await browser.post(f"{page}/{action}", {"csrf": csrf, "sure": "yes"})
            assert answer.status_code == (403 if seen else 404), action
        for path in ("/ui/system", "/ui/system/audit"):
            assert (await browser.get(path)).status_code == 403, path
        key = await browser.rig.key(Role.VIEWER, Owner(type=OwnerType.USER, id="bob"))
        found = await browser.rig.client.get("/api/v1/schedules", headers=key)
        assert len(found.json()["items"]) == seen


async def test_error_pages_keep_the_navigation_and_name_the_role() -> None:
    async with browsing() as browser:
        await enter(browser, Role.VIEWER)
        refused = (await browser.get("/ui/system")).text
        assert 'class="rail"' in refused
        assert "Your role is viewer." in refused
        assert "System › Access" in refused
        for path in ("/ui/schedules/nothing", "/ui/nowhere"):
            missing = await browser.get(path)
            assert missing.status_code == 404
            assert 'class="rail"' in missing.text, path
        browser.client.cookies.clear()
        assert 'class="rail"' not in (await browser.get("/ui/nowhere")).text


async def test_whoever_creates_the_first_user_stays_signed_in() -> None:
    async with browsing() as browser:
        fields = {"name": "anna", "password": PASSWORD, "role": "admin"}
        made = await browser.send("/ui/system/access/users", on="/ui/system/access", **fields)
        # Then the server knows that open mode has ended.
        browser.rig.clock.advance(timedelta(seconds=1))
        page = await browser.follow(made)
        assert page.status_code == 200, "not the login page"
        assert 'action="/ui/logout"' in page.text
        other = {"name": "bob", "password": PASSWORD, "role": "viewer"}
        await browser.follow(await browser.send("/ui/system/access/users", **other))
        (record,) = await browser.rig.store.list_audit(AuditQuery(verb="sign_in"))
        assert record.actor == "user:anna", "only the first user is signed in"


def test_an_error_with_a_reason_keeps_it() -> None:
    assert form_error_from(NotAllowed()).message == "You are not allowed to do that"
    assert form_error_from(NotAllowed("Only on Sundays")).message == "Only on Sundays"
