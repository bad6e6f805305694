"""EventNative: tasks that synchronise collections of sources (R4.13–R4.18)."""
