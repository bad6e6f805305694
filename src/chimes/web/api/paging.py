"""Pages: opaque cursors that belong to one question, and the link to the next page."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.access import Owner, OwnerType
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import Position, RunQuery, RunSort, ScheduleQuery, ScheduleSort
from chimes.model.run import Origin, RunStatus
from chimes.triggers import parse_moment
from chimes.triggers.json_values import nearest
from chimes.web.api.schemas import unknown_field

DEFAULT_LIMIT = 50
MOST = 200
_LONGEST_CURSOR = 2000
_LARGEST = 2**63 - 1
Item = TypeVar("Item")


def question_of(request: Request) -> str:
    """What a cursor belongs to: the path and everything asked, except where the page begins."""
    asked = sorted(
        pair for pair in request.query_params.multi_items() if pair[0] not in ("cursor", "limit")
    )
    return json.dumps([request.url.path, asked])


def cursor_to(position: Position, question: str) -> str:
    content = json.dumps([*position, _check(position, question)], separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def position_from(cursor: str | None, question: str, *, numbers: bool) -> Position | None:
    """`numbers`: whether the sort value is one (a moment), or text."""
    if cursor is None:
        return None
    if len(cursor) > _LONGEST_CURSOR:
        raise _bad_cursor()
    try:
        content = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        value, row, check = json.loads(content)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise _bad_cursor() from None
    expected = int if numbers else str
    right = value is None or (isinstance(value, expected) and not isinstance(value, bool))
    if not right or not isinstance(row, str) or check != _check((value, row), question):
        raise _bad_cursor()
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        raise _bad_cursor()
    return value, row


def page(
    request: Request, items: Sequence[object], following: Position | None, **more: object
) -> JSONResponse:
    """`more`: what is said beside the items."""
    cursor = None if following is None else cursor_to(following, question_of(request))
    answer = JSONResponse({"items": list(items), "next_cursor": cursor} | more)
    if cursor is not None:
        following_url = request.url.include_query_params(cursor=cursor)
        link = f"{following_url.path}?{following_url.query}"
        answer.headers["Link"] = f'<{link}>; rel="next"'
    return answer


def _check(position: Position, question: str) -> str:
    """Tells slips and mix-ups; a forged cursor would only begin the page somewhere else."""
    content = json.dumps([position, question])
    return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()


def _bad_cursor() -> InvalidInput:
    return InvalidInput(
        _("this cursor does not belong to this list; start again without one"),
        field="cursor",
        code="bad_cursor",
        source="query",
    )


# @@ Query parameters of the lists.

Limit = Annotated[int, Field(ge=1, le=MOST)]
Number = Annotated[int, Field(ge=0, le=2**53)]
Word = Annotated[str, Field(max_length=200)]
Sort = TypeVar("Sort", bound=StrEnum)


class Query(BaseModel):
    """A parameter with a typo would silently answer another question, so it is refused."""

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
    sort: Word | None = Field(default=None, description="A leading - sorts descending.")
    order: Literal["asc", "desc"] | None = None


class SchedulesQuery(PageQuery):
    enabled: bool | None = None
    name: Word | None = None
    q: Word | None = Field(default=None, description="Part of the name, taken literally.")
    label: Word | None = Field(default=None, description="A label's name, or name=value.")
    kind: Word | None = None
    namespace: Word | None = None
    owner: Word | None = Field(default=None, description="type:id, such as user:alice")

    def to_query(self, question: str) -> ScheduleQuery:
        sort, descending = _order(self, ScheduleSort, ScheduleSort.CREATED_AT, descending=False)
        numbers = sort is not ScheduleSort.NAME
        label, equals, value = (self.label or "").partition("=")
        return ScheduleQuery(
            owner=owner_asked_for(self.owner),
            namespace=self.namespace,
            name=self.name,
            text=self.q,
            enabled=self.enabled,
            kind=self.kind,
            label=label or None,
            label_value=value if equals else None,
            sort=sort,
            descending=descending,
            after=position_from(self.cursor, question, numbers=numbers),
            limit=self.limit,
        )


class RunsQuery(PageQuery):
    status: list[Word] = Field(
        default_factory=list, max_length=20, description="Repeated, or separated by commas."
    )
    schedule_id: Word | None = None
    parent_id: Word | None = Field(
        default=None, description="Only the children of this run: the steps of a flow."
    )
    namespace: Word | None = None
    origin: Origin | None = None
    since: Word | None = Field(default=None, description="Planned at or after.")
    until: Word | None = Field(default=None, description="Planned before.")

    def to_query(self, question: str, schedule_id: ScheduleId | None = None) -> RunQuery:
        sort, descending = _order(self, RunSort, RunSort.CREATED_AT, descending=True)
        return RunQuery(
            namespace=self.namespace,
            schedule_id=schedule_id or (ScheduleId(self.schedule_id) if self.schedule_id else None),
            parent_id=RunId(self.parent_id) if self.parent_id else None,
            statuses=_statuses(self.status),
            origin=self.origin,
            since=None if self.since is None else _moment(self.since, "since"),
            until=None if self.until is None else _moment(self.until, "until"),
            sort=sort,
            descending=descending,
            after=position_from(self.cursor, question, numbers=True),
            limit=self.limit,
        )


class LogsQuery(Query):
    after: Number = Field(default=0, description="Entries numbered above this one.")
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    follow: bool = Field(
        default=False,
        description="As Server-Sent Events until the run has ended, whatever the limit; "
        "`Accept: text/event-stream` asks for the same, `Last-Event-ID` goes on where it was.",
    )


class UpcomingQuery(Query):
    hours: Annotated[float, Field(gt=0, le=168, allow_inf_nan=False)] = 24.0
    limit: Annotated[int, Field(ge=1, le=1000)] = 200


class TemplatesQuery(Query):
    timezone: Word | None = Field(default=None, description="Of the fires; IANA name.")
    lang: Word | None = Field(
        default=None, description="en, th or zh; where it is left out, see Accept-Language."
    )


class AuditsQuery(Query):
    before: Number | None = Field(default=None, description="Entries numbered below this one.")
    limit: Limit = DEFAULT_LIMIT
    object_id: Word | None = None
    verb: Word | None = None
    actor: Word | None = Field(default=None, description="key:ID, or type:id where keys are off.")
    interface: Word | None = None
    owner: Word | None = Field(default=None, description="type:id, such as user:alice")


def _order(
    asked: PageQuery, kind: type[Sort], usual: Sort, *, descending: bool
) -> tuple[Sort, bool]:
    if asked.sort is None:
        return usual, descending if asked.order is None else asked.order == "desc"
    name = asked.sort.removeprefix("-")
    if name not in kind.__members__.values():
        raise _unknown("sort", name, list(kind))
    minus = asked.sort.startswith("-")
    if minus and asked.order == "asc":
        raise InvalidInput(
            _("order says asc and sort says descending"),
            field="order",
            code="bad_order",
            source="query",
        )
    return kind(name), minus or asked.order == "desc"


def _statuses(given: Iterable[str]) -> tuple[RunStatus, ...]:
    words = [word.strip() for each in given for word in each.split(",")]
    for word in words:
        if word not in RunStatus.__members__.values():
            raise _unknown("status", word, list(RunStatus))
    return tuple(dict.fromkeys(RunStatus(word) for word in words))


def owner_asked_for(text: str | None) -> Owner | None:
    if text is None:
        return None
    kind, colon, owner_id = text.partition(":")
    if not colon or kind not in OwnerType.__members__.values():
        raise InvalidInput(
            _("an owner is written as type:id, such as user:alice"),
            field="owner",
            code="bad_owner",
            source="query",
        )
    return Owner(type=OwnerType(kind), id=owner_id)


def _moment(text: str, field: str) -> datetime:
    # A plus sign that was not escaped arrives as a space.
    unescaped = text.replace(" ", "+") if "T" in text else text
    try:
        return parse_moment(unescaped, field=field)
    except InvalidInput as error:
        raise InvalidInput(
            error.message, field=field, code=error.code, hint=error.hint, source="query"
        ) from None


def _unknown(field: str, given: str, known: list[StrEnum]) -> InvalidInput:
    return InvalidInput(
        _("{field} is one of {known}", field=field, known=", ".join(known)),
        field=field,
        code="unknown_value",
        hint=nearest(given, list(known)),
        source="query",
    )
