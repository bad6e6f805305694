"""Catbird: one read-only list (R2.18)."""
