"""Conversion between model values and table rows."""
