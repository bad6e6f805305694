"""The newest runs of each of many schedules, in one statement (`Counting.newest`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any

from chimes.model.access import Owner
from chimes.model.change import maker
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import Result
from chimes.model.run import Origin, RunStatus
from chimes.store.plain import EPOCH
from chimes.store.sql.database import Tx
from chimes.store.sql.rows.parts import STATUSES

#: When a run was made, and its id, where `NEWEST` has them.
_AGE = itemgetter(4, 1)
_ORIGINS = {origin.value: origin for origin in Origin}
_make_result = maker(Result)


def newest_results(
    tx: Tx, ids: Sequence[ScheduleId], each: int, owner: Owner | None = None
) -> dict[ScheduleId, tuple[Result, ...]]:
    whose = None if owner is None else (owner.type.value, owner.id)
    found = _newest(tx, ids, each, whose)
    return {name: tuple(map(_result, rows)) for name, rows in found.items()}


def newest_ends(
    tx: Tx, ids: Sequence[ScheduleId], each: int
) -> dict[ScheduleId, list[tuple[RunId, RunStatus]]]:
    """How the newest runs of each stand, newest first."""
    found = _newest(tx, ids, each, None)
    return {
        name: [(RunId(row[1]), STATUSES[row[2]]) for row in rows] for name, rows in found.items()
    }


def _newest(
    tx: Tx, ids: Sequence[ScheduleId], each: int, owner: tuple[str, str] | None
) -> dict[ScheduleId, list[Sequence[Any]]]:
    """Newest first, by (created_at, id)."""
    if not ids:
        return {}
    found: dict[ScheduleId, list[Sequence[Any]]] = {}
    for row in tx.dialect.counting.newest(tx.connection, ids, each, owner):
        found.setdefault(row[0], []).append(row)
    for rows in found.values():
        rows.sort(key=_AGE, reverse=True)
    return found


def _result(row: Sequence[Any]) -> Result:
    """By position, as `NEWEST` names the columns. Moments are not looked up (`moment_of`): there
    are thousands, and hardly two of them are the same."""
    _, run_id, status, origin, created_at, planned_at, started_at, finished_at = row
    created = EPOCH + timedelta(0, 0, created_at)
    return _make_result(
        run_id,
        STATUSES[status],
        _ORIGINS[origin],
        created,
        created if planned_at == created_at else EPOCH + timedelta(0, 0, planned_at),
        None if started_at is None else EPOCH + timedelta(0, 0, started_at),
        None if finished_at is None else EPOCH + timedelta(0, 0, finished_at),
    )
