"""Real engines for tests: a Celery worker and a Dask cluster, as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULE = "tests.system.engine_tasks"


@contextmanager
def running(
    command: list[str], log: Path, *, kill: bool = False, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.stdin.close()
        # An orderly shutdown of a worker takes ten seconds.
        process.kill() if kill else process.terminate()
        process.wait(60)
        process.stdout.close()


@contextmanager
def celery_worker(broker: str, backend: str, log: Path, queue: str = "celery") -> Iterator[None]:
    """A worker with two threads. It takes tasks that were sent before it was ready."""
    options = ["--pool", "threads", "-c", "2", "--loglevel", "WARNING", "-Q", queue]
    quick = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    command = [sys.executable, "-m", "celery", "-A", MODULE, "worker", *options, *quick]
    command += ["-n", f"{queue}@localhost"]
    with running(command, log, kill=True, TEST_BROKER=broker, TEST_BACKEND=backend):
        yield


@contextmanager
def dask_cluster(log: Path) -> Iterator[str]:
    """The address of its scheduler. The cluster ends when its standard input is closed."""
    with running([sys.executable, "-m", MODULE], log) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, log.read_text()
        yield address
