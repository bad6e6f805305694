"""Sync tasks: one collection of a source, each in its own process."""
