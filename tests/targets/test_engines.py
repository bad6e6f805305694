"""Jobs of engines: hand-over, takeover, retry, cancellation, and Kubernetes against a stub of its
API. `tests/system/test_engines.py` has real Celery workers and a Dask cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from chimes.config.connections import Connection
from chimes.model.ids import NodeId
from chimes.model.policy import Policy
from chimes.model.run import Attempt, AttemptEnd, Outcome
from chimes.model.target import KubernetesTarget
from chimes.targets.base import Call
from chimes.targets.engines import runner as following
from chimes.targets.engines.kubernetes import KubernetesEngine, job_name
from chimes.targets.engines.runner import EngineRunner
from tests.builders import NOW, a_run
from tests.targets.agent_servers import StoredCheckpoint

TOKEN = "kube-token-0123456789"
JOBS = "/apis/batch/v1/namespaces/batch/jobs"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(following, "LONGEST_PAUSE", 0.02)


def status(code: int, reason: str, message: str) -> web.Response:
    """An error as the API server returns it."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return web.json_response(body, status=code)


@dataclass
class ApiServer:
    """Answers as the API reference of Kubernetes describes `batch/v1` Jobs and their pods; no
    cluster is at hand to test against."""

    url: str = ""
    #: Conditions of a Job after each poll; the last one stays.
    conditions: list[list[dict[str, str]]] = field(default_factory=lambda: [[], [COMPLETE]])
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    created: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    polled: asyncio.Event = field(default_factory=asyncio.Event)
    #: Answers of this status to the next requests to create a Job.
    refuse: list[int] = field(default_factory=list)

    async def create(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        job = await request.json()
        name = job["metadata"]["name"]
        if self.refuse:
            return status(self.refuse.pop(0), "Refused", "refused")
        if name in self.jobs:
            return status(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
        self.jobs[name] = job
        self.created.append(job)
        return web.json_response(job | {"status": {}}, status=201)

    async def read(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.polled.set()
        if name not in self.jobs:
            return status(404, "NotFound", f'jobs.batch "{name}" not found')
        found = self.conditions[0] if len(self.conditions) == 1 else self.conditions.pop(0)
        state = {"conditions": found} if found else {"active": 1}
        return web.json_response(self.jobs[name] | {"status": state})

    async def delete(self, request: web.Request) -> web.Response:
        assert request.query["propagationPolicy"] == "Background"
        self.deleted.append(request.match_info["name"])
        return web.json_response({"kind": "Status", "status": "Success"})

    async def pods(self, request: web.Request) -> web.Response:
        name = request.query["labelSelector"].removeprefix("job-name=")
        return web.json_response({"items": [{"metadata": {"name": f"{name}-x7k2p"}}]})

    async def log(self, request: web.Request) -> web.Response:
        assert request.match_info["pod"].endswith("-x7k2p")
        return web.Response(text="loading\n42 rows\n")

    async def version(self, _request: web.Request) -> web.Response:
        return web.json_response({"major": "1", "minor": "33", "gitVersion": "v1.33.2"})


COMPLETE = {"type": "Complete", "status": "True"}
FAILED = {
    "type": "Failed",
    "status": "True",
    "reason": "BackoffLimitExceeded",
    "message": "Job has reached the specified backoff limit",
}


@asynccontextmanager
async def kubernetes(**given: Any) -> AsyncIterator[ApiServer]:
    server = ApiServer(**given)
    app = web.Application()
    app.router.add_get("/version", server.version)
    app.router.add_post(JOBS, server.create)
    app.router.add_get(f"{JOBS}/{{name}}", server.read)
    app.router.add_delete(f"{JOBS}/{{name}}", server.delete)
    app.router.add_get("/api/v1/namespaces/batch/pods", server.pods)
    app.router.add_get("/api/v1/namespaces/batch/pods/{pod}/log", server.log)
    started = web.AppRunner(app)
    await started.setup()
    site = web.TCPSite(started, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    server.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        await started.cleanup()


async def as_it_is(connection: Connection) -> Connection:
    return connection


@asynccontextmanager
async def engine(url: str, **more: Any) -> AsyncIterator[EngineRunner]:
    given: dict[str, Any] = {"namespace": "batch", "token": TOKEN, **more}
    connection = Connection(name="cluster", kind="kubernetes", url=url, **given)
    runner = EngineRunner("kubernetes", [connection], KubernetesEngine, as_it_is)
    try:
        yield runner
    finally:
        await runner.close()


TARGET = KubernetesTarget(
    connection="cluster",
    image="registry.example.com/report:3",
    command=("report", "--run", "{{run_id}}"),
    env={"PASSWORD": "{{secret.DB}}"},
    manifest={
        "spec": {"template": {"spec": {"serviceAccountName": "reports"}}},
        "metadata": {"labels": {"team": "billing"}},
    },
)


def a_job(
    state: StoredCheckpoint, log: list[str] | None = None, *, timeout: float = 60, **run: Any
) -> Call:
    lines: list[str] = [] if log is None else log
    values: dict[str, Any] = {
        "id": "Run-1",
        "target": TARGET,
        "policy": Policy(timeout=timedelta(seconds=timeout)),
        "attempt": 1,
        "fence": 1,
    }
    return Call(
        run=a_run(**values | run),
        triggered_at=NOW,
        log=lambda level, message: lines.append(str(message)),
        secrets={"DB": "db-password"},
        state=state,
    )


def ended(outcome: Outcome, end: AttemptEnd, code: str = "", retryable: bool = False) -> None:
    assert (outcome.end, outcome.code, outcome.retryable) == (end, code, retryable), outcome


async def test_job_is_created_followed_and_its_output_is_logged() -> None:
    state, lines = StoredCheckpoint(), []  # type: tuple[StoredCheckpoint, list[str]]
    async with kubernetes() as there, engine(there.url) as runner:
        outcome = await runner.execute(a_job(state, lines))
    ended(outcome, AttemptEnd.SUCCEEDED)
    assert outcome.result == {
        "connection": "cluster",
        "id": "Run-1",
        "status": "Complete",
        "value": "42 rows",
    }
    assert "42 rows" in lines
    (job,) = there.created
    assert job["metadata"]["name"] == job_name("Run-1") == "chimes-run-1"
    assert job["metadata"]["labels"]["team"] == "billing"
    spec = job["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 60)
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["serviceAccountName"]) == ("Never", "reports")
    (container,) = pod["containers"]
    assert container["command"] == ["report", "--run", "Run-1"]
    assert container["env"] == [{"name": "PASSWORD", "value": "db-password"}]
    # The id is stored before the hand-over, and once more when it is confirmed.
    assert [json.loads(each)["sent"] for each in state.writes] == [False, True]


async def test_takeover_follows_and_a_lost_answer_creates_no_second_job() -> None:
    for sent in (True, False):
        stored = json.dumps({"id": "Run-1", "sent": sent, "failures": 0})
        async with kubernetes() as there, engine(there.url) as runner:
            there.jobs["chimes-run-1"] = {"metadata": {"name": "chimes-run-1"}}
            state, lines = StoredCheckpoint(value=stored), []  # type: tuple[Any, list[str]]
            outcome = await runner.execute(a_job(state, lines, attempt=2))
        ended(outcome, AttemptEnd.SUCCEEDED)
        assert there.created == []
        assert ("Following" if sent else "Found") in lines[0]


async def test_retry_after_a_failed_job_hands_over_another_one() -> None:
    state = StoredCheckpoint()
    async with kubernetes(conditions=[[FAILED]]) as there, engine(there.url) as runner:
        outcome = await runner.execute(a_job(state))
        ended(outcome, AttemptEnd.FAILED, "job_failed", retryable=True)
        assert "BackoffLimitExceeded" in outcome.error
        there.conditions = [[COMPLETE]]
        failed = Attempt(
            number=1,
            fence=1,
            node=NodeId("n"),
            started_at=NOW,
            finished_at=NOW,
            end=AttemptEnd.FAILED,
        )
        again = a_job(state, attempt=2, attempts=(failed,))
        ended(await runner.execute(again), AttemptEnd.SUCCEEDED)
    assert [*there.jobs] == ["chimes-run-1", "chimes-run-1-2"]


async def test_hand_over_that_was_not_confirmed_keeps_its_id() -> None:
    state = StoredCheckpoint()
    async with kubernetes(refuse=[503, 403]) as there, engine(there.url) as runner:
        ended(await runner.execute(a_job(state)), AttemptEnd.FAILED, "unreachable", retryable=True)
        failed = Attempt(
            number=1,
            fence=1,
            node=NodeId("n"),
            started_at=NOW,
            finished_at=NOW,
            end=AttemptEnd.FAILED,
        )
        again = a_job(state, attempt=2, attempts=(failed,))
        ended(await runner.execute(again), AttemptEnd.FAILED, "api_refused")
        ended(await runner.execute(again), AttemptEnd.SUCCEEDED)
    assert [*there.jobs] == ["chimes-run-1"]


async def test_canceled_run_deletes_the_job_and_a_draining_node_leaves_it() -> None:
    for canceled in (True, False):
        async with kubernetes(conditions=[[]]) as there, engine(there.url) as runner:
            call = a_job(StoredCheckpoint())
            call = Call(
                run=call.run,
                triggered_at=NOW,
                log=call.log,
                state=call.state,
                canceled=lambda canceled=canceled: canceled,
            )
            task = asyncio.create_task(runner.execute(call))
            async with asyncio.timeout(30):
                await there.polled.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert there.deleted == (["chimes-run-1"] if canceled else [])


async def test_timeout_cancels_the_job() -> None:
    async with kubernetes(conditions=[[]]) as there:
        async with engine(there.url) as runner:
            outcome = await runner.execute(a_job(StoredCheckpoint(), timeout=0.3))
        assert outcome.end is AttemptEnd.TIMEOUT
        assert not outcome.retryable
    assert there.deleted == ["chimes-run-1"]


async def test_patterns_of_the_operator_apply_to_every_image() -> None:
    sidecar = {"containers": [{}, {"name": "s", "image": "evil.example.com/x"}]}
    manifest = {"spec": {"template": {"spec": sidecar}}}
    target = KubernetesTarget(
        connection="cluster", image="registry.example.com/report:3", manifest=manifest
    )
    async with (
        kubernetes() as there,
        engine(there.url, allow=("registry.example.com/*",)) as runner,
    ):
        outcome = await runner.execute(a_job(StoredCheckpoint(), target=target))
        ended(outcome, AttemptEnd.FAILED, "not_allowed_there")
        ended(await runner.execute(a_job(StoredCheckpoint())), AttemptEnd.SUCCEEDED)
    assert len(there.created) == 1


async def test_no_token_is_repeated_in_an_error() -> None:
    async with engine("http://127.0.0.1:9") as runner:
        outcome = await runner.execute(a_job(StoredCheckpoint()))
    ended(outcome, AttemptEnd.FAILED, "unreachable", retryable=True)
    assert TOKEN not in outcome.error
