"""One process per directory: an advisory lock that dies with its process (F36)."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from chimes.errors import StoreLocked
from chimes.wording import say

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> None:
        # Far behind the pid, because what is locked there cannot be read by others.
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class DirectoryLock:
    """The file is never removed: a process that waits on a removed file would own nothing."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / ".lock"
        self._descriptor: int | None = None

    def take(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _take(descriptor)
        except (BlockingIOError, PermissionError):
            os.lseek(descriptor, 0, os.SEEK_SET)
            pid = os.read(descriptor, 20).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StoreLocked(
                say(
                    "{directory} is in use by process {pid}",
                    directory=self._path.parent,
                    pid=pid or say("(unknown)"),
                ),
                pid=pid,
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)
