"""Claims, starts and releases runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, update

from chimes.model.ids import RunId
from chimes.model.run import Reason, Run, fail_unreadable, owns_fence, release_or_cancel
from chimes.model.run import claim as claim_run
from chimes.store.port import ClaimRequest
from chimes.store.sql.completion import CompletionEffects
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.locks import lock_for_completion
from chimes.store.sql.rows.access import (
    SELECT_RUNS,
    decode_runs,
    is_alive,
    load_runs,
    write_changes,
)
from chimes.store.sql.rows.values import micros
from chimes.store.sql.tables import claims, runs

#: The fence is checked in the statement itself: no row updated means that ownership is lost.
_START = (
    update(claims)
    .where(claims.c.run_id == bindparam("this_id"), claims.c.fence == bindparam("this_fence"))
    .values(started=1)
)


def anything_available(tx: Tx) -> bool:
    """Runs on a read connection, so that an idle worker never waits for the writer."""
    earliest = tx.dialect.next_available(tx.connection)
    return earliest is not None and earliest <= micros(tx.now())


def claim_at_once(tx: Tx, request: ClaimRequest) -> list[Run]:
    """`claim`, where the database needs only one statement for it."""
    turns = tx.known.turns.get(request.capabilities)
    wanted = (request.capabilities, request.free, request.node_id, turns)
    claimed = decode_runs(tx, tx.dialect.claim(tx.connection, tx.clock_override(), *wanted))
    tx.known.turns.advance(request.capabilities, claimed)
    return claimed


def claim(tx: Tx, request: ClaimRequest) -> list[Run]:
    """Moves due runs from the queue to the claims. Corrupt runs are claimed too;
    the caller ends them."""
    now = tx.now()
    if not is_alive(tx, request.node_id, now):
        return []
    turns = tx.known.turns.get(request.capabilities)
    wanted = (tx.connection, micros(now), request.capabilities, request.free, turns)
    ids = [row[0] for row in tx.dialect.claimable(*wanted)]
    if not ids:
        return []
    found = {
        run.id: run
        for run in decode_runs(
            tx, tx.rows(_runs_by_id(tx.dialect), {"ids": tx.dialect.listed(ids)})
        )
    }
    # Read again: a run that was unblocked meanwhile starts after the end of the run before it.
    now = tx.now()
    claimed = [claim_run(found[run_id], request.node_id, now) for run_id in ids]
    write_changes(tx, [(found[run.id], run) for run in claimed])
    tx.known.turns.advance(request.capabilities, claimed)
    return claimed


@cache
def _runs_by_id(dialect: Dialect) -> Select[Any]:
    return SELECT_RUNS.where(dialect.among(runs.c.id, "ids"))


def is_corrupt(run: Run) -> bool:
    """Returns whether the row of the run is corrupt."""
    return run.reason == Reason.UNREADABLE


def end_corrupt(tx: Tx, claimed: Sequence[Run]) -> None:
    """Ends corrupt runs that are still owned."""
    lock_for_completion(tx, [run.id for run in claimed])
    current = load_runs(tx, [run.id for run in claimed])
    owned = [
        current[run.id]
        for run in claimed
        if run.id in current and owns_fence(current[run.id], run.fence)
    ]
    now = tx.now()
    effects = CompletionEffects(tx, now, owned)
    for run in owned:
        effects.apply(fail_unreadable(run, now))
    effects.write()
    tx.wakes = True


def start(tx: Tx, run_id: RunId, fence: int) -> bool:
    return tx.run(_START, {"this_id": run_id, "this_fence": fence}) == 1


def release(tx: Tx, held: Sequence[tuple[RunId, int]]) -> None:
    now = tx.now()
    lock_for_completion(tx, [run_id for run_id, _ in held])
    current = load_runs(tx, [run_id for run_id, _ in held])
    ours = [
        run for run_id, fence in held if (run := current.get(run_id)) and owns_fence(run, fence)
    ]
    effects = CompletionEffects(tx, now, ours)
    for run in ours:
        effects.apply(release_or_cancel(run, now))
    effects.write()
    tx.wakes = True
