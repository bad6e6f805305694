"""Waiting for a run, and following its log, by asking again."""

from __future__ import annotations

import time
from collections.abc import Iterator

from chimes.cli.backend import Backend, get, items_of, path_of
from chimes.cli.failure import OK, RUN_FAILED, TIMED_OUT, UNREACHABLE, Failure
from chimes.cli.output import Json
from chimes.cli.words import RUN_STATUSES
from chimes.clock import SystemClock
from chimes.wording import say

#: Soon at first, for runs that end at once, then with patience.
_PAUSES = (0.05, 0.1, 0.2, 0.4)
_LONGEST_PAUSE = 1.0
#: How long a server may be away while we wait for something.
_RESTART = 60.0
_ENDED = frozenset({"succeeded", "failed", "timeout", "canceled", "skipped", "missed", "unknown"})


def ended(run: Json) -> bool:
    return run.get("status") in _ENDED


def exit_code_of(run: Json) -> int:
    return OK if run.get("status") == "succeeded" else RUN_FAILED


def wait_for(backend: Backend, run_id: str, timeout: str) -> Json:
    """The run once it has ended; a Failure with 124 when that takes too long."""
    from chimes.triggers import parse_duration

    clock = SystemClock()
    until = clock.monotonic() + parse_duration(timeout, field="--timeout").total_seconds()
    for pause in _pauses():
        run = _asked(backend, path_of("runs", run_id))
        if ended(run):
            return run
        if clock.monotonic() + pause > until:
            raise Failure(
                say(
                    "The run {id} is still {status} after {timeout}",
                    id=run_id,
                    status=RUN_STATUSES.get(str(run.get("status")), run.get("status")),
                    timeout=timeout,
                ),
                TIMED_OUT,
                hint=say("it goes on; see `chimes logs {id} -f`", id=run_id),
            )
        time.sleep(pause)
    raise AssertionError("pauses never end")


def log_lines(backend: Backend, run_id: str, *, follow: bool) -> Iterator[Json]:
    """The entries of a run's log; with `follow`, until the run has ended."""
    last = 0
    for pause in _pauses():
        # Asked before the log: what is written after an end that we saw is not missed.
        run = _asked(backend, path_of("runs", run_id)) if follow else {}
        more = True
        while more:
            page = _asked(backend, path_of("runs", run_id, "logs"), after=last or None)
            for entry in items_of(page):
                last = max(last, _number(entry))
                yield entry
            more = page.get("next_after") is not None
        if not follow or ended(run):
            return
        time.sleep(pause)


def _asked(backend: Backend, path: str, **query: object) -> Json:
    """The answer, also of a server that is just being restarted."""
    clock = SystemClock()
    until = clock.monotonic() + _RESTART
    while True:
        try:
            return get(backend, path, **query)
        except Failure as failure:
            if failure.code != UNREACHABLE or clock.monotonic() > until:
                raise
        time.sleep(_LONGEST_PAUSE / 4)


def _number(entry: Json) -> int:
    number = entry.get("number")
    return number if isinstance(number, int) else 0


def _pauses() -> Iterator[float]:
    yield from _PAUSES
    while True:
        yield _LONGEST_PAUSE
