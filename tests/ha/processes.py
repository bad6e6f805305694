"""Processes on the hosts of a test network."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.servers.kinds import MissingServer
from tests.servers.server import _spawner


class Process:
    """A process on a host. It ends with this process."""

    def __init__(self, command: list[str], log: Path, *, user: str | None, cwd: Path) -> None:
        as_user = [f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        # Separate, because a change of user resets the parent-death signal.
        network, program = command[:4], command[4:]
        change = ["setpriv", *as_user] if as_user else []
        self.log = log
        self._command = [*network, *change, "setpriv", "--pdeathsig=TERM", *program]
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **environment: str) -> None:
        with self.log.open("ab") as log:
            self._process = (
                _spawner()
                .submit(
                    subprocess.Popen,
                    self._command,
                    cwd=self._cwd,
                    env={"PATH": os.defpath, "HOME": str(self._cwd), "LANG": "C.UTF-8"}
                    | environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                .result()
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, how: signal.Signals = signal.SIGTERM, seconds: float = 30.0) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(seconds)


def program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.defpath, "/usr/sbin", "/usr/bin"]))
    if found is None:
        raise MissingServer(f"{name} is not installed; `sh tools/packages.sh --long` installs it")
    return found
