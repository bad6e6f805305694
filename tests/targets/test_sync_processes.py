"""Processes of sync tasks: output limits, cancel, timeout, stall, node crash."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.model.run import AttemptEnd
from chimes.targets.sync.runner import private_directory, remove_leftovers
from chimes.targets.sync.wire import LOG_LIMITS
from tests.targets.sync_calls import (
    MODULE,
    ClockFrom,
    StoredCheckpoint,
    a_call,
    a_runner,
    execute,
    is_stopped,
)
from tests.targets.task_calls import alive
from tests.targets.waiting import pass_time, until

ROOT = Path(__file__).parents[2]
MEGABYTE = 1024 * 1024


def waiting(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {
        "callable": f"{MODULE}:waits",
        "pids": str(tmp_path / "pids"),
        "go": str(tmp_path / "go"),
        **more,
    }


def read_pids(file: Path) -> list[int]:
    return [int(each) for each in file.read_text().split()]


async def pids_in(file: Path) -> list[int]:
    await until(file.exists)
    return read_pids(file)


def none_alive(pids: list[int]) -> bool:
    return not any(alive(pid) for pid in pids)


# Output


@pytest.mark.parametrize("length", [60, 200_000])
async def test_flood_of_output_is_truncated_in_bounded_memory(tmp_path: Path, length: int) -> None:
    """The pipe is drained, so the task can finish."""
    config = {"callable": f"{MODULE}:floods", "bytes": 1024 * MEGABYTE, "length": length}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = await execute(a_runner("python", config, tmp_path))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert done.outcome.end is AttemptEnd.SUCCEEDED
    assert grown < 64
    assert done.kept.value == '{"flooded": true}'
    assert len(done.lines) <= LOG_LIMITS.lines + 2
    assert sum(len(message) for _, message in done.lines) < LOG_LIMITS.bytes + 10_000
    assert [m for _, m in done.lines if "output truncated" in m] == [done.lines[-2][1]]
    assert done.lines[-1][1].startswith("FINISHED SUCCESSFULLY")


async def test_invalid_bytes_in_output_are_replaced(tmp_path: Path) -> None:
    config = {"callable": f"{MODULE}:odd_bytes"}
    done = await execute(a_runner("python", config, tmp_path))
    assert done.at("info")[:2] == ["bad �� utf-8", "nul � here"]
    assert len(done.at("info")[2]) == 8192
    assert done.at("info")[3] == "after"


async def test_lines_arrive_while_the_task_runs(tmp_path: Path) -> None:
    said = asyncio.Event()
    runner = a_runner("python", waiting(tmp_path), tmp_path)
    attempt = asyncio.create_task(
        runner.execute(a_call(lambda *line: said.set(), StoredCheckpoint()))
    )
    async with asyncio.timeout(60):
        await said.wait()
    assert not attempt.done()
    (tmp_path / "go").touch()
    assert (await attempt).end is AttemptEnd.SUCCEEDED
    assert none_alive(await pids_in(tmp_path / "pids"))


# Cancel, timeout and stall


@pytest.mark.parametrize("stubborn", [False, True])
async def test_cancel_stops_the_process_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    monkeypatch.setattr("chimes.targets.sync.runner.GRACE_SECONDS", 0.3)
    lines: list[str] = []
    runner = a_runner("python", waiting(tmp_path, stubborn=stubborn), tmp_path)
    call = a_call(lambda level, message: lines.append(message), StoredCheckpoint())
    attempt = asyncio.create_task(runner.execute(call))
    pids = await pids_in(tmp_path / "pids")
    await until(lambda: "waiting" in lines)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert none_alive(pids)
    assert lines[-1] == "canceled: the processes of the task were stopped"


@pytest.mark.parametrize("stubborn", [False, True])
async def test_cancel_stops_children_in_another_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    monkeypatch.setattr("chimes.targets.sync.runner.GRACE_SECONDS", 1.0)
    runner = a_runner("python", waiting(tmp_path, stubborn=stubborn, escapes=True), tmp_path)
    lines: list[str] = []
    call = a_call(lambda level, message: lines.append(message), StoredCheckpoint())
    attempt = asyncio.create_task(runner.execute(call))
    pids = await pids_in(tmp_path / "pids")
    await until(lambda: "waiting" in lines)
    assert os.getsid(pids[1]) == pids[1]
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    # Outside of the group a killed process is not waited for.
    await until(lambda: none_alive(pids))


async def test_timeout_kills_the_processes(tmp_path: Path) -> None:
    runner = a_runner("python", waiting(tmp_path), tmp_path)
    attempt = asyncio.create_task(execute(runner, timeout=61.5))
    pids = await pids_in(tmp_path / "pids")
    pass_time(61.5)
    done = await attempt
    assert (done.outcome.end, done.outcome.code) == (AttemptEnd.TIMEOUT, "timeout")
    assert done.lines[-1] == ("error", "timed out after 1m1.5s")
    assert none_alive(pids)


async def test_stopped_process_is_killed_as_stalled(tmp_path: Path) -> None:
    config = {"callable": f"{MODULE}:stops_itself", "pid": str(tmp_path / "pid")}
    clock = ClockFrom(lambda: is_stopped(tmp_path / "pid"))
    runner = a_runner("python", config, tmp_path, stall_after=timedelta(seconds=1), clock=clock)
    done = await execute(runner)
    assert (done.outcome.end, done.outcome.code) == (AttemptEnd.FAILED, "stalled")
    assert done.outcome.error == "stalled: no sign of life from the task for 1s"
    assert not alive(int((tmp_path / "pid").read_text()))


@pytest.mark.long
async def test_busy_or_waiting_process_is_not_stalled(tmp_path: Path) -> None:
    """A regex that holds the GIL sends no heartbeat but uses the CPU: only its timeout ends it."""
    started = tmp_path / "started"
    busy = {"callable": f"{MODULE}:holds_the_interpreter", "started": str(started), "length": 40}
    for config, file in ((busy, started), (waiting(tmp_path), tmp_path / "pids")):
        runner = a_runner(
            "python",
            config,
            tmp_path,
            stall_after=timedelta(seconds=4),
            clock=ClockFrom(file.exists),
        )
        done = await execute(runner, timeout=10)
        assert done.outcome.end is AttemptEnd.TIMEOUT


def started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, cwd=ROOT)


NODE = """
import asyncio, sys
from pathlib import Path
from tests.targets.sync_calls import StoredCheckpoint, a_call, a_runner

driver, config, folder = sys.argv[1], eval(sys.argv[2]), Path(sys.argv[3])
runner = a_runner(driver, config, folder)
asyncio.run(runner.execute(a_call(lambda *line: None, StoredCheckpoint())))
"""


@pytest.mark.parametrize("driver", ["python", "command"])
async def test_killed_node_leaves_no_processes(tmp_path: Path, driver: str) -> None:
    """The first attempt must not overlap the second."""
    config = waiting(tmp_path)
    if driver == "command":
        script = f"sleep 600 & echo $$ $! > {tmp_path}/d; mv {tmp_path}/d {tmp_path}/pids; wait"
        config = {"command": ["sh", "-c", script]}
    node = started([sys.executable, "-c", NODE, driver, repr(config), str(tmp_path)])
    try:
        pids = await pids_in(tmp_path / "pids")
        assert all(alive(pid) for pid in pids)
    finally:
        node.send_signal(signal.SIGKILL)
        node.wait(20)
    await until(lambda: none_alive(pids))


FOLDER = """
import os, sys
from chimes.targets.sync.runner import private_directory
os.getpid = lambda: 4_999_999  # as it is called in its container
with private_directory() as folder:
    (folder / "config.json").write_text("{}")
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_temporary_directories_of_killed_nodes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks decide, not pids: another container has its own pids."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    other = subprocess.Popen(
        [sys.executable, "-c", FOLDER],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other, private_directory() as ours:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        remove_leftovers()
        assert ours.exists()
        assert (theirs / "config.json").exists()
        other.kill()
        other.wait(20)
        remove_leftovers()
        assert ours.exists()
        assert not theirs.exists()
