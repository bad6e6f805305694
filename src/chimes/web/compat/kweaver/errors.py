"""Problems in the words of KWeaver: `{error_code, description, solution, error_link,
error_details}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Request
from starlette.responses import JSONResponse, Response

from chimes.i18n import _
from chimes.web.problems import Problem

# @@ The error codes of KWeaver, and what each of them tells people.

_SCHEDULE = "BknBackend.ActionSchedule."
#: Ours, as problems have them, and KWeaver's.
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
#: What failed where the store could not be asked, by the method of the request.
FAILURES: Mapping[str, str] = {
    "POST": f"{_SCHEDULE}CreateFailed",
    "PUT": f"{_SCHEDULE}UpdateFailed",
    "DELETE": f"{_SCHEDULE}DeleteFailed",
    "GET": f"{_SCHEDULE}GetFailed",
}


@dataclass(frozen=True, slots=True)
class Words:
    description: str
    solution: str


_PARAMETER = _("Check the parameters.")
_LATER = _("Try again later. If it happens again, the log of the server has more.")
WORDS: Mapping[str, Words] = {
    CODES["invalid_parameter"]: Words(_("A parameter is not valid"), _PARAMETER),
    CODES["invalid_cron"]: Words(
        _("The cron expression is not valid"),
        _("Write five fields: minute, hour, day of month, month, day of week."),
    ),
    CODES["invalid_status"]: Words(
        _("The status is not valid"), _("Set the status to active or inactive.")
    ),
    CODES["schedule_not_found"]: Words(
        _("There is no such action schedule"),
        _("Check the id of the schedule, the knowledge network and the branch."),
    ),
    CODES["internal_error"]: Words(_("Something went wrong here"), _LATER),
    CODES["invalid_offset"]: Words(_("The offset is not valid"), _PARAMETER),
    CODES["invalid_limit"]: Words(_("The limit is not valid"), _PARAMETER),
    CODES["invalid_sort"]: Words(_("The sort order is not valid"), _PARAMETER),
    CODES["invalid_direction"]: Words(_("The sort direction is not valid"), _PARAMETER),
    CODES["not_json"]: Words(
        _("The content type is not supported"),
        _("Send the header Content-Type: application/json."),
    ),
    FAILURES["POST"]: Words(_("The action schedule could not be created"), _LATER),
    FAILURES["PUT"]: Words(_("The action schedule could not be changed"), _LATER),
    FAILURES["DELETE"]: Words(_("The action schedules could not be deleted"), _LATER),
    FAILURES["GET"]: Words(_("The action schedules could not be read"), _LATER),
}
#: For problems that every door has, by status.
SOLUTIONS: Mapping[int, str] = {
    401: _("Send a valid key, or the internal token to an internal route."),
    403: _("Ask whoever administers the server for a key that may do this."),
    404: _("Check the address."),
    405: _("Check the method and the address."),
    409: _("Look at what is there already, and try again."),
    429: _("Wait for the time that Retry-After names, and try again."),
    503: _LATER,
}
#: Where nothing better is known.
CHECK_REQUEST = _("Check the request.")


#: There is nothing to link to, and its users know this word for it.
NO_LINK = "None"


def render(request: Request, problem: Problem) -> Response:
    """Input that is not valid is 400 here, a body that is not JSON 406."""
    status = {415: 406, 422: 400}.get(problem.status, problem.status)
    code = _code(request.scope.get("method", ""), problem, status)
    words = WORDS.get(code)
    details = problem.errors[0].detail if problem.errors else problem.detail
    content = {
        "error_code": code,
        "description": problem.translate(words.description) if words else problem.title,
        "solution": problem.translate(words.solution if words else _solution(status)),
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
