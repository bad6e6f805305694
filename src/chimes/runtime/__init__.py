"""The composition root: the only place that knows concrete adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chimes.runtime.app_loader import load_app
    from chimes.runtime.composition import Services, build_services, build_store, open_local
    from chimes.runtime.serve import serve
    from chimes.sdk.app import Chimes


__all__ = [
    "Chimes",
    "Services",
    "build_services",
    "build_store",
    "load_app",
    "open_local",
    "serve",
]

_HOMES = {
    "Chimes": "chimes.sdk.app",
    "load_app": "chimes.runtime.app_loader",
    "serve": "chimes.runtime.serve",
}
_DEFAULT_HOME = "chimes.runtime.composition"


def __getattr__(name: str) -> object:
    """Loaded when asked for: an application that only enqueues needs no server."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, _DEFAULT_HOME)), name)
