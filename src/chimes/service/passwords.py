"""Passwords: argon2id with the least that OWASP recommends (RELIABILITY 8)."""

from __future__ import annotations

import asyncio

SHORTEST, LONGEST = 10, 200
#: Each costs 19 MiB: a crowd at the door must not be one in memory.
_AT_ONCE = 2


class Passwords:
    """Hashing and checking, in threads and few at a time."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._decoy = ""

    async def hashed(self, password: str) -> str:
        async with self._room:
            return await asyncio.to_thread(_hashed, password)

    async def matches(self, stored: str | None, password: str) -> bool:
        """None: there is no such user, which takes as long to find out (S51)."""
        if not self._decoy:
            self._decoy = await self.hashed("nobody has this one")
        async with self._room:
            found = await asyncio.to_thread(_matches, stored or self._decoy, password)
        return found and stored is not None


def _hashed(password: str) -> str:
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1).hash(password)


def _matches(stored: str, password: str) -> bool:
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return PasswordHasher().verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
