"""Pagination with opaque cursors, and the query parameters of the lists."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import Position, RunQuery, RunSort, ScheduleQuery, ScheduleSort
from chimes.model.run import Origin, RunStatus
from chimes.services.filters import (
    MAX_LENGTH,
    RUN_NAMES,
    SCHEDULE_NAMES,
    RunFilter,
    read_filter,
    run_filter,
    schedule_filter,
    sorts_by_name,
)
from chimes.triggers import parse_moment
from chimes.triggers.values import FIRST_YEAR, LAST_YEAR, place, suggest_name
from chimes.triggers.zones import parse_zone
from chimes.web.api.schemas import unknown_field

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
_MAX_CURSOR_LENGTH = 2000
_MAX_NUMBER = 2**63 - 1
Item = TypeVar("Item")


def cursor_scope(request: Request) -> str:
    """The path and query parameters that a cursor is bound to."""
    query = sorted(
        pair for pair in request.query_params.multi_items() if pair[0] not in ("cursor", "limit")
    )
    return json.dumps([request.url.path, query])


def encode_cursor(position: Position, scope: str) -> str:
    content = json.dumps([*position, _checksum(position, scope)], separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, scope: str, *, numbers: bool) -> Position | None:
    """`numbers`: the sort value is a number (a moment), not text."""
    if cursor is None:
        return None
    if len(cursor) > _MAX_CURSOR_LENGTH:
        raise _bad_cursor()
    try:
        content = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        value, row, check = json.loads(content)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise _bad_cursor() from None
    expected = int if numbers else str
    valid = value is None or (isinstance(value, expected) and not isinstance(value, bool))
    if not valid or not isinstance(row, str) or check != _checksum((value, row), scope):
        raise _bad_cursor()
    if isinstance(value, int) and not -_MAX_NUMBER <= value <= _MAX_NUMBER:
        raise _bad_cursor()
    return value, row


def page(
    request: Request, items: Sequence[object], next_position: Position | None, **more: object
) -> JSONResponse:
    """A page response. `more`: further members beside the items."""
    cursor = None if next_position is None else encode_cursor(next_position, cursor_scope(request))
    answer = JSONResponse({"items": list(items), "next_cursor": cursor} | more)
    if cursor is not None:
        next_url = request.url.include_query_params(cursor=cursor)
        link = f"{next_url.path}?{next_url.query}"
        answer.headers["Link"] = f'<{link}>; rel="next"'
    return answer


def _checksum(position: Position, scope: str) -> str:
    """A checksum against mistakes; a forged cursor would only start the page elsewhere."""
    content = json.dumps([position, scope])
    return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()


def _bad_cursor() -> InvalidInput:
    return InvalidInput(
        _("this cursor does not belong to this list; start again without a cursor"),
        field="cursor",
        code="bad_cursor",
        source="query",
    )


Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
Number = Annotated[int, Field(ge=0, le=2**53)]
Word = Annotated[str, Field(max_length=200)]
FilterText = Annotated[str, Field(max_length=MAX_LENGTH)]
QueryStruct = TypeVar("QueryStruct", ScheduleQuery, RunQuery)
_OWNER_PATTERN = f"^({'|'.join(OwnerType)}):"
OwnerWord = Annotated[
    str,
    Field(
        max_length=200,
        description="type:id, for example user:alice",
        json_schema_extra={"pattern": _OWNER_PATTERN},
    ),
]
Sort = TypeVar("Sort", ScheduleSort, RunSort)


class Query(BaseModel):
    """Refuses unknown parameters: a typo would silently be ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, data: object) -> object:
        if isinstance(data, dict):
            for name in data:
                if name not in cls.model_fields:
                    raise unknown_field(str(name)[:64], cls.model_fields)
        return data


class PageQuery(Query):
    limit: Limit = DEFAULT_LIMIT
    cursor: Annotated[str, Field(max_length=2000)] | None = None
    sort: Word | None = Field(
        default=None,
        description="A leading - sorts descending; `next` is short for `next_run_at`, and so on.",
    )
    order: Literal["asc", "desc"] | None = None


class SchedulesQuery(PageQuery):
    enabled: bool | None = None
    name: Word | None = None
    q: FilterText | None = Field(
        default=None,
        description="A filter: conditions such as `status:failed label:billing next:<1h`, other "
        "words are found in the name. Names: " + ", ".join(SCHEDULE_NAMES) + ".",
    )
    label: Word | None = Field(default=None, description="Label name, or name=value.")
    kind: Word | None = None
    namespace: Word | None = None
    owner: OwnerWord | None = None

    def to_query(self, scope: str) -> ScheduleQuery:
        """Without the filter `q`."""
        sort, descending = _order(self, ScheduleSort, ScheduleSort.CREATED_AT, descending=False)
        numbers = sort is not ScheduleSort.NAME
        label, equals, value = (self.label or "").partition("=")
        return ScheduleQuery(
            owner=owner_filter(self.owner),
            namespace=self.namespace,
            name=self.name,
            enabled=self.enabled,
            kind=self.kind,
            label=label or None,
            label_value=value if equals else None,
            sort=sort,
            descending=descending,
            after=decode_cursor(self.cursor, scope, numbers=numbers),
            limit=self.limit,
        )


class RunsQuery(PageQuery):
    status: list[Word] = Field(
        default_factory=list, max_length=20, description="Repeatable, or comma-separated."
    )
    schedule_id: Word | None = None
    parent_id: Word | None = Field(
        default=None, description="Only children of this run, the steps of a flow."
    )
    q: FilterText | None = Field(
        default=None,
        description="A filter: conditions such as `status:failed origin:manual since:24h`, other "
        "words are found in the name of the schedule and in the error; a page can then have fewer "
        "items than `limit` although others follow. Names: " + ", ".join(RUN_NAMES) + ".",
    )
    namespace: Word | None = None
    origin: Origin | None = None
    since: Word | None = Field(default=None, description="Planned at or after this time.")
    until: Word | None = Field(default=None, description="Planned before this time.")

    def to_query(self, scope: str, schedule_id: ScheduleId | None = None) -> RunQuery:
        """Without the filter `q`."""
        sort, descending = _order(self, RunSort, RunSort.CREATED_AT, descending=True)
        return RunQuery(
            namespace=self.namespace,
            schedule_id=schedule_id or (ScheduleId(self.schedule_id) if self.schedule_id else None),
            parent_id=RunId(self.parent_id) if self.parent_id else None,
            statuses=_statuses(self.status),
            origin=self.origin,
            since=None if self.since is None else query_moment(self.since, None, "since"),
            until=None if self.until is None else query_moment(self.until, None, "until"),
            sort=sort,
            descending=descending,
            after=decode_cursor(self.cursor, scope, numbers=True),
            limit=self.limit,
        )


def matching_runs(text: str, actor: Actor, now: datetime, query: RunQuery) -> RunFilter:
    """As `matching_schedules`."""
    found = run_filter(read_filter(text, RUN_NAMES), actor, now)
    found.filter.require_valid()
    return replace(found, query=_both(query, found.query))


def matching_schedules(
    text: str, actor: Actor, now: datetime, query: ScheduleQuery
) -> ScheduleQuery:
    """The query with the conditions of a filter. InvalidInput if one is invalid."""
    found = schedule_filter(read_filter(text, SCHEDULE_NAMES), actor, now)
    found.filter.require_valid()
    return _both(query, found.query)


def _both(given: QueryStruct, filtered: QueryStruct) -> QueryStruct:
    """Parameters and conditions of the filter together. InvalidInput if they contradict."""
    default = type(given)()
    changes: dict[str, Any] = {}
    for name in given.__struct_fields__:
        parameter, condition = getattr(given, name), getattr(filtered, name)
        if condition == getattr(default, name):
            continue
        if parameter not in (getattr(default, name), condition):
            raise InvalidInput(
                _("q and a parameter contradict each other: {field}", field=name),
                field="q",
                code="contradiction",
                source="query",
            )
        changes[name] = condition
    return replace(given, **changes)


class WhyQuery(Query):
    at: Word | None = Field(
        default=None,
        description="RFC 3339, or local time in the zone of the schedule. Without seconds: the "
        "first slot of that minute.",
    )
    date: Word | None = Field(
        default=None, description="A day in the zone of the schedule, such as 2030-01-31."
    )


class MaintenanceQuery(Query):
    namespace: Word | None = Field(default=None, description="Default: the whole instance.")
    reason: Annotated[str, Field(max_length=1000)] = Field(
        default="", description="For the audit log."
    )


class LogsQuery(Query):
    after: Number = Field(default=0, description="Entries with a greater number.")
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    follow: bool = Field(
        default=False,
        description="Stream Server-Sent Events until the run has ended; `limit` does not apply. "
        "`Accept: text/event-stream` does the same; `Last-Event-ID` resumes.",
    )


class EventsQuery(Query):
    topics: Word | None = Field(
        default=None, description="Only these, comma-separated: runs, schedules, inbox, nodes."
    )
    after: Word | None = Field(
        default=None,
        description="`id` of the last event that was seen, for clients that cannot send "
        "`Last-Event-ID`.",
    )


class UpcomingQuery(Query):
    hours: Annotated[float, Field(gt=0, le=168, allow_inf_nan=False)] = 24.0
    limit: Annotated[int, Field(ge=1, le=1000)] = 200


class TemplatesQuery(Query):
    timezone: Word | None = Field(default=None, description="Time zone of the fires; IANA name.")
    lang: Word | None = Field(
        default=None, description="en, th or zh; default: see Accept-Language."
    )


class AuditsQuery(Query):
    before: Number | None = Field(default=None, description="Entries with a smaller number.")
    limit: Limit = DEFAULT_LIMIT
    object_id: Word | None = None
    verb: Word | None = None
    actor: Word | None = Field(default=None, description="key:ID, or type:id without keys.")
    interface: Word | None = None
    owner: OwnerWord | None = None


def _order(
    query: PageQuery, kind: type[Sort], default: Sort, *, descending: bool
) -> tuple[Sort, bool]:
    if query.sort is None:
        return default, descending if query.order is None else query.order == "desc"
    name = query.sort.removeprefix("-")
    known = sorts_by_name(kind)
    if name not in known:
        raise _unknown("sort", name, list(kind))
    minus = query.sort.startswith("-")
    if minus and query.order == "asc":
        raise InvalidInput(
            _("order is asc, but the - of sort means descending"),
            field="order",
            code="bad_order",
            source="query",
        )
    return known[name], minus or query.order == "desc"


def _statuses(given: Iterable[str]) -> tuple[RunStatus, ...]:
    words = [word.strip() for each in given for word in each.split(",")]
    for word in words:
        if word not in RunStatus.__members__.values():
            raise _unknown("status", word, list(RunStatus))
    return tuple(dict.fromkeys(RunStatus(word) for word in words))


def owner_filter(text: str | None) -> Owner | None:
    if text is None:
        return None
    kind, colon, owner_id = text.partition(":")
    if not colon or kind not in OwnerType.__members__.values():
        raise InvalidInput(
            _("an owner is written as type:id, for example user:alice"),
            field="owner",
            code="bad_owner",
            source="query",
        )
    return Owner(type=OwnerType(kind), id=owner_id)


def query_moment(text: str, zone: str | None, field: str) -> datetime:
    """A time of the query; local time needs a zone."""
    # An unescaped plus sign arrives as a space.
    unescaped = text.replace(" ", "+") if "T" in text else text
    try:
        return parse_moment(unescaped, zone, field=field)
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field=field, code=error.code, hint=error.hint, source="query"
        ) from None


def query_day(text: str, zone: str, field: str) -> tuple[datetime, datetime]:
    """Begin and end of a day in the zone."""
    try:
        day = datetime.fromisoformat(text) if len(text) == 10 else None
        if day is None or not FIRST_YEAR <= day.year <= LAST_YEAR:
            raise ValueError(text)
        local = parse_zone(zone)
        return place(day, local)[0], place(day + timedelta(days=1), local)[0]
    except (ValueError, OverflowError):
        raise InvalidInput(
            _("must be a date such as 2030-01-31"), field=field, code="bad_date", source="query"
        ) from None


def _unknown(field: str, given: str, known: Sequence[StrEnum]) -> InvalidInput:
    return InvalidInput(
        _("{field} is one of {known}", field=field, known=", ".join(known)),
        field=field,
        code="unknown_value",
        hint=suggest_name(given, list(known)),
        source="query",
    )
