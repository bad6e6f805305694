"""Shared parts of all dashboard pages: requests, sessions, forms, filters, templates."""
