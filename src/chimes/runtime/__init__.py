"""Builds and runs a node: the only layer that knows concrete adapters."""
