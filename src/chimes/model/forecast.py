"""Coming fires of many schedules: what a change of them would do, the load per minute, and quieter
minutes.

Pure, like the planner whose rules it follows: slots are those of the triggers, runs are due at the
slot plus its jitter, a cursor that was moved counts, and nothing fires after `max_runs`. A schedule
that is paused until a time fires after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta

from msgspec import Struct

from chimes.model import replace
from chimes.model.ids import ScheduleId
from chimes.model.schedule import (
    MAX_COMPARED_FIRES,
    FireChanges,
    Schedule,
    compare_fires,
    due_time,
    has_runs_left,
    resume_schedule,
)
from chimes.triggers import Cron, Every, Trigger, Zone

MINUTE, NO_TIME = timedelta(minutes=1), timedelta(0)
#: Days that plans and forecasts cover at most.
MAX_DAYS = 92
#: Fires that one plan or forecast computes at most.
MAX_FIRES = 400_000
#: Fires of the changed schedules that a plan lists at most, and of one of them at least.
MAX_PLANNED_FIRES, _MIN_PLANNED_FIRES = 60_000, 200
#: Schedules that a collision names.
NAMED_IN_COLLISION = 5
#: A minute is hot with so many runs, if that is also so many times the average of all minutes.
HOT_RUNS, HOT_SHARE = 5, 4
#: Quieter times that are proposed.
SUGGESTIONS = 3
#: Fires of a trigger that are compared with the load of others.
_FIRES_COMPARED = 2000


def as_it_will_fire(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule after the end of its pause, if that is known."""
    if schedule.enabled or schedule.pause_until is None or schedule.deleted_at is not None:
        return schedule
    since = max(schedule.pause_until, now)
    return resume_schedule(schedule, now, schedule.updated_by, since=since)


def planned_fires(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    """When the runs of its slots are due, after `after` and up to `until`."""
    schedule = as_it_will_fire(schedule, after)
    trigger, slot, due = schedule.trigger, schedule.next_slot, schedule.next_run_at
    if slot is not None and due is not None and due <= after:
        # Overdue slots are not fires of the period.
        slot = trigger.next_after(max(slot, after))
        due = due_time(schedule, slot)
    fired = 0
    while slot is not None and due is not None and due <= until:
        if not has_runs_left(schedule, fired):
            return
        yield due
        fired += 1
        slot = trigger.next_after(slot)
        due = due_time(schedule, slot)


def minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def local_day(at: datetime, zone: Zone) -> date:
    return (at + timedelta(seconds=zone.offset_at(int(at.timestamp())))).date()


# --- plans ----------------------------------------------------------------------------------------
class PlanPair(Struct, frozen=True, kw_only=True):
    """One schedule before and after a change; None: there is no schedule."""

    before: Schedule | None
    after: Schedule | None

    @property
    def shown(self) -> Schedule:
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def created(self) -> bool:
        return self.before is None


class PlannedFire(Struct, frozen=True, kw_only=True):
    pair: PlanPair
    at: datetime
    #: Of a fire that moves: the new time.
    to: datetime | None = None


class Collision(Struct, frozen=True, kw_only=True):
    """A new fire in a minute in which other schedules fire."""

    pair: PlanPair
    at: datetime
    #: How many others fire in this minute, and the first of them.
    others: int
    named: tuple[PlanPair, ...]


class DayLoad(Struct, frozen=True, kw_only=True):
    """Fires of a day, before and after."""

    day: date
    before: int
    after: int


class PlanEffects(Struct, frozen=True, kw_only=True):
    added: tuple[PlannedFire, ...]
    dropped: tuple[PlannedFire, ...]
    moved: tuple[PlannedFire, ...]
    collisions: tuple[Collision, ...]
    load: tuple[DayLoad, ...]
    #: End of the period for which all of it is complete; `load` has the whole days before it.
    until: datetime


def keeps_times(before: Schedule | None, after: Schedule | None) -> bool:
    """Whether the change leaves the rule of the trigger as it is, so that fires can only have been
    shifted: by calendars, or because the next run was moved. An edit of the rule drops fires and
    adds others."""
    if before is None or after is None:
        return False
    return before.trigger == after.trigger or _rule(before.trigger) == _rule(after.trigger)


def _rule(trigger: Trigger) -> dict[str, object]:
    return {name: value for name, value in trigger.to_dict().items() if name != "exclude"}


def plan_effects(
    pairs: Sequence[PlanPair],
    others: Sequence[Schedule],
    now: datetime,
    until: datetime,
    zone: Zone,
) -> PlanEffects:
    """What the changes do to the fires after `now`. `others`: the schedules that do not change.

    With very frequent schedules the period ends earlier. `zone`: of the days of the load."""
    limit = max(_MIN_PLANNED_FIRES, MAX_PLANNED_FIRES // max(1, len(pairs)))
    changes: list[FireChanges] = []
    for pair in pairs:
        before = None if pair.before is None else as_it_will_fire(pair.before, now)
        after = None if pair.after is None else as_it_will_fire(pair.after, now)
        found = compare_fires(
            before,
            after,
            now,
            until,
            limit=min(limit, 2 * MAX_COMPARED_FIRES),
            pair_moves=keeps_times(before, after),
        )
        changes.append(found)
        until = min(until, found.until)

    def rows(name: str) -> tuple[PlannedFire, ...]:
        found = [
            PlannedFire(pair=pair, at=at)
            for pair, each in zip(pairs, changes, strict=True)
            for at in getattr(each, name)
            if at <= until
        ]
        return tuple(sorted(found, key=lambda row: (row.at, row.pair.shown.name)))

    moved = tuple(
        PlannedFire(pair=pair, at=at, to=to)
        for pair, each in zip(pairs, changes, strict=True)
        for at, to in each.moved
        if min(at, to) <= until
    )
    added, dropped = rows("added"), rows("dropped")
    new = [*added, *(PlannedFire(pair=each.pair, at=each.to or each.at) for each in moved)]
    collisions, load, until = _neighbourhood(pairs, others, new, now, until, zone)
    return PlanEffects(
        added=added,
        dropped=dropped,
        moved=tuple(sorted(moved, key=lambda row: row.at)),
        collisions=collisions,
        load=load,
        until=until,
    )


def _neighbourhood(
    pairs: Sequence[PlanPair],
    others: Sequence[Schedule],
    new: Sequence[PlannedFire],
    now: datetime,
    until: datetime,
    zone: Zone,
) -> tuple[tuple[Collision, ...], tuple[DayLoad, ...], datetime]:
    minutes = {minute_of(each.at) for each in new}
    in_minute: dict[datetime, list[PlanPair]] = {}
    before: Counter[date] = Counter()
    after: Counter[date] = Counter()
    changing = [each for pair in pairs for each in (pair.before, pair.after) if each is not None]
    until = complete_until([*others, *changing], now, until)

    def count(schedule: Schedule, days: Sequence[Counter[date]], pair: PlanPair | None) -> None:
        last: datetime | None = None
        for at in planned_fires(schedule, now, until):
            day = local_day(at, zone)
            for each in days:
                each[day] += 1
            if pair is not None and (minute := minute_of(at)) in minutes and minute != last:
                in_minute.setdefault(minute, []).append(pair)
                last = minute

    for pair in pairs:
        if pair.before is not None:
            count(pair.before, [before], None)
        if pair.after is not None:
            count(pair.after, [after], pair)
    for each in others:
        count(each, [before, after], PlanPair(before=each, after=each))
    collisions = []
    for row in sorted(new, key=lambda row: row.at):
        beside = [each for each in in_minute.get(minute_of(row.at), ()) if each is not row.pair]
        if beside:
            collisions.append(
                Collision(
                    pair=row.pair,
                    at=row.at,
                    others=len(beside),
                    named=tuple(beside[:NAMED_IN_COLLISION]),
                )
            )
    load = tuple(
        DayLoad(day=day, before=before[day], after=after[day]) for day in sorted({*before, *after})
    )
    return tuple(collisions), load, until


# --- load per minute ------------------------------------------------------------------------------
class MinuteLoad(Struct, frozen=True, kw_only=True):
    at: datetime
    #: Runs that start in this minute.
    runs: int
    #: Their expected time together.
    busy: timedelta
    #: Far more runs than in other minutes.
    hot: bool


class ScheduleLoad(Struct, frozen=True, kw_only=True):
    schedule: Schedule
    runs: int
    #: Median duration; None without history.
    duration: timedelta | None


class Forecast(Struct, frozen=True, kw_only=True):
    since: datetime
    #: Earlier than requested if there are more fires than are computed.
    until: datetime
    minutes: tuple[MinuteLoad, ...]
    schedules: tuple[ScheduleLoad, ...]


def forecast(
    schedules: Sequence[Schedule],
    durations: Mapping[ScheduleId, timedelta],
    now: datetime,
    until: datetime,
) -> Forecast:
    """The runs per minute up to `until`, with the durations of the past."""
    until = complete_until(schedules, now, until)
    runs: Counter[datetime] = Counter()
    busy: dict[datetime, timedelta] = {}
    rows: list[ScheduleLoad] = []
    for schedule in schedules:
        duration = durations.get(schedule.id)
        fired = 0
        for at in planned_fires(schedule, now, until):
            minute = minute_of(at)
            fired += 1
            runs[minute] += 1
            if duration is not None:
                busy[minute] = busy.get(minute, NO_TIME) + duration
        rows.append(ScheduleLoad(schedule=schedule, runs=fired, duration=duration))
    hot = hot_from(sum(runs.values()), now, until)
    return Forecast(
        since=now,
        until=until,
        minutes=tuple(
            MinuteLoad(at=at, runs=runs[at], busy=busy.get(at, NO_TIME), hot=runs[at] >= hot)
            for at in sorted(runs)
        ),
        schedules=tuple(rows),
    )


def hot_from(runs: int, now: datetime, until: datetime) -> float:
    """The runs from which a minute is hot, if so many runs are planned in the period."""
    return max(HOT_RUNS, HOT_SHARE * runs / max(1, (until - now) // MINUTE))


def complete_until(schedules: Iterable[Schedule], now: datetime, until: datetime) -> datetime:
    """The time up to which the fires of all schedules can be computed; `until` but for schedules
    that fire very often."""
    number = 0
    for each in schedules:
        trigger = as_it_will_fire(each, now).trigger
        number += 0 if trigger.on_event else trigger.count_between(now, until)
    return until if number <= MAX_FIRES else now + (until - now) * (MAX_FIRES / number)


# --- quieter times --------------------------------------------------------------------------------
class QuieterTime(Struct, frozen=True, kw_only=True):
    trigger: Trigger
    #: Runs of other schedules in the busiest minute in which it fires.
    runs: int


def runs_beside(
    trigger: Trigger, loads: Mapping[datetime, int], now: datetime
) -> tuple[int, datetime | None]:
    """Runs of others in the busiest minute in which the trigger fires, and that minute."""
    until = max(loads, default=now)
    found, busiest = 0, trigger.next_after(now)
    at = busiest
    for _number in range(_FIRES_COMPARED):
        if at is None or at > until + MINUTE:
            break
        number = loads.get(minute_of(at), 0)
        if number > found:
            found, busiest = number, at
        at = trigger.next_after(at)
    return found, None if busiest is None else minute_of(busiest)


def quieter_times(
    trigger: Trigger, loads: Mapping[datetime, int], now: datetime
) -> tuple[QuieterTime, ...]:
    """The same rule at other minutes of the hour with fewer runs of others, the quietest first and
    the nearest first of equal ones. `loads`: runs of other schedules by minute. Only for rules with
    one minute, and intervals of minutes or more."""
    present, _at = runs_beside(trigger, loads, now)
    found = [(runs_beside(each, loads, now)[0], shift, each) for shift, each in _shifted(trigger)]
    better = sorted((row for row in found if row[0] < present), key=lambda row: row[:2])
    return tuple(
        QuieterTime(trigger=each, runs=runs) for runs, _shift, each in better[:SUGGESTIONS]
    )


def _shifted(trigger: Trigger) -> Iterator[tuple[int, Trigger]]:
    """The trigger at other minutes, with the distance in minutes."""
    if isinstance(trigger, Cron):
        fields = trigger.expression.split(" ")
        place = 1 if fields[0].startswith(("TZ=", "CRON_TZ=")) else 0
        place += len(fields) - place > 5
        if place >= len(fields) or not fields[place].isdecimal():
            return
        minute = int(fields[place])
        for other in range(60):
            if other != minute:
                expression = " ".join([*fields[:place], str(other), *fields[place + 1 :]])
                yield abs(other - minute), replace(trigger, expression=expression)
    elif isinstance(trigger, Every) and trigger.anchor is not None:
        minutes = min(60, trigger.every // MINUTE)
        for shift in range(1, minutes):
            yield shift, replace(trigger, anchor=trigger.anchor + shift * MINUTE)
