"""System over ASGI: who sees what, every action, and what is said when something is wrong."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from functools import partial

import pytest

from chimes.doors.dashboard.views_system import changes_of, lag_data, lag_rows, node_cards
from chimes.model.ids import NodeId
from tests.builders import NOW, a_node, an_entry
from tests.dashboard.browsing import browsing

TABS = ("", "/audit", "/access", "/channels", "/settings", "/about")


@pytest.mark.parametrize("tab", TABS)
async def test_every_tab_answers(tab: str) -> None:
    async with browsing() as browser:
        answer = await browser.get(f"/ui/system{tab}")
        assert answer.status_code == 200
        assert answer.text.count('aria-current="page"') >= 2


async def test_a_key_is_shown_once_and_can_be_revoked() -> None:
    async with browsing() as browser:
        made = await browser.send(
            "/ui/system/access/keys",
            on="/ui/system/access",
            name="robot",
            role="admin",
            days="3",
            owner="user:al",
        )
        assert made.status_code == 200
        (key,) = re.findall(r'class="copyable"><code>([^<]+)</code>', made.text)
        browser.rig.clock.advance(timedelta(seconds=1))
        await browser.send("/ui/login", on="/ui/login", key=key)
        page = await browser.get("/ui/system/access")
        assert "robot" in page.text
        assert key not in page.text
        (revoke,) = re.findall(r'action="(/ui/system/access/keys/[^"]+/revoke)"', page.text)
        asked = await browser.send(revoke)
        assert (asked.status_code, "Revoke this key?" in asked.text) == (200, True)
        done = await browser.send(revoke)
        assert done.status_code == 303
        gone = await browser.get("/ui/system/access")
        assert gone.headers["location"].startswith("/ui/login"), "the key was the way in"


async def test_wrong_fields_are_told_at_the_field() -> None:
    async with browsing() as browser:
        send = partial(browser.send, "/ui/system/access/keys", on="/ui/system/access", name="x")
        made = await send(role="king", days="3")
        assert made.status_code == 422
        assert "viewer, member, operator or admin" in made.text
        late = await send(role="admin", days="0")
        assert (late.status_code, "between 1 and 3650 days" in late.text) == (422, True)


async def test_the_audit_filters_exports_and_verifies() -> None:
    async with browsing() as browser:
        password = "correct horse battery"
        await browser.send(
            "/ui/system/access/users",
            on="/ui/system/access",
            name="ann",
            password=password,
            role="admin",
        )
        browser.rig.clock.advance(timedelta(seconds=1))
        await browser.send("/ui/login", on="/ui/login", user="ann", password=password)
        page = await browser.get("/ui/system/audit?verb=create_user")
        assert "ann" in page.text
        assert "sign_in" not in page.text
        lines = (await browser.get("/ui/system/audit.ndjson?verb=create_user")).text.splitlines()
        assert [json.loads(line)["object_id"] for line in lines] == ["ann"]
        done = await browser.send("/ui/system/audit/verify", on="/ui/system/audit")
        assert done.status_code == 303
        assert "unbroken" in (await browser.get("/ui/system/audit")).text
        empty = await browser.get("/ui/system/audit?verb=nothing_of_the_kind")
        assert "No entry matches" in empty.text


async def test_settings_say_where_they_came_from_and_hide_secrets() -> None:
    async with browsing() as browser:
        page = await browser.get("/ui/system/settings?q=lease")
        assert "CHIMES_LEASE" in page.text
        assert "CHIMES_PORT" not in page.text


def test_nodes_that_are_gone_come_last_and_clocks_are_judged() -> None:
    gone = a_node("gone", lease_until=NOW - timedelta(seconds=1), heartbeat_at=NOW)
    off = a_node("off", lease_until=NOW + timedelta(seconds=9), heartbeat_at=NOW, clock_offset=-2.0)
    cards = node_cards([gone, off], {NodeId("off"): 3}, NOW)
    assert [(card.node.id, card.alive, card.clock_off) for card in cards] == [
        ("off", True, True),
        ("gone", False, False),
    ]
    assert cards[0].running == 3


def test_changes_are_pairs_or_what_came_after() -> None:
    entry = an_entry(changes={"name": ["a", "b"], "role": "admin", "x": [None, {"k": 1}]})
    assert [(c.field, c.before, c.after) for c in changes_of(entry)] == [
        ("name", "a", "b"),
        ("role", "", "admin"),
        ("x", "–", '{"k": 1}'),
    ]


def test_no_lag_is_an_empty_chart() -> None:
    assert lag_rows([]) == ()
    assert lag_data((), "UTC", 1.0)["times"] == []
