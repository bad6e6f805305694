"""The Ksana-compatible HTTP API on every store: requests, responses and error texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from chimes.config import Settings
from chimes.model.access import Actor
from chimes.model.listing import AuditQuery, RunQuery
from chimes.model.planning import plan
from chimes.model.run import AttemptEnd, RunStatus
from chimes.runtime.composition import build_services
from chimes.testing import SettableClock
from chimes.web.compat.ksana.routes import ksana_router
from chimes.web.requests import WebContext
from chimes.web.server import build_app
from tests.builders import LEASE, a_completion, a_node, claim_request
from tests.store_contract.stores import KINDS
from tests.tables import each_row
from tests.web.rig import share_native_routes

URL = "http://127.0.0.1:9/hook"


class Api:
    def __init__(
        self, client: httpx2.AsyncClient, context: WebContext, clock: SettableClock
    ) -> None:
        self.client = client
        self.context = context
        self.clock = clock

    async def create(self, **changes: Any) -> dict[str, Any]:
        answer = await self.client.post("/jobs", json=job(**changes))
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def get(self, job_id: str) -> dict[str, Any]:
        answer = await self.client.get(f"/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def execute_due_runs(
        self, end: AttemptEnd = AttemptEnd.SUCCEEDED, error: str = ""
    ) -> int:
        """Fires due schedules, claims their runs and completes them."""
        store = self.context.store
        await store.join(a_node("node-1"), LEASE)
        await store.fire_due(plan, limit=100)
        claimed = await store.claim(claim_request(free=100))
        verdicts = [a_completion(run, self.clock.now(), end, error=error) for run in claimed]
        await store.finish(verdicts)
        return len(claimed)


def job(**changes: Any) -> dict[str, Any]:
    return {
        "name": "ping",
        "http": {"method": "GET", "url": URL},
        "schedule": {"kind": "every", "every": "5m"},
    } | changes


@pytest.fixture(params=["memory", "sqlite", "json"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    clock = SettableClock()
    store = next(kind for kind in KINDS if kind.name == request.param).make(tmp_path, clock)
    await store.open()
    settings = Settings(
        default_timeout=timedelta(seconds=7), max_retries=2, retry_backoff=timedelta(seconds=4)
    )
    services = await build_services(settings, store, clock)
    context = WebContext(
        schedules=services.schedules,
        runs=services.runs,
        access=services.access,
        store=store,
        settings=settings,
        clock=clock,
        metrics=CollectorRegistry(),
        version="0",
        port=7100,
        not_ready=lambda: "",
    )
    app = build_app(context, compat=[ksana_router(context)])
    share_native_routes(app)
    transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 50000))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:7100") as client:
        yield Api(client, context, clock)
    await store.close()


#: For requests that are rejected before the store is used.
on_memory = pytest.mark.parametrize("api", ["memory"], indirect=True)


class TestCreate:
    async def test_create_returns_the_whole_job(self, api: Api) -> None:
        made = await api.create()
        assert len(made.pop("id")) == 32
        assert made == {
            "name": "ping",
            "enabled": True,
            "type": "http",
            "http": {"method": "GET", "url": URL, "headers": {}, "body": ""},
            "schedule": {"kind": "every", "every": "5m", "start_at": "", "jitter": ""},
            "timeout": "7s",
            "max_retries": 2,
            "retry_backoff": "4s",
            "last_run_at": "",
            "next_run_at": "2030-01-15T09:05:00Z",
            "last_status": "",
            "last_error": "",
        }

    async def test_named_secrets_are_checked_and_returned_as_written(self, api: Api) -> None:
        http = {"method": "GET", "url": f"{URL}/{{{{secret.TOKEN}}}}"}
        refused = await api.client.post("/jobs", json=job(http=http))
        assert refused.status_code in (400, 422), refused.text
        assert "chimes secret set TOKEN" in refused.text
        await api.context.secrets.put(Actor(), "TOKEN", "the-5ecret-value")
        made = await api.create(http=http)
        assert (await api.get(made["id"]))["http"]["url"] == http["url"]

    async def test_read_only_fields_are_ignored(self, api: Api) -> None:
        sent = {
            "last_run_at": "2020-01-01T00:00:00Z",
            "next_run_at": "2020-01-01T00:00:00Z",
            "last_status": "success",
            "last_error": "x",
        }
        made = await api.create(**sent)
        assert {name: made[name] for name in sent} == {
            "last_run_at": "",
            "next_run_at": "2030-01-15T09:05:00Z",
            "last_status": "",
            "last_error": "",
        }

    async def test_durations_keep_their_notation(self, api: Api) -> None:
        made = await api.create(
            schedule={"kind": "every", "every": "90s", "jitter": "1500ms"},
            timeout="1m30s",
            retry_backoff="0s",
        )
        assert made["schedule"]["every"] == "90s"
        assert made["schedule"]["jitter"] == "1500ms"
        assert (made["timeout"], made["retry_backoff"]) == ("1m30s", "0s")

    async def test_ksana_documentation_example(self, api: Api) -> None:
        made = await api.create(
            id="",
            enabled=True,
            type="http",
            http={
                "method": "POST",
                "url": "https://api.example.com/orders/notify",
                "headers": {"Content-Type": "application/json"},
                "body": '{"job_id": "<filled-by-service>", "payload": {"order_id": 12345}}',
            },
            timeout="10s",
            max_retries=3,
            retry_backoff="5s",
        )
        assert made["http"]["headers"] == {"Content-Type": "application/json"}
        assert made["max_retries"] == 3

    async def test_id_enabled_false_and_zero_retries_are_respected(self, api: Api) -> None:
        # Ksana changed enabled:false to true and max_retries:0 to 3, and ignored the id.
        made = await api.create(id="mine", enabled=False, max_retries=0)
        assert (made["id"], made["enabled"], made["max_retries"]) == ("mine", False, 0)
        assert (made["next_run_at"], made["last_status"]) == ("", "")
        again = await api.client.post("/jobs", json=job(id="mine"))
        assert again.status_code == 409
        assert again.json()["error"] == "Conflict"

    async def test_defaults(self, api: Api) -> None:
        made = await api.create(http={"url": URL})
        assert (made["http"]["method"], made["http"]["headers"]) == ("POST", {})

    async def test_start_at_in_the_future_is_the_first_run(self, api: Api) -> None:
        made = await api.create(
            schedule={"kind": "every", "every": "1h", "start_at": "2030-01-15T09:00:30Z"}
        )
        assert made["next_run_at"] == made["schedule"]["start_at"] == "2030-01-15T09:00:30Z"

    async def test_jitter_delays_within_its_bound(self, api: Api) -> None:
        made = await api.create(schedule={"kind": "every", "every": "5m", "jitter": "30s"})
        first = datetime(2030, 1, 15, 9, 5, tzinfo=UTC)
        due = datetime.fromisoformat(made["next_run_at"])
        assert first <= due < first + timedelta(seconds=30)

    async def test_once(self, api: Api) -> None:
        made = await api.create(schedule={"kind": "once", "run_at": "2030-01-15T16:00:01+07:00"})
        assert made["schedule"] == {"kind": "once", "run_at": "2030-01-15T09:00:01Z"}
        assert made["next_run_at"] == "2030-01-15T09:00:01Z"


INVALID_JOBS = [
    ({"name": ""}, "job name is required"),
    ({"type": "shell"}, "job type must be 'http'"),
    ({"http": {"method": "PUT", "url": URL}}, "HTTP method must be GET or POST"),
    ({"http": {"method": "GET"}}, "HTTP URL is required"),
    ({"http": None}, "HTTP URL is required"),
    ({"http": {"url": "not a url"}}, "invalid HTTP URL"),
    ({"http": {"url": "ftp://example.com/"}}, "invalid HTTP URL"),
    ({"schedule": {"kind": "cron"}}, "schedule kind must be 'once' or 'every'"),
    ({"schedule": None}, "schedule kind must be 'once' or 'every'"),
    ({"schedule": {"kind": "once"}}, "run_at is required for 'once' schedule"),
    (
        {"schedule": {"kind": "once", "run_at": "2030-01-15T09:00:00Z"}},
        "run_at must be in the future",
    ),
    (
        {"schedule": {"kind": "every", "every": "0s"}},
        "every must be greater than 0 for 'every' schedule",
    ),
    ({"schedule": {"kind": "every"}}, "every must be greater than 0 for 'every' schedule"),
    (
        {"schedule": {"kind": "every", "every": "-5s"}},
        "every must be greater than 0 for 'every' schedule",
    ),
    (
        {"schedule": {"kind": "every", "every": "5m", "jitter": "-1s"}},
        "jitter must be non-negative",
    ),
    ({"timeout": "0s"}, "timeout must be greater than 0"),
    ({"timeout": "-1s"}, "timeout must be greater than 0"),
    ({"max_retries": -1}, "max_retries must be non-negative"),
]


class TestBadInput:
    @on_memory
    @each_row(("change", "message"), INVALID_JOBS)
    async def test_error_messages_are_those_of_ksana(
        self, api: Api, change: dict[str, Any], message: str
    ) -> None:
        before = (await api.client.get("/jobs")).json()
        audit = await api.context.store.list_audit(AuditQuery())
        answer = await api.client.post("/jobs", json=job(**change))
        assert answer.status_code == 400
        found = answer.json()
        assert found["error"] == "Validation failed"
        assert found["message"].startswith(message)
        assert (await api.client.get("/jobs")).json() == before
        assert await api.context.store.list_audit(AuditQuery()) == audit

    @on_memory
    @each_row(
        "change",
        [
            {"timeout": 10},
            {"timeout": "ten"},
            {"schedule": {"kind": "every", "every": 5}},
            {"schedule": {"kind": "every", "every": "5m", "start_at": "soon"}},
            {"schedule": {"kind": "once", "run_at": "2030-02-30T00:00:00Z"}},
            {"schedule": {"kind": "once", "run_at": 1}},
            {"schedule": "every 5m"},
            {"max_retries": "3"},
            {"max_retries": True},
            {"max_retries": 2.5},
            {"retry_backoff": "-1s"},
            {"enabled": "yes"},
            {"name": 7},
            {"name": "a\u0000b"},
            {"name": "x" * 201},
            {"http": {"url": URL, "body": {"a": 1}}},
            {"http": {"url": URL, "headers": ["x"]}},
            {"http": {"url": URL, "headers": {"a": 1}}},
            {"http": {"url": URL, "headers": {"Host": "evil"}}},
            {"http": {"url": URL, "headers": {"X-A": "b\r\nc"}}},
            {"nmae": "x"},
            {"id": "a/b"},
        ],
    )
    async def test_other_invalid_input_is_400_and_changes_nothing(
        self, api: Api, change: dict[str, Any]
    ) -> None:
        before = (await api.client.get("/jobs")).json()
        answer = await api.client.post("/jobs", json=job(**change))
        assert answer.status_code == 400, answer.text
        assert answer.json()["message"]
        assert (await api.client.get("/jobs")).json() == before

    @on_memory
    async def test_first_unknown_field_is_reported(self, api: Api) -> None:
        answer = await api.client.post("/jobs", json=job(**{f"x{n}": 1 for n in range(20)}))
        assert answer.json()["message"] == "unknown field 'x0' in job"

    @on_memory
    async def test_body_that_is_not_json_is_400(self, api: Api) -> None:
        for body in (b"{", b"", b"[]", b'"x"', b"nul"):
            answer = await api.client.post(
                "/jobs", content=body, headers={"Content-Type": "application/json"}
            )
            assert (answer.status_code, answer.json()["error"]) == (400, "Invalid JSON")
        form = await api.client.post(
            "/jobs", content=b"a=b", headers={"Content-Type": "text/plain"}
        )
        assert form.status_code == 415

    async def test_unknown_jobs_and_methods(self, api: Api) -> None:
        for method, path in (
            ("GET", "/jobs/x"),
            ("DELETE", "/jobs/x"),
            ("POST", "/jobs/x/run-now"),
            ("POST", "/jobs/x/pause"),
            ("POST", "/jobs/x/resume"),
        ):
            answer = await api.client.request(method, path)
            assert (answer.status_code, answer.json()["error"]) == (404, "Job not found")
        patched = await api.client.patch("/jobs/x", json={"name": "y"})
        assert patched.status_code == 404
        for method, path in (("PUT", "/jobs"), ("DELETE", "/jobs"), ("GET", "/jobs/x/run-now")):
            answer = await api.client.request(method, path)
            assert (answer.status_code, answer.json()["error"]) == (405, "Method not allowed")


class TestPatch:
    async def test_changes_only_the_given_fields(self, api: Api) -> None:
        made = await api.create()
        for change in (
            {"name": "other"},
            {"timeout": "20s"},
            {"max_retries": 9},
            {"retry_backoff": "1s"},
            {"http": {"url": URL, "method": "POST", "headers": {"X-A": "b"}, "body": "hi"}},
        ):
            answer = await api.client.patch(f"/jobs/{made['id']}", json=change)
            assert answer.status_code == 200, answer.text
            made = made | change
            assert answer.json() == made

    async def test_new_schedule_is_planned_again(self, api: Api) -> None:
        made = await api.create()
        api.clock.advance(60)
        answer = await api.client.patch(
            f"/jobs/{made['id']}", json={"schedule": {"kind": "every", "every": "10s"}}
        )
        assert answer.json()["next_run_at"] == "2030-01-15T09:01:10Z"

    async def test_ended_once_job_can_be_patched(self, api: Api) -> None:
        # Ksana rejected a past run_at even if the PATCH did not change it.
        made = await api.create(schedule={"kind": "once", "run_at": "2030-01-15T09:00:01Z"})
        api.clock.advance(1)
        assert await api.execute_due_runs() == 1
        api.clock.advance(60)
        done = await api.get(made["id"])
        assert (done["last_status"], done["next_run_at"]) == ("success", "")
        answer = await api.client.patch(f"/jobs/{made['id']}", json=done | {"name": "done"})
        assert answer.status_code == 200, answer.text
        assert answer.json() == done | {"name": "done"}
        past = await api.client.patch(
            f"/jobs/{made['id']}",
            json={"schedule": {"kind": "once", "run_at": "2030-01-15T09:00:02Z"}},
        )
        assert past.json()["message"] == "run_at must be in the future"

    async def test_invalid_patch_changes_nothing(self, api: Api) -> None:
        made = await api.create()
        for change in (
            {"name": ""},
            {"name": "x", "timeout": "0s"},
            {"id": "other"},
            {"type": "shell"},
            {"http": {"url": "gopher://x"}},
            {"schedule": {"kind": "cron"}},
            {"enabled": None, "bogus": 1},
        ):
            answer = await api.client.patch(f"/jobs/{made['id']}", json=change)
            assert answer.status_code == 400, (change, answer.text)
        assert await api.get(made["id"]) == made


class TestLife:
    async def test_run_now_keeps_next_run_at(self, api: Api) -> None:
        made = await api.create()
        answer = await api.client.post(f"/jobs/{made['id']}/run-now")
        assert (answer.status_code, answer.json()) == (
            200,
            {"message": "Job triggered successfully"},
        )
        api.clock.advance(1)
        assert await api.execute_due_runs(AttemptEnd.FAILED, "HTTP 404") == 1
        after = await api.get(made["id"])
        assert after["next_run_at"] == made["next_run_at"]
        assert (after["last_status"], after["last_error"]) == ("failed", "HTTP 404")
        assert after["last_run_at"] == "2030-01-15T09:00:01Z"

    async def test_pause_and_resume(self, api: Api) -> None:
        made = await api.create()
        paused = await api.client.post(f"/jobs/{made['id']}/pause")
        assert paused.json() == {"message": "Job paused successfully"}
        seen = await api.get(made["id"])
        assert (seen["enabled"], seen["next_run_at"], seen["last_status"]) == (False, "", "paused")
        api.clock.advance(timedelta(hours=1))
        resumed = await api.client.post(f"/jobs/{made['id']}/resume")
        assert resumed.json() == {"message": "Job resumed successfully"}
        seen = await api.get(made["id"])
        assert (seen["enabled"], seen["next_run_at"]) == (True, "2030-01-15T10:05:00Z")
        assert seen["last_status"] == ""
        assert (await api.context.store.list_runs(RunQuery())).items == ()

    async def test_run_now_on_a_paused_job_shows_its_result(self, api: Api) -> None:
        made = await api.create(enabled=False)
        await api.client.post(f"/jobs/{made['id']}/run-now")
        api.clock.advance(1)
        assert await api.execute_due_runs() == 1
        seen = await api.get(made["id"])
        assert (seen["enabled"], seen["last_status"]) == (False, "success")

    async def test_an_overdue_once_is_missed(self, api: Api) -> None:
        # With a misfire grace of 1 s.
        made = await api.create(schedule={"kind": "once", "run_at": "2030-01-15T09:00:01Z"})
        api.clock.advance(2.5)
        assert await api.execute_due_runs() == 0
        assert (await api.get(made["id"]))["last_status"] == "missed"
        (row,) = (await api.context.store.list_runs(RunQuery())).items
        assert (row.status, row.missed_count) == (RunStatus.MISSED, 1)

    async def test_once_resumed_after_its_time_is_missed(self, api: Api) -> None:
        made = await api.create(schedule={"kind": "once", "run_at": "2030-01-15T09:00:01Z"})
        await api.client.post(f"/jobs/{made['id']}/pause")
        api.clock.advance(5)
        await api.client.post(f"/jobs/{made['id']}/resume")
        assert await api.execute_due_runs() == 0
        assert (await api.get(made["id"]))["last_status"] == "missed"

    async def test_interval_continues_on_its_grid_after_an_outage(self, api: Api) -> None:
        # No drift, no catch-up, one row for the missed slots.
        made = await api.create(schedule={"kind": "every", "every": "10s"})
        api.clock.advance(47)
        assert await api.execute_due_runs() == 0
        seen = await api.get(made["id"])
        assert (seen["next_run_at"], seen["last_status"]) == ("2030-01-15T09:00:50Z", "missed")
        (row,) = (await api.context.store.list_runs(RunQuery())).items
        assert row.missed_count == 4

    async def test_delete(self, api: Api) -> None:
        made = await api.create()
        gone = await api.client.delete(f"/jobs/{made['id']}")
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await api.client.get(f"/jobs/{made['id']}")).status_code == 404
        assert (await api.client.get("/jobs")).json() == []


class TestSameAsNative:
    async def test_job_is_a_native_schedule(self, api: Api) -> None:
        made = await api.create()
        native = (await api.client.get(f"/api/v1/schedules/{made['id']}")).json()
        assert native["name"] == "ping"
        assert native["target"]["url"] == URL
        assert native["policy"]["misfire"] == "skip"
        assert native["policy"]["misfire_grace"] == "PT1S"

    async def test_native_schedule_is_a_job(self, api: Api) -> None:
        answer = await api.client.post(
            "/api/v1/schedules",
            json={
                "name": "native",
                "trigger": {"kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Bangkok"},
                "target": {"kind": "http", "url": URL, "method": "PUT"},
            },
        )
        assert answer.status_code == 201, answer.text
        (seen,) = (await api.client.get("/jobs")).json()
        assert seen["schedule"] == {
            "kind": "cron",
            "expression": "0 9 * * *",
            "timezone": "Asia/Bangkok",
        }
        renamed = await api.client.patch(
            f"/jobs/{seen['id']}", json={"name": "renamed", "schedule": seen["schedule"]}
        )
        assert renamed.status_code == 200, renamed.text
        native = (await api.client.get(f"/api/v1/schedules/{seen['id']}")).json()
        assert (native["name"], native["target"]["method"]) == ("renamed", "PUT")
        assert native["next_run_at"] == answer.json()["next_run_at"]

    async def test_native_interval_shows_its_anchor(self, api: Api) -> None:
        await api.client.post(
            "/api/v1/schedules",
            json={
                "name": "native",
                "trigger": {"kind": "every", "every": "PT90S", "anchor": "2030-01-15T09:00:00Z"},
                "target": {"kind": "http", "url": URL},
            },
        )
        (seen,) = (await api.client.get("/jobs")).json()
        assert seen["schedule"] == {
            "kind": "every",
            "every": "1m30s",
            "start_at": "2030-01-15T09:00:00Z",
            "jitter": "",
        }


class TestKeys:
    async def test_missing_key_is_401_and_wrong_key_403(self, api: Api) -> None:
        created = await api.client.post("/api/v1/keys", json={"name": "a", "role": "admin"})
        assert created.status_code == 201, created.text
        key = created.json()["key"]
        missing = await api.client.get("/jobs")
        assert missing.status_code == 401
        assert missing.headers["WWW-Authenticate"] == "ApiKey"
        wrong = await api.client.get("/jobs", headers={"X-API-Key": key + "x"})
        assert (wrong.status_code, wrong.json()["error"]) == (403, "Forbidden")
        for headers in (
            {"Authorization": f"ApiKey {key}"},
            {"X-API-Key": key},
            {"Authorization": f"Bearer {key}"},
        ):
            assert (await api.client.get("/jobs", headers=headers)).status_code == 200
        assert (await api.client.get("/jobs", params={"api_key": key})).status_code == 401
        assert (await api.client.get("/health")).status_code == 200

    async def test_secret_headers_are_shown_to_writers_only(self, api: Api) -> None:
        headers = {"X-GitHub-Token": "s3cret", "authorization": "Bearer s3cret", "X-Two": "2"}
        made = await api.create(http={"method": "GET", "url": URL, "headers": headers})
        assert made["http"]["headers"] == headers, "open mode"
        keys: dict[str, str] = {}
        for role in ("admin", "member", "operator", "viewer"):
            sent = {"X-API-Key": keys["admin"]} if keys else {}
            body = {"name": role, "role": role, "owner": {"type": "system", "id": "default"}}
            answer = await api.client.post("/api/v1/keys", json=body, headers=sent)
            assert answer.status_code == 201, answer.text
            keys[role] = answer.json()["key"]
        hidden = {"X-GitHub-Token": "***", "authorization": "***", "X-Two": "2"}
        shown = {"admin": headers, "member": headers, "operator": hidden, "viewer": hidden}
        for role, expected in shown.items():
            sent = {"X-API-Key": keys[role]}
            one = await api.client.get(f"/jobs/{made['id']}", headers=sent)
            assert one.json()["http"]["headers"] == expected, role
            (listed,) = (await api.client.get("/jobs", headers=sent)).json()
            assert listed["http"]["headers"] == expected, role


# --- tasks and flows of other interfaces ------------------------------------------------------
async def create_task_job(api: Api) -> dict[str, Any]:
    await api.context.store.join(a_node("node-1", capabilities=("task:greet",)), LEASE)
    answer = await api.client.post(
        "/api/v1/schedules",
        json={
            "name": "greeting",
            "trigger": {"kind": "every", "every": "1h"},
            "target": {"kind": "task", "name": "greet", "args": {"name": "Ada", "token": "t0p"}},
        },
    )
    assert answer.status_code == 201, answer.text
    return await api.get(answer.json()["id"])


async def test_task_is_shown_as_a_job_of_type_task(api: Api) -> None:
    shown = await create_task_job(api)
    assert shown["type"] == "task"
    assert shown["task"] == {"name": "greet", "args": {"name": "Ada", "token": "t0p"}}
    assert shown["http"] == {"method": "", "url": "", "headers": {}, "body": ""}
    assert (shown["timeout"], shown["max_retries"]) == ("5m0s", 0)
    assert shown in (await api.client.get("/jobs")).json()


async def test_unchanged_task_job_can_be_sent_back(api: Api) -> None:
    shown = await create_task_job(api)
    answer = await api.client.patch(f"/jobs/{shown['id']}", json=shown)
    assert answer.status_code == 200, answer.text
    assert answer.json() == shown
    renamed = await api.client.patch(f"/jobs/{shown['id']}", json={**shown, "name": "other"})
    assert (renamed.status_code, renamed.json()["name"]) == (200, "other")


@each_row(
    "patch",
    [
        {"http": {"url": URL}},
        {"http": {"method": "GET", "url": "", "headers": {}, "body": ""}},
        {"task": {"name": "other", "args": {}}},
        {"type": "http"},
        {"flow": {"name": "f"}},
    ],
)
async def test_target_of_a_task_job_cannot_be_changed(api: Api, patch: dict[str, Any]) -> None:
    shown = await create_task_job(api)
    answer = await api.client.patch(f"/jobs/{shown['id']}", json=patch)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] == "Validation failed"
    assert await api.get(shown["id"]) == shown


@on_memory
async def test_only_http_jobs_can_be_created(api: Api) -> None:
    answer = await api.client.post("/jobs", json=job(type="task"))
    assert (answer.status_code, answer.json()["message"]) == (400, "job type must be 'http'")


async def test_patch_of_single_http_fields_keeps_the_others(api: Api) -> None:
    schedule = {"kind": "every", "every": "5m", "jitter": "2s"}
    made = await api.create(schedule=schedule, http={"method": "GET", "url": URL, "body": "x"})
    path = f"/jobs/{made['id']}"
    for patch in (
        {"schedule": {"every": "10m"}},
        {"http": {"method": "POST"}},
        {"enabled": False},
        {"enabled": True},
    ):
        answer = await api.client.patch(path, json=patch)
        assert answer.status_code == 200, answer.text
        if "enabled" in patch:
            assert answer.json()["enabled"] is patch["enabled"]
    found = await api.get(made["id"])
    assert found["schedule"] == {"kind": "every", "every": "10m", "start_at": "", "jitter": "2s"}
    assert found["http"] == {"method": "POST", "url": URL, "headers": {}, "body": "x"}


@on_memory
@each_row(
    "schedule",
    [
        {"kind": "every", "every": "5m", "run_at": 5},
        {"kind": "every", "every": "5m", "jitter": ["1s"]},
        {"kind": "once", "run_at": "2040-01-01T00:00:00Z", "every": {"x": 1}},
        {"kind": "once", "run_at": "2040-01-01T00:00:00Z", "start_at": True},
    ],
)
async def test_fields_that_a_kind_does_not_use_must_be_texts(
    api: Api, schedule: dict[str, Any]
) -> None:
    answer = await api.client.post("/jobs", json=job(schedule=schedule))
    assert answer.status_code == 400, answer.text
    assert (await api.client.get("/jobs")).json() == []
