"""Claims, starts, completes and releases runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy import bindparam, update
from sqlalchemy.exc import DBAPIError

from chimes.model.ids import RunId
from chimes.model.run import (
    Completion,
    Reason,
    Run,
    RunStatus,
    claim,
    fail_unreadable,
    owns_fence,
    queue_order,
    release_or_cancel,
)
from chimes.store.port import ClaimRequest, CompletionResult
from chimes.store.sql.base import (
    SqlBase,
    is_alive,
    load_runs,
    lock_for_completion,
    write_runs,
    write_states,
)
from chimes.store.sql.completion import (
    CompletionEffects,
    are_standalone,
    store_completions,
    store_standalone,
)
from chimes.store.sql.database.base import Tx
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


class SqlClaims(SqlBase):
    async def claim(self, request: ClaimRequest) -> tuple[Run, ...]:
        if request.free <= 0:
            return ()
        if self._database.has_single_writer and not await self._database.read(_anything_available):
            return ()
        if not self._database.dialect.fast:
            return await self._database.write(lambda tx: _claim(tx, request))
        found = await self._database.write_alone(lambda tx: _claim_plain(tx, request))
        broken = [run for run in found if _is_broken(run)]
        if broken:
            await self._database.write(lambda tx: _end_broken(tx, _still_owned(tx, broken)))
            found = [run for run in found if not _is_broken(run)]
        return tuple(sorted(found, key=queue_order))

    async def start(self, run_id: RunId, fence: int) -> bool:
        parameters = {"run_id": run_id, "held": fence}
        return await self._database.write(lambda tx: tx.run(_START, parameters) == 1)

    async def finish(self, completions: Sequence[Completion]) -> CompletionResult:
        if not completions:
            return CompletionResult()
        if self._database.dialect.fast and are_standalone(completions):
            # That statement also names the table of schedules, so it fails when the table is
            # broken.
            with suppress(DBAPIError):
                done = await self._database.write_alone(
                    lambda tx: store_standalone(tx, completions)
                )
                if done is not None:
                    return done
        # Completions that were stored already are recognised as repetitions.
        return await write_runs(self._database, lambda tx: store_completions(tx, completions))

    async def release(self, claims: Sequence[tuple[RunId, int]]) -> None:
        def work(tx: Tx) -> None:
            now = tx.now()
            lock_for_completion(tx, [run_id for run_id, _ in claims])
            current = load_runs(tx, [run_id for run_id, _ in claims])
            ours = [
                run
                for run_id, fence in claims
                if (run := current.get(run_id)) and owns_fence(run, fence)
            ]
            effects = CompletionEffects(tx, now, ours)
            for run in ours:
                effects.apply(release_or_cancel(run, now))
            effects.write()
            tx.wakes = True

        await write_runs(self._database, work)


def _anything_available(tx: Tx) -> bool:
    """Runs on a read connection, so that an idle worker never waits for the writer."""
    earliest = tx.dialect.next_available(tx.connection)
    return earliest is not None and earliest <= micros(tx.now())


def _claim(tx: Tx, request: ClaimRequest) -> tuple[Run, ...]:
    now = tx.now()
    if not is_alive(tx, request.node_id, now):
        return ()
    wanted = (tx.connection, micros(now), request.capabilities, request.free)
    found = [decode_run(row) for row in tx.dialect.claimable(*wanted)]
    broken = [run for run in found if _is_broken(run)]
    if broken:
        _end_broken(tx, broken)
    claimed = tuple(claim(run, request.node_id, now) for run in found if not _is_broken(run))
    write_states(tx, claimed)
    return claimed


def _claim_plain(tx: Tx, request: ClaimRequest) -> Sequence[Run]:
    wanted = (tx.clock_override(), request.capabilities, request.free, request.node_id)
    return [decode_run(row) for row in tx.dialect.claim_plain(tx.connection, *wanted)]


def _is_broken(run: Run) -> bool:
    return run.reason == Reason.UNREADABLE


def _still_owned(tx: Tx, claimed: Sequence[Run]) -> Sequence[Run]:
    lock_for_completion(tx, [run.id for run in claimed])
    current = load_runs(tx, [run.id for run in claimed])
    return [run for run in claimed if run.id in current and owns_fence(current[run.id], run.fence)]


def _end_broken(tx: Tx, broken: Sequence[Run]) -> None:
    """Ends runs whose rows are corrupt."""
    now = tx.now()
    effects = CompletionEffects(tx, now, broken)
    for run in broken:
        effects.apply(fail_unreadable(run, now))
    effects.write()
    tx.wakes = True
