"""Actions as targets of the native API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from chimes.config import Settings
from chimes.model.access import Role
from tests.builders import ALICE, ODD_JSON
from tests.web.rig import HTTP, Rig, definition, serving

PATH = "/api/v1/schedules"
ACTION: dict[str, Any] = {"kind": "action", "action_type_id": "restart", "kn_id": "kn1"}
FULL_ACTION = ACTION | {
    "branch": "dev",
    "identities": [{"id": "pod-1"}, ODD_JSON],
    "params": ODD_JSON,
    "account": {"id": "u-1", "type": "app"},
}


async def test_action_round_trip_keeps_every_field(any_rig: Rig) -> None:
    made = await any_rig.create(target=FULL_ACTION)
    assert made["target"] == FULL_ACTION
    assert (await any_rig.client.get(f"{PATH}/{made['id']}")).json() == made


async def test_omitted_action_fields_have_configured_defaults() -> None:
    settings = Settings(schedule_execution_timeout=timedelta(minutes=20))
    async with serving(settings=settings) as rig:
        made = await rig.create(target=ACTION)
    assert made["target"] == ACTION | {
        "branch": "main",
        "identities": [],
        "params": {},
        "account": {"id": "", "type": ""},
    }
    policy = made["policy"]
    assert (policy["timeout"], policy["max_retries"], policy["backoff"]) == (
        "PT20M",
        3,
        "exponential",
    )
    assert (policy["misfire"], policy["overlap"], policy["max_concurrent_runs"]) == (
        "one",
        "skip",
        1,
    )


@pytest.mark.parametrize("name", ["identities", "unique_identities", "_instance_identities"])
async def test_kweaver_names_of_action_fields_are_accepted(rig: Rig, name: str) -> None:
    made = await rig.create(target=ACTION | {name: [{"id": 1}], "dynamic_params": {"a": 1}})
    assert (made["target"]["identities"], made["target"]["params"]) == ([{"id": 1}], {"a": 1})
    changed = await rig.client.patch(
        f"{PATH}/{made['id']}", json={"target": {name: [{"id": 2}], "dynamic_params": {}}}
    )
    assert changed.status_code == 200, changed.text
    assert changed.json()["target"] == made["target"] | {"identities": [{"id": 2}], "params": {}}


async def test_conflicting_field_aliases_are_rejected(rig: Rig) -> None:
    same = {"unique_identities": [{"id": 1}], "_instance_identities": [{"id": 1}]}
    assert (await rig.create(target=ACTION | same))["target"]["identities"] == [{"id": 1}]
    answer = await rig.client.post(
        PATH, json=definition(target=ACTION | same | {"identities": [{"id": 2}]})
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "given_twice")


async def test_patch_changes_only_the_given_action_fields(rig: Rig) -> None:
    made = await rig.create(target=FULL_ACTION)
    patch = {"target": {"branch": "main", "account": {"id": "u-2", "type": "user"}}}
    answer = await rig.client.patch(f"{PATH}/{made['id']}", json=patch)
    assert answer.json()["target"] == FULL_ACTION | patch["target"]
    plain = await rig.create(target=HTTP)
    turned = await rig.client.patch(f"{PATH}/{plain['id']}", json={"target": ACTION})
    assert turned.json()["target"]["action_type_id"] == "restart"
    assert turned.json()["policy"]["timeout"] == "PT10M"
    lacking = {"target": {"kind": "action", "kn_id": "kn1"}}
    answer = await rig.client.patch(f"{PATH}/{(await rig.create(target=HTTP))['id']}", json=lacking)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (
        422,
        "/target/action_type_id",
    )


async def test_secret_params_are_masked_and_kept_when_the_mask_is_sent_back(rig: Rig) -> None:
    made = await rig.create(target=ACTION | {"params": {"api_key": "hush", "n": 1}})
    assert made["target"]["params"] == {"api_key": "***", "n": 1}
    patch = {"target": {"params": {"api_key": "***", "n": 2}}}
    await rig.client.patch(f"{PATH}/{made['id']}", json=patch)
    kept = await rig.store.get_schedule(made["id"])
    assert kept is not None
    assert kept.target.params == {"api_key": "hush", "n": 2}


@pytest.mark.parametrize(
    ("given", "pointer", "code"),
    [
        ({"action_type_id": ""}, "/target/action_type_id", "missing"),
        ({"kn_id": "x" * 41}, "/target/kn_id", "too_long"),
        ({"branch": ""}, "/target/branch", "missing"),
        ({"identities": ["x"]}, "/target/identities/0", "dict_type"),
        ({"identities": {}}, "/target/identities", "list_type"),
        ({"account": {"id": "a" * 41}}, "/target/account/id", "too_long"),
        ({"account": {"name": "a"}}, "/target/account/name", "unknown_field"),
        ({"action_type": "x"}, "/target/action_type", "unknown_field"),
    ],
)
async def test_invalid_actions_are_rejected(
    rig: Rig, given: dict[str, Any], pointer: str, code: str
) -> None:
    answer = await rig.client.post(PATH, json=definition(target=ACTION | given))
    first = answer.json()["errors"][0]
    assert answer.status_code == 422
    assert (first["pointer"], first["code"]) == (pointer, code)


# The action service trusts the account that Chimes sends.
async def test_only_an_admin_sets_another_account(rig: Rig) -> None:
    member = await rig.key(Role.MEMBER, ALICE)
    admin = await rig.key(Role.ADMIN)

    async def create(account: dict[str, str], headers: dict[str, str]) -> int:
        body = definition(target=ACTION | {"account": account})
        return (await rig.client.post(PATH, json=body, headers=headers)).status_code

    assert await create({"id": "bob", "type": "user"}, member) == 403
    assert await create({"id": "alice", "type": "app"}, member) == 403
    assert await create({"id": "alice", "type": "user"}, member) == 201
    assert await create({}, member) == 201
    assert await create({"id": "bob", "type": "app"}, admin) == 201
    given = definition(
        target=ACTION | {"account": {"id": "bob", "type": "app"}},
        owner={"type": "user", "id": "alice"},
    )
    made = (await rig.client.post(PATH, json=given, headers=admin)).json()
    renamed = await rig.client.patch(
        f"{PATH}/{made['id']}", json={"target": {"branch": "dev"}}, headers=member
    )
    assert renamed.status_code == 200, renamed.text


async def test_action_run_without_a_schedule(rig: Rig) -> None:
    answer = await rig.client.post("/api/v1/runs", json={"target": FULL_ACTION})
    assert answer.status_code in (201, 202), answer.text
    run = await rig.store.get_run(answer.json()["id"])
    assert run is not None
    assert (run.target.kind, run.policy.timeout) == ("action", timedelta(minutes=10))
