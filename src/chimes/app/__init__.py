"""The composition root: the only place that knows concrete adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chimes.app.composition import Services, build_services, build_store, open_local
    from chimes.app.loading import load_app
    from chimes.app.sdk import Chimes
    from chimes.app.serving import serve

__all__ = [
    "Chimes",
    "Services",
    "build_services",
    "build_store",
    "load_app",
    "open_local",
    "serve",
]

_HOMES = {"Chimes": "sdk", "load_app": "loading", "serve": "serving"}


def __getattr__(name: str) -> object:
    """Loaded when asked for: an application that only enqueues needs no server."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'composition')}"), name)
