"""Runs go on while the table of schedules cannot be used (R2.33, C12).

What becomes of a run depends on its schedule only in passing: the schedule hears of its end, and
its row stands for the lock of its concurrency key. When a unit fails in a way that is neither a
conflict nor the server's absence, it is tried once more without touching that table; if the table
was not to blame, it fails again, and that is the answer.
"""

from __future__ import annotations

import logging
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from chimes.store.sql.database import Database, Tx, Work

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def write_runs(database: Database, work: Work[T]) -> T:
    try:
        return await database.write(work)
    except DBAPIError as error:
        _log.debug("trying again without the schedules: %s", error)

    def without(tx: Tx) -> T:
        tx.schedules_usable = False
        return work(tx)

    return await database.write(without)
