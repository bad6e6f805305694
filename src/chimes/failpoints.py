"""Failpoints: named points in the code at which tests inject faults.

`hit` does nothing unless CHIMES_TEST=1 is set. Then CHIMES_FAILPOINTS lists the faults, each of
which happens once: `run.before_record:kill,run.before_effect@20:stop:5`; `@20` means the twentieth
hit. Actions are `kill`, `stop:seconds` (SIGSTOP of the process), `raise`, `delay:milliseconds` and
`drop_answer` (the store wrote, but its response is lost). Each fault is first logged to the file
CHIMES_FAILPOINTS_LOG, if set.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

NAMES = frozenset(
    {
        "fire.before_commit",
        "fire.after",
        "claim.after",
        "run.claimed",
        "run.started",
        "run.before_effect",
        "run.before_record",
        "run.after_record",
        "deliver.before_send",
        "deliver.after_send",
        "monitor.before_deliveries",
        "monitor.after_deliveries",
        "engine.submitted",
        "events.accepted",
        "events.inserted",
        "drain.mid",
        "migrate.step",
        "migrate.before_commit",
    }
)
ACTIONS = ("kill", "stop", "raise", "delay", "drop_answer")


class Injected(RuntimeError):
    """Raised by the failpoint action `raise`."""


class AnswerDropped(ConnectionError):
    """Raised by the failpoint action `drop_answer`."""


@dataclass(frozen=True, slots=True)
class Fault:
    action: str
    #: Seconds of `stop`, milliseconds of `delay`.
    duration: float = 0.0
    #: The hit at which it happens, from 1.
    at_hit: int = 1


def parse_failpoints(environ: Mapping[str, str]) -> dict[str, tuple[Fault, ...]]:
    if environ.get("CHIMES_TEST") != "1":
        return {}
    found: dict[str, tuple[Fault, ...]] = {}
    for item in filter(None, environ.get("CHIMES_FAILPOINTS", "").split(",")):
        point, action, *duration = item.strip().split(":")
        name, _, at_hit = point.partition("@")
        if action not in ACTIONS:
            raise ValueError(f"failpoint {item!r}: unknown action {action!r}")
        fault = Fault(action, float(duration[0]) if duration else 0.0, int(at_hit or 1))
        found[name] = (*found.get(name, ()), fault)
    return found


#: Held by the writer of a SQLite file during a transaction. `stop` waits for it: a process that is
#: stopped while it holds the lock of the file stops all other processes that use the file.
file_transaction = threading.RLock()

_armed = parse_failpoints(os.environ)
_hits: Counter[str] = Counter()
_log = os.environ.get("CHIMES_FAILPOINTS_LOG", "")


def hit(name: str) -> None:
    if not _armed or name not in _armed:
        return
    _hits[name] += 1
    for fault in _armed[name]:
        if fault.at_hit == _hits[name]:
            _inject(fault, name)


def _inject(fault: Fault, name: str) -> None:
    if _log:
        with open(_log, "ab", buffering=0) as file:
            file.write(f"{name}:{fault.action}\n".encode())
    match fault.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            wake = f"sleep {fault.duration}; kill -CONT {os.getpid()}"
            # Without the pipes of this process: a reader would wait for their end until then.
            none = subprocess.DEVNULL
            subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", wake],
                stdin=none,
                stdout=none,
                stderr=none,
                start_new_session=True,
            )
            with file_transaction:
                os.kill(os.getpid(), signal.SIGSTOP)
        case "delay":
            time.sleep(fault.duration / 1000)
        case "drop_answer":
            raise AnswerDropped(name)
        case _:
            raise Injected(name)
