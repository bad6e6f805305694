"""Runs, their logs, cancel and retry; nodes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.model.planning import plan
from tests.builders import LEASE, a_completion, a_node, claim_request, log_lines
from tests.web.rig import Rig


async def finished_run(rig: Rig) -> dict[str, Any]:
    """A run of a slot that was claimed on time and succeeded 1.5 s later."""
    made = await rig.create(trigger={"kind": "every", "every": "10s"})
    await rig.store.join(a_node(), LEASE)
    rig.clock.advance(10)
    fired = await rig.store.fire_due(plan, limit=10, request=claim_request())
    [run] = fired.claimed
    await rig.store.append_logs(
        run.id, run.fence, log_lines(*(f"line {number}" for number in range(3)))
    )
    rig.clock.advance(1.5)
    await rig.store.finish([a_completion(run, rig.clock.now(), result={"status": 200})])
    shown: dict[str, Any] = (await rig.client.get(f"/api/v1/runs/{run.id}")).json()
    assert shown["schedule_id"] == made["id"]
    return shown


async def test_completed_run_shows_its_attempts_and_result(any_rig: Rig) -> None:
    shown = await finished_run(any_rig)
    assert {
        name: shown[name]
        for name in ("slot", "planned_at", "started_at", "finished_at", "status", "origin")
    } == {
        "slot": "2030-01-15T09:00:10Z",
        "planned_at": "2030-01-15T09:00:10Z",
        "started_at": "2030-01-15T09:00:10Z",
        "finished_at": "2030-01-15T09:00:11.500000Z",
        "status": "succeeded",
        "origin": "schedule",
    }
    assert (shown["attempt"], shown["fence"], shown["missed_count"]) == (1, 1, 0)
    assert (shown["duration_ms"], shown["lag_ms"]) == (1500.0, 0.0)
    assert shown["result"] == {"status": 200}
    assert [attempt["end"] for attempt in shown["attempts"]] == ["succeeded"]
    schedule = (await any_rig.client.get(f"/api/v1/schedules/{shown['schedule_id']}")).json()
    assert (schedule["last_status"], schedule["fired_count"]) == ("succeeded", 1)


async def test_logs_are_read_after_a_line_number(any_rig: Rig) -> None:
    run = await finished_run(any_rig)
    path = f"/api/v1/runs/{run['id']}/logs"
    first = (await any_rig.client.get(path, params={"limit": 2})).json()
    assert [line["message"] for line in first["items"]] == ["line 0", "line 1"]
    rest = (await any_rig.client.get(path, params={"after": first["next_after"]})).json()
    assert [line["message"] for line in rest["items"]] == ["line 2"]
    assert rest["next_after"] is None


async def test_cancel(any_rig: Rig) -> None:
    made = await any_rig.create()
    run = (await any_rig.client.post(f"/api/v1/schedules/{made['id']}/run")).json()
    canceled = (await any_rig.client.post(f"/api/v1/runs/{run['id']}/cancel")).json()
    assert (canceled["status"], canceled["reason"]) == ("canceled", "canceled_by_hand")
    again = await any_rig.client.post(f"/api/v1/runs/{run['id']}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "ended")


async def test_retry_is_a_new_run(any_rig: Rig) -> None:
    run = await finished_run(any_rig)
    answer = await any_rig.client.post(f"/api/v1/runs/{run['id']}/retry", json={})
    again = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/api/v1/runs/{again['id']}"
    assert (again["retry_of"], again["origin"], again["slot"]) == (run["id"], "manual", None)
    waiting = await any_rig.client.post(f"/api/v1/runs/{again['id']}/retry")
    assert (waiting.status_code, waiting.json()["code"]) == (409, "not_ended")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("GET", "/logs"), ("POST", "/cancel"), ("POST", "/retry")],
)
async def test_unknown_runs_are_404(rig: Rig, method: str, path: str) -> None:
    answer = await rig.client.request(method, f"/api/v1/runs/nope{path}")
    assert answer.status_code == 404


async def test_runs_are_listed_and_filtered(any_rig: Rig) -> None:
    done = await finished_run(any_rig)
    made = await any_rig.create(name="other")
    any_rig.clock.advance(timedelta(seconds=1))
    queued = (await any_rig.client.post(f"/api/v1/schedules/{made['id']}/run")).json()

    async def found(**params: Any) -> list[str]:
        answer = await any_rig.client.get("/api/v1/runs", params=params)
        assert answer.status_code == 200, answer.text
        return [run["id"] for run in answer.json()["items"]]

    assert await found() == [queued["id"], done["id"]]
    assert await found(sort="created_at") == [done["id"], queued["id"]]
    assert await found(sort="-planned_at") == [queued["id"], done["id"]]
    assert await found(status="queued") == [queued["id"]]
    assert await found(status=["queued", "succeeded"]) == [queued["id"], done["id"]]
    assert await found(status="failed,succeeded") == [done["id"]]
    assert await found(schedule_id=made["id"]) == [queued["id"]]
    assert await found(origin="schedule") == [done["id"]]
    assert await found(since="2030-01-15T09:00:11Z") == [queued["id"]]
    assert await found(until="2030-01-15T16:00:11+07:00") == [done["id"]]
    own = await any_rig.client.get(f"/api/v1/schedules/{made['id']}/runs")
    assert [run["id"] for run in own.json()["items"]] == [queued["id"]]


async def test_nodes_and_system(any_rig: Rig) -> None:
    await finished_run(any_rig)
    nodes = (await any_rig.client.get("/api/v1/nodes")).json()["items"]
    assert [(node["id"], node["alive"]) for node in nodes] == [("node-1", True)]
    shown = (await any_rig.client.get("/api/v1/system")).json()
    assert (shown["version"], shown["open_mode"], shown["ready"]) == ("1.2.3", True, True)
    assert shown["schedules"] == {"total": 1, "enabled": 1, "due": 0}
    assert shown["runs"] == {"succeeded": 1}
