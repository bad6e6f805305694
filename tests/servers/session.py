"""Processes that all workers of one pytest session share: database servers and the fork server.

The first worker that needs one starts its keeper. The keeper outlives the worker, but not the
session: it ends when the session stops it or when the main process of the session dies.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.servers.kinds import Kind
from tests.servers.server import START_SECONDS, STOP_SECONDS, Server, wait_for_exit

#: The main process of the session and its directory; workers inherit it.
VARIABLE = "CHIMES_TEST_SERVERS"
_REPOSITORY = Path(__file__).parents[2]
#: Read at the start, because tests remove variables of Chimes from the environment.
_session = os.environ.get(VARIABLE, "")
#: The keepers that this process has started.
_keepers: list[subprocess.Popen[bytes]] = []


def begin() -> None:
    """Starts a session; called in its main process, before it starts workers."""
    global _session
    _session = f"{os.getpid()}:{tempfile.mkdtemp(prefix='chimes-session-')}"
    os.environ[VARIABLE] = _session


def has_begun() -> bool:
    return bool(_session)


@cache
def shared(kind: Kind) -> Server:
    """The server of this kind; the first call in a session starts it."""
    known = shared_process(kind.name, ["-m", "tests.servers.keeper", kind.name])
    return Server(kind, known["port"], known["pid"])


def shared_process(name: str, command: Sequence[str]) -> dict[str, Any]:
    """The record that a keeper has written. The first call in a session starts the keeper: Python
    with this command and the arguments MAIN_PID and RECORD."""
    main, directory = _main_and_directory()
    record = directory / f"{name}.json"
    with (directory / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists():
            _start_keeper([*command, str(main), str(record)], record)
    found: dict[str, Any] = json.loads(record.read_text())
    return found


def stop_all() -> None:
    """Ends a session; called in its main process."""
    global _session
    _, directory = _main_and_directory()
    for record in directory.glob("*.json"):
        keeper = json.loads(record.read_text())["keeper"]
        try:
            os.kill(keeper, signal.SIGTERM)
        except ProcessLookupError:
            continue
        wait_for_exit(keeper, STOP_SECONDS)
    for left in directory.iterdir():
        left.unlink()
    directory.rmdir()
    _session = ""
    os.environ.pop(VARIABLE, None)


def _detach() -> None:
    """Keepers outlive this process, so Python should not warn that they still run."""
    for keeper in _keepers:
        keeper.returncode = keeper.poll() or 0


def _main_and_directory() -> tuple[int, Path]:
    main, _, directory = _session.partition(":")
    return int(main), Path(directory)


def _start_keeper(command: Sequence[str], record: Path) -> None:
    log = record.with_suffix(".log")
    with log.open("wb") as output:
        keeper = subprocess.Popen(
            [sys.executable, *command],
            cwd=_REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # An interrupt from the terminal is for the tests only.
            start_new_session=True,
        )
    if not _keepers:
        atexit.register(_detach)
    _keepers.append(keeper)
    deadline = time.monotonic() + START_SECONDS
    while not record.exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace")
            raise RuntimeError(f"{record.stem} did not start:\n{said}")
        time.sleep(0.02)  # nothing signals that the record has been written
