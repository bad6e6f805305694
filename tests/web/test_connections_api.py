"""Targets that name a connection of `chimes.yaml`: who may use which, and what is shown of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from chimes.config import Settings
from chimes.config.connections import Connection
from chimes.model.access import Actor, Role, Scope
from tests.builders import ALICE, LEASE, a_node
from tests.web.rig import Rig, definition, serving

PATH = "/api/v1/schedules"
CELERY: dict[str, Any] = {"kind": "celery", "connection": "tasks", "task": "reports.nightly"}
AMQP: dict[str, Any] = {"kind": "amqp", "connection": "orders", "exchange": "orders.new"}
KUBERNETES = Connection(
    name="cluster",
    kind="kubernetes",
    url="https://cluster",
    namespace="batch",
    roles=("member", "admin"),
)
CONNECTIONS = (
    Connection(name="tasks", kind="celery", url="amqp://chimes:s3cret-word@rabbit/"),
    Connection(
        name="orders",
        kind="amqp",
        url="amqp://chimes:s3cret-word@rabbit/",
        roles=("member", "admin"),
        allow=("orders.*",),
    ),
    Connection(name="shop", kind="sql", url="postgresql://reader:s3cret-word@db/shop"),
)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """A server with connections in its file, without a node."""
    async with serving(settings=Settings(connections=CONNECTIONS)) as rig:
        yield rig


def named(name: str, target: dict[str, Any] = CELERY) -> dict[str, Any]:
    return target | {"connection": name}


async def refused(
    rig: Rig, target: dict[str, Any], headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """The same answer to a schedule and to a single run; neither changes anything."""
    before = await rig.snapshot()
    schedule = await rig.client.post(PATH, json=definition(target=target), headers=headers)
    run = await rig.client.post("/api/v1/runs", json={"target": target}, headers=headers)
    assert schedule.status_code == run.status_code, (schedule.text, run.text)
    assert schedule.json()["code"] == run.json()["code"]
    assert await rig.snapshot() == before
    return schedule.status_code, schedule.json()


async def test_unknown_connection_is_refused_with_the_known_names(rig: Rig) -> None:
    await rig.store.join(a_node(capabilities=("http", "celery:remote")), LEASE)
    status, problem = await refused(rig, named("taks"))
    assert (status, problem["code"]) == (422, "unknown_connection")
    assert problem["errors"][0]["pointer"] == "/target/connection"
    assert "'taks' of kind celery; known: remote, tasks" in problem["detail"]
    assert "tasks" in problem["errors"][0]["hint"]
    # A connection of another kind is not a connection of this kind.
    _status, problem = await refused(rig, named("tasks", AMQP))
    assert "known: orders" in problem["detail"]
    status, problem = await refused(rig, {"kind": "nats", "connection": "a", "subject": "b"})
    assert (status, problem["code"]) == (422, "unknown_connection")
    assert "`connections:`" in problem["detail"]
    made = await rig.create(target=CELERY)
    changed = await rig.client.patch(
        f"{PATH}/{made['id']}", json={"target": {"connection": "taks"}}
    )
    assert (changed.status_code, changed.json()["code"]) == (422, "unknown_connection")
    assert (await rig.client.get(f"{PATH}/{made['id']}")).json()["target"] == made["target"]


async def test_connection_whose_nodes_are_gone_is_a_warning(rig: Rig) -> None:
    node = a_node(capabilities=("http", "celery:remote"))
    await rig.store.join(node, timedelta(seconds=30))
    made = await rig.create(target=named("remote"))
    path = f"{PATH}/{made['id']}"
    assert made["warnings"] == []
    rig.clock.advance(timedelta(minutes=1))
    (warning,) = (await rig.client.get(path)).json()["warnings"]
    assert (warning["code"], warning["field"]) == ("no_connection", "target.connection")
    assert "'remote'" in warning["message"]
    system = (await rig.client.get("/api/v1/system")).json()["warnings"]
    assert [(each["code"], each["schedule_id"]) for each in system] == [
        ("no_connection", made["id"])
    ]
    # What does not touch the target can be changed, and the schedule can be run: the run waits.
    renamed = await rig.client.patch(path, json={"name": "other"})
    assert renamed.status_code == 200, renamed.text
    assert [each["code"] for each in renamed.json()["warnings"]] == ["no_connection"]
    assert (await rig.client.post(f"{path}/run")).status_code == 202
    await rig.store.join(node, LEASE)
    assert (await rig.client.get(path)).json()["warnings"] == []
    # A live worker without the connection: the file of this process does not execute runs.
    made = await rig.create(name="own", target=CELERY)
    assert [each["code"] for each in made["warnings"]] == ["no_connection"]


async def test_roles_and_patterns_of_a_connection_decide_who_uses_what(rig: Rig) -> None:
    await rig.store.join(a_node(capabilities=("celery:remote",)), LEASE)
    admin = await rig.key(Role.ADMIN)
    member = await rig.key(Role.MEMBER, ALICE)
    for target, roles in ((CELERY, "admin"), (named("remote"), "admin")):
        status, problem = await refused(rig, target, member)
        assert status == 403, problem
        assert f"{target['connection']!r}: {roles}" in problem["detail"]
        answer = await rig.client.post(
            PATH, json=definition(name=target["connection"], target=target), headers=admin
        )
        assert answer.status_code == 201, answer.text
    made = await rig.client.post(PATH, json=definition(target=AMQP), headers=member)
    assert made.status_code == 201, made.text
    path = f"{PATH}/{made.json()['id']}"
    taken = await rig.client.patch(path, json={"target": CELERY}, headers=member)
    assert taken.status_code == 403, taken.text
    for headers in (member, admin):
        status, problem = await refused(rig, AMQP | {"exchange": "users"}, headers)
        assert (status, problem["code"]) == (422, "not_allowed_there")
        assert "allowed: orders.*" in problem["detail"]
    # What an admin set up for a member can be renamed and run by the member.
    given = definition(name="given", target=CELERY, owner={"type": "user", "id": "alice"})
    own = (await rig.client.post(PATH, json=given, headers=admin)).json()
    path = f"{PATH}/{own['id']}"
    renamed = await rig.client.patch(path, json={"name": "mine"}, headers=member)
    assert renamed.status_code == 200, renamed.text
    assert (await rig.client.post(f"{path}/run", headers=member)).status_code == 202
    changed = await rig.client.patch(path, json={"target": {"task": "x"}}, headers=member)
    assert changed.status_code == 403


async def test_only_admins_set_the_manifest_and_the_namespace_of_a_job() -> None:
    job: dict[str, Any] = {"kind": "kubernetes", "connection": "cluster", "image": "report:3"}
    pod = {"template": {"spec": {"serviceAccountName": "root"}}}
    wide: dict[str, dict[str, Any]] = {
        "manifest": job | {"manifest": {"spec": pod}},
        "namespace": job | {"namespace": "kube"},
    }
    async with serving(settings=Settings(connections=(KUBERNETES,))) as rig:
        admin, member = await rig.key(Role.ADMIN), await rig.key(Role.MEMBER, ALICE)
        made = await rig.client.post(PATH, json=definition(target=job), headers=member)
        assert made.status_code == 201, made.text
        for field, target in wide.items():
            status, problem = await refused(rig, target, member)
            assert (status, problem["code"]) == (422, "not_allowed_there")
            assert problem["errors"][0]["pointer"] == f"/target/{field}"
            assert "allow_manifest" in problem["detail"]
            path = f"{PATH}/{made.json()['id']}"
            changed = await rig.client.patch(path, json={"target": target}, headers=member)
            assert changed.status_code == 422, changed.text
            by_admin = definition(name=field, target=target, owner={"type": "user", "id": "alice"})
            given = await rig.client.post(PATH, json=by_admin, headers=admin)
            assert given.status_code == 201, given.text
            # The member can use it as it is.
            path = f"{PATH}/{given.json()['id']}"
            run = await rig.client.post(f"{path}/run", headers=member)
            assert run.status_code == 202, run.text
            edited = await rig.client.patch(
                path, json={"target": {"image": "other"}}, headers=member
            )
            assert edited.status_code == 422, edited.text
        own = definition(name="own", target=job | {"namespace": "batch"})
        assert (await rig.client.post(PATH, json=own, headers=member)).status_code == 201
    opened = replace(KUBERNETES, allow_manifest=True)
    async with serving(settings=Settings(connections=(opened,))) as rig:
        member = await rig.key(Role.MEMBER, ALICE)
        for field, target in wide.items():
            body = definition(name=field, target=target)
            answer = await rig.client.post(PATH, json=body, headers=member)
            assert answer.status_code == 201, answer.text


async def test_agent_never_uses_a_connection(rig: Rig) -> None:
    owned = await rig.create(target=AMQP)
    made = await rig.context.access.create(
        Actor(),
        name="agent",
        role=Role.ADMIN,
        owner=ALICE,
        scopes=(Scope.AGENT, Scope.AGENT_SCHEDULES),
    )
    headers = {"Authorization": f"Bearer {made.text}"}
    status, problem = await refused(rig, AMQP, headers)
    assert status == 403
    assert "an agent may not use engines and brokers" in problem["detail"]
    run = await rig.client.post(f"{PATH}/{owned['id']}/run", headers=headers)
    assert run.status_code in (403, 404), run.text


async def test_connections_are_listed_without_urls(rig: Rig) -> None:
    await rig.store.join(
        a_node("worker-2", capabilities=("http", "celery:tasks", "nats:bus")), LEASE
    )
    await rig.store.join(a_node("worker-1", capabilities=("celery:tasks",)), LEASE)
    await rig.store.join(a_node("gone", capabilities=("kafka:old",)), timedelta(seconds=-1))
    answer = await rig.client.get("/api/v1/connections")
    assert "s3cret" not in answer.text
    assert "rabbit" not in answer.text
    items = answer.json()["items"]
    assert items == [
        {
            "name": "orders",
            "kind": "amqp",
            "roles": ["member", "admin"],
            "allow": ["orders.*"],
            "nodes": [],
        },
        {
            "name": "tasks",
            "kind": "celery",
            "roles": ["admin"],
            "allow": [],
            "nodes": ["worker-1", "worker-2"],
        },
        {"name": "bus", "kind": "nats", "roles": [], "allow": [], "nodes": ["worker-2"]},
        {"name": "shop", "kind": "sql", "roles": ["admin"], "allow": [], "nodes": []},
    ]
    # Names of nodes are for those who see all nodes.
    await rig.key(Role.ADMIN)
    member = await rig.key(Role.MEMBER, ALICE)
    seen = (await rig.client.get("/api/v1/connections", headers=member)).json()["items"]
    assert seen == [each | {"nodes": []} for each in items]
    assert (await rig.client.get("/api/v1/connections")).status_code == 401


TASK: dict[str, Any] = {"kind": "task", "name": "send"}
COMMAND: dict[str, Any] = {"kind": "command", "command": ["true"]}
#: Target, change, pointer of the error.
WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (CELERY, {"args": "text"}, "/target/args"),
    (CELERY, {"args": {"a": 1}}, "/target/args"),
    (CELERY, {"kwargs": [1]}, "/target/kwargs"),
    (CELERY, {"kwargs": "text"}, "/target/kwargs"),
    (CELERY, {"task": 7}, "/target/task"),
    (CELERY, {"task": ""}, "/target/task"),
    (CELERY, {"connection": ""}, "/target/connection"),
    (CELERY, {"connection": ["tasks"]}, "/target/connection"),
    (CELERY, {"queue": "a\x00b"}, "/target/queue"),
    (CELERY, {"exchange": "orders.new"}, "/target/exchange"),
    (AMQP, {"body": "{{secret.no such}}"}, "/target/body"),
    (AMQP, {"cloudevents": "perhaps"}, "/target/cloudevents"),
    (AMQP, {"routing_key": 1}, "/target/routing_key"),
    (TASK, {"args": [1]}, "/target/args"),
    (TASK, {"task": "send"}, "/target/task"),
    (COMMAND, {"command": "true"}, "/target/command"),
    (COMMAND, {"command": ["true", 1]}, "/target/command/1"),
]


async def test_wrong_types_in_a_patch_are_named_and_change_nothing(rig: Rig) -> None:
    made = {
        "celery": await rig.create(
            name="celery", target=CELERY | {"args": [1], "kwargs": {"day": "{{slot}}"}}
        ),
        "amqp": await rig.create(name="amqp", target=AMQP),
    }
    # Arguments of a task of an application are named, those of a command are texts.
    await rig.store.join(a_node(capabilities=("command", "task:send")), LEASE)
    made["task"] = await rig.create(name="task", target=TASK)
    made["command"] = await rig.create(name="command", target=COMMAND)
    before, wrong = await rig.snapshot(), []
    for target, change, pointer in WRONG:
        path = f"{PATH}/{made[target['kind']]['id']}"
        patched = await rig.client.patch(path, json={"target": change})
        created = await rig.client.post(PATH, json=definition(target=target | change))
        for answer in (patched, created):
            errors = answer.json().get("errors") or [{}]
            if (answer.status_code, errors[0].get("pointer")) != (422, pointer):
                wrong.append((change, answer.request.method, answer.text))
    assert not wrong, "\n".join(map(str, wrong))
    assert await rig.snapshot() == before
