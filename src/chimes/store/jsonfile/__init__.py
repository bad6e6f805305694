"""The store that keeps everything in one JSON file, in the shape that Ksana's users know."""

from chimes.store.jsonfile.store import JsonFileStore

__all__ = ["JsonFileStore"]
