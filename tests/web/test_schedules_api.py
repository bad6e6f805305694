"""POST, GET, PATCH and DELETE of schedules."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.config import Settings
from chimes.model import replace
from chimes.model.access import Role
from chimes.model.policy import Policy
from tests.builders import ALICE, BOB, a_schedule
from tests.tables import each_row
from tests.web.rig import CRON, HTTP, Rig, definition, serving

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def test_create_returns_the_whole_schedule(any_rig: Rig) -> None:
    answer = await any_rig.client.post("/api/v1/schedules", json=definition())
    made = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/v1/schedules/{made['id']}"
    assert answer.headers["etag"].startswith('"1-')
    assert made | {"id": ""} == {
        "id": "",
        "namespace": "default",
        "name": "report",
        "owner": {"type": "system", "id": "default"},
        "trigger": CRON,
        "timezone": "Asia/Bangkok",
        "words": "Every day at 09:00, Asia/Bangkok time",
        "target": {
            "kind": "http",
            "url": "http://127.0.0.1:9/hook",
            "method": "POST",
            "headers": {},
            "body": "",
            "expected_status": [],
            "signing_secrets": [],
            "verify_tls": True,
        },
        "policy": {
            "misfire": "one",
            "misfire_grace": "PT1M",
            "catch_up_limit": 1000,
            "overlap": "skip",
            "max_concurrent_runs": None,
            "burst_allowed": False,
            "concurrency_key": None,
            "max_retries": 3,
            "retry_backoff": "PT5S",
            "backoff": "fixed",
            "backoff_cap": "PT1H",
            "timeout": "PT10S",
            "on_lost": "retry",
            "pause_on_gone": True,
            "limits": [],
            "auto_pause_after": None,
            "end_after_successes": None,
        },
        "hook_url": None,
        "priority": 0,
        "labels": {},
        "enabled": True,
        "pause": None,
        "depends_on": None,
        "delivery": [],
        "warnings": [],
        "next_run_at": "2030-01-16T02:00:00Z",
        "next_slot": "2030-01-16T02:00:00Z",
        "last_slot": None,
        "last_run_at": None,
        "last_enqueued_at": None,
        "last_status": None,
        "last_error": "",
        "fired_count": 0,
        "version": 1,
        "created_at": "2030-01-15T09:00:00Z",
        "created_by": "system:default",
        "updated_at": "2030-01-15T09:00:00Z",
        "updated_by": "system:default",
        "declared": None,
    }
    again = await any_rig.client.get(answer.headers["location"])
    assert again.json() == made


async def test_every_field_is_kept(any_rig: Rig) -> None:
    first = await any_rig.create(name="first")
    policy = {
        "misfire": "all",
        "misfire_grace": "90s",
        "catch_up_limit": 7,
        "overlap": "queue",
        "max_concurrent_runs": 3,
        "burst_allowed": True,
        "concurrency_key": "shared",
        "max_retries": 9,
        "retry_backoff": "PT1M30S",
        "backoff": "exponential",
        "backoff_cap": "2h",
        "timeout": "1500ms",
        "on_lost": "stop",
        "pause_on_gone": False,
        "limits": [],
        "auto_pause_after": 4,
        "end_after_successes": 9,
    }
    set_ = await any_rig.client.put("/api/v1/limits/api?owner=user:alice", json={"concurrency": 2})
    assert set_.status_code in (200, 201), set_.text
    target = HTTP | {
        "method": "put",
        "headers": {"X-One": "1"},
        "body": '{"run":"{{run_id}}"}',
        "expected_status": [200, 204],
        "verify_tls": False,
    }
    made = await any_rig.create(
        id="my-id",
        namespace="team.a",
        owner={"type": "user", "id": "alice"},
        policy=policy,
        target=target,
        priority=-5,
        labels={"team": "billing"},
        enabled=False,
        depends_on={"schedule_id": first["id"], "within": "30m"},
    )
    assert made["id"] == "my-id"
    assert made["namespace"] == "team.a"
    assert made["owner"] == {"type": "user", "id": "alice"}
    assert made["policy"] == policy | {
        "misfire_grace": "PT1M30S",
        "backoff_cap": "PT2H",
        "timeout": "PT1.5S",
    }
    assert made["target"] == target | {"method": "PUT", "signing_secrets": []}
    assert (made["priority"], made["labels"]) == (-5, {"team": "billing"})
    assert (made["enabled"], made["pause"]) == (False, {"note": "", "until": None})
    assert made["next_run_at"] is None
    assert made["depends_on"] == {"schedule_id": first["id"], "within": "PT30M"}


async def test_policy_defaults_come_from_the_settings() -> None:
    async with serving(settings=Settings(max_retries=8)) as rig:
        made = await rig.create(policy={"timeout": "3s"})
    assert (made["policy"]["max_retries"], made["policy"]["timeout"]) == (8, "PT3S")


async def test_labels_given_as_a_list_are_filtered_by_name_and_value(any_rig: Rig) -> None:
    made = await any_rig.create(labels=["team=t1", "nightly", "eq=a=b"])
    assert made["labels"] == {"team": "t1", "nightly": None, "eq": "a=b"}
    for wanted, count in (("team=t1", 1), ("team", 1), ("team=t2", 0), ("eq=a=b", 1)):
        answer = await any_rig.client.get("/api/v1/schedules", params={"label": wanted})
        assert len(answer.json()["items"]) == count, wanted
    twice = definition(labels=["team=t1", "team=t2"])
    refused = await any_rig.client.post("/api/v1/schedules", json=twice)
    assert (refused.status_code, "two values" in refused.text) == (422, True)


@each_row("labels", [{"team": "x"}, ["nightly", "big"], {}])
async def test_labels_keep_their_form(any_rig: Rig, labels: object) -> None:
    assert (await any_rig.create(labels=labels))["labels"] == labels


async def test_a_json_body_is_kept_as_text(rig: Rig) -> None:
    made = await rig.create(target=HTTP | {"body": {"a": [1, "é"]}})
    assert made["target"]["body"] == '{"a":[1,"é"]}'


# A client-chosen id is kept; a second schedule with the same id is 409.
async def test_client_chosen_id_is_unique(any_rig: Rig) -> None:
    await any_rig.create(id="one")
    before = await any_rig.snapshot()
    again = await any_rig.client.post("/api/v1/schedules", json=definition(id="one"))
    assert (again.status_code, again.json()["code"]) == (409, "already_exists")
    assert await any_rig.snapshot() == before
    await any_rig.client.delete("/api/v1/schedules/one")
    after_delete = await any_rig.client.post("/api/v1/schedules", json=definition(id="one"))
    assert after_delete.status_code == 409


# Client-chosen ids reveal that an id is taken, but not by which owner.
async def test_taken_id_does_not_reveal_its_owner(any_rig: Rig) -> None:
    alice = await any_rig.key(Role.MEMBER, ALICE)
    bob = await any_rig.key(Role.MEMBER, BOB)
    target = {"kind": "http", "url": "http://example.org/"}
    made = {"alice-has": alice, "bob-has": bob, "bob-had": bob}
    for taken, headers in made.items():
        body = definition(id=taken, target=target)
        answer = await any_rig.client.post("/api/v1/schedules", json=body, headers=headers)
        assert answer.status_code == 201, answer.text
    await any_rig.client.delete("/api/v1/schedules/bob-had", headers=bob)
    problems = set()
    for taken in made:
        body = definition(id=taken, target=target)
        answer = await any_rig.client.post("/api/v1/schedules", json=body, headers=bob)
        assert answer.status_code == 409
        problem = {name: text for name, text in answer.json().items() if name != "request_id"}
        problems.add(str(problem).replace(taken, "ID"))
        assert "alice" not in answer.text.replace(taken, "")
    assert len(problems) == 1
    hidden = await any_rig.client.get("/api/v1/schedules/alice-has", headers=bob)
    assert hidden.status_code == 404


async def test_secrets_are_masked_and_kept_when_the_mask_is_sent_back(rig: Rig) -> None:
    target = HTTP | {"signing_secrets": [SECRET], "headers": {"Authorization": "Bearer s3cret"}}
    answer = await rig.client.post("/api/v1/schedules", json=definition(target=target))
    made = answer.json()
    assert SECRET not in answer.text
    assert "s3cret" not in answer.text
    assert made["target"]["signing_secrets"] == ["***"]
    assert made["target"]["headers"] == {"Authorization": "***"}
    newer = SECRET[:-1] + "A"
    changed = await rig.client.patch(
        f"/api/v1/schedules/{made['id']}",
        json={
            "target": {
                "signing_secrets": ["***", newer],
                "headers": {"authorization": "***", "X-Two": "2"},
            }
        },
    )
    assert changed.status_code == 200
    kept = await rig.store.get_schedule(made["id"])
    assert kept is not None
    assert kept.target.signing_secrets == (SECRET, newer)
    assert kept.target.headers == {"authorization": "Bearer s3cret", "X-Two": "2"}
    shown = await rig.client.get("/api/v1/audit")
    assert SECRET not in shown.text
    assert "s3cret" not in shown.text


async def test_headers_with_secret_names_are_masked(rig: Rig) -> None:
    headers = {"X-Auth-Token": "s3cret", "X-GitHub-Token": "s3cret", "X-Author": "ann"}
    url = f"{HTTP['url']}?token=t0ken&page=2"
    target = HTTP | {"headers": headers, "url": url}
    made = (await rig.client.post("/api/v1/schedules", json=definition(target=target))).json()
    hidden = {"X-Auth-Token": "***", "X-GitHub-Token": "***", "X-Author": "ann"}
    assert made["target"]["headers"] == hidden
    masked_url = url.replace("t0ken", "***")
    assert made["target"]["url"] == masked_url
    path = f"/api/v1/schedules/{made['id']}"
    back = {"target": {"headers": hidden | {"X-Author": "bob"}, "url": masked_url}}
    assert (await rig.client.patch(path, json=back)).status_code == 200
    kept = await rig.store.get_schedule(made["id"])
    assert kept is not None
    assert kept.target.headers == headers | {"X-Author": "bob"}
    assert kept.target.url == url
    await rig.client.patch(path, json={"target": {"url": url.replace("t0ken", "t1ken")}})
    shown = await rig.client.get("/api/v1/audit")
    assert not {found for found in ("s3cret", "t0ken", "t1ken") if found in shown.text}
    latest = shown.json()["items"][0]["changes"]
    assert latest["target"][1]["url"] == f"{HTTP['url']}?token=***&page=2"


async def test_mask_without_a_stored_secret_is_rejected(rig: Rig) -> None:
    target = HTTP | {"signing_secrets": ["***"]}
    answer = await rig.client.post("/api/v1/schedules", json=definition(target=target))
    assert (answer.status_code, answer.json()["code"]) == (422, "masked")


async def test_concurrency_keys_of_chimes_itself_are_reserved(any_rig: Rig) -> None:
    client, made = any_rig.client, await any_rig.create(policy={"concurrency_key": "nightly"})
    path = f"/api/v1/schedules/{made['id']}"
    policy = {"concurrency_key": f"schedule:{made['id']}"}
    for answer in (
        await client.post("/api/v1/schedules", json=definition(policy=policy)),
        await client.patch(path, json={"policy": policy}),
        await client.post("/api/v1/runs", json={"target": HTTP, "policy": policy}),
    ):
        (error,) = answer.json()["errors"]
        assert (answer.status_code, answer.json()["code"]) == (422, "reserved")
        assert error["pointer"] == "/policy/concurrency_key"
        assert "schedule:" in error["detail"]
    assert (await client.get(path)).json() == made
    run = (await client.post(f"{path}/run")).json()
    stored = await any_rig.store.get_run(run["id"])
    assert stored is not None
    assert stored.concurrency_key == "system:default/nightly"
    assert stored.policy.concurrency_key == "nightly"


async def test_reserved_key_of_an_earlier_version_can_be_kept(any_rig: Rig) -> None:
    policy = Policy(concurrency_key="task:pay")
    schedule = await any_rig.store.add_schedule(a_schedule(policy=policy))
    path = f"/api/v1/schedules/{schedule.id}"
    changed = await any_rig.client.patch(
        path, json={"target": HTTP, "policy": {"timeout": "7s", "concurrency_key": "task:pay"}}
    )
    assert changed.status_code == 200, changed.text
    assert changed.json()["policy"]["concurrency_key"] == "task:pay"
    other = await any_rig.client.patch(path, json={"policy": {"concurrency_key": "task:mail"}})
    assert (other.status_code, other.json()["code"]) == (422, "reserved")
    # No longer the key of the task.
    run = (await any_rig.client.post(f"{path}/run")).json()
    stored = await any_rig.store.get_run(run["id"])
    assert stored is not None
    assert stored.concurrency_key == "system:default/task:pay"


@pytest.fixture
async def rig_with_other(any_rig: Rig) -> Rig:
    """A schedule with the id `other` exists."""
    await any_rig.create(id="other")
    return any_rig


@each_row(
    ("patch", "shown"),
    [
        ({"name": "other"}, {"name": "other"}),
        ({"priority": 7}, {"priority": 7}),
        ({"labels": ["a"]}, {"labels": ["a"]}),
        ({"labels": {}}, {"labels": {}}),
        (
            {"depends_on": {"schedule_id": "other"}},
            {"depends_on": {"schedule_id": "other", "within": "PT1H"}},
        ),
        (
            {"trigger": {"kind": "cron", "expression": "0 10 * * *"}},
            {
                "trigger": {"kind": "cron", "expression": "0 10 * * *", "timezone": "UTC"},
                "next_run_at": "2030-01-15T10:00:00Z",
            },
        ),
        ({"enabled": False}, {"enabled": False, "next_run_at": None}),
    ],
)
async def test_patch_changes_only_the_given_fields(
    rig_with_other: Rig, patch: dict[str, Any], shown: dict[str, Any]
) -> None:
    made = await rig_with_other.create(labels={"x": "y"})
    answer = await rig_with_other.client.patch(f"/api/v1/schedules/{made['id']}", json=patch)
    changed = answer.json()
    assert answer.status_code == 200
    assert {name: changed[name] for name in shown} == shown
    assert changed["version"] == 2
    # Other schedules of the store have the same name, of which the creation warns.
    moving = {"version", "next_slot", "next_run_at", "timezone", "words", "pause", "warnings"} | {
        *shown
    }
    assert {k: v for k, v in changed.items() if k not in moving} == {
        k: v for k, v in made.items() if k not in moving
    }


async def test_patch_merges_target_and_policy(rig: Rig) -> None:
    made = await rig.create(
        target=HTTP | {"method": "PUT", "headers": {"X-A": "1"}}, policy={"max_retries": 5}
    )
    answer = await rig.client.patch(
        f"/api/v1/schedules/{made['id']}",
        json={"target": {"url": "http://127.0.0.1:9/new"}, "policy": {"timeout": "2s"}},
    )
    changed = answer.json()
    assert changed["target"] == made["target"] | {"url": "http://127.0.0.1:9/new"}
    assert changed["policy"] == made["policy"] | {"timeout": "PT2S"}


async def test_patch_without_changes_keeps_the_version(rig: Rig) -> None:
    made = await rig.create()
    for patch in ({}, {"name": "report"}, {"policy": {"max_retries": 3}}):
        answer = await rig.client.patch(f"/api/v1/schedules/{made['id']}", json=patch)
        assert answer.json() == made


# If-Match is optional; a stale one is answered with 412.
async def test_if_match(any_rig: Rig) -> None:
    made = await any_rig.client.post("/api/v1/schedules", json=definition())
    path = made.headers["location"]
    tag = made.headers["etag"]
    first = await any_rig.client.patch(path, json={"priority": 1}, headers={"If-Match": tag})
    assert first.status_code == 200
    assert first.headers["etag"] != tag
    before = await any_rig.snapshot()
    for stale in (tag, '"1"', '"nonsense"', 'W/"1"'):
        for send in (
            any_rig.client.patch(path, json={"priority": 2}, headers={"If-Match": stale}),
            any_rig.client.delete(path, headers={"If-Match": stale}),
        ):
            answer = await send
            assert (answer.status_code, answer.json()["code"]) == (412, "stale_version")
    assert await any_rig.snapshot() == before
    for fresh in ("*", first.headers["etag"], '"2"', '"1", "2", "3"'):
        assert (
            await any_rig.client.patch(path, json={"name": "report"}, headers={"If-Match": fresh})
        ).status_code == 200
    gone = await any_rig.client.delete(path, headers={"If-Match": '"2"'})
    assert gone.status_code == 204


async def test_if_none_match(rig: Rig) -> None:
    made = await rig.client.post("/api/v1/schedules", json=definition())
    path, tag = made.headers["location"], made.headers["etag"]
    same = await rig.client.get(path, headers={"If-None-Match": tag})
    assert (same.status_code, same.text, same.headers["etag"]) == (304, "", tag)
    await rig.client.post(f"{path}/skip")
    other = await rig.client.get(path, headers={"If-None-Match": tag})
    assert other.status_code == 200


async def test_delete(any_rig: Rig) -> None:
    made = await any_rig.create()
    path = f"/api/v1/schedules/{made['id']}"
    run = (await any_rig.client.post(f"{path}/run")).json()
    gone = await any_rig.client.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await any_rig.client.get(path)).status_code == 404
    assert (await any_rig.client.delete(path)).status_code == 404
    assert (await any_rig.client.patch(path, json={})).status_code == 404
    assert (await any_rig.client.get("/api/v1/schedules")).json()["items"] == []
    kept = (await any_rig.client.get(f"/api/v1/runs/{run['id']}")).json()
    assert (kept["status"], kept["reason"]) == ("canceled", "schedule_deleted")


@each_row(
    "trigger",
    [
        {"kind": "every", "every": "PT10S", "anchor": "2030-01-15T09:00:30Z", "jitter": "PT2S"},
        {"kind": "once", "at": "2030-02-10T09:00:00", "timezone": "Asia/Bangkok"},
        {
            "kind": "cron",
            "expression": "0 0 9 ? * MON-FRI *",
            "timezone": "Europe/Berlin",
            "dialect": "quartz",
            "start_at": "2030-02-01T00:00:00Z",
            "end_at": "2031-02-01T00:00:00Z",
            "max_runs": 5,
        },
    ],
)
async def test_triggers_round_trip(any_rig: Rig, trigger: dict[str, object]) -> None:
    assert (await any_rig.create(trigger=trigger))["trigger"] == trigger


async def test_names_are_trimmed_normalised_and_case_sensitive(any_rig: Rig) -> None:
    names = [
        (await any_rig.create(name=name))["name"] for name in ("  e\u0301 ", "\u00e9", "\u00c9")
    ]
    assert names == ["\u00e9", "\u00e9", "\u00c9"]
    found = await any_rig.client.get("/api/v1/schedules", params={"name": "\u00e9"})
    assert len(found.json()["items"]) == 2


async def test_hostile_names_are_stored_literally(any_rig: Rig) -> None:
    names = ["'; DROP TABLE runs;--", "%", "_", "\\", "${7*7}", "{{7*7}}", "<script>", "100 %"]
    for name in names:
        assert (await any_rig.create(name=name))["name"] == name
    found = await any_rig.client.get("/api/v1/schedules", params={"q": "%"})
    assert {each["name"] for each in found.json()["items"]} == {"%", "100 %"}


async def test_former_namespaces_map_to_the_default_one(any_rig: Rig) -> None:
    for namespace in ("native", "catbird"):
        made = await any_rig.client.post(
            "/api/v1/schedules", json=definition(name=namespace, namespace=namespace)
        )
        assert made.json()["namespace"] == "default"
        # Rows of an earlier version.
        await any_rig.store.change_schedule(
            made.json()["id"], lambda each, now, word=namespace: replace(each, namespace=word)
        )
    await any_rig.client.post("/api/v1/schedules", json=definition(name="new"))
    for namespace in ("default", "native", "catbird"):
        found = await any_rig.client.get("/api/v1/schedules", params={"namespace": namespace})
        items = found.json()["items"]
        assert sorted(each["name"] for each in items) == ["catbird", "native", "new"]
        assert {each["namespace"] for each in items} == {"default"}
    old = next(each for each in items if each["name"] == "native")
    changed = await any_rig.client.patch(f"/api/v1/schedules/{old['id']}", json={"name": "renamed"})
    assert (changed.status_code, changed.json()["name"]) == (200, "renamed")
    run = await any_rig.client.post(f"/api/v1/schedules/{old['id']}/run")
    assert (run.status_code, run.json()["namespace"]) == (202, "default")
