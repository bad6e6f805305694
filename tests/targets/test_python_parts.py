"""Parts of isolated tasks: line readers, wire messages, app lookup, exit watching."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chimes.errors import ConfigError
from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import AttemptEnd, Outcome
from chimes.targets.process.channel import BoundedLog, LogLine
from chimes.targets.process.child import LineReader, MessageReader, OutputReader, watch_exit
from chimes.targets.python import TaskError
from chimes.targets.python import loader as importing
from chimes.targets.python.context import run_info_of
from chimes.targets.python.loader import find_app_path, load_registry
from chimes.targets.python.wire import LOG_LIMITS, Request, ResultMessage, message_of
from tests.builders import NOW, a_run

# Readers


class Lines(LineReader):
    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.got: list[tuple[bytes, bool]] = []

    def line_received(self, line: bytes, *, whole: bool) -> None:
        self.got.append((line, whole))


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"ab\ncd\n"], [(b"ab", True), (b"cd", True)]),
        ([b"a", b"b\nc", b"d"], [(b"ab", True), (b"cd", False)]),
        ([b"\n\n"], [(b"", True), (b"", True)]),
        ([b"12345678\n"], [(b"12345678", True)]),
        ([b"123456789\nx\n"], [(b"12345678", False), (b"x", True)]),
        ([b"12345", b"6789", b"0" * 50, b"\nx\n"], [(b"12345678", False), (b"x", True)]),
        ([b"123456789" * 9], [(b"12345678", False)]),
        ([], []),
    ],
)
async def test_long_lines_are_truncated(
    pieces: list[bytes], lines: list[tuple[bytes, bool]]
) -> None:
    reader = Lines(8)
    for piece in pieces:
        reader.data_received(piece)
    reader.connection_lost(None)
    assert reader.got == lines
    assert reader.closed.done()


async def test_output_stops_when_the_log_is_full() -> None:
    written: list[str] = []
    log = BoundedLog(lambda level, message: written.append(message), LOG_LIMITS)
    reader = OutputReader(log, "info")
    reader.data_received(b"one\r\n\xff\n" + b"x\n" * LOG_LIMITS.lines)
    reader.data_received(b"more\n")
    reader.connection_lost(None)
    assert written[:3] == ["one", "\ufffd", "x"]
    assert len(written) == LOG_LIMITS.lines + 1
    log.close()


async def test_incomplete_message_is_dropped() -> None:
    got: list[bytes] = []
    reader = MessageReader(100, got.append)
    reader.data_received(b'{"a": 1}\n{"b"')
    reader.connection_lost(None)
    assert got == [b'{"a": 1}']


# Wire messages


def test_request_round_trips_over_the_wire() -> None:
    run = a_run(
        schedule_id=ScheduleId("s"),
        schedule_name="ä",
        slot=datetime(2026, 1, 1, tzinfo=UTC),
        parent_id=RunId("p"),
        attempt=3,
    )
    for each in (run, a_run()):
        request = Request(
            app="m:app",
            path=("/a", ""),
            info=run_info_of(each, "t", started_at=NOW, began=0.0, timeout=timedelta(seconds=5)),
            args={"a": [1, None, "\n"]},
            error=None if each is run else TaskError(message="x", code="y"),
            memory_limit=None if each is run else 10**9,
        )
        line = request.to_line()
        assert line.count(b"\n") == 1
        assert Request.from_line(line) == request


@pytest.mark.parametrize(
    "message",
    [
        LogLine("warning", "a\nb ส"),
        ResultMessage(Outcome(end=AttemptEnd.SUCCEEDED, result={"value": [1]})),
        ResultMessage(
            Outcome(
                end=AttemptEnd.FAILED,
                retryable=True,
                error="e",
                code="c",
                retry_in=timedelta(seconds=1.5),
            ),
            "trace",
        ),
    ],
)
def test_message_round_trips_over_the_wire(message: LogLine | ResultMessage) -> None:
    assert message_of(message.to_line()) == message


@pytest.mark.parametrize("line", [b"", b"no", b"{}", b'{"log": 1}', b'{"end": "never"}', b"5"])
def test_invalid_messages_are_rejected(line: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        message_of(line)


# App lookup


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "jobs.py"
    path.write_text(
        "from chimes.targets.python import Registry\n"
        "class App:\n"
        "    def __init__(self):\n"
        "        self.registry = Registry()\n"
        "class Holder:\n"
        "    app = App()\n"
        "app = Holder.app\n"
        "assert __name__ != '__main__'\n"
    )
    yield path
    sys.modules.pop(importing.SCRIPT_NAME, None)


def test_app_is_loaded_by_file_path(script: Path) -> None:
    registry = load_registry(f"{script}:app")
    assert find_app_path(registry) == f"{importing.SCRIPT_NAME}:app"
    assert load_registry(f"{script}:Holder.app") is not registry, "imported again"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("jobs", "expected an application as module:name"),
        (":app", "expected an application as module:name"),
        ("jobs:", "expected an application as module:name"),
        ("SCRIPT:nothing", "has no 'nothing'"),
        ("SCRIPT:Holder.nothing", "has no 'Holder.nothing'"),
        ("SCRIPT:Holder", "is not an application"),
    ],
)
def test_invalid_app_paths_are_config_errors(script: Path, path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_registry(path.replace("SCRIPT", str(script)))


def test_app_of_main_module_is_found_by_its_file(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = load_registry(f"{script}:app")
    module = sys.modules.pop(importing.SCRIPT_NAME)
    module.__name__, module.__spec__ = "__main__", None
    monkeypatch.setitem(sys.modules, "__main__", module)
    assert find_app_path(registry) == f"{script}:app"
    del module.__file__
    assert find_app_path(registry) == "", "an interactive session has no file"


# Process exit


@pytest.mark.parametrize("without", [(), ("pidfd_open",), ("pidfd_open", "waitid")])
async def test_process_exit_is_detected_without_pidfd_and_waitid(
    monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...]
) -> None:
    for name in without:
        monkeypatch.delattr(os, name)
    ours, theirs = socket.socketpair()
    with ours:
        process = started(theirs)
        exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        watch_exit(process, exited)
        await asyncio.sleep(0)  # a wrong early exit event would be delivered here
        assert not exited.done()
    async with asyncio.timeout(20):
        await exited
    assert process.wait(20) == 7


def started(stdin: socket.socket) -> subprocess.Popen[bytes]:
    """A process that exits with status 7 at the end of its input."""
    with stdin:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", "import sys; sys.stdin.read(); sys.exit(7)"], stdin=stdin
        )
