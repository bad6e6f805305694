"""Sync targets through the native API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from chimes.model.run import AttemptEnd
from chimes.model.sync import HIGH, Collection, Source, Sources
from chimes.model.sync import NOW as NOW_CLASS
from chimes.model.target import SyncTarget
from chimes.web.compat.ksana.routes import ksana_router
from tests.builders import HOUR, a_completion, a_node, claim_request
from tests.web.rig import HTTP, Rig, definition, serving

ORDERS = SyncTarget(source="shop", collection="orders")
TARGET = {"kind": "sync", "source": "shop", "collection": "orders"}
FILE = Sources(
    by_id={
        "shop": Source(
            id="shop",
            driver="python",
            collections=(Collection(name="orders"), Collection(name="clients", priority=100)),
        )
    }
)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with serving(sources=FILE) as found:
        yield found


async def rejection(rig: Rig, method: str, path: str, body: dict[str, Any]) -> tuple[str, str, Any]:
    answer = await rig.client.request(method, f"/api/v1{path}", json=body)
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    return error["pointer"], error["code"], error.get("hint")


async def test_sync_schedule_has_the_defaults_of_its_pair(rig: Rig) -> None:
    made = await rig.create(target=TARGET)
    assert made["target"] == TARGET
    assert made["priority"] == HIGH
    policy = made["policy"]
    assert (policy["overlap"], policy["max_concurrent_runs"]) == ("skip", 1)
    assert (policy["concurrency_key"], policy["timeout"]) == ("sync:shop#orders", "PT1H")
    assert (policy["misfire"], policy["max_retries"]) == ("skip", 0)
    own = await rig.create(target=TARGET, priority=7, policy={"misfire": "one", "timeout": "PT5M"})
    assert (own["priority"], own["policy"]["misfire"], own["policy"]["timeout"]) == (
        7,
        "one",
        "PT5M",
    )


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"kind": "sync", "source": "shop"}, ("/target/collection", "missing", None)),
        ({"kind": "sync", "collection": "orders"}, ("/target/source", "missing", None)),
        (TARGET | {"url": "x"}, ("/target/url", "unknown_field", None)),
        (TARGET | {"source": "a b"}, ("/target/source", "bad_name", None)),
        (
            TARGET | {"collection": "ordres"},
            ("/target/collection", "unknown_collection", "did you mean orders?"),
        ),
        (TARGET | {"source": "shup"}, ("/target/source", "unknown_source", "did you mean shop?")),
    ],
)
async def test_invalid_sync_targets_are_rejected(
    rig: Rig, target: dict[str, str], expected: tuple[str, str, Any]
) -> None:
    body = definition(target=target)
    assert await rejection(rig, "POST", "/schedules", body) == expected
    assert await rejection(rig, "POST", "/runs", {"target": target}) == expected


async def test_policy_with_concurrent_sync_runs_is_rejected(rig: Rig) -> None:
    made = await rig.create(target=TARGET)
    for policy in (
        {"overlap": "allow"},
        {"max_concurrent_runs": 2},
        {"burst_allowed": True},
        {"concurrency_key": "mine"},
    ):
        (name,) = policy
        for method, path, body in (
            ("POST", "/schedules", definition(target=TARGET, policy=policy)),
            ("POST", "/runs", {"target": TARGET, "policy": policy}),
            ("PATCH", f"/schedules/{made['id']}", {"policy": policy}),
        ):
            found = await rejection(rig, method, path, body)
            assert found[:2] == (f"/policy/{name}", "one_at_a_time")


async def test_patch_changes_to_and_from_a_sync_target(rig: Rig) -> None:
    made = await rig.create()
    path = f"/api/v1/schedules/{made['id']}"

    async def patched(**body: Any) -> dict[str, Any]:
        answer = await rig.client.patch(path, json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    turned = await patched(target=TARGET)
    assert (turned["target"], turned["priority"]) == (TARGET, HIGH)
    assert turned["policy"]["concurrency_key"] == "sync:shop#orders"
    other = await patched(target={"collection": "clients"})
    assert other["target"] == TARGET | {"collection": "clients"}
    assert other["policy"]["concurrency_key"] == "sync:shop#clients"
    assert other["priority"] == 100
    assert await rejection(
        rig, "PATCH", path.removeprefix("/api/v1"), {"target": {"url": "x"}}
    ) == (
        "/target/url",
        "unknown_field",
        None,
    )
    missing = {"target": {"collection": "nothing"}}
    found = await rejection(rig, "PATCH", path.removeprefix("/api/v1"), missing)
    assert found[:2] == ("/target/collection", "unknown_collection")
    back = await patched(target=HTTP)
    assert back["policy"]["concurrency_key"] is None
    assert back["target"]["kind"] == "http"


# 202 for a new run, 200 for the active one.
async def test_request_for_an_active_pair_returns_its_run(rig: Rig) -> None:
    schedule = (await rig.create(target=TARGET))["id"]
    first = await rig.client.post("/api/v1/runs", json={"target": TARGET})
    assert first.status_code == 202
    assert first.json()["priority"] == NOW_CLASS
    for path, body in (
        ("/runs", {"target": TARGET}),
        (f"/schedules/{schedule}/run", {}),
        (f"/schedules/{schedule}/run", {"beside_others": True}),
    ):
        again = await rig.client.post(f"/api/v1{path}", json=body)
        assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
        assert again.headers["location"] == first.headers["location"]
    await rig.store.join(a_node(capabilities=(ORDERS.requirement,)), HOUR)
    (run,) = await rig.store.claim(claim_request(capabilities=frozenset({ORDERS.requirement})))
    await rig.store.finish([a_completion(run, rig.clock.now(), AttemptEnd.FAILED)])
    retried = await rig.client.post(f"/api/v1/runs/{run.id}/retry")
    assert (retried.status_code, retried.json()["retry_of"]) == (202, run.id)
    busy = await rig.client.post(f"/api/v1/runs/{run.id}/retry")
    assert (busy.status_code, busy.json()["id"]) == (200, retried.json()["id"])


async def test_repeated_request_gets_the_first_response(rig: Rig) -> None:
    key = {"Idempotency-Key": "once"}
    answers = [
        await rig.client.post("/api/v1/runs", json={"target": TARGET}, headers=key)
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()


async def test_backfill_of_a_sync_schedule_is_rejected(rig: Rig) -> None:
    schedule = (await rig.create(target=TARGET))["id"]
    window = {"from": "2030-01-01T00:00:00Z", "to": "2030-01-02T00:00:00Z"}
    found = await rejection(rig, "POST", f"/schedules/{schedule}/backfill", window)
    assert found[1] == "not_slot_bound"


async def test_ksana_api_shows_sync_jobs() -> None:
    async with serving(sources=FILE, routers=[ksana_router]) as rig:
        made = await rig.create(target=TARGET)
        job = (await rig.client.get(f"/jobs/{made['id']}")).json()
        assert (job["type"], job["sync"]) == ("sync", {"source": "shop", "collection": "orders"})
        assert job["http"]["url"] == ""
        ran = await rig.client.post(f"/jobs/{made['id']}/run-now")
        again = await rig.client.post(f"/jobs/{made['id']}/run-now")
        assert ran.headers["x-ksana-run-id"] == again.headers["x-ksana-run-id"]
