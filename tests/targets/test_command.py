"""Commands in real processes: output, exit codes, limits, stopping, what the process sees."""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.errors import InvalidInput
from chimes.model import replace
from chimes.model.policy import Policy
from chimes.model.run import AttemptEnd, Outcome
from chimes.model.target import CommandTarget, command_requirements
from chimes.model.validation import check_target
from chimes.targets.base import Call
from chimes.targets.command import CommandRunner
from chimes.targets.command.runner import _fill_arguments
from chimes.targets.command.wire import LOG_LIMITS
from tests.builders import NOW, a_run, a_schedule, with_definition
from tests.tables import each_row
from tests.targets.task_calls import alive
from tests.targets.waiting import until


@dataclass
class Executed:
    outcome: Outcome
    lines: list[tuple[str, str]]

    @property
    def result(self) -> dict[str, Any]:
        return dict(self.outcome.result or {})


def a_call(
    target: CommandTarget, log: Callable[[str, str], None], timeout: float = 60, **more: Any
) -> Call:
    run = with_definition(
        a_run(a_schedule(name="nightly"), id="run-7", slot=NOW, attempt=1),
        target=target,
        policy=Policy(timeout=timedelta(seconds=timeout)),
    )
    return Call(run=run, triggered_at=NOW, log=log, **more)


async def execute(*, timeout: float = 60, **given: Any) -> Executed:  # noqa: ASYNC109 - of the run
    lines: list[tuple[str, str]] = []
    more = {name: given.pop(name) for name in ("secrets",) if name in given}
    call = a_call(CommandTarget(**given), lambda *line: lines.append(line), timeout, **more)
    return Executed(await CommandRunner().execute(call), lines)


def pids_of(file: Path) -> list[int]:
    return [int(each) for each in file.read_text().split()] if file.exists() else []


async def test_output_and_exit_code() -> None:
    done = await execute(shell="echo out; sleep 0.2; echo err >&2; exit 3")
    assert done.lines == [("info", "out"), ("error", "err")]
    assert done.outcome.end is AttemptEnd.FAILED
    assert (done.outcome.code, done.outcome.retryable) == ("exit_code", True)
    assert done.result == {"exit_code": 3, "signal": None, "output": "out\nerr"}
    accepted = await execute(shell="exit 3", success_codes=(0, 3))
    assert accepted.outcome.end is AttemptEnd.SUCCEEDED


async def test_arguments_are_not_interpreted_and_placeholders_filled() -> None:
    done = await execute(command=("printf", "%s|", "$HOME `id`; *", "{{run_id}}", "{{.Names}}"))
    assert done.result["output"] == "$HOME `id`; *|run-7|{{.Names}}|"
    shell = await execute(shell="echo '{{run_id}}' $NAME", env={"NAME": "{{schedule_name}}; id"})
    assert shell.result["output"] == "{{run_id}} nightly; id"


@each_row(
    ("command", "text"),
    [
        (("sh", "-c"), 1),
        (("/bin/bash", "-c"), 1),
        (("bash", "-lc"), 1),
        (("dash", "-ec"), 1),
        (("bash", "-c", "-e"), 1),
        (("bash", "-c", "--"), 1),
        (("bash", "-euo", "pipefail", "-c"), 1),
        (("bash", "-ceuo", "pipefail"), 1),
        (("bash", "-c", "+x", "-o", "pipefail"), 1),
        (("bash", "--rcfile", "/dev/null", "-c"), 1),
        (("env", "bash", "-c"), 1),
        (("/usr/bin/env", "-i", "A=1", "PATH=/bin", "/bin/sh", "-c"), 1),
        (("env", "-C", "/", "sh", "-c"), 1),
        (("busybox", "sh", "-c"), 1),
        (("sudo", "-u", "shop", "zsh", "-c"), 1),
        (("ksh93", "-c"), 1),
        (("fish", "-C", "true", "-c"), 1),
        (("fish", "--init-command", "true", "--command"), 1),
        (("env", "-vS"), 1),
        # Not a text of a shell.
        (("bash", "report.sh"), 0),
        (("bash", "-x", "report.sh"), 0),
        (("bash", "report.sh", "-c"), 0),
        (("bash", "-c", "echo", "bash"), 0),
        (("env", "A=1", "report", "-c"), 0),
        (("python3", "report.py", "-c"), 0),
        (("git", "push", "-c"), 0),
    ],
)
def test_text_of_a_shell_gets_no_values(command: tuple[str, ...], text: int) -> None:
    given = "echo {{schedule_name}}"
    filled = _fill_arguments([*command, given, "{{schedule_name}}"], {"schedule_name": "$(id)"})
    assert filled == [*command, given if text else "echo $(id)", "$(id)"]
    attached = _fill_arguments(["fish", f"--command={given}"], {"schedule_name": "$(id)"})
    assert attached == ["fish", f"--command={given}"]


async def test_name_of_a_schedule_is_not_executed_by_a_shell(tmp_path: Path) -> None:
    made = tmp_path / "made"
    text = 'echo {{schedule_name}} "$CHIMES_SCHEDULE" "$1"'
    command = ("env", "A=1", "sh", "-ec", text, "sh", "{{schedule_name}}")
    call = a_call(CommandTarget(command=command), lambda *line: None)
    name = f"$(touch {made}); touch {made}"
    outcome = await CommandRunner().execute(
        replace(call, run=with_definition(call.run, schedule_name=name))
    )
    assert outcome.result is not None
    assert outcome.result["output"] == f"{{{{schedule_name}}}} {name} {name}"
    assert not made.exists()


async def test_environment_has_the_run_and_no_variables_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CHIMES_SECRET_KEY", "CHIMES_STORE", "CHIMES_ADMIN_TOKEN", "DATABASE_URL"):
        monkeypatch.setenv(name, "hidden-value")
    lines: list[str] = []
    target = CommandTarget(
        shell="env; tr '\\0' '\\n' < /proc/$PPID/environ", env={"TOKEN": "a {{secret.T}} b"}
    )
    call = a_call(target, lambda level, text: lines.append(text), secrets={"T": "s3cret"})
    manual = replace(call, run=replace(call.run, slot=None))
    assert (await CommandRunner().execute(call)).end is AttemptEnd.SUCCEEDED
    assert not any("hidden-value" in line for line in lines)
    assert {"CHIMES_RUN_ID=run-7", "CHIMES_SCHEDULE=nightly", "CHIMES_ATTEMPT=1"} <= {*lines}
    assert f"CHIMES_SCHEDULE_ID={call.run.schedule_id}" in lines
    assert [each for each in lines if each.startswith("CHIMES_SLOT=2")]
    assert "TOKEN=a s3cret b" in lines
    lines.clear()
    await CommandRunner().execute(manual)
    assert "CHIMES_SLOT=" in lines


async def test_secret_variables_are_masked_in_log_and_result() -> None:
    done = await execute(shell="echo $DB_PASSWORD", env={"DB_PASSWORD": "hunter2hunter2"})
    assert done.lines == [("info", "***")]
    assert done.result["output"] == "***"


@each_row(
    ("given", "code", "words"),
    [
        ({"command": ("no-such-program",)}, "program_not_found", "is not in PATH"),
        ({"command": ("/no/such",)}, "program_not_found", "does not exist"),
        ({"command": ("/etc/passwd",)}, "not_executable", "is not executable"),
        ({"command": ("ls",), "cwd": "/no/such"}, "no_directory", "/no/such does not exist"),
        ({"command": ("ls",), "user": "no-such-user"}, "unknown_user", "no-such-user"),
    ],
)
async def test_command_that_cannot_start(given: dict[str, Any], code: str, words: str) -> None:
    done = await execute(**given)
    assert (done.outcome.end, done.outcome.code) == (AttemptEnd.FAILED, code)
    assert words in done.outcome.error
    assert not done.outcome.retryable
    assert done.lines == [("error", done.outcome.error)]


async def test_stdin_umask_and_directory(tmp_path: Path) -> None:
    text = "line\n" * 50_000
    done = await execute(
        shell="wc -c; umask; pwd", stdin=text[:60_000], umask="027", cwd=str(tmp_path)
    )
    assert done.result["output"].split() == ["60000", "0027", str(tmp_path)]
    # A command that does not read its input.
    unread = await execute(command=("true",), stdin="x" * 60_000)
    assert unread.outcome.end is AttemptEnd.SUCCEEDED


async def test_output_that_is_not_text_or_too_long() -> None:
    done = await execute(shell="printf '\\377\\000a\\n'; head -c 300000 /dev/zero | tr '\\0' x")
    assert done.lines[0] == ("info", "\ufffd\ufffda")
    (_level, line) = done.lines[1]
    assert len(line) == 8192
    assert line.endswith("(cut)")
    assert len(done.lines) == 2


async def test_flood_is_cut_and_the_last_lines_are_kept() -> None:
    done = await execute(shell="yes | head -c 100000000; echo the end")
    assert done.outcome.end is AttemptEnd.SUCCEEDED
    assert done.result["output"].endswith("y\nthe end")
    assert len(done.lines) == LOG_LIMITS.lines + 1
    assert "truncated" in done.lines[-1][1]


async def test_output_limit_stops_the_command() -> None:
    done = await execute(shell="yes", output_limit=10_000)
    assert (done.outcome.end, done.outcome.code) == (AttemptEnd.FAILED, "output_limit")
    assert done.result["signal"] == "SIGTERM"
    assert sum(len(text) + 1 for _level, text in done.lines) <= 10_000


async def test_memory_and_cpu_limits() -> None:
    memory = await execute(
        command=(sys.executable, "-c", "b'a' * 10**9"), memory_limit=300 * 1024 * 1024
    )
    assert memory.result["exit_code"] == 1
    assert "MemoryError" in memory.result["output"]
    cpu = await execute(shell="while :; do :; done", cpu_limit=timedelta(seconds=1))
    assert (cpu.outcome.code, cpu.result["signal"]) == ("cpu_limit", "SIGXCPU")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the user")
async def test_other_user() -> None:
    done = await execute(shell="id -un; echo $HOME; echo $USER", user="nobody")
    nobody = pwd.getpwnam("nobody")
    assert done.result["output"].split() == ["nobody", nobody.pw_dir, "nobody"]


#: The command, a child that left its group and one that left the session, all deaf to SIGTERM.
_DEAF = (
    "trap '' TERM; echo $$ >> {pids};"
    " (setsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; while :; do sleep 1; done' &);"
    " (trap '' TERM; sh -c 'echo $$ >> {pids}; exec sleep 1000' &);"
    " while :; do sleep 1; done"
)


async def test_timeout_ends_the_whole_tree_with_sigkill(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    target = CommandTarget(shell=_DEAF.format(pids=pids), kill_after=timedelta(seconds=0.3))
    call = a_call(target, lambda *line: None, timeout=3)
    outcome = await CommandRunner().execute(call)
    assert (outcome.end, outcome.code) == (AttemptEnd.TIMEOUT, "timeout")
    assert outcome.retryable
    assert dict(outcome.result or {})["signal"] == "SIGKILL"
    assert len(pids_of(pids)) == 3
    assert not any(alive(pid) for pid in pids_of(pids))


async def test_cancel_sends_sigterm_first(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    target = CommandTarget(
        shell=f"trap 'echo bye; exit 7' TERM; touch {ready}; while :; do sleep 0.05; done"
    )
    lines: list[str] = []
    call = a_call(target, lambda level, text: lines.append(text), canceled=lambda: True)
    attempt = asyncio.create_task(CommandRunner().execute(call))
    await until(ready.exists)
    attempt.cancel()
    outcome = await attempt
    assert outcome.end is AttemptEnd.CANCELED
    result = dict(outcome.result or {})
    assert (result["exit_code"], result["signal"]) == (7, None)
    # The programs that the shell waits for get the signal, too.
    assert str(result["output"]).endswith("bye")
    assert "bye" in lines


async def test_attempt_of_a_lost_run_leaves_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    target = CommandTarget(shell=_DEAF.format(pids=pids), kill_after=timedelta(minutes=5))
    attempt = asyncio.create_task(CommandRunner().execute(a_call(target, lambda *line: None)))
    await until(lambda: len(pids_of(pids)) == 3)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert not any(alive(pid) for pid in pids_of(pids))


async def test_processes_that_outlive_the_command_are_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    done = await execute(shell=f"sleep 1000 & echo $! > {pids}; echo started")
    assert done.outcome.end is AttemptEnd.SUCCEEDED
    assert done.result["output"] == "started"
    assert "left processes behind (1)" in done.lines[-1][1]
    assert not any(alive(pid) for pid in pids_of(pids))


def test_labels_become_requirements() -> None:
    offered = set(command_requirements({"zone": "eu", "os": "linux", "gpu": "a100"}))
    assert len(offered) == 8
    for requires in ({}, {"os": "linux"}, {"zone": "eu", "os": "linux"}):
        assert CommandTarget(shell="x", requires=requires).requirement in offered
    for requires in ({"os": "windows"}, {"os": "linux", "arch": "arm"}):
        assert CommandTarget(shell="x", requires=requires).requirement not in offered
    longest = {f"{number}{'n' * 31}": "v" * 32 for number in range(4)}
    # The length of the column in SQL stores.
    assert len(CommandTarget(shell="x", requires=longest).requirement) <= 300


@each_row(
    ("given", "field", "code"),
    [
        ({}, "command", "missing"),
        ({"command": ("a",), "shell": "b"}, "command", "given_twice"),
        ({"command": (" ",)}, "command[0]", "missing"),
        ({"command": ("a", "b\0")}, "command[1]", "not_text"),
        ({"command": ("a", "{{secret.X}}")}, "command[1]", "secret_not_used"),
        ({"shell": "echo {{ secret.X }}"}, "shell", "secret_not_used"),
        ({"shell": "x" * 70_000}, "shell", "too_long"),
        ({"shell": "x", "cwd": "relative"}, "cwd", "not_absolute"),
        ({"shell": "x", "env": {"A B": "c"}}, "env", "bad_name"),
        ({"shell": "x", "env": {"CHIMES_RUN_ID": "c"}}, "env.CHIMES_RUN_ID", "reserved"),
        ({"shell": "x", "env": {"A": "{{secret.}}"}}, "env.A", "unknown_secret"),
        ({"shell": "x", "user": "a b"}, "user", "bad_name"),
        ({"shell": "x", "umask": "9"}, "umask", "bad_umask"),
        ({"shell": "x", "success_codes": (256,)}, "success_codes", "out_of_range"),
        ({"shell": "x", "memory_limit": 1}, "memory_limit", "out_of_range"),
        ({"shell": "x", "cpu_limit": timedelta(milliseconds=1)}, "cpu_limit", "out_of_range"),
        ({"shell": "x", "kill_after": timedelta(hours=1)}, "kill_after", "out_of_range"),
        ({"shell": "x", "output_limit": 0}, "output_limit", "out_of_range"),
        ({"shell": "x", "requires": {"a=b": "c"}}, "requires", "bad_label"),
        ({"shell": "x", "requires": {str(n): "c" for n in range(5)}}, "requires", "too_many"),
    ],
)
def test_invalid_command(given: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_target(CommandTarget(**given))
    assert (refused.value.field, refused.value.code) == (field, code)
