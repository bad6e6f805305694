"""Actions on many objects: on chosen ones, or on all that match a filter.

A request processes batches for a few seconds and returns a cursor, with which the next request
continues. An error for one object does not stop the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from chimes.clock import Clock
from chimes.errors import InvalidInput, StoreError
from chimes.i18n import _
from chimes.model.listing import Page, Position
from chimes.web.api.paging import decode_cursor, encode_cursor

T = TypeVar("T")
Result = TypeVar("Result")
Id = TypeVar("Id", bound=str)
#: Seconds after which a request starts no further batch.
MAX_SECONDS = 8.0
#: Objects per batch, which may be one transaction.
BATCH_SIZE = 100

#: Returns the objects at a cursor, at most that many, and the next cursor: empty at the end.
Fetch = Callable[[str, int], Awaitable[tuple[Sequence[T], str]]]
#: Processes a batch; the number counts the objects before it.
Work = Callable[[Sequence[T], int], Awaitable[list[Result]]]


def fetch_pages(scope: str, find: Callable[[Position | None, int], Awaitable[Page[T]]]) -> Fetch[T]:
    """Fetches matching objects. A cursor is valid within its scope only."""

    async def fetch(cursor: str, size: int) -> tuple[Sequence[T], str]:
        page = await find(decode_cursor(cursor or None, scope, numbers=True), size)
        return page.items, "" if page.next is None else encode_cursor(page.next, scope)

    return fetch


def fetch_selected(
    ids: Sequence[Id], find: Callable[[Sequence[Id]], Awaitable[Sequence[T]]]
) -> Fetch[T]:
    """Fetches chosen objects; the cursor is the number of those before."""

    async def fetch(cursor: str, size: int) -> tuple[Sequence[T], str]:
        place = offset_of(cursor)
        following = str(place + size) if place + size < len(ids) else ""
        return await find(ids[place : place + size]), following

    return fetch


def offset_of(cursor: str) -> int:
    """The number in a cursor; 0 without a cursor."""
    if len(cursor) > 18 or not (cursor or "0").isdecimal():
        raise InvalidInput(
            _("the cursor is not one of this action"), field="cursor", code="bad_cursor"
        )
    return int(cursor or 0)


async def process(
    clock: Clock,
    fetch: Fetch[T],
    work: Work[T, Result],
    *,
    limit: int,
    cursor: str,
    done: int = 0,
) -> tuple[list[Result], str]:
    """Processes batches until there are `limit` results or the time of the request is used up.

    Returns the results and the cursor of the rest. After a store error these are the results so
    far, so that the caller can continue. `done` counts the objects of earlier requests."""
    results: list[Result] = []
    deadline = clock.monotonic() + MAX_SECONDS
    while (left := limit - len(results)) > 0:
        try:
            batch, following = await fetch(cursor, min(BATCH_SIZE, left))
            results += await work(batch, done + len(results))
        except StoreError:
            if not results:
                raise
            break
        cursor = following
        if not cursor or clock.monotonic() >= deadline:
            break
    return results, cursor
