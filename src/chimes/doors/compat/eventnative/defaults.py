"""What the EventNative door takes for granted."""

from __future__ import annotations

#: Where a key may stand (R4.13): the admin token as its users send it, or a native admin key.
ACCEPTS = ("X-Admin-Token", "?token", "Bearer", "ApiKey", "X-API-Key")
#: Its users know `/api/v1/tasks`, the seed says `/tasks`; both are the same.
PREFIXES = ("/tasks", "/api/v1/tasks")
#: Rows that are read from the store at a time.
PAGE = 500
#: As Go writes a layout: how times are written here (C18).
TIME_LAYOUT = "2006-01-02T15:04:05.000000Z"
#: Who wrote a log entry.
SYSTEM = "chimes"
