"""Bulk actions of the lists: on selected objects or on all that match the filter. The result page
of a request continues with the next request (`chimes.web.bulk`)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from chimes.errors import ChimesError
from chimes.i18n import Message, _
from chimes.model.listing import Page, Position
from chimes.model.run import RunStatus
from chimes.web import bulk
from chimes.web.bulk import Fetch, fetch_selected, offset_of
from chimes.web.dashboard.core.page_request import PageRequest, form_error_from

T = TypeVar("T")
_CHANGE = _("Change")
__all__ = [
    "BulkAction",
    "Fetch",
    "Outcome",
    "Work",
    "fetch_pages",
    "fetch_selected",
    "next_fields",
    "offset_of",
    "one_by_one",
    "process",
]


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


#: Processes a batch; the number counts the objects before it.
Work = bulk.Work[T, Outcome]


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
    return bulk.fetch_pages(json.dumps([request.form.text("verb"), request.form.text("q")]), find)


async def process(
    request: PageRequest,
    fetch: Fetch[T],
    work: Work[T],
    *,
    limit: int,
    cursor: str,
    done: int = 0,
) -> tuple[list[Outcome], str]:
    return await bulk.process(
        request.context.clock, fetch, work, limit=limit, cursor=cursor, done=done
    )


def next_fields(request: PageRequest, **progress: object) -> list[tuple[str, str]]:
    """Fields of the form that continues the action."""
    fields = request.form.repeated(*progress)
    return [*fields, ("sure", "yes"), *((name, str(value)) for name, value in progress.items())]
