"""Use cases: what a door may ask for, with access, quotas and audit on the way."""
