"""The task queue of the EventNative API with real nodes and processes, on every store: one active
task per collection, order, capacity, cancel, logs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from chimes.client import AsyncClient
from tests.cli.conftest import Server
from tests.servers import POSTGRES, shared
from tests.servers.kinds import REDIS

CAPACITY = 16
GATED = [f"held_{number:02}" for number in range(CAPACITY + 1)]
COLLECTIONS = [*GATED, "quick", "speaks", "breaks", "many", "stopped", "waits", "a", "b", "c", "d"]
TOKEN = "for-the-tests-of-tasks"

SOURCE = '''
import os
import pathlib
import sys
import time


def sync(source, collection, config, state):
    """Waits for a file of its name if its gate is closed."""
    place = pathlib.Path(config["place"])
    with open(place / "order", "a") as order:
        order.write(f"{collection}\\n")
    (place / f"{collection}.pid").write_text(str(os.getpid()))
    print(f"begins with {state}", flush=True)
    if collection == "breaks":
        print("about to break", file=sys.stderr, flush=True)
        raise RuntimeError("it broke")
    if collection != "quick":
        gate = place / f"{collection}.gate"
        while not gate.exists():
            time.sleep(0.02)
    print("ends", flush=True)
    return {"count": 1 if state is None else state["count"] + 1}
'''


class TaskServers:
    """One or more servers on one store, with gates that hold their tasks."""

    def __init__(self, directory: Path, store: str, *, workers: int | None = None) -> None:
        self.directory = directory
        self.place = directory / "place"
        self.place.mkdir()
        (directory / "shop_source.py").write_text(SOURCE)
        self._file = directory / "chimes.yaml"
        self._file.write_text(
            json.dumps(
                {
                    "sources": {
                        "shop": {
                            "driver": "python",
                            "config": {
                                "callable": "shop_source:sync",
                                "place": str(self.place),
                            },
                            "collections": [{"name": name} for name in COLLECTIONS],
                        }
                    }
                }
            )
        )
        self._store = store
        self._env = {"CHIMES_ADMIN_TOKEN": TOKEN, "CHIMES_REQUESTS_PER_SECOND": "10000"}
        if workers is not None:
            self._env["CHIMES_SYNC_WORKERS"] = str(workers)
        self.servers: list[Server] = []
        self.clients: list[httpx2.Client] = []
        self.add_node()

    def add_node(self) -> None:
        """Starts another node on the same store."""
        home = self.directory / f"node{len(self.servers)}"
        home.mkdir()
        started = Server(home, "--config", str(self._file), "--store", self._store, env=self._env)
        self.servers.append(started)
        self.clients.append(
            httpx2.Client(base_url=started.url, headers={"X-Admin-Token": TOKEN}, timeout=30)
        )

    @property
    def client(self) -> httpx2.Client:
        return self.clients[0]

    def post(self, collection: str, **add_node: str) -> str:
        answer = self.client.post(
            "/tasks/", params={"source": "shop", "collection": collection} | add_node
        )
        assert answer.status_code == 201, answer.text
        task: str = answer.json()["task_id"]
        return task

    def get(self, task: str) -> dict[str, Any]:
        answer = self.client.get(f"/tasks/{task}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def status(self, task: str) -> str:
        return str(self.get(task)["status"])

    def wait_for_status(self, task: str, status: str) -> dict[str, Any]:
        return until(lambda: self.get(task), lambda found: found["status"] == status)

    def logs(self, task: str, **window: str) -> list[dict[str, str]]:
        answer = self.client.get(f"/tasks/{task}/logs", params=window)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, str]] = answer.json()["logs"]
        return found

    def open(self, *collections: str) -> None:
        for each in collections:
            (self.place / f"{each}.gate").touch()

    def order(self) -> list[str]:
        written = self.place / "order"
        return written.read_text().split() if written.exists() else []

    def close(self) -> None:
        self.open(*COLLECTIONS)
        for client in self.clients:
            client.close()
        assert [server.stop() for server in self.servers] == [0] * len(self.servers)


def until(
    question: Callable[[], Any], good: Callable[[Any], object], *, within: float = 60.0
) -> Any:
    deadline = time.monotonic() + within
    while True:
        found = question()
        if good(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def _stores() -> dict[str, Callable[[Path], str]]:
    """Factories of store URLs by kind."""
    return {
        "sqlite": lambda directory: f"sqlite:///{directory}/tasks.db",
        "postgresql": lambda directory: shared(POSTGRES).new_database(),
        # Other tests flush other databases.
        "redis": lambda directory: (
            f"{REDIS.url(shared(REDIS).port, '63')}?prefix={secrets.token_hex(4)}:"
        ),
    }


@pytest.fixture(scope="module", params=list(_stores()))
def store_url(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Makes empty stores of one kind."""
    with tempfile.TemporaryDirectory() as directory:
        names = iter(range(100))

        def new() -> str:
            place = Path(directory) / str(next(names))
            place.mkdir()
            return _stores()[request.param](place)

        yield new


@pytest.fixture(scope="module")
def tasks(
    store_url: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TaskServers]:
    """One node with default settings."""
    started = TaskServers(tmp_path_factory.mktemp("tasks"), store_url())
    yield started
    started.close()


def test_tasks_up_to_the_capacity_run(tasks: TaskServers) -> None:
    made = {name: tasks.post(name) for name in GATED}

    def statuses() -> dict[str, str]:
        window = {"source": "shop", "start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z"}
        listed = tasks.client.get("/tasks", params=window).json()["tasks"]
        return {
            each["collection"]: each["status"] for each in listed if each["collection"] in GATED
        }

    def running() -> list[str]:
        return [name for name, status in statuses().items() if status == "RUNNING"]

    until(running, lambda found: len(found) == CAPACITY)
    # All tasks up to the capacity have started, the last has not.
    until(
        lambda: [name for name in GATED if (tasks.place / f"{name}.pid").exists()],
        lambda found: len(found) == CAPACITY,
    )
    now = statuses()
    assert sorted(now.values()) == ["RUNNING"] * CAPACITY + ["SCHEDULED"]
    # Oldest first within a priority: the last one waits.
    assert now[GATED[-1]] == "SCHEDULED"
    tasks.open(GATED[0])
    tasks.wait_for_status(made[GATED[0]], "SUCCESS")
    tasks.wait_for_status(made[GATED[-1]], "RUNNING")
    tasks.open(*GATED)
    for task in made.values():
        tasks.wait_for_status(task, "SUCCESS")


def test_one_of_20_concurrent_requests_creates_a_task(tasks: TaskServers) -> None:
    async def posts() -> list[httpx2.Response]:
        pair = {"source": "shop", "collection": "many"}
        async with httpx2.AsyncClient(
            base_url=tasks.servers[0].url, params={"token": TOKEN}, timeout=30
        ) as client:
            return list(
                await asyncio.gather(*(client.post("/tasks/", params=pair) for _ in range(20)))
            )

    for _ in range(2):
        answers = asyncio.run(posts())
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        (task,) = {answer.json()["task_id"] for answer in answers}
        tasks.wait_for_status(task, "RUNNING")
        # RUNNING counts as active, like SCHEDULED.
        assert {answer.status_code for answer in asyncio.run(posts())} == {200}
        tasks.open("many")
        tasks.wait_for_status(task, "SUCCESS")
        (tasks.place / "many.gate").unlink()


def test_task_lifecycle_with_log_and_checkpoint(tasks: TaskServers) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    task = tasks.post("speaks")
    running = tasks.wait_for_status(task, "RUNNING")
    assert running["started_at"] >= running["created_at"] != ""
    assert (running["finished_at"], running["source_type"]) == ("", "python")
    created = datetime.fromisoformat(running["created_at"])
    assert running["priority"] == 300 * 10**12 - int(created.timestamp())
    assert abs(created - before) < timedelta(seconds=60)

    # The log is readable while the task runs.
    (said,) = until(
        lambda: [each for each in tasks.logs(task) if "begins" in each["message"]], bool
    )
    assert said["message"] == f"[{task}] begins with None"
    assert (said["level"], tasks.status(task)) == ("info", "RUNNING")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", said["time"])

    async def followed() -> list[str]:
        async with AsyncClient(tasks.servers[0].url, TOKEN) as client:
            found: list[str] = []
            async for line in client.follow_logs(task[-36:]):
                found.append(line.message)
                if line.message.startswith("begins"):
                    tasks.open("speaks")
            return found

    lines = asyncio.run(followed())
    assert lines[0] == "begins with None"
    assert "ends" in lines
    assert re.fullmatch(r"FINISHED SUCCESSFULLY in \[\d+\.\d\d\] seconds", lines[-1])
    ended = tasks.wait_for_status(task, "SUCCESS")
    assert ended["finished_at"] >= ended["started_at"]

    logs = tasks.logs(task)
    assert [each["message"].removeprefix(f"[{task}] ") for each in logs] == lines
    assert [each["time"] for each in logs] == sorted(each["time"] for each in logs)
    assert tasks.logs(task, start=logs[-1]["time"]) == logs[-1:]
    assert tasks.logs(task, end=logs[0]["time"]) == logs[:1]
    assert tasks.logs(task, start="2100-01-01T00:00:00Z") == []
    # The next run gets its checkpoint; the gate is open.
    again = tasks.post("speaks")
    tasks.wait_for_status(again, "SUCCESS")
    assert "begins with {'count': 1}" in tasks.logs(again)[0]["message"]


def test_failing_task(tasks: TaskServers) -> None:
    task = tasks.post("breaks")
    tasks.wait_for_status(task, "FAILED")
    logs = tasks.logs(task)
    errors = [each["message"] for each in logs if each["level"] == "error"]
    assert any("about to break" in each for each in errors)
    assert any("RuntimeError: it broke" in each for each in errors)
    failed = tasks.client.get(
        "/tasks",
        params={
            "source": "shop",
            "collection": "breaks",
            "start": "2020-01-01T00:00:00Z",
            "end": "2100-01-01T00:00:00.000000Z",
            "status": "failed",
        },
    ).json()["tasks"]
    assert [each["id"] for each in failed] == [task]


def test_cancel_of_a_running_task_stops_its_process(tasks: TaskServers) -> None:
    task = tasks.post("stopped")
    tasks.wait_for_status(task, "RUNNING")
    written = tasks.place / "stopped.pid"
    pid = int(until(lambda: written.read_text() if written.exists() else "", bool))
    answer = tasks.client.post(f"/tasks/{task}/cancel")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    ended = tasks.wait_for_status(task, "CANCELED")
    assert ended["finished_at"]
    until(lambda: _alive(pid), lambda found: not found)
    assert tasks.client.post(f"/tasks/{task}/cancel").json() == {"status": "ok"}


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_admin_token_is_an_admin_on_every_api(tasks: TaskServers) -> None:
    url = tasks.servers[0].url
    with httpx2.Client(base_url=url, timeout=30) as stranger:
        refused = stranger.get("/tasks/x")
        assert (refused.status_code, refused.json()) == (
            401,
            {"message": "Admin token does not match"},
        )
        assert stranger.get("/api/v1/runs").status_code == 401
        known = {"Authorization": f"Bearer {TOKEN}"}
        assert stranger.get("/api/v1/keys", headers=known).status_code == 200
        assert stranger.get(f"/tasks/x?token={TOKEN}").status_code == 404
    assert TOKEN not in tasks.servers[0].log.read_text()


# Two nodes with capacity for one: higher priority first, then older first.
def test_task_order_with_two_nodes(
    store_url: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tasks = TaskServers(tmp_path_factory.mktemp("order"), store_url(), workers=1)
    try:
        first = tasks.post("waits")
        tasks.wait_for_status(first, "RUNNING")
        until(tasks.order, lambda found: found == ["waits"])
        low = tasks.post("a", priority="100")
        # EventNative orders by whole seconds; within one second by creation.
        usual = [tasks.post(name, priority="200") for name in ("b", "c")]
        now = tasks.post("d")
        canceled = tasks.post("quick", priority="1000")
        assert tasks.client.post(f"/tasks/{canceled}/cancel").json() == {"status": "ok"}
        assert tasks.status(canceled) == "CANCELED"
        assert {tasks.status(each) for each in (low, *usual, now)} == {"SCHEDULED"}
        tasks.open("a", "b", "c", "d", "waits")
        for each in (first, low, *usual, now):
            tasks.wait_for_status(each, "SUCCESS")
        assert tasks.order() == ["waits", "d", "b", "c", "a"]

        tasks.add_node()
        (tasks.place / "many.gate").unlink(missing_ok=True)
        with ThreadPoolExecutor(20) as threads:
            answers = list(
                threads.map(
                    lambda number: tasks.clients[number % 2].post(
                        "/tasks/", params={"source": "shop", "collection": "many"}
                    ),
                    range(20),
                )
            )
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        (task,) = {answer.json()["task_id"] for answer in answers}
        tasks.open("many")
        tasks.wait_for_status(task, "SUCCESS")
        assert tasks.order().count("many") == 1
    finally:
        tasks.close()
