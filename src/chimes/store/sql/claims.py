"""Claims, starts and releases runs."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, update

from chimes.model.ids import RunId
from chimes.model.run import (
    Reason,
    Run,
    RunStatus,
    fail_unreadable,
    owns_fence,
    release_or_cancel,
)
from chimes.model.run import claim as claim_run
from chimes.store.port import ClaimRequest
from chimes.store.sql.completion import CompletionEffects
from chimes.store.sql.database.base import Tx
from chimes.store.sql.locks import lock_for_completion
from chimes.store.sql.rows.access import is_alive, load_runs, write_states
from chimes.store.sql.rows.corrupt import decode_run
from chimes.store.sql.rows.values import micros
from chimes.store.sql.tables import runs

#: The fence is checked in the statement itself: no row updated means that ownership is lost.
_START = (
    update(runs)
    .where(
        runs.c.id == bindparam("run_id"),
        runs.c.fence == bindparam("held"),
        runs.c.status == RunStatus.RUNNING.value,
    )
    .values(started=1)
)


def anything_available(tx: Tx) -> bool:
    """Runs on a read connection, so that an idle worker never waits for the writer."""
    earliest = tx.dialect.next_available(tx.connection)
    return earliest is not None and earliest <= micros(tx.now())


def claim(tx: Tx, request: ClaimRequest) -> tuple[Run, ...]:
    now = tx.now()
    if not is_alive(tx, request.node_id, now):
        return ()
    wanted = (tx.connection, micros(now), request.capabilities, request.free)
    found = [decode_run(row) for row in tx.dialect.claimable(*wanted)]
    if not found:
        return ()
    corrupt = [run for run in found if is_corrupt(run)]
    if corrupt:
        _end(tx, corrupt)
    # Read again: a run that was unblocked meanwhile starts after the end of the run before it.
    now = tx.now()
    claimed = tuple(claim_run(run, request.node_id, now) for run in found if not is_corrupt(run))
    write_states(tx, claimed)
    return claimed


def claim_plain(tx: Tx, request: ClaimRequest) -> Sequence[Run]:
    """Claims with one statement. Corrupt runs are claimed too; the caller ends them."""
    wanted = (tx.clock_override(), request.capabilities, request.free, request.node_id)
    return [decode_run(row) for row in tx.dialect.claim_plain(tx.connection, *wanted)]


def is_corrupt(run: Run) -> bool:
    """Returns whether the row of the run is corrupt."""
    return run.reason == Reason.UNREADABLE


def end_corrupt(tx: Tx, claimed: Sequence[Run]) -> None:
    """Ends the corrupt runs of `claim_plain` that are still owned."""
    lock_for_completion(tx, [run.id for run in claimed])
    current = load_runs(tx, [run.id for run in claimed])
    owned = [run for run in claimed if run.id in current and owns_fence(current[run.id], run.fence)]
    _end(tx, owned)


def _end(tx: Tx, corrupt: Sequence[Run]) -> None:
    now = tx.now()
    effects = CompletionEffects(tx, now, corrupt)
    for run in corrupt:
        effects.apply(fail_unreadable(run, now))
    effects.write()
    tx.wakes = True


def start(tx: Tx, run_id: RunId, fence: int) -> bool:
    return tx.run(_START, {"run_id": run_id, "held": fence}) == 1


def release(tx: Tx, claims: Sequence[tuple[RunId, int]]) -> None:
    now = tx.now()
    lock_for_completion(tx, [run_id for run_id, _ in claims])
    current = load_runs(tx, [run_id for run_id, _ in claims])
    ours = [
        run for run_id, fence in claims if (run := current.get(run_id)) and owns_fence(run, fence)
    ]
    effects = CompletionEffects(tx, now, ours)
    for run in ours:
        effects.apply(release_or_cancel(run, now))
    effects.write()
    tx.wakes = True
