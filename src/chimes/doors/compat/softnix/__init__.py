"""The Softnix door: prompts by time under /schedules (R1.16–R1.24)."""
