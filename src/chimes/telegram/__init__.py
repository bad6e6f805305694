"""Telegram bot: create and manage schedules from a chat."""
