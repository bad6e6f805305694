"""Storage port and its adapters."""
