"""Driver `command`: any program; inside the process of a task, which watches over it.

The program is in the same process group. What it says is read here, so that a flood of it costs
the worker nothing, and Singer messages are understood here too.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from chimes.targets.processes.traces import command_ended
from chimes.targets.sync.configs import SINGER, CommandConfig, read_command
from chimes.targets.sync.failures import DriverFailure
from chimes.targets.sync.liveness import any_stopped
from chimes.targets.sync.sections import Section
from chimes.targets.sync.singer import Lines, Messages, Tap
from chimes.targets.sync.tether import Tether
from chimes.targets.sync.wire import Request
from chimes.wording import say

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
        raise DriverFailure(code, command_ended(status))
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
            raise DriverFailure("bad_state", say("CHIMES_STATE_FILE is gone")) from None
        if found == self._given.encode() or not found.strip():
            return
        try:
            value = json.loads(found)
        except ValueError as error:
            raise DriverFailure(
                "bad_state",
                say(
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
    places = {
        "{source}": request.source,
        "{collection}": request.collection,
        "{config_file}": str(files.config),
        "{state_file}": str(files.state),
    }
    folder = Path(request.directory, config.cwd)
    try:
        return subprocess.Popen(  # noqa: S603 - that is what the operator wrote down
            [places.get(each, each) for each in config.command],
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
                "not_started", say("there is no directory {folder}", folder=folder)
            ) from None
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise DriverFailure(
            "not_started",
            say(
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
            for key, _ in selector.select(min(beat_every, 0.1)):
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
