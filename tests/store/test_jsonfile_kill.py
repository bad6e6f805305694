"""Processes killed during a write keep all acknowledged changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.store.jsonfiles import document, dumped, opened

ROOT = Path(__file__).parents[2]

#: Adds schedules in several concurrent tasks and prints the id of each acknowledged one.
WRITER = """
import asyncio, os, sys
from pathlib import Path
from chimes.model.ids import ScheduleId
from chimes.store.jsonfile import JsonFileStore
from tests.builders import a_run, a_schedule

async def writing(store, name):
    for number in range(100_000):
        schedule = await store.add_schedule(a_schedule(id=ScheduleId(f"{name}-{number}")))
        os.write(1, f"{schedule.id}\\n".encode())
        (run,) = await store.add_runs([a_run(schedule, id=f"run-{name}-{number}")])
        os.write(1, f"{run.id}\\n".encode())

async def main(directory, life):
    store = JsonFileStore(directory)
    await store.open()
    os.write(1, b"open\\n")
    await asyncio.gather(*(writing(store, f"{life}-{task}") for task in range(8)))

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


def killed_after(directory: Path, life: int, acknowledgements: int) -> list[str]:
    """Ids that a writer acknowledged before it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), str(life)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    guard = threading.Timer(60, process.kill)
    guard.start()
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"open\n"
        lines = [process.stdout.readline() for _ in range(acknowledgements)]
    finally:
        process.kill()
        guard.cancel()
        rest, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    return [line.decode().strip() for line in (*lines, *rest.splitlines()) if line.strip()]


async def test_kill_9_loses_no_acknowledged_change(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for life in range(6):
        acknowledged |= set(killed_after(tmp_path, life, acknowledgements=7 + 13 * life))
        json.loads((tmp_path / "jobs.json").read_bytes())
        async with opened(tmp_path) as store:
            assert (await store.status()).degraded == ""
            found = {item.id for item in await dumped(store) if hasattr(item, "id")}
            assert acknowledged <= found
    assert len(acknowledged) > 200


#: Kills itself at the n-th disk call after the first acknowledged change.
STEPWISE = """
import asyncio, os, signal, sys
from pathlib import Path
from chimes.model.ids import ScheduleId
from chimes.store.jsonfile import JsonFileStore
from chimes.store.jsonfile import files as disk
from tests.builders import a_schedule, an_entry

class Deadly:
    left = 0
    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in ("open", "write", "fsync", "replace", "link", "unlink", "close"):
            return real
        def call(*given, **named):
            Deadly.left -= 1
            if Deadly.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)
        return call

async def main(directory, n):
    store = JsonFileStore(directory)
    await store.open()
    await store.add_schedule(a_schedule(id=ScheduleId("first")), an_entry())
    disk.os, Deadly.left = Deadly(), n
    await store.add_schedule(a_schedule(id=ScheduleId("second")), an_entry())
    os._exit(0)

n = 0
while True:
    n += 1
    child = os.fork()
    if child == 0:
        asyncio.run(main(Path(sys.argv[1]) / str(n), n))
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        print(n - 1)
        sys.exit(status)
"""


# Before and after every step of a write.
async def test_kill_at_any_step_leaves_the_old_or_the_new_generation(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: ASYNC221
        [sys.executable, "-c", STEPWISE, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert steps >= 10
    outcomes = []
    for n in range(1, steps + 1):
        directory = tmp_path / str(n)
        jobs = [job["id"] for job in document(directory)["jobs"]]
        outcomes.append(jobs)
        assert jobs in (["first"], ["first", "second"])
        async with opened(directory) as store:
            assert (await store.status()).degraded == ""
            assert len(await dumped(store)) == 2 * len(jobs)
            assert [name for name in os.listdir(directory) if name.endswith(".tmp")] == []
    assert outcomes[0] == ["first"]
    assert outcomes[-1] == ["first", "second"]
    assert outcomes == sorted(outcomes, key=len)


async def test_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    killed_after(tmp_path, 0, acknowledgements=1)
    assert (tmp_path / ".lock").read_text().strip() != str(os.getpid())
    async with opened(tmp_path):
        assert (tmp_path / ".lock").read_text().strip() == str(os.getpid())


@pytest.mark.parametrize("acknowledgements", [1, 40])
async def test_memory_and_file_agree_after_a_kill(tmp_path: Path, acknowledgements: int) -> None:
    killed_after(tmp_path, 0, acknowledgements=acknowledgements)
    before = document(tmp_path)
    async with opened(tmp_path):
        after = document(tmp_path)
    assert after | {"updated_at": before["updated_at"]} == before
