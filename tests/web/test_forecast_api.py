"""Plans of changes, the load per minute and quieter times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from chimes.model.access import Owner, OwnerType, Role
from chimes.model.planning import plan as planner
from tests.ended_runs import ended
from tests.web.rig import Rig, serving

ANN, BEN = (Owner(type=OwnerType.USER, id=name) for name in ("ann", "ben"))


def cron(expression: str, **more: object) -> dict[str, object]:
    return {"kind": "cron", "expression": expression, "timezone": "UTC", **more}


async def plan(rig: Rig, *changes: dict[str, object], **more: Any) -> dict[str, Any]:
    headers = more.pop("headers", {})
    body = {"changes": list(changes), **more}
    answer = await rig.client.post("/api/v1/plan", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def times(rows: list[dict[str, Any]], name: str = "at") -> list[str]:
    return [row[name] for row in rows]


async def test_a_plan_is_what_then_happens_and_saves_nothing(rig: Rig) -> None:
    """The clock goes through the planned days, and the fires are those of the plan."""
    rig.clock.set(datetime(2030, 1, 14, 0, 30, tzinfo=UTC))
    daily = await rig.create(name="daily", trigger=cron("0 9 * * *"))
    gone = await rig.create(name="gone", trigger=cron("0 12 * * *"))
    new = {
        "name": "new",
        "trigger": cron("15 10 * * 1,3"),
        "target": {"kind": "http", "url": "http://127.0.0.1:9/"},
    }
    patch = {"trigger": cron("0 9,18 * * 1-5")}
    before = await rig.snapshot()
    found = await plan(
        rig,
        {"schedule": daily["id"], "patch": patch},
        {"delete": gone["id"]},
        {"create": new},
        days=3,
    )
    assert await rig.snapshot() == before
    assert found["moved"] == []
    assert found["until"] == "2030-01-17T00:30:00Z"

    def expected(name: str) -> dict[str | None, list[str]]:
        rows: dict[str | None, list[str]] = {}
        for row in found[name]:
            rows.setdefault(row["schedule"], []).append(row["at"])
        return rows

    assert expected("dropped") == {gone["id"]: [f"2030-01-{day}T12:00:00Z" for day in (14, 15, 16)]}
    kept = [f"2030-01-{day}T09:00:00Z" for day in (14, 15, 16)]
    assert {row["name"] for row in found["added"] if row["schedule"] is None} == {"new"}

    await rig.client.patch(f"/api/v1/schedules/{daily['id']}", json=patch)
    await rig.client.delete(f"/api/v1/schedules/{gone['id']}")
    made = await rig.create(**new)
    fired: dict[str, list[str]] = {}
    end = rig.clock.now() + timedelta(days=3)
    while (due := await rig.store.next_due()) is not None and due <= end:
        rig.clock.set(due)
        for run in (await rig.store.fire_due(planner, limit=100)).others:
            fired.setdefault(str(run.schedule_id), []).append(
                f"{run.planned_at:%Y-%m-%dT%H:%M:%SZ}"
            )
    added = expected("added")
    assert fired == {
        daily["id"]: sorted(kept + added[daily["id"]]),
        made["id"]: added[None],
    }


async def test_only_calendars_and_moves_shift_fires(rig: Rig) -> None:
    weekly = await rig.create(name="weekly", trigger=cron("0 9 * * 1"))
    edited = {"trigger": cron("0 10 * * 1")}
    found = await plan(rig, {"schedule": weekly["id"], "patch": edited})
    assert (times(found["dropped"]), times(found["added"]), found["moved"]) == (
        ["2030-01-21T09:00:00Z"],
        ["2030-01-21T10:00:00Z"],
        [],
    )
    closed = {"dates": ["2030-01-21"], "on_excluded": "next"}
    found = await plan(
        rig, {"schedule": weekly["id"], "patch": {"trigger": cron("0 9 * * 1", exclude=[closed])}}
    )
    assert (found["added"], found["dropped"]) == ([], [])
    assert found["moved"] == [
        {
            "schedule": weekly["id"],
            "name": "weekly",
            "from": "2030-01-21T09:00:00Z",
            "to": "2030-01-22T09:00:00Z",
        }
    ]


async def test_collisions_and_daily_load_count_the_other_schedules(rig: Rig) -> None:
    first = await rig.create(name="first", trigger=cron("0 9 * * *"))
    await rig.create(name="paused", trigger=cron("0 9 * * *"), enabled=False)
    await rig.create(name="elsewhere", trigger=cron("30 9 * * *"))
    new = {"name": "new", "trigger": cron("0 9 * * 3"), "target": {"url": "http://127.0.0.1:9/"}}
    found = await plan(rig, {"create": new}, days=2)
    assert found["collisions"] == [
        {
            "schedule": None,
            "name": "new",
            "at": "2030-01-16T09:00:00Z",
            "others": 1,
            "with": [{"schedule": first["id"], "name": "first"}],
        }
    ]
    assert found["load"] == [
        {"day": "2030-01-15", "before": 1, "after": 1},
        {"day": "2030-01-16", "before": 2, "after": 3},
        {"day": "2030-01-17", "before": 1, "after": 1},
    ]


async def test_a_plan_has_the_errors_of_the_change(rig: Rig) -> None:
    known = await rig.create()
    for changes, status, pointer in (
        ([{"schedule": "no-such", "patch": {}}], 404, None),
        ([{"delete": "no-such"}], 404, None),
        ([{"schedule": known["id"]}], 422, "/changes/0"),
        ([{"delete": known["id"]}, {"delete": known["id"]}], 422, "/changes/1/delete"),
        (
            [{"schedule": known["id"], "patch": {"trigger": cron("0 0 31 2 *")}}],
            422,
            "/changes/0/patch/trigger",
        ),
        ([], 422, "/changes"),
    ):
        answer = await rig.client.post("/api/v1/plan", json={"changes": changes})
        assert answer.status_code == status, answer.text
        if pointer:
            assert answer.json()["errors"][0]["pointer"] == pointer


async def test_another_owner_is_never_seen() -> None:
    """Neither in a plan nor in a forecast nor in a suggestion."""
    async with serving() as rig:
        ann, ben = await rig.key(Role.MEMBER, ANN), await rig.key(Role.MEMBER, BEN)
        body = {"name": "s", "trigger": cron("0 9 * * *"), "target": {"url": "http://127.0.0.1:9/"}}
        answer = await rig.client.post("/api/v1/schedules", json=body, headers=ben)
        theirs = answer.json()["id"]
        changes = ({"schedule": theirs, "patch": {"priority": 1}}, {"delete": theirs})
        for change in changes:
            answer = await rig.client.post("/api/v1/plan", json={"changes": [change]}, headers=ann)
            assert answer.status_code == 404
        found = await plan(rig, {"create": body}, headers=ann)
        assert (found["collisions"], found["load"][-1]["before"]) == ([], 0)
        answer = await rig.client.get("/api/v1/forecast", headers=ann)
        assert answer.json()["minutes"] == answer.json()["schedules"] == []
        answer = await rig.client.post("/api/v1/suggest", json={"schedule": theirs}, headers=ann)
        assert answer.status_code == 404
        answer = await rig.client.post(
            "/api/v1/suggest", json={"trigger": body["trigger"]}, headers=ann
        )
        assert answer.json()["runs"] == 0
        # A key that may only read plans, too.
        reader = await rig.key(Role.VIEWER, BEN)
        found = await plan(rig, {"delete": theirs}, headers=reader)
        assert len(found["dropped"]) == 7


async def test_the_forecast_has_minutes_with_their_busy_seconds(rig: Rig) -> None:
    busy = await rig.create(name="busy", trigger=cron("0 * * * *"))
    schedule = await rig.store.get_schedule(busy["id"])
    assert schedule is not None
    hour, now = timedelta(hours=1), rig.clock.now()
    await rig.store.add_runs(
        [
            ended(now - number * hour, schedule=schedule, took=timedelta(seconds=seconds))
            for number, seconds in enumerate([4, 5, 6], start=1)
        ]
    )
    for number in range(12):
        await rig.create(name=f"crowd {number}", trigger=cron("0 2 * * *"))
    answer = await rig.client.get("/api/v1/forecast", params={"days": 1})
    found = answer.json()
    by_time = {row["at"]: row for row in found["minutes"]}
    assert len(by_time) == 24
    assert by_time["2030-01-15T15:00:00Z"] == {
        "at": "2030-01-15T15:00:00Z",
        "runs": 1,
        "busy_seconds": 5.0,
        "hot": False,
    }
    assert by_time["2030-01-16T02:00:00Z"]["runs"] == 13
    assert [at for at, row in by_time.items() if row["hot"]] == ["2030-01-16T02:00:00Z"]


async def test_a_quieter_minute_is_suggested(rig: Rig) -> None:
    for number in range(4):
        await rig.create(name=f"crowd {number}", trigger=cron("0 2 * * *"))
    await rig.create(name="one", trigger=cron("1 2 * * *"))
    trigger = cron("0 2 * * *")
    found = (await rig.client.post("/api/v1/suggest", json={"trigger": trigger})).json()
    assert (found["runs"], found["at"]) == (4, "2030-01-16T02:00:00Z")
    assert [(row["trigger"]["expression"], row["runs"]) for row in found["suggestions"]] == [
        ("2 2 * * *", 0),
        ("3 2 * * *", 0),
        ("4 2 * * *", 0),
    ]
    quiet = (await rig.client.post("/api/v1/suggest", json={"trigger": cron("7 * * * *")})).json()
    assert (quiet["runs"], quiet["suggestions"]) == (0, [])
