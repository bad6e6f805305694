"""Runs `chimes` as a real process of a test, as a fork of the fork server of the session.

No fork outlives the worker that requested it. See `chimes.torture.processes`.
"""

from __future__ import annotations

import atexit
import socket
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from chimes.torture.processes import Connection, Process, run_to_end
from tests.servers import session

_SERVER = Path(__file__).with_name("server.py")


class Forked(Process):
    """A process that is a fork of the server of the session."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        files: tuple[int, int, int] | None = None,
        module: str = "chimes.cli",
    ) -> None:
        super().__init__(_connection(), arguments, env=env, cwd=cwd, files=files, module=module)


def run_chimes(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout: float = 60.0,
    module: str = "chimes.cli",
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end and returns its output."""
    return run_to_end(
        _connection(), arguments, cwd=cwd, env=env, stdin=stdin, timeout=timeout, module=module
    )


@cache
def _connection() -> Connection:
    if not session.has_begun():  # outside of pytest
        session.begin()
        atexit.register(session.stop_all)
    known = session.shared_process("forking", [str(_SERVER)])
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened.connect(known["socket"])
    connection = Connection(opened)
    atexit.register(connection.close)
    return connection
