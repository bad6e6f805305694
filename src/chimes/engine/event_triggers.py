"""Watches what event triggers wait for: ended runs, files, SQL conditions; and inserts the runs of
debounced, throttled and collected events when they are due (ADR 73).

Every node with the role scheduler does this. What a watcher has seen is a document of its schedule,
so that another node continues where one ended. Ended runs may be seen twice: the id of the run that
an event starts is derived from the event. Files and conditions are watched by one node at a time,
which renews its claim in the document with each look.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from chimes.clock import Clock
from chimes.config import Settings
from chimes.engine.events import Event, RunEnded, RunRescued
from chimes.engine.membership import StoreClock
from chimes.engine.poller import NextPoll, PollOnEvent
from chimes.errors import ChimesError
from chimes.model import replace
from chimes.model.audit import AuditEntry
from chimes.model.event import event_document
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.listing import RunQuery, ScheduleQuery
from chimes.model.run import Cause, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.services.documents import Document, DocumentStore, DocumentTooLarge
from chimes.services.events import EventService, json_payload
from chimes.services.schedules.rules import is_watchable
from chimes.store.codec.values import to_text
from chimes.store.port import Store
from chimes.triggers import OnFile, OnRunEnd, OnSql

_log = logging.getLogger("chimes.events")

KINDS = ("webhook", "run_end", "file", "sql")
PAGE = 500
#: Maximum share of the time that is spent on listing event schedules and on reading ended runs.
MAX_LIST_SHARE, MAX_SWEEP_SHARE = 0.005, 0.05
#: Seconds between two looks at the runs of all watched schedules; runs that end on this node are
#: noticed at once.
SWEEP_INTERVAL = 2.0
#: A run can become visible after one that was created later.
OVERLAP = timedelta(seconds=60)
#: Characters of a result in the payload of an event.
MAX_RESULT_LENGTH = 100_000
MAX_FILES = 5_000
_ENDED = tuple(each for each in RunStatus if each.terminal)
#: Without a filter: what was executed.
_EXECUTED = tuple(each for each in _ENDED if each.value not in ("skipped", "missed"))


class EventTriggers:
    """A duty and an event listener."""

    name = "event triggers"
    event_types = (RunEnded, RunRescued)

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        time: StoreClock,
        settings: Settings,
        node_id: Callable[[], NodeId],
    ) -> None:
        self._store = store
        self._clock = clock
        self._time = time
        self._settings = settings
        self._node_id = node_id
        self._events = EventService(store)
        self._schedules: dict[ScheduleId, Schedule] = {}
        self._listed_at: int | None = None
        self._next_list = 0.0
        self._next_sweep = 0.0
        self._next_look: dict[ScheduleId, float] = {}
        #: The schedules that wait for the runs of another one, by its id.
        self._waiting: dict[ScheduleId, tuple[Schedule, ...]] = {}
        #: Runs that ended here, since the last look.
        self._ended: list[Run] = []
        #: Ended runs that were accepted or do not count, while they are read again.
        self._seen: dict[ScheduleId, set[RunId]] = {}
        #: Whose ends count, and from when.
        self._begins: dict[ScheduleId, tuple[ScheduleId, datetime]] = {}
        #: Schedules that accepted ended runs since the last sweep.
        self._accepted: set[ScheduleId] = set()
        #: Versions of schedules that would start themselves.
        self._cycles: dict[ScheduleId, int] = {}
        #: Whether events may be due although no schedule waits for any.
        self._due = True
        self._wake = asyncio.Event()

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunEnded | RunRescued):
            source = event.run.definition.schedule_id
            if source in self._waiting and event.run.status.terminal:
                self._ended.append(event.run)
                self._wake.set()

    async def run_once(self) -> NextPoll:
        self._wake.clear()
        await self._list()
        if self._schedules or self._due:
            # Also for the entries of schedules that were deleted.
            self._due = await self._events.flush_due() is not None
        if self._schedules:
            await self._watch_runs()
            await self._watch_others()
        return PollOnEvent(
            event=self._wake, seconds=self._time.seconds_to_tick(self._settings.poll_interval)
        )

    async def _list(self) -> None:
        """Lists the event schedules again after a change."""
        changes, began = self._store.changes(), self._clock.monotonic()
        if changes == self._listed_at or began < self._next_list:
            return
        found: dict[ScheduleId, Schedule] = {}
        query = ScheduleQuery(triggers=KINDS, limit=PAGE)
        while True:
            page = await self._store.list_schedules(query)
            found |= {each.id: each for each in page.items}
            if page.next is None:
                break
            query = replace(query, after=page.next)
        for gone in self._schedules.keys() - found.keys():
            await self._events.forget(gone)
        self._schedules = found
        self._listed_at = changes
        took = self._clock.monotonic() - began
        self._next_list = self._clock.monotonic() + took / MAX_LIST_SHARE
        for names in (self._seen, self._begins, self._cycles, self._next_look):
            for gone in names.keys() - found.keys():
                del names[gone]
        waiting: dict[ScheduleId, tuple[Schedule, ...]] = {}
        for schedule in found.values():
            source = _source_of(schedule)
            if source is None:
                continue
            if not _starts_itself(schedule, found):
                waiting[source] = (*waiting.get(source, ()), schedule)
            elif self._cycles.get(schedule.id) != schedule.version:
                self._cycles[schedule.id] = schedule.version
                _log.warning("schedule %s would start itself; its trigger is ignored", schedule.id)
        self._waiting = waiting

    def _document(self, schedule: Schedule, part: str) -> DocumentStore:
        return DocumentStore(self._store, f"{event_document(schedule.id)}:{part}")

    # --- ended runs ---------------------------------------------------------------------------
    async def _watch_runs(self) -> None:
        began = self._clock.monotonic()
        sweep = began >= self._next_sweep
        ended: dict[ScheduleId, list[Run]] = {}
        for run in self._ended:
            if run.definition.schedule_id is not None:
                ended.setdefault(run.definition.schedule_id, []).append(run)
        self._ended = []
        for source, schedules in tuple(self._waiting.items()):
            for schedule in schedules if sweep or source in ended else ():
                known = self._begins.get(schedule.id)
                try:
                    if sweep or known is None or known[0] != source:
                        await self._look_at_runs(schedule, source)
                    else:
                        await self._accept_ended(schedule, ended[source], known[1])
                except DocumentTooLarge as error:
                    _log.warning("schedule %s cannot be watched: %s", schedule.id, error)
        if sweep:
            took = self._clock.monotonic() - began
            pause = max(SWEEP_INTERVAL, took / MAX_SWEEP_SHARE)
            self._next_sweep = self._clock.monotonic() + pause

    async def _accept_ended(
        self,
        schedule: Schedule,
        runs: Iterable[Run],
        begin: datetime,
        listed: Collection[RunId] | None = None,
    ) -> None:
        """Accepts the ends that count. `listed` are the runs that a sweep reads again."""
        trigger = schedule.trigger
        assert isinstance(trigger, OnRunEnd)
        wanted = frozenset(trigger.status) or frozenset(each.value for each in _EXECUTED)
        seen = self._seen.setdefault(schedule.id, set())
        new = [each for each in runs if each.id not in seen]
        events = [
            run_end_event(run, ended_at)
            for run in new
            if run.status.value in wanted
            and (ended_at := run.finished_at or run.created_at) >= begin
        ]
        if events or (listed is not None and schedule.id in self._accepted):
            await self._events.accept_ends(schedule, events, listed)
            (self._accepted.add if listed is None else self._accepted.discard)(schedule.id)
        seen |= {each.id for each in new}

    async def _look_at_runs(self, schedule: Schedule, source: ScheduleId) -> None:
        document = self._document(schedule, "runs")
        known = await document.read()
        if known.get("of") != source:
            known = await self._begin(schedule, source)
        begin = datetime.fromisoformat(str(known["from"]))
        since = datetime.fromisoformat(str(known["since"]))
        seen = self._seen.setdefault(schedule.id, set())
        listed = {RunId(str(each)) for each in _list_of(known.get("open"))}
        newest = since
        for run in await self._created_since(source, since - OVERLAP):
            newest = max(newest, run.created_at)
            listed.add(run.id)
        # What is not read again need not be remembered.
        seen &= listed
        read = await self._read_runs(tuple(sorted(listed - seen)))
        ended = [run for run in read if run.status.terminal]
        still_open = sorted(run.id for run in read if not run.status.terminal)
        await self._accept_ended(schedule, ended, begin, listed)
        self._begins[schedule.id] = source, begin

        def apply(current: Document) -> tuple[Document, AuditEntry | None]:
            if current.get("of") not in (None, source):
                return current, None
            last = current.get("since")
            latest = newest if last is None else max(newest, datetime.fromisoformat(str(last)))
            return {
                "of": source,
                "from": to_text(begin),
                "since": to_text(latest),
                "open": still_open,
            }, None

        if known.get("since") != to_text(newest) or _list_of(known.get("open")) != still_open:
            await document.change(apply)

    async def _begin(self, schedule: Schedule, source: ScheduleId) -> Document:
        """From when the trigger was saved; runs that were active then count too."""
        active = await self._store.list_runs(
            RunQuery(
                schedule_id=source,
                statuses=(RunStatus.QUEUED, RunStatus.RUNNING),
                limit=1000,
            )
        )
        since = schedule.updated_at
        recent = await self._store.list_runs(RunQuery(schedule_id=source, limit=200))
        ids = {each.id for each in (*active.items, *recent.items)}
        return {
            "of": source,
            "from": to_text(since),
            "since": to_text(since),
            "open": sorted(ids),
        }

    async def _created_since(self, source: ScheduleId, since: datetime) -> list[Run]:
        found: list[Run] = []
        query = RunQuery(schedule_id=source, created_since=since, descending=False, limit=PAGE)
        while True:
            page = await self._store.list_runs(query)
            found += page.items
            if page.next is None:
                return found
            query = replace(query, after=page.next)

    async def _read_runs(self, ids: tuple[RunId, ...]) -> list[Run]:
        found: list[Run] = []
        for first in range(0, len(ids), PAGE):
            query = RunQuery(ids=ids[first : first + PAGE], limit=None)
            found += (await self._store.list_runs(query)).items
        return sorted(found, key=lambda run: (run.finished_at or run.created_at, run.id))

    # --- files and conditions -----------------------------------------------------------------
    async def _watch_others(self) -> None:
        now = self._clock.monotonic()
        for schedule in tuple(self._schedules.values()):
            trigger = schedule.trigger
            if now < self._next_look.get(schedule.id, 0.0):
                continue
            if isinstance(trigger, OnFile):
                look = self._look_at_files(schedule, trigger)
                interval = self._settings.file_trigger_interval
            elif isinstance(trigger, OnSql):
                look = self._look_at_condition(schedule, trigger)
                interval = trigger.interval
            else:
                continue
            self._next_look[schedule.id] = now + interval.total_seconds()
            try:
                await look
            except Exception as error:
                if isinstance(error, ChimesError) and not isinstance(error, DocumentTooLarge):
                    raise
                # One schedule that cannot be watched does not stop the others.
                _log.warning("schedule %s cannot be watched: %s", schedule.id, error)

    async def _claim(
        self, document: DocumentStore, about: str, interval: timedelta
    ) -> Document | None:
        """What was seen before; None: another node watches. Empty: `about` is new."""
        now, node = await self._store.now(), self._node_id()
        mine = False

        def apply(current: Document) -> tuple[Document, AuditEntry | None]:
            nonlocal mine
            until = current.get("until")
            taken = current.get("node") not in (None, node) and until is not None
            mine = not taken or datetime.fromisoformat(str(until)) <= now
            if not mine:
                return current, None
            kept = current
            if current.get("about") != about:
                # The serial goes on: a query that comes back makes new events.
                kept = {name: value for name, value in current.items() if name == "serial"}
            end = to_text(now + 3 * interval + timedelta(seconds=5))
            return kept | {"about": about, "node": node, "until": end}, None

        stored = await document.change(apply)
        return stored if mine else None

    async def _look_at_files(self, schedule: Schedule, trigger: OnFile) -> None:
        # Follows links, which can take long on a shared directory.
        if not await asyncio.to_thread(
            is_watchable, trigger.path, self._settings.file_trigger_dirs
        ):
            return
        document = self._document(schedule, "files")
        interval = self._settings.file_trigger_interval
        known = await self._claim(document, trigger.path, interval)
        if known is None:
            return
        found = await asyncio.to_thread(list_files, trigger.path)
        before = known.get("marks")
        growing = known.get("growing")
        if not isinstance(before, dict):
            # Files that were there when the trigger was saved do not count.
            saved = schedule.updated_at.timestamp() * 1e9
            before = {
                _key(path): _mark(each) for path, each in found.items() if each.st_ctime_ns < saved
            }
        growing = growing if isinstance(growing, dict) else {}
        files: dict[str, str] = {}
        waiting: dict[str, str] = {}
        now = await self._store.now()
        for path, each in sorted(found.items(), key=lambda item: item[1].st_mtime_ns):
            key, mark = _key(path), _mark(each)
            if before.get(key) == mark:
                files[key] = mark
            elif growing.get(key) == mark:
                await self._events.accept(schedule, file_event(path, each, now))
                files[key] = mark
            else:
                waiting[key] = mark
                if key in before:
                    files[key] = str(before[key])
        if len(files) + len(waiting) > MAX_FILES:
            _log.warning("schedule %s: more than %d files match", schedule.id, MAX_FILES)

        def apply(current: Document) -> tuple[Document, AuditEntry | None]:
            if current.get("node") != self._node_id() or current.get("about") != trigger.path:
                return current, None
            return current | {"marks": files, "growing": waiting}, None

        await document.change(apply)

    async def _look_at_condition(self, schedule: Schedule, trigger: OnSql) -> None:
        from chimes.config.connections import find_connection
        from chimes.engine.sql_condition import query_rows

        connection = find_connection(self._settings.connections, trigger.connection, "sql")
        if connection is None:
            return
        document = self._document(schedule, "sql")
        about = hashlib.sha256(f"{trigger.connection} {trigger.query}".encode()).hexdigest()
        known = await self._claim(document, about, trigger.interval)
        if known is None:
            return
        rows = await query_rows(self._store, connection, trigger.query)
        holds = is_true(rows)
        before = known.get("holds")
        serial = known.get("serial")
        number = serial if isinstance(serial, int) else 0
        if holds == before:
            return
        if holds and before is False:
            number += 1
            now = await self._store.now()
            event = sql_event(trigger, f"{about[:16]}:{number}", rows, now)
            await self._events.accept(schedule, event)

        def apply(current: Document) -> tuple[Document, AuditEntry | None]:
            if current.get("node") != self._node_id() or current.get("about") != about:
                return current, None
            return current | {"holds": holds, "serial": number}, None

        await document.change(apply)


def _source_of(schedule: Schedule) -> ScheduleId | None:
    trigger = schedule.trigger
    return ScheduleId(trigger.schedule) if isinstance(trigger, OnRunEnd) else None


def _starts_itself(schedule: Schedule, others: dict[ScheduleId, Schedule]) -> bool:
    """Two schedules that are saved at the same time can make a cycle."""
    visited: set[ScheduleId] = set()
    source = _source_of(schedule)
    while source is not None and source not in visited:
        if source == schedule.id:
            return True
        visited.add(source)
        other = others.get(source)
        source = None if other is None else _source_of(other)
    return False


def _list_of(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


# --- events ---------------------------------------------------------------------------------------
def run_end_event(run: Run, at: datetime) -> Cause:
    result = run.result
    if result is not None and len(json.dumps(result, default=str)) > MAX_RESULT_LENGTH:
        result = None
    payload = {
        "run_id": run.id,
        "schedule_id": run.schedule_id,
        "schedule_name": run.schedule_name,
        "status": run.status.value,
        "finished_at": to_text(at),
        "error": str(run.error),
        "result": result,
    }
    return Cause(
        kind="run_end",
        source=run.id,
        delivery_id=run.id,
        at=at,
        content_type="application/json",
        payload=json_payload(payload),
    )


def file_event(path: str, found: os.stat_result, at: datetime) -> Cause:
    # A name that is not UTF-8 cannot be stored as it is.
    shown = os.fsencode(path).decode(errors="replace")
    payload = {
        "path": shown,
        "size": found.st_size,
        "modified_at": to_text(datetime.fromtimestamp(found.st_mtime, tz=at.tzinfo)),
    }
    identity = hashlib.sha256(os.fsencode(f"{path}:{_mark(found)}")).hexdigest()
    return Cause(
        kind="file",
        source=shown,
        delivery_id=f"file-{identity[:40]}",
        at=at,
        content_type="application/json",
        payload=json_payload(payload),
    )


def sql_event(trigger: OnSql, identity: str, rows: list[dict[str, object]], at: datetime) -> Cause:
    payload = json.dumps(
        {"connection": trigger.connection, "rows": rows}, ensure_ascii=False, default=str
    )
    if len(payload) > MAX_RESULT_LENGTH:
        payload = json_payload({"connection": trigger.connection, "rows": None})
    return Cause(
        kind="sql",
        source=trigger.connection,
        delivery_id=f"sql-{identity}",
        at=at,
        content_type="application/json",
        payload=payload,
    )


def is_true(rows: list[dict[str, object]]) -> bool:
    """A single value counts as it is; otherwise rows do."""
    if len(rows) == 1 and len(rows[0]) == 1:
        (value,) = rows[0].values()
        return bool(value)
    return bool(rows)


def _key(path: str) -> str:
    """What stands for a path in the document: short, whatever its length and its encoding."""
    return hashlib.blake2b(os.fsencode(path), digest_size=12).hexdigest()


def _mark(found: os.stat_result) -> str:
    return f"{found.st_mtime_ns}:{found.st_size}"


def list_files(pattern: str) -> dict[str, os.stat_result]:
    """The regular files that match, without links; at most one more than MAX_FILES."""
    folder, _slash, name = pattern.rpartition("/")
    found: dict[str, os.stat_result] = {}
    try:
        entries: Iterable[os.DirEntry[str]] = os.scandir(folder or "/")
    except OSError:
        return found
    for entry in entries:
        if fnmatchcase(entry.name, name) or entry.name == name:
            try:
                if entry.is_file(follow_symlinks=False):
                    found[entry.path] = entry.stat(follow_symlinks=False)
            except OSError:
                continue
        if len(found) > MAX_FILES:
            break
    return found
