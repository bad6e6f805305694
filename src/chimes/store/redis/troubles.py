"""What the driver's errors mean to those above."""

from __future__ import annotations

import redis.exceptions as driver

from chimes.errors import StoreError, StoreLost, StoreReadOnly, StoreUnavailable
from chimes.wording import say

#: What our scripts answer when the store is not the one it was (F41).
LOST = "CHIMESLOST"


def translated(error: Exception, where: str) -> StoreError:
    """An error of the driver as one of ours."""
    said = str(error)
    if said.startswith(LOST) or f" {LOST}" in said:
        return StoreLost(
            say(
                "store_lost: {where} no longer holds what it held: it was emptied or exchanged"
                " (chimes store init --force sets it up anew)",
                where=where,
            ),
            code="store_lost",
        )
    if isinstance(error, driver.AuthenticationError | driver.AuthorizationError):
        return StoreUnavailable(
            say("{where} does not accept the user or password: {said}", where=where, said=said)
        )
    if isinstance(error, driver.NoPermissionError):
        return StoreUnavailable(
            say("{where}: the user lacks a right: {said}", where=where, said=said)
        )
    if isinstance(error, driver.ReadOnlyError):
        return StoreReadOnly(
            say("store_read_only: {where} takes no writes: {said}", where=where, said=said),
            code="store_read_only",
        )
    if isinstance(error, driver.OutOfMemoryError) or "OOM command" in said:
        return StoreUnavailable(
            say("{where} is out of memory: {said}", where=where, said=said), code="store_full"
        )
    if isinstance(error, driver.RedisError | OSError | TimeoutError):
        return StoreUnavailable(
            say(
                "{where} cannot be used now: {said}", where=where, said=said or type(error).__name__
            )
        )
    raise error


def is_trouble(error: BaseException) -> bool:
    """Whether the server or the way to it is at fault."""
    return isinstance(error, driver.RedisError | OSError | TimeoutError)
