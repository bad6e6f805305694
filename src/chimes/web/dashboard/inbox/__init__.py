"""Inbox page: messages that schedules delivered."""
