"""Feeds: coming fires as an iCalendar document (RFC 5545), for calendar applications.

The address of a feed has a secret token, of which only a digest is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice

from msgspec import Struct

from chimes.model.access import Owner
from chimes.model.forecast import planned_fires
from chimes.model.ids import ScheduleId
from chimes.model.schedule import Schedule

#: Name of the checkpoint that holds them.
FEEDS_CHECKPOINT = "feeds"
#: Feeds of one owner.
MAX_FEEDS = 100
#: How far a feed reaches by default, and at most.
DEFAULT_DAYS, MAX_FEED_DAYS = 90, 366
#: Events of one schedule and of a feed: a calendar with thousands of events is of no use.
MAX_EVENTS_OF_SCHEDULE, MAX_EVENTS = 1000, 5000
#: Shorter runs would be invisible in a calendar.
_SHORTEST = timedelta(minutes=1)
#: Octets of a line.
_LINE = 75
_MOMENT = "%Y%m%dT%H%M%SZ"


class Feed(Struct, frozen=True, kw_only=True):
    id: str
    #: Of the creator; the feed shows what the creator may see.
    owner: Owner
    sees_everything: bool = False
    #: Exactly one of these: schedules with this label (`name` or `name=value`), this schedule, or
    #: those of this owner.
    label: str = ""
    schedule: ScheduleId | None = None
    of: Owner | None = None
    #: SHA-256 of the token.
    digest: str
    created_at: datetime
    created_by: str

    @property
    def title(self) -> str:
        return self.label or str(self.of or self.schedule or "")


def feed_calendar(
    title: str,
    schedules: Iterable[Schedule],
    words: Mapping[ScheduleId, str],
    durations: Mapping[ScheduleId, timedelta],
    now: datetime,
    until: datetime,
    *,
    link: str = "",
) -> str:
    """The fires until then. Events keep their identity, so that a calendar that reads the feed
    again updates them. `words`: the triggers in words; `link`: of the dashboard."""
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//Chimes//Feed//EN",
        "CALSCALE:GREGORIAN",
        "METHOD:PUBLISH",
        f"X-WR-CALNAME:{_text(title)}",
        "REFRESH-INTERVAL;VALUE=DURATION:PT1H",
        "X-PUBLISHED-TTL:PT1H",
    ]
    rows = [
        (at, each)
        for each in schedules
        for at in islice(planned_fires(each, now, until), MAX_EVENTS_OF_SCHEDULE)
    ]
    rows.sort(key=lambda row: (row[0], row[1].id))
    for at, schedule in rows[:MAX_EVENTS]:
        length = max(_SHORTEST, durations.get(schedule.id, _SHORTEST))
        lines += [
            "BEGIN:VEVENT",
            f"UID:{_text(schedule.id)}-{_moment(at)}@chimes",
            f"DTSTAMP:{_moment(schedule.updated_at)}",
            f"DTSTART:{_moment(at)}",
            f"DTEND:{_moment(at + length)}",
            f"SUMMARY:{_text(schedule.name)}",
            f"DESCRIPTION:{_text(words.get(schedule.id, ''))}",
        ]
        if link:
            lines.append(f"URL:{link}/ui/schedules/{schedule.id}")
        if schedule.labels:
            lines.append("CATEGORIES:" + ",".join(_text(name) for name in sorted(schedule.labels)))
        lines += [f"SEQUENCE:{schedule.version}", "TRANSP:TRANSPARENT", "END:VEVENT"]
    lines.append("END:VCALENDAR")
    return "".join(f"{_folded(line)}\r\n" for line in lines)


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime(_MOMENT)


def _text(value: str) -> str:
    """Escaped as a TEXT value, without control characters."""
    escaped = value.replace("\\", "\\\\").replace(";", "\\;").replace(",", "\\,")
    lines = escaped.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\\n")
    return "".join(each for each in lines if each >= " " and each != "\x7f")


def _folded(line: str) -> str:
    """In lines of up to 75 octets, which never split a character."""
    parts, part, size = [], "", 0
    for each in line:
        length = len(each.encode(errors="replace"))
        if size + length > _LINE:
            parts.append(part)
            part, size = " ", 1
        part += each
        size += length
    return "\r\n".join([*parts, part])
