"""Request bodies: JSON without the corners that parsers disagree on (S12–S15)."""

from __future__ import annotations

import json
import math
import re

from starlette.requests import Request

from chimes.doors import refusal
from chimes.errors import InvalidInput
from chimes.wording import say

DEEPEST = 32
MOST_KEYS = 1000
LONGEST_STRING = 64 * 1024
_LONGEST_NUMBER = 40
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
#: What Python's parser has to say.
_TROUBLES = {
    str(each): each
    for each in (
        say("Expecting value"),
        say("Expecting property name enclosed in double quotes"),
        say("Expecting ':' delimiter"),
        say("Expecting ',' delimiter"),
        say("Extra data"),
        say("Unterminated string starting at"),
        say("Invalid control character at"),
        say("Invalid \\escape"),
        say("Invalid \\uXXXX escape"),
        say("Unexpected UTF-8 BOM (decode using utf-8-sig)"),
    )
}


def strict_json(data: bytes) -> object:
    """The value of a JSON text. Refusal (400) for what is not JSON, InvalidInput (422) for JSON
    that is too deep, too wide, or means different things to different readers."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise refusal.unparsable(say("not UTF-8 at byte {start}", start=error.start)) from None
    _check_depth(text)
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_Counter().object,
            parse_constant=_no_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except json.JSONDecodeError as error:
        raise refusal.unparsable(
            say(
                "{trouble} at line {line}",
                trouble=_TROUBLES.get(error.msg, error.msg),
                line=error.lineno,
            )
        ) from None
    if "\\" in text or len(text) > LONGEST_STRING:
        _check_strings(value, "")
    return value


async def read_json(request: Request) -> object | None:
    """The body of a request, None if there is none."""
    data = await request.body()
    if not data:
        return None
    content_type = request.headers.get("content-type", "")
    if not is_json(content_type):
        raise refusal.not_json(content_type)
    return strict_json(data)


def is_json(content_type: str) -> bool:
    media, _, rest = content_type.partition(";")
    charset = rest.replace('"', "").replace(" ", "").lower()
    return media.strip().lower() in ("application/json", "application/merge-patch+json") and (
        not charset.startswith("charset=") or charset in ("charset=utf-8", "charset=utf8")
    )


def _check_depth(text: str) -> None:
    """Before parsing: the parser would recurse as deep as the sender likes."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    depth = 0
    for found in _BRACKET.finditer(_STRING.sub("", text)):
        depth += 1 if found[0] in "[{" else -1
        if depth > DEEPEST:
            raise InvalidInput(
                say("the body is nested deeper than {deepest} levels", deepest=DEEPEST),
                code="json_too_deep",
            )


class _Counter:
    def __init__(self) -> None:
        self._keys = 0

    def object(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        self._keys += len(pairs)
        if self._keys > MOST_KEYS:
            raise InvalidInput(
                say("the body has more than {most_keys} keys", most_keys=MOST_KEYS),
                code="too_many_keys",
            )
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = _shown(next(key for key in found if keys.count(key) > 1))
            raise InvalidInput(
                say("the key {twice} stands twice in an object", twice=twice),
                field=twice,
                code="duplicate_key",
            )
        return found


def _no_constant(name: str) -> object:
    raise InvalidInput(say("{name} is not a JSON number", name=name), code="bad_number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidInput(say("the number {text} is too large", text=text[:40]), code="bad_number")
    return value


def _int(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise InvalidInput(say("a number has too many digits"), code="bad_number")
    return int(text)


def _check_strings(value: object, field: str) -> None:
    if isinstance(value, str):
        _check_string(value, field)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_string(key, field)
            _check_strings(item, f"{field}.{key}" if field else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_strings(item, f"{field}[{index}]")


def _check_string(text: str, field: str) -> None:
    if len(text) > LONGEST_STRING:
        raise InvalidInput(
            say("a string has at most {longest_string} characters", longest_string=LONGEST_STRING),
            field=field,
            code="too_long",
        )
    if "\0" in text:
        raise InvalidInput(say("a string has a NUL character"), field=field, code="bad_character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(
            say("a string has half of a surrogate pair"), field=_shown(field), code="bad_character"
        ) from None


def _shown(text: str) -> str:
    """A name from the body as it can be put into an answer."""
    return text[:64].encode("utf-8", "replace").decode("utf-8")
