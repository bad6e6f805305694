"""Maps errors to HTTP problems (RFC 9457) and renders them in the format of each API."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from fastapi.exceptions import RequestValidationError
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes import errors
from chimes.i18n import ENGLISH, Message, _, counted, in_language, translate
from chimes.model.target import TARGETS
from chimes.web.requests import RequestRejected, error_language, set_language

CHALLENGE = 'Bearer realm="chimes", ApiKey realm="chimes"'
_INDEX = re.compile(r"\[([0-9]+)\]")
#: The field of a request whose items have names that people choose.
_ITEMS = "schedules"
#: Error class, status, default code, title; most specific class first.
_TABLE: tuple[tuple[type[errors.ChimesError], int, str, str], ...] = (
    (errors.InvalidInput, 422, "invalid_input", _("The input is not valid")),
    (errors.NotFound, 404, "not_found", _("Not found")),
    (errors.StaleVersion, 412, "stale_version", _("Changed by another request in the meantime")),
    (errors.AlreadyExists, 409, "already_exists", _("The id or name is taken")),
    (errors.QuotaExceeded, 409, "quota_exceeded", _("The quota is used up")),
    (errors.Conflict, 409, "conflict", _("Not possible in the present state")),
    (errors.NotAllowed, 403, "not_allowed", _("This key does not have the right to do that")),
    (errors.NotAuthenticated, 401, "not_authenticated", _("A valid key is needed")),
    (errors.RateLimited, 429, "rate_limited", _("Too many requests")),
    (errors.StoreReadOnly, 503, "store_read_only", _("The store takes no changes at the moment")),
    (errors.StoreLost, 503, "store_lost", _("The store has lost data")),
    (errors.SecretUnreadable, 500, "secret_unreadable", _("A stored secret cannot be decrypted")),
    (errors.StoreError, 503, "store_unavailable", _("The store cannot answer at the moment")),
)


#: The reason phrases of `http.HTTPStatus`, translatable.
_PHRASES: Mapping[int, str] = {
    400: _("Bad Request"),
    401: _("Unauthorized"),
    403: _("Forbidden"),
    404: _("Not Found"),
    405: _("Method Not Allowed"),
    406: _("Not Acceptable"),
    408: _("Request Timeout"),
    409: _("Conflict"),
    413: _("Request Entity Too Large"),
    415: _("Unsupported Media Type"),
    421: _("Misdirected Request"),
    422: _("Unprocessable Entity"),
    429: _("Too Many Requests"),
    431: _("Request Header Fields Too Large"),
    500: _("Internal Server Error"),
    503: _("Service Unavailable"),
}


def reason_phrase(status: int) -> str:
    """The reason phrase of a status."""
    return _PHRASES.get(status) or HTTPStatus(status).phrase


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldError:
    """One invalid field. `source` is body, query or header."""

    name: str
    detail: str
    code: str
    hint: str = ""
    source: str = "body"
    #: Names of the objects around the field, which may have dots in them; not part of `name`.
    around: tuple[str, ...] = ()

    def in_language(self, language: str) -> FieldError:
        return replace(
            self,
            detail=in_language(self.detail, language),
            hint=in_language(self.hint, language),
        )

    def to_dict(self) -> dict[str, str]:
        found = {"detail": self.detail, "code": self.code}
        if self.source == "body":
            outer = "".join(f"/{_escape(part)}" for part in self.around)
            found = {"pointer": outer + pointer(self.name)} | found
        else:
            found = {"parameter" if self.source == "query" else self.source: self.name} | found
        return found | ({"hint": self.hint} if self.hint else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """An error, independent of the format of an API."""

    status: int
    #: Stable code of the class of problem; `type` in the native API.
    kind: str
    #: The most specific stable code.
    code: str
    title: str
    detail: str
    errors: tuple[FieldError, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Further members of the response.
    more: Mapping[str, object] = field(default_factory=dict)
    #: The language of all texts here.
    language: str = ENGLISH

    def in_language(self, language: str) -> Problem:
        return replace(
            self,
            title=in_language(self.title, language),
            detail=in_language(self.detail, language),
            errors=tuple(each.in_language(language) for each in self.errors),
            more=translate(self.more, language),
            language=language,
        )

    def translate(self, text: str) -> str:
        """Translates a text of an API into the language of the problem."""
        return in_language(text, self.language)


#: Renders a problem in the format of an API. The problem is already translated.
Renderer = Callable[[Request, Problem], Response]


def problem_of(error: Exception) -> Problem:
    """Maps an error to a problem. Other errors are defects: their text is only in the log."""
    if isinstance(error, RequestRejected):
        return Problem(
            status=error.status,
            kind=error.code,
            code=error.code,
            title=reason_phrase(error.status),
            detail=error.message,
            headers=error.headers,
        )
    if isinstance(error, RequestValidationError):
        return _invalid(tuple(_from_pydantic(each) for each in error.errors()))
    if isinstance(error, HTTPException):
        title = reason_phrase(error.status_code)
        code = title.lower().replace(" ", "_")
        return Problem(
            status=error.status_code,
            kind=code,
            code=code,
            title=title,
            detail=title,
            headers=error.headers or {},
        )
    for kind, status, code, title in _TABLE:
        if isinstance(error, kind):
            return _problem_of_known(error, status, code, title)
    return Problem(
        status=500,
        kind="internal_error",
        code="internal_error",
        title=_("Internal error"),
        detail=_("The server log has details under this request id"),
    )


def _problem_of_known(error: errors.ChimesError, status: int, code: str, title: str) -> Problem:
    if isinstance(error, errors.NeedsClarification):
        return _clarification(error)
    if isinstance(error, errors.InvalidItems):
        return _invalid(
            tuple(
                replace(_field_error(each), around=(error.field or "", name))
                for name, each in error.errors.items()
            )
        )
    if isinstance(error, errors.InvalidInput):
        return _invalid((_field_error(error),))
    headers: dict[str, str] = {}
    detail = error.message
    if isinstance(error, errors.StoreError) and not isinstance(error, errors.SecretUnreadable):
        detail, headers = title, {"Retry-After": "5"}
    if isinstance(error, errors.RateLimited):
        headers = {"Retry-After": str(max(1, math.ceil(error.retry_after.total_seconds())))}
    if isinstance(error, errors.NotAuthenticated):
        headers = {"WWW-Authenticate": CHALLENGE}
        # A signature says what is wrong with it; a key does not.
        detail = detail if error.details.get("code") == "bad_signature" else title
    exact = error.details.get("code", code)
    more = {}
    if isinstance(error, errors.QuotaExceeded):
        more = {name: error.details[name] for name in ("quota", "limit") if name in error.details}
    return Problem(
        status=status,
        kind=code,
        code=str(exact),
        title=title,
        detail=detail,
        headers=headers,
        more=more,
    )


def _field_error(error: errors.ChimesError) -> FieldError:
    if not isinstance(error, errors.InvalidInput):
        code = str(error.details.get("code", "invalid"))
        return FieldError(name="", detail=error.message, code=code)
    return FieldError(
        name=error.field or "",
        detail=error.message,
        code=error.code,
        hint=error.hint or "",
        source=str(error.details.get("source", "body")),
    )


def _clarification(error: errors.NeedsClarification) -> Problem:
    """The sentence is ambiguous: the problem has the missing parts and examples."""
    return Problem(
        status=422,
        kind="needs_clarification",
        code="needs_clarification",
        title=_("The text does not say exactly when"),
        detail=error.message,
        errors=(FieldError(name=error.field or "text", detail=error.message, code=error.code),),
        more={
            "clarification": {
                "missing": list(error.missing),
                "message": error.message,
                "examples": list(error.examples),
            }
        },
    )


def _invalid(found: tuple[FieldError, ...]) -> Problem:
    first = found[0]
    detail = first.detail
    place = ".".join(part for part in (*first.around, first.name) if part)
    if place and place not in detail:
        detail = _("{field}: {detail}", field=place, detail=detail)
    return Problem(
        status=422,
        kind="invalid_input",
        code=first.code,
        title=_("The input is not valid"),
        detail=detail,
        errors=found,
    )


def _from_pydantic(found: Mapping[str, object]) -> FieldError:
    place = found.get("loc")
    source, *path = (str(part) for part in place) if isinstance(place, Sequence) else ("body",)
    around: tuple[str, ...] = ()
    if len(path) > 1 and path[0] == _ITEMS:
        around, path = (path[0], path[1]), path[2:]
    context = found.get("ctx")
    given = context if isinstance(context, Mapping) else {}
    within = str(given.get("field") or "")
    match [*path, within] if within else path:
        # Pydantic adds the member of a union to the location; the body has no such level. The
        # fields `task` and `command` of a PATCH are the last part, or an index follows.
        case ["target", kind, name, *_rest] if kind in TARGETS and not name.isdecimal():
            del path[1]
    code, hint = str(found.get("type", "invalid")), given.get("hint")
    if code == "missing" and not path:
        detail: str = _("a JSON body is required")
    else:
        detail = validation_message(code, given)
    return FieldError(
        name=".".join([*path, within] if within else path),
        detail=detail,
        code=code,
        hint=hint if isinstance(hint, str) else "",
        source=source if source in ("query", "header") else "body",
        around=around,
    )


def _escape(part: str) -> str:
    """A part of a JSON pointer (RFC 6901)."""
    return part.replace("~", "~0").replace("/", "~1")


def pointer(name: str) -> str:
    """`trigger.exclude[0].dates` as a JSON pointer; the whole body is the empty one."""
    return "".join(f"/{part}" for part in _INDEX.sub(r".\1", name).split(".") if part)


def native_response(request: Request, problem: Problem) -> Response:
    """RFC 9457."""
    content: dict[str, object] = {
        "type": f"urn:chimes:problem:{problem.kind}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": request.scope.get("path", ""),
        "code": problem.code,
        "request_id": request_id(request),
    }
    content.update(problem.more)
    if problem.errors:
        content["errors"] = [each.to_dict() for each in problem.errors]
    return JSONResponse(
        content,
        status_code=problem.status,
        headers=dict(problem.headers),
        media_type="application/problem+json",
    )


def request_id(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


async def error_response(request: Request, error: Exception) -> Response:
    """Renders the error in the format of the API of the path and in the language of the caller."""
    problem = problem_of(error)
    if isinstance(error, errors.NeedsClarification):
        # The language of the sentence, not of the caller.
        language = error.language
    else:
        language = await error_language(request, use_preferences=problem.status < 500)
    response = _render(request, problem.in_language(language))
    return set_language(response, language)


def _render(request: Request, problem: Problem) -> Response:
    path = str(request.scope.get("path", ""))
    for prefix, render in request.app.state.renderers:
        if path == prefix or path.startswith(f"{prefix}/"):
            response: Response = render(request, problem)
            return response
    return native_response(request, problem)


# --- messages of pydantic errors, translatable; the English texts are those of pydantic --------
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
