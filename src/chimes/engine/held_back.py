"""Those who asked this node to come back later: nothing is sent to them before (F75)."""

from __future__ import annotations

from datetime import timedelta

from chimes.clock import Clock
from chimes.delivery.base import Result, Retry
from chimes.model.recipient import Channel, Recipient
from chimes.wording import say

#: More than these are not kept in mind; each is asked itself then.
MOST = 10_000


class HeldBack:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[tuple[Channel, str], float] = {}

    def note(self, recipient: Recipient, result: Result) -> None:
        if not isinstance(result, Retry) or not result.holds_back or result.after is None:
            return
        now = self._clock.monotonic()
        if len(self._until) >= MOST:
            self._until = {key: until for key, until in self._until.items() if until > now}
        if len(self._until) < MOST:
            until = now + result.after.total_seconds()
            key = (recipient.channel, recipient.to)
            self._until[key] = max(until, self._until.get(key, until))

    def answer(self, recipient: Recipient) -> Retry | None:
        """What the recipient would say now, if that is known."""
        key = (recipient.channel, recipient.to)
        left = self._until.get(key, 0.0) - self._clock.monotonic()
        if key not in self._until:
            return None
        if left <= 0:
            del self._until[key]
            return None
        return Retry(
            error=say("held back: the other side has asked to be left alone for a while"),
            code="rate_limited",
            after=timedelta(seconds=left),
            holds_back=True,
        )
