"""Which time-zone and holiday data computed the cursors, and which fires an update of them moves.

The document of an installation has the versions that were in use and since when, so that the one
that computed a cursor is known from when the cursor was computed; and the clock changes and
holidays that these data gave for the coming years, so that fires can be compared (ADR 89).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, field

from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.schedule import Schedule, compare_fires, due_time, plan_after
from chimes.triggers.base import trigger_from_dict
from chimes.triggers.time_data import (
    ZoneRecord,
    from_then_on,
    record_holidays,
    record_zone,
    recorded_data,
    recorded_until,
    version_number,
)

#: Name of the checkpoint with the document.
TIME_DATA_CHECKPOINT = "time_data"
#: Versions that are remembered.
MAX_VERSIONS = 20
#: Moved fires that are listed: of one schedule, and together.
MAX_MOVES_OF_SCHEDULE, MAX_MOVES = 5, 1000
#: How far fires are compared; covers both clock changes of a year.
COMPARED = timedelta(days=400)
_MAX_FIRES = 4000
#: A cursor that is due so soon stays as it is.
_SOON = timedelta(minutes=1)


class DataVersion(Struct, frozen=True, kw_only=True):
    tzdata: str
    holidays: str
    since: datetime


class FireMove(Struct, frozen=True, kw_only=True):
    """A fire that new data put at another time; None: it is dropped, or added."""

    schedule_id: ScheduleId
    name: str
    owner: str
    old: datetime | None
    new: datetime | None

    @property
    def at(self) -> datetime:
        """When the earlier of the two is."""
        return min(each for each in (self.old, self.new) if each is not None)


class TimeData(Struct, frozen=True, kw_only=True):
    #: The newest last.
    versions: tuple[DataVersion, ...] = ()
    recorded_at: datetime | None = None
    zones: Mapping[str, ZoneRecord] = field(default_factory=dict)
    #: By country: days since 1970.
    holidays: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: The fires that the last updates move.
    moves: tuple[FireMove, ...] = ()

    @property
    def version(self) -> DataVersion | None:
        return self.versions[-1] if self.versions else None

    def version_at(self, moment: datetime) -> DataVersion | None:
        """The version in use at this time."""
        found = [each for each in self.versions if each.since <= moment]
        return found[-1] if found else next(iter(self.versions), None)


def cursor_version(data: TimeData, schedule: Schedule) -> DataVersion | None:
    """The version that computed the cursor: it was set with the last fire, or the last change."""
    return data.version_at(
        max(schedule.updated_at, schedule.last_enqueued_at or schedule.updated_at)
    )


class Changed(Struct, frozen=True, kw_only=True):
    """What differs between the record and the present data."""

    zones: frozenset[str]
    holidays: frozenset[str]


def is_older(versions: tuple[str, str], data: TimeData) -> bool:
    """Whether these versions are older than the recorded ones: another node has newer data."""
    known = data.version
    if known is None:
        return False
    return version_number(versions[0]) < version_number(known.tzdata) or (
        version_number(versions[1]) < version_number(known.holidays)
    )


def changed_data(data: TimeData, now: datetime) -> Changed:
    """Compares the record with the present data, from now until where the record ends."""
    if data.recorded_at is None:
        return Changed(zones=frozenset(), holidays=frozenset())
    until = recorded_until(data.recorded_at)
    today = (now.date() - _EPOCH).days
    zones = {
        name
        for name, record in data.zones.items()
        if from_then_on(record, now, until) != record_zone(name, now, until)
    }
    holidays = {
        code
        for code, days in data.holidays.items()
        if [day for day in days if day >= today]
        != [day for day in record_holidays(code, data.recorded_at) if day >= today]
    }
    return Changed(zones=frozenset(zones), holidays=frozenset(holidays))


_EPOCH = datetime(1970, 1, 1).date()  # noqa: DTZ001 - a date


def record_data(
    data: TimeData,
    versions: tuple[str, str],
    zones: Sequence[str],
    codes: Sequence[str],
    moves: Sequence[FireMove],
    now: datetime,
) -> TimeData:
    """The document with the present data and versions; moves of the past are dropped."""
    known = data.version
    new = DataVersion(tzdata=versions[0], holidays=versions[1], since=now)
    is_new = known is None or (known.tzdata, known.holidays) != versions
    until = recorded_until(now)
    coming = [each for each in dict.fromkeys((*data.moves, *moves)) if each.at > now]
    return TimeData(
        versions=(*data.versions, new)[-MAX_VERSIONS:] if is_new else data.versions,
        recorded_at=now,
        zones={name: record_zone(name, now, until) for name in zones},
        holidays={code: record_holidays(code, now) for code in codes},
        moves=tuple(sorted(coming, key=lambda each: (each.at, each.name)))[:MAX_MOVES],
    )


class Recalculated(Struct, frozen=True, kw_only=True):
    moves: tuple[FireMove, ...] = ()
    #: The schedule with its cursor where the new data put it; None: it stays.
    schedule: Schedule | None = None


def recalculate(schedule: Schedule, data: TimeData, now: datetime) -> Recalculated:
    """The fires of a schedule that the present data move, and its cursor."""
    if schedule.next_slot is None or data.recorded_at is None:
        return Recalculated()
    plain = schedule.trigger.to_dict()
    new = replace(schedule, trigger=trigger_from_dict(plain))
    after = _with_new_cursor(new, data, now)
    until = min(now + COMPARED, recorded_until(data.recorded_at))
    with recorded_data(data.zones, data.holidays, data.recorded_at):
        before = replace(schedule, trigger=trigger_from_dict(plain))
        # Searched here, with the old data.
        old = compare_fires(before, None, now, until, limit=_MAX_FIRES)
    becomes = compare_fires(None, after, now, min(until, old.until), limit=_MAX_FIRES)
    end = min(old.until, becomes.until)
    moves = _moves(
        schedule,
        [at for at in old.dropped if at <= end],
        [at for at in becomes.added if at <= end],
    )
    return Recalculated(
        moves=moves, schedule=after if after.next_slot != schedule.next_slot else None
    )


def _moves(
    schedule: Schedule, old: Sequence[datetime], new: Sequence[datetime]
) -> tuple[FireMove, ...]:
    """Fires of one version only, paired in their order."""
    kept = set(old) & set(new)
    gone = [at for at in old if at not in kept]
    come = [at for at in new if at not in kept]
    rows: list[tuple[datetime | None, datetime | None]] = []
    if len(gone) == len(come):
        rows += zip(gone, come, strict=True)
    else:
        rows += [(at, None) for at in gone]
        rows += [(None, at) for at in come]
    found = [
        FireMove(
            schedule_id=schedule.id,
            name=schedule.name,
            owner=str(schedule.owner),
            old=before,
            new=after,
        )
        for before, after in rows
    ]
    return tuple(sorted(found, key=lambda each: each.at)[:MAX_MOVES_OF_SCHEDULE])


def _with_new_cursor(schedule: Schedule, data: TimeData, now: datetime) -> Schedule:
    """Planned again if the cursor is a slot of the old data and none of the new ones. One that a
    person has moved stays, and so does one that is due."""
    slot, due = schedule.next_slot, schedule.next_run_at
    assert slot is not None
    assert data.recorded_at is not None
    if due is None or due <= now + _SOON or due != due_time(schedule, slot):
        return schedule
    if _fires_at(schedule, slot):
        return schedule
    with recorded_data(data.zones, data.holidays, data.recorded_at):
        plain = schedule.trigger.to_dict()
        was_slot = _fires_at(replace(schedule, trigger=trigger_from_dict(plain)), slot)
    if not was_slot:
        return schedule
    return plan_after(schedule, max(now, schedule.last_slot or now))


def _fires_at(schedule: Schedule, slot: datetime) -> bool:
    return schedule.trigger.next_after(slot - timedelta(microseconds=1)) == slot
