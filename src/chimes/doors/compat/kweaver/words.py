"""The error codes of KWeaver, and what each of them tells people (R0.35)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chimes.wording import say

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


_PARAMETER = say("Check the parameters.")
_LATER = say("Try again later. If it happens again, the log of the server has more.")
WORDS: Mapping[str, Words] = {
    CODES["invalid_parameter"]: Words(say("A parameter is not valid"), _PARAMETER),
    CODES["invalid_cron"]: Words(
        say("The cron expression is not valid"),
        say("Write five fields: minute, hour, day of month, month, day of week."),
    ),
    CODES["invalid_status"]: Words(
        say("The status is not valid"), say("Set the status to active or inactive.")
    ),
    CODES["schedule_not_found"]: Words(
        say("There is no such action schedule"),
        say("Check the id of the schedule, the knowledge network and the branch."),
    ),
    CODES["internal_error"]: Words(say("Something went wrong here"), _LATER),
    CODES["invalid_offset"]: Words(say("The offset is not valid"), _PARAMETER),
    CODES["invalid_limit"]: Words(say("The limit is not valid"), _PARAMETER),
    CODES["invalid_sort"]: Words(say("The sort order is not valid"), _PARAMETER),
    CODES["invalid_direction"]: Words(say("The sort direction is not valid"), _PARAMETER),
    CODES["not_json"]: Words(
        say("The content type is not supported"),
        say("Send the header Content-Type: application/json."),
    ),
    FAILURES["POST"]: Words(say("The action schedule could not be created"), _LATER),
    FAILURES["PUT"]: Words(say("The action schedule could not be changed"), _LATER),
    FAILURES["DELETE"]: Words(say("The action schedules could not be deleted"), _LATER),
    FAILURES["GET"]: Words(say("The action schedules could not be read"), _LATER),
}
#: For problems that every door has, by status.
SOLUTIONS: Mapping[int, str] = {
    401: say("Send a valid key, or the internal token to an internal route."),
    403: say("Ask whoever administers the server for a key that may do this."),
    404: say("Check the address."),
    405: say("Check the method and the address."),
    409: say("Look at what is there already, and try again."),
    429: say("Wait for the time that Retry-After names, and try again."),
    503: _LATER,
}
#: Where nothing better is known.
CHECK_REQUEST = say("Check the request.")
