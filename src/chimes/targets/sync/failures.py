"""How a driver says, inside the process of a task, that it could not do what was asked."""

from __future__ import annotations


class DriverFailure(Exception):
    """The collection was not synchronised; the message says why, in a line."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Stopped(BaseException):
    """The task was told to stop. No `Exception`, so that the `except Exception` of a function lets
    it pass."""
