"""A prompt handed to a run pipeline by a node that is then killed: one run over there (R1.32)."""

from __future__ import annotations

import json
import threading
from typing import Any

from tests.system.conftest import Start
from tests.system.node import wait_until
from tests.system.services import Asked, Service, Told, told
from tests.system.test_callbacks import ONCE_IN_A_YEAR

SHORT_LEASE = {"CHIMES_LEASE": "2s", "CHIMES_POLL_INTERVAL": "200ms"}
AGENT = {"kind": "agent", "prompt": "Summarise the news"}


class PipelineServer(Service):
    """Makes a run for each POST, whatever its key: a pipeline that knows no Idempotency-Key must
    not get a second one either, once it has said which run it made."""

    def __init__(self, *, honours_key: bool) -> None:
        super().__init__()
        self._honours_key = honours_key
        self.made: list[str] = []
        self.ending: dict[str, Any] = {"status": "running"}
        #: While it is not set, a POST makes its run and is not answered.
        self.answers = threading.Event()
        self.answers.set()

    def answer(self, asked: Asked) -> Told:
        if asked.path != "/runs":
            return told(self.ending)
        key = asked.headers["idempotency-key"]
        if not self._honours_key or key not in self.made:
            self.made.append(key)
        self.answers.wait(30)
        return told({"run_id": f"p{self.made.index(key) + 1}", "status": "queued"}, 202)


def settings(pipeline: PipelineServer) -> dict[str, str]:
    return SHORT_LEASE | {
        "CHIMES_AGENT_PIPELINE": "runs",
        "CHIMES_AGENT_URL": pipeline.url,
        "CHIMES_AGENT_API_KEY": "pk-canary-0123456789",
    }


def started(node: Any) -> Any:
    made = node.create(name="news", trigger=ONCE_IN_A_YEAR, target=AGENT, policy={"timeout": "60s"})
    return node.call("POST", f"/api/v1/schedules/{made['id']}/run").json


def taken_over(node: Any, run: Any) -> Any:
    def look() -> Any:
        found = node.call("GET", f"/api/v1/runs/{run['id']}").json
        return found if found["status"] not in ("queued", "running") else None

    return wait_until(look, "the end of the run")


def test_killed_while_it_waits_the_next_node_waits_on(sqlite: str, start: Start) -> None:
    with PipelineServer(honours_key=False) as pipeline:
        first = start(sqlite, **settings(pipeline))
        run = started(first)
        pipeline.wait(lambda: pipeline.asked("/runs/p1"), "the first look at the run")
        first.kill()
        pipeline.ending = {
            "status": "completed",
            "output": "ข่าว",
            "artifacts": [{"name": "a.txt", "url": "files/a.txt"}],
        }
        second = start(sqlite, **settings(pipeline))
        ended = taken_over(second, run)
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


def test_killed_before_the_pipeline_has_answered_the_key_finds_the_run(
    sqlite: str, start: Start
) -> None:
    with PipelineServer(honours_key=True) as pipeline:
        pipeline.answers.clear()
        first = start(sqlite, **settings(pipeline))
        run = started(first)
        pipeline.wait(lambda: pipeline.made, "the run over there")
        first.kill()
        pipeline.answers.set()
        pipeline.ending = {"status": "succeeded", "output": "made once"}
        ended = taken_over(start(sqlite, **settings(pipeline)), run)
        assert (ended["status"], ended["result"]["text"]) == ("succeeded", "made once")
        assert pipeline.made == [run["id"]]
        posts = [asked.json for asked in pipeline.asked("/runs")]
        assert len(posts) == 2
        assert posts[0] == posts[1]
