"""The log of a run: for the page's script, as it is written, and as a file."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import replace

from starlette.responses import Response, StreamingResponse

from chimes.doors.api.log_tail import STREAM, Followers, LogTail, resumed_after
from chimes.doors.dashboard.assets import accepts_gzip
from chimes.doors.dashboard.entering import Reception, still_welcome
from chimes.doors.dashboard.pages import Pages
from chimes.doors.dashboard.views_run import line_out
from chimes.doors.dashboard.visit import Visit
from chimes.errors import InvalidInput
from chimes.model.ids import RunId
from chimes.model.run import LogEntry
from chimes.retelling import retold_line
from chimes.triggers.moment import format_moment

pages = Pages()
#: Of one answer: lines, and characters after which it ends.
_LINES, _CHARACTERS = 5000, 2_000_000
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@pages.get("/runs/{id}/log.json")
async def lines(visit: Visit) -> Response:
    """Many lines at once, so that a long log is there before anybody scrolls."""
    run = await visit.door.runs.get(visit.actor, RunId(visit.path["id"]))
    found = await visit.door.runs.logs(visit.actor, run.id, after=_after(visit), limit=_LINES)
    shown: list[list[object]] = []
    room = _CHARACTERS
    for entry in found:
        shown.append(line_out(_retold(entry, visit)))
        room -= len(entry.message)
        if room < 0:
            break
    whole = len(shown) == len(found) < _LINES
    content = json.dumps(
        {
            "lines": shown,
            "next": None if whole else found[len(shown) - 1].number,
            "ended": run.status.terminal,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    headers = {"Vary": "Accept-Encoding"}
    if accepts_gzip(visit.request):
        content = gzip.compress(content, 3, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type="application/json", headers=headers)


@pages.get("/runs/{id}/log/stream")
async def stream(visit: Visit) -> Response:
    """The API's tail, for somebody with a session."""
    run = await visit.door.runs.get(visit.actor, RunId(visit.path["id"]))
    followers: Followers = visit.request.app.state.followers
    followers.check_room()
    reception = Reception(
        door=visit.door,
        users=visit.users,
        sign_ins=visit.sign_ins,
        clock_watch=visit.clock_watch,
    )

    async def welcome() -> bool:
        return await still_welcome(reception, visit.request)

    tail = LogTail(
        visit.door,
        visit.actor,
        run.id,
        followers,
        allowed=welcome,
        lang=visit.look.language,
    )
    after = resumed_after(visit.request, _after(visit))
    if visit.request.scope["state"].get("head"):
        return Response(media_type=STREAM, headers=_STREAM_HEADERS)
    return StreamingResponse(tail.events(after), media_type=STREAM, headers=_STREAM_HEADERS)


@pages.get("/runs/{id}/log.txt")
async def download(visit: Visit) -> Response:
    run = await visit.door.runs.get(visit.actor, RunId(visit.path["id"]))
    name = "".join(sign for sign in run.id if sign.isalnum() or sign in "-_")
    return StreamingResponse(
        _text(visit, run.id),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="run-{name}.log"'},
    )


async def _text(visit: Visit, run_id: RunId) -> AsyncIterator[str]:
    after = 0
    while True:
        found = await visit.door.runs.logs(visit.actor, run_id, after=after, limit=1000)
        if found:
            after = found[-1].number
            yield "".join(_line(_retold(entry, visit)) for entry in found)
        if len(found) < 1000:
            return


def _line(entry: LogEntry) -> str:
    return f"{format_moment(entry.at)} {entry.level.upper():<8} {entry.message}\n"


def _retold(entry: LogEntry, visit: Visit) -> LogEntry:
    return replace(entry, message=retold_line(entry.message, visit.look.language))


def _after(visit: Visit) -> int:
    text = visit.query.get("after", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput(field="after", code="bad_number", source="query")
    return int(text)
