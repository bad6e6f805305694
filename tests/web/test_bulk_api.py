"""One action on many schedules, with a result for each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.model.access import Role
from chimes.model.listing import AuditQuery
from tests.builders import ALICE, BOB, NOW
from tests.web.rig import Rig

PATH = "/api/v1/schedules"
BULK = f"{PATH}/bulk"


async def bulk(rig: Rig, headers: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
    answer = await rig.client.post(BULK, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def results(found: dict[str, Any]) -> list[tuple[str | None, str]]:
    return [(each["name"], each["result"]) for each in found["items"]]


async def test_pause_resume_run_and_delete_many(any_rig: Rig) -> None:
    rig = any_rig
    for number in range(3):
        rig.clock.advance(1)
        await rig.create(name=f"s{number}", labels=["x"] if number < 2 else [])
    planned = await bulk(rig, action="pause", q="label:x", dry_run=True)
    assert results(planned) == [("s0", "planned"), ("s1", "planned")]
    assert (await rig.client.get(PATH, params={"q": "status:paused"})).json()["items"] == []
    until = (NOW + timedelta(days=400)).isoformat()
    paused = await bulk(rig, action="pause", q="label:x", reason="move", until=until)
    assert (results(paused), paused["done"]) == ([("s0", "done"), ("s1", "done")], 2)
    listed = (await rig.client.get(PATH, params={"q": "status:paused"})).json()["items"]
    assert [each["pause"]["note"] for each in listed] == ["move", "move"]
    entries = await rig.store.list_audit(AuditQuery(verb="pause"))
    assert [entry.reason for entry in entries] == ["move", "move"]
    # What the filter finds changes with the action; no schedule is left out.
    resumed = await bulk(rig, action="resume", q="status:paused", limit=1)
    assert results(resumed) == [("s0", "done")]
    more = await bulk(
        rig, action="resume", q="status:paused", limit=1, cursor=resumed["next_cursor"]
    )
    assert (results(more), more["next_cursor"]) == ([("s1", "done")], None)
    started = await bulk(rig, action="run", q="label:x")
    for each in started["items"]:
        run = (await rig.client.get(f"/api/v1/runs/{each['run_id']}")).json()
        assert (run["schedule_id"], run["origin"]) == (each["id"], "manual")
    deleted = await bulk(rig, action="delete", ids=[each["id"] for each in paused["items"]])
    assert (deleted["done"], deleted["failed"]) == (2, 0)
    left = (await rig.client.get(PATH)).json()["items"]
    assert [each["name"] for each in left] == ["s2"]


async def test_an_error_stops_only_its_schedule(rig: Rig) -> None:
    keys = {role: await rig.key(role, ALICE) for role in (Role.MEMBER, Role.VIEWER)}
    await rig.key(Role.ADMIN)
    mine = (
        await rig.client.post(
            PATH,
            json={
                "name": "mine",
                "trigger": {"kind": "cron", "expression": "0 9 * * *"},
                "target": {"kind": "http", "url": "http://127.0.0.1:9/"},
            },
            headers=keys[Role.MEMBER],
        )
    ).json()["id"]
    bob = await rig.key(Role.MEMBER, BOB)
    found = await bulk(rig, bob, action="pause", ids=[mine, "nothing"])
    assert [each["error"] for each in found["items"]] == [
        {"status": 404, "code": "not_found", "detail": f"schedule {each} not found"}
        for each in (mine, "nothing")
    ]
    assert found["failed"] == 2
    both = await bulk(rig, keys[Role.MEMBER], action="pause", ids=["nothing", mine, mine])
    assert [each["result"] for each in both["items"]] == ["failed", "done"]
    operator = await rig.key(Role.OPERATOR)
    for dry_run in (True, False):
        refused = await bulk(rig, operator, action="delete", ids=[mine], dry_run=dry_run)
        assert refused["items"][0]["error"]["status"] == 403
    assert (await bulk(rig, operator, action="run", ids=[mine]))["done"] == 1
    assert (await bulk(rig, bob, action="delete", q="status:paused"))["items"] == []
    viewer = await rig.client.post(
        BULK, json={"action": "pause", "ids": [mine]}, headers=keys[Role.VIEWER]
    )
    assert viewer.status_code == 403


async def test_invalid_requests_change_nothing(rig: Rig) -> None:
    made = (await rig.create())["id"]
    before = await rig.snapshot()
    for body, pointer in (
        ({"action": "pause"}, "/ids"),
        ({"action": "pause", "ids": [made], "q": "x"}, "/ids"),
        ({"action": "explode", "ids": [made]}, "/action"),
        ({"action": "pause", "ids": []}, "/ids"),
        ({"action": "pause", "q": ""}, "/q"),
        ({"action": "pause", "q": "staus:failed"}, "/q"),
        ({"action": "pause", "q": "x", "cursor": "nonsense"}, "/cursor"),
        ({"action": "pause", "ids": [made], "cursor": "nonsense"}, "/cursor"),
        ({"action": "pause", "ids": [made], "until": "soon"}, "/until"),
        ({"action": "pause", "ids": [made], "limit": 0}, "/limit"),
        ({"action": "pause", "ids": [made], "spelled": "wrong"}, "/spelled"),
    ):
        answer = await rig.client.post(BULK, json=body)
        assert answer.status_code == 422, (body, answer.text)
        assert answer.json()["errors"][0]["pointer"] == pointer, answer.text
    assert await rig.snapshot() == before


async def test_a_repeated_request_starts_no_second_runs(any_rig: Rig) -> None:
    rig = any_rig
    ids = [(await rig.create(name=f"s{number}"))["id"] for number in range(2)]
    key = {"Idempotency-Key": "night"}
    first = await bulk(rig, key, action="run", ids=ids)
    assert await bulk(rig, key, action="run", ids=ids) == first
    runs = (await rig.client.get("/api/v1/runs")).json()["items"]
    assert {each["id"] for each in runs} == {each["run_id"] for each in first["items"]}


async def test_a_long_action_continues_with_its_cursor(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chimes.web.bulk.MAX_SECONDS", 0.0)
    monkeypatch.setattr("chimes.web.bulk.BATCH_SIZE", 2)
    ids = []
    for number in range(5):
        rig.clock.advance(1)
        ids.append((await rig.create(name=f"s{number}"))["id"])
    for chosen in ({"ids": ids}, {"q": "status:enabled"}):
        seen: list[str] = []
        cursor = None
        while True:
            found = await bulk(rig, action="pause", cursor=cursor, **chosen)
            seen += [each["id"] for each in found["items"]]
            cursor = found["next_cursor"]
            if cursor is None:
                break
        assert seen == ids
        for each in ids:
            await rig.client.post(f"{PATH}/{each}/resume")
