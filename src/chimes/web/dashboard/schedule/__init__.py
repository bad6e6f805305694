"""Page of one schedule: next fires, charts, fire log, definition and versions."""
