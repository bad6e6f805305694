"""Requests shared by the tests of the KWeaver API."""

from __future__ import annotations

from typing import Any

from chimes.model.schedule import Schedule
from tests.web.rig import Rig

KN1 = "/knowledge-networks/kn1/action-schedules"
KN2 = "/knowledge-networks/kn2/action-schedules"
OBJECTS = [{"id": "pod-1"}, {"id": "pod-2", "ns": "main"}]


def body(**given: Any) -> dict[str, Any]:
    """A valid request body of a schedule."""
    return {
        "name": "restart pods",
        "action_type_id": "restart",
        "cron_expression": "*/5 * * * *",
        "_instance_identities": OBJECTS,
        "dynamic_params": {"force": True},
    } | given


async def create(
    rig: Rig, path: str = KN1, headers: dict[str, str] | None = None, **given: Any
) -> str:
    answer = await rig.client.post(path, json=body(**given), headers=headers or {})
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["id"]
    return found


async def fetch(rig: Rig, schedule_id: str, path: str = KN1, **named: Any) -> dict[str, Any]:
    answer = await rig.client.get(f"{path}/{schedule_id}", **named)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def stored(rig: Rig, schedule_id: str) -> Schedule:
    found = await rig.store.get_schedule(schedule_id)  # type: ignore[arg-type]
    assert found is not None
    return found


def milliseconds(rig: Rig) -> int:
    return round(rig.clock.now().timestamp() * 1000)
