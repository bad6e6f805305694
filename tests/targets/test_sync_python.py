"""Driver `python`: a function in a child process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from chimes.model.run import AttemptEnd
from chimes.model.target import SyncTarget
from chimes.targets.base import WrongNode
from chimes.targets.sync.runner import SyncRunner
from tests.targets.sync_calls import MODULE, ExecutedRun, StoredCheckpoint, a_runner, execute


def python(function: str, directory: Path, **config: Any) -> SyncRunner:
    return a_runner("python", {"callable": f"{MODULE}:{function}", **config}, directory)


async def run(
    function: str, directory: Path, kept: StoredCheckpoint | None = None, **config: Any
) -> ExecutedRun:
    return await execute(python(function, directory, **config), kept)


async def test_return_value_is_the_state_of_the_next_run(tmp_path: Path) -> None:
    kept = StoredCheckpoint()
    first = await run("counts", tmp_path, kept, greeting="hello")
    assert first.outcome.end is AttemptEnd.SUCCEEDED
    assert json.loads(kept.value or "") == {"times": 1}
    second = await run("counts", tmp_path, kept)
    assert json.loads(kept.value or "") == {"times": 2}
    assert first.lines[0] == ("info", "shop orders for the 1. time, hello")
    assert second.lines[0] == ("info", "shop orders for the 2. time, no greeting")


async def test_last_log_line_of_a_successful_run(tmp_path: Path) -> None:
    level, message = (await run("counts", tmp_path)).lines[-1]
    assert level == "info"
    assert re.fullmatch(r"FINISHED SUCCESSFULLY in \[\d+\.\d\d\] seconds", message)


async def test_output_and_log_records_are_lines_with_levels(tmp_path: Path) -> None:
    kept = StoredCheckpoint('{"a": 1}')
    done = await run("talks", tmp_path, kept)
    assert sorted(done.lines[:-1]) == [
        ("error", "to err"),
        ("info", "no end of line"),
        ("info", "to out"),
        ("warning", "some.library: from a library"),
    ]
    assert kept.values == []  # None leaves the state as it is


async def test_async_functions_and_methods_can_be_called(tmp_path: Path) -> None:
    done = await run("later", tmp_path, StoredCheckpoint('{"a": 1}'))
    assert json.loads(done.kept.value or "") == ["async", {"a": 1}]
    assert (await run("Shop.sync", tmp_path)).lines[0] == ("info", "in a shop")


async def test_module_beside_the_configuration_file_is_imported(tmp_path: Path) -> None:
    (tmp_path / "my_shop.py").write_text("def sync(*given):\n    print(__file__)\n")
    done = await execute(a_runner("python", {"callable": "my_shop:sync"}, tmp_path))
    assert done.lines[0] == ("info", str(tmp_path / "my_shop.py"))


async def test_exception_fails_the_run_and_logs_its_traceback(tmp_path: Path) -> None:
    done = await run("raises", tmp_path, api_token="s3cr3t-token")
    assert done.outcome.end is AttemptEnd.FAILED
    assert done.outcome.error == "ValueError: no such shop, with ***"
    assert ("info", "before") in done.lines
    traceback = next(text for text in done.at("error") if text.startswith("Traceback"))
    assert "sync_module.py" in traceback
    assert "python_driver" not in traceback
    assert "s3cr3t" not in done.text
    assert "FINISHED" not in done.text
    assert done.kept.values == []


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("exits", "the process ended with status 3 without a result"),
        ("crashes", "the process was killed by signal 11 (SIGSEGV) without a result"),
    ],
)
async def test_crash_fails_only_the_task(tmp_path: Path, function: str, error: str) -> None:
    done = await run(function, tmp_path)
    assert (done.outcome.end, done.outcome.code) == (AttemptEnd.FAILED, "crashed")
    assert done.outcome.error == error
    assert done.lines == [("info", "last words"), ("error", error)]


async def test_sys_exit_status_decides_the_outcome(tmp_path: Path) -> None:
    assert (await run("leaves", tmp_path, **{"with": 0})).outcome.end is AttemptEnd.SUCCEEDED
    done = await run("leaves", tmp_path, **{"with": "no more"})
    assert done.outcome.error == "the function exited with 'no more'"


@pytest.mark.parametrize(("what", "code"), [("set", "bad_state"), ("large", "state_too_large")])
async def test_unstorable_state_fails_the_run(tmp_path: Path, what: str, code: str) -> None:
    done = await run("returns", tmp_path, what=what)
    assert (done.outcome.end, done.outcome.code) == (AttemptEnd.FAILED, code)
    assert done.kept.values == []


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (f"{MODULE}:count", f"{MODULE} has no 'count'; did you mean counts?"),
        (f"{MODULE}:NOTHING", f"{MODULE}:NOTHING is not callable"),
        (
            "no_such_module:sync",
            "module 'no_such_module' was not found beside the file or on the Python path",
        ),
    ],
)
async def test_missing_callable_fails_the_run(tmp_path: Path, path: str, error: str) -> None:
    done = await execute(a_runner("python", {"callable": path}, tmp_path))
    assert done.outcome.error == error


async def test_secrets_of_the_node_are_not_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHIMES_STORE", "postgresql://u:p@h/d")
    monkeypatch.setenv("CHIMES_ADMIN_TOKEN", "secret")
    done = await run("environment", tmp_path)
    assert [message for _, message in done.lines[:2]] == [str(tmp_path), "None None"]


async def test_unknown_source_or_collection_fails_the_run(tmp_path: Path) -> None:
    runner = python("counts", tmp_path)
    gone = await execute(runner, target=SyncTarget(source="shop", collection="order"))
    assert gone.outcome.code == "unknown_collection"
    assert gone.lines == [
        (
            "error",
            "source 'shop' of the configuration file has no collection 'order'; "
            "did you mean orders?",
        )
    ]
    gone = await execute(runner, target=SyncTarget(source="shopp", collection="orders"))
    assert "has no source 'shopp'" in gone.outcome.error


def test_capabilities_are_the_sources_of_the_configuration_file(tmp_path: Path) -> None:
    runner = python("counts", tmp_path)
    assert runner.capabilities == {"sync:shop"}
    assert (runner.kind, runner.permits, runner.resumable) == ("sync", 16, False)


async def test_fenced_state_write_fails_as_lost(tmp_path: Path) -> None:
    """Checkpoints are fenced like completions."""
    done = await run("counts", tmp_path, StoredCheckpoint(lost=True))
    assert (done.outcome.end, done.outcome.code) == (AttemptEnd.FAILED, "lost")


async def test_store_error_on_state_write_is_raised(tmp_path: Path) -> None:
    """The attempt must not succeed without its state."""
    with pytest.raises(RuntimeError, match="no such table"):
        await run("counts", tmp_path, StoredCheckpoint(error=RuntimeError("no such table")))


async def test_collection_known_to_another_node_is_left_to_that_node(tmp_path: Path) -> None:
    """Nodes get a new configuration file one after the other."""
    target = SyncTarget(source="shop", collection="new")
    asked: list[SyncTarget] = []

    async def elsewhere(pair: SyncTarget) -> bool:
        asked.append(pair)
        return len(asked) == 1

    runner = a_runner("python", {}, tmp_path, elsewhere=elsewhere)
    with pytest.raises(WrongNode):
        await execute(runner, target=target)
    assert (await execute(runner, target=target)).outcome.code == "unknown_collection"
    assert asked == [target, target]
