"""Entry point of the child process of one sync task; started by a worker.

python -m chimes.targets.sync.child SOCKET PARENT_PIPE PARENT_PID
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from chimes.errors import ConfigError, message_of
from chimes.targets.process.channel import WorkerSocket
from chimes.targets.process.sanitize import describe_exception, format_traceback
from chimes.targets.process.tree import (
    become_subreaper,
    die_with_parent,
    disable_core_dumps,
    kill_descendants,
)
from chimes.targets.sync.wire import LOG_LIMITS, Request, ResultMessage
from chimes.targets.sync.worker_link import DriverFailure, WorkerLink

_OWN_FOLDER = str(Path(__file__).parent)


def main(arguments: list[str]) -> None:
    descriptor, parent_pipe, parent = (int(each) for each in arguments)
    die_with_parent(parent, parent_pipe)
    disable_core_dumps()
    own = os.getpid()
    worker = WorkerSocket(descriptor, LOG_LIMITS)
    request = Request.from_line(worker.read_request())
    link = WorkerLink(worker, request)
    become_subreaper()
    message = execute(request, link)
    # A process that the function forked may return here as well; it must not send.
    if os.getpid() == own:
        kill_descendants(own)
        worker.send(message.to_line())


def execute(request: Request, link: WorkerLink) -> ResultMessage:
    try:
        os.chdir(request.directory)
        return ResultMessage(result=_run_driver(request, link))
    except DriverFailure as failure:
        return ResultMessage(code=failure.code, error=message_of(failure))
    except ConfigError as error:
        return ResultMessage(code="bad_config", error=error.message)
    except BaseException as error:
        return ResultMessage(
            code="exception",
            error=describe_exception(error),
            trace=format_traceback(error, _OWN_FOLDER),
        )


def _run_driver(request: Request, link: WorkerLink) -> Mapping[str, object] | None:
    """Imports only what the driver needs: a process may start every second."""
    if request.driver == "command":
        from chimes.targets.sync import command_driver

        return command_driver.synchronise(request, link)
    link.start_heartbeats()
    if request.driver == "http_json":
        from chimes.targets.sync import http_driver

        return http_driver.synchronise(request, link)
    from chimes.targets.sync import python_driver

    _prepare_user_code(request, link)
    python_driver.synchronise(request, link)
    return None


def _prepare_user_code(request: Request, link: WorkerLink) -> None:
    """Sets up module path, logging and line-buffered output, so that output before a crash is not
    lost."""
    sys.path[:] = [request.directory, *request.path]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    import logging

    logging.basicConfig(
        level=logging.INFO, format="%(name)s: %(message)s", handlers=[LineHandler(link.log)]
    )


class LineHandler(logging.Handler):
    """Writes log records of user code to the task's log."""

    def __init__(self, line: Callable[[str, str], None]) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._line(_level_of(record.levelno), self.format(record))
        except Exception:
            self.handleError(record)


def _level_of(number: int) -> str:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"


if __name__ == "__main__":
    main(sys.argv[1:])
