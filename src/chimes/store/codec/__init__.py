"""Encodes model values as JSON data and decodes them, for all stores and exports.

Encoding leaves out empty values; decoding uses defaults for missing keys, so that rows stay small
and old rows load, and rejects unknown keys, which would be lost at the next write.
"""
