"""Agent runs on a run pipeline: a killed node leads to no second pipeline run."""

from __future__ import annotations

import json
import threading
from typing import Any

from tests.system.conftest import Start
from tests.system.node import wait_until
from tests.system.services import Request, Response, Service, json_response
from tests.system.test_callbacks import ONCE_IN_A_YEAR

AGENT = {"kind": "agent", "prompt": "Summarise the news"}


class PipelineServer(Service):
    """Creates a run per POST, with or without support for Idempotency-Key."""

    def __init__(self, *, honours_key: bool) -> None:
        super().__init__()
        self._honours_key = honours_key
        self.made: list[str] = []
        self.ending: dict[str, Any] = {"status": "running"}
        #: While not set, a POST creates its run and is not answered.
        self.answers = threading.Event()
        self.answers.set()

    def answer(self, request: Request) -> Response:
        if request.path != "/runs":
            return json_response(self.ending)
        key = request.headers["idempotency-key"]
        if not self._honours_key or key not in self.made:
            self.made.append(key)
        self.answers.wait(60)
        return json_response({"run_id": f"p{self.made.index(key) + 1}", "status": "queued"}, 202)


def settings(pipeline: PipelineServer, lease: str = "60s") -> dict[str, str]:
    return {
        "CHIMES_LEASE": lease,
        "CHIMES_POLL_INTERVAL": "200ms",
        "CHIMES_AGENT_PIPELINE": "runs",
        "CHIMES_AGENT_URL": pipeline.url,
        "CHIMES_AGENT_API_KEY": "pk-canary-0123456789",
    }


def start_run(node: Any) -> Any:
    made = node.create(name="news", trigger=ONCE_IN_A_YEAR, target=AGENT, policy={"timeout": "60s"})
    return node.call("POST", f"/api/v1/schedules/{made['id']}/run").json


def wait_for_end(node: Any, run: Any) -> Any:
    def look() -> Any:
        found = node.call("GET", f"/api/v1/runs/{run['id']}").json
        return found if found["status"] not in ("queued", "running") else None

    return wait_until(look, "the end of the run")


def test_node_killed_while_polling_is_replaced_by_another_that_polls(
    sqlite: str, start: Start
) -> None:
    with PipelineServer(honours_key=False) as pipeline:
        first = start(sqlite, **settings(pipeline, lease="2s"))
        run = start_run(first)
        pipeline.wait(lambda: pipeline.requests("/runs/p1"), "the first poll of the run")
        first.kill()
        pipeline.ending = {
            "status": "completed",
            "output": "ข่าว",
            "artifacts": [{"name": "a.txt", "url": "files/a.txt"}],
        }
        second = start(sqlite, **settings(pipeline))
        ended = wait_for_end(second, run)
        assert (ended["status"], ended["attempt"]) == ("succeeded", 2)
        assert ended["result"]["text"] == "ข่าว"
        assert ended["result"]["pipeline_run_id"] == "p1"
        assert ended["result"]["artifacts"] == [
            {"name": "a.txt", "url": f"{pipeline.url}/files/a.txt"}
        ]
        assert pipeline.made == [run["id"]]
        log = json.dumps(second.call("GET", f"/api/v1/runs/{run['id']}/logs").json)
        assert "going on with run p1" in log
        assert second.stop() == 0
    for node in (first, second):
        assert "pk-canary" not in node.output
    assert "pk-canary" not in json.dumps(ended) + log


def test_node_killed_before_the_response_finds_the_pipeline_run_by_key(
    sqlite: str, start: Start
) -> None:
    with PipelineServer(honours_key=True) as pipeline:
        pipeline.answers.clear()
        first = start(sqlite, **settings(pipeline, lease="2s"))
        run = start_run(first)
        pipeline.wait(lambda: pipeline.made, "the pipeline run")
        first.kill()
        pipeline.answers.set()
        pipeline.ending = {"status": "succeeded", "output": "made once"}
        ended = wait_for_end(start(sqlite, **settings(pipeline)), run)
        assert (ended["status"], ended["result"]["text"]) == ("succeeded", "made once")
        assert pipeline.made == [run["id"]]
        posts = [request.json for request in pipeline.requests("/runs")]
        assert len(posts) == 2
        assert posts[0] == posts[1]
