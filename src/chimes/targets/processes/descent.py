"""Processes that a process has started, also those that have left its group (Linux; elsewhere
none are known)."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_DEEPEST = 32


def descendants(pid: int, depth: int = 0) -> list[int]:
    """Parents before their children."""
    found: list[int] = []
    for child in _children(pid):
        found.append(child)
        if depth < _DEEPEST:
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
