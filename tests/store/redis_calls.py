"""Counts the calls of a Redis store."""

from __future__ import annotations

import pytest

from chimes.store.redis import RedisStore


class Calls:
    """Counts round trips of a store and records returned."""

    def __init__(self, store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trips = 0
        self.records = 0
        called = store._connections._called

        async def counted(script: object, arguments: object) -> bytes:
            answer = await called(script, arguments)  # type: ignore[arg-type]
            self.trips += 1
            self.records += answer.count(b"schedule_version") + answer.count(b'\\"created_at')
            return answer

        monkeypatch.setattr(store._connections, "_called", counted)

    def reset(self) -> None:
        self.trips = self.records = 0
