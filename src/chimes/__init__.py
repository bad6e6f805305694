"""Chimes: durable schedules, one run per slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chimes.triggers import Cron, Every, Once

__all__ = ["Cron", "Every", "Once", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Triggers are loaded when they are asked for: client commands start without them."""
    if name in ("Cron", "Every", "Once"):
        from chimes import triggers

        return getattr(triggers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
