"""The input of a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from suite.postgres import Postgres
from suite.report import Line


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    postgres: Postgres
    rounds: int
    #: Larger counts; slow peers run to their end.
    long: bool


Row = Callable[[Bench], list[Line]]
