"""The native door: /api/v1."""
