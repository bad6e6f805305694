"""Runs page: list, filters, bulk actions, export."""
