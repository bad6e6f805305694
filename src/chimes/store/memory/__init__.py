"""In-memory store."""

from chimes.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
