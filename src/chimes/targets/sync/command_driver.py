"""Driver `command`: runs a program inside the child process of a task.

The program is in the same process group. Its output is read and Singer messages are parsed here, so
that a flood of output costs the worker nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from chimes.i18n import _
from chimes.targets.process.channel import MAX_LINE, LineSplitter
from chimes.targets.process.sanitize import describe_command_exit
from chimes.targets.sync.config import SINGER, CommandConfig, Section, read_command
from chimes.targets.sync.http_driver import open_for_append, write_all
from chimes.targets.sync.runner import any_stopped
from chimes.targets.sync.wire import Request
from chimes.targets.sync.worker_link import DriverFailure, WorkerLink

TRUNCATED = " … (cut)"
_STATE = b'"STATE"'
#: Bytes of records per write.
_WRITE_BATCH = 64 * 1024

Message = Mapping[str, object]


class Splitter(LineSplitter):
    def __init__(
        self,
        limit: int,
        on_line: Callable[[bytes, bool], None],
        get_marker: Callable[[], bytes] = bytes,
    ) -> None:
        super().__init__(limit)
        self._on_line = on_line
        self._get_marker = get_marker

    def required_marker(self) -> bytes:
        return self._get_marker()

    def line_received(self, line: bytes, *, whole: bool) -> None:
        self._on_line(line, whole)


class OutputParser:
    """Parses the output of the program: plain lines, or the JSON messages of a Singer tap.

    In both formats a STATE message is stored at once, so that the next run continues there.
    """

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._states = 0
        self._longest = link.max_message_bytes
        self.out = Splitter(self._longest, self._line_received, self._required_marker)
        self.err = Splitter(MAX_LINE, lambda line, whole: self._log("error", line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def result(self) -> Mapping[str, object]:
        return {"states": self._states} if self._states else {}

    def finish(self) -> None:
        self.out.finish()
        self.err.finish()

    def close(self) -> None:
        """Releases resources; also after an error."""

    def _required_marker(self) -> bytes:
        """Lines without it are skipped; empty: no line is."""
        return b""

    def _line_received(self, line: bytes, whole: bool) -> None:
        raise NotImplementedError

    def _log(self, level: str, line: bytes) -> None:
        text = line[: MAX_LINE + 1].decode(errors="replace").rstrip("\r")
        self._link.log(
            level, text if len(line) < MAX_LINE else text[: MAX_LINE - len(TRUNCATED)] + TRUNCATED
        )

    def _save_state(self, message: Message) -> None:
        self._states += 1
        self._link.save_checkpoint(message["value"])


class PlainOutput(OutputParser):
    """Writes each line to the log."""

    def _required_marker(self) -> bytes:
        return _STATE if self._link.log_is_full else b""

    def _line_received(self, line: bytes, whole: bool) -> None:
        message = parse_message(line) if _STATE in line else None
        if message is not None and message["type"] == "STATE" and "value" in message:
            self._save_state(message)
            self._log("debug", line)
        else:
            self._log("info", line)


class SingerOutput(OutputParser):
    """Counts Singer records and appends them to the output file, if any; logs other lines."""

    def __init__(self, link: WorkerLink, output: Path | None) -> None:
        super().__init__(link)
        self._records = 0
        self._output = output
        #: Buffered whole lines.
        self._unwritten = bytearray()
        if output is not None:
            try:
                output.parent.mkdir(parents=True, exist_ok=True)
                output.open("ab").close()
            except OSError as error:
                raise DriverFailure("no_output", _("output: {error}", error=str(error))) from None

    @property
    def result(self) -> Mapping[str, object]:
        return {"records": self._records, **super().result}

    def finish(self) -> None:
        super().finish()
        self._write()

    def close(self) -> None:
        # The buffer is empty after `finish`; otherwise another error is already being raised.
        with contextlib.suppress(DriverFailure):
            self._write()

    def _write(self) -> None:
        """Appends the buffer to the file, which other collections may write to as well."""
        lines = bytes(self._unwritten)
        self._unwritten.clear()
        if self._output is None or not lines:
            return
        try:
            with open_for_append(self._output) as stream:
                write_all(stream, lines)
        except OSError as error:
            raise DriverFailure("no_output", _("output: {error}", error=str(error))) from None

    def _line_received(self, line: bytes, whole: bool) -> None:
        if not whole and len(line) >= self._longest:
            raise DriverFailure(
                "message_too_large",
                _("a message is longer than {most} bytes", most=self._longest),
            )
        message = parse_message(line)
        if message is None:
            self._log("info", line)
        elif message["type"] == "RECORD":
            self._records += 1
            if self._output is not None:
                self._unwritten += line + b"\n"
                if len(self._unwritten) >= _WRITE_BATCH:
                    self._write()
        elif message["type"] == "STATE" and "value" in message:
            # Records must be written before the state that covers them.
            self._write()
            self._save_state(message)


def parse_message(line: bytes) -> Message | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("type"), str) else None


#: How long other processes may hold the output open after the program has exited.
DRAIN_SECONDS = 1.0
_CHUNK = 64 * 1024


def synchronise(request: Request, link: WorkerLink) -> Mapping[str, object]:
    config = read_command(Section(request.config, "config"))
    files = _Files(request)
    # SIGTERM goes to the whole group; this process stays to read the last output.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with _create_parser(config, request, link) as parser:
        process = _start(config, request, files)
        _read_output(process, parser, link, request.heartbeat_seconds)
        status = process.wait()
    if status != 0:
        code = "exit_status" if status > 0 else "killed"
        raise DriverFailure(code, describe_command_exit(status))
    files.save_state(link)
    return parser.result


class _Files:
    """Configuration and state files of the program; readable by this user only."""

    def __init__(self, request: Request) -> None:
        folder = Path(request.private_directory)
        self.config = folder / "config.json"
        self.state = folder / "state.json"
        # A tap without state expects an empty object.
        self._given = request.state or "{}"
        for file, text in ((self.config, json.dumps(request.config)), (self.state, self._given)):
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)

    def save_state(self, link: WorkerLink) -> None:
        """Stores the state file if the program has changed it."""
        try:
            with self.state.open("rb") as stream:
                found = stream.read(2 * link.max_message_bytes + 1)
        except FileNotFoundError:
            # Ignoring it would silently repeat this run's range in the next run.
            raise DriverFailure("bad_state", _("the command deleted CHIMES_STATE_FILE")) from None
        if found == self._given.encode() or not found.strip():
            return
        try:
            value = json.loads(found)
        except ValueError as error:
            raise DriverFailure(
                "bad_state",
                _(
                    "the command wrote invalid JSON to CHIMES_STATE_FILE: {error}",
                    error=str(error),
                ),
            ) from None
        if value != json.loads(self._given):
            link.save_checkpoint(value)


def _create_parser(config: CommandConfig, request: Request, link: WorkerLink) -> OutputParser:
    output = Path(request.directory, request.expand(config.output)) if config.output else None
    return SingerOutput(link, output) if config.format == SINGER else PlainOutput(link)


def _start(config: CommandConfig, request: Request, files: _Files) -> subprocess.Popen[bytes]:
    variables = {
        "CHIMES_SOURCE": request.source,
        "CHIMES_COLLECTION": request.collection,
        "CHIMES_CONFIG_FILE": str(files.config),
        "CHIMES_STATE_FILE": str(files.state),
    }
    # Only whole arguments are replaced: braces inside a script belong to the script.
    placeholders = {
        "{source}": request.source,
        "{collection}": request.collection,
        "{config_file}": str(files.config),
        "{state_file}": str(files.state),
    }
    folder = Path(request.directory, config.cwd)
    try:
        return subprocess.Popen(  # noqa: S603 - configured by the operator
            [placeholders.get(each, each) for each in config.command],
            cwd=folder,
            env={**os.environ, **config.env, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        if not folder.is_dir():
            raise DriverFailure(
                "not_started", _("directory {folder} does not exist", folder=folder)
            ) from None
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise DriverFailure(
            "not_started",
            _(
                "cannot start the command {command}: {why}",
                command=config.command[0],
                why=text,
            ),
        ) from None


def _read_output(
    process: subprocess.Popen[bytes],
    parser: OutputParser,
    link: WorkerLink,
    heartbeat_seconds: float,
) -> None:
    """Reads output and sends heartbeats until the program has exited."""
    assert process.stdout is not None
    assert process.stderr is not None
    heartbeat_at = time.monotonic()
    ended_at: float | None = None
    with selectors.DefaultSelector() as selector:
        for pipe, splitter in ((process.stdout, parser.out), (process.stderr, parser.err)):
            selector.register(pipe, selectors.EVENT_READ, splitter)
        while selector.get_map():
            now = time.monotonic()
            if now >= heartbeat_at:
                heartbeat_at = now + heartbeat_seconds
                if not any_stopped(process.pid):
                    link.send_heartbeat()
            if ended_at is None and _has_exited(process):
                ended_at = now
            if ended_at is not None and now - ended_at > DRAIN_SECONDS:
                break
            for key, _unused in selector.select(min(heartbeat_seconds, 0.1)):
                chunk = os.read(key.fd, _CHUNK)
                if chunk:
                    key.data.data_received(chunk)
                else:
                    selector.unregister(key.fileobj)
    while not _has_exited(process):
        # The program closed its output and is still running.
        if not any_stopped(process.pid):
            link.send_heartbeat()
        _wait(process, heartbeat_seconds)
    parser.finish()


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
