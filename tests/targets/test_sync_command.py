"""Driver `command`: any program, and Singer taps."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chimes.model.run import AttemptEnd
from chimes.targets.sync.runner import CheckpointWriter
from chimes.targets.sync.wire import LOG_LIMITS
from tests.targets.sync_calls import (
    ClockFrom,
    ExecutedRun,
    StoredCheckpoint,
    a_call,
    a_runner,
    execute,
    is_stopped,
)
from tests.targets.task_calls import alive
from tests.targets.waiting import pass_time, until


def sh(script: str, **more: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", script], **more}


def py(script: str, **more: Any) -> dict[str, Any]:
    return {"command": [sys.executable, "-c", script], **more}


async def run(
    config: dict[str, Any], tmp_path: Path, kept: StoredCheckpoint | None = None, **given: Any
) -> ExecutedRun:
    return await execute(a_runner("command", config, tmp_path, **given), kept)


async def test_stdout_and_stderr_are_log_lines(tmp_path: Path) -> None:
    done = await run(sh("echo hello; echo oh >&2; printf 'no end'"), tmp_path)
    assert done.outcome.end is AttemptEnd.SUCCEEDED
    assert done.at("info")[:2] == ["hello", "no end"]
    assert done.at("error") == ["oh"]
    assert done.lines[-1][1].startswith("FINISHED SUCCESSFULLY in [")


async def test_config_and_state_are_passed_in_private_temporary_files(tmp_path: Path) -> None:
    script = """
import json, os, stat
print(os.environ["CHIMES_SOURCE"], os.environ["CHIMES_COLLECTION"], os.environ["EXTRA"])
for name in ("CONFIG", "STATE"):
    path = os.environ[f"CHIMES_{name}_FILE"]
    print(path)
    print(oct(os.stat(path).st_mode & 0o777), oct(os.stat(os.path.dirname(path)).st_mode & 0o777))
    print(json.dumps(json.load(open(path))))
print(os.getcwd())
"""
    config = py(script, env={"EXTRA": 7}, shop="s-1")
    lines = (await run(config, tmp_path, StoredCheckpoint('{"at": 3}'))).at("info")
    assert lines[0] == "shop orders 7"
    assert lines[2] == lines[5] == "0o600 0o700"
    assert json.loads(lines[3]) == config
    assert json.loads(lines[6]) == {"at": 3}
    assert lines[7] == str(tmp_path)
    assert not Path(lines[1]).parent.exists()


async def test_placeholders_in_arguments_are_file_paths(tmp_path: Path) -> None:
    script = "import sys; print(open(sys.argv[1]).read(), sys.argv[2:])"
    config = {"command": [sys.executable, "-c", script, "{state_file}", "{collection}", "a{b}"]}
    assert (await run(config, tmp_path)).at("info")[0] == "{} ['orders', 'a{b}']"


async def test_working_directory_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    assert (await run(sh("pwd", cwd="inner"), tmp_path)).at("info")[0] == str(tmp_path / "inner")
    done = await run(sh("pwd", cwd="none"), tmp_path)
    assert done.outcome.error == f"directory {tmp_path / 'none'} does not exist"


@pytest.mark.parametrize(
    ("script", "code", "error"),
    [
        ("echo bye; exit 3", "exit_status", "the command ended with status 3"),
        ("kill -SEGV $$", "killed", "the command was killed by signal 11 (SIGSEGV)"),
    ],
)
async def test_exit_status_and_signal_fail_the_run(
    tmp_path: Path, script: str, code: str, error: str
) -> None:
    done = await run(sh(script), tmp_path)
    assert (done.outcome.end, done.outcome.code) == (AttemptEnd.FAILED, code)
    assert done.outcome.error == error
    assert done.lines[-1] == ("error", error)


async def test_missing_program_is_not_started(tmp_path: Path) -> None:
    done = await run({"command": ["no-such-program"]}, tmp_path)
    assert done.outcome.code == "not_started"
    assert "no-such-program: No such file or directory" in done.outcome.error


# State


async def test_a_changed_state_file_is_the_new_state(tmp_path: Path) -> None:
    kept = StoredCheckpoint('{"n": 1}')
    await run(sh("echo '{\"n\": 2}' > $CHIMES_STATE_FILE"), tmp_path, kept)
    assert kept.values == ['{"n": 2}']
    await run(sh("echo ' {\"n\":  2} ' > $CHIMES_STATE_FILE"), tmp_path, kept)
    await run(sh("true"), tmp_path, kept)
    assert kept.values == ['{"n": 2}']


async def test_state_file_of_a_failed_command_is_ignored(tmp_path: Path) -> None:
    kept = StoredCheckpoint()
    await run(sh("echo '{\"n\": 2}' > $CHIMES_STATE_FILE; exit 1"), tmp_path, kept)
    assert kept.values == []
    done = await run(sh("echo oops > $CHIMES_STATE_FILE"), tmp_path, kept)
    assert done.outcome.code == "bad_state"
    assert kept.values == []


async def test_deleted_state_file_fails_the_run(tmp_path: Path) -> None:
    kept = StoredCheckpoint('{"n": 1}')
    done = await run(sh("rm $CHIMES_STATE_FILE"), tmp_path, kept)
    assert (done.outcome.code, done.outcome.error) == (
        "bad_state",
        "the command deleted CHIMES_STATE_FILE",
    )


TAP = """
import json, os, sys
state = json.load(open(os.environ["CHIMES_STATE_FILE"])).get("at", 0)
def say(**message):
    print(json.dumps(message), flush=True)
say(type="SCHEMA", stream="orders", schema={}, key_properties=["id"])
for number in range(state + 1, state + 4):
    say(type="RECORD", stream="orders", record={"id": number, "pad": "x" * 9000})
    say(type="STATE", value={"at": number})
print("a word for people")
sys.exit(int(os.environ.get("ENDS_WITH", 0)))
"""


async def test_states_of_a_tap_are_stored_immediately(tmp_path: Path) -> None:
    kept = StoredCheckpoint()
    config = py(TAP, format="singer", output="pulled/orders.jsonl")
    done = await run(config, tmp_path, kept)
    assert json.loads(kept.value or "") == {"at": 3}
    assert done.outcome.result == {"records": 3, "states": 3}
    assert done.at("info")[0] == "a word for people"
    assert len(done.lines) == 2
    # A state written before a failure is kept: the next run continues from it.
    done = await run(config | {"env": {"ENDS_WITH": "4"}}, tmp_path, kept)
    assert done.outcome.error == "the command ended with status 4"
    assert json.loads(kept.value or "") == {"at": 6}
    lines = (tmp_path / "pulled/orders.jsonl").read_text().splitlines()
    assert [json.loads(line)["record"]["id"] for line in lines] == [1, 2, 3, 4, 5, 6]


async def test_output_path_may_name_source_and_collection(tmp_path: Path) -> None:
    config = py(TAP, format="singer", output="out/{source}-{collection}.jsonl")
    assert (await run(config, tmp_path)).outcome.end is AttemptEnd.SUCCEEDED
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["shop-orders.jsonl"]


MANY = """
import json
for number in range(1500):
    print(json.dumps({"type": "RECORD", "record": {"id": number, "pad": "x" * 2999}}))
"""


async def test_taps_that_share_an_output_do_not_mix_lines(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_bytes(b'{"type": "RECORD", "record": {"id": 5')
    runner = a_runner("command", py(MANY, format="singer", output="out.jsonl"), tmp_path)
    done = await asyncio.gather(execute(runner), execute(runner))
    assert [each.outcome.result for each in done] == [{"records": 1500}] * 2
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    found = [json.loads(line)["record"]["id"] for line in lines]
    assert sorted(found) == sorted([*range(1500)] * 2)


class SlowCheckpoint(StoredCheckpoint):
    """A write that takes until it is allowed to end."""

    def __init__(self, begun: Path) -> None:
        super().__init__()
        self.begun = begun
        self.allowed = asyncio.Event()

    async def save(self, value: str) -> bool:
        self.begun.touch()
        await self.allowed.wait()
        return await super().save(value)


@pytest.mark.parametrize("code", ["crashed", "timeout"])
async def test_last_state_is_stored_after_crash_or_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """Also when the store is slow."""
    kept = SlowCheckpoint(tmp_path / "begun")
    flush = CheckpointWriter.flush_within

    async def flush_while_written(writer: CheckpointWriter, _: float) -> None:
        kept.allowed.set()
        await flush(writer, 60.0)

    monkeypatch.setattr(CheckpointWriter, "flush_within", flush_while_written)
    script = """echo '{"type": "STATE", "value": 7}'; until [ -e begun ]; do sleep 0.05; done; """
    script += "kill -9 $PPID" if code == "crashed" else "sleep 600"
    attempt = asyncio.create_task(run(sh(script), tmp_path, kept))
    await until(kept.begun.exists)
    if code == "timeout":
        pass_time(60)
    assert (await attempt).outcome.code == code
    assert kept.values == ["7"]


async def test_state_messages_are_read_from_plain_output(tmp_path: Path) -> None:
    kept = StoredCheckpoint()
    done = await run(py(TAP), tmp_path, kept)
    assert json.loads(kept.value or "") == {"at": 3}
    assert len(done.at("debug")) == 3
    assert len(done.at("info")) == 6
    assert done.at("info")[1].endswith(" … (cut)")
    noise = r"""printf '%s\n' '{"type": "STATE"}' '"STATE"' '{"type": "STATE", "value' '{' """
    assert len((await run(sh(noise), tmp_path, kept)).at("info")) == 5


# Timeouts, stalls and cancels


async def test_flood_of_output_is_truncated_and_the_state_kept(tmp_path: Path) -> None:
    kept = StoredCheckpoint()
    script = 'head -c 300000000 /dev/zero | tr "\\0" "x\\n"; echo; '
    script += """echo '{"type": "STATE", "value": 5}'; yes | head -c 100000000"""
    done = await run(sh(script), tmp_path, kept)
    assert done.outcome.end is AttemptEnd.SUCCEEDED
    assert kept.values == ["5"]
    assert len(done.lines) <= LOG_LIMITS.lines + 2
    assert sum("output truncated" in message for message in done.at("warning")) == 1


async def test_stopped_program_is_killed_as_stalled(tmp_path: Path) -> None:
    script = f"sh -c 'echo $$ > {tmp_path}/pid; kill -STOP $$'; true"
    clock = ClockFrom(lambda: is_stopped(tmp_path / "pid"))
    done = await run(sh(script), tmp_path, stall_after=timedelta(seconds=1), clock=clock)
    assert done.outcome.code == "stalled"
    assert not alive(int((tmp_path / "pid").read_text()))


@pytest.mark.long
async def test_silent_program_is_not_stalled(tmp_path: Path) -> None:
    script = "exec >&- 2>&-; touch started; sleep 8"
    clock = ClockFrom((tmp_path / "started").exists)
    done = await run(sh(script), tmp_path, stall_after=timedelta(seconds=4), clock=clock)
    assert done.outcome.end is AttemptEnd.SUCCEEDED


async def test_cancel_stops_child_processes_of_the_command(tmp_path: Path) -> None:
    script = f"trap 'echo stopping; exit 9' TERM; sleep 600 & echo $$ $! > {tmp_path}/pids; "
    script += "echo ready; wait"
    lines: list[str] = []
    runner = a_runner("command", sh(script), tmp_path)
    call = a_call(lambda level, message: lines.append(message), StoredCheckpoint())
    attempt = asyncio.create_task(runner.execute(call))
    await until(lambda: "ready" in lines)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert not any(alive(int(pid)) for pid in (tmp_path / "pids").read_text().split())
    assert "stopping" in lines


async def test_background_processes_are_killed_with_the_command(tmp_path: Path) -> None:
    """They keep the output pipe open."""
    done = await run(sh(f"sleep 600 & echo $! > {tmp_path}/pid; echo done"), tmp_path)
    assert done.outcome.end is AttemptEnd.SUCCEEDED
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_background_processes_in_another_session_are_killed(tmp_path: Path) -> None:
    script = f"(setsid sleep 600 >&- 2>&- & echo $! > {tmp_path}/pid); echo done"
    done = await run(sh(script), tmp_path)
    assert done.outcome.end is AttemptEnd.SUCCEEDED
    assert not alive(int((tmp_path / "pid").read_text()))
