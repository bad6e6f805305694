"""The store that keeps everything in this process."""

from chimes.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
