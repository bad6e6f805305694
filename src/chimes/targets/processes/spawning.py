"""Starting a process and learning of its end without taking its number away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import suppress

#: Not for code that is none of ours: where the store is, and the key to everything.
PRIVATE_VARIABLES = ("CHIMES_STORE", "CHIMES_ADMIN_TOKEN")


def environment_for_others() -> dict[str, str]:
    """Of a process that carries out an operator's own code."""
    return {name: value for name, value in os.environ.items() if name not in PRIVATE_VARIABLES}


def spawned(module: str, channel: int, lifeline: int, *, private: bool) -> subprocess.Popen[bytes]:
    """Call it on the event loop's thread, which lives as long as the worker: the kernel's signal
    at the death of a parent comes when the parent's *thread* ends. `private`: without the
    variables that are the node's own business."""
    return subprocess.Popen(  # noqa: S603 - a module of ours
        [sys.executable, "-m", module, str(channel), str(lifeline), str(os.getpid())],
        env=environment_for_others() if private else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=(channel, lifeline),
        start_new_session=True,
    )


def watch_exit(process: subprocess.Popen[bytes], exited: asyncio.Future[None]) -> None:
    """Resolves `exited` when the process has ended. It stays a zombie until it is waited for, so
    its number, which is its group's, cannot come to mean another process meanwhile."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        _watch_in_thread(process, exited, loop)
        return
    descriptor = os.pidfd_open(process.pid)

    def ended() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        _resolve(exited)

    loop.add_reader(descriptor, ended)


def _watch_in_thread(
    process: subprocess.Popen[bytes],
    exited: asyncio.Future[None],
    loop: asyncio.AbstractEventLoop,
) -> None:
    def wait() -> None:
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:
            process.wait()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_resolve, exited)

    threading.Thread(target=wait, name=f"chimes-process-{process.pid}", daemon=True).start()


def _resolve(exited: asyncio.Future[None]) -> None:
    if not exited.done():
        exited.set_result(None)
