"""Compatibility APIs: each translates the API of an older system and adds no behaviour."""
