"""Maintenance in the native API: on, off, state, namespaces, audit."""

from __future__ import annotations

from datetime import timedelta

from chimes.model.listing import AuditQuery
from chimes.model.planning import MAX_WINDOWS, plan
from chimes.model.run import RunStatus
from chimes.store.port import read_maintenance
from tests.web.rig import Rig, serving

PATH = "/api/v1/maintenance"


async def test_on_and_off_change_no_schedule() -> None:
    async with serving() as rig:
        trigger = {"kind": "every", "every": "1m"}
        running = await rig.create(name="running", trigger=trigger)
        paused = await rig.create(name="paused", trigger=trigger, enabled=False)
        until = "2030-01-15T09:30:00Z"
        on = await rig.client.post(PATH, json={"until": until, "reason": "new disk"})
        assert on.json() == {
            "namespace": None,
            "since": "2030-01-15T09:00:00Z",
            "until": until,
            "reason": "new disk",
            "by": "system:default",
            "silence": False,
        }
        assert (await rig.client.get(PATH)).json() == {"items": [on.json()]}
        meanwhile = await rig.create(name="meanwhile", trigger=trigger)
        rig.clock.advance(timedelta(minutes=1))
        fired = await rig.store.fire_due(plan, limit=10)
        assert {run.status for run in fired.others} == {RunStatus.SKIPPED}
        # A manual run is a request of its own.
        assert (await _post(rig, f"/api/v1/schedules/{running['id']}/run")) == 202
        again = await rig.client.post(PATH, json={"reason": "longer"})
        assert (again.json()["until"], again.json()["since"]) == (None, on.json()["since"])
        assert (await rig.client.delete(PATH, params={"reason": "done"})).status_code == 204
        assert (await rig.client.get(PATH)).json() == {"items": []}
        rig.clock.advance(timedelta(minutes=1))
        fired = await rig.store.fire_due(plan, limit=10)
        assert {run.schedule_id for run in fired.others} == {running["id"], meanwhile["id"]}
        shown = (await rig.client.get(f"/api/v1/schedules/{paused['id']}")).json()
        assert (shown["enabled"], shown["version"]) == (False, 1)
        trail = await rig.store.list_audit(AuditQuery())
        kept = [(each.verb, each.object_id, each.reason) for each in trail]
        assert [each for each in kept if "maintenance" in each[0]] == [
            ("end_maintenance", "*", "done"),
            ("begin_maintenance", "*", "longer"),
            ("begin_maintenance", "*", "new disk"),
        ]


async def test_namespaces_and_errors() -> None:
    async with serving() as rig:
        assert await _post(rig, PATH, namespace="shop") == 200
        assert await _post(rig, PATH, namespace="native") == 200
        found = (await rig.client.get(PATH)).json()["items"]
        assert [each["namespace"] for each in found] == ["default", "shop"]
        wrong = await rig.client.delete(PATH)
        assert (wrong.status_code, wrong.json()["code"]) == (409, "not_in_maintenance")
        assert "default, shop" in wrong.json()["detail"]
        assert (await rig.client.delete(PATH, params={"namespace": "shop"})).status_code == 204
        assert (await rig.client.delete(PATH, params={"namespace": "shop"})).status_code == 409
        assert await _post(rig, PATH, until="2030-01-15T08:00:00Z") == 422
        assert await _post(rig, PATH, until="soon") == 422
        assert await _post(rig, PATH, until="2030-01-15T17:00", timezone="Asia/Bangkok") == 200
        assert await _post(rig, PATH, namespace="No Name") == 422


async def test_windows_that_are_on_are_never_dropped() -> None:
    async with serving() as rig:
        for number in range(MAX_WINDOWS - 2):
            assert await _post(rig, PATH, namespace=f"n{number}") == 200
            rig.clock.advance(timedelta(seconds=1))
        for number in range(10):
            assert await _post(rig, PATH, namespace=f"ended{number}") == 200
            assert await _delete(rig, f"ended{number}") == 204
            rig.clock.advance(timedelta(seconds=1))
        # One that has ended is dropped instead of older ones that are on.
        windows = await read_maintenance(rig.store)
        assert [each.namespace for each in windows if each.until] == ["ended8", "ended9"]
        assert await _post(rig, PATH) == 200
        assert await _post(rig, PATH, namespace="last") == 200
        assert {each.until for each in await read_maintenance(rig.store)} == {None}
        refused = await rig.client.post(PATH, json={"namespace": "more"})
        assert (refused.status_code, refused.json()["code"]) == (409, "too_many_windows")
        assert "100 maintenance windows" in refused.json()["detail"]
        # The one of the instance can still be changed.
        assert await _post(rig, PATH, reason="longer") == 200
        assert await _delete(rig, "n0") == 204
        assert await _post(rig, PATH, namespace="more") == 200


async def _delete(rig: Rig, namespace: str) -> int:
    return (await rig.client.delete(PATH, params={"namespace": namespace})).status_code


async def _post(rig: Rig, path: str, **body: str) -> int:
    return (await rig.client.post(path, json=body)).status_code
