"""Schedules that somebody should look at: each cause is a question of its own to an index, or to
the table of schedules, and answers with signs, not with rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Select, and_, bindparam, case, or_, select, text

from chimes.model.access import Owner
from chimes.model.attention import (
    ENGINE,
    LATE_WITHIN,
    MISSED_WITHIN,
    Attention,
    Attentions,
    Cause,
    Sign,
    gravest,
)
from chimes.model.change import maker
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import (
    BAD,
    FAILING,
    GLANCE_RESULTS,
    JUDGED,
    MOST_SCHEDULES,
    Window,
)
from chimes.model.lags import bracket_of
from chimes.model.run import Origin, RunStatus
from chimes.model.schedule import Schedule
from chimes.store.counting import Seen, counted_in_a_row, overdue_signs, own_signs, signs_of
from chimes.store.plain import MICROSECOND
from chimes.store.sql.database import Tx
from chimes.store.sql.dialects.counting import Counting
from chimes.store.sql.listing import Condition
from chimes.store.sql.newest import newest_ends
from chimes.store.sql.rolling import PLANNED
from chimes.store.sql.rows.mending import readable_schedule
from chimes.store.sql.rows.parts import maybe_moment, micros, moment_of
from chimes.store.sql.tables import CLAIMABLE, DUE, PRESENT, TROUBLED, runs, schedules
from chimes.store.sql.windows import ANY_LATE, is_status

_make_sign = maker(Sign)
_BAD = sorted(status.value for status in BAD)
_JUDGED = sorted(status.value for status in JUDGED)
#: As many as a page could ever want to look at, of one cause.
MOST_OF_ITSELF = 1000


def failing() -> Iterator[Condition]:
    """`is_failing`: only where the last run did not succeed, runs have to be looked at, and of
    those the newest judged ones, one step of an index each."""
    yield and_(text(TROUBLED))
    yield schedules.c.last_status != RunStatus.SUCCEEDED.value
    for place in range(FAILING):
        yield _judged(runs.c.status).offset(place).scalar_subquery().in_(_BAD)


def _judged(column: Any) -> Select[Any]:
    return (
        select(column)
        .where(runs.c.schedule_id == schedules.c.id, runs.c.status.in_(_JUDGED))
        .order_by(runs.c.created_at.desc(), runs.c.id.desc())
        .limit(1)
        .correlate(schedules)
    )


class Statements:
    """What is asked, made once: making a statement anew takes longer than many a one of them. The
    values are `_Asked`."""

    def __init__(self, counting: Counting, *, owned: bool) -> None:
        mine: list[Any] = [text(f"schedules.{PRESENT}")]
        if owned:
            mine.append(schedules.c.owner_type == bindparam("owner_type"))
            mine.append(schedules.c.owner_id == bindparam("owner_id"))
        working = [*mine, schedules.c.enabled == 1]
        of_slots = runs.c.origin == Origin.SCHEDULE.value
        self.themselves = _themselves(counting, mine)
        self.missed = _seen(
            is_status(RunStatus.MISSED),
            runs.c.created_at >= bindparam("missed_since"),
            mine=mine,
        )
        self.begun_late = _seen(
            runs.c.planned_at >= bindparam("late_since"),
            runs.c.planned_at <= bindparam("now"),
            of_slots,
            runs.c.started_at - runs.c.planned_at > bindparam("late"),
            mine=working,
        )
        self.waiting = _seen(
            text(CLAIMABLE),
            of_slots,
            runs.c.started_at.is_(None),
            bindparam("late_before") > PLANNED,
            mine=working,
        )
        self.overdue = select(schedules.c.id, schedules.c.next_run_at).where(
            text(DUE), schedules.c.next_run_at < bindparam("late_before"), *working
        )


@cache
def statements(counting: Counting, *, owned: bool) -> Statements:
    return Statements(counting, owned=owned)


def _themselves(counting: Counting, mine: Sequence[Any]) -> Select[Any]:
    """Those that stopped, whose pause is over, or that may be failing: one walk through an index
    of the few, and of those whose last run did not succeed one through their newest runs."""
    columns = schedules.c
    troubled = and_(columns.enabled == 1, columns.last_status != RunStatus.SUCCEEDED.value)
    set_aside = and_(
        columns.enabled == 1,
        columns.next_run_at.is_(None),
        columns.last_status == RunStatus.FAILED.value,
        columns.last_error != "",
    )
    paused = and_(
        columns.enabled == 0,
        or_(
            columns.pause_until <= bindparam("now"),
            and_(
                columns.updated_by == ENGINE,
                columns.pause_until.is_(None),
                columns.pause_note != "",
            ),
        ),
    )
    doubted_at = case((or_(set_aside, paused), columns.updated_at)).label("doubted_at")
    judged = case((troubled, counting.judged)).label("judged")
    wanted = [text(TROUBLED), *mine, or_(troubled, paused)]
    return select(columns.id, doubted_at, judged).where(*wanted)


def _seen(*conditions: Any, mine: Sequence[Any]) -> Select[Any]:
    """Of schedules that are `mine`: asked for each run that is found, because the other way round,
    which some planners prefer, all runs of all those schedules would be read."""
    of_mine = select(schedules.c.id).where(schedules.c.id == runs.c.schedule_id, *mine)
    columns = (
        runs.c.schedule_id,
        runs.c.id,
        runs.c.planned_at,
        runs.c.started_at,
        runs.c.missed_count,
    )
    return select(*columns).where(*conditions, of_mine.correlate(runs).exists())


def needing_attention(tx: Tx, owner: Owner | None, late: timedelta, limit: int) -> Attentions:
    asked = _Asked(tx, owner, late)
    found = gravest([*asked.themselves(), *asked.missed(), *asked.late()])
    shown = found[: min(limit, MOST_SCHEDULES)]
    return Attentions(total=len(found), items=tuple(_items(tx, shown)))


class _Asked:
    def __init__(self, tx: Tx, owner: Owner | None, late: timedelta) -> None:
        self._tx = tx
        self._now = now = tx.now()
        hour = Window.last(LATE_WITHIN, now)
        self._statements = statements(tx.dialect.counting, owned=owner is not None)
        self._given: dict[str, object] = {
            "now": micros(now),
            "missed_since": micros(now - MISSED_WITHIN),
            "late_since": micros(now - LATE_WITHIN),
            "late_before": micros(now - late),
            "late": late // MICROSECOND,
            "least": bracket_of(late),
            "since": micros(hour.since),
            "until": micros(hour.until),
        }
        if owner is not None:
            self._given |= {"owner_type": owner.type.value, "owner_id": owner.id}

    def themselves(self) -> Iterator[Sign]:
        found = self._tx.rows(self._statements.themselves, self._given)
        doubtful = sorted((-row.doubted_at, row.id) for row in found if row.doubted_at is not None)
        ids = [schedule_id for _, schedule_id in doubtful[:MOST_OF_ITSELF]]
        yield from own_signs(_loaded(self._tx, ids).values(), self._now)
        for row in found:
            at = _failing_since(row.judged or "")
            if at is not None:
                # By position, as in `Sign`: there may be thousands.
                yield _make_sign(row.id, Cause.FAILING, at, FAILING, None, None)

    def missed(self) -> list[Sign]:
        seen = [
            Seen(
                ScheduleId(row.schedule_id),
                RunId(row.id),
                moment_of(row.planned_at),
                max(1, row.missed_count),
            )
            for row in self._tx.rows(self._statements.missed, self._given)
        ]
        return signs_of(Cause.MISSED, seen)

    def late(self) -> list[Sign]:
        asked = [self._statements.waiting]
        # Mostly the sums say that it is not worth while to look at every run of the last hour.
        if self._tx.first(ANY_LATE, self._given) is not None:
            asked.append(self._statements.begun_late)
        seen = [
            Seen(
                ScheduleId(row.schedule_id),
                RunId(row.id),
                moment_of(row.planned_at),
                lag=(maybe_moment(row.started_at) or self._now) - moment_of(row.planned_at),
            )
            for statement in asked
            for row in self._tx.rows(statement, self._given)
        ]
        rows = self._tx.rows(self._statements.overdue, self._given)
        due = {ScheduleId(row.id): moment_of(row.next_run_at) for row in rows}
        signs = signs_of(Cause.LATE, seen)
        return [*signs, *overdue_signs(due, signs, self._now)]


def _failing_since(planned: str) -> datetime | None:
    """`is_failing`, by what `Counting.judged` says; when the newest was planned."""
    newest = planned.split(",")
    return moment_of(int(newest[0])) if len(newest) == FAILING and all(newest) else None


def _loaded(tx: Tx, ids: Sequence[str]) -> dict[str, Schedule]:
    if not ids:
        return {}
    statement = select(schedules).where(tx.dialect.among(schedules.c.id, "ids"))
    rows = tx.rows(statement, {"ids": tx.dialect.listed(ids)})
    return {row.id: readable_schedule(row) for row in rows}


def _items(tx: Tx, signs: Sequence[Sign]) -> Iterator[Attention]:
    known = _loaded(tx, [sign.schedule_id for sign in signs])
    failed = [sign.schedule_id for sign in signs if sign.cause is Cause.FAILING]
    results = newest_ends(tx, failed, GLANCE_RESULTS)
    for sign in signs:
        counted = counted_in_a_row(sign, results.get(sign.schedule_id, ()))
        yield Attention(schedule=known[sign.schedule_id], sign=counted)
