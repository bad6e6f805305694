"""The newest runs of each of many schedules, in one statement (`Counting.newest`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from chimes.model.access import Owner
from chimes.model.change import made
from chimes.model.ids import ScheduleId
from chimes.model.insights import Result
from chimes.model.run import Origin
from chimes.store.plain import EPOCH
from chimes.store.sql.database import Tx
from chimes.store.sql.rows.parts import STATUSES

_ORIGINS = {origin.value: origin for origin in Origin}


def newest_results(
    tx: Tx, ids: Sequence[ScheduleId], each: int, owner: Owner | None = None
) -> dict[ScheduleId, tuple[Result, ...]]:
    if not ids:
        return {}
    whose = None if owner is None else (owner.type.value, owner.id)
    rows = tx.dialect.counting.newest(tx.connection, ids, each, whose)
    found: dict[ScheduleId, list[Result]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(_result(row))
    return {name: tuple(sorted(results, key=_age, reverse=True)) for name, results in found.items()}


def _result(row: Sequence[Any]) -> Result:
    """By position, as `NEWEST` names the columns. Moments are not looked up (`moment_of`): there
    are thousands, and hardly two of them are the same."""
    _, run_id, status, origin, created_at, planned_at, started_at, finished_at = row
    created = EPOCH + timedelta(0, 0, created_at)
    return made(
        Result,
        (
            run_id,
            STATUSES[status],
            _ORIGINS[origin],
            created,
            created if planned_at == created_at else EPOCH + timedelta(0, 0, planned_at),
            None if started_at is None else EPOCH + timedelta(0, 0, started_at),
            None if finished_at is None else EPOCH + timedelta(0, 0, finished_at),
        ),
    )


def _age(result: Result) -> tuple[object, str]:
    return result.created_at, result.run_id
