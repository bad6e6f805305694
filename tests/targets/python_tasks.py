"""An application with tasks for tests, including misbehaving ones."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chimes.targets.python import (
    Cancel,
    Context,
    Registry,
    Reject,
    Retry,
    Task,
    TaskError,
    current_context,
)
from chimes.targets.python.wire import LOG_LIMITS

registry = Registry()
PATH = f"{__name__}:registry"


def task(**options: Any) -> Callable[[Callable[..., object]], Callable[..., object]]:
    def add(function: Callable[..., object]) -> Callable[..., object]:
        registry.add(Task(name=function.__name__, function=function, **options))
        return function

    return add


isolated = task(isolation="process")


def note(path: str, what: object) -> None:
    """Writes the file atomically: tests poll for it."""
    Path(f"{path}.new").write_text(str(what))
    Path(f"{path}.new").rename(path)


@isolated
def add(a: int, b: int = 1) -> int:
    return a + b


@isolated
async def add_later(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


def facts(context: Context) -> dict[str, object]:
    assert current_context() is context
    context.logger.debug("a detail")
    context.logger.warning("careful with %s", "this")
    return {
        "run_id": context.run_id,
        "key": context.idempotency_key,
        "task": context.task,
        "attempt": context.attempt,
        "schedule": [context.schedule_id, context.schedule_name],
        "slot": context.slot,
        "parent": context.parent_id,
        "deadline": context.deadline,
        "remaining": context.remaining(),
        "canceled": context.canceled,
    }


@task()
async def facts_inline(context: Context) -> dict[str, object]:
    return facts(context)


@task()
def facts_thread(me: Context) -> dict[str, object]:
    return facts(me)


@isolated
def facts_process(context: Context) -> dict[str, object]:
    return facts(context)


@isolated
def prints_and_logs() -> None:
    print("to out")
    print("to err", file=sys.stderr)
    sys.stdout.write("no end of line")
    logging.getLogger("some.library").warning("from a library")


@isolated
def exits() -> None:
    print("last words")
    os._exit(3)


@isolated
def segfaults() -> None:
    ctypes.string_at(0)


@task(isolation="process", memory_limit=512 * 1024 * 1024)
def exceeds_memory_limit() -> int:
    return len(bytearray(4 * 1024**3))


@isolated
def forks(pids: str) -> None:
    """A small fork bomb: every child forks again and none exits."""
    for _ in range(4):
        os.fork()
    with open(pids, "a") as file:
        file.write(f"{os.getpid()}\n")
    while True:
        time.sleep(60)


@isolated
def floods(megabytes: int) -> str:
    piece = b"x" * 1023 + b"\n"
    for _ in range(megabytes):
        view = memoryview(piece * 1024)
        while view:
            view = view[os.write(1, view) :]
    return "done"


@isolated
def floods_one_line(megabytes: int) -> str:
    for _ in range(megabytes):
        view = memoryview(b"x" * 1024 * 1024)
        while view:
            view = view[os.write(2, view) :]
    return "done"


@isolated
def closes_descriptors(stay: bool) -> str:
    os.closerange(0, 1024)
    while stay:
        time.sleep(60)
    return "done"


@isolated
def ignores_sigterm(pid: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(pid, os.getpid())
    while True:
        time.sleep(60)


@isolated
def endless_regex() -> None:
    """A C call that never releases the GIL."""
    re.match(r"(a+)+$", "a" * 40 + "b")


@isolated
def leaves_a_child(pid: str) -> str:
    child = subprocess.Popen(["sleep", "600"])
    note(pid, child.pid)
    return "done"


@isolated
def never_exits() -> str:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "done"


@isolated
def cleans_up(started: str, cleaned: str) -> None:
    try:
        note(started, os.getpid())
        while True:
            time.sleep(60)
    finally:
        note(cleaned, "yes")


@isolated
async def cleans_up_later(started: str, cleaned: str) -> None:
    try:
        note(started, os.getpid())
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(0)
        note(cleaned, "yes")


# Ends of a task


@isolated
def raises(kind: str) -> None:
    match kind:
        case "value":
            raise ValueError("no such thing")
        case "retry":
            raise Retry("later", after=90)
        case "reject":
            raise Reject("never")
        case "cancel":
            raise Cancel("not wanted any more")
        case "exit":
            sys.exit("given up")


@isolated
def returns_object() -> object:
    return object()


@isolated
def returns_much() -> str:
    return "x" * 1024 * 1024


def note_failure(context: Context, error: TaskError) -> None:
    context.logger.info("told of %s by %s", error, os.getpid())


@task(isolation="process", on_failure=note_failure)
def fails_with_handler() -> None:
    raise ValueError("broken")


@task(isolation="process", on_failure=note_failure)
def hangs_with_handler() -> None:
    time.sleep(600)


@isolated
def prints_and_waits(word: str, go: str) -> None:
    print(word)
    while not Path(go).exists():
        time.sleep(0.005)


@isolated
def hangs_with_a_child(pid: str) -> None:
    child = subprocess.Popen(["sleep", "600"])
    note(pid, f"{os.getpid()} {child.pid}")
    time.sleep(600)


@isolated
def endless_regex_with_a_child(pid: str) -> None:
    child = subprocess.Popen(["sleep", "600"])
    note(pid, f"{os.getpid()} {child.pid}")
    re.match(r"(a+)+$", "a" * 60 + "b")


@isolated
def forks_and_returns() -> str:
    copy = os.fork()
    if copy:
        os.waitpid(copy, 0)
        return "from the first"
    return "from the copy"


@isolated
def floods_and_fails() -> None:
    print("\n".join(map(str, range(LOG_LIMITS.lines + 1000))))
    raise ValueError("after the flood")
