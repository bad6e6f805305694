"""Process trees: find and kill descendants, and end a child process with its worker.

Descendants are known on Linux only, also those that left the process group.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

MAX_DEPTH = 32


def descendants(pid: int, depth: int = 0) -> list[int]:
    """Parents before their children."""
    found: list[int] = []
    for child in _children(pid):
        found.append(child)
        if depth < MAX_DEPTH:
            found += descendants(child, depth + 1)
    return found


def kill_descendants(pid: int) -> None:
    """Kills the descendants of a living process; orphans of an ended one cannot be attributed.
    Repeats the search, since the process may start others meanwhile."""
    for _ in range(3):
        left = descendants(pid)
        if not left:
            return
        for each in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(each) for each in (thread / "children").read_text().split()]
    return found


PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int, parent_pipe: int) -> None:
    """Makes the kernel kill this process and its group when the worker dies (Linux)."""
    os.set_inheritable(parent_pipe, False)
    if sys.platform == "linux" and not _kill_group_on_close(parent_pipe):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the signal was set up.
    if os.getppid() != parent:
        os._exit(1)


def _kill_group_on_close(parent_pipe: int) -> bool:
    """Requests SIGKILL for the whole group when the worker's end of the pipe closes, even if this
    process never releases the GIL. Not combined with PR_SET_PDEATHSIG: if this process died
    first, the pipe would close here and the rest of the group would live on."""
    try:
        fcntl.fcntl(parent_pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(parent_pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(parent_pipe, fcntl.F_SETFL, os.O_ASYNC)
    except OSError:  # some sandboxes have no such signals
        return False
    return True


def disable_core_dumps() -> None:
    """The exit status names the signal of a crash; core files would only fill the disk."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def become_subreaper() -> None:
    """Reparents orphaned descendants to this process, so that they are found even after they left
    the group (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
