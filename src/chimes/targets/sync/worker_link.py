"""Connection of a driver to its worker, inside the child process of a sync task."""

from __future__ import annotations

import json
import threading

from chimes.i18n import _
from chimes.targets.process.channel import WorkerSocket
from chimes.targets.sync.wire import CheckpointMessage, Heartbeat, Request


class DriverFailure(Exception):
    """Synchronising the collection failed; the message is one line."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Stopped(BaseException):
    """The task was canceled. Not an `Exception`, so that `except Exception` in a function does not
    catch it."""


class WorkerLink:
    """Sends log lines, checkpoints and heartbeats to the worker."""

    def __init__(self, worker: WorkerSocket, request: Request) -> None:
        self._socket = worker
        self._state = request.state
        self._heartbeat_seconds = request.heartbeat_seconds
        self._max_state_length = request.max_state_length

    def log(self, level: str, message: str) -> None:
        self._socket.line(level, message)

    @property
    def max_message_bytes(self) -> int:
        """Bytes of the JSON line with the largest state, its escapes and framing."""
        return 2 * self._max_state_length

    @property
    def log_is_full(self) -> bool:
        return self._socket.log_is_full

    def save_checkpoint(self, value: object) -> bool:
        """Sends the state for the next run; returns whether it differs from the last one. Raises
        DriverFailure if it cannot be stored."""
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise DriverFailure(
                "bad_state", _("the state is not JSON serializable: {error}", error=str(error))
            ) from None
        if len(text) > self._max_state_length:
            raise DriverFailure(
                "state_too_large",
                _(
                    "the state is {count} characters of JSON; the limit is {longest}",
                    count=len(text),
                    longest=self._max_state_length,
                ),
            )
        if text == self._state:
            return False
        self._state = text
        self._socket.send(CheckpointMessage(text).to_line())
        return True

    def send_heartbeat(self) -> None:
        self._socket.send(Heartbeat().to_line())

    def start_heartbeats(self) -> None:
        """Sends heartbeats from a thread. A function that waits counts as alive; one that is
        stopped or holds the GIL does not."""

        def send_heartbeats() -> None:
            pause = threading.Event()
            while True:
                try:
                    self.send_heartbeat()
                except OSError:
                    return
                pause.wait(self._heartbeat_seconds)

        threading.Thread(target=send_heartbeats, name="chimes-heartbeat", daemon=True).start()
