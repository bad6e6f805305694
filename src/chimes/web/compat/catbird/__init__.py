"""Catbird compatibility API: one read-only list of schedules."""
