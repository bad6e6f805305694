"""What a row is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from suite.postgres import Postgres
from suite.report import Line


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    postgres: Postgres
    rounds: int
    #: The longer mode: more of everything, slow peers run to their end.
    long: bool


Row = Callable[[Bench], list[Line]]
