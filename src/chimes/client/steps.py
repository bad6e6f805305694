"""What a verb wants from the outside world, step by step.

A verb is a generator that yields what is to be done and is sent what came of it. It never touches
a socket, so that the blocking and the asynchronous client drive one and the same code.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    method: str
    #: Below /api/v1.
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The connection failed; whether the server has done something is not known."""

    reason: str


#: Send a Call to get a Reply or NoAnswer, a Wait to get None.
Steps = Generator[Call | Wait, Reply | NoAnswer | None, T]
