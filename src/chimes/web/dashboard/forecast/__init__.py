"""Pages that look ahead: the simulator, and the page for cron expressions."""
