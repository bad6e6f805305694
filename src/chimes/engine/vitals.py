"""What a node tells of itself with its heartbeat."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.process_collector import ProcessCollector

from chimes.clock import Clock
from chimes.engine.hands import Hands
from chimes.engine.membership import Membership
from chimes.model.node import NodeFacts

_MEMORY = "process_resident_memory_bytes"


class Vitals:
    """Called by the thread of the heartbeat only: whatever it reads of others is one number."""

    def __init__(
        self,
        hands: Hands,
        membership: Membership,
        clock: Clock,
        queues: tuple[str, ...],
        sending: Callable[[], int],
    ) -> None:
        self._hands = hands
        self._membership = membership
        self._clock = clock
        self._queues = queues
        self._sending = sending
        self._process = ProcessCollector(registry=None)
        self._last = clock.monotonic(), 0

    def __call__(self) -> NodeFacts:
        return NodeFacts(
            running=self._hands.count,
            sending=self._sending(),
            claims_per_minute=self._rate(),
            memory=self._memory(),
            queues=self._queues,
            draining=self._membership.draining,
        )

    def _rate(self) -> float:
        now, taken = self._clock.monotonic(), self._hands.taken
        (then, before), self._last = self._last, (now, taken)
        return round((taken - before) * 60 / (now - then), 2) if now > then else 0.0

    def _memory(self) -> int | None:
        """Where there is no /proc, nobody knows."""
        for family in self._process.collect():
            if family.name == _MEMORY:
                return int(family.samples[0].value)
        return None
