"""The composition root: the only place that knows concrete adapters."""

from chimes.app.composition import Services, build_services, build_store, open_local
from chimes.app.serving import serve

__all__ = ["Services", "build_services", "build_store", "open_local", "serve"]
