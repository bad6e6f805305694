"""Native HTTP API under /api/v1."""
