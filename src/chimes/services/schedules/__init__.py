"""Schedules: the service, its rules and history, and the ways to define a schedule."""
