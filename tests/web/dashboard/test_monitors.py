"""Monitors in the dashboard: list, details, form, actions, and Today."""

from __future__ import annotations

import re
from datetime import timedelta

from chimes.model.access import Role
from tests.builders import ALICE
from tests.web.dashboard.browsing import Browser, browsing

FIELDS = {
    "name": "Nightly backup",
    "when": "0 2 * * *",
    "zone": "Europe/Berlin",
    "grace": "30m",
    "tags": "db, night",
    "recipients": "inbox:on=failure+recovery",
}


async def created(browser: Browser, **fields: str) -> str:
    """The page of a new monitor."""
    answer = await browser.send("/ui/monitors/new", on="/ui/monitors/new", **(FIELDS | fields))
    assert answer.status_code == 303, re.findall(r'role="alert">([^<]*)', answer.text)
    await browser.follow(answer)
    location: str = answer.headers["location"]
    return location


async def test_a_monitor_is_created_pinged_edited_and_deleted() -> None:
    async with browsing() as browser:
        empty = await browser.get("/ui/monitors")
        assert "chimes monitor create backup" in empty.text
        address = await created(browser)
        (url,) = set(re.findall(r"http://localhost:7100/ping/[a-z0-9]{36}", browser.page))
        assert "02:00" in browser.page
        assert ">new<" in browser.page
        await browser.client.post(f"{url}/start")
        browser.rig.clock.advance(timedelta(minutes=2))
        await browser.client.post(f"{url}/3", content=b"<b>disk full</b>")
        page = (await browser.get(address)).text
        assert ">down<" in page
        assert "exit code 3" in page
        assert "&lt;b&gt;disk full&lt;/b&gt;" in page
        # Today counts it, although there is no schedule.
        today = (await browser.get("/ui/")).text
        assert "Needs attention" in today
        assert f'href="{address}"' in today
        assert "2 need attention" in today  # no node is running
        listed = (await browser.get("/ui/monitors?status=down")).text
        assert "Nightly backup" in listed
        assert "No monitor matches" in (await browser.get("/ui/monitors?q=nothing")).text
        # Edited: what the form does not show stays.
        edited = await browser.send(
            f"{address}/edit", on=f"{address}/edit", **(FIELDS | {"name": "Backup", "grace": "1h"})
        )
        page = (await browser.follow(edited)).text
        assert "Backup" in page
        assert "1 h" in page
        paused = await browser.send(f"{address}/pause", on=address)
        assert ">paused<" in (await browser.follow(paused)).text
        resumed = await browser.send(f"{address}/resume", on=address)
        assert ">up<" in (await browser.follow(resumed)).text
        rotated = await browser.send(f"{address}/rotate", on=address)
        assert "stop working" in rotated.text
        rotated = await browser.send(f"{address}/rotate", sure="yes")
        page = (await browser.follow(rotated)).text
        assert url not in page
        assert (await browser.client.get(url)).status_code == 404
        await browser.send(f"{address}/delete", on=address)
        deleted = await browser.send(f"{address}/delete", sure="yes")
        assert "No monitors yet" in (await browser.follow(deleted)).text
        audit = (await browser.get("/ui/system/audit")).text
        for verb in ("created", "changed", "paused", "resumed", "deleted"):
            assert f"{verb} a monitor" in audit


async def test_the_form_shows_what_is_wrong_and_keeps_the_input() -> None:
    wrong = {
        "name": ({"name": " "}, "a name is required"),
        "when": ({"when": "61 2 * * *"}, "61"),
        "zone": ({"zone": "Europe/Berlim"}, "Europe/Berlim"),
        "grace": ({"grace": "soon"}, "soon"),
        "recipients": ({"recipients": "pigeon:7"}, "is not a recipient"),
    }
    async with browsing() as browser:
        for name, (fields, text) in wrong.items():
            answer = await browser.send(
                "/ui/monitors/new", on="/ui/monitors/new", **(FIELDS | fields)
            )
            assert answer.status_code == 422, name
            (alert,) = re.findall(r'role="alert">([^<]*)', answer.text)
            assert text in alert, name
            assert 'value="db, night"' in answer.text
        # Words, and an interval that counts from the last success.
        address = await created(browser, when="every weekday at 9am", name="words")
        assert "Monday" in (await browser.get(address)).text or "weekday" in browser.page
        await created(browser, when="every 10m", name="beat")
        assert "10 min" in browser.page


async def test_viewers_see_no_url_and_no_actions() -> None:
    async with browsing() as browser:
        address = await created(browser)
        viewer = await browser.rig.key(Role.VIEWER)
        stranger = await browser.rig.key(Role.MEMBER, ALICE)
        path = address.removeprefix("/ui")
        found = (await browser.client.get(f"/api/v1{path}", headers=viewer)).json()
        assert found["ping_url"].endswith("/ping/***")
        assert (await browser.client.get(f"/api/v1{path}", headers=stranger)).status_code == 404
