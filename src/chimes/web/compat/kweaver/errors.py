"""Error format of the KWeaver API: `{error_code, description, solution, error_link,
error_details}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Request
from starlette.responses import JSONResponse, Response

from chimes.i18n import _
from chimes.web.problems import Problem

_SCHEDULE = "BknBackend.ActionSchedule."
#: Our problem codes -> KWeaver error codes.
CODES: Mapping[str, str] = {
    "invalid_parameter": f"{_SCHEDULE}InvalidParameter",
    "invalid_cron": f"{_SCHEDULE}InvalidCronExpression",
    "invalid_status": f"{_SCHEDULE}InvalidStatus",
    "schedule_not_found": f"{_SCHEDULE}NotFound",
    "internal_error": f"{_SCHEDULE}InternalError",
    "invalid_offset": "BknBackend.InvalidParameter.Offset",
    "invalid_limit": "BknBackend.InvalidParameter.Limit",
    "invalid_sort": "BknBackend.InvalidParameter.Sort",
    "invalid_direction": "BknBackend.InvalidParameter.Direction",
    "not_json": "BknBackend.InvalidRequestHeader.ContentType",
}
#: Error codes of store errors, by method.
FAILURES: Mapping[str, str] = {
    "POST": f"{_SCHEDULE}CreateFailed",
    "PUT": f"{_SCHEDULE}UpdateFailed",
    "DELETE": f"{_SCHEDULE}DeleteFailed",
    "GET": f"{_SCHEDULE}GetFailed",
}


@dataclass(frozen=True, slots=True)
class ErrorText:
    description: str
    solution: str


_PARAMETER = _("Check the parameters.")
_TRY_LATER = _("Try again later. If it happens again, see the server log.")
ERROR_TEXTS: Mapping[str, ErrorText] = {
    CODES["invalid_parameter"]: ErrorText(_("A parameter is not valid"), _PARAMETER),
    CODES["invalid_cron"]: ErrorText(
        _("The cron expression is not valid"),
        _("Write five fields: minute, hour, day of month, month, day of week."),
    ),
    CODES["invalid_status"]: ErrorText(
        _("The status is not valid"), _("Set the status to active or inactive.")
    ),
    CODES["schedule_not_found"]: ErrorText(
        _("The action schedule does not exist"),
        _("Check the id of the schedule, the knowledge network and the branch."),
    ),
    CODES["internal_error"]: ErrorText(_("Internal error"), _TRY_LATER),
    CODES["invalid_offset"]: ErrorText(_("The offset is not valid"), _PARAMETER),
    CODES["invalid_limit"]: ErrorText(_("The limit is not valid"), _PARAMETER),
    CODES["invalid_sort"]: ErrorText(_("The sort order is not valid"), _PARAMETER),
    CODES["invalid_direction"]: ErrorText(_("The sort direction is not valid"), _PARAMETER),
    CODES["not_json"]: ErrorText(
        _("The content type is not supported"),
        _("Send the header Content-Type: application/json."),
    ),
    FAILURES["POST"]: ErrorText(_("The action schedule could not be created"), _TRY_LATER),
    FAILURES["PUT"]: ErrorText(_("The action schedule could not be changed"), _TRY_LATER),
    FAILURES["DELETE"]: ErrorText(_("The action schedules could not be deleted"), _TRY_LATER),
    FAILURES["GET"]: ErrorText(_("The action schedules could not be read"), _TRY_LATER),
}
#: Solutions of general problems, by status.
SOLUTIONS: Mapping[int, str] = {
    401: _("Send a valid key, or the internal token to an internal route."),
    403: _("Ask the administrator of the server for a key with this right."),
    404: _("Check the address."),
    405: _("Check the method and the address."),
    409: _("Check the existing schedules and try again."),
    429: _("Wait for the time in Retry-After and try again."),
    503: _TRY_LATER,
}
#: Default solution.
CHECK_REQUEST = _("Check the request.")


ERROR_FIELDS = ("error_code", "description", "solution", "error_link", "error_details")
#: KWeaver clients expect this text if there is no link.
NO_LINK = "None"


def render(request: Request, problem: Problem) -> Response:
    """Renders a problem. Invalid input is 400, a content type other than JSON 406."""
    status = {415: 406, 422: 400}.get(problem.status, problem.status)
    code = _code(request.scope.get("method", ""), problem, status)
    text = ERROR_TEXTS.get(code)
    details = problem.errors[0].detail if problem.errors else problem.detail
    content = {
        "error_code": code,
        "description": problem.translate(text.description) if text else problem.title,
        "solution": problem.translate(text.solution if text else _solution(status)),
        "error_link": NO_LINK,
        "error_details": details,
        **problem.more,
    }
    return JSONResponse(content, status_code=status, headers=dict(problem.headers))


def _code(method: str, problem: Problem, status: int) -> str:
    if problem.code in CODES:
        return CODES[problem.code]
    if problem.errors:
        in_trigger = problem.errors[0].name.partition(".")[0] == "trigger"
        return CODES["invalid_cron" if in_trigger else "invalid_parameter"]
    if problem.code == "bad_json":
        return CODES["invalid_parameter"]
    if problem.kind == "not_found" and problem.detail != problem.title:
        # An unknown path has no detail of its own.
        return CODES["schedule_not_found"]
    if status == 406:
        return CODES["not_json"]
    if status >= 500:
        return FAILURES.get(method, CODES["internal_error"])
    phrase = HTTPStatus(status).phrase
    return "Public." + "".join(word.capitalize() for word in phrase.replace("-", " ").split())


def _solution(status: int) -> str:
    return SOLUTIONS.get(status, CHECK_REQUEST)
