"""Notifications: message text, channels and delivery outcomes."""
