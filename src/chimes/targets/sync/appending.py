"""Appending to files that others append to as well. Only whole lines stay, whatever happens."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

_PIECE = 64 * 1024


@contextlib.contextmanager
def appending(path: Path) -> Iterator[FileIO]:
    """Nobody else of ours writes meanwhile. With an exception all of it is taken back; what a
    process was killed over is taken back by the next one, as far as it is not whole."""
    # Unbuffered, so that nothing is written after the lock is gone.
    with FileIO(path, "a+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        _mend(stream)
        before = os.fstat(stream.fileno()).st_size
        try:
            yield stream
        except BaseException:
            os.ftruncate(stream.fileno(), before)
            raise


def write_all(stream: FileIO, data: bytes) -> None:
    """A raw write may take a part of it."""
    left = memoryview(data)
    while left:
        left = left[stream.write(left) or 0 :]


def _mend(stream: FileIO) -> None:
    """A last line without an end is a torn one, unless it can be read."""
    descriptor = stream.fileno()
    size = os.fstat(descriptor).st_size
    tail = b""
    while len(tail) < size and b"\n" not in tail:
        start = max(0, size - len(tail) - _PIECE)
        tail = os.pread(descriptor, size - len(tail) - start, start) + tail
    torn = tail.rpartition(b"\n")[2]
    if not torn:
        return
    try:
        json.loads(torn)
    except ValueError:
        os.ftruncate(descriptor, size - len(torn))
    else:
        write_all(stream, b"\n")
