"""Runs in the hands of workers: claim, start, finish, release."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, update

from chimes.model.ids import RunId
from chimes.model.run import (
    Reason,
    Run,
    RunStatus,
    Verdict,
    accepts,
    claimed,
    given_back,
    queue_order,
    unreadable,
)
from chimes.store.port import Finished, Places
from chimes.store.sql.base import SqlBase, alive, load_runs, write_states
from chimes.store.sql.database import Tx
from chimes.store.sql.finishing import finished
from chimes.store.sql.locking import hold_runs
from chimes.store.sql.rows.mending import readable_run
from chimes.store.sql.rows.parts import micros
from chimes.store.sql.settling import Settling
from chimes.store.sql.tables import runs
from chimes.store.sql.without_schedules import write_runs

#: Fenced in the statement itself: no row touched means that ownership is lost.
_START = (
    update(runs)
    .where(
        runs.c.id == bindparam("run_id"),
        runs.c.fence == bindparam("held"),
        runs.c.status == RunStatus.RUNNING.value,
    )
    .values(started=1)
)


class SqlWork(SqlBase):
    async def claim(self, places: Places) -> tuple[Run, ...]:
        if places.free <= 0:
            return ()
        if self._database.one_writer and not await self._database.read(_anything_available):
            return ()
        return await self._database.write(lambda tx: _claimed(tx, places))

    async def start(self, run_id: RunId, fence: int) -> bool:
        given = {"run_id": run_id, "held": fence}
        return await self._database.write(lambda tx: tx.run(_START, given) == 1)

    async def finish(self, verdicts: Sequence[Verdict]) -> Finished:
        if not verdicts:
            return Finished()
        return await write_runs(self._database, lambda tx: finished(tx, verdicts))

    async def release(self, holds: Sequence[tuple[RunId, int]]) -> None:
        def work(tx: Tx) -> None:
            now = tx.now()
            hold_runs(tx, [run_id for run_id, _ in holds])
            held = load_runs(tx, [run_id for run_id, _ in holds])
            ours = [
                run for run_id, fence in holds if (run := held.get(run_id)) and accepts(run, fence)
            ]
            settling = Settling(tx, now, ours)
            for run in ours:
                settling.apply(given_back(run, now))
            settling.write()
            tx.wakes = True

        await write_runs(self._database, work)


def _anything_available(tx: Tx) -> bool:
    """Asked by a reader, so that an idle worker never waits for the writer."""
    earliest = tx.dialect.next_available(tx.connection)
    return earliest is not None and earliest <= micros(tx.now())


def _claimed(tx: Tx, places: Places) -> tuple[Run, ...]:
    now = tx.now()
    if not alive(tx, places.node_id, now):
        return ()
    wanted = (tx.connection, micros(now), places.offers, places.free)
    if tx.dialect.fast:
        found = [readable_run(row) for row in tx.dialect.take(*wanted, places.node_id)]
        return tuple(sorted(_fit(tx, found, now), key=queue_order))
    found = [readable_run(row) for row in tx.dialect.claimable(*wanted)]
    taken = tuple(claimed(run, places.node_id, now) for run in _fit(tx, found, now))
    write_states(tx, taken)
    return taken


def _fit(tx: Tx, found: Sequence[Run], now: datetime) -> Sequence[Run]:
    """Without those whose rows are damaged, which end here."""
    broken = [run for run in found if run.reason == Reason.UNREADABLE]
    if not broken:
        return found
    settling = Settling(tx, now, broken)
    for run in broken:
        settling.apply(unreadable(run, now))
    settling.write()
    tx.wakes = True
    return [run for run in found if run.reason != Reason.UNREADABLE]
