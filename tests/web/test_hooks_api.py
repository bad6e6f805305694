"""Inbound webhooks: addresses, signatures, repeats, masking, pauses and limits."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.config import Settings
from chimes.model.access import Owner, OwnerType, Role
from chimes.model.ids import ScheduleId
from chimes.model.listing import RunQuery
from chimes.model.run import Run
from chimes.testing import SettableClock
from tests.store_contract.stores import SHARED, Home, StoreKind
from tests.web.rig import HOST, HTTP, Rig, serving

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ALICE = Owner(type=OwnerType.USER, id="alice")


async def runs_of(rig: Rig, schedule: dict[str, Any]) -> tuple[Run, ...]:
    query = RunQuery(schedule_id=ScheduleId(schedule["id"]), descending=False)
    return (await rig.store.list_runs(query)).items


def standard(body: bytes, at: float, *, message: str = "msg_1") -> dict[str, str]:
    stamp = str(int(at))
    content = f"{message}.{stamp}.".encode() + body
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": message,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,AAAA v1,{signature}",
    }


def stripe(body: bytes, at: float, secret: str = "whsec_test") -> dict[str, str]:
    stamp = str(int(at))
    signature = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"stripe-signature": f"t={stamp},v1={'0' * 64},v1={signature},v0=old"}


async def test_a_request_starts_one_run_on_every_store(any_rig: Rig) -> None:
    """A repeat returns the same run, also after the run has ended; the run shows its cause."""
    rig = any_rig
    made = await rig.create(trigger={"kind": "webhook"})
    assert made["trigger"] == {"kind": "webhook", "scheme": "none"}
    assert made["hook_url"].startswith(f"{HOST}/hooks/")
    assert made["next_run_at"] is None
    assert made["policy"]["overlap"] == "queue"
    assert made["words"] == "On a request to its webhook"
    headers = {"webhook-id": "d-1", "content-type": "application/json"}
    first = await rig.client.post(made["hook_url"], content=b'{"n":1}', headers=headers)
    assert first.status_code == 202, first.text
    run_id = first.json()["run_id"]
    again = await rig.client.post(made["hook_url"], content=b'{"n":1}', headers=headers)
    assert again.json() == {"run_id": run_id}
    other = await rig.client.post(made["hook_url"], headers={"X-GitHub-Delivery": "d-2"})
    assert other.json()["run_id"] not in (None, run_id)
    shown = (await rig.client.get(f"/api/v1/runs/{run_id}")).json()
    assert shown["origin"] == "event"
    assert shown["cause"]["kind"] == "webhook"
    assert shown["cause"]["source"] == "none"
    assert shown["cause"]["delivery_id"] == "d-1"
    assert "payload" not in shown["cause"]
    stored = await runs_of(rig, made)
    causes = [run.definition.cause for run in stored]
    assert {cause.payload for cause in causes if cause} == {'{"n":1}', ""}
    # The second one waits for the first: no event is lost by default.
    assert {run.id: run.blocked for run in stored} == {run_id: False, other.json()["run_id"]: True}
    listed = (await rig.client.get("/api/v1/runs")).json()["items"]
    assert {each["cause"]["delivery_id"] for each in listed} == {"d-1", "d-2"}
    # The address survives a change of the schedule, but not its rotation.
    path = f"/api/v1/schedules/{made['id']}"
    patched = await rig.client.patch(path, json={"trigger": {"kind": "webhook"}, "name": "new"})
    assert patched.json()["hook_url"] == made["hook_url"]
    rotated = (await rig.client.post(f"{path}/rotate_hook")).json()
    assert rotated["hook_url"] != made["hook_url"]
    assert (await rig.client.post(made["hook_url"])).status_code == 404
    assert (await rig.client.post(rotated["hook_url"])).status_code == 202


@pytest.mark.parametrize("kind", SHARED, ids=lambda kind: kind.name)
async def test_repeats_on_two_nodes_at_once_start_one_run(
    kind: StoreKind, tmp_path: Path, patient_store: None
) -> None:
    clock = SettableClock()
    home = Home(kind, tmp_path, clock)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(home.close)
        nodes = [
            await stack.enter_async_context(serving(await home.open(), clock)) for _node in range(2)
        ]
        made = await nodes[0].create(trigger={"kind": "webhook"})
        answers = await asyncio.gather(
            *(
                rig.client.post(
                    made["hook_url"], content=b"{}", headers={"webhook-id": f"d-{number % 5}"}
                )
                for number in range(20)
                for rig in nodes
            )
        )
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["run_id"] for answer in answers}) == 5
        assert len(await runs_of(nodes[1], made)) == 5


async def test_the_log_of_requests_does_not_have_the_address(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    made = await rig.create(trigger={"kind": "webhook"})
    token = made["hook_url"].rpartition("/")[2]
    with caplog.at_level("INFO", logger="chimes.http"):
        assert (await rig.client.post(made["hook_url"])).status_code == 202
        assert (await rig.client.get(made["hook_url"])).status_code == 405
    paths = [vars(record).get("path") for record in caplog.records]
    assert paths.count("/hooks/***") == 2
    assert all(token not in str(vars(record)) for record in caplog.records)


async def test_signatures_of_every_scheme(rig: Rig) -> None:
    """With the vector of GitHub's documentation and computed signatures; 401 stores nothing."""
    hooks = {
        scheme: await rig.create(
            name=scheme, trigger={"kind": "webhook", "scheme": scheme, "secret": secret}
        )
        for scheme, secret in (
            ("standard", SECRET),
            ("github", "It's a Secret to Everybody"),
            ("stripe", "whsec_test"),
        )
    }
    now = rig.clock.now()
    at = now.timestamp()
    body = b'{"id":"evt_1"}'
    github = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    late = timedelta(minutes=5, seconds=1).total_seconds()
    bad: list[tuple[str, bytes, dict[str, str]]] = [
        ("standard", body, {}),
        ("standard", body + b" ", standard(body, at)),
        ("standard", body, standard(body, at - late)),
        ("standard", body, standard(body, at + late)),
        ("standard", body, standard(body, at) | {"webhook-id": "other"}),
        ("standard", body, standard(body, at) | {"webhook-timestamp": "soon"}),
        ("standard", body, {"webhook-id": "x", "webhook-signature": "v1,é"}),
        ("github", b"Hello, World", {"x-hub-signature-256": github}),
        ("github", b"Hello, World!", {"x-hub-signature-256": github[:-1] + "8"}),
        ("github", b"Hello, World!", {"x-hub-signature": github}),
        ("github", b"Hello, World!", {}),
        ("stripe", body, {}),
        ("stripe", body + b" ", stripe(body, at)),
        ("stripe", body, stripe(body, at, "another")),
        ("stripe", body, stripe(body, at - late)),
        ("stripe", body, {"stripe-signature": "t=,v1="}),
    ]
    before = await rig.snapshot()
    for scheme, content, headers in bad:
        encoded = {name: value.encode() for name, value in headers.items()}
        answer = await rig.client.post(hooks[scheme]["hook_url"], content=content, headers=encoded)
        assert answer.status_code == 401, (scheme, headers, answer.text)
        assert answer.json()["code"] == "bad_signature"
        assert "signature" in answer.json()["detail"]
    assert await rig.snapshot() == before
    good: list[tuple[str, bytes, dict[str, str], str]] = [
        ("standard", body, standard(body, at), "msg_1"),
        (
            "github",
            b"Hello, World!",
            {"x-hub-signature-256": github, "x-github-delivery": "gh-1", "x-github-event": "push"},
            "gh-1",
        ),
        ("stripe", body, stripe(body, at - late + 2), "evt_1"),
        # The same event, signed again.
        ("stripe", body, stripe(body, at), "evt_1"),
    ]
    for scheme, content, headers, delivery in good:
        url = hooks[scheme]["hook_url"]
        # Headers that are not of the scheme, and not signed, do not make another delivery of it.
        others = [
            name
            for name in ("webhook-id", "x-github-delivery", "idempotency-key")
            if name not in headers
        ]
        answers = [
            await rig.client.post(
                url, content=content, headers=headers | dict.fromkeys(others, f"forged-{time}")
            )
            for time in range(2)
        ]
        assert [answer.status_code for answer in answers] == [202, 202], answers[0].text
        (run,) = await runs_of(rig, hooks[scheme])
        assert {answer.json()["run_id"] for answer in answers} == {run.id}
        assert run.definition.cause is not None
        assert run.definition.cause.delivery_id == delivery


async def test_a_secret_is_masked_and_kept(any_rig: Rig) -> None:
    rig = any_rig
    trigger = {"kind": "webhook", "scheme": "standard", "secret": SECRET}
    made = await rig.create(trigger=trigger)
    assert made["trigger"]["secret"] == "***"
    path = f"/api/v1/schedules/{made['id']}"
    sent_back = await rig.client.patch(path, json={"trigger": made["trigger"] | {"throttle": "1m"}})
    assert sent_back.status_code == 200, sent_back.text
    assert sent_back.json()["hook_url"] == made["hook_url"]
    stored = await rig.store.get_schedule(ScheduleId(made["id"]))
    assert stored is not None
    assert stored.trigger.to_dict()["secret"] == SECRET
    for url in (path, "/api/v1/audit", "/api/v1/schedules/export"):
        text = (await rig.client.get(url)).text
        assert SECRET not in text, url
        token = made["hook_url"].rpartition(".")[2]
        assert token not in text or url == path
    masked = await rig.client.post(
        "/api/v1/schedules",
        json={"name": "n", "trigger": made["trigger"], "target": made["target"]},
    )
    assert masked.status_code == 422
    assert masked.json()["errors"][0]["code"] == "masked"
    copy = (await rig.client.post(f"{path}/duplicate")).json()
    assert copy["hook_url"] not in (None, made["hook_url"])


async def test_events_of_a_paused_schedule_are_counted_as_skipped(any_rig: Rig) -> None:
    rig = any_rig
    made = await rig.create(trigger={"kind": "webhook"})
    path = f"/api/v1/schedules/{made['id']}"
    await rig.client.post(f"{path}/pause", json={})
    answer = await rig.client.post(made["hook_url"], headers={"webhook-id": "d"})
    assert (answer.status_code, answer.json()) == (202, {"run_id": None})
    await rig.client.post(f"{path}/resume", json={})
    await rig.client.put("/api/v1/maintenance", json={})
    again = await rig.client.post(made["hook_url"], headers={"webhook-id": "d"})
    assert again.json() == {"run_id": None}
    (run,) = await runs_of(rig, made)
    assert (run.status.value, run.reason) == ("skipped", "paused")
    await rig.client.delete(path)
    assert (await rig.client.post(made["hook_url"])).status_code == 404


async def test_only_those_who_may_run_a_schedule_see_its_address(rig: Rig) -> None:
    admin = await rig.key(Role.ADMIN)
    member, viewer = await rig.key(Role.MEMBER, ALICE), await rig.key(Role.VIEWER, ALICE)
    rig.client.headers.update(member)
    made = await rig.create(trigger={"kind": "webhook"})
    path = f"/api/v1/schedules/{made['id']}"
    urls = [
        (await rig.client.get(path, headers=headers)).json()["hook_url"]
        for headers in (admin, member, viewer)
    ]
    assert urls == [made["hook_url"], made["hook_url"], None]
    assert (await rig.client.post(f"{path}/rotate_hook", headers=viewer)).status_code == 403
    for trigger, status in (
        ({"kind": "file", "path": "/etc/*.conf"}, 403),
        ({"kind": "sql", "connection": "db", "query": "select 1"}, 422),
    ):
        refused = await rig.client.post(
            "/api/v1/schedules",
            json={"name": "x", "trigger": trigger, "target": made["target"]},
        )
        assert refused.status_code == status, refused.text


async def test_file_triggers_watch_where_the_operator_allows(rig: Rig) -> None:
    trigger = {"kind": "file", "path": "/srv/*.csv"}
    assert (await rig.create(trigger=trigger))["trigger"]["path"] == "/srv/*.csv"
    rules = rig.context.schedules.rules
    rules._file_directories = ("/data",)
    for path, status in (("/srv/*.csv", 422), ("/database/x", 422), ("/data/in/*.csv", 201)):
        body = {"name": "x", "trigger": trigger | {"path": path}, "target": HTTP}
        answer = await rig.client.post("/api/v1/schedules", json=body)
        assert answer.status_code == status, answer.text
        if status == 422:
            assert answer.json()["code"] == "directory_not_allowed"


async def test_bad_triggers_and_requests_are_refused_with_a_reason(rig: Rig) -> None:
    made = await rig.create(trigger={"kind": "webhook"})
    rows: list[tuple[dict[str, Any], str, str]] = [
        ({"kind": "webhook", "scheme": "gitlab"}, "unknown_kind", "/trigger/scheme"),
        ({"kind": "webhook", "scheme": "github"}, "missing_key", "/trigger/secret"),
        ({"kind": "webhook", "secret": "x"}, "contradiction", "/trigger/scheme"),
        (
            {"kind": "webhook", "scheme": "standard", "secret": "short"},
            "signing_secret",
            "/trigger/secret",
        ),
        ({"kind": "webhook", "debounce": "0s"}, "out_of_range", "/trigger/debounce"),
        ({"kind": "webhook", "debounce": "5s", "throttle": "5s"}, "contradiction", ""),
        ({"kind": "webhook", "batch": {"count": 1, "within": "5s"}}, "out_of_range", ""),
        ({"kind": "webhook", "max_runs": 3}, "unknown_key", ""),
        ({"kind": "run_end"}, "missing_key", ""),
        ({"kind": "run_end", "schedule": "none"}, "not_found", "/trigger/schedule"),
        ({"kind": "run_end", "schedule": made["id"], "status": ["done"]}, "unknown_kind", ""),
        ({"kind": "file", "path": "in/*.csv"}, "not_absolute", ""),
        ({"kind": "file", "path": "/srv/*/x.csv"}, "wildcard", ""),
        ({"kind": "sql", "connection": "db", "query": "delete from x"}, "not_a_select", ""),
        ({"kind": "sql", "connection": "db", "query": "select 1; commit"}, "not_a_select", ""),
        ({"kind": "sql", "connection": "db", "query": "select 1"}, "unknown_connection", ""),
    ]
    for trigger, code, pointer in rows:
        answer = await rig.client.post(
            "/api/v1/schedules",
            json={"name": "x", "trigger": trigger, "target": made["target"]},
        )
        assert answer.status_code == 422, (trigger, answer.text)
        (error,) = answer.json()["errors"]
        assert error["code"] == code, (trigger, error)
        assert pointer in error["pointer"], (trigger, error)
    url = made["hook_url"]
    for bad in (f"{HOST}/hooks/x", f"{url}x", f"{HOST}/hooks/%ff.{'a' * 32}", url[:-1] + "%00"):
        assert (await rig.client.post(bad)).status_code == 404, bad
    assert (await rig.client.post(url, content=b"\xff\xfe")).status_code == 422
    assert (await rig.client.post(url, content=b"x" * (1024 * 1024 + 1))).status_code == 413
    assert (await rig.client.post(url, content=b"x" * (1024 * 1024))).status_code == 202
    assert len(await runs_of(rig, made)) == 1


async def test_a_cycle_of_run_ends_is_refused(rig: Rig) -> None:
    first = await rig.create(name="a")
    second = await rig.create(name="b", trigger={"kind": "run_end", "schedule": first["id"]})
    third = await rig.create(name="c", trigger={"kind": "run_end", "schedule": second["id"]})
    for source in (third, second, first):
        answer = await rig.client.patch(
            f"/api/v1/schedules/{first['id']}",
            json={"trigger": {"kind": "run_end", "schedule": source["id"]}},
        )
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["code"] == "cycle"


async def test_a_hook_has_a_rate_limit_and_a_public_address() -> None:
    settings = Settings(hook_requests_per_minute=3, public_url="https://chimes.example/base")
    async with serving(settings=settings) as rig:
        made = await rig.create(trigger={"kind": "webhook"})
        assert made["hook_url"].startswith("https://chimes.example/base/hooks/")
        url = f"{HOST}/hooks/{made['hook_url'].rpartition('/')[2]}"
        statuses = [(await rig.client.post(url)).status_code for _time in range(5)]
        assert statuses == [202, 202, 202, 429, 429]
        rig.clock.advance(timedelta(seconds=30))
        assert (await rig.client.post(url)).status_code == 202


async def test_debounce_throttle_and_batch_answer_without_a_run(any_rig: Rig) -> None:
    rig = any_rig
    for pace in (
        {"debounce": "10s"},
        {"throttle": "10s"},
        {"batch": {"count": 3, "within": "10s"}},
    ):
        made = await rig.create(name=str(pace), trigger={"kind": "webhook"} | pace)
        for number in range(7):
            body = json.dumps({"n": number}).encode()
            answer = await rig.client.post(
                made["hook_url"], content=body, headers={"webhook-id": f"d-{number}"}
            )
            assert answer.json() == {"run_id": None}
        payloads = [run.definition.cause for run in await runs_of(rig, made)]
        wanted = {
            "debounce": [],
            "throttle": ['{"n": 0}'],
            "batch": ['[{"n": 0},{"n": 1},{"n": 2}]', '[{"n": 3},{"n": 4},{"n": 5}]'],
        }[next(iter(pace))]
        assert sorted(each.payload for each in payloads if each) == wanted
