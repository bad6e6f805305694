"""Named steps at which a test may hurt the process (RELIABILITY 3, mark FP).

Without CHIMES_TEST=1 in the environment `hit` does nothing. With it, CHIMES_FAILPOINTS says what
happens at which step, once each: `run.before_record:kill,run.before_effect:stop:5`. Actions are
`kill`, `stop:seconds` (the whole process, by SIGSTOP), `raise` and `delay:milliseconds`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping

NAMES = frozenset(
    {
        "fire.after",
        "claim.after",
        "run.claimed",
        "run.started",
        "run.before_effect",
        "run.before_record",
        "run.after_record",
        "drain.mid",
    }
)


class Injected(RuntimeError):
    """A failpoint was told to raise"""


def armed(environ: Mapping[str, str]) -> dict[str, tuple[str, float]]:
    """What is to happen where: name -> (action, number)."""
    if environ.get("CHIMES_TEST") != "1":
        return {}
    found: dict[str, tuple[str, float]] = {}
    for item in filter(None, environ.get("CHIMES_FAILPOINTS", "").split(",")):
        name, action, *number = item.strip().split(":")
        if action not in ("kill", "stop", "raise", "delay"):
            raise ValueError(f"failpoint {item!r}: unknown action {action!r}")
        found[name] = (action, float(number[0]) if number else 0.0)
    return found


_armed = armed(os.environ)


def hit(name: str) -> None:
    if _armed and name in _armed:
        _act(*_armed.pop(name), name)


def _act(action: str, number: float, name: str) -> None:
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            wake = f"sleep {number}; kill -CONT {os.getpid()}"
            subprocess.Popen(["/bin/sh", "-c", wake], start_new_session=True)  # noqa: S603
            os.kill(os.getpid(), signal.SIGSTOP)
        case "delay":
            time.sleep(number / 1000)
        case _:
            raise Injected(name)
