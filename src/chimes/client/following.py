"""Following the log of a run: the events as they come, again after a lost connection.

Where a follower is stands in `Following`, which never touches a socket, so that the blocking and
the asynchronous client drive one and the same code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from chimes.client.exchange import asked_to_wait, object_of, pauses
from chimes.client.problems import error_of
from chimes.client.requests import path_of
from chimes.client.steps import Call, Reply
from chimes.client.values import LogLine, log_line
from chimes.errors import Unreachable

#: Come back later: the store is away, or too many follow.
_LATER = frozenset({429, 503})


class Following:
    def __init__(self, run_id: str, *, after: int, patience: float) -> None:
        """`patience`: seconds to wait over the tries to come back, counted anew after each that
        brought something."""
        self._run_id = run_id
        self._after = after
        self._patience = patience
        self._left = patience
        self._pauses = pauses()
        self._event: list[str] = []
        self._ended = False

    def ended(self) -> bool:
        """The run has ended and all of its log was read."""
        return self._ended

    @property
    def call(self) -> Call:
        self._event = []
        return Call(
            method="GET",
            path=path_of("runs", self._run_id, "logs"),
            query={"after": str(self._after), "follow": "true"},
            headers={"Accept": "text/event-stream"},
        )

    def line(self, text: str) -> Iterator[LogLine]:
        """One line of the stream; entries come out at the end of an event."""
        if text:
            self._event.append(text)
            return
        event, self._event = self._event, []
        data = "\n".join(_values(event, "data"))
        if _values(event, "event") == ["end"]:
            self._ended = True
        elif data:
            found = json.loads(data)
            if isinstance(found, dict):
                entry = log_line(found)
                self._after = entry.number
                self._left, self._pauses = self._patience, pauses()
                yield entry

    def refused(self, reply: Reply) -> float:
        """How many seconds to wait; raises where waiting does not help."""
        error = error_of(reply.status, object_of(reply), reply.headers)
        if reply.status not in _LATER:
            raise error
        return self._wait(error, asked_to_wait(reply.headers))

    def broken(self, reason: str) -> float:
        """The connection is lost, or the server wants somebody else to be asked."""
        return self._wait(Unreachable(reason), 0.0)

    def _wait(self, error: Exception, least: float) -> float:
        pause = max(next(self._pauses), least)
        if pause > self._left:
            raise error
        self._left -= pause
        return pause


def _values(event: list[str], name: str) -> list[str]:
    prefix = f"{name}:"
    return [
        line.removeprefix(prefix).removeprefix(" ") for line in event if line.startswith(prefix)
    ]
