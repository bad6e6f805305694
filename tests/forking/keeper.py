"""The process that nodes of tests are forks of: `keeper.py SOCKET`, see `tests.forking`.

A message asks for one, with its standard files and the end of a pipe that is told its exit code;
the answer is its pid. It has no thread and no event loop, so there is nothing that a fork
could find half done.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NoReturn

import chimes
from chimes import failpoints
from chimes.web.dashboard.entry import _prepare as prepare_dashboard

ROOT = Path(__file__).parents[2]
#: What a command loads only when it needs it, besides the package itself.
IMPORTED = ("alembic.command", "alembic.config", "rich.table", "uvloop")
#: Modules that do something when they are imported.
NOT_IMPORTED = ("__main__", "migrations.env")


#: With the keeper, which ends with the test worker, all of its forks end.
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Command:
    arguments: list[str]
    env: dict[str, str]
    cwd: str
    module: str
    files: tuple[int, ...]


def forked(asking: socket.socket) -> Command | None:
    """In a fork what it is to do; None in the keeper, when nobody can ask any more."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    telling: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asking.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(telling)
        if asking.fileno() not in ready:
            continue
        message, given, _, _ = socket.recv_fds(asking, 1 << 20, 4)
        if not message:
            return None
        *files, told = given
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return Command(**json.loads(message), files=tuple(files))
        telling[pid] = told
        for file in files:
            os.close(file)
        asking.send(str(pid).encode())


def _reap(telling: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            told = telling.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(told)


def become(command: Command) -> None:
    """What the fork of a process with open files has to do to look like a new one."""
    assert ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) == 0
    for number, file in enumerate(command.files):
        os.dup2(file, number)
    # One by one: up to the limit of files there may be a billion of numbers.
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2:
            with contextlib.suppress(OSError):
                os.close(number)
    os.environ.clear()
    os.environ.update(command.env)
    time.tzset()
    os.chdir(command.cwd)
    script = Path(sys.executable).with_name("chimes")
    sys.path[0] = str(script.parent)
    sys.argv = [str(script), *command.arguments]
    if not command.module.startswith("chimes."):
        sys.path.append(str(ROOT))
    failpoints._armed = failpoints.parse_failpoints(os.environ)
    failpoints._log = os.environ.get("CHIMES_FAILPOINTS_LOG", "")


def run(main: Callable[[], object]) -> NoReturn:
    """As Python ends after a script, but for taking the interpreter apart: that would copy all the
    pages which the fork shares, only to throw them away."""
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def import_everything() -> None:
    """Once, instead of in each fork: what is loaded late costs a node more than all the rest."""
    for found in walk_packages(chimes.__path__, "chimes."):
        if not found.name.endswith(NOT_IMPORTED):
            import_module(found.name)
    for name in IMPORTED:
        import_module(name)


def main(number: int) -> None:
    import_everything()
    # Compiling the templates costs the first visit of a page more than a test with a browser does.
    prepare_dashboard()
    # Or each fork would look through all of it, and copy it by that, at the latest when it ends.
    gc.freeze()
    with socket.socket(fileno=number) as asking:
        command = forked(asking)
    if command is not None:
        become(command)
        run(import_module(command.module).main)


if __name__ == "__main__":
    main(int(sys.argv[1]))
