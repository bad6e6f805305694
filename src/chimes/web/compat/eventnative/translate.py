"""Converts sync runs to EventNative tasks, and query parameters to run queries. The messages are
those of EventNative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import InvalidInput
from chimes.i18n import _
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
from chimes.triggers import parse_moment

#: Credentials: the admin token as EventNative clients send it, or a native admin key.
ACCEPTS = ("X-Admin-Token", "?token", "Bearer", "ApiKey", "X-API-Key")
#: EventNative clients use either prefix.
PREFIXES = ("/tasks", "/api/v1/tasks")
#: Runs per read from the store.
PAGE = 500
#: Time format, as a Go layout.
TIME_LAYOUT = "2006-01-02T15:04:05.000000Z"
#: `system` of log entries.
SYSTEM = "chimes"


Json = dict[str, object]
#: EventNative has the levels info, warn, error, debug.
_LEVELS = {"warning": "warn", "critical": "error"}
_MAX_LIMIT = 1_000_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """Parameters of GET /tasks."""

    source: str
    #: None for all collections of the source.
    collection: str | None
    start: datetime
    end: datetime
    statuses: tuple[RunStatus, ...]
    #: Per collection; None for no limit.
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
        limit=number_from(given, "limit", maximum=_MAX_LIMIT) or None,
    )


def pair_from(given: Mapping[str, str]) -> SyncTarget:
    """The target of POST /tasks."""
    source = required(given, "source")
    return SyncTarget(source=source, collection=required(given, "collection"))


def required(given: Mapping[str, str], name: str) -> str:
    value = given.get(name, "")
    if not value:
        raise _invalid(_("'{name}' is required query parameter", name=name), name, "missing")
    return value


def period_from(given: Mapping[str, str]) -> tuple[datetime | None, datetime | None]:
    """The optional period of GET /tasks/{id}/logs."""
    start, end = given.get("start", ""), given.get("end", "")
    return (
        moment_from(start, "start") if start else None,
        moment_from(end, "end") if end else None,
    )


#: Years that `parse_moment` accepts.
FIRST_YEAR, LAST_YEAR = 1970, 9998


def moment_from(text: str, name: str) -> datetime:
    """Parses RFC 3339. Years out of range, as in year 1 to 9999 for everything, are clamped."""
    # An unescaped plus sign arrives as a space.
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
        raise _invalid(
            _(
                "Error parsing '{name}' query parameter. Accepted datetime format: {time_layout}",
                name=name,
                time_layout=TIME_LAYOUT,
            ),
            name,
            "bad_moment",
            hint=error.message,
        ) from None


def statuses_from(word: str) -> tuple[RunStatus, ...]:
    """Run statuses of a task status; all task statuses if empty."""
    if not word:
        return TASK_RUN_STATUSES
    try:
        return run_statuses(TaskStatus(word.upper()))
    except ValueError:
        supported = ", ".join(TaskStatus)
        raise _invalid(
            _(
                "Unknown status: {word}. Supported: [{supported}]",
                word=word[:100],
                supported=supported,
            ),
            "status",
            "unknown_status",
        ) from None


def number_from(given: Mapping[str, str], name: str, *, maximum: int) -> int:
    """0 if absent."""
    text = given.get(name, "")
    if not text:
        return 0
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= number <= maximum:
        raise _invalid(
            _("'{name}' is a number from 0 to {maximum}", name=name, maximum=maximum),
            name,
            "bad_number",
        )
    return number


def task_out(run: Run, drivers: Mapping[str, str]) -> Json:
    """The fields of a task; `source_type` is empty if this node does not know the source."""
    return {**task_fields(run), "source_type": drivers.get(sync_target(run).source, "")}


def log_out(task: str, entry: LogEntry) -> Json:
    """Messages start with the task id, as in EventNative."""
    text = entry.message
    return {
        "time": task_time(entry.at),
        "message": f"[{task}] {text}",
        "level": _LEVELS.get(entry.level, entry.level),
        "system": SYSTEM,
    }


def within(entry: LogEntry, start: datetime | None, end: datetime | None) -> bool:
    return (start is None or start <= entry.at) and (end is None or entry.at <= end)


def _invalid(message: str, name: str, code: str, *, hint: str = "") -> InvalidInput:
    return InvalidInput(message, field=name, code=code, hint=hint or None, source="query")
