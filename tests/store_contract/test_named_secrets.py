"""Named secrets on every store: stored encrypted, filled in at execution, never returned."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from chimes.clock import SystemClock
from chimes.envelope import Keyring, new_key
from chimes.model.access import Actor, Role, Scope
from chimes.model.listing import AuditQuery, DeliveryQuery
from chimes.model.notification import DeliveryState
from chimes.notifications.webhook import Webhook
from chimes.services.secrets import SecretService, resolve_secrets
from chimes.store.port import Store
from chimes.targets.http import HttpCallback
from tests.builders import ALICE, BOB
from tests.engine.rig import Rig as Node
from tests.engine.rig import eventually
from tests.store_contract import stores
from tests.store_contract.conftest import DURABLE, _name
from tests.store_contract.stores import Home
from tests.store_contract.test_secrets_at_rest import raw
from tests.targets.sinks import OPEN, Sink, a_sink, answer
from tests.web.rig import Rig, serving

SECRETS = "/api/v1/secrets"
#: Written differently in a URL, in JSON and in base64.
OLD, NEW = 'one+"5ecret/old', 'two+"5ecret/new'
SIGNING = "whsec_" + base64.b64encode(b"signing-5ecret-of-24-by!").decode()
CRON = {"kind": "cron", "expression": "0 9 1 1 *", "timezone": "UTC"}


def forms(value: str) -> list[str]:
    return [
        value,
        quote(value, safe=""),
        json.dumps(value)[1:-1],
        base64.b64encode(value.encode()).decode().rstrip("="),
        base64.b64encode(f"user:{value}".encode()).decode(),
    ]


def leaked(text: str) -> list[str]:
    """Of the last form only what does not depend on the user name."""
    values = (OLD, NEW, SIGNING)
    return [
        form
        for value in values
        for form in (*forms(value)[:-1], forms(value)[-1][8:-4])
        if form in text
    ]


@pytest.fixture(params=DURABLE, ids=_name)
async def home(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Home]:
    home = Home(request.param, tmp_path, SystemClock())
    yield home
    await home.close()


class Scene:
    """A server with two members, and a node that executes."""

    def __init__(self, web: Rig, node: Node, sink: Sink) -> None:
        self.web, self.node, self.sink = web, node, sink
        #: Everything that the API answered.
        self.answers: list[str] = []
        self.alice: dict[str, str] = {}
        self.bob: dict[str, str] = {}

    async def __call__(
        self, method: str, path: str, body: object = None, *, who: dict[str, str] | None = None
    ) -> Any:
        found = await self.web.client.request(
            method, path, json=body, headers=self.alice if who is None else who
        )
        self.answers.append(found.text)
        return found

    async def set(self, name: str, value: str) -> None:
        stored = await self("PUT", f"{SECRETS}/{name}", {"value": value})
        assert stored.status_code == 200, stored.text
        assert set(stored.json()) == {"name", "owner", "created_at", "updated_at"}

    async def run(self, schedule_id: str) -> dict[str, Any]:
        """A manual run, once it has ended."""
        started = await self("POST", f"/api/v1/schedules/{schedule_id}/run")
        path = f"/api/v1/runs/{started.json()['id']}"

        async def read() -> dict[str, Any]:
            found: dict[str, Any] = (await self("GET", path)).json()
            return found

        ended = await eventually(read, lambda run: run["finished_at"])
        await self("GET", f"{path}/logs")
        return ended


@pytest.fixture
async def scene(home: Home) -> AsyncIterator[Scene]:
    store = await home.open()
    node = Node(store, home.kind.name)
    async with (
        serving(store, fixed_keys=["chm_of-the-administrator"]) as web,
        a_sink() as sink,
    ):
        scene = Scene(web, node, sink)
        scene.alice = await web.key(Role.MEMBER, ALICE)
        scene.bob = await web.key(Role.MEMBER, BOB)
        http = HttpCallback(egress=OPEN, user_agent="Chimes/test", max_connections=5)
        webhook = Webhook(egress=OPEN, user_agent="Chimes/test")
        await node.engine(runners=[http], senders=[webhook])
        yield scene
        await node.close()


def definition(sink: Sink, **given: Any) -> dict[str, Any]:
    return {
        "name": "uses",
        "trigger": CRON,
        "target": {
            "kind": "http",
            "url": f"{sink.url}/{{{{secret.TOKEN}}}}?token={{{{secret.TOKEN}}}}&run={{{{run_id}}}}",
            "headers": {"Authorization": "Bearer {{secret.TOKEN}}"},
            "body": '{"text": "{{ secret.TOKEN }}"}',
            "signing_secrets": ["{{secret.SIGNING}}"],
        },
        "delivery": [
            {
                "channel": "webhook",
                "to": f"{sink.url}/hook?key={{{{secret.TOKEN}}}}",
                "signing_secrets": ["{{secret.SIGNING}}"],
            }
        ],
        "policy": {"max_retries": 3},
    } | given


async def test_a_secret_is_used_and_never_shown(scene: Scene, home: Home) -> None:
    sink, store = scene.sink, scene.web.store
    refused = await scene("POST", "/api/v1/schedules", definition(sink))
    assert refused.status_code == 422
    (problem,) = refused.json()["errors"]
    assert problem["code"] == "unknown_secret"
    assert "`chimes secret set SIGNING`" in str(problem), problem
    await scene.set("SIGNING", SIGNING)
    await scene.set("TOKEN", OLD)
    # A receiver that repeats everything, also in its failure.
    echo = "\n".join(forms(OLD) + forms(SIGNING)).encode()
    headers = {"X_Echo": forms(OLD)[1]}
    sink.answers = [answer("200 OK", echo, **headers), answer("200 OK"), answer("200 OK")]
    made = await scene("POST", "/api/v1/schedules", definition(sink))
    assert made.status_code == 201, made.text
    target = made.json()["target"]
    assert target["url"].endswith("/{{secret.TOKEN}}?token={{secret.TOKEN}}&run={{run_id}}")
    assert target["headers"] == {"Authorization": "Bearer {{secret.TOKEN}}"}
    schedule_id = made.json()["id"]

    ended = await scene.run(schedule_id)
    assert ended["status"] == "succeeded", ended
    assert ended["result"]["url"].endswith(f"?token={{{{secret.TOKEN}}}}&run={ended['id']}")
    assert "***" in ended["result"]["body"]
    first = sink.requests[0]
    quoted = quote(OLD, safe="")
    assert first.target == f"/{quoted}?token={quoted}&run={ended['id']}"
    assert first.headers["authorization"] == f"Bearer {OLD}"
    assert json.loads(first.body) == {"text": OLD}
    assert "webhook-signature" in first.headers

    async def delivered() -> list[Any]:
        found = (await store.list_deliveries(DeliveryQuery())).items
        return [each for each in found if each.state is not DeliveryState.PENDING]

    (delivery,) = await eventually(delivered, len)
    assert delivery.state is DeliveryState.DELIVERED, delivery.error
    assert sink.requests[1].target == f"/hook?key={quoted}"
    assert "webhook-signature" in sink.requests[1].headers

    # The next attempt uses the new value.
    await scene.set("TOKEN", NEW)
    echo = "\n".join(forms(NEW)).encode()
    sink.answers = [answer(f"404 Not {forms(NEW)[1]}", echo)]
    failed = await scene.run(schedule_id)
    assert (failed["status"], failed["error"]) == ("failed", "HTTP 404 Not ***")
    assert sink.requests[2].headers["authorization"] == f"Bearer {NEW}"

    await eventually(delivered, lambda found: len(found) == 2)

    listed = (await scene("GET", SECRETS)).json()["items"]
    assert [(each["name"], each["schedule_count"]) for each in listed] == [
        ("SIGNING", 1),
        ("TOKEN", 1),
    ]
    assert listed[1]["schedules"] == [{"id": schedule_id, "name": "uses"}]
    assert listed[1]["updated_at"] >= listed[1]["created_at"]
    kept = await scene("DELETE", f"{SECRETS}/TOKEN")
    assert (kept.status_code, kept.json()["code"]) == (409, "secret_in_use")
    assert f"uses ({schedule_id})" in kept.json()["detail"]
    assert (await scene("DELETE", f"{SECRETS}/TOKEN?force=true")).status_code == 204
    before = len(sink.requests)
    unknown = await scene.run(schedule_id)
    assert (unknown["status"], unknown["attempt"]) == ("failed", 1)
    assert "there is no secret 'TOKEN' of user:alice" in unknown["error"]
    # An edit that names no further secret is not refused.
    edited = await scene("PATCH", f"/api/v1/schedules/{schedule_id}", {"priority": 1})
    assert edited.status_code == 200, edited.text

    # The notification of it names the secret too: it is given up, with the reason.
    dead = await eventually(delivered, lambda found: len(found) == 3)
    assert sorted(each.code for each in dead) == ["", "http_404", "unknown_secret"]
    assert len(sink.requests) == before
    audit = await store.list_audit(AuditQuery())
    verbs = [each.verb for each in audit if each.object_kind == "secret"]
    assert verbs == ["delete_secret", "set_secret", "set_secret", "set_secret"]
    assert leaked(repr(audit)) == []
    assert leaked("\n".join(scene.answers)) == []
    assert leaked("\n".join([repr(each) async for each in runs_and_logs(store)])) == []
    assert leaked(await raw(home, store)) == []


async def runs_and_logs(store: Store) -> AsyncIterator[object]:
    async for item in store.dump():
        if not getattr(item, "name", "").startswith("secrets:"):
            yield item


async def test_secrets_belong_to_their_owner(scene: Scene) -> None:
    await scene.set("TOKEN", OLD)
    bob, admin = scene.bob, {"X-API-Key": "chm_of-the-administrator"}
    target = {"kind": "http", "url": f"{scene.sink.url}/{{{{secret.TOKEN}}}}"}
    body = {"name": "theft", "trigger": CRON, "target": target}
    assert (await scene("GET", SECRETS, who=bob)).json() == {"items": []}
    for method, path, given in (
        ("GET", SECRETS, None),
        ("PUT", f"{SECRETS}/TOKEN", {"value": NEW}),
        ("DELETE", f"{SECRETS}/TOKEN", None),
        ("DELETE", f"{SECRETS}/OTHER", None),
    ):
        refused = await scene(method, f"{path}?owner=user:alice", given, who=bob)
        assert refused.status_code == 404, (method, refused.text)
    assert (await scene("DELETE", f"{SECRETS}/TOKEN", who=bob)).status_code == 404
    refused = await scene("POST", "/api/v1/schedules", body, who=bob)
    assert refused.json()["errors"][0]["code"] == "unknown_secret"
    agent = await scene.web.context.access.create(
        Actor(), name="agent", role=Role.MEMBER, owner=ALICE, scopes=[*Scope]
    )
    refused = await scene("POST", "/api/v1/schedules", body, who={"X-API-Key": agent.text})
    assert (refused.status_code, "may not use secrets" in refused.text) == (403, True)
    run = await scene("POST", "/api/v1/runs", {"target": target}, who=bob)
    assert run.json()["errors"][0]["code"] == "unknown_secret"
    # An admin may act for her, and her schedules use her secrets.
    listed = await scene("GET", f"{SECRETS}?owner=user:alice", who=admin)
    assert [each["name"] for each in listed.json()["items"]] == ["TOKEN"]
    set_by_admin = await scene(
        "PUT", f"{SECRETS}/TOKEN?owner=user:alice", {"value": NEW}, who=admin
    )
    assert set_by_admin.json()["owner"] == {"type": "user", "id": "alice"}
    hers = body | {"owner": {"type": "user", "id": "alice"}}
    made = await scene("POST", "/api/v1/schedules", hers, who=admin)
    assert made.status_code == 201, made.text
    ended = await scene.run(made.json()["id"])
    assert ended["status"] == "succeeded"
    assert scene.sink.last.target == f"/{quote(NEW, safe='')}"


async def test_a_new_key_encrypts_secrets_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = new_key(), new_key()
    monkeypatch.setattr(stores, "KEYRING", Keyring([old]))
    store = await home.open()
    await SecretService(store).put(Actor(owner=ALICE, role=Role.MEMBER), "TOKEN", OLD)
    if store.keyring.file is None:
        monkeypatch.setattr(stores, "KEYRING", Keyring([new, old]))
        store = await home.reopen()
    else:
        store.keyring.add_key()
    assert await store.reseal() >= 1
    key = store.keyring.current()
    assert key is not None
    content = await raw(home, store)
    assert f"chimes:sealed:1:{key.id}:" in content
    assert leaked(content) == []
    assert (await resolve_secrets(store, ALICE, ["TOKEN"])).values == {"TOKEN": OLD}
