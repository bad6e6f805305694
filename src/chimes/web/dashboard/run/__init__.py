"""Page of one run: attempts, log, result and actions."""
