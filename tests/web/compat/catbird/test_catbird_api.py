"""Catbird API: `GET /api/schedules`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from chimes.model.access import Role
from chimes.model.planning import plan
from chimes.model.target import FlowTarget, TaskTarget
from chimes.testing import SettableClock
from chimes.triggers import Cron, Every, Once, Trigger
from chimes.triggers.text import format_trigger_text
from chimes.web.compat.catbird import routes
from chimes.web.compat.catbird.routes import catbird_router
from chimes.web.compat.catbird.translate import row_from_schedule, time_out
from tests.builders import ALICE, BOB, NOW, SECOND, a_schedule
from tests.web.rig import Rig, serving

KEYS = ["name", "kind", "cron_spec", "next_run_at", "last_run_at", "enabled"]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving() as rig:
        rig.app.include_router(catbird_router(rig.context))
        yield rig


async def rows(rig: Rig, headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    answer = await rig.client.get("/api/schedules", headers=headers or {})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    found: list[dict[str, Any]] = answer.json()
    return found


async def test_empty_store_returns_an_empty_list(rig: Rig) -> None:
    assert await rows(rig) == []


async def test_rows_have_exactly_the_catbird_keys(rig: Rig) -> None:
    await rig.create(name="report")
    assert await rows(rig) == [
        {
            "name": "report",
            "kind": "http",
            "cron_spec": "0 9 * * *",
            "next_run_at": "2030-01-16T02:00:00Z",
            "last_run_at": None,
            "enabled": True,
        }
    ]
    assert list((await rows(rig))[0]) == KEYS


async def test_last_run_at_is_the_last_fired_slot(rig: Rig) -> None:
    await rig.create(trigger={"kind": "every", "every": "10s"})
    rig.clock.advance(10)
    await rig.store.fire_due(plan, limit=10)
    [row] = await rows(rig)
    assert (row["last_run_at"], row["next_run_at"]) == (
        "2030-01-15T09:00:10Z",
        "2030-01-15T09:00:20Z",
    )


async def test_rows_are_ordered_by_next_run_with_null_last(rig: Rig) -> None:
    for name, every in (("b", "2m"), ("a", "1m"), ("c", "3m")):
        await rig.create(name=name, trigger={"kind": "every", "every": every})
    await rig.create(name="paused", enabled=False)
    found = await rows(rig)
    assert [row["name"] for row in found] == ["a", "b", "c", "paused"]
    assert (found[-1]["next_run_at"], found[-1]["enabled"]) == (None, False)


async def test_all_schedules_are_in_one_response(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PAGE", 3)
    for number in range(10):
        await rig.create(name=f"n{number}", enabled=number % 2 == 0)
    found = await rows(rig)
    assert sorted(row["name"] for row in found) == [f"n{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (Cron("@hourly"), "@hourly"),
        (Cron("0 2 * * 0"), "0 2 * * 0"),
        (Every("5m"), "@every 5m"),
        (Every("1h"), "@every 1h"),
        (Every("90s"), "@every 1m30s"),
        (Every("250ms"), "@every 250ms"),
        (Once("2030-02-10T09:00:00+07:00"), "2030-02-10T02:00:00Z"),
    ],
    ids=str,
)
def test_every_trigger_is_shown_as_one_text(trigger: Trigger, text: str) -> None:
    assert format_trigger_text(trigger) == text


def test_tasks_and_flows_have_catbird_kinds() -> None:
    task = row_from_schedule(a_schedule(target=TaskTarget(name="t")))
    flow = row_from_schedule(a_schedule(target=FlowTarget(name="f")))
    assert (task["kind"], flow["kind"]) == ("task", "flow")


def test_times_have_fractions_only_if_needed() -> None:
    assert time_out(NOW) == "2030-01-15T09:00:00Z"
    assert time_out(NOW + SECOND / 2) == "2030-01-15T09:00:00.5Z"


async def test_visible_schedules_by_key() -> None:
    async with serving(clock=SettableClock()) as rig:
        rig.app.include_router(catbird_router(rig.context))
        alice, bob = await rig.key(Role.MEMBER, ALICE), await rig.key(Role.VIEWER, BOB)
        operator = await rig.key(Role.OPERATOR)
        for headers, name in ((alice, "hers"),):
            await rig.client.post(
                "/api/v1/schedules",
                json={
                    "name": name,
                    "trigger": {"kind": "every", "every": "1h"},
                    "target": {"url": "http://example.com/"},
                },
                headers=headers,
            )
        assert [row["name"] for row in await rows(rig, alice)] == ["hers"]
        assert await rows(rig, bob) == []
        assert [row["name"] for row in await rows(rig, operator)] == ["hers"]
        stranger = await rig.client.get("/api/schedules")
        assert stranger.status_code == 401
        assert stranger.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_other_methods_are_not_allowed(rig: Rig, method: str) -> None:
    assert (await rig.client.request(method, "/api/schedules")).status_code == 405
