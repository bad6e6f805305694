"""Pages: opaque cursors that belong to one question, and the link to the next page."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse

from chimes.errors import InvalidInput
from chimes.model.listing import Position
from chimes.wording import say

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
        say("this cursor does not belong to this list; start again without one"),
        field="cursor",
        code="bad_cursor",
        source="query",
    )
