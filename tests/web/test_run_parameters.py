"""Manual runs with other parameters than their schedule."""

from __future__ import annotations

from typing import Any

import pytest

from chimes.errors import InvalidInput
from chimes.model.access import SYSTEM_OWNER, Role
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    CommandTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    Target,
    TaskTarget,
    payload_name,
    payload_of,
    same_but_payload,
)
from chimes.web.api.translate import with_params
from tests.web.rig import HTTP, Rig
from tests.web.test_targets_api import join_node

TARGETS: list[Target] = [
    HttpTarget(url="http://127.0.0.1:9/", body='{"a": 1}'),
    TaskTarget(name="greet", args={"a": 1}),
    FlowTarget(name="pipeline", input={"a": 1}),
    ActionTarget(action_type_id="x", kn_id="y", params={"a": 1}),
    AgentTarget(prompt="a"),
    MessageTarget(text="a"),
    SyncTarget(source="s", collection="c"),
    CommandTarget(shell="a"),
]


async def post_run(rig: Rig, made: dict[str, Any], body: object, **headers: str) -> Any:
    path = f"/api/v1/schedules/{made['id']}/run"
    return await rig.client.post(path, json=body, headers=headers)


async def test_arguments_are_replaced_for_one_run(any_rig: Rig) -> None:
    await join_node(any_rig)
    args = {"name": "Ada", "api_key": "hush-1", "deep": {"token": "hush-2", "n": 1}}
    made = await any_rig.create(target={"kind": "task", "name": "greet", "args": args})
    params = {"name": "Grace", "api_key": "***", "deep": {"token": "***", "n": 2}}
    answer = await post_run(any_rig, made, {"params": params})
    assert answer.status_code == 202, answer.text
    run = await any_rig.store.get_run(answer.json()["id"])
    assert run is not None
    assert run.schedule_id == made["id"]
    assert payload_of(run.target) == {
        "name": "Grace",
        "api_key": "hush-1",
        "deep": {"token": "hush-2", "n": 2},
    }
    after = (await any_rig.client.get(f"/api/v1/schedules/{made['id']}")).json()
    assert after == made, "the schedule is unchanged"
    audit = (await any_rig.client.get("/api/v1/audit")).json()["items"][0]
    assert audit["verb"] == "run"
    assert audit["changes"]["args"]["name"] == "Grace"
    assert "hush" not in str(audit)


async def test_http_body_is_replaced_as_a_whole_or_by_member(rig: Rig) -> None:
    made = await rig.create(target=HTTP | {"body": '{"day": "monday", "copies": 1}'})
    run = (await post_run(rig, made, {"params": {"copies": 2}})).json()
    assert run["target"]["body"] == '{"day": "monday", "copies": 2}'
    run = (await post_run(rig, made, {"body": "plain"})).json()
    assert run["target"]["body"] == "plain"
    plain = await rig.create(target=HTTP | {"body": "not json"})
    refused = (await post_run(rig, plain, {"params": {"a": 1}})).json()
    assert (refused["status"], refused["code"]) == (422, "not_an_object")
    same = (await post_run(rig, plain, {})).json()
    assert same["target"]["body"] == "not json"


async def test_message_text_is_replaced_for_one_run(rig: Rig) -> None:
    made = await rig.create(target={"kind": "message", "text": "take the pill"})
    answer = await post_run(rig, made, {"text": "take *two*"})
    assert (answer.status_code, answer.json()["target"]["text"]) == (202, "take *two*")
    after = (await rig.client.get(f"/api/v1/schedules/{made['id']}")).json()
    assert after["target"]["text"] == "take the pill"
    for empty in ("", " "):
        assert (await post_run(rig, made, {"text": empty})).status_code == 422
    refused = (await post_run(rig, made, {"body": "x"})).json()
    assert refused["code"] == "unknown_field", refused
    assert "text" in str(refused["errors"])


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"prompt": "x"}, "prompt"),
        ({"text": "x"}, "text"),
        ({"params": [1]}, "params"),
        ({"url": "http://x/"}, "url"),
    ],
)
async def test_parameters_that_the_target_does_not_have_are_rejected(
    rig: Rig, body: object, named: str
) -> None:
    made = await rig.create()
    answer = await post_run(rig, made, body)
    assert answer.status_code == 422
    assert named in answer.text
    assert (await rig.client.get("/api/v1/runs")).json()["items"] == []


async def test_operator_may_not_change_parameters(rig: Rig) -> None:
    """Changing the payload requires the right to create, not only to operate."""
    made = await rig.create()
    operator = await rig.key(Role.OPERATOR, SYSTEM_OWNER)
    assert (await post_run(rig, made, {}, **operator)).status_code == 202
    assert (await post_run(rig, made, {"body": "x"}, **operator)).status_code == 403
    member = await rig.key(Role.MEMBER, SYSTEM_OWNER)
    assert (await post_run(rig, made, {"body": "x"}, **member)).status_code == 202


@pytest.mark.parametrize("target", TARGETS[:4], ids=lambda each: each.kind)
def test_params_are_merged_by_name(target: Target) -> None:
    changed = with_params(target, {"b": [2]})
    assert same_but_payload(changed, target)
    assert changed != target
    assert "b" in (payload_of(changed) or "")
    assert "a" in (payload_of(changed) or "")


@pytest.mark.parametrize("target", TARGETS[4:], ids=lambda each: each.kind)
def test_prompt_message_and_sync_have_no_params(target: Target) -> None:
    with pytest.raises(InvalidInput, match="has no params"):
        with_params(target, {"b": 2})


def test_only_the_payload_of_a_target_may_differ() -> None:
    for target in TARGETS:
        for other in TARGETS:
            assert same_but_payload(target, other) == (target is other)
    assert not same_but_payload(HttpTarget(url="http://a/"), HttpTarget(url="http://b/"))
    assert same_but_payload(AgentTarget(prompt="a"), AgentTarget(prompt="b"))
    assert [payload_name(each) for each in TARGETS] == [
        "body", "args", "input", "params", "prompt", "text", "", "",
    ]  # fmt: skip
    assert payload_of(TARGETS[-1]) is None
