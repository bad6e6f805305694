# ruff: noqa: S608 - what is put into statements here are the names of our own columns.
"""The newest runs of each of many schedules, in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Row, TextClause, text

from chimes.model.access import Owner
from chimes.model.ids import RunId, ScheduleId
from chimes.model.insights import MOST_SCHEDULES, Result
from chimes.model.run import Origin
from chimes.store.sql.database import Tx
from chimes.store.sql.rows.parts import STATUSES, maybe_moment, moment_of

_COLUMNS = "schedule_id, id, status, origin, created_at, planned_at, started_at, finished_at"
_ORIGINS = {origin.value: origin for origin in Origin}
#: How many schedules a statement is made for, so that there are few of them to be prepared.
_SIZES = (1, 10, 25, 50, 100, MOST_SCHEDULES)


def newest_results(
    tx: Tx, ids: Sequence[ScheduleId], each: int, owner: Owner | None = None
) -> dict[ScheduleId, tuple[Result, ...]]:
    if not ids:
        return {}
    size = next(size for size in _SIZES if size >= len(ids))
    given: dict[str, object] = {f"id{place}": "" for place in range(size)}
    given |= {f"id{place}": schedule_id for place, schedule_id in enumerate(ids)}
    given["each"] = each
    if owner is not None:
        given |= {"owner_type": owner.type.value, "owner_id": owner.id}
    found: dict[ScheduleId, list[Result]] = {}
    for row in tx.rows(statement(size, owned=owner is not None), given):
        found.setdefault(ScheduleId(row.schedule_id), []).append(_result(row))
    return {name: tuple(sorted(results, key=_age, reverse=True)) for name, results in found.items()}


@lru_cache(maxsize=2 * len(_SIZES))
def statement(size: int, *, owned: bool) -> TextClause:
    """A walk through the index for each schedule, and never further than asked for: numbering the
    rows of all of them would read their whole past."""
    mine = " AND owner_type = :owner_type AND owner_id = :owner_id" if owned else ""
    return text(
        " UNION ALL ".join(
            f"SELECT * FROM (SELECT {_COLUMNS} FROM runs WHERE schedule_id = :id{place}{mine}"
            f" ORDER BY created_at DESC, id DESC LIMIT :each) AS part{place}"
            for place in range(size)
        )
    )


def _result(row: Row[Any]) -> Result:
    return Result(
        run_id=RunId(row.id),
        status=STATUSES[row.status],
        origin=_ORIGINS[row.origin],
        created_at=moment_of(row.created_at),
        planned_at=moment_of(row.planned_at),
        started_at=maybe_moment(row.started_at),
        finished_at=maybe_moment(row.finished_at),
    )


def _age(result: Result) -> tuple[object, str]:
    return result.created_at, result.run_id
