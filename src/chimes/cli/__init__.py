"""The command line. Nothing is imported before a command needs it: start-up is what people feel."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    from chimes.cli.root import run

    sys.exit(run(sys.argv[1:] if arguments is None else arguments))
