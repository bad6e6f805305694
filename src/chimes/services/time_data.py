"""Records which time-zone and holiday data are in use, and lists the fires that new data move."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from chimes.errors import ChimesError
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.audit import AuditEntry
from chimes.model.ids import ScheduleId
from chimes.model.insights import IssueCause, ScheduleAttention, ScheduleIssue
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.model.time_data import (
    TIME_DATA_CHECKPOINT,
    Changed,
    FireMove,
    Recalculated,
    TimeData,
    changed_data,
    is_older,
    recalculate,
    record_data,
)
from chimes.services.access import CALCULATIONS
from chimes.services.documents import Document, DocumentStore
from chimes.store.port import Store
from chimes.triggers.time_data import data_versions, used_data
from chimes.triggers.values import format_moment

_PAGE = 500
#: Moves that are written to the log; the others are listed by `chimes doctor`.
_LOGGED = 50
_log = logging.getLogger("chimes.time")


class TimeDataService:
    def __init__(
        self, store: Store, versions: Callable[[], tuple[str, str]] = data_versions
    ) -> None:
        self._store = store
        self._versions = versions
        self._document = DocumentStore(store, TIME_DATA_CHECKPOINT)

    async def read(self) -> TimeData:
        return _from_document(await self._document.read())

    async def check(self) -> tuple[FireMove, ...]:
        """Compares the data of this process with the recorded ones; if they differ, lists the fires
        that move, moves the cursors and records the data. Of several nodes with the same data one
        does it; a node with older data than the record does nothing."""
        stored = await self._document.read()
        data, versions = _from_document(stored), self._versions()
        if is_older(versions, data):
            _log.warning(
                "this node has older time data (tzdata %s, holidays %s) than another one had",
                *versions,
            )
            return ()
        now = await self._store.now()
        zones, codes, found = await self._compare(data, now)
        if not (zones or codes or data.versions):
            return ()
        moves = _moves(found)
        record = await CALCULATIONS.run(
            lambda: record_data(data, versions, sorted(zones), sorted(codes), moves, now)
        )
        same = replace(record, recorded_at=data.recorded_at) == data
        if same and data.recorded_at and now - data.recorded_at < _RECORD_AGAIN:
            return ()
        if moves:
            # Listed before a cursor moves. The old data stay until all have: a node that dies
            # meanwhile leaves the rest to the next comparison.
            listed = _to_document(replace(data, moves=record.moves))
            if not await self._write(stored, listed):
                return ()
            self._report(moves, versions)
            for schedule, result in found:
                if result.schedule is not None:
                    await self._move_cursor(schedule, data)
            stored = listed
        await self._write(stored, _to_document(record))
        return tuple(moves)

    async def list_pending(self) -> tuple[FireMove, ...]:
        """The fires that the data of this process would move if a node started with them."""
        data = await self.read()
        if is_older(self._versions(), data):
            return ()
        _zones, _codes, found = await self._compare(data, await self._store.now())
        return tuple(_moves(found))

    async def _compare(
        self, data: TimeData, now: datetime
    ) -> tuple[set[str], set[str], list[tuple[Schedule, Recalculated]]]:
        """The zones and countries in use, and the schedules whose data differ from the record."""
        changed = await CALCULATIONS.run(lambda: changed_data(data, now))
        zones, codes, affected = await self._scan(changed)
        found = [
            (each, result)
            for each in affected
            if (result := await self._recalculated(each, data, now)) is not None
        ]
        return zones, codes, found

    async def _write(self, expected: Document, new: Document) -> bool:
        """False: another node was faster."""
        written = False

        def write(document: Document) -> tuple[Document, AuditEntry | None]:
            nonlocal written
            written = document == expected
            return (new if written else document), None

        await self._document.change(write)
        return written

    async def _scan(self, changed: Changed) -> tuple[set[str], set[str], list[Schedule]]:
        """The zones and countries in use, and the schedules that `changed` concerns."""
        zones: set[str] = set()
        codes: set[str] = set()
        affected: list[Schedule] = []
        query = ScheduleQuery(enabled=True, limit=_PAGE)
        while True:
            page = await self._store.list_schedules(query)
            for each in page.items:
                if each.trigger.on_event:
                    continue
                in_zones, in_codes = used_data(each.trigger)
                zones |= in_zones
                codes |= in_codes
                if in_zones & changed.zones or in_codes & changed.holidays:
                    affected.append(each)
            if page.next is None:
                return zones, codes, affected
            query = replace(query, after=page.next)

    async def _recalculated(
        self, schedule: Schedule, data: TimeData, now: datetime
    ) -> Recalculated | None:
        try:
            return await CALCULATIONS.run(lambda: recalculate(schedule, data, now))
        except ChimesError as error:
            _log.warning("schedule %s cannot be planned: %s", schedule.id, error)
            return None

    async def _move_cursor(self, schedule: Schedule, data: TimeData) -> None:
        def move(before: Schedule, now: datetime) -> Schedule:
            if before.next_slot != schedule.next_slot or before.version != schedule.version:
                return before
            return recalculate(before, data, now).schedule or before

        await self._store.change_schedule(schedule.id, move)

    @staticmethod
    def _report(moves: list[FireMove], versions: tuple[str, str]) -> None:
        for each in moves[:_LOGGED]:
            _log.warning(
                "new time data (tzdata %s, holidays %s) move a fire of %s (%s): %s -> %s",
                *versions,
                each.name,
                each.schedule_id,
                "-" if each.old is None else format_moment(each.old),
                "-" if each.new is None else format_moment(each.new),
            )

    async def list_moves(self, actor: Actor, now: datetime) -> tuple[FireMove, ...]:
        """The coming ones that the actor may see, the first one first."""
        return tuple(
            each
            for each in (await self.read()).moves
            if each.at > now and (actor.sees_everything or each.owner == str(actor.owner))
        )

    async def list_attention(
        self, actor: Actor, now: datetime, limit: int
    ) -> tuple[tuple[ScheduleAttention, ...], Mapping[ScheduleId, FireMove]]:
        """The schedules whose fires move, with the first move of each."""
        first: dict[ScheduleId, FireMove] = {}
        for each in await self.list_moves(actor, now):
            if len(first) < limit:
                first.setdefault(each.schedule_id, each)
        if not first:
            return (), {}
        query = ScheduleQuery(ids=tuple(first), enabled=True, limit=None)
        schedules = (await self._store.list_schedules(query)).items
        return tuple(
            ScheduleAttention(
                schedule=each,
                sign=ScheduleIssue(
                    schedule_id=each.id, cause=IssueCause.TIME_DATA, at=first[each.id].at
                ),
            )
            for each in schedules
        ), first


def _moves(found: Iterable[tuple[Schedule, Recalculated]]) -> list[FireMove]:
    return [move for _schedule, result in found for move in result.moves]


#: A record is renewed after this time, because it reaches a limited time ahead.
_RECORD_AGAIN = timedelta(days=30)


def _to_document(data: TimeData) -> Document:
    """As it is read again, with lists instead of tuples."""
    found: Document = msgspec.json.decode(msgspec.json.encode(data))
    return found


def _from_document(document: Document) -> TimeData:
    """Empty if it cannot be read."""
    try:
        return msgspec.convert(document, TimeData) if document else TimeData()
    except (msgspec.ValidationError, ValueError, TypeError):
        return TimeData()
