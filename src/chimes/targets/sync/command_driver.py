"""Driver `command`: any program; inside the process of a task, which watches over it.

The program is in the same process group. What it says is read here, so that a flood of it costs
the worker nothing, and Singer messages are understood here too.
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
from chimes.targets.sync.http_driver import appending, write_all
from chimes.targets.sync.runner import any_stopped
from chimes.targets.sync.wire import Request
from chimes.targets.sync.worker_link import DriverFailure, Tether

# @@ What a program says on its output: plain lines, or the messages of a Singer tap.
#
# Messages are JSON objects, one a line, with a `type`: SCHEMA, RECORD, STATE. In both forms what
# a STATE message says is kept at once, so that the next run goes on from there.

CUT = " … (cut)"
_STATE = b'"STATE"'
#: Bytes of records that are written together.
_AT_ONCE = 64 * 1024

Message = Mapping[str, object]


class Splitter(LineSplitter):
    def __init__(
        self,
        limit: int,
        take: Callable[[bytes, bool], None],
        mark: Callable[[], bytes] = bytes,
    ) -> None:
        super().__init__(limit)
        self._take = take
        self._mark = mark

    def mark(self) -> bytes:
        return self._mark()

    def take(self, line: bytes, *, whole: bool) -> None:
        self._take(line, whole)


class Tap:
    """A program that is listened to."""

    def __init__(self, tether: Tether) -> None:
        self._tether = tether
        self._states = 0
        self._longest = tether.longest_message
        self.out = Splitter(self._longest, self._said, self._wanted)
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

    def ended(self) -> None:
        self.out.ended()
        self.err.ended()

    def close(self) -> None:
        """Nothing more is said."""

    def _wanted(self) -> bytes:
        """What a line must have in it to be of any use; empty: nothing."""
        return b""

    def _said(self, line: bytes, whole: bool) -> None:
        raise NotImplementedError

    def _log(self, level: str, line: bytes) -> None:
        text = line[: MAX_LINE + 1].decode(errors="replace").rstrip("\r")
        self._tether.log(level, text if len(line) < MAX_LINE else text[: MAX_LINE - len(CUT)] + CUT)

    def _keep(self, message: Message) -> None:
        self._states += 1
        self._tether.keep(message["value"])


class Lines(Tap):
    """Each line is one of the log."""

    def _wanted(self) -> bytes:
        return _STATE if self._tether.log_is_full else b""

    def _said(self, line: bytes, whole: bool) -> None:
        message = message_in(line) if _STATE in line else None
        if message is not None and message["type"] == "STATE" and "value" in message:
            self._keep(message)
            self._log("debug", line)
        else:
            self._log("info", line)


class Messages(Tap):
    """Records are counted, and written where the operator wants them; other lines are logged."""

    def __init__(self, tether: Tether, output: Path | None) -> None:
        super().__init__(tether)
        self._records = 0
        self._output = output
        #: Whole lines that are still to be written.
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

    def ended(self) -> None:
        super().ended()
        self._write()

    def close(self) -> None:
        # After `ended` there is nothing left; before it, something else has gone wrong.
        with contextlib.suppress(DriverFailure):
            self._write()

    def _write(self) -> None:
        """Other collections may write to the same file."""
        lines = bytes(self._unwritten)
        self._unwritten.clear()
        if self._output is None or not lines:
            return
        try:
            with appending(self._output) as stream:
                write_all(stream, lines)
        except OSError as error:
            raise DriverFailure("no_output", _("output: {error}", error=str(error))) from None

    def _said(self, line: bytes, whole: bool) -> None:
        if not whole and len(line) >= self._longest:
            raise DriverFailure(
                "message_too_large",
                _("a message has over {most} bytes", most=self._longest),
            )
        message = message_in(line)
        if message is None:
            self._log("info", line)
        elif message["type"] == "RECORD":
            self._records += 1
            if self._output is not None:
                self._unwritten += line + b"\n"
                if len(self._unwritten) >= _AT_ONCE:
                    self._write()
        elif message["type"] == "STATE" and "value" in message:
            # What the state stands for must be there before it.
            self._write()
            self._keep(message)


def message_in(line: bytes) -> Message | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("type"), str) else None


#: How long those that the program started may hold its output open after its end.
LAST_WORDS = 1.0
_PIECE = 64 * 1024


def synchronise(request: Request, tether: Tether) -> Mapping[str, object]:
    config = read_command(Section(request.config, "config"))
    files = _Files(request)
    # The group is told to stop; this process stays, to read what the program says to that.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with _tap(config, request, tether) as tap:
        process = _started(config, request, files)
        _listen(process, tap, tether, request.beat)
        status = process.wait()
    if status != 0:
        code = "exit_status" if status > 0 else "killed"
        raise DriverFailure(code, describe_command_exit(status))
    files.take_over(tether)
    return tap.result


class _Files:
    """What the program reads, and where it may leave its state. Only this user can read them."""

    def __init__(self, request: Request) -> None:
        folder = Path(request.private)
        self.config = folder / "config.json"
        self.state = folder / "state.json"
        # A tap without state expects an empty object.
        self._given = request.state or "{}"
        for file, text in ((self.config, json.dumps(request.config)), (self.state, self._given)):
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)

    def take_over(self, tether: Tether) -> None:
        """The state file, if the program has changed it."""
        try:
            with self.state.open("rb") as stream:
                found = stream.read(2 * tether.longest_message + 1)
        except FileNotFoundError:
            # As if it had said nothing, the next run would begin where this one did.
            raise DriverFailure("bad_state", _("CHIMES_STATE_FILE is gone")) from None
        if found == self._given.encode() or not found.strip():
            return
        try:
            value = json.loads(found)
        except ValueError as error:
            raise DriverFailure(
                "bad_state",
                _(
                    "what the command left in CHIMES_STATE_FILE is no JSON: {error}",
                    error=str(error),
                ),
            ) from None
        if value != json.loads(self._given):
            tether.keep(value)


def _tap(config: CommandConfig, request: Request, tether: Tether) -> Tap:
    output = Path(request.directory, request.filled(config.output)) if config.output else None
    return Messages(tether, output) if config.format == SINGER else Lines(tether)


def _started(config: CommandConfig, request: Request, files: _Files) -> subprocess.Popen[bytes]:
    variables = {
        "CHIMES_SOURCE": request.source,
        "CHIMES_COLLECTION": request.collection,
        "CHIMES_CONFIG_FILE": str(files.config),
        "CHIMES_STATE_FILE": str(files.state),
    }
    # Only as a whole argument: in the middle of a script the braces are the script's.
    placeholders = {
        "{source}": request.source,
        "{collection}": request.collection,
        "{config_file}": str(files.config),
        "{state_file}": str(files.state),
    }
    folder = Path(request.directory, config.cwd)
    try:
        return subprocess.Popen(  # noqa: S603 - that is what the operator wrote down
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
                "not_started", _("there is no directory {folder}", folder=folder)
            ) from None
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise DriverFailure(
            "not_started",
            _(
                "the command cannot be started: {command}: {why}",
                command=config.command[0],
                why=text,
            ),
        ) from None


def _listen(process: subprocess.Popen[bytes], tap: Tap, tether: Tether, beat_every: float) -> None:
    """Until it has ended and said everything."""
    assert process.stdout is not None
    assert process.stderr is not None
    beat_at = time.monotonic()
    ended_at: float | None = None
    with selectors.DefaultSelector() as selector:
        for pipe, splitter in ((process.stdout, tap.out), (process.stderr, tap.err)):
            selector.register(pipe, selectors.EVENT_READ, splitter)
        while selector.get_map():
            now = time.monotonic()
            if now >= beat_at:
                beat_at = now + beat_every
                if not any_stopped(process.pid):
                    tether.beat()
            if ended_at is None and _ended(process):
                ended_at = now
            if ended_at is not None and now - ended_at > LAST_WORDS:
                break
            for key, _unused in selector.select(min(beat_every, 0.1)):
                piece = os.read(key.fd, _PIECE)
                if piece:
                    key.data.data_received(piece)
                else:
                    selector.unregister(key.fileobj)
    while not _ended(process):
        # It has closed its output and works on.
        if not any_stopped(process.pid):
            tether.beat()
        _wait(process, beat_every)
    tap.ended()


def _ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
