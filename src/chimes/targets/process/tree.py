"""Processes that a process has started, also those that have left its group (Linux; elsewhere
none are known)."""

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
    """Those of a process that is there still: of one that has ended nobody knows whose they were.
    It may start others meanwhile, so it is looked for more than once."""
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


# @@ What a process of a task does first: nothing of it may outlive its worker.

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent: int, parent_pipe: int) -> None:
    """No task outlives its worker, nor does anything that it started (Linux)."""
    os.set_inheritable(parent_pipe, False)
    if sys.platform == "linux" and not _kill_group_on_close(parent_pipe):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have been too late for that.
    if os.getppid() != parent:
        os._exit(1)


def _kill_group_on_close(parent_pipe: int) -> bool:
    """The worker has the other end. When it is gone the kernel signals the whole group, even if
    this process never lets go of the interpreter. It must not die by itself before that: then
    nobody is left whom the end of the line would tell, and what it started lives on."""
    try:
        fcntl.fcntl(parent_pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(parent_pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(parent_pipe, fcntl.F_SETFL, os.O_ASYNC)
    except OSError:  # some sandboxes have no such signals
        return False
    return True


def disable_core_dumps() -> None:
    """A crash is told by its signal; a core file is of no use to anybody here."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def become_subreaper() -> None:
    """What this process's children start stays below it when they end, so that it can be found,
    also if it has left the group (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
