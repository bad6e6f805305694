"""Reading of requests: strict JSON bodies, query checks, validation messages, rejections."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping

from pydantic_core import PydanticCustomError
from starlette.requests import Request

from chimes.errors import ChimesError, InvalidInput
from chimes.i18n import Message, _, counted

# Translatable messages for pydantic errors. The English texts are those of pydantic.

ErrorContext = Mapping[str, object]


def validation_error(code: str, detail: str, **context: object) -> PydanticCustomError:
    """A validation error of our own; pydantic adds its location. `context` may have `field` and
    `hint`."""
    return PydanticCustomError(code, "{detail}", {"detail": detail, **context})


def validation_message(kind: str, given: ErrorContext) -> str:
    """The message of a pydantic error of this type and context."""
    if isinstance(detail := given.get("detail"), str):
        return detail
    message = _MESSAGES.get(kind)
    return _("The value is not valid") if message is None else message(given)


def _choice(given: ErrorContext) -> Message:
    """`'a', 'b' or 'c'`, as pydantic lists them."""
    expected = str(given["expected"])
    others, _unused, last = expected.rpartition(" or ")
    if not others:
        return _("Input should be {expected}", expected=expected)
    choices = _("{others} or {last}", others=others, last=last)
    return _("Input should be {expected}", expected=choices)


def _number(given: ErrorContext, name: str) -> int:
    value = given[name]
    return value if isinstance(value, int) else 0


_COLLECTIONS: Mapping[object, Message] = {
    "List": _("List"),
    "Dictionary": _("Dictionary"),
    "Tuple": _("Tuple"),
    "Set": _("Set"),
}


def _too_short(given: ErrorContext) -> Message:
    kind = given["field_type"]
    return counted(
        "{kind} should have at least {count} item after validation, not {actual}",
        "{kind} should have at least {count} items after validation, not {actual}",
        _number(given, "min_length"),
        kind=_COLLECTIONS.get(kind, kind),
        actual=given["actual_length"],
    )


def _too_long(given: ErrorContext) -> Message:
    kind = given["field_type"]
    actual = given["actual_length"]
    return counted(
        "{kind} should have at most {count} item after validation, not {actual}",
        "{kind} should have at most {count} items after validation, not {actual}",
        _number(given, "max_length"),
        kind=_COLLECTIONS.get(kind, kind),
        actual=_("more") if actual is None else actual,
    )


def _short_string(given: ErrorContext) -> Message:
    return counted(
        "String should have at least {count} character",
        "String should have at least {count} characters",
        _number(given, "min_length"),
    )


def _long_string(given: ErrorContext) -> Message:
    return counted(
        "String should have at most {count} character",
        "String should have at most {count} characters",
        _number(given, "max_length"),
    )


#: By error type: all that our bodies and queries can raise.
_MESSAGES: Mapping[str, Callable[[ErrorContext], Message]] = {
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


def check_query(request: Request) -> None:
    """Refuses NUL in parameters: PostgreSQL fails on one."""
    for name, value in request.query_params.multi_items():
        if "\0" in value or "\0" in name:
            raise InvalidInput(
                _("a parameter has a NUL character"),
                field=name.replace("\0", "?"),
                code="bad_character",
                source="query",
            )


class RequestRejected(ChimesError):
    """The request cannot be processed"""

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


def body_too_large(limit: int) -> RequestRejected:
    return RequestRejected(
        413,
        "body_too_large",
        _("a request body has at most {limit} KiB", limit=limit // 1024),
        headers=_CLOSE,
    )


def headers_too_large(limit: int) -> RequestRejected:
    return RequestRejected(
        431,
        "headers_too_large",
        _("the headers of a request have at most {limit} KiB", limit=limit // 1024),
        headers=_CLOSE,
    )


def compressed_body() -> RequestRejected:
    return RequestRejected(
        415, "encoded_body", _("a request body cannot be compressed"), headers=_CLOSE
    )


def not_json(content_type: str) -> RequestRejected:
    if content_type:
        detail = _("the body must be application/json, not {given!r}", given=content_type[:100])
    else:
        detail = _("the body must be JSON with the Content-Type application/json")
    return RequestRejected(415, "not_json", detail, headers={"Accept": "application/json"})


def invalid_json(reason: str) -> RequestRejected:
    return RequestRejected(
        400, "bad_json", _("the body is not valid JSON: {reason}", reason=reason)
    )


def wrong_length() -> RequestRejected:
    return RequestRejected(400, "wrong_length", _("the body is not as long as Content-Length says"))


def missing_length() -> RequestRejected:
    return RequestRejected(400, "no_length", _("a request with a body needs a Content-Length"))


def missing_host() -> RequestRejected:
    return RequestRejected(400, "no_host", _("the request has no Host header, or more than one"))


def host_not_allowed(host: str) -> RequestRejected:
    return RequestRejected(
        421,
        "host_not_allowed",
        _(
            "{host!r} is not a name of this server; add it to allowed_hosts if it should be",
            host=host[:100],
        ),
    )


def ambiguous_proxy_headers() -> RequestRejected:
    return RequestRejected(
        400,
        "ambiguous_proxy_headers",
        _(
            "Forwarded and X-Forwarded-For name different clients; the proxy must set one of them "
            "and remove the other one"
        ),
    )


def foreign_origin() -> RequestRejected:
    return RequestRejected(
        403, "foreign_origin", _("a page of another origin may not change anything here")
    )


def request_timeout() -> RequestRejected:
    return RequestRejected(
        408,
        "request_timeout",
        _("the request did not arrive in time"),
        headers=_CLOSE,
    )


def response_timeout() -> RequestRejected:
    return RequestRejected(
        503,
        "answer_timeout",
        _("no response within the time limit; the request may or may not have taken effect"),
        headers={"Retry-After": "5"},
    )


def request_in_progress() -> RequestRejected:
    return RequestRejected(
        409,
        "request_under_way",
        _("the first request with this Idempotency-Key has not been answered yet"),
        headers={"Retry-After": "1"},
    )


MAX_DEPTH = 32
MAX_KEYS = 1000
MAX_STRING = 64 * 1024
_MAX_DIGITS = 40
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")
#: Messages of Python's JSON parser, translatable.
_PARSER_MESSAGES = {
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
    """Parses JSON. Raises RequestRejected (400) for invalid JSON and InvalidInput (422) for JSON
    that is too deep, too large or ambiguous between parsers."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid_json(_("not UTF-8 at byte {start}", start=error.start)) from None
    _check_depth(text)
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_ObjectBuilder().object,
            parse_constant=_reject_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
        )
    except json.JSONDecodeError as error:
        raise invalid_json(
            _(
                "{trouble} at line {line}",
                trouble=_PARSER_MESSAGES.get(error.msg, error.msg),
                line=error.lineno,
            )
        ) from None
    if "\\" in text or len(text) > MAX_STRING:
        _check_strings(value, "")
    return value


async def read_json(request: Request) -> object | None:
    """The JSON body of a request; None if it is empty."""
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
    """Runs before parsing, because the parser recurses as deep as the input."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for found in _BRACKET.finditer(_STRING.sub("", text)):
        depth += 1 if found[0] in "[{" else -1
        if depth > MAX_DEPTH:
            raise InvalidInput(
                _("the body is nested deeper than {max_depth} levels", max_depth=MAX_DEPTH),
                code="json_too_deep",
            )


class _ObjectBuilder:
    def __init__(self) -> None:
        self._keys = 0

    def object(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        self._keys += len(pairs)
        if self._keys > MAX_KEYS:
            raise InvalidInput(
                _("the body has more than {max_keys} keys", max_keys=MAX_KEYS),
                code="too_many_keys",
            )
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _unused in pairs]
            repeated = _printable(next(key for key in found if keys.count(key) > 1))
            raise InvalidInput(
                _("the key {key} appears twice in an object", key=repeated),
                field=repeated,
                code="duplicate_key",
            )
        return found


def _reject_constant(name: str) -> object:
    raise InvalidInput(_("{name} is not a JSON number", name=name), code="bad_number")


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidInput(_("the number {text} is too large", text=text[:40]), code="bad_number")
    return value


def _parse_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
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
    if len(text) > MAX_STRING:
        raise InvalidInput(
            _("a string has at most {max_string} characters", max_string=MAX_STRING),
            field=field,
            code="too_long",
        )
    if "\0" in text:
        raise InvalidInput(_("a string has a NUL character"), field=field, code="bad_character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(
            _("a string has an unpaired surrogate"), field=_printable(field), code="bad_character"
        ) from None


def _printable(text: str) -> str:
    """Text of the request, shortened and encodable, for use in a response."""
    return text[:64].encode("utf-8", "replace").decode("utf-8")
