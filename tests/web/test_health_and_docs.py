"""Health, readiness, metrics and documentation."""

from __future__ import annotations

import re

import pytest
from prometheus_client import Counter

from chimes.errors import StoreUnavailable
from chimes.model import replace
from chimes.model.access import ApiKey, Role
from chimes.model.checkpoint import CALLBACK_PATH
from chimes.model.listing import Counts
from chimes.store.memory import MemoryStore
from chimes.store.port import StoreStatus
from chimes.testing import SettableClock
from chimes.web.compat.ksana.routes import ksana_router
from chimes.web.openapi import describe_apis
from chimes.web.server import build_app
from tests.builders import ALICE
from tests.web.rig import Rig, serving


class FailingStore(MemoryStore):
    down = False
    degraded = ""
    counted = 0

    async def status(self) -> StoreStatus:
        if self.down:
            raise StoreUnavailable("no route to db.internal")
        return replace(await super().status(), degraded=self.degraded)

    async def list_keys(self) -> tuple[ApiKey, ...]:
        if self.down:
            raise StoreUnavailable("no route to db.internal")
        return await super().list_keys()

    async def counts(self) -> Counts:
        if self.down:
            raise StoreUnavailable("no route to db.internal")
        self.counted += 1
        return await super().counts()


async def test_health_needs_no_key_and_reports_ok() -> None:
    async with serving() as rig:
        await rig.key(Role.ADMIN)
        answer = await rig.client.get("/health")
        assert answer.status_code == 200
        assert answer.json() == {"status": "ok"}
        assert (await rig.client.get("/ready")).json() == {"status": "ready"}


async def test_degraded_health_is_still_200() -> None:
    clock = SettableClock()
    store = FailingStore(clock)
    async with serving(store, clock) as rig:
        store.degraded = "jobs.json was not readable"
        answer = await rig.client.get("/health")
        assert answer.status_code == 200
        assert answer.json()["status"] == "degraded"
        assert answer.json()["reason"] == "jobs.json was not readable"
        assert (await rig.client.get("/ready")).status_code == 200
        store.down = True
        clock.advance(60)
        answer = await rig.client.get("/health")
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        assert "db.internal" not in answer.text
        assert (await rig.client.get("/ready")).status_code == 503
        elsewhere = await rig.client.get("/api/v1/schedules")
        assert (elsewhere.status_code, elsewhere.json()["code"]) == (503, "store_unavailable")
        assert "db.internal" not in elsewhere.text


async def test_draining_node_is_not_ready() -> None:
    async with serving(not_ready=lambda: "draining") as rig:
        answer = await rig.client.get("/ready")
        assert (answer.status_code, answer.json()["reason"]) == (503, "draining")
        assert (await rig.client.get("/health")).json()["status"] == "ok"


async def test_metrics_contain_no_names() -> None:
    clock = SettableClock()
    store = FailingStore(clock)
    async with serving(store, clock) as rig:
        Counter("chimes_fired", "Runs made", registry=rig.context.metrics).inc(3)
        made = await rig.create(name="canary-name", owner={"id": "canary-owner"})
        answer = await rig.client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        assert "chimes_fired_total 3.0" in answer.text
        assert 'chimes_schedules{state="enabled"} 1.0' in answer.text
        assert "canary" not in answer.text
        assert made["id"] not in answer.text
        await rig.client.get("/metrics")
        assert store.counted == 1
        clock.advance(5)
        await rig.client.get("/metrics")
        assert store.counted == 2


# Metrics show an outage instead of failing.
async def test_metrics_are_available_during_a_store_outage() -> None:
    clock = SettableClock()
    store = FailingStore(clock)
    async with serving(store, clock, fixed_keys=["the-key-of-prometheus"]) as rig:
        headers = {"Authorization": "Bearer the-key-of-prometheus"}
        text = (await rig.client.get("/metrics", headers=headers)).text
        assert "chimes_store_up 1.0" in text
        assert "chimes_nodes 0.0" in text
        assert 'chimes_outbox{state="dead"} 0.0' in text
        store.down = True
        clock.advance(5)
        answer = await rig.client.get("/metrics", headers=headers)
        assert answer.status_code == 200
        assert "chimes_store_up 0.0" in answer.text
        assert "chimes_nodes" not in answer.text


async def test_metrics_need_a_key_if_keys_exist() -> None:
    async with serving() as rig:
        headers = await rig.key(Role.VIEWER, ALICE)
        assert (await rig.client.get("/metrics")).status_code == 401
        assert (await rig.client.get("/metrics", headers=headers)).status_code == 200


async def test_documentation_page_is_self_contained(rig: Rig) -> None:
    page = await rig.client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "<script" not in page.text
    assert " style=" not in page.text
    links = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert all(link.startswith(("/docs/", "/openapi.json", "/openapi/", "#")) for link in links)
    anchors = set(re.findall(r'id="([^"]+)"', page.text))
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    style = await rig.client.get("/docs/style.css")
    assert style.headers["content-type"].startswith("text/css")
    for path in ("/api/v1/schedules", "/api/v1/preview", "/health"):
        assert f"<code>{path}</code>" in page.text


async def test_openapi_document_is_complete(rig: Rig) -> None:
    document = (await rig.client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    text = str(document)
    schemas = document["components"]["schemas"]
    assert set(re.findall(r"#/components/schemas/(\w+)", text)) == set(schemas)
    assert "HTTPValidationError" not in text
    names = [o["operationId"] for ops in document["paths"].values() for o in ops.values()]
    assert len(names) == len(set(names))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["description"], f"{method} {path} has no description"
            if path.startswith("/api/v1/"):
                assert {"401", "403", "422", "429", "503"} <= set(operation["responses"])
                names = {each["name"] for each in operation.get("parameters", ())}
                takes_key = method == "post" and not path.startswith(CALLBACK_PATH)
                assert ("Idempotency-Key" in names) == takes_key


async def test_root_redirects_to_the_documentation() -> None:
    async with serving() as rig:
        await rig.key(Role.ADMIN)
        answer = await rig.client.get("/")
        assert (answer.status_code, answer.headers["location"]) == (307, "/docs")


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("chimes.corp:8443", "curl -X GET http://chimes.corp:8443/health"),
        ("x';reboot;'", "curl -X GET http://127.0.0.1:7100/health"),
    ],
)
async def test_samples_use_the_host_of_the_request(host: str, shown: str) -> None:
    async with serving() as rig:
        await rig.key(Role.ADMIN)
        assert shown in (await rig.client.get("/docs", headers={"Host": host})).text


async def test_user_facing_texts_name_no_internal_documents() -> None:
    async with serving() as rig:
        described = build_app(rig.context, compat=[ksana_router(rig.context)])
        text = str(describe_apis(described))
        assert not re.findall(r"\((?:[STRCF][0-9]|ADR|UX|RELIABILITY)[^)]*\)", text)


@pytest.mark.parametrize(
    "path", ["/docs/", "/redoc", "/docs/oauth2-redirect", "/api/v1/schedules/"]
)
async def test_framework_pages_are_disabled(rig: Rig, path: str) -> None:
    answer = await rig.client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
