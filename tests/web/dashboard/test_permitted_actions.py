"""Pages offer only permitted actions, and errors do not mention keys to users without one."""

from __future__ import annotations

import re

import pytest

from chimes.errors import NotAllowed
from chimes.model.access import Role
from chimes.model.listing import ScheduleQuery
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


def test_an_error_with_a_reason_keeps_it() -> None:
    assert form_error_from(NotAllowed()).message == "You are not allowed to do that"
    assert form_error_from(NotAllowed("Only on Sundays")).message == "Only on Sundays"
