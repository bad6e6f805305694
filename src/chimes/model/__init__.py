"""Frozen values and pure rules. Nothing here does I/O or reads a clock."""
