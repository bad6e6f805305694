"""Lists of action schedules: what is asked for, in which order, and which part of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chimes.doors.compat.kweaver.facts import ACTION
from chimes.doors.compat.kweaver.wire import Place, checked_status
from chimes.errors import InvalidInput
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.schedule import Schedule
from chimes.triggers.moment import to_microseconds
from chimes.wording import say

MOST_LISTED = 1000
#: The limit that means all of them.
ALL = -1
_NUMBER = re.compile(r"-?[0-9]{1,15}")
_DIRECTIONS = ("desc", "asc")
#: None: no store has this order.
_SORTS: Mapping[str, ScheduleSort | None] = {
    "create_time": ScheduleSort.CREATED_AT,
    "update_time": ScheduleSort.UPDATED_AT,
    "next_run_time": ScheduleSort.NEXT_RUN_AT,
    "last_run_time": None,
    "name": ScheduleSort.NAME,
}


SORTED_BY = tuple(_SORTS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What GET asks for (R0.26)."""

    name_pattern: str
    action_type_id: str
    #: None: both.
    active: bool | None
    offset: int
    #: None: all of them.
    limit: int | None
    sort: str
    descending: bool

    def query(self, place: Place) -> ScheduleQuery:
        """Of all that match; in the order that is asked for where `in_order`."""
        fields = place.fields
        if self.action_type_id:
            fields += (("action_type_id", self.action_type_id),)
        return ScheduleQuery(
            kind=ACTION,
            target=fields,
            text=self.name_pattern or None,
            enabled=self.active,
            sort=_SORTS[self.sort] or ScheduleSort.CREATED_AT,
            descending=self.descending,
            limit=None,
        )

    @property
    def in_order(self) -> bool:
        """Whether a store has this order. Where there is no next run it is 0 here, and comes first
        in an ascending list; a store has it last."""
        if self.sort == "next_run_time":
            return self.descending
        return _SORTS[self.sort] is not None

    @property
    def until(self) -> int | None:
        """How many have to be read if they come in order; None: all."""
        return None if self.limit is None else self.offset + self.limit

    def part(self, found: Sequence[Schedule]) -> Sequence[Schedule]:
        """The part that is asked for, of all that match or of enough of them in order."""
        if not self.in_order:
            found = sorted(found, key=self._value, reverse=self.descending)
        return found[self.offset : self.until]

    def _value(self, schedule: Schedule) -> tuple[int, str]:
        moment = schedule.last_run_at if self.sort == "last_run_time" else schedule.next_run_at
        return 0 if moment is None else to_microseconds(moment), schedule.id


def listing_from(given: Mapping[str, str]) -> Listing:
    """InvalidInput, with a code for each of them."""
    offset = _number(given.get("offset") or "0")
    if offset is None or offset < 0:
        raise _wrong(say("offset must be a number, 0 or more"), "offset")
    limit = _number(given.get("limit") or "10")
    if limit is None or (limit != ALL and not 1 <= limit <= MOST_LISTED):
        raise _wrong(say("limit must be -1 or lie between 1 and {most}", most=MOST_LISTED), "limit")
    sort = given.get("sort") or "create_time"
    if sort not in _SORTS:
        raise _wrong(say("sort must be one of {known}", known=", ".join(SORTED_BY)), "sort")
    direction = given.get("direction") or "desc"
    if direction not in _DIRECTIONS:
        raise _wrong(say("direction must be desc or asc"), "direction")
    status = given.get("status") or ""
    return Listing(
        name_pattern=given.get("name_pattern", ""),
        action_type_id=given.get("action_type_id", ""),
        active=checked_status(status) if status else None,
        offset=offset,
        limit=None if limit == ALL else limit,
        sort=sort,
        descending=direction == "desc",
    )


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _wrong(message: str, name: str) -> InvalidInput:
    return InvalidInput(message, field=name, code=f"invalid_{name}", source="query")
