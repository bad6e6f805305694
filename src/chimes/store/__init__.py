"""The store port, and the adapters behind it."""
