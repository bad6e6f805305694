"""Tasks and functions that real engines execute in tests, and the program of a Dask cluster.

`python -m tests.system.engine_tasks` starts a Dask cluster and prints its address. A Celery worker
is started with `celery -A tests.system.engine_tasks worker`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from celery import Celery

app = Celery(
    "chimes-tests",
    broker=os.environ.get("TEST_BROKER", "memory://"),
    backend=os.environ.get("TEST_BACKEND") or None,
)
app.conf.update(
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    task_track_started=True,
)


def wait_and_count(directory: str, name: str) -> dict[str, object]:
    """Notes that it has begun, waits until the test lets it end."""
    begun = Path(directory, f"{name}.begun")
    with begun.open("a") as file:
        file.write(f"{os.getpid()}\n")
    deadline = time.monotonic() + 90
    while not Path(directory, "go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(name)
        time.sleep(0.02)
    return {"name": name, "times": len(begun.read_text().splitlines())}


@app.task(name="tests.wait")
def wait(directory: str, name: str) -> dict[str, object]:
    return wait_and_count(directory, name)


@app.task(name="tests.add")
def add(left: int, right: int, *, unit: str = "") -> str:
    return f"{left + right}{unit}"


@app.task(name="tests.fail")
def fail(password: str) -> None:
    raise ValueError(f"no access with {password}")


def double(number: int) -> int:
    return number * 2


def refuse() -> None:
    raise LookupError("nothing there")


if __name__ == "__main__":
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=4, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
