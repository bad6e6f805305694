"""The EventNative API: requests, responses and error texts."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from chimes.errors import StoreBusy, StoreUnavailable
from chimes.model.access import Role
from chimes.model.ids import RunId
from chimes.model.listing import AuditQuery
from chimes.model.planning import plan
from chimes.model.run import AttemptEnd, LogEntry, Run, RunStatus
from chimes.model.sync import HIGH, Collection, Source, Sources, task_id
from chimes.model.target import SyncTarget
from chimes.web.compat.eventnative.routes import eventnative_router
from tests.builders import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    a_completion,
    a_node,
    a_sync_run,
    claim_request,
)
from tests.web.rig import Rig, serving

SHOP = Source(
    id="shop",
    driver="python",
    collections=(
        Collection(name="orders", timeout=timedelta(minutes=9)),
        Collection(name="clients_eu"),
    ),
)
FILE = Sources(by_id={"shop": SHOP})
ORDERS = SyncTarget(source="shop", collection="orders")
CLIENTS = SyncTarget(source="shop", collection="clients_eu")
CAPABILITIES = frozenset({ORDERS.requirement})
PAIR = {"source": "shop", "collection": "orders"}
WINDOW = {"source": "shop", "start": "2030-01-15T00:00:00Z", "end": "2030-01-16T00:00:00.000000Z"}


@dataclass
class Api:
    rig: Rig

    @property
    def client(self) -> httpx2.AsyncClient:
        return self.rig.client

    async def post(self, **pair: str) -> str:
        answer = await self.client.post("/tasks/", params=PAIR | pair)
        assert answer.status_code == 201, answer.text
        found: str = answer.json()["task_id"]
        return found

    async def get(self, task: str) -> dict[str, Any]:
        answer = await self.client.get(f"/tasks/{task}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def tasks(self, **params: str) -> list[dict[str, Any]]:
        answer = await self.client.get("/tasks", params=WINDOW | params)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/json"
        found: list[dict[str, Any]] = answer.json()["tasks"]
        return found

    async def claim(self, free: int = 1) -> tuple[Run, ...]:
        await self.rig.store.join(a_node(capabilities=tuple(CAPABILITIES)), HOUR * 24)
        return await self.rig.store.claim(claim_request(free=free, capabilities=CAPABILITIES))

    async def end(self, end: AttemptEnd = AttemptEnd.SUCCEEDED, **given: Any) -> Run:
        """Claims and completes the next task."""
        (run,) = await self.claim()
        await self.rig.store.finish([a_completion(run, self.rig.clock.now(), end, **given)])
        return run


@asynccontextmanager
async def opened(**given: Any) -> AsyncIterator[Api]:
    async with serving(routers=[eventnative_router], sources=FILE, **given) as rig:
        yield Api(rig)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with opened() as found:
        yield found


class TestCreating:
    async def test_new_task_is_201_and_repeated_request_200(self, api: Api) -> None:
        task = await api.post()
        assert task.startswith("shop_orders_")
        assert len(task) == len("shop_orders_") + 36
        waiting = await api.client.post("/tasks", params=PAIR)
        assert (waiting.status_code, waiting.json()) == (200, {"task_id": task})
        await api.claim()
        answer = await api.client.post("/tasks/", params=PAIR)
        assert (answer.status_code, answer.json()) == (200, {"task_id": task})
        other = await api.post(collection="clients_eu")
        assert other.startswith("shop_clients_eu_")

    async def test_pair_is_free_after_the_end_of_its_task(self, api: Api) -> None:
        first = await api.post()
        await api.end(AttemptEnd.FAILED)
        assert await api.post() != first

    async def test_one_of_many_concurrent_requests_creates_a_task(self, api: Api) -> None:
        answers = await asyncio.gather(
            *(api.client.post("/tasks/", params=PAIR) for _ in range(20))
        )
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        assert len({answer.json()["task_id"] for answer in answers}) == 1

    async def test_task_is_a_native_run(self, api: Api) -> None:
        task = await api.post()
        run = await api.rig.store.get_run(RunId(task[-36:]))
        assert run is not None
        assert (run.target, run.namespace, run.schedule_name) == (ORDERS, "sync", "shop/orders")
        assert run.policy.timeout == timedelta(minutes=9)
        assert (run.policy.max_retries, run.concurrency_limit) == (0, 1)
        (note,) = await api.rig.store.list_audit(AuditQuery())
        assert (note.interface, note.verb, note.object_id) == ("eventnative", "start", run.id)

    async def test_priority_class_can_be_chosen(self, api: Api) -> None:
        low = await api.get(await api.post(priority="100"))
        assert low["priority"] == 100 * 10**12 - int(NOW.timestamp())

    @pytest.mark.parametrize(
        ("params", "message", "error"),
        [
            ({}, "'source' is required query parameter", ""),
            ({"source": ""}, "'source' is required query parameter", ""),
            ({"collection": "orders"}, "'source' is required query parameter", ""),
            ({"source": "shop"}, "'collection' is required query parameter", ""),
            (
                {"source": "shpo", "collection": "orders"},
                "no running node has the source 'shpo'",
                "did you mean shop?",
            ),
            (
                {"source": "shop", "collection": "order"},
                "the source 'shop' has no collection 'order'",
                "did you mean orders?",
            ),
            (PAIR | {"priority": "high"}, "'priority' is a number from 0 to 1000", ""),
            (PAIR | {"priority": "1001"}, "'priority' is a number from 0 to 1000", ""),
        ],
    )
    async def test_invalid_requests_are_rejected(
        self, api: Api, params: dict[str, str], message: str, error: str
    ) -> None:
        answer = await api.client.post("/tasks", params=params)
        assert (answer.status_code, answer.json()) == (400, {"message": message, "error": error})
        assert not await api.tasks()

    async def test_409_while_the_creation_lock_is_held(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def held(*_: object) -> None:
            raise StoreBusy()

        monkeypatch.setattr(api.rig.store, "add_unless_active", held)
        answer = await api.client.post("/tasks/", params=PAIR)
        assert answer.status_code == 409
        assert answer.json()["message"] == (
            "source: [shop] collection: [orders] is starting to sync"
        )

    async def test_503_while_the_store_is_unavailable(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def away(*_: object) -> None:
            raise StoreUnavailable()

        monkeypatch.setattr(api.rig.store, "add_unless_active", away)
        answer = await api.client.post("/tasks/", params=PAIR)
        assert answer.status_code == 503
        assert answer.json() == {
            "message": "The store cannot answer at the moment",
            "error": "",
        }
        assert answer.headers["retry-after"]


class TestReading:
    async def test_task_through_its_lifecycle(self, api: Api) -> None:
        created = NOW
        task = await api.post()
        fields = {
            "id": task,
            "source": "shop",
            "collection": "orders",
            "priority": 300 * 10**12 - int(created.timestamp()),
            "created_at": "2030-01-15T09:00:00.000000Z",
            "started_at": "",
            "finished_at": "",
            "status": "SCHEDULED",
            "source_type": "python",
        }
        found = await api.get(task)
        assert found == fields
        assert list(found) == list(fields)
        api.rig.clock.advance(timedelta(seconds=1, microseconds=25))
        (run,) = await api.claim()
        fields |= {"started_at": "2030-01-15T09:00:01.000025Z", "status": "RUNNING"}
        assert await api.get(task) == fields
        api.rig.clock.advance(SECOND)
        await api.rig.store.finish([a_completion(run, api.rig.clock.now(), AttemptEnd.SUCCEEDED)])
        fields |= {"finished_at": "2030-01-15T09:00:02.000025Z", "status": "SUCCESS"}
        assert await api.get(task) == fields

    @pytest.mark.parametrize(
        ("end", "word"),
        [
            (AttemptEnd.SUCCEEDED, "SUCCESS"),
            (AttemptEnd.FAILED, "FAILED"),
            (AttemptEnd.TIMEOUT, "FAILED"),
            (AttemptEnd.CANCELED, "CANCELED"),
        ],
    )
    async def test_status_words_of_ended_tasks(self, api: Api, end: AttemptEnd, word: str) -> None:
        task = await api.post()
        await api.end(end)
        assert (await api.get(task))["status"] == word

    async def test_unknown_tasks_and_other_runs_are_404(self, api: Api) -> None:
        task = await api.post()
        run = RunId(task[-36:])
        skipped = a_sync_run(ORDERS, id=RunId(str(run).replace("0", "1")), status=RunStatus.SKIPPED)
        await api.rig.store.add_runs([skipped])
        for unknown in (
            "nothing",
            run,
            f"shop_order_{run}",
            f"shop_orders_{str(run)[:-1]}x",
            f"x{task}",
            task_id(skipped),
        ):
            for answer in (
                await api.client.get(f"/tasks/{unknown}"),
                await api.client.get(f"/tasks/{unknown}/logs"),
                await api.client.post(f"/tasks/{unknown}/cancel"),
            ):
                assert answer.status_code == 404
                assert answer.json() == {
                    "message": f"Task with id [{unknown}] does not exist",
                    "error": "Not found",
                }

    async def test_both_path_prefixes_are_equivalent(self, api: Api) -> None:
        answer = await api.client.post("/api/v1/tasks/", params=PAIR)
        task = answer.json()["task_id"]
        assert answer.status_code == 201
        assert (await api.client.post("/api/v1/tasks", params=PAIR)).status_code == 200
        for path in (f"/tasks/{task}", f"/api/v1/tasks/{task}"):
            assert (await api.client.get(path)).json()["id"] == task
        for path in ("/tasks", "/tasks/", "/api/v1/tasks", "/api/v1/tasks/"):
            answer = await api.client.get(path, params=WINDOW)
            assert [each["id"] for each in answer.json()["tasks"]] == [task]
        assert (await api.client.get("/api/v1/tasks/x")).json()["error"] == "Not found"
        assert (await api.client.get(f"/api/v1/tasks/{task}/logs")).json() == {"logs": []}
        stopped = await api.client.post(f"/api/v1/tasks/{task}/cancel")
        assert (stopped.status_code, stopped.json()) == (200, {"status": "ok"})


class TestListing:
    async def test_window_of_extreme_times_lists_everything(self, api: Api) -> None:
        task = await api.post()
        for start, end in (
            ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
            ("1900-01-01T00:00:00Z", "9999-12-31T00:00:00Z"),
        ):
            params = WINDOW | {"start": start, "end": end}
            answer = await api.client.get("/tasks", params=params)
            assert [each["id"] for each in answer.json()["tasks"]] == [task]

    async def test_tasks_in_the_window_are_listed_oldest_first(self, api: Api) -> None:
        made = []
        for collection in ("orders", "clients_eu", "orders", "orders"):
            made.append(await api.post(collection=collection))
            await api.end()
            api.rig.clock.advance(MINUTE)
        assert [each["id"] for each in await api.tasks()] == made
        orders = [made[0], made[2], made[3]]
        assert [each["id"] for each in await api.tasks(collection="orders")] == orders
        # The window includes both ends.
        inner = {"start": "2030-01-15T09:01:00Z", "end": "2030-01-15T09:02:00.000000Z"}
        assert [each["id"] for each in await api.tasks(**inner)] == made[1:3]
        zoned = {"start": "2030-01-15T16:01:00+07:00", "end": "2030-01-15T09:02:00Z"}
        assert [each["id"] for each in await api.tasks(**zoned)] == made[1:3]
        assert await api.tasks(start="2031-01-01T00:00:00Z", end="2031-01-02T00:00:00Z") == []
        # An unescaped plus sign arrives as a space.
        unescaped = zoned | {"start": "2030-01-15T16:01:00 07:00"}
        assert [each["id"] for each in await api.tasks(**unescaped)] == made[1:3]

    async def test_limit_applies_per_collection(self, api: Api) -> None:
        made = []
        for collection in ("orders", "orders", "clients_eu", "orders", "clients_eu"):
            made.append(await api.post(collection=collection))
            await api.end()
            api.rig.clock.advance(SECOND)

        async def ids(**params: str) -> list[str]:
            return [each["id"] for each in await api.tasks(**params)]

        assert await ids(limit="1") == [made[0], made[2]]
        assert await ids(limit="2") == [made[0], made[1], made[2], made[4]]
        assert await ids(limit="0") == made
        assert await ids(limit="2", collection="orders") == made[:2]

    async def test_more_than_one_page(self, api: Api) -> None:
        runs = [
            a_sync_run(ORDERS, id=RunId(f"{n:036d}"), status=RunStatus.SUCCEEDED)
            for n in range(1201)
        ]
        await api.rig.store.add_runs(runs)
        assert [each["id"] for each in await api.tasks()] == [task_id(run) for run in runs]
        assert len(await api.tasks(limit="700", collection="orders")) == 700

    async def test_tasks_are_filtered_by_status(self, api: Api) -> None:
        ended = await api.post()
        await api.end()
        failed = await api.post()
        await api.end(AttemptEnd.TIMEOUT)
        stopped = await api.post()
        await api.client.post(f"/tasks/{stopped}/cancel")
        running = await api.post()
        await api.claim()
        waiting = await api.post(collection="clients_eu")
        tick = a_sync_run(ORDERS, status=RunStatus.SKIPPED)
        await api.rig.store.add_runs([tick, a_sync_run(ORDERS, status=RunStatus.MISSED)])
        for word, expected in (
            ("SUCCESS", ended),
            ("success", ended),
            ("Failed", failed),
            ("CANCELED", stopped),
            ("running", running),
            ("SCHEDULED", waiting),
        ):
            assert [each["id"] for each in await api.tasks(status=word)] == [expected]
        # Skipped and missed runs are not tasks.
        found = {each["id"] for each in await api.tasks()}
        assert found == {ended, failed, stopped, running, waiting}

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"source": ""}, "'source' is required query parameter"),
            ({"start": ""}, "'start' is required query parameter"),
            ({"end": ""}, "'end' is required query parameter"),
            (
                {"start": "yesterday"},
                "Error parsing 'start' query parameter. Accepted datetime format: "
                "2006-01-02T15:04:05.000000Z",
            ),
            (
                {"end": "2030-01-15"},
                "Error parsing 'end' query parameter. Accepted datetime format: "
                "2006-01-02T15:04:05.000000Z",
            ),
            (
                {"status": "DONE"},
                "Unknown status: DONE. Supported: [SCHEDULED, RUNNING, FAILED, SUCCESS, CANCELED]",
            ),
            ({"limit": "-1"}, "'limit' is a number from 0 to 1000000000"),
            ({"source": "nope"}, "no running node has the source 'nope'"),
            ({"collection": "nope"}, "the source 'shop' has no collection 'nope'"),
        ],
    )
    async def test_invalid_requests_are_rejected(
        self, api: Api, params: dict[str, str], message: str
    ) -> None:
        answer = await api.client.get("/tasks", params=WINDOW | params)
        assert (answer.status_code, answer.json()["message"]) == (400, message)
        assert set(answer.json()) == {"message", "error"}

    async def test_removed_source_keeps_its_task_history(self, api: Api) -> None:
        made = await api.post()
        api.rig.context.sources.put(Sources())
        assert [each["id"] for each in await api.tasks()] == [made]
        assert (await api.tasks())[0]["source_type"] == ""
        later = {"start": "2031-01-01T00:00:00Z", "end": "2031-01-02T00:00:00Z"}
        assert await api.tasks(**later) == []
        assert (await api.client.post("/tasks", params=PAIR)).status_code == 400


class TestLogs:
    async def test_log_entries_in_order_prefixed_by_the_task(self, api: Api) -> None:
        task = await api.post()
        (run,) = await api.claim()
        moment = NOW + timedelta(microseconds=578999)
        entries = [
            LogEntry(at=moment + n * SECOND, level=level, message=f"line {n}")
            for n, level in enumerate(("info", "warning", "error", "debug", "critical"))
        ]
        await api.rig.store.append_logs(run.id, run.fence, entries)
        answer = await api.client.get(f"/tasks/{task}/logs")
        assert answer.status_code == 200
        logs = answer.json()["logs"]
        assert logs[0] == {
            "time": "2030-01-15T09:00:00.578999Z",
            "message": f"[{task}] line 0",
            "level": "info",
            "system": "chimes",
        }
        assert [each["level"] for each in logs] == ["info", "warn", "error", "debug", "error"]
        window = {"start": logs[1]["time"], "end": logs[3]["time"]}
        inner = await api.client.get(f"/tasks/{task}/logs", params=window)
        assert inner.json()["logs"] == logs[1:4]
        since = await api.client.get(f"/tasks/{task}/logs", params={"start": logs[3]["time"]})
        assert since.json()["logs"] == logs[3:]
        bad = await api.client.get(f"/tasks/{task}/logs", params={"end": "now"})
        assert bad.status_code == 400
        assert "'end'" in bad.json()["message"]

    async def test_more_than_one_page(self, api: Api) -> None:
        task = await api.post()
        (run,) = await api.claim()
        entries = [LogEntry(at=NOW, message=str(n)) for n in range(2000)]
        await api.rig.store.append_logs(run.id, run.fence, entries)
        logs = (await api.client.get(f"/tasks/{task}/logs")).json()["logs"]
        assert [each["message"] for each in logs] == [f"[{task}] {n}" for n in range(2000)]


class TestCanceling:
    async def test_canceled_queued_task_never_starts(self, api: Api) -> None:
        task = await api.post()
        answer = await api.client.post(f"/tasks/{task}/cancel")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        assert (await api.get(task))["status"] == "CANCELED"
        again = await api.client.post(f"/tasks/{task}/cancel")
        assert (again.status_code, again.json()) == (200, {"status": "ok"})
        assert not await api.claim()
        (note, _) = await api.rig.store.list_audit(AuditQuery())
        assert (note.interface, note.verb) == ("eventnative", "cancel")

    async def test_cancel_of_a_running_task_requests_its_stop(self, api: Api) -> None:
        task = await api.post()
        (run,) = await api.claim()
        for _ in range(2):
            answer = await api.client.post(f"/tasks/{task}/cancel")
            assert answer.json() == {"status": "ok"}
        running = await api.rig.store.get_run(run.id)
        assert running is not None
        assert running.cancel_requested

    # EventNative overwrote the status.
    async def test_cancel_of_an_ended_task_keeps_its_status(self, api: Api) -> None:
        task = await api.post()
        await api.end()
        answer = await api.client.post(f"/tasks/{task}/cancel")
        assert answer.status_code == 409
        assert answer.json()["message"] == "the run has ended already: succeeded"
        assert (await api.get(task))["status"] == "SUCCESS"


class TestAccess:
    CALLS = (
        ("POST", "/tasks/"),
        ("GET", "/tasks"),
        ("GET", "/tasks/x"),
        ("GET", "/tasks/x/logs"),
        ("POST", "/tasks/x/cancel"),
        ("POST", "/api/v1/tasks/x/cancel"),
    )

    async def test_admin_token_in_header_or_query(self) -> None:
        async with opened(fixed_keys=["s3cret-token"]) as api:
            for send, status in (
                ({"headers": {"X-Admin-Token": "s3cret-token"}}, 200),
                ({"params": WINDOW | {"token": "s3cret-token"}}, 200),
                ({"headers": {"Authorization": "Bearer s3cret-token"}}, 200),
                ({"headers": {"X-Admin-Token": "other"}}, 401),
                ({"params": WINDOW | {"token": "other"}}, 401),
                ({}, 401),
            ):
                answer = await api.client.get("/tasks", **({"params": WINDOW} | send))
                assert answer.status_code == status, send
                if status == 401:
                    assert answer.json() == {"message": "Admin token does not match"}

    async def test_every_route_needs_the_admin_token(self) -> None:
        async with opened(fixed_keys=["s3cret-token"]) as api:
            for method, path in self.CALLS:
                answer = await api.client.request(method, path)
                assert (answer.status_code, answer.json()) == (
                    401,
                    {"message": "Admin token does not match"},
                )

    async def test_native_keys_of_admins_only_are_accepted(self, api: Api) -> None:
        admin = await api.rig.key(Role.ADMIN)
        answer = await api.client.get("/tasks", params=WINDOW, headers=admin)
        assert answer.status_code == 200
        for role in (Role.OPERATOR, Role.MEMBER, Role.VIEWER):
            headers = await api.rig.key(role)
            for method, path in self.CALLS:
                answer = await api.client.request(method, path, headers=headers)
                assert (answer.status_code, answer.json()["message"]) == (
                    403,
                    "Only an admin may call this",
                )
        notes = await api.rig.store.list_audit(AuditQuery(verb="refused"))
        assert {note.interface for note in notes} == {"eventnative"}

    async def test_token_is_neither_logged_nor_audited(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        async with opened(fixed_keys=["s3cret-token"]) as api:
            for token in ("s3cret-token", "wr0ng-token"):
                await api.client.post("/tasks/", params=PAIR | {"token": token})
                await api.client.get("/tasks/x", params={"token": token})
            entries = await api.rig.store.list_audit(AuditQuery())
            logged = [
                repr(entries),
                *(repr(vars(each)) for each in caplog.records if each.name.startswith("chimes")),
            ]
        assert len(logged) > 4
        assert not [each for each in logged if "3cret" in each or "wr0ng" in each]


class TestDocument:
    async def test_routes_are_in_the_openapi_document(self, api: Api) -> None:
        document = (await api.client.get("/openapi/eventnative.json")).json()
        paths = {path for path in document["paths"] if "tasks" in path}
        assert paths == {
            "/tasks",
            "/tasks/{task_id}",
            "/tasks/{task_id}/logs",
            "/tasks/{task_id}/cancel",
        }
        params = document["paths"]["/tasks"]["get"]["parameters"]
        needed = {each["name"] for each in params if each["required"]}
        assert needed == {"source", "start", "end"}
        assert json.dumps(document).count("EventNative") == 0
        assert (await api.client.get("/docs")).status_code == 200


async def test_scheduled_run_has_the_priority_of_its_collection(api: Api) -> None:
    body = {
        "name": "orders",
        "trigger": {"kind": "every", "every": "1m"},
        "target": {"kind": "sync", "source": "shop", "collection": "orders"},
    }
    made = await api.client.post("/api/v1/schedules", json=body)
    assert made.status_code == 201, made.text
    assert made.json()["priority"] == HIGH
    assert made.json()["target"] == body["target"]
    api.rig.clock.advance(MINUTE)
    await api.rig.store.fire_due(plan, limit=1)
    (run,) = (await api.client.get(f"/api/v1/schedules/{made.json()['id']}/runs")).json()["items"]
    busy = await api.client.post("/api/v1/runs", json={"target": body["target"]})
    assert (busy.status_code, busy.json()["id"]) == (200, run["id"])
    task = f"shop_orders_{run['id']}"
    again = await api.client.post("/tasks", params=PAIR)
    assert (again.status_code, again.json()) == (200, {"task_id": task})
    found = await api.get(task)
    assert found["status"] == "SCHEDULED"
    assert found["priority"] == HIGH * 10**12 - int((NOW + MINUTE).timestamp())
