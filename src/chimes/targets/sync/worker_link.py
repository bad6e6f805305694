"""What a driver has to do with its worker, inside the process of a task."""

from __future__ import annotations

import json
import threading

from chimes.i18n import _
from chimes.targets.process.channel import Channel
from chimes.targets.sync.wire import Heartbeat, Kept, Request

# @@ How a driver says, inside the process of a task, that it could not do what was asked.


class DriverFailure(Exception):
    """The collection was not synchronised; the message says why, in a line."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Stopped(BaseException):
    """The task was told to stop. No `Exception`, so that the `except Exception` of a function lets
    it pass."""


class Tether:
    """`log` for lines, `keep` for state, `beat` for a sign of life."""

    def __init__(self, channel: Channel, request: Request) -> None:
        self._channel = channel
        self._state = request.state
        self._every = request.beat
        self._longest = request.longest_state

    def log(self, level: str, message: str) -> None:
        self._channel.line(level, message)

    @property
    def longest_message(self) -> int:
        """Bytes of the line of JSON that holds the largest state, its escapes and its frame."""
        return 2 * self._longest

    @property
    def log_is_full(self) -> bool:
        return self._channel.full

    def keep(self, value: object) -> bool:
        """State for the next run, at once; whether it is another than the one kept last. Raises
        DriverFailure for what cannot be kept."""
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise DriverFailure(
                "bad_state", _("the state has no form in JSON: {error}", error=str(error))
            ) from None
        if len(text) > self._longest:
            raise DriverFailure(
                "state_too_large",
                _(
                    "the state is {count} characters of JSON, more than {longest}",
                    count=len(text),
                    longest=self._longest,
                ),
            )
        if text == self._state:
            return False
        self._state = text
        self._channel.send(Kept(text).to_line())
        return True

    def beat(self) -> None:
        self._channel.send(Heartbeat().to_line())

    def beat_by_itself(self) -> None:
        """From a thread of its own, as long as the interpreter gives it turns: a function that
        waits is alive, one that is stopped or holds the interpreter is not."""

        def beats() -> None:
            pause = threading.Event()
            while True:
                try:
                    self.beat()
                except OSError:
                    return
                pause.wait(self._every)

        threading.Thread(target=beats, name="chimes-beat", daemon=True).start()
