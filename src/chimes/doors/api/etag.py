"""Entity tags: the version of the definition, and a hash of what is shown."""

from __future__ import annotations

import hashlib
import json
import re

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.doors.api.wire import Json, schedule_out
from chimes.doors.language import in_language
from chimes.errors import StaleVersion
from chimes.model.schedule import Schedule

_TAG = re.compile(r'(?:W/)?"([0-9]{1,18})(?:-[0-9a-f]+)?"|([0-9]{1,18})')


def etag(schedule: Schedule, shown: Json) -> str:
    """The hash changes with every fire, so that a cached answer is never out of date; only the
    version counts for If-Match."""
    content = json.dumps(shown, sort_keys=True, default=str).encode()
    return f'"{schedule.version}-{hashlib.blake2b(content, digest_size=6).hexdigest()}"'


def schedule_answer(schedule: Schedule, lang: str, *, status: int = 200) -> JSONResponse:
    shown = schedule_out(schedule, lang)
    answer = JSONResponse(shown, status_code=status, headers={"ETag": etag(schedule, shown)})
    return in_language(answer, lang)


def unless_known(request: Request, answer: Response) -> Response:
    """304 where the caller has this very answer already."""
    tag = answer.headers["ETag"]
    known = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known or f"W/{tag}" in known:
        kept = {name: answer.headers[name] for name in ("ETag", "Content-Language", "Vary")}
        return Response(status_code=304, headers=kept)
    return answer


def expected_version(request: Request, current: int) -> int | None:
    """The version that If-Match demands; None: any."""
    given = request.headers.get("if-match")
    if given is None or given.strip() == "*":
        return None
    found = (_TAG.fullmatch(each.strip()) for each in given.split(","))
    versions = {int(match[1] or match[2]) for match in found if match}
    if current in versions:
        return current
    raise StaleVersion(version=current)
