"""Adds or completes a run inside a transaction of the caller: it takes effect when the caller
commits.

Adding a run uses only portable statements, because the connection may come from any driver.
Completing one uses the statements of the dialect and needs its driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, select

from chimes.clock import Clock
from chimes.errors import Conflict, InvalidInput
from chimes.i18n import _
from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.run import Completion, LogEntry, Run, complete, owns_fence
from chimes.store.sql.completion import CompletionEffects
from chimes.store.sql.database.base import KnownRows, Tx
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.locks import admitted_runs, lock_for_completion, lock_keys
from chimes.store.sql.rollups import add_uncommitted_run
from chimes.store.sql.rows.access import insert_runs, load_run
from chimes.store.sql.rows.run import LOG, log_values
from chimes.store.sql.rows.values import micros, number_of
from chimes.store.sql.tables import run_logs

_ISOLATION = {
    "postgresql": "SELECT current_setting('transaction_isolation')",
    "mariadb": "SELECT @@tx_isolation",
}
#: Nodes receive it when the transaction commits; polling covers lost notifications.
_NOTIFY = "SELECT pg_notify(substr('chimes_' || current_schema(), 1, 63), 'enqueued')"


def add_run_in(
    connection: Connection, dialect: Dialect, clock: Clock | None, make: Callable[[datetime], Run]
) -> Run:
    """`add_runs` for one run without a schedule. `make` receives the store's time. Returns the
    existing run if one with the same id exists or is about to be committed by another transaction.
    Other runs of a shared concurrency key wait for the end of the transaction."""
    tx = Tx(connection, dialect, clock, KnownRows(), joined=True)
    run = make(tx.now())
    key = run.concurrency_key
    if key is not None:
        _check_isolation(tx)
        lock_keys(tx, [key])
        number = number_of(key)
        admitted = len(admitted_runs(tx, [number]).get(number, ()))
        run = replace(run, blocked=admitted >= run.concurrency_limit)
    if not insert_runs(tx, [run]):
        found = load_run(tx, run.id)
        assert found is not None, "a run whose id is taken can be read"
        return found
    add_uncommitted_run(tx, run.id)
    if dialect.name == "postgresql":
        connection.exec_driver_sql(_NOTIFY)
    return run


def complete_run_in(
    connection: Connection,
    dialect: Dialect,
    clock: Clock | None,
    run_id: RunId,
    fence: int,
    make: Callable[[datetime], Completion],
    *,
    logged: int = 0,
) -> Completion:
    """`finish` for one completion. Raises Conflict if the attempt no longer owns its run. `logged`:
    how many lines of its log are already stored."""
    tx = Tx(connection, dialect, clock, KnownRows(), joined=True)
    lock_for_completion(tx, [run_id])
    now = tx.now()
    run = load_run(tx, run_id)
    if run is None or not owns_fence(run, fence):
        raise Conflict(
            _("this attempt no longer owns run {id}: roll its transaction back", id=run_id),
            code="fenced",
        )
    if run.concurrency_key is not None:
        _check_isolation(tx)
    completion = make(now)
    effects = CompletionEffects(tx, now, [run])
    effects.apply(complete(run, completion, now), completion)
    effects.write()
    _append_missing(tx, run.id, completion.logs, logged)
    if (effects.unblocked or tx.wakes) and dialect.name == "postgresql":
        connection.exec_driver_sql(_NOTIFY)
    return completion


def _append_missing(tx: Tx, run_id: RunId, entries: Sequence[LogEntry], logged: int) -> None:
    """Appends the lines that are not stored yet. Stored lines are recognised by their times. A
    transaction with an older snapshot does not see them, except with a lock (MariaDB); `logged`
    covers that case."""
    if not entries:
        return
    lines = select(run_logs.c.number, run_logs.c.at).where(
        run_logs.c.run_id == bindparam("run_id"), run_logs.c.number > bindparam("logged")
    )
    parameters = {"run_id": run_id, "logged": logged}
    found = list(tx.rows(tx.for_update(lines, run_logs.c.number), parameters))
    stored = {row.at for row in found}
    last = max((row.number for row in found), default=logged)
    missing = [entry for entry in entries if micros(entry.at) not in stored]
    rows = [log_values(run_id, number, entry) for number, entry in enumerate(missing, last + 1)]
    if rows:
        tx.dialect.insert_many(tx.connection, run_logs, LOG, rows)


def _check_isolation(tx: Tx) -> None:
    """Raises an error for an isolation level with a snapshot: whether a run is admitted depends on
    the other runs of its key as they are after the key was locked. With an older snapshot a blocked
    run could wait for ever."""
    statement = _ISOLATION.get(tx.dialect.name)
    if statement is None:
        return
    level = str(tx.connection.exec_driver_sql(statement).scalar()).replace("-", " ").upper()
    if level != "READ COMMITTED":
        raise InvalidInput(
            _(
                "connection: the run shares a limit with others, which needs a transaction at READ "
                "COMMITTED; this one is at {level}",
                level=level,
            ),
            field="connection",
            code="isolation",
        )
