"""The sources that this node knows."""

from __future__ import annotations

from chimes.model.source import Sources


class KnownSources:
    """Those of this node's file as it was last read: a reload puts others in their place."""

    def __init__(self, sources: Sources | None = None) -> None:
        self._sources = sources or Sources()

    @property
    def now(self) -> Sources:
        """A frozen value: whoever goes on for a while takes it once."""
        return self._sources

    def put(self, sources: Sources) -> None:
        self._sources = sources
