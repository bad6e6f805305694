"""Store in one JSON file, in Ksana's format."""

from chimes.store.jsonfile.store import JsonFileStore

__all__ = ["JsonFileStore"]
