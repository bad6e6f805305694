"""Which page comes next, and where in a body things stand; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from chimes.targets.sync.failures import DriverFailure
from chimes.targets.sync.http_config import Pagination
from chimes.wording import say

Record = Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """A page: parameters besides those of the URL, or another URL altogether."""

    params: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    #: Page number or offset.
    number: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    records: Sequence[Record]
    body: object
    #: Of the Link header with rel=next; empty if there is none.
    link: str = ""


def first_page(pagination: Pagination) -> Position:
    match pagination.style:
        case "page":
            return _numbered(pagination, pagination.start)
        case "offset":
            return _numbered(pagination, 0)
        case _:
            return Position()


def page_after(pagination: Pagination, at: Position, page: Page) -> Position | None:
    """None: that was the last one."""
    match pagination.style:
        case "page" | "offset":
            count = len(page.records)
            if count == 0 or count < pagination.size:
                return None
            return _numbered(pagination, at.number + (1 if pagination.style == "page" else count))
        case "next":
            return _told(pagination, value_at(page.body, pagination.path))
        case "link":
            return Position(link=page.link) if page.link else None
        case _:
            return None


def _numbered(pagination: Pagination, number: int) -> Position:
    params = {pagination.parameter: str(number)}
    if pagination.size_parameter and pagination.size:
        params[pagination.size_parameter] = str(pagination.size)
    return Position(params=params, number=number)


def _told(pagination: Pagination, found: object) -> Position | None:
    if found is None or found is False or found == "":
        return None
    if not isinstance(found, str | int):
        where = ".".join(pagination.path)
        raise DriverFailure("bad_answer", say("{where}: expected a link or a token", where=where))
    if pagination.parameter:
        return Position(params={pagination.parameter: str(found)})
    return Position(link=str(found))


def value_at(value: object, path: Sequence[str]) -> object:
    """What stands at `a.b.c`; None if there is nothing."""
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def records_in(body: object, path: Sequence[str]) -> Sequence[Record]:
    where = ".".join(path)
    found = value_at(body, path)
    if not isinstance(found, list):
        raise DriverFailure(
            "bad_answer",
            say("expected a list of records at {path} of the answer", path=where)
            if where
            else say("expected a list of records as the body of the answer"),
        )
    for each in found:
        if not isinstance(each, dict):
            raise DriverFailure(
                "bad_answer",
                say("expected objects in the list at {path} of the answer", path=where)
                if where
                else say("expected objects in the list as the body of the answer"),
            )
    return found


def higher(one: object, other: object) -> object:
    """The later of two values of a cursor's field; None is before everything."""
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, str) and isinstance(other, str):
        return max(one, other)
    if _is_number(one) and _is_number(other):
        return max(one, other)
    raise DriverFailure(
        "bad_cursor", say("the cursor's field is neither always text nor always a number")
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
