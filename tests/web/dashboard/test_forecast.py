"""The simulator page and the page for cron expressions."""

from __future__ import annotations

import pytest

from chimes.config import Settings
from chimes.model.access import Role
from chimes.services.time_data import TimeDataService
from chimes.triggers import zones
from chimes.triggers.zones import Zone
from tests.web.dashboard.browsing import browsing


async def test_the_simulator_draws_what_would_happen() -> None:
    async with browsing() as browser:
        trigger = {"kind": "cron", "expression": "*/20 * * * *", "timezone": "UTC"}
        await browser.rig.create(name="often", trigger=trigger)
        page = await browser.get("/ui/simulate")
        assert page.status_code == 200
        # The command palette, after it, has icons.
        assert "<svg" not in page.text.split("<main")[1].split("</main>")[0]
        page = await browser.get("/ui/simulate?days=2&outage=tomorrow 01:30 3h")
        assert page.status_code == 200
        main = page.text.split("<main")[1]
        assert "Simulated runs</title>" in main
        assert 'class="s-missed"' in main
        assert "no node started it in time" in main
        # 9:00 until 9:00 two days later, without the nine slots of the outage but one.
        assert "<dt>Slots</dt><dd>144</dd>" in main
        assert "<dt>Missed</dt><dd>8</dd>" in main
        assert "<dd>2 h 50 min</dd>" in main
        for wrong in ("days=32", "days=x", "days=1&nodes=0", "days=1&outage=3h"):
            page = await browser.get(f"/ui/simulate?{wrong}")
            assert page.status_code == 422
            assert 'role="alert"' in page.text


async def test_cron_expressions_are_explained_in_three_languages() -> None:
    async with browsing() as browser:
        query = "expression=30+2+*+*+*&zone=America/New_York"
        page = await browser.get(f"/ui/cron?{query}")
        assert "Every day at 02:30, America/New_York time" in page.text
        assert "2030-01-16T07:30:00Z" in page.text
        assert "02:30 does not exist" in page.text or "no 02:30" in page.text
        assert "每天 02:30" in (await browser.get(f"/ui/cron?{query}&lang=zh")).text
        assert "ทุกวัน" in (await browser.get(f"/ui/cron?{query}&lang=th")).text
        page = await browser.get("/ui/cron?expression=99+*+*+*+*")
        assert (page.status_code, 'aria-describedby="e-expression"' in page.text) == (422, True)
        page = await browser.get("/ui/cron?expression=0+0+31+2+*")
        assert page.status_code == 422
        page = await browser.get("/ui/cron?expression=@daily&zone=Asia/Bankok")
        assert "Asia/Bangkok" in page.text


async def test_the_cron_page_needs_an_account_unless_the_operator_opens_it() -> None:
    async with browsing() as browser:
        await browser.rig.key(Role.ADMIN)
        page = await browser.get("/ui/cron?expression=@daily")
        assert page.headers["location"].startswith("/ui/login")
    async with browsing(settings=Settings(public_cron_page=True)) as browser:
        await browser.rig.key(Role.ADMIN)
        page = await browser.get("/ui/cron?expression=@daily")
        assert page.status_code == 200
        assert "Every day at 00:00" in page.text
        # Nothing else of the dashboard is shown.
        assert "/ui/schedules" not in page.text
        assert (await browser.get("/ui/simulate")).status_code == 303
        statuses = {(await browser.get("/ui/cron")).status_code for _number in range(40)}
        assert statuses == {200, 429}


async def test_fires_that_new_time_data_move_need_attention(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with browsing() as browser:
        rig = browser.rig
        trigger = {"kind": "cron", "expression": "0 12 1 7 *", "timezone": "Europe/Berlin"}
        made = await rig.create(name="summer", trigger=trigger)
        await TimeDataService(rig.store).check()
        winter = Zone.of_changes("Europe/Berlin", [], [3600])
        load = zones._load.__wrapped__
        monkeypatch.setattr(
            zones, "_load", lambda name: winter if name == "Europe/Berlin" else load(name)
        )
        await TimeDataService(rig.store).check()
        answer = (await rig.client.get("/api/v1/time-data")).json()
        assert answer["moves"][0] == {
            "schedule": made["id"],
            "name": "summer",
            "old": "2030-07-01T10:00:00Z",
            "new": "2030-07-01T11:00:00Z",
        }
        assert len(answer["versions"]) == 1
        page = await browser.get("/ui/attention")
        assert "New time-zone or holiday data move a fire: " in page.text
        assert "/ui/schedules/" + made["id"] in page.text
