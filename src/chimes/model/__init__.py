"""Frozen values and the pure rules over them. Nothing in here does I/O or reads a clock."""
