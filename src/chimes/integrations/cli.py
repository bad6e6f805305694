"""The `chimes` command inside the command line of a web framework."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from chimes.config.loader import DEFAULT
from chimes.runtime.app_loader import load_app


def run_command(arguments: Sequence[str], path: str, *, setting: str) -> NoReturn:
    """Runs `chimes ARGUMENTS` for the application of the project, on its store unless the operator
    configured another; exits with its code."""
    from chimes.cli import main

    loaded = load_app(path, setting=setting).load()
    os.environ.setdefault("CHIMES_APP", path)
    if loaded.origins["store"] == DEFAULT and loaded.settings.store:
        os.environ["CHIMES_STORE"] = loaded.settings.store
    main(list(arguments))
