"""Where in the application's code a call stands."""

from __future__ import annotations

import sys
from pathlib import PurePath
from types import FrameType

_OURS = __name__.rpartition(".")[0]


def calling_code() -> str:
    """Of the nearest caller that is not this package, as `shop/tasks.py:12`: as much of the path
    as its module's name has parts, so that it is the same on every machine. Empty: not known."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module_of(frame).startswith(f"{_OURS}."):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{short_path(frame.f_code.co_filename, _module_of(frame))}:{frame.f_lineno}"


def short_path(path: str, module: str) -> str:
    """`/srv/shop/tasks.py` of the module `shop.tasks` is `shop/tasks.py`."""
    parts = PurePath(path).parts
    count = module.count(".") + 1 + (PurePath(path).stem == "__init__")
    return "/".join(parts[-count:])


def _module_of(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if isinstance(name, str) else ""
