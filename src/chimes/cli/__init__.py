"""Command line. Commands are imported when they are called, which keeps the start fast."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    from chimes.cli.command import run

    sys.exit(run(sys.argv[1:] if arguments is None else arguments))
