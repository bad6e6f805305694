"""Calendars that schedules share by name (ADR 85).

The contents of a calendar, with those of its latest versions, are one document; another lists the
names. A schedule holds a copy of the contents that it uses: a change of a calendar is a change of
each of these schedules, which fires their due slots first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, cast

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.i18n import _, counted, joined
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry, entry
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.services.documents import Document, DocumentStore
from chimes.store.port import Store
from chimes.triggers import NamedCalendar, Trigger, format_moment, parse_moment
from chimes.triggers.calendars import (
    CALENDAR_KEYS,
    check_calendar_name,
    is_country,
    parse_named_calendar,
)
from chimes.triggers.values import suggest_name

#: Names and versions of all calendars.
_INDEX = "calendars"
_CONTENTS = "calendar:"
MAX_CALENDARS = 200
#: Versions that a calendar keeps.
MAX_VERSIONS = 20
#: Schedules named in an error or a list.
MAX_USES = 100
_PAGE = 500

#: Gives one schedule the present contents of its calendars.
Refresh = Callable[[Actor, Schedule, Mapping[str, NamedCalendar]], Awaitable[object]]


@dataclass(frozen=True, kw_only=True, slots=True)
class CalendarVersion:
    contents: NamedCalendar
    at: datetime
    by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CalendarReport:
    """A calendar, and the schedules that use it."""

    name: str
    #: The newest first.
    versions: tuple[CalendarVersion, ...]
    created_at: datetime
    #: At most MAX_USES.
    schedules: tuple[Schedule, ...] = ()
    count: int = 0
    #: Schedules whose fires could not be planned with the new contents.
    failed: tuple[Schedule, ...] = field(default=())

    @property
    def contents(self) -> NamedCalendar:
        return self.versions[0].contents


class CalendarService:
    """Every caller may read calendars; only an admin changes them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def known(self, names: Collection[str]) -> dict[str, NamedCalendar]:
        """The contents of those that exist."""
        found = {}
        for name in names:
            report = _report(name, await self._contents(name).read())
            if report is not None:
                found[name] = report.contents
        return found

    async def resolve(self, trigger: Trigger) -> Trigger:
        """The trigger with the contents of its calendars. Raises InvalidInput for an unknown
        one."""
        return (await self.resolver(trigger.calendar_names()))(trigger)

    async def resolver(self, names: Set[str]) -> Callable[[Trigger], Trigger]:
        """Resolves triggers that use calendars of these names."""
        known = await self.known(names) if names else {}
        index = await self._index().read() if names - known.keys() else {}
        return partial(_resolve, known=known, index=index)

    async def list_calendars(self, actor: Actor) -> list[CalendarReport]:
        names = sorted(await self._index().read())
        used: dict[str, list[Schedule]] = {name: [] for name in names}
        async for schedule in self._schedules():
            for name in schedule.trigger.calendar_names():
                used.get(name, []).append(schedule)
        found = []
        for name in names:
            report = _report(name, await self._contents(name).read())
            if report is not None:
                found.append(_with_uses(report, actor, used[name]))
        return found

    async def get(self, actor: Actor, name: str) -> CalendarReport:
        report = _report(name, await self._contents(name).read())
        if report is None:
            raise _not_found(name)
        return _with_uses(report, actor, await self._users(name))

    async def put(
        self, actor: Actor, name: str, contents: Mapping[str, object], refresh: Refresh
    ) -> CalendarReport:
        """Creates or replaces a calendar, and plans the schedules that use it again. Repeated after
        a failure, it goes on with those that have an older version."""
        _check_admin(actor)
        check_calendar_name(name, "name")
        new = parse_named_calendar({key: contents[key] for key in contents if key != "version"})
        now = await self._store.now()
        index = await self._index().read()
        if name not in index and len(index) >= MAX_CALENDARS:
            raise InvalidInput(
                _("there may be {most} calendars: delete one", most=MAX_CALENDARS),
                field="name",
                code="too_many",
            )

        def change(stored: Document) -> tuple[Document, AuditEntry | None]:
            report = _report(name, stored)
            before = {} if report is None else report.contents.to_dict()
            after = new.to_dict()
            if report is not None and before == after:
                return stored, None
            version = 1 if report is None else report.contents.version + 1
            row = {
                "contents": {"version": version, **after},
                "at": format_moment(now),
                "by": actor.name,
            }
            rows = cast(list[Any], stored.get("versions", []))
            document = {
                "created_at": stored.get("created_at", format_moment(now)),
                "versions": [row, *rows][:MAX_VERSIONS],
            }
            changes = {
                key: [before.get(key), after.get(key)]
                for key in CALENDAR_KEYS
                if before.get(key) != after.get(key)
            }
            return document, entry(
                actor,
                "set_calendar",
                "calendar",
                name,
                at=now,
                owner=actor.owner,
                changes=changes,
            )

        stored = await self._contents(name).change(change)
        report = _report(name, stored)
        assert report is not None
        version = report.contents.version
        await self._index().change(lambda names: ({**names, name: version}, None))
        failed = await self._refresh_users(actor, name, report.contents, refresh)
        found = _with_uses(report, actor, await self._users(name))
        return CalendarReport(
            name=name,
            versions=found.versions,
            created_at=found.created_at,
            schedules=found.schedules,
            count=found.count,
            failed=tuple(failed),
        )

    async def remove(self, actor: Actor, name: str) -> None:
        """Raises Conflict if schedules use it."""
        _check_admin(actor)
        if _report(name, await self._contents(name).read()) is None:
            raise _not_found(name)
        used = await self._users(name)
        if used:
            shown = ", ".join(each.name for each in used[:MAX_USES])
            raise Conflict(
                joined(
                    " ",
                    [
                        counted(
                            "{count} schedule uses the calendar {name}.",
                            "{count} schedules use the calendar {name}.",
                            len(used),
                            name=name,
                        ),
                        _("Change these first: {schedules}", schedules=shown),
                    ],
                ),
                code="calendar_in_use",
            )
        now = await self._store.now()
        audit = entry(actor, "delete_calendar", "calendar", name, at=now, owner=actor.owner)
        await self._contents(name).change(lambda _stored: ({}, audit))
        await self._index().change(
            lambda names: ({each: names[each] for each in names if each != name}, None)
        )

    async def is_outdated(self, schedule: Schedule) -> bool:
        if not schedule.trigger.calendar_names():
            return False
        return is_outdated(schedule, await self._index().read())

    async def _refresh_users(
        self, actor: Actor, name: str, contents: NamedCalendar, refresh: Refresh
    ) -> list[Schedule]:
        failed = []
        for schedule in await self._users(name):
            try:
                await refresh(actor, schedule, {name: contents})
            except NotFound:
                continue
            except (InvalidInput, Conflict):
                failed.append(schedule)
        return failed

    async def _users(self, name: str) -> list[Schedule]:
        return [each async for each in self._schedules() if name in each.trigger.calendar_names()]

    async def _schedules(self) -> AsyncIterator[Schedule]:
        query = ScheduleQuery(limit=_PAGE)
        while True:
            page = await self._store.list_schedules(query)
            for each in page.items:
                yield each
            if page.next is None:
                return
            query = ScheduleQuery(limit=_PAGE, after=page.next)

    def _index(self) -> DocumentStore:
        return DocumentStore(self._store, _INDEX)

    def _contents(self, name: str) -> DocumentStore:
        return DocumentStore(self._store, f"{_CONTENTS}{name}")


def is_outdated(schedule: Schedule, versions: Mapping[str, object]) -> bool:
    """Whether a calendar of the schedule has a newer version than its copy."""
    copies = schedule.trigger.calendars()
    return any(
        isinstance(version := versions.get(name), int)
        and (name not in copies or copies[name].version < version)
        for name in schedule.trigger.calendar_names()
    )


def newer_contents(
    trigger: Trigger, known: Mapping[str, NamedCalendar]
) -> dict[str, NamedCalendar]:
    """The contents that replace those of the trigger: never older ones, since two changes of a
    calendar may reach a schedule in either order."""
    copies = trigger.calendars()
    return copies | {
        name: contents
        for name, contents in known.items()
        if name not in copies or copies[name].version < contents.version
    }


def parse_ics(data: bytes | str) -> dict[str, object]:
    """The days of the events in an iCalendar file as the contents of a calendar: events of whole
    days become dates and ranges, others ranges of moments. Raises InvalidInput if it has none."""
    text = data.decode("utf-8-sig", "replace") if isinstance(data, bytes) else data
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        # A line that begins with a space continues the one before.
        if line[:1] in (" ", "\t") and lines:
            lines[-1] += line[1:]
        else:
            lines.append(line)
    if not any(each.strip().upper() == "BEGIN:VCALENDAR" for each in lines):
        raise InvalidInput(_("this is no iCalendar file"), field="ics", code="bad_calendar")
    dates: set[str] = set()
    ranges: list[list[str]] = []
    event: dict[str, tuple[str, str]] | None = None
    for line in lines:
        name, colon, value = line.partition(":")
        key, _semicolon, parameters = name.partition(";")
        match key.upper(), value.strip().upper():
            case "BEGIN", "VEVENT":
                event = {}
            case "END", "VEVENT":
                if event is not None and "DTSTART" in event:
                    _add_event(event, dates, ranges)
                event = None
            case _:
                if event is not None and colon:
                    event.setdefault(key.upper(), (parameters, value.strip()))
    if not dates and not ranges:
        raise InvalidInput(_("the file has no events"), field="ics", code="bad_calendar")
    found: dict[str, object] = {}
    if dates:
        found["dates"] = sorted(dates)
    if ranges:
        found["ranges"] = ranges
    return found


def _add_event(
    event: Mapping[str, tuple[str, str]], dates: set[str], ranges: list[list[str]]
) -> None:
    if "RRULE" in event:
        raise InvalidInput(
            _(
                "the file has a repeated event ({start}); write its days one by one",
                start=event["DTSTART"][1],
            ),
            field="ics",
            code="repeated_event",
        )
    parameters, start = event["DTSTART"]
    if event.get("STATUS", ("", ""))[1].upper() == "CANCELLED":
        return
    end = event.get("DTEND", (parameters, ""))
    try:
        if len(start) == 8:
            first = date.fromisoformat(start)
            # The end of an event of whole days is the day after.
            last = date.fromisoformat(end[1]) - timedelta(days=1) if end[1] else first
            if last <= first:
                dates.add(str(first))
            else:
                ranges.append([str(first), str(last)])
            return
        begins = _ics_moment(parameters, start)
        finishes = _ics_moment(*end) if end[1] else begins + timedelta(minutes=1)
    except ValueError:
        raise InvalidInput(
            _("the event at {start} has no valid times", start=start),
            field="ics",
            code="bad_calendar",
        ) from None
    if finishes > begins:
        ranges.append([_written(begins), _written(finishes)])


def _written(moment: datetime) -> str:
    """With Z if it is an instant."""
    return moment.isoformat() if moment.tzinfo is None else format_moment(moment)


def _ics_moment(parameters: str, value: str) -> datetime:
    """A floating time has no zone: it is in that of the trigger."""
    moment = datetime.fromisoformat(value)
    for each in parameters.split(";"):
        key, _equals, zone = each.partition("=")
        if key.upper() == "TZID" and moment.tzinfo is None:
            return parse_moment(moment.isoformat(), zone.strip('"'))
    return moment


def _resolve(
    trigger: Trigger, known: Mapping[str, NamedCalendar], index: Collection[str]
) -> Trigger:
    for name in sorted(trigger.calendar_names() - known.keys()):
        if not (name in trigger.countries() and is_country(name)):
            raise InvalidInput(
                _("there is no calendar {name!r}", name=name),
                field="trigger",
                code="unknown_calendar",
                hint=suggest_name(name, index),
            )
    return trigger.with_calendars(known)


def _report(name: str, stored: Document) -> CalendarReport | None:
    rows = stored.get("versions")
    if not isinstance(rows, list) or not rows:
        return None
    versions = tuple(
        CalendarVersion(
            contents=parse_named_calendar(row["contents"]),
            at=parse_moment(row["at"]),
            by=str(row["by"]),
        )
        for row in rows
    )
    created = parse_moment(str(stored["created_at"]))
    return CalendarReport(name=name, versions=versions, created_at=created)


def _with_uses(report: CalendarReport, actor: Actor, used: Collection[Schedule]) -> CalendarReport:
    """Of the schedules only those that the actor may see, but the number of all."""
    shown = [each for each in used if actor.may_see(each.owner)]
    return CalendarReport(
        name=report.name,
        versions=report.versions,
        created_at=report.created_at,
        schedules=tuple(shown[:MAX_USES]),
        count=len(used),
    )


def _check_admin(actor: Actor) -> None:
    if not actor.administers:
        raise NotAllowed(_("only an admin may change calendars"))


def _not_found(name: str) -> NotFound:
    return NotFound(_("there is no calendar {name!r}", name=name))
