"""Commands that start, configure, check and administer nodes."""
