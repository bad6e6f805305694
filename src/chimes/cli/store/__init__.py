"""Commands for the store and its secrets."""
