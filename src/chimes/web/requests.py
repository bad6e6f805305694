"""Request bodies: JSON without the corners that parsers disagree on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping

from pydantic_core import PydanticCustomError
from starlette.requests import Request

from chimes.errors import ChimesError, InvalidInput
from chimes.i18n import Message, _, counted

# @@ What pydantic finds wrong, as sentences that can be said in every language.
#
# The English ones are pydantic's own, so that nothing changes for those who know them.

Given = Mapping[str, object]


def refused(code: str, detail: str, **context: object) -> PydanticCustomError:
    """An error of our own; pydantic knows its place. `field` and `hint` are told beside it."""
    return PydanticCustomError(code, "{detail}", {"detail": detail, **context})


def sentence(kind: str, given: Given) -> str:
    """For an error of this type and context."""
    if isinstance(detail := given.get("detail"), str):
        return detail
    told = _SENTENCES.get(kind)
    return _("The value is not valid") if told is None else told(given)


def _choice(given: Given) -> Message:
    """`'a', 'b' or 'c'`, as pydantic lists them."""
    expected = str(given["expected"])
    others, _unused, last = expected.rpartition(" or ")
    if not others:
        return _("Input should be {expected}", expected=expected)
    shown = _("{others} or {last}", others=others, last=last)
    return _("Input should be {expected}", expected=shown)


def _number(given: Given, name: str) -> int:
    value = given[name]
    return value if isinstance(value, int) else 0


_COLLECTIONS: Mapping[object, Message] = {
    "List": _("List"),
    "Dictionary": _("Dictionary"),
    "Tuple": _("Tuple"),
    "Set": _("Set"),
}


def _too_short(given: Given) -> Message:
    kind = given["field_type"]
    return counted(
        "{kind} should have at least {count} item after validation, not {actual}",
        "{kind} should have at least {count} items after validation, not {actual}",
        _number(given, "min_length"),
        kind=_COLLECTIONS.get(kind, kind),
        actual=given["actual_length"],
    )


def _too_long(given: Given) -> Message:
    kind = given["field_type"]
    actual = given["actual_length"]
    return counted(
        "{kind} should have at most {count} item after validation, not {actual}",
        "{kind} should have at most {count} items after validation, not {actual}",
        _number(given, "max_length"),
        kind=_COLLECTIONS.get(kind, kind),
        actual=_("more") if actual is None else actual,
    )


def _short_string(given: Given) -> Message:
    return counted(
        "String should have at least {count} character",
        "String should have at least {count} characters",
        _number(given, "min_length"),
    )


def _long_string(given: Given) -> Message:
    return counted(
        "String should have at most {count} character",
        "String should have at most {count} characters",
        _number(given, "max_length"),
    )


#: By type of error: all that our bodies and queries can come to.
_SENTENCES: Mapping[str, Callable[[Given], Message]] = {
    "missing": lambda _unused: _("Field required"),
    "extra_forbidden": lambda _unused: _("Extra inputs are not permitted"),
    "invalid_key": lambda _unused: _("Keys should be strings"),
    "model_type": lambda given: _(
        "Input should be a valid dictionary or instance of {name}", name=given["class_name"]
    ),
    "model_attributes_type": lambda _unused: _(
        "Input should be a valid dictionary or object to extract fields from"
    ),
    "dict_type": lambda _unused: _("Input should be a valid dictionary"),
    "list_type": lambda _unused: _("Input should be a valid list"),
    "tuple_type": lambda _unused: _("Input should be a valid tuple"),
    "set_type": lambda _unused: _("Input should be a valid set"),
    "none_required": lambda _unused: _("Input should be None"),
    "enum": _choice,
    "literal_error": _choice,
    "string_type": lambda _unused: _("Input should be a valid string"),
    "string_unicode": lambda _unused: _(
        "Input should be a valid string, unable to parse raw data as a unicode string"
    ),
    "string_too_short": _short_string,
    "string_too_long": _long_string,
    "string_pattern_mismatch": lambda given: _(
        "String should match pattern '{pattern}'", pattern=given["pattern"]
    ),
    "too_short": _too_short,
    "too_long": _too_long,
    "bool_type": lambda _unused: _("Input should be a valid boolean"),
    "bool_parsing": lambda _unused: _("Input should be a valid boolean, unable to interpret input"),
    "int_type": lambda _unused: _("Input should be a valid integer"),
    "int_parsing": lambda _unused: _(
        "Input should be a valid integer, unable to parse string as an integer"
    ),
    "int_parsing_size": lambda _unused: _(
        "Unable to parse input string as an integer, exceeded maximum size"
    ),
    "int_from_float": lambda _unused: _(
        "Input should be a valid integer, got a number with a fractional part"
    ),
    "float_type": lambda _unused: _("Input should be a valid number"),
    "float_parsing": lambda _unused: _(
        "Input should be a valid number, unable to parse string as a number"
    ),
    "finite_number": lambda _unused: _("Input should be a finite number"),
    "greater_than": lambda given: _("Input should be greater than {gt}", gt=given["gt"]),
    "greater_than_equal": lambda given: _(
        "Input should be greater than or equal to {ge}", ge=given["ge"]
    ),
    "less_than": lambda given: _("Input should be less than {lt}", lt=given["lt"]),
    "less_than_equal": lambda given: _(
        "Input should be less than or equal to {le}", le=given["le"]
    ),
    "multiple_of": lambda given: _(
        "Input should be a multiple of {number}", number=given["multiple_of"]
    ),
    "union_tag_invalid": lambda given: _(
        "Input tag '{tag}' found using {discriminator} does not match any of the expected tags:"
        " {expected}",
        tag=given["tag"],
        discriminator=given["discriminator"],
        expected=given["expected_tags"],
    ),
    "union_tag_not_found": lambda given: _(
        "Unable to extract tag using discriminator {discriminator}",
        discriminator=given["discriminator"],
    ),
}


# @@ Characters that no store could be asked for.


def check_query(request: Request) -> None:
    """No text here has a NUL, and PostgreSQL fails on one."""
    for name, value in request.query_params.multi_items():
        if "\0" in value or "\0" in name:
            raise InvalidInput(
                _("a parameter has a NUL character"),
                field=name.replace("\0", "?"),
                code="bad_character",
                source="query",
            )


# @@ Requests that are turned away for how they were sent, before anybody looks at what they ask.


class Refusal(ChimesError):
    """The request cannot be taken like this"""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers: Mapping[str, str] = headers or {}


#: The rest of the body is not read, so the connection cannot be used again.
_CLOSE = {"Connection": "close"}


def too_large(limit: int) -> Refusal:
    return Refusal(
        413,
        "body_too_large",
        _("a request body has at most {limit} KiB", limit=limit // 1024),
        headers=_CLOSE,
    )


def long_headers(limit: int) -> Refusal:
    return Refusal(
        431,
        "headers_too_large",
        _("the headers of a request have at most {limit} KiB", limit=limit // 1024),
        headers=_CLOSE,
    )


def encoded_body() -> Refusal:
    return Refusal(415, "encoded_body", _("a request body cannot be compressed"), headers=_CLOSE)


def not_json(content_type: str) -> Refusal:
    if content_type:
        detail = _("the body must be application/json, not {given!r}", given=content_type[:100])
    else:
        detail = _("the body must be application/json, and a Content-Type that says so")
    return Refusal(415, "not_json", detail, headers={"Accept": "application/json"})


def unparsable(reason: str) -> Refusal:
    return Refusal(400, "bad_json", _("the body is not valid JSON: {reason}", reason=reason))


def wrong_length() -> Refusal:
    return Refusal(400, "wrong_length", _("the body is not as long as Content-Length says"))


def no_length() -> Refusal:
    return Refusal(400, "no_length", _("a request with a body needs a Content-Length"))


def no_host() -> Refusal:
    return Refusal(400, "no_host", _("the request has no Host header, or more than one"))


def other_host(host: str) -> Refusal:
    return Refusal(
        421,
        "host_not_allowed",
        _(
            "{host!r} is not a name of this server; a further one goes into allowed_hosts",
            host=host[:100],
        ),
    )


def foreign_origin() -> Refusal:
    return Refusal(
        403, "foreign_origin", _("a page of another origin may not change anything here")
    )


def too_slow() -> Refusal:
    return Refusal(
        408,
        "request_timeout",
        _("the request did not arrive in time"),
        headers=_CLOSE,
    )


def no_answer_in_time() -> Refusal:
    return Refusal(
        503,
        "answer_timeout",
        _("no answer within the time limit; whether something was done is not known"),
        headers={"Retry-After": "5"},
    )


def under_way() -> Refusal:
    return Refusal(
        409,
        "request_under_way",
        _("the first request with this Idempotency-Key has not been answered yet"),
        headers={"Retry-After": "1"},
    )


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
        _("Expecting value"),
        _("Expecting property name enclosed in double quotes"),
        _("Expecting ':' delimiter"),
        _("Expecting ',' delimiter"),
        _("Extra data"),
        _("Unterminated string starting at"),
        _("Invalid control character at"),
        _("Invalid \\escape"),
        _("Invalid \\uXXXX escape"),
        _("Unexpected UTF-8 BOM (decode using utf-8-sig)"),
    )
}


def strict_json(data: bytes) -> object:
    """The value of a JSON text. Refusal (400) for what is not JSON, InvalidInput (422) for JSON
    that is too deep, too wide, or means different things to different readers."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise unparsable(_("not UTF-8 at byte {start}", start=error.start)) from None
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
        raise unparsable(
            _(
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
        raise not_json(content_type)
    return strict_json(data)


def is_json(content_type: str) -> bool:
    media, _unused, rest = content_type.partition(";")
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
                _("the body is nested deeper than {deepest} levels", deepest=DEEPEST),
                code="json_too_deep",
            )


class _Counter:
    def __init__(self) -> None:
        self._keys = 0

    def object(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        self._keys += len(pairs)
        if self._keys > MOST_KEYS:
            raise InvalidInput(
                _("the body has more than {most_keys} keys", most_keys=MOST_KEYS),
                code="too_many_keys",
            )
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _unused in pairs]
            twice = _shown(next(key for key in found if keys.count(key) > 1))
            raise InvalidInput(
                _("the key {twice} stands twice in an object", twice=twice),
                field=twice,
                code="duplicate_key",
            )
        return found


def _no_constant(name: str) -> object:
    raise InvalidInput(_("{name} is not a JSON number", name=name), code="bad_number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidInput(_("the number {text} is too large", text=text[:40]), code="bad_number")
    return value


def _int(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise InvalidInput(_("a number has too many digits"), code="bad_number")
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
            _("a string has at most {longest_string} characters", longest_string=LONGEST_STRING),
            field=field,
            code="too_long",
        )
    if "\0" in text:
        raise InvalidInput(_("a string has a NUL character"), field=field, code="bad_character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(
            _("a string has half of a surrogate pair"), field=_shown(field), code="bad_character"
        ) from None


def _shown(text: str) -> str:
    """A name from the body as it can be put into an answer."""
    return text[:64].encode("utf-8", "replace").decode("utf-8")
