"""From an error to an answer: the one table of statuses, and each door's own way of saying it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes import errors
from chimes.i18n import ENGLISH, _, in_language, translate
from chimes.web.api.schemas import TARGET_KINDS
from chimes.web.locale import in_language as spoken
from chimes.web.locale import language_of_refusal
from chimes.web.requests import Refusal, sentence

CHALLENGE = 'Bearer realm="chimes", ApiKey realm="chimes"'
_INDEX = re.compile(r"\[([0-9]+)\]")
#: Most specific first; the third is the default code.
_TABLE: tuple[tuple[type[errors.ChimesError], int, str, str], ...] = (
    (errors.InvalidInput, 422, "invalid_input", _("The input is not valid")),
    (errors.NotFound, 404, "not_found", _("Not found")),
    (errors.StaleVersion, 412, "stale_version", _("Changed by somebody else in the meantime")),
    (errors.AlreadyExists, 409, "already_exists", _("The id or name is taken")),
    (errors.QuotaExceeded, 409, "quota_exceeded", _("The quota is used up")),
    (errors.Conflict, 409, "conflict", _("Not possible in the present state")),
    (errors.NotAllowed, 403, "not_allowed", _("This key may not do that")),
    (errors.NotAuthenticated, 401, "not_authenticated", _("A valid key is needed")),
    (errors.RateLimited, 429, "rate_limited", _("Too many requests")),
    (errors.StoreReadOnly, 503, "store_read_only", _("The store takes no changes at the moment")),
    (errors.StoreLost, 503, "store_lost", _("The store no longer holds what it held")),
    (errors.StoreError, 503, "store_unavailable", _("The store cannot answer at the moment")),
)


#: As Python has them, for those that we answer with.
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


def phrase(status: int) -> str:
    """What HTTP calls it."""
    return _PHRASES.get(status) or HTTPStatus(status).phrase


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldError:
    """One thing that is wrong. `source` is body, query or header."""

    name: str
    detail: str
    code: str
    hint: str = ""
    source: str = "body"

    def in_language(self, language: str) -> FieldError:
        return replace(
            self,
            detail=in_language(self.detail, language),
            hint=in_language(self.hint, language),
        )

    def to_dict(self) -> dict[str, str]:
        found = {"detail": self.detail, "code": self.code}
        if self.source == "body":
            found = {"pointer": pointer(self.name)} | found
        else:
            found = {"parameter" if self.source == "query" else self.source: self.name} | found
        return found | ({"hint": self.hint} if self.hint else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """An error as every door can tell it."""

    status: int
    #: Stable word for the class of problem; `type` natively.
    kind: str
    #: The most exact stable word there is.
    code: str
    title: str
    detail: str
    errors: tuple[FieldError, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    #: What this kind of problem tells besides; members of the answer.
    more: Mapping[str, object] = field(default_factory=dict)
    #: Of everything that is said here.
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

    def said(self, text: str) -> str:
        """Words of a door's own, in the language of the problem."""
        return in_language(text, self.language)


#: How a door words a problem. What it gets is in the language of the caller already.
Renderer = Callable[[Request, Problem], Response]


def problem_of(error: Exception) -> Problem:
    """What is not on the table is a defect: its text stays in the log."""
    if isinstance(error, Refusal):
        return Problem(
            status=error.status,
            kind=error.code,
            code=error.code,
            title=phrase(error.status),
            detail=error.message,
            headers=error.headers,
        )
    if isinstance(error, RequestValidationError):
        return _invalid(tuple(_from_pydantic(each) for each in error.errors()))
    if isinstance(error, HTTPException):
        title = phrase(error.status_code)
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
            return _known(error, status, code, title)
    return Problem(
        status=500,
        kind="internal_error",
        code="internal_error",
        title=_("Something went wrong here"),
        detail=_("The log has more under this request id"),
    )


def _known(error: errors.ChimesError, status: int, code: str, title: str) -> Problem:
    if isinstance(error, errors.NeedsClarification):
        return _question(error)
    if isinstance(error, errors.InvalidInput):
        source = str(error.details.get("source", "body"))
        return _invalid(
            (
                FieldError(
                    name=error.field or "",
                    detail=error.message,
                    code=error.code,
                    hint=error.hint or "",
                    source=source,
                ),
            )
        )
    headers: dict[str, str] = {}
    detail = error.message
    if isinstance(error, errors.StoreError):
        detail, headers = title, {"Retry-After": "5"}
    if isinstance(error, errors.RateLimited):
        headers = {"Retry-After": str(max(1, math.ceil(error.retry_after.total_seconds())))}
    if isinstance(error, errors.NotAuthenticated):
        detail, headers = title, {"WWW-Authenticate": CHALLENGE}
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


def _question(error: errors.NeedsClarification) -> Problem:
    """Words that leave open when: the answer asks back."""
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
    if first.name and first.name not in detail:
        detail = _("{field}: {detail}", field=first.name, detail=detail)
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
    if len(path) > 1 and path[0] == "target" and path[1] in TARGET_KINDS:
        # Pydantic names the member of a union in the place; the body has no such level.
        del path[1]
    context = found.get("ctx")
    given = context if isinstance(context, Mapping) else {}
    within = str(given.get("field") or "")
    code, hint = str(found.get("type", "invalid")), given.get("hint")
    if code == "missing" and not path:
        detail: str = _("a JSON body is needed")
    else:
        detail = sentence(code, given)
    return FieldError(
        name=".".join([*path, within] if within else path),
        detail=detail,
        code=code,
        hint=hint if isinstance(hint, str) else "",
        source=source if source in ("query", "header") else "body",
    )


def pointer(name: str) -> str:
    """`trigger.exclude[0].dates` as a JSON pointer; the whole body is the empty one."""
    return "".join(f"/{part}" for part in _INDEX.sub(r".\1", name).split(".") if part)


def native_answer(request: Request, problem: Problem) -> Response:
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


async def answer_to(request: Request, error: Exception) -> Response:
    """The error in the words of the door that the path belongs to, and in the caller's language."""
    problem = problem_of(error)
    if isinstance(error, errors.NeedsClarification):
        # Asked back in the language of the words that were not understood.
        language = error.language
    else:
        language = await language_of_refusal(request, ask_store=problem.status < 500)
    answer = _rendered(request, problem.in_language(language))
    return spoken(answer, language)


def _rendered(request: Request, problem: Problem) -> Response:
    path = str(request.scope.get("path", ""))
    for prefix, render in request.app.state.renderers:
        if path == prefix or path.startswith(f"{prefix}/"):
            answer: Response = render(request, problem)
            return answer
    return native_answer(request, problem)
