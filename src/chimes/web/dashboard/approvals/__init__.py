"""Approvals page."""
