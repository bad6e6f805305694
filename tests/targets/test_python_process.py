"""Tasks isolated in child processes: crashes, limits, timeouts, leftovers."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.model.run import AttemptEnd
from chimes.targets.process import child as process
from chimes.targets.python import PythonTask, Registry, Task
from chimes.targets.python.loader import find_app_path, load_registry
from chimes.targets.python.wire import LOG_LIMITS
from tests.targets.python_tasks import PATH, registry
from tests.targets.task_calls import a_call, alive, execute, running
from tests.targets.waiting import pass_time, until


def task_processes() -> list[bytes]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children]
    return [each for each in commands if b"targets.python.child" in each]


ROOT = Path(__file__).parents[2]


@pytest.fixture
async def runner() -> AsyncIterator[PythonTask]:
    async with running(registry, app=PATH) as opened:
        yield opened


async def test_arguments_are_passed_and_the_result_returned(runner: PythonTask) -> None:
    assert (await execute(runner, "add", a=2)).value == 3
    assert (await execute(runner, "add_later", a=2, b=40)).value == 42


async def test_output_and_log_records_are_lines_of_the_run(runner: PythonTask) -> None:
    done = await execute(runner, "prints_and_logs")
    assert sorted(done.lines) == [
        ("error", "to err"),
        ("info", "no end of line"),
        ("info", "to out"),
        ("warning", "some.library: from a library"),
    ]


async def test_lines_arrive_while_the_task_runs(runner: PythonTask, tmp_path: Path) -> None:
    said = asyncio.Event()
    call = a_call(
        "prints_and_waits", lambda level, message: said.set(), go=str(tmp_path / "go"), word="hello"
    )
    attempt = asyncio.create_task(runner.execute(call))
    async with asyncio.timeout(60):
        await said.wait()
    assert not attempt.done()
    (tmp_path / "go").touch()
    assert (await attempt).end is AttemptEnd.SUCCEEDED


# Misbehaving tasks


async def test_os_exit_is_a_crash(runner: PythonTask) -> None:
    done = await execute(runner, "exits")
    assert done.outcome.end is AttemptEnd.FAILED
    assert done.outcome.code == "crashed"
    assert done.outcome.retryable
    assert done.outcome.error == "the process ended with status 3 without a result"
    assert done.lines == [("info", "last words")]


async def test_segfault_is_a_crash_with_its_signal(runner: PythonTask) -> None:
    done = await execute(runner, "segfaults")
    assert done.outcome.code == "crashed"
    assert "killed by signal 11 (SIGSEGV)" in done.outcome.error


async def test_memory_limit_raises_memory_error(runner: PythonTask) -> None:
    done = await execute(runner, "exceeds_memory_limit")
    assert done.outcome.end is AttemptEnd.FAILED
    assert done.outcome.error == "MemoryError"
    assert done.outcome.retryable


async def test_fork_bomb_is_killed_with_its_process_group(
    runner: PythonTask, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    attempt = asyncio.create_task(runner.execute(a_call("forks", timeout=60, pids=str(pids))))
    await until(lambda: pids.read_text().count("\n") == 16)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    # The signal is sent; the kernel ends the grandchildren when it runs them next.
    await until(lambda: not [pid for pid in pids.read_text().split() if alive(int(pid))])


@pytest.mark.parametrize("name", ["floods", "floods_one_line"])
async def test_gigabyte_of_output_is_drained_in_bounded_memory(
    runner: PythonTask, name: str
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = await execute(runner, name, timeout=100, megabytes=1024)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert done.value == "done"
    assert len(done.lines) <= LOG_LIMITS.lines + 1
    assert sum(len(message) for _, message in done.lines) <= LOG_LIMITS.bytes + 100
    assert max(len(message) for _, message in done.lines) <= 8 * 1024
    assert grown < 32 * 1024, f"{grown} KiB more"
    if name == "floods":
        assert done.lines[-1] == ("warning", "output truncated: the attempt exceeded its log limit")


async def test_task_that_closes_its_descriptors_crashes(runner: PythonTask) -> None:
    done = await execute(runner, "closes_descriptors", stay=False)
    assert done.outcome.code == "crashed"


async def test_task_that_closes_its_descriptors_and_hangs_times_out(runner: PythonTask) -> None:
    done = await execute(runner, "closes_descriptors", timeout=2, stay=True)
    assert done.outcome.end is AttemptEnd.TIMEOUT


async def test_task_that_ignores_sigterm_is_killed_after_the_grace_period(
    runner: PythonTask, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    attempt = asyncio.create_task(
        runner.execute(a_call("ignores_sigterm", timeout=60, pid=str(pid)))
    )
    await until(pid.exists)
    pass_time(60)
    assert (await attempt).end is AttemptEnd.TIMEOUT
    assert not alive(int(pid.read_text()))


async def test_other_runs_are_not_affected_by_crashing_tasks(
    runner: PythonTask, tmp_path: Path
) -> None:
    poison = [
        execute(runner, "exits"),
        execute(runner, "segfaults"),
        execute(runner, "closes_descriptors", timeout=2, stay=True),
        execute(runner, "ignores_sigterm", timeout=2, pid=str(tmp_path / "pid")),
    ]
    good = [execute(runner, "add", a=number) for number in range(4)]
    done = await asyncio.gather(*good, *poison)
    assert [each.value for each in done[:4]] == [1, 2, 3, 4]
    assert all(each.outcome.end is not AttemptEnd.SUCCEEDED for each in done[4:])


# Timeouts and cancels


async def test_endless_regex_is_killed_and_the_event_loop_stays_responsive(
    runner: PythonTask,
) -> None:
    attempt = asyncio.create_task(execute(runner, "endless_regex", timeout=2))
    ticks = 0
    while not attempt.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert (await attempt).outcome.end is AttemptEnd.TIMEOUT
    assert (await attempt).outcome.error == "timed out after 2s"
    assert ticks > 2


@pytest.mark.parametrize("name", ["cleans_up", "cleans_up_later"])
@pytest.mark.parametrize("why", ["cancel", "timeout"])
async def test_a_stopped_task_can_clean_up(
    runner: PythonTask, tmp_path: Path, name: str, why: str
) -> None:
    started, cleaned = tmp_path / "started", tmp_path / "cleaned"
    call = a_call(name, timeout=60, started=str(started), cleaned=str(cleaned))
    attempt = asyncio.create_task(runner.execute(call))
    await until(started.exists)
    if why == "cancel":
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
    else:
        pass_time(60)
        assert (await attempt).end is AttemptEnd.TIMEOUT
    assert cleaned.read_text() == "yes"
    assert not alive(int(started.read_text()))


async def test_cancel_during_start_leaves_no_process(runner: PythonTask) -> None:
    attempt = asyncio.create_task(runner.execute(a_call("add", a=1)))
    await asyncio.sleep(0)  # lets the task start
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert not task_processes()


async def test_cancel_after_the_deadline_does_not_shorten_the_grace_period(
    runner: PythonTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine cancels half a second after the deadline: the outcome is still a timeout, and the
    process is killed first."""
    pid = tmp_path / "pid"
    end = process.Child.end

    async def cancel_and_end(child: process.Child[Any]) -> None:
        asyncio.get_running_loop().call_soon(attempt.cancel)
        await end(child)

    monkeypatch.setattr(process.Child, "end", cancel_and_end)
    attempt = asyncio.create_task(
        runner.execute(a_call("ignores_sigterm", timeout=60, pid=str(pid)))
    )
    await until(pid.exists)
    pass_time(60)
    assert (await attempt).end is AttemptEnd.TIMEOUT
    assert not alive(int(pid.read_text()))


# Leftover processes


async def test_child_processes_of_a_task_are_killed_with_it(
    runner: PythonTask, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    done = await execute(runner, "leaves_a_child", pid=str(pid))
    assert done.value == "done"
    assert not alive(int(pid.read_text()))


async def test_process_that_does_not_exit_after_its_result_is_killed(runner: PythonTask) -> None:
    done = await execute(runner, "never_exits")
    assert done.value == "done"
    assert done.lines == [("warning", "the process did not exit after its result and was killed")]


NODE = """
import asyncio, sys
from tests.targets.python_tasks import PATH, registry
from tests.targets.task_calls import a_call, running

async def main():
    async with running(registry, app=PATH) as runner:
        await runner.execute(a_call(sys.argv[1], timeout=600, pid=sys.argv[2]))

asyncio.run(main())
"""


def a_node(task: str, pids: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", NODE, task, str(pids)], cwd=ROOT)


@pytest.mark.parametrize("name", ["hangs_with_a_child", "endless_regex_with_a_child"])
async def test_killed_node_leaves_no_orphans(tmp_path: Path, name: str) -> None:
    pids = tmp_path / "pids"
    node = a_node(name, pids)
    try:
        await until(lambda: pids.exists() or node.poll() is not None)
        own, grandchild = (int(pid) for pid in pids.read_text().split())
        assert alive(own)
        assert alive(grandchild)
    finally:
        node.send_signal(signal.SIGKILL)
        node.wait(20)
    await until(lambda: not alive(own) and not alive(grandchild))


# Outcomes


@pytest.mark.parametrize(
    ("kind", "end", "code", "retryable", "error"),
    [
        ("value", AttemptEnd.FAILED, "exception", True, "ValueError: no such thing"),
        ("retry", AttemptEnd.FAILED, "retry_asked", True, "Retry: later"),
        ("reject", AttemptEnd.FAILED, "rejected", False, "Reject: never"),
        ("cancel", AttemptEnd.CANCELED, "canceled_by_task", False, "Cancel: not wanted any more"),
        ("exit", AttemptEnd.FAILED, "exception", True, "SystemExit: given up"),
    ],
)
async def test_exceptions_become_outcomes(
    runner: PythonTask, kind: str, end: AttemptEnd, code: str, retryable: bool, error: str
) -> None:
    done = await execute(runner, "raises", kind=kind)
    outcome = done.outcome
    assert (outcome.end, outcome.code, outcome.retryable) == (end, code, retryable)
    assert outcome.error == error
    assert outcome.retry_in == (timedelta(seconds=90) if kind == "retry" else None)
    traced = kind in ("value", "exit")
    assert ("Traceback" in done.text, "python_tasks.py" in done.text) == (traced, traced)


async def test_unstorable_results_fail(runner: PythonTask) -> None:
    for name, code in (("returns_object", "bad_result"), ("returns_much", "result_too_large")):
        outcome = (await execute(runner, name)).outcome
        assert (outcome.end, outcome.code) == (AttemptEnd.FAILED, code)
        assert not outcome.retryable


@pytest.mark.parametrize(
    ("name", "seconds"), [("fails_with_handler", 60), ("hangs_with_handler", 2)]
)
async def test_failure_handler_runs_in_its_own_process(
    runner: PythonTask, name: str, seconds: float
) -> None:
    done = await execute(runner, name, timeout=seconds)
    level, message = done.lines[-1]
    text, _, pid = message.rpartition(" by ")
    assert (level, text) == ("info", f"told of {done.outcome.error}")
    assert int(pid) != os.getpid()


async def test_forked_copy_of_the_task_sends_no_result(runner: PythonTask) -> None:
    done = await execute(runner, "forks_and_returns")
    assert done.value == "from the first"


@pytest.mark.parametrize("what", ["spawn", "watch_exit"])
async def test_failed_process_start_is_retryable(
    runner: PythonTask, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def refuse(*given: object, **options: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(process, what, refuse)
    done = await execute(runner, "add", a=1)
    assert (done.outcome.code, done.outcome.retryable) == ("not_started", True)
    assert "Too many open files" in done.outcome.error
    assert not task_processes()


# App lookup


async def test_isolated_task_without_importable_app_fails() -> None:
    lost = Registry()
    lost.add(Task(name="add", function=lambda: 1, isolation="process"))
    async with running(lost) as runner:
        done = await execute(runner, "add")
    assert done.outcome.code == "no_app"
    assert "--app module:name" in done.outcome.error
    assert not done.outcome.retryable


@pytest.mark.parametrize(
    ("app", "code", "error"),
    [
        ("tests.targets.python_tasks:nothing", "no_app", "has no 'nothing'"),
        ("tests.targets.python_tasks:PATH", "no_app", "is not an application"),
        ("python_tasks", "no_app", "module:name"),
        ("tests.targets.no_such_module:app", "exception", "ModuleNotFoundError"),
    ],
)
async def test_invalid_app_path_fails_the_run(app: str, code: str, error: str) -> None:
    async with running(registry, app=app) as runner:
        done = await execute(runner, "add", a=1)
    assert done.outcome.code == code
    assert error in done.outcome.error


def test_app_path_is_found_in_loaded_modules() -> None:
    path = find_app_path(registry)
    assert path == PATH
    assert load_registry(path) is registry
    assert find_app_path(Registry()) == ""


SCRIPT = """
import asyncio
import sys
from dataclasses import dataclass

from chimes.targets.python import PythonTask, Registry, Task


@dataclass
class Point:
    x: int


def norm(point: Point) -> int:
    import __main__
    assert __main__.__file__ != __file__
    return abs(point.x)


class App:
    def __init__(self):
        self.registry = Registry()


app = App()
app.registry.add(Task(name="norm", function=norm, isolation="process"))


async def main():
    from tests.targets.task_calls import execute, running
    async with running(app.registry) as runner:
        print((await execute(runner, "norm", point={"x": -5})).outcome)


if __name__ == "__main__":
    asyncio.run(main())
"""


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = folder / "job.py"
    script.write_text(text)
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=folder,
    )


def test_app_in_a_script_runs_isolated_tasks(tmp_path: Path) -> None:
    done = run_script(tmp_path, SCRIPT)
    assert "result={'value': 5}" in done.stdout, done.stdout + done.stderr


UNGUARDED = """
import asyncio
import sys

from chimes.targets.python import PythonTask, Registry, Task
from tests.targets.task_calls import execute, running


def work() -> int:
    return 1


registry = Registry()
registry.add(Task(name="work", function=work, isolation="process"))


async def main():
    async with running(registry) as runner:
        print((await execute(runner, "work")).outcome)


asyncio.run(main())
"""


def test_script_without_main_guard_fails_with_no_app(tmp_path: Path) -> None:
    """Importing it in the child would start a node per isolated run, recursively."""
    done = run_script(tmp_path, UNGUARDED)
    assert "code='no_app'" in done.stdout, done.stdout + done.stderr
    assert "__main__" in done.stdout
