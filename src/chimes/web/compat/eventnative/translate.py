"""Runs of a pair as tasks of EventNative, and its query parameters. Pure; the messages are those
that its users know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, _
from chimes.model.listing import RunQuery
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.model.sync import (
    TASK_RUN_STATUSES,
    TaskStatus,
    run_statuses,
    sync_target,
    task_fields,
    task_time,
)
from chimes.model.target import SyncTarget
from chimes.retelling import retold_line
from chimes.triggers import parse_moment

# @@ What the EventNative door takes for granted.

#: Where a key may stand: the admin token as its users send it, or a native admin key.
ACCEPTS = ("X-Admin-Token", "?token", "Bearer", "ApiKey", "X-API-Key")
#: Its users know `/api/v1/tasks`, the seed says `/tasks`; both are the same.
PREFIXES = ("/tasks", "/api/v1/tasks")
#: Rows that are read from the store at a time.
PAGE = 500
#: As Go writes a layout: how times are written here.
TIME_LAYOUT = "2006-01-02T15:04:05.000000Z"
#: Who wrote a log entry.
SYSTEM = "chimes"


Json = dict[str, object]
#: R4.3 and what its users know besides: info, warn, error, debug.
_LEVELS = {"warning": "warn", "critical": "error"}
_MOST = 1_000_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What GET /tasks asks for."""

    source: str
    #: None: all of the source.
    collection: str | None
    start: datetime
    end: datetime
    statuses: tuple[RunStatus, ...]
    #: Of each collection; None: all of them.
    limit: int | None

    @property
    def query(self) -> RunQuery:
        return RunQuery(
            requirement=SyncTarget(source=self.source, collection="").requirement,
            concurrency_key=None
            if self.collection is None
            else SyncTarget(source=self.source, collection=self.collection).key,
            statuses=self.statuses,
            created_since=self.start,
            created_until=self.end,
            descending=False,
            limit=PAGE,
        )


def listing_from(given: Mapping[str, str]) -> Listing:
    source = required(given, "source")
    start, end = moment_from(required(given, "start"), "start"), required(given, "end")
    return Listing(
        source=source,
        collection=given.get("collection") or None,
        start=start,
        end=moment_from(end, "end"),
        statuses=statuses_from(given.get("status", "")),
        limit=number_from(given, "limit", most=_MOST) or None,
    )


def pair_from(given: Mapping[str, str]) -> SyncTarget:
    """Of POST /tasks."""
    source = required(given, "source")
    return SyncTarget(source=source, collection=required(given, "collection"))


def required(given: Mapping[str, str], name: str) -> str:
    value = given.get(name, "")
    if not value:
        raise _wrong(_("'{name}' is required query parameter", name=name), name, "missing")
    return value


def window_from(given: Mapping[str, str]) -> tuple[datetime | None, datetime | None]:
    """Of GET /tasks/{id}/logs: both are optional."""
    start, end = given.get("start", ""), given.get("end", "")
    return (
        moment_from(start, "start") if start else None,
        moment_from(end, "end") if end else None,
    )


#: What `parse_moment` takes.
FIRST_YEAR, LAST_YEAR = 1970, 9998


def moment_from(text: str, name: str) -> datetime:
    """RFC 3339, with or without a fraction. The beginning and the end of all time, as windows are
    written that mean everything, are as early and as late as anything can be."""
    # A plus sign that was not escaped arrives as a space.
    unescaped = text.replace(" ", "+") if "T" in text else text
    year = unescaped[:4]
    if year.isascii() and year.isdigit() and unescaped[4:5] == "-":
        if int(year) < FIRST_YEAR:
            unescaped = f"{FIRST_YEAR}{unescaped[4:]}"
        elif int(year) > LAST_YEAR:
            unescaped = f"{LAST_YEAR}{unescaped[4:]}"
    try:
        return parse_moment(unescaped, field=name)
    except InvalidInput as error:
        raise _wrong(
            _(
                "Error parsing '{name}' query parameter. Accepted datetime format: {time_layout}",
                name=name,
                time_layout=TIME_LAYOUT,
            ),
            name,
            "bad_moment",
            why=error.message,
        ) from None


def statuses_from(word: str) -> tuple[RunStatus, ...]:
    """Without one: all that are tasks."""
    if not word:
        return TASK_RUN_STATUSES
    try:
        return run_statuses(TaskStatus(word.upper()))
    except ValueError:
        supported = ", ".join(TaskStatus)
        raise _wrong(
            _(
                "Unknown status: {word}. Supported: [{supported}]",
                word=word[:100],
                supported=supported,
            ),
            "status",
            "unknown_status",
        ) from None


def number_from(given: Mapping[str, str], name: str, *, most: int) -> int:
    """0 if there is none."""
    text = given.get(name, "")
    if not text:
        return 0
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= number <= most:
        raise _wrong(
            _("'{name}' is a number from 0 to {most}", name=name, most=most), name, "bad_number"
        )
    return number


def task_out(run: Run, drivers: Mapping[str, str]) -> Json:
    """R4.6, and `source_type`, which is known where the source is."""
    return {**task_fields(run), "source_type": drivers.get(sync_target(run).source, "")}


def log_out(task: str, entry: LogEntry, lang: str = ENGLISH) -> Json:
    """The task's id stands before each message, as in the lines that its users know."""
    text = retold_line(entry.message, lang)
    return {
        "time": task_time(entry.at),
        "message": f"[{task}] {text}",
        "level": _LEVELS.get(entry.level, entry.level),
        "system": SYSTEM,
    }


def within(entry: LogEntry, start: datetime | None, end: datetime | None) -> bool:
    return (start is None or start <= entry.at) and (end is None or entry.at <= end)


def _wrong(message: str, name: str, code: str, *, why: str = "") -> InvalidInput:
    return InvalidInput(message, field=name, code=code, hint=why or None, source="query")
