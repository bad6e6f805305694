"""Today page: health, timeline, running now, needs attention."""
