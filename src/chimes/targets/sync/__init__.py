"""Sync tasks: one collection of a source, each in a process of its own (R4.2, R4.9)."""
