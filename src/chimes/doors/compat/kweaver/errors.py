"""Problems in the words of KWeaver: `{error_code, description, solution, error_link,
error_details}` (R0.35)."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import Request
from starlette.responses import JSONResponse, Response

from chimes.doors.compat.kweaver.words import CHECK_REQUEST, CODES, FAILURES, SOLUTIONS, WORDS
from chimes.doors.problems import Problem

#: There is nothing to link to, and its users know this word for it.
NO_LINK = "None"


def render(request: Request, problem: Problem) -> Response:
    """Input that is not valid is 400 here, a body that is not JSON 406 (C25)."""
    status = {415: 406, 422: 400}.get(problem.status, problem.status)
    code = _code(request.scope.get("method", ""), problem, status)
    words = WORDS.get(code)
    details = problem.errors[0].detail if problem.errors else problem.detail
    content = {
        "error_code": code,
        "description": problem.said(words.description) if words else problem.title,
        "solution": problem.said(words.solution if words else _solution(status)),
        "error_link": NO_LINK,
        "error_details": details,
        **problem.more,
    }
    return JSONResponse(content, status_code=status, headers=dict(problem.headers))


def _code(method: str, problem: Problem, status: int) -> str:
    if problem.code in CODES:
        return CODES[problem.code]
    if problem.errors:
        of_trigger = problem.errors[0].name.partition(".")[0] == "trigger"
        return CODES["invalid_cron" if of_trigger else "invalid_parameter"]
    if problem.code == "bad_json":
        return CODES["invalid_parameter"]
    if problem.kind == "not_found" and problem.detail != problem.title:
        # An address that there is not says nothing but that.
        return CODES["schedule_not_found"]
    if status == 406:
        return CODES["not_json"]
    if status >= 500:
        return FAILURES.get(method, CODES["internal_error"])
    phrase = HTTPStatus(status).phrase
    return "Public." + "".join(word.capitalize() for word in phrase.replace("-", " ").split())


def _solution(status: int) -> str:
    return SOLUTIONS.get(status, CHECK_REQUEST)
