"""R2.40: what each pass of a scheduler claimed, when and for how long. One row for a pass, which
its runs name; a row per schedule would cost as much as the run itself."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import bindparam, delete

from chimes.model.ids import NodeId, ScheduleId
from chimes.store.sql.database import Tx
from chimes.store.sql.rows.parts import Value, clean, micros
from chimes.store.sql.tables import fire_batches, fire_failures

#: Room for passes of several nodes within one microsecond.
_SPREAD = 4096
_OLD = delete(fire_batches).where(fire_batches.c.id < bindparam("before"))
_OLD_FAILURES = delete(fire_failures).where(fire_failures.c.batch_id < bindparam("before"))


def new_batch_id(now: datetime) -> int:
    """In the order of time, so that retention needs no further index."""
    return micros(now) * _SPREAD + random.randrange(_SPREAD)  # noqa: S311 spreads, hides nothing


def record_batch(
    tx: Tx,
    batch_id: int,
    node_id: NodeId | None,
    claimed_at: datetime,
) -> None:
    done = tx.now()
    row: dict[str, Value] = {
        "id": batch_id,
        "node_id": node_id or "",
        "claimed_at": micros(claimed_at),
        "enqueued_at": micros(done),
        "duration_ms": (done - claimed_at).total_seconds() * 1000,
    }
    tx.run(tx.dialect.insert_new(fire_batches), row)


def record_failures(tx: Tx, batch_id: int, errors: Mapping[ScheduleId, str]) -> None:
    failures: list[dict[str, Value]] = [
        {"batch_id": batch_id, "schedule_id": schedule_id, "error": clean(error)}
        for schedule_id, error in errors.items()
    ]
    tx.dialect.insert_many(tx.connection, fire_failures, failures)


def forget_batches(tx: Tx, before: datetime) -> None:
    given = {"before": micros(before) * _SPREAD}
    tx.run(_OLD, given)
    tx.run(_OLD_FAILURES, given)
