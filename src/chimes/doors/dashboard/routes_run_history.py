"""What is known around a run: who asked for it, what came of it, and since when it has failed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from chimes.doors.dashboard.views_run_error import LAST_ENTRIES
from chimes.doors.dashboard.views_system_audit import Change, changes_of
from chimes.doors.dashboard.visit import Visit
from chimes.errors import NotFound
from chimes.model.audit import AuditEntry
from chimes.model.ids import RunId
from chimes.model.insights import BAD, ERROR_ROOM
from chimes.model.listing import AuditQuery, RunQuery, RunSort
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.service.askers import Asker, askers_of
from chimes.service.known_failures import Known, KnownFailures, fingerprint

#: What is on record about a schedule and changes nothing about it.
_NO_CHANGE = frozenset({"run", "snooze", "wake"})
#: Entries and failures that are looked at.
_ENTRIES, _FAILURES = 100, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """A change of the schedule between the last good run and this one."""

    entry: AuditEntry
    changes: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """Since when, and what was different before."""

    #: The newest good run before this one; None: there was none.
    last_good: Run | None
    #: The first since then with the same error.
    first_seen: Run
    #: How many since then have it, this one included; `more`: and perhaps others.
    count: int
    more: bool
    edits: tuple[Edit, ...]


async def schedule_of(visit: Visit, run: Run) -> Schedule | None:
    """None: it has none, or it has been forgotten."""
    if run.schedule_id is None:
        return None
    try:
        return await visit.door.schedules.get(visit.actor, run.schedule_id)
    except NotFound:
        return None


async def asked_by(visit: Visit, run: Run) -> Asker | None:
    """Who wanted it; None: the schedule, or nobody knows any more."""
    return (await askers_of(visit.door.store, [run])).get(run.id)


async def retries_of(visit: Visit, run: Run) -> tuple[RunId, ...]:
    """The runs that repeated this one by hand, oldest first."""
    if not run.status.terminal:
        return ()
    entries = await visit.door.store.list_audit(
        AuditQuery(object_id=run.id, verb="retry", owner=str(run.owner), limit=_ENTRIES)
    )
    found = (entry.changes.get("run_id") for entry in reversed(entries))
    return tuple(RunId(str(each)) for each in found if each)


async def entries_about(visit: Visit, run: Run) -> tuple[AuditEntry, ...]:
    """What people did with it; from where they called is for those who see everything."""
    query = AuditQuery(object_id=run.id, owner=str(run.owner), limit=_ENTRIES)
    return tuple(await visit.door.store.list_audit(query))


async def end_of_log(visit: Visit, run: Run) -> tuple[LogEntry, ...]:
    """Its last entries; nothing of a run in which nothing went wrong."""
    if not run.error:
        return ()
    last = (await visit.door.store.last_logs([run.id])).get(run.id)
    if last is None:
        return ()
    after = max(0, last.number - LAST_ENTRIES)
    return await visit.door.runs.logs(visit.actor, run.id, after=after, limit=LAST_ENTRIES)


async def failed_step(visit: Visit, run: Run) -> Run | None:
    """Of a flow that failed: the step because of which, as its error names it, or else the first
    that did. What it raised is in the log of that step."""
    if run.target.kind != "flow" or not run.error:
        return None
    query = RunQuery(
        parent_id=run.id,
        statuses=tuple(sorted(BAD)),
        sort=RunSort.CREATED_AT,
        descending=False,
        limit=_FAILURES,
    )
    found = (await visit.door.runs.find(visit.actor, query)).items
    named = (each for each in found if each.step and repr(each.step) in run.error)
    return next(named, found[0] if found else None)


async def known_of(visit: Visit, run: Run, schedule: Schedule | None) -> Known | None:
    """Who has looked at this failure, while that holds."""
    if schedule is None or run.status not in BAD:
        return None
    known = await KnownFailures(visit.door.store).of(schedule)
    return known if known is not None and known.error == fingerprint(run.error) else None


async def trouble_of(visit: Visit, run: Run) -> Trouble | None:
    """None: it has not failed, or there is nothing to compare it with."""
    if run.status not in BAD or run.schedule_id is None:
        return None
    earlier = RunQuery(schedule_id=run.schedule_id, created_until=run.created_at)
    good = await visit.door.runs.find(
        visit.actor, replace(earlier, statuses=(RunStatus.SUCCEEDED,), limit=1)
    )
    last_good = good.items[0] if good.items else None
    failures = await visit.door.runs.find(
        visit.actor,
        replace(
            earlier,
            statuses=tuple(sorted(BAD)),
            created_since=last_good.created_at if last_good else None,
            descending=False,
            limit=_FAILURES,
        ),
    )
    same = [each for each in failures.items if each.error[:ERROR_ROOM] == run.error[:ERROR_ROOM]]
    return Trouble(
        last_good=last_good,
        first_seen=same[0] if same else run,
        count=max(1, len(same)),
        more=failures.next is not None,
        edits=await _edits(visit, last_good, run) if last_good else (),
    )


async def _edits(visit: Visit, good: Run, run: Run) -> tuple[Edit, ...]:
    """From the audit, oldest first: what the schedule was told between the two."""
    entries = await visit.door.store.list_audit(
        AuditQuery(object_id=run.schedule_id, owner=str(run.owner), limit=_ENTRIES)
    )
    between = [
        Edit(entry=entry, changes=changes_of(entry))
        for entry in reversed(entries)
        if good.created_at < entry.at <= run.created_at
        and entry.object_kind == "schedule"
        and entry.allowed
        and entry.verb not in _NO_CHANGE
    ]
    return tuple(between)
