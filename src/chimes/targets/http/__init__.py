"""HTTP callbacks: one attempt is one request to a checked address within one deadline."""

from chimes.targets.http.runner import HttpCallback

__all__ = ["HttpCallback"]
