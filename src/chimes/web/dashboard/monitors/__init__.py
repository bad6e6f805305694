"""The monitors page."""
