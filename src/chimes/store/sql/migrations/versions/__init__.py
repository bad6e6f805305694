"""Schema revisions, one module each."""
