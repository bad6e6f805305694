"""Characters that no store could be asked for."""

from __future__ import annotations

from starlette.requests import Request

from chimes.errors import InvalidInput
from chimes.wording import say


def check_query(request: Request) -> None:
    """No text here has a NUL, and PostgreSQL fails on one."""
    for name, value in request.query_params.multi_items():
        if "\0" in value or "\0" in name:
            raise InvalidInput(
                say("a parameter has a NUL character"),
                field=name.replace("\0", "?"),
                code="bad_character",
                source="query",
            )
