"""Too little processor time, nodes that all stop, and four processes on one file."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from chimes.model.listing import RunQuery
from chimes.store.sql import open_sqlite
from tests.servers.copies import copied_database
from tests.system.conftest import Start
from tests.system.node import Node, wait_until
from tests.system.receiver import Receiver
from tests.system.test_callbacks import http

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
TIMES = {"CHIMES_LEASE": "3s", "CHIMES_HEARTBEAT": "1s", "CHIMES_POLL_INTERVAL": "200ms"}


@pytest.fixture
def postgres() -> str:
    return copied_database()


@contextmanager
def busy_loops(count: int, seconds: float) -> Iterator[None]:
    """Processes that use all cores, and end by themselves."""
    code = f"import time; end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"
    loops = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def every_second(node: Node, receiver: Receiver, count: int) -> list[str]:
    made = [
        node.create(
            name=f"s{number}",
            trigger={"kind": "every", "every": "1s"},
            target=http(receiver.url(f"/s{number}")),
            policy={"overlap": "allow", "misfire": "all", "max_retries": 5},
        )
        for number in range(count)
    ]
    return [each["id"] for each in made]


def check_history(node: Node, receiver: Receiver, schedules: list[str]) -> None:
    """After a pause: every slot has one run with one result, and a call that was repeated is a
    further attempt of its run."""
    for each in schedules:
        assert node.call("POST", f"/api/v1/schedules/{each}/pause").status == 200

    def all_ended() -> bool:
        return all(
            run["status"] not in ("queued", "running")
            for each in schedules
            for run in node.runs(each)
        )

    wait_until(all_ended, "the end of all runs", within=240)
    for number, each in enumerate(schedules):
        runs = node.runs(each)
        assert {run["status"] for run in runs} == {"succeeded"}, runs[0]
        slots = sorted(datetime.fromisoformat(run["slot"]) for run in runs)
        assert slots == [slots[0] + timedelta(seconds=n) for n in range(len(slots))]
        calls = receiver.calls(f"/s{number}")
        assert {call.run_id for call in calls} == {run["id"] for run in runs}
        for run in runs:
            mine = [call.attempt for call in calls if call.run_id == run["id"]]
            assert len(mine) == len(set(mine)) <= len(run["attempts"]) or len(mine) == 1


def test_nodes_without_processor_time_neither_lose_nor_double(
    postgres: str, start: Start, receiver: Receiver
) -> None:
    nodes = [start(postgres, **TIMES) for _ in range(2)]
    schedules = every_second(nodes[0], receiver, 5)
    with busy_loops(8, 20):
        receiver.wait_for("/s0", 15)
    check_history(nodes[0], receiver, schedules)


def test_all_nodes_suspended_catch_up(postgres: str, start: Start, receiver: Receiver) -> None:
    nodes = [start(postgres, **TIMES) for _ in range(2)]
    schedules = every_second(nodes[0], receiver, 5)
    receiver.wait_for("/s0", 3)
    for node in nodes:
        node.send(signal.SIGSTOP)
    wait_until(lambda: all(node.suspended for node in nodes), "the stop")
    time.sleep(10)  # three leases
    for node in nodes:
        node.send(signal.SIGCONT)
    receiver.wait_for("/s0", 20)
    check_history(nodes[0], receiver, schedules)


def test_four_processes_share_a_sqlite_file(
    tmp_path: Path, start: Start, receiver: Receiver
) -> None:
    """None of them is kept from writing: each executes runs, and no answer takes seconds."""
    path = tmp_path / "chimes.db"
    nodes = [
        start(f"sqlite:///{path}", CHIMES_WORKERS="2", **TIMES | {"CHIMES_LEASE": "60s"})
        for _ in range(4)
    ]
    schedules = every_second(nodes[0], receiver, 8)
    slowest = [0.0] * len(nodes)
    end = threading.Event()

    def write(number: int) -> None:
        while not end.is_set():
            began = time.monotonic()
            answer = nodes[number].call("PATCH", "/api/v1/me", {"timezone": "UTC"})
            assert answer.status == 200, answer
            slowest[number] = max(slowest[number], time.monotonic() - began)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(len(nodes))]
    for each in threads:
        each.start()
    try:
        receiver.wait_for("/s0", 15)
    finally:
        end.set()
        for each in threads:
            each.join()
    print(f"slowest write by process: {[round(each, 2) for each in slowest]} s")
    # The store gives up after five seconds.
    assert max(slowest) < 20
    check_history(nodes[0], receiver, schedules)

    async def holders() -> set[str]:
        store = open_sqlite(path)
        await store.open()
        try:
            runs = (await store.list_runs(RunQuery(limit=None))).items
        finally:
            await store.close()
        return {str(attempt.node) for run in runs for attempt in run.attempts}

    assert len(asyncio.run(holders())) == len(nodes)
