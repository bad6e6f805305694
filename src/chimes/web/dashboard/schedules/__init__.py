"""Schedules page: list, bulk actions, import, month view."""
