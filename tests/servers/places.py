"""Data directories of servers: in memory if possible, readable by the users of the servers, and
removed by a later session if their session was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "chimes-server-"
#: Some containers have a /dev/shm of only 64 MB.
ENOUGH_MEMORY = 2 << 30
#: A younger lock file may not be locked yet.
YOUNG_SECONDS = 60


class DataDirectory:
    """A directory that this process owns by a lock while it lives."""

    def __init__(self, *, in_memory: bool, user: str | None) -> None:
        sweep()
        self._lock, lock = tempfile.mkstemp(".lock", PREFIX, dir=_base(in_memory))
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = Path(lock.removesuffix(".lock"))
        self.path.mkdir(mode=0o755)
        if user is not None:
            shutil.chown(self.path, user)

    def remove(self) -> None:
        if self._lock < 0:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        Path(f"{self.path}.lock").unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = -1


def sweep() -> None:
    """Removes the directories of killed processes: their locks are free."""
    for base in {_base(True), _base(False)}:
        for lock in base.glob(f"{PREFIX}*.lock"):
            try:
                if time.time() - lock.stat().st_mtime < YOUNG_SECONDS:
                    continue
                held = os.open(lock, os.O_RDWR)
            except OSError:
                continue
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
            except OSError:
                pass  # its owner is alive
            finally:
                os.close(held)


def _base(in_memory: bool) -> Path:
    memory = Path("/dev/shm")
    if in_memory and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ENOUGH_MEMORY:
        return memory
    return Path(tempfile.gettempdir())
