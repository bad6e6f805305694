"""The servers that all workers of one pytest session share.

Whoever needs one first starts its keeper, a process of its own that outlives the worker but not
the session: it ends the server when it is told to, or when the session's main process dies.
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
from functools import cache
from pathlib import Path

from tests.servers.kinds import Kind
from tests.servers.server import START_SECONDS, STOP_SECONDS, Server, gone

#: Where the session's processes tell each other what runs; workers inherit it.
VARIABLE = "CHIMES_TEST_SERVERS"
_REPOSITORY = Path(__file__).parents[2]
#: Those that this process has started. They outlive it, or at least whoever asked.
_keepers: list[subprocess.Popen[bytes]] = []


def begin() -> None:
    """In the main process of the session, before it starts workers."""
    os.environ[VARIABLE] = f"{os.getpid()}:{tempfile.mkdtemp(prefix='chimes-session-')}"


@cache
def shared(kind: Kind) -> Server:
    """The session's server of this kind; it is started by the first who asks."""
    main, directory = _session()
    record = directory / f"{kind.name}.json"
    with (directory / f"{kind.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists():
            _start_keeper(kind, main, record)
    known = json.loads(record.read_text())
    return Server(kind, known["port"], known["pid"])


def stop_all() -> None:
    """In the main process, when the session ends."""
    _, directory = _session()
    for record in directory.glob("*.json"):
        keeper = json.loads(record.read_text())["keeper"]
        try:
            os.kill(keeper, signal.SIGTERM)
        except ProcessLookupError:
            continue
        gone(keeper, STOP_SECONDS)
    for left in directory.iterdir():
        left.unlink()
    directory.rmdir()
    del os.environ[VARIABLE]


def _let_go() -> None:
    """Nobody is waited for at the end of this process, and Python need not warn of that."""
    for keeper in _keepers:
        keeper.returncode = keeper.poll() or 0


def _session() -> tuple[int, Path]:
    main, _, directory = os.environ[VARIABLE].partition(":")
    return int(main), Path(directory)


def _start_keeper(kind: Kind, main: int, record: Path) -> None:
    log = record.with_suffix(".log")
    with log.open("wb") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.keeper", kind.name, str(main), str(record)],
            cwd=_REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    if not _keepers:
        atexit.register(_let_go)
    _keepers.append(keeper)
    deadline = time.monotonic() + START_SECONDS
    while not record.exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{kind.name} did not start:\n{log.read_text(errors='replace')}")
        time.sleep(0.02)  # the record appears in one piece, but nobody announces it
