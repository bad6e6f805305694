"""Bulk actions of the lists: on selected objects or on all that match the filter.

A request processes batches for a few seconds; its result page continues with the next request. An
error for one object does not stop the others.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from chimes.errors import ChimesError, InvalidInput, StoreError
from chimes.i18n import Message, _
from chimes.model.listing import Page, Position
from chimes.model.run import RunStatus
from chimes.web.api.paging import decode_cursor, encode_cursor
from chimes.web.dashboard.core.page_request import PageRequest, form_error_from

T = TypeVar("T")
Id = TypeVar("Id", bound=str)
#: Seconds after which a request starts no further batch.
MAX_SECONDS = 8.0
#: Objects per batch, which may be one transaction.
BATCH_SIZE = 100
_CHANGE = _("Change")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Result for one object."""

    id: str
    name: str
    #: Empty: it succeeded.
    error: str = ""
    #: What was done.
    text: str = ""
    #: URL of the result, such as the run.
    address: str = ""
    #: Not processed because of the limit.
    over_limit: bool = False
    #: Status of a run before the action.
    status: RunStatus | None = None

    def failed(self, error: ChimesError) -> Outcome:
        return replace(self, error=form_error_from(error).message)


#: Returns the objects at a cursor, at most that many, and the next cursor: empty at the end.
Fetch = Callable[[str, int], Awaitable[tuple[Sequence[T], str]]]
#: Processes a batch; the number counts the objects before it.
Work = Callable[[Sequence[T], int], Awaitable[list[Outcome]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkAction(Generic[T]):
    #: Question of the confirm dialog, from the number of objects.
    title: Callable[[int], Message]
    #: Reads the form. InvalidInput, before any object is changed, if it is incomplete.
    prepare: Callable[[PageRequest], Work[T]]
    button: Message = _CHANGE
    dangerous: bool = False
    #: The action that undoes this one; empty: none.
    undo: str = ""


def one_by_one(
    act: Callable[[T, int], Awaitable[Outcome]], describe: Callable[[T], Outcome]
) -> Work[T]:
    """Processes each object with its place; `describe` names those that fail."""

    async def work(batch: Sequence[T], place: int) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for number, each in enumerate(batch, place):
            try:
                outcomes.append(await act(each, number))
            except ChimesError as error:
                outcomes.append(describe(each).failed(error))
        return outcomes

    return work


def fetch_pages(
    request: PageRequest, find: Callable[[Position | None, int], Awaitable[Page[T]]]
) -> Fetch[T]:
    """Fetches matching objects. A cursor is valid for one action and filter only."""
    scope = json.dumps([request.form.text("verb"), request.form.text("q")])

    async def fetch(cursor: str, size: int) -> tuple[Sequence[T], str]:
        page = await find(decode_cursor(cursor or None, scope, numbers=True), size)
        return page.items, "" if page.next is None else encode_cursor(page.next, scope)

    return fetch


def fetch_selected(
    ids: Sequence[Id], find: Callable[[Sequence[Id]], Awaitable[Sequence[T]]]
) -> Fetch[T]:
    async def fetch(cursor: str, size: int) -> tuple[Sequence[T], str]:
        place = offset_of(cursor)
        following = str(place + size) if place + size < len(ids) else ""
        return await find(ids[place : place + size]), following

    return fetch


def offset_of(cursor: str) -> int:
    """The number in a cursor; 0 without a cursor."""
    if len(cursor) > 18 or not (cursor or "0").isdecimal():
        raise InvalidInput(_("the form cannot be read"), code="bad_form")
    return int(cursor or 0)


async def process(
    request: PageRequest,
    fetch: Fetch[T],
    work: Work[T],
    *,
    limit: int,
    cursor: str,
    done: int = 0,
) -> tuple[list[Outcome], str]:
    """Processes batches until there are `limit` outcomes or the time of the request is used up.

    Returns the outcomes and the cursor of the rest. After a store error these are the outcomes so
    far, so that the user can continue. `done` counts the objects of earlier requests."""
    outcomes: list[Outcome] = []
    clock = request.context.clock
    deadline = clock.monotonic() + MAX_SECONDS
    while (left := limit - len(outcomes)) > 0:
        try:
            batch, following = await fetch(cursor, min(BATCH_SIZE, left))
            outcomes += await work(batch, done + len(outcomes))
        except StoreError:
            if not outcomes:
                raise
            break
        cursor = following
        if not cursor or clock.monotonic() >= deadline:
            break
    return outcomes, cursor


def next_fields(request: PageRequest, **progress: object) -> list[tuple[str, str]]:
    """Fields of the form that continues the action."""
    fields = request.form.repeated(*progress)
    return [*fields, ("sure", "yes"), *((name, str(value)) for name, value in progress.items())]
