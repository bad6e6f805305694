"""Handing results over: what a message says, and the channels that carry it."""
