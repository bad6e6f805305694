"""Commands over the API: refused where no node allows them and for other roles."""

from __future__ import annotations

from typing import Any

from chimes.model.access import Actor, Owner, OwnerType, Role, Scope
from chimes.model.target import command_requirements
from tests.builders import LEASE, a_node
from tests.web.rig import CRON, Rig

PATH = "/api/v1/schedules"
TARGET = {"kind": "command", "command": ["backup.sh", "--all"]}
MEMBER = Owner(type=OwnerType.USER, id="ada")


def body(**target: Any) -> dict[str, Any]:
    return {"name": "n", "trigger": CRON, "target": TARGET | target}


async def allow(rig: Rig, **labels: str) -> None:
    await rig.store.join(a_node(capabilities=tuple(command_requirements(labels))), LEASE)


async def test_refused_without_a_node_that_allows_commands(rig: Rig) -> None:
    await rig.store.join(a_node(capabilities=("http",)), LEASE)
    before = await rig.snapshot()
    for path, sent in ((PATH, body()), ("/api/v1/runs", {"target": TARGET})):
        answer = await rig.client.post(path, json=sent)
        assert (answer.status_code, answer.json()["code"]) == (422, "commands_not_allowed")
        assert "CHIMES_ALLOW_COMMANDS" in answer.json()["detail"]
    assert await rig.snapshot() == before


async def test_round_trip_with_masked_variables(any_rig: Rig) -> None:
    await allow(any_rig)
    sent = TARGET | {
        "cwd": "/srv",
        "env": {"LEVEL": "full", "DB_PASSWORD": "hunter2!"},
        "stdin": "yes\n",
        "umask": "027",
        "success_codes": [0, 3],
        "memory_limit": 2**30,
        "cpu_limit": "PT30S",
        "output_limit": 1000,
        "kill_after": "PT5S",
    }
    made = await any_rig.create(target=sent)
    shown = made["target"]
    assert shown["env"] == {"LEVEL": "full", "DB_PASSWORD": "***"}
    expected = sent | {"env": shown["env"], "shell": "", "user": "", "requires": {}}
    assert shown == expected
    assert made["policy"]["timeout"] == "PT1H"
    changed = await any_rig.client.patch(
        f"{PATH}/{made['id']}", json={"target": {"env": shown["env"] | {"LEVEL": "half"}}}
    )
    assert changed.status_code == 200, changed.text
    stored = await any_rig.store.get_schedule(made["id"])
    assert stored is not None
    assert dict(stored.target.env) == {"LEVEL": "half", "DB_PASSWORD": "hunter2!"}  # type: ignore[union-attr]


async def test_labels_that_no_worker_has_are_a_warning(rig: Rig) -> None:
    await allow(rig, zone="eu")
    assert (await rig.create(target=TARGET | {"requires": {"zone": "eu"}}))["warnings"] == []
    made = await rig.create(name="other", target=TARGET | {"requires": {"zone": "us"}})
    assert [each["code"] for each in made["warnings"]] == ["no_worker"]
    assert "zone=us" in made["warnings"][0]["message"]


async def test_only_chosen_roles_may_create_and_change_commands(rig: Rig) -> None:
    await allow(rig)
    admin = await rig.key(Role.ADMIN)
    member = await rig.key(Role.MEMBER, MEMBER)
    made = await rig.client.post(PATH, json=body() | {"owner": {"id": "ada"}}, headers=admin)
    assert made.status_code == 201, made.text
    own = f"{PATH}/{made.json()['id']}"
    for method, path, sent in (
        ("POST", PATH, body()),
        ("POST", "/api/v1/runs", {"target": TARGET}),
        ("PATCH", own, {"target": {"command": ["rm", "-rf", "/"]}}),
    ):
        answer = await rig.client.request(method, path, json=sent, headers=member)
        assert answer.status_code == 403, (method, path, answer.text)
        assert "CHIMES_COMMAND_ROLES" in answer.json()["detail"]
    # What an admin set up can be used and described differently.
    renamed = await rig.client.patch(own, json={"name": "other"}, headers=member)
    assert renamed.status_code == 200, renamed.text
    assert (await rig.client.post(f"{own}/run", headers=member)).status_code == 202


async def test_an_agent_never_creates_a_command(rig: Rig) -> None:
    await allow(rig)
    made = await rig.context.access.create(
        Actor(),
        name="agent",
        role=Role.ADMIN,
        owner=MEMBER,
        scopes=(Scope.AGENT, Scope.AGENT_SCHEDULES),
    )
    headers = {"Authorization": f"Bearer {made.text}"}
    answer = await rig.client.post(PATH, json=body(), headers=headers)
    assert answer.status_code == 403
    assert "agent" in answer.json()["detail"]
