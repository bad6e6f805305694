"""Task and flow targets: accepted only with a capable node, shown without secrets."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.model.validation import MAX_ARGUMENT_BYTES
from tests.builders import LEASE, NOW, ODD_JSON, a_node
from tests.tables import each_row
from tests.web.rig import CRON, HTTP, Rig

PATH = "/api/v1/schedules"
CAPABILITIES = ("http", "task:reports.nightly", "task:greet", "flow:pipeline", "task:pipeline/load")


def body(**target: Any) -> dict[str, Any]:
    return {"name": "n", "trigger": CRON, "target": target}


async def join_node(rig: Rig) -> None:
    await rig.store.join(a_node(capabilities=CAPABILITIES), LEASE)


async def test_task_and_flow_round_trip(any_rig: Rig) -> None:
    await join_node(any_rig)
    for target in (
        {"kind": "task", "name": "reports.nightly", "args": ODD_JSON},
        {"kind": "flow", "name": "pipeline", "input": ODD_JSON},
    ):
        made = await any_rig.create(name=target["kind"], target=target)
        assert made["target"] == target
        assert (await any_rig.client.get(f"{PATH}/{made['id']}")).json() == made


async def test_omitted_task_fields_are_empty(rig: Rig) -> None:
    await join_node(rig)
    made = await rig.create(target={"kind": "task", "name": "greet"})
    assert made["target"] == {"kind": "task", "name": "greet", "args": {}}
    flow = await rig.create(target={"kind": "flow", "name": "pipeline"})
    assert flow["target"] == {"kind": "flow", "name": "pipeline", "input": {}}
    plain = await rig.create(target={"url": "http://127.0.0.1:9/"})
    assert plain["target"]["kind"] == "http"


async def test_defaults_depend_on_the_kind(rig: Rig) -> None:
    await join_node(rig)
    found = {}
    for target in (HTTP, {"kind": "task", "name": "greet"}, {"kind": "flow", "name": "pipeline"}):
        policy = (await rig.create(target=target))["policy"]
        found[target["kind"]] = (policy["max_retries"], policy["timeout"])
    assert found == {"http": (3, "PT10S"), "task": (0, "PT5M"), "flow": (0, "P1D")}
    created = await rig.create(
        target={"kind": "task", "name": "greet"}, policy={"max_retries": 2, "timeout": "1h"}
    )
    assert (created["policy"]["max_retries"], created["policy"]["timeout"]) == (2, "PT1H")


@pytest.mark.parametrize(
    ("target", "too_long"),
    [
        (HTTP, "16m"),
        ({"kind": "task", "name": "greet"}, "P8D"),
        ({"kind": "flow", "name": "pipeline"}, "P366D"),
    ],
)
async def test_too_long_timeout_is_rejected(
    rig: Rig, target: dict[str, Any], too_long: str
) -> None:
    await join_node(rig)
    sent = body(**target) | {"policy": {"timeout": too_long}}
    answer = await rig.client.post(PATH, json=sent)
    assert (answer.status_code, answer.json()["code"]) == (422, "out_of_range")
    assert answer.json()["errors"][0]["pointer"] == "/policy/timeout"


@each_row(
    ("target", "pointer", "code", "hint"),
    [
        ({"kind": "task", "name": "os:system"}, "/target/name", "bad_name", None),
        ({"kind": "task", "name": "../evil.py"}, "/target/name", "bad_name", None),
        ({"kind": "task", "name": ""}, "/target/name", "bad_name", None),
        ({"kind": "task", "name": "x" * 201}, "/target/name", "bad_name", None),
        ({"kind": "task", "name": "pipeline/load"}, "/target/name", "bad_name", None),
        ({"kind": "tsk", "name": "greet"}, "/target/kind", "unknown_kind", "did you mean task?"),
        ({"kind": "task"}, "/target/name", "missing", None),
        ({"kind": "task", "name": "greet", "url": "x"}, "/target", "unknown_field", None),
        ({"kind": "task", "name": "greet", "args": [1]}, "/target/args", "dict_type", None),
        ({"kind": "http"}, "/target/url", "missing", None),
        (
            {"kind": "task", "name": "greet", "args": {"a": "x" * MAX_ARGUMENT_BYTES}},
            "/target/args",
            "too_long",
            None,
        ),
    ],
)
async def test_invalid_targets_are_rejected(
    rig: Rig, target: dict[str, Any], pointer: str, code: str, hint: str | None
) -> None:
    await join_node(rig)
    before = await rig.snapshot()
    answer = await rig.client.post(PATH, json=body(**target))
    assert answer.status_code == 422, answer.text
    first = answer.json()["errors"][0]
    assert (first["pointer"].removesuffix("/url"), first["code"]) == (
        pointer.removesuffix("/url"),
        code,
    )
    if hint is not None:
        assert first["hint"].startswith(hint)
    if code == "bad_name":
        assert "pipeline/load" not in first.get("hint", "")
    assert await rig.snapshot() == before


async def test_openapi_lists_every_target_kind(rig: Rig) -> None:
    document = (await rig.client.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    for body in ("ScheduleIn", "StartIn"):
        assert schemas[body]["properties"]["target"]["$ref"] == "#/components/schemas/TargetIn"
    for target in (schemas["TargetIn"], schemas["Target"]):
        assert set(target["discriminator"]["mapping"]) == {
            "http",
            "task",
            "flow",
            "sync",
            "agent",
            "action",
            "message",
            "command",
            "celery",
            "dask",
            "kubernetes",
            "amqp",
            "nats",
            "redis_stream",
            "kafka",
        }
        assert len(target["oneOf"]) == 15
    assert schemas["TaskTargetIn"]["required"] == ["kind", "name"]
    assert schemas["HttpTargetIn"]["required"] == ["url"]


async def test_target_that_is_not_an_object_is_rejected(rig: Rig) -> None:
    answer = await rig.client.post(PATH, json={"name": "n", "trigger": CRON, "target": "greet"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/target"


@each_row(
    ("target", "code", "hint"),
    [
        ({"kind": "task", "name": "os.system"}, "unknown_task", ""),
        ({"kind": "task", "name": "reports.nightlly"}, "unknown_task", "reports.nightly?"),
        ({"kind": "flow", "name": "greet"}, "unknown_flow", ""),
        ({"kind": "flow", "name": "pipelin"}, "unknown_flow", "pipeline?"),
    ],
)
async def test_a_target_that_no_node_offers_is_saved_with_a_warning(
    rig: Rig, target: dict[str, Any], code: str, hint: str
) -> None:
    await join_node(rig)
    answer = await rig.client.post(PATH, json=body(**target) | {"name": target["name"]})
    assert answer.status_code == 201, answer.text
    [warning] = answer.json()["warnings"]
    assert (warning["code"], warning["field"]) == (code, "target.name")
    assert ("did you mean" in warning["message"]) == bool(hint)
    assert warning["message"].endswith(hint)
    assert "pipeline/load" not in warning["message"]
    # A run without a schedule is still refused: it would only wait.
    refused = await rig.client.post("/api/v1/runs", json={"target": target})
    assert (refused.status_code, refused.json()["code"]) == (422, code)


async def test_targets_of_nodes_with_an_expired_lease_are_unknown(rig: Rig) -> None:
    await join_node(rig)
    made = await rig.create(target={"kind": "task", "name": "greet"})
    assert made["warnings"] == []
    rig.clock.advance(LEASE + timedelta(seconds=1))
    answer = await rig.client.post(PATH, json=body(kind="task", name="greet"))
    assert [each["code"] for each in answer.json()["warnings"]] == ["unknown_task"]
    # A saved target can be changed while no node has its capability.
    path = f"{PATH}/{made['id']}"
    changed = await rig.client.patch(path, json={"target": {"args": {"a": 1}}, "priority": 3})
    assert changed.status_code == 200, changed.text
    other = await rig.client.patch(path, json={"target": {"name": "reports.nightly"}})
    assert other.status_code == 200, other.text
    assert "'reports.nightly'" in other.json()["warnings"][0]["message"]


async def test_patch_within_a_target_kind_merges_fields(rig: Rig) -> None:
    await join_node(rig)
    made = await rig.create(target={"kind": "task", "name": "greet", "args": {"a": 1, "b": 2}})
    path = f"{PATH}/{made['id']}"
    for patch, shown in (
        ({"args": {"a": 3}}, {"kind": "task", "name": "greet", "args": {"a": 3}}),
        (
            {"kind": "task", "name": "reports.nightly"},
            {"kind": "task", "name": "reports.nightly", "args": {"a": 3}},
        ),
        (
            {"kind": "flow", "name": "pipeline"},
            {"kind": "flow", "name": "pipeline", "input": {}},
        ),
        ({"input": {"x": [1]}}, {"kind": "flow", "name": "pipeline", "input": {"x": [1]}}),
    ):
        answer = await rig.client.patch(path, json={"target": patch})
        assert answer.status_code == 200, answer.text
        assert answer.json()["target"] == shown
    http = await rig.client.patch(path, json={"target": {"kind": "http", "url": HTTP["url"]}})
    assert http.json()["target"]["method"] == "POST"
    assert http.json()["version"] == 6


@pytest.mark.parametrize(
    ("patch", "code", "pointer"),
    [
        ({"url": "http://127.0.0.1/"}, "unknown_field", "/target/url"),
        ({"input": {}}, "unknown_field", "/target/input"),
        ({"kind": "flow"}, "missing", "/target/name"),
        ({"kind": "http", "method": "GET"}, "missing", "/target/url"),
        ({"kind": "shell"}, "literal_error", "/target/kind"),
        ({"arg": {}}, "unknown_field", "/target"),
        ({"args": None}, "dict_type", "/target/args"),
    ],
)
async def test_incompatible_target_patches_are_rejected(
    rig: Rig, patch: dict[str, Any], code: str, pointer: str
) -> None:
    await join_node(rig)
    made = await rig.create(target={"kind": "task", "name": "greet"})
    answer = await rig.client.patch(f"{PATH}/{made['id']}", json={"target": patch})
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)


async def test_secret_arguments_are_masked_and_kept(any_rig: Rig) -> None:
    await join_node(any_rig)
    secrets = {
        "api_key": "hush-1",
        "deep": {"password": "hush-2", "list": [{"token": "hush-3"}], "code": "USD"},
        "empty_secret": "",
    }
    hidden = {
        "api_key": "***",
        "deep": {"password": "***", "list": [{"token": "***"}], "code": "USD"},
        "empty_secret": "",
    }
    made = await any_rig.create(target={"kind": "task", "name": "greet", "args": secrets})
    assert made["target"]["args"] == hidden
    path = f"{PATH}/{made['id']}"
    changed = await any_rig.client.patch(
        path, json={"target": {"args": {**hidden, "api_key": "hush-4", "more": 1}}}
    )
    assert changed.json()["target"]["args"] == {**hidden, "more": 1}
    stored = (await any_rig.store.get_schedule(made["id"])).target  # type: ignore[union-attr]
    assert stored.args == {**secrets, "api_key": "hush-4", "more": 1}  # type: ignore[union-attr]
    run = (await any_rig.client.post(f"{path}/run")).json()
    seen = [
        (await any_rig.client.get(each)).text
        for each in (PATH, path, "/api/v1/audit", "/api/v1/runs", f"/api/v1/runs/{run['id']}")
    ]
    assert not any("hush" in each for each in seen)


# --- runs without a schedule ------------------------------------------------------------------
async def test_run_without_a_schedule(any_rig: Rig) -> None:
    await join_node(any_rig)
    answer = await any_rig.client.post(
        "/api/v1/runs",
        json={
            "target": {"kind": "task", "name": "greet", "args": {"name": "Ada"}},
            "name": "hello",
            "priority": 7,
            "policy": {"max_retries": 1, "concurrency_key": "greetings"},
        },
    )
    assert answer.status_code == 202, answer.text
    run = answer.json()
    assert answer.headers["location"] == f"/api/v1/runs/{run['id']}"
    assert {
        name: run[name]
        for name in ("schedule_id", "schedule_name", "slot", "origin", "status", "priority")
    } == {
        "schedule_id": None,
        "schedule_name": "hello",
        "slot": None,
        "origin": "manual",
        "status": "queued",
        "priority": 7,
    }
    assert run["target"] == {"kind": "task", "name": "greet", "args": {"name": "Ada"}}
    assert (await any_rig.client.get(answer.headers["location"])).json() == run
    stored = await any_rig.store.get_run(run["id"])
    assert stored is not None
    assert (stored.policy.max_retries, stored.policy.timeout) == (1, timedelta(minutes=5))
    assert (stored.concurrency_key, stored.concurrency_limit) == ("system:default/greetings", 1)
    audit = (await any_rig.client.get("/api/v1/audit")).json()["items"][0]
    assert (audit["verb"], audit["object_id"]) == ("start", run["id"])


async def test_run_can_be_scheduled_for_a_later_time(rig: Rig) -> None:
    later = await rig.client.post(
        "/api/v1/runs", json={"target": HTTP, "at": "2030-01-15T10:00:00Z"}
    )
    assert later.json()["available_at"] == "2030-01-15T10:00:00Z"
    past = await rig.client.post(
        "/api/v1/runs", json={"target": HTTP, "at": "2029-01-15T10:00:00Z"}
    )
    assert past.json()["available_at"] == past.json()["created_at"]
    far = await rig.client.post("/api/v1/runs", json={"target": HTTP, "at": "2032-01-15T10:00:00Z"})
    assert (far.status_code, far.json()["errors"][0]["pointer"]) == (422, "/at")


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"target": {"kind": "task", "name": "os:system"}}, "/target/name"),
        ({"target": {"kind": "task", "name": "nobody"}}, "/target/name"),
        ({"target": {"url": "ftp://h/"}}, "/target/url"),
        ({"target": HTTP, "priority": 1001}, "/priority"),
        ({"target": HTTP, "policy": {"timeout": "1h"}}, "/policy/timeout"),
        ({"target": HTTP, "policy": {"concurrency_key": " "}}, "/policy/concurrency_key"),
        ({"target": HTTP, "policy": {"concurrency_key": "task:greet"}}, "/policy/concurrency_key"),
        ({"target": HTTP, "id": "mine"}, ""),
        ({}, "/target"),
    ],
)
async def test_invalid_runs_are_rejected(rig: Rig, given: dict[str, Any], pointer: str) -> None:
    answer = await rig.client.post("/api/v1/runs", json=given)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)
    assert await rig.snapshot() == []


async def test_repeated_run_request_is_one_run(any_rig: Rig) -> None:
    key = {"Idempotency-Key": "once"}
    first = await any_rig.client.post("/api/v1/runs", json={"target": HTTP}, headers=key)
    again = await any_rig.client.post("/api/v1/runs", json={"target": HTTP}, headers=key)
    assert first.json() == again.json()
    assert len((await any_rig.client.get("/api/v1/runs")).json()["items"]) == 1


# --- templates --------------------------------------------------------------------------------
async def test_templates(rig: Rig) -> None:
    items = (await rig.client.get("/api/v1/templates")).json()["items"]
    assert [(each["name"], each["cron_spec"]) for each in items[:4]] == [
        ("Hourly", "@hourly"),
        ("Daily Midnight", "0 0 * * *"),
        ("Daily 9 AM", "0 9 * * *"),
        ("Weekly Monday 8 AM", "0 8 * * 1"),
    ]
    nine = items[2]
    assert nine["id"] == "daily_9am"
    assert "every day" in nine["description"].lower()
    assert NOW.isoformat().startswith("2030-01-15T09:00:00")
    assert nine["next_fires"] == [f"2030-01-{day}T09:00:00Z" for day in (16, 17, 18)]
    assert (nine["target"], nine["delivery"]) == (None, [])
    thai = (await rig.client.get("/api/v1/templates", params={"timezone": "Asia/Bangkok"})).json()
    assert thai["items"][2]["next_fires"][0] == "2030-01-16T02:00:00Z"
    wrong = await rig.client.get("/api/v1/templates", params={"timezone": "Asia/Bankok"})
    assert (wrong.status_code, wrong.json()["errors"][0]["parameter"]) == (422, "timezone")
