"""`POST /api/v1/apply`, `GET /api/v1/export`, `POST /api/v1/schedules/{id}/duplicate` and the
warnings about names and files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from chimes.config import Settings
from chimes.model.access import Quota, Role
from chimes.model.ids import ScheduleId
from chimes.services.schedules.rules import Limits
from tests.builders import ALICE, BOB
from tests.web.rig import CRON, HTTP, Rig, serving

SECRET = {"Authorization": "Bearer open-sesame"}
NINE = {"trigger": CRON, "target": HTTP}
TEN = NINE | {"trigger": CRON | {"expression": "0 10 * * *"}}
HOURLY = NINE | {"trigger": {"kind": "every", "every": "1h"}}


async def apply(
    rig: Rig, schedules: dict[str, Any], *, dry_run: bool = False, status: int = 200, **more: Any
) -> dict[str, Any]:
    headers = more.pop("headers", {})
    answer = await rig.client.post(
        f"/api/v1/apply?dry_run={str(dry_run).lower()}",
        json={"schedules": schedules, **more},
        headers=headers,
    )
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def actions(answer: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["action"] for each in answer["plan"]}


async def names(rig: Rig, **query: str) -> list[str]:
    page = (await rig.client.get("/api/v1/schedules", params=query)).json()
    return [each["name"] for each in page["items"]]


async def test_a_plan_changes_nothing_and_apply_does_what_it_says(any_rig: Rig) -> None:
    rig = any_rig
    rig.clock.set(datetime(2030, 1, 7, 1, 30, tzinfo=UTC))  # Monday 08:30 in Bangkok
    wanted = {"nightly": NINE, "pump/θ.1": HOURLY}
    planned = await apply(rig, wanted, dry_run=True)
    assert not planned["applied"]
    assert await names(rig) == []
    assert actions(planned) == {"nightly": "create", "pump/θ.1": "create"}
    assert {each["name"]: each["fires"]["added"] for each in planned["plan"]} == {
        "nightly": 7,
        "pump/θ.1": 168,
    }
    assert planned["plan"][0]["fields"]["trigger.expression"] == [None, "0 9 * * *"]
    applied = await apply(rig, wanted, expected_digest=planned["digest"])
    assert applied["applied"]
    assert actions(applied) == actions(planned)
    assert await names(rig, sort="name") == ["nightly", "pump/θ.1"]
    again = await apply(rig, wanted, dry_run=True)
    assert set(actions(again).values()) == {"none"}
    assert all(each["fields"] == {} and each["marked"] for each in again["plan"])

    changed = {"nightly": TEN | {"policy": {"timeout": "30s"}}, "pump/θ.1": HOURLY}
    planned = await apply(rig, changed, dry_run=True)
    nightly = planned["plan"][0]
    assert nightly["fields"] == {
        "trigger.expression": ["0 9 * * *", "0 10 * * *"],
        "policy.timeout": ["PT10S", "PT30S"],
    }
    assert {key: nightly["fires"][key] for key in ("added", "dropped", "moved")} == {
        "added": 0,
        "dropped": 0,
        "moved": 7,
    }
    await apply(rig, changed)
    assert (await rig.client.get(f"/api/v1/schedules/{nightly['id']}")).json()["version"] == 2
    pruned = await apply(rig, {"nightly": changed["nightly"]}, prune=True)
    assert actions(pruned) == {"nightly": "none", "pump/θ.1": "delete"}
    assert pruned["plan"][1]["fires"]["dropped"] == 168
    assert await names(rig) == ["nightly"]
    # The name can be used again: deleted schedules keep their ids.
    assert actions(await apply(rig, changed))["pump/θ.1"] == "create"


async def test_every_error_is_at_its_field_and_nothing_is_applied(rig: Rig) -> None:
    wrong_shape = {
        "ok": NINE,
        "a/b.c": NINE | {"policy": {"timeout": 5}},
        "no-url": {"trigger": CRON, "target": {"kind": "http"}},
        "named": NINE | {"name": "other"},
    }
    found = await apply(rig, wrong_shape, status=422)
    assert {each["pointer"]: each["code"] for each in found["errors"]} == {
        "/schedules/a~1b.c/policy/timeout": "wrong_type",
        "/schedules/no-url/target/url": "missing",
        "/schedules/named/name": "read_only",
    }
    past = {"kind": "once", "at": "2001-01-01T00:00:00Z"}
    wrong_meaning = {
        "ok": NINE,
        "past": NINE | {"trigger": past},
        "long": NINE | {"priority": 5000},
        "lonely": NINE | {"depends_on": {"schedule_id": "nobody"}},
    }
    for dry_run in (True, False):
        found = await apply(rig, wrong_meaning, dry_run=dry_run, status=422)
        assert {each["pointer"]: each["code"] for each in found["errors"]} == {
            "/schedules/past/trigger": "never_fires",
            "/schedules/long/priority": "out_of_range",
            "/schedules/lonely/depends_on/schedule_id": "not_found",
        }
    assert await names(rig) == []


async def test_items_may_depend_on_each_other(rig: Rig) -> None:
    after = {"depends_on": {"schedule_id": "load"}}
    wanted = {"report": NINE | after, "load": NINE | {"id": "load"}}
    assert actions(await apply(rig, wanted)) == {"load": "create", "report": "create"}
    assert set(actions(await apply(rig, wanted)).values()) == {"none"}
    ring = {"load": NINE | {"id": "load", "depends_on": {"schedule_id": "report-id"}}}
    ring["report"] = NINE | {"id": "report-id"} | after
    found = await apply(rig, ring, status=422)
    assert {each["code"] for each in found["errors"]} == {"cycle"}


async def test_secrets_are_masked_in_the_plan_and_kept_by_an_export(rig: Rig) -> None:
    target = HTTP | {"headers": SECRET, "signing_secrets": ["whsec_" + "A" * 32]}
    planned = await apply(rig, {"call": NINE | {"target": target}}, dry_run=True)
    assert "open-sesame" not in str(planned)
    assert "whsec_" not in str(planned)
    await apply(rig, {"call": NINE | {"target": target}})
    exported = (await rig.client.get("/api/v1/export")).json()["schedules"]
    assert "open-sesame" not in str(exported)
    assert "whsec_" not in str(exported)
    assert actions(await apply(rig, exported)) == {"call": "none"}
    other = target | {"headers": {"Authorization": "Bearer another"}}
    planned = await apply(rig, {"call": NINE | {"target": other}}, dry_run=True)
    assert planned["plan"][0]["fields"] == {"target.headers.Authorization": ["***", "***"]}
    # Stored secrets are not sent to another host.
    elsewhere = exported["call"] | {
        "target": exported["call"]["target"] | {"url": "http://192.0.2.1/hook"}
    }
    found = await apply(rig, {"call": elsewhere}, status=422)
    assert found["errors"][0]["code"] == "masked"


async def test_export_and_apply_have_nothing_to_do(rig: Rig) -> None:
    plain = [
        {"name": "minimal"},
        {"name": "paused", "enabled": False, "labels": ["nightly", "team=a"], "priority": 3},
        {
            "name": "loud",
            "delivery": [
                {
                    "channel": "email",
                    "to": "a@example.com",
                    "quiet": {"from": "22:00", "to": "7:00"},
                },
                {"channel": "webhook", "to": "http://127.0.0.1/x?token=abc"},
            ],
        },
        {"name": "prompt", "target": {"kind": "agent", "prompt": "Hello"}},
        {"name": "quiet prompt", "target": {"kind": "agent", "prompt": "Hi"}, "delivery": []},
        {"name": "note", "target": {"kind": "message", "text": "Tea"}},
        {
            "name": "act",
            "target": {"kind": "action", "action_type_id": "a", "kn_id": "k", "identities": [{}]},
        },
        {"name": "often", "trigger": {"kind": "every", "every": "10m", "jitter": "5s"}},
        {"name": "at-every", "trigger": {"kind": "cron", "expression": "@every 90m"}},
        {"name": "other", "namespace": "shop", "policy": {"max_retries": 7, "overlap": "allow"}},
    ]
    for each in plain:
        await rig.create(**each)
    for full in ("false", "true"):
        answer = await rig.client.get("/api/v1/export", params={"full": full})
        exported = answer.json()["schedules"]
        planned = await apply(rig, exported, dry_run=True)
        assert {each["name"]: each["fields"] for each in planned["plan"]} == {
            each["name"]: {} for each in plain[:-1]
        }
        assert "policy" in exported["minimal"] or full == "false"
    short = (await rig.client.get("/api/v1/export")).json()["schedules"]
    assert short["minimal"] == {
        "trigger": CRON,
        "target": {"kind": "http", "url": HTTP["url"]},
    }
    assert "anchor" not in HOURLY["trigger"]
    exported = (await rig.client.get("/api/v1/export?namespace=shop")).json()["schedules"]
    assert exported["other"]["namespace"] == "shop"
    assert exported["other"]["policy"] == {"max_retries": 7, "overlap": "allow"}
    assert actions(await apply(rig, exported)) == {"other": "none"}
    # An interval without an anchor keeps its grid.
    trigger = {"kind": "every", "every": "10m", "jitter": "5s"}
    assert actions(await apply(rig, {"often": NINE | {"trigger": trigger}})) == {"often": "none"}
    await rig.create(name="minimal")
    assert (await rig.client.get("/api/v1/export")).status_code == 409
    one = {"id": (await rig.create(name="one"))["id"]}
    only = (await rig.client.get("/api/v1/export", params=one)).json()["schedules"]
    assert list(only) == ["one"]


async def test_prune_deletes_only_what_came_from_the_same_origin_and_namespace(rig: Rig) -> None:
    await rig.create(name="by hand")
    await apply(rig, {"a": NINE, "b": NINE}, origin="one.yaml")
    await apply(rig, {"c": NINE}, origin="two.yaml")
    await apply(rig, {"d": NINE}, origin="one.yaml", namespace="shop")
    pruned = await apply(rig, {"a": NINE}, origin="one.yaml", prune=True)
    assert actions(pruned) == {"a": "none", "b": "delete"}
    assert sorted(await names(rig)) == ["a", "by hand", "c", "d"]
    pruned = await apply(rig, {}, origin="one.yaml", prune=True, namespace="shop")
    assert actions(pruned) == {"d": "delete"}
    # A schedule made by hand is marked when a file that has it is applied.
    await apply(rig, {"by hand": NINE}, origin="one.yaml")
    assert actions(await apply(rig, {"a": NINE}, origin="one.yaml", prune=True)) == {
        "a": "none",
        "by hand": "delete",
    }
    found = await apply(rig, {}, origin="", prune=True, status=422)
    assert found["errors"][0]["pointer"] == "/origin"


async def test_prune_of_an_admin_spares_owners_that_the_file_does_not_have() -> None:
    async with serving() as rig:
        admin = await rig.key(Role.ADMIN)
        alice, bob = await rig.key(Role.MEMBER, ALICE), await rig.key(Role.MEMBER, BOB)
        file = {"origin": "schedules.yaml"}
        await apply(rig, {"a1": NINE, "a2": NINE}, headers=alice, **file)
        await apply(rig, {"b": NINE}, headers=bob, **file)
        await apply(rig, {"own": NINE, "old": NINE}, headers=admin, **file)
        pruned = await apply(rig, {"own": NINE}, prune=True, headers=admin, **file)
        assert actions(pruned) == {"own": "none", "old": "delete"}
        for_alice = NINE | {"owner": {"type": "user", "id": ALICE.id}}
        pruned = await apply(rig, {"a1": for_alice}, prune=True, headers=admin, **file)
        assert actions(pruned) == {"a1": "none", "a2": "delete", "own": "delete"}
        page = (await rig.client.get("/api/v1/schedules", headers=admin)).json()
        assert sorted(each["name"] for each in page["items"]) == ["a1", "b"]


async def test_editing_a_schedule_of_a_file_warns_and_the_file_wins(rig: Rig) -> None:
    await apply(rig, {"a": NINE}, origin="jobs.yaml")
    made = (await rig.client.get("/api/v1/schedules?name=a")).json()["items"][0]
    assert made["declared"] == {"at": "jobs.yaml", "kind": "file", "detached": False}
    assert made["warnings"] == []
    path = f"/api/v1/schedules/{made['id']}"
    # Neither a pause nor a request that changes nothing is an edit.
    assert (await rig.client.post(f"{path}/pause")).json()["warnings"] == []
    assert (await rig.client.patch(path, json={"priority": 0})).json()["warnings"] == []
    edited = (await rig.client.patch(path, json={"priority": -5})).json()
    assert [each["code"] for each in edited["warnings"]] == ["made_from_file"]
    assert "jobs.yaml" in edited["warnings"][0]["message"]
    assert edited["declared"]["detached"]
    found = await apply(rig, {"a": NINE}, origin="jobs.yaml")
    (item,) = found["plan"]
    assert item["fields"] == {"priority": [-5, 0]}
    assert [each["code"] for each in item["warnings"]] == ["edited_elsewhere"]
    # It is still paused: the file does not say `enabled`.
    after = (await rig.client.get(path)).json()
    assert not after["enabled"]
    assert not after["declared"]["detached"]
    resumed = await apply(rig, {"a": NINE | {"enabled": True}}, origin="jobs.yaml")
    assert resumed["plan"][0]["fields"] == {"enabled": [False, True]}
    # An edit without an origin warns, too, and marks nothing.
    item = (await apply(rig, {"a": TEN}, origin=""))["plan"][0]
    assert [each["code"] for each in item["warnings"]] == ["made_from_file"]
    assert (await rig.client.get(path)).json()["declared"]["detached"]


async def test_a_plan_that_has_become_another_is_not_applied(rig: Rig) -> None:
    await apply(rig, {"a": NINE, "b": HOURLY})
    planned = await apply(rig, {"a": TEN, "b": HOURLY}, dry_run=True)
    made = (await rig.client.get("/api/v1/schedules?name=a")).json()["items"][0]
    await rig.client.patch(f"/api/v1/schedules/{made['id']}", json={"priority": -1})
    wanted = {"a": TEN, "b": HOURLY}
    found = await apply(rig, wanted, expected_digest=planned["digest"], status=409)
    assert found["code"] == "plan_changed"
    planned = await apply(rig, wanted, dry_run=True)
    rig.clock.advance(90)
    await apply(rig, wanted, expected_digest=planned["digest"])


async def test_rights_and_quotas_are_those_of_single_schedules() -> None:
    def quotas(owner: object) -> tuple[Quota, ...]:
        return () if owner == BOB else (Quota(limit=2),)

    async with serving(limits=lambda: Limits(quotas=quotas)) as rig:
        admin = await rig.key(Role.ADMIN)
        alice, bob = await rig.key(Role.MEMBER, ALICE), await rig.key(Role.MEMBER, BOB)
        viewer = await rig.key(Role.VIEWER, ALICE)
        await apply(rig, {"x": NINE}, headers=viewer, status=403)
        await apply(rig, {"x": NINE}, headers=alice)
        for_bob = NINE | {"owner": {"type": "user", "id": BOB.id}}
        await apply(rig, {"x": for_bob}, headers=alice, status=403)
        # The same name of another owner is another schedule.
        assert actions(await apply(rig, {"x": TEN}, headers=bob)) == {"x": "create"}
        assert actions(await apply(rig, {}, prune=True, headers=bob)) == {"x": "delete"}
        exported = (await rig.client.get("/api/v1/export", headers=admin)).json()["schedules"]
        assert exported["x"]["owner"] == {"type": "user", "id": ALICE.id}
        assert actions(await apply(rig, exported, headers=admin)) == {"x": "none"}
        three = {"x": NINE, "y": NINE, "z": NINE}
        for dry_run in (True, False):
            found = await apply(rig, three, headers=alice, dry_run=dry_run, status=409)
            assert (found["quota"], found["limit"]) == ("schedules", 2)
        page = (await rig.client.get("/api/v1/schedules", headers=alice)).json()
        assert [each["name"] for each in page["items"]] == ["x"]


async def test_a_refused_creation_undoes_the_others(rig: Rig, monkeypatch: Any) -> None:
    """A quota that another request used up after the plan was made."""
    add, seen = rig.store.add_schedule, []

    async def refuse_third(*args: Any, **more: Any) -> Any:
        seen.append(args)
        if len(seen) == 3:
            from chimes.errors import QuotaExceeded

            raise QuotaExceeded()
        return await add(*args, **more)

    await apply(rig, {"old": NINE})
    monkeypatch.setattr(rig.store, "add_schedule", refuse_third)
    await apply(rig, {"old": TEN, "a": NINE, "b": NINE, "c": NINE}, status=409)
    assert await names(rig) == ["old"]
    assert actions(await apply(rig, {"old": NINE}, dry_run=True)) == {"old": "none"}


async def test_a_schedule_declared_in_code_is_not_taken_over(rig: Rig) -> None:
    from chimes.model.schedule import mark_source

    made = await rig.create(name="coded")
    await rig.store.change_schedule(
        ScheduleId(made["id"]), lambda before, now: mark_source(before, "shop/tasks.py:12")
    )
    found = await apply(rig, {"coded": NINE}, status=422)
    assert found["errors"][0]["code"] == "declared_in_code"
    assert (await rig.client.get("/api/v1/export")).json() == {
        "schedules": {},
        "skipped": ["coded"],
    }


async def test_a_task_without_a_worker_keeps_what_the_file_does_not_set(rig: Rig) -> None:
    """The run defaults of a task are unknown while no node offers it."""
    from chimes.model import replace
    from chimes.model.policy import Policy, RunDefaults
    from tests.builders import LEASE, a_node

    task = NINE | {"target": {"kind": "task", "name": "nightly"}}
    planned = await apply(rig, {"t": task}, dry_run=True)
    assert [each["code"] for each in planned["plan"][0]["warnings"]] == ["unknown_task"]
    node = replace(
        a_node("n1"),
        capabilities=frozenset({"task:nightly"}),
        defaults={"task:nightly": RunDefaults(policy=Policy(max_retries=4), priority=-2)},
    )
    await rig.store.join(node, LEASE)
    await apply(rig, {"t": task})
    await rig.store.leave(node.id)
    assert actions(await apply(rig, {"t": task})) == {"t": "none"}
    changed = task | {"policy": {"max_retries": 1}}
    item = (await apply(rig, {"t": changed}))["plan"][0]
    assert item["fields"] == {"policy.max_retries": [4, 1]}


async def test_duplicate_copies_everything_under_a_free_name(rig: Rig) -> None:
    made = await rig.create(
        name="call",
        target=HTTP | {"headers": SECRET},
        labels={"team": "a"},
        policy={"max_retries": 2},
    )
    path = f"/api/v1/schedules/{made['id']}/duplicate"
    first = (await rig.client.post(path)).json()
    second = (await rig.client.post(path, json={"paused": True})).json()
    third = (await rig.client.post(path, json={"name": "call"})).json()
    assert [first["name"], second["name"], third["name"]] == ["call (2)", "call (3)", "call"]
    assert (first["enabled"], second["enabled"]) == (True, False)
    assert [each["code"] for each in third["warnings"]] == ["duplicate_name"]
    assert first["policy"] == made["policy"]
    assert first["labels"] == made["labels"]
    stored = await rig.store.get_schedule(ScheduleId(first["id"]))
    assert stored is not None
    assert stored.target.headers == SECRET
    copy = (await rig.client.post(f"/api/v1/schedules/{first['id']}/duplicate")).json()
    assert copy["name"] == "call (4)"


async def test_a_second_schedule_of_a_name_warns(rig: Rig) -> None:
    first = await rig.create(name="report")
    assert first["warnings"] == []
    second = await rig.create(name="report")
    (warning,) = second["warnings"]
    assert (warning["code"], warning["field"]) == ("duplicate_name", "name")
    assert first["id"] in warning["message"]
    assert (await rig.create(name="report", namespace="shop"))["warnings"] == []
    # The list does not repeat what was said when the schedule was created.
    page = (await rig.client.get("/api/v1/schedules")).json()
    assert [each["warnings"] for each in page["items"]] == [[], [], []]


async def test_settings_of_the_server_are_the_defaults_of_a_file() -> None:
    async with serving(settings=Settings(max_retries=5)) as rig:
        await apply(rig, {"a": NINE})
        exported = (await rig.client.get("/api/v1/export")).json()["schedules"]
        assert "policy" not in exported["a"]
        made = (await rig.client.get("/api/v1/schedules")).json()["items"][0]
        assert made["policy"]["max_retries"] == 5


async def test_a_set_may_be_larger_than_other_bodies(rig: Rig) -> None:
    many = {f"job {n}": NINE | {"target": HTTP | {"body": "x" * 2000}} for n in range(200)}
    planned = await apply(rig, many, dry_run=True)
    assert len(planned["plan"]) == 200
    too_many = {f"job {n}": NINE for n in range(1001)}
    found = await apply(rig, too_many, dry_run=True, status=422)
    assert found["errors"][0]["pointer"] == "/schedules"


async def test_a_file_with_events_is_applied_once_and_keeps_its_addresses(rig: Rig) -> None:
    source = await rig.create(name="source", trigger={"kind": "webhook"})
    hook = {"kind": "webhook", "scheme": "github", "secret": "hush-hush", "debounce": "30s"}
    wanted = {
        "hook": NINE | {"trigger": hook},
        "after": NINE
        | {"trigger": {"kind": "run_end", "schedule": source["id"], "status": ["failed"]}},
    }
    planned = await apply(rig, wanted, dry_run=True)
    assert actions(planned) == {"hook": "create", "after": "create"}
    assert "hush-hush" not in str(planned)
    await apply(rig, wanted, expected_digest=planned["digest"])
    items = (await rig.client.get("/api/v1/schedules")).json()["items"]
    stored = {each["name"]: each for each in items}
    assert stored["hook"]["trigger"] == hook | {"secret": "***", "debounce": "PT30S"}
    assert stored["after"]["trigger"]["schedule"] == source["id"]
    assert stored["hook"]["policy"]["overlap"] == "queue"
    again = await apply(rig, wanted)
    assert actions(again) == {"hook": "none", "after": "none"}
    # An export has what differs from the default of events.
    path = f"/api/v1/schedules/{stored['after']['id']}"
    await rig.client.patch(path, json={"policy": {"overlap": "skip"}})
    exported = (await rig.client.get("/api/v1/export")).json()["schedules"]
    assert exported["after"]["policy"] == {"overlap": "skip"}
    assert "policy" not in exported["hook"]
    kept = wanted | {"after": exported["after"]}
    assert actions(await apply(rig, kept)) == {"hook": "none", "after": "none"}
    assert actions(await apply(rig, wanted)) == {"hook": "none", "after": "update"}
    slower = wanted | {"hook": NINE | {"trigger": hook | {"debounce": "1m"}}}
    changed = await apply(rig, slower)
    assert actions(changed) == {"hook": "update", "after": "none"}
    shown = (await rig.client.get(f"/api/v1/schedules/{stored['hook']['id']}")).json()
    assert shown["hook_url"] == stored["hook"]["hook_url"]
    assert shown["trigger"]["debounce"] == "PT1M"
    cycle = {"after": NINE | {"trigger": {"kind": "run_end", "schedule": stored["after"]["id"]}}}
    refused = await apply(rig, cycle, status=422)
    assert "trigger" in str(refused)
