"""What JSON of a caller must look like to be kept."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from chimes.errors import InvalidInput
from chimes.wording import say

MAX_ARGUMENT_BYTES = 64 * 1024
MAX_ARGUMENT_DEPTH = 32


def check_arguments(arguments: Mapping[str, object], field: str) -> None:
    """Plain JSON that every store takes and every reader understands alike."""
    check_json(arguments, field)
    check_size(arguments, field, MAX_ARGUMENT_BYTES)


def check_size(value: object, field: str, most: int) -> None:
    """`value` is JSON; as it is written on the wire."""
    if len(json.dumps(value, ensure_ascii=False).encode()) > most:
        raise InvalidInput(
            say(
                "{field} is longer than {most} bytes",
                field=field,
                most=most,
            ),
            field=field,
            code="too_long",
        )


def check_json(value: object, field: str, depth: int = 0) -> None:
    if depth > MAX_ARGUMENT_DEPTH:
        raise InvalidInput(
            say(
                "nested deeper than {most} levels",
                most=MAX_ARGUMENT_DEPTH,
            ),
            field=field,
            code="json_too_deep",
        )
    match value:
        case None | bool() | int():
            pass
        case float():
            if not math.isfinite(value):
                raise InvalidInput(
                    say("{value} is not a JSON number", value=value), field=field, code="bad_number"
                )
        case str():
            if "\x00" in value:
                raise InvalidInput(
                    say("a NUL character is not allowed"), field=field, code="not_text"
                )
            encoded(value, field)
        case Mapping():
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise InvalidInput(
                        say("the keys of JSON are texts"), field=field, code="wrong_type"
                    )
                check_json(key, field, depth + 1)
                check_json(inner, f"{field}.{key}", depth + 1)
        case list() | tuple():
            for place, inner in enumerate(value):
                check_json(inner, f"{field}[{place}]", depth + 1)
        case _:
            raise InvalidInput(
                say("{type} cannot be written as JSON", type=type(value).__name__),
                field=field,
                code="wrong_type",
            )


def encoded(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(say("not valid Unicode text"), field=field, code="not_text") from None
