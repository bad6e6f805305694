"""A limit on what happens within any minute, counted exactly, in this process."""

from __future__ import annotations

from collections import OrderedDict, deque
from datetime import datetime, timedelta

MINUTE = timedelta(minutes=1)
_MOST_CHATS = 10_000


class MinuteWindow:
    """The bucket that nodes share lets through a burst and what comes in meanwhile; this one sees
    to it that a chat gets no more than its number in any minute (R1.37)."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._seen: OrderedDict[str, deque[datetime]] = OrderedDict()

    def wait(self, chat_id: str, now: datetime) -> timedelta | None:
        """None: it may go on, and was counted; otherwise when it may."""
        seen = self._seen.setdefault(chat_id, deque())
        self._seen.move_to_end(chat_id)
        while seen and now - seen[0] >= MINUTE:
            seen.popleft()
        if len(seen) >= self._per_minute:
            return seen[0] + MINUTE - now
        seen.append(now)
        while len(self._seen) > _MOST_CHATS:
            self._seen.popitem(last=False)
        return None
