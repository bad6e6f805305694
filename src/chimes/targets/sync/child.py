"""The process of one sync task. Started by a worker, never by hand.

python -m chimes.targets.sync.child SOCKET LIFELINE PARENT
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from chimes.errors import ConfigError, message_of
from chimes.targets.process.channel import Channel
from chimes.targets.process.sanitize import describe_exception, format_traceback
from chimes.targets.process.tree import become_subreaper, die_with_parent, kill_descendants, disable_core_dumps
from chimes.targets.sync.wire import LOG_LIMITS, Answer, Request
from chimes.targets.sync.worker_link import DriverFailure, Tether

_OWN_FOLDER = str(Path(__file__).parent)


def main(arguments: list[str]) -> None:
    descriptor, parent_pipe, parent = (int(each) for each in arguments)
    die_with_parent(parent, parent_pipe)
    disable_core_dumps()
    own = os.getpid()
    channel = Channel(descriptor, LOG_LIMITS)
    request = Request.from_line(channel.request())
    tether = Tether(channel, request)
    become_subreaper()
    answer = carried_out(request, tether)
    # Not from a fork of it that came back from the function, too.
    if os.getpid() == own:
        kill_descendants(own)
        channel.send(answer.to_line())


def carried_out(request: Request, tether: Tether) -> Answer:
    try:
        os.chdir(request.directory)
        return Answer(result=_driven(request, tether))
    except DriverFailure as failure:
        return Answer(code=failure.code, error=message_of(failure))
    except ConfigError as error:
        return Answer(code="bad_config", error=error.message)
    except BaseException as error:
        return Answer(code="exception", error=describe_exception(error), trace=format_traceback(error, _OWN_FOLDER))


def _driven(request: Request, tether: Tether) -> Mapping[str, object] | None:
    """Only what the driver needs is imported: there may be a process every second."""
    if request.driver == "command":
        from chimes.targets.sync import command_driver

        return command_driver.synchronise(request, tether)
    tether.beat_by_itself()
    if request.driver == "http_json":
        from chimes.targets.sync import http_driver

        return http_driver.synchronise(request, tether)
    from chimes.targets.sync import python_driver

    _prepare(request, tether)
    python_driver.synchronise(request, tether)
    return None


def _prepare(request: Request, tether: Tether) -> None:
    """What the operator's own code finds: its modules, output line by line so that what was
    printed before a crash is seen, and log records at their own level."""
    sys.path[:] = [request.directory, *request.path]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    import logging

    logging.basicConfig(
        level=logging.INFO, format="%(name)s: %(message)s", handlers=[LineHandler(tether.log)]
    )


# @@ Log records of the operator's own code as lines of its task's log.


class LineHandler(logging.Handler):
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
