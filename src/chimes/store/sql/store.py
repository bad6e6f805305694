"""The SQL implementation of the store port, assembled from its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import case, func, insert, select, text, update

from chimes.model.listing import Counts
from chimes.model.notification import DeliveryState
from chimes.model.run import RunStatus
from chimes.store.epoch import Epoch
from chimes.store.port import StoreStatus
from chimes.store.sql.claims import SqlClaims
from chimes.store.sql.database.base import Tx
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.due_schedules import SqlFiring
from chimes.store.sql.export import SqlExport
from chimes.store.sql.insights import SqlInsights
from chimes.store.sql.migrations import HEAD
from chimes.store.sql.nodes import SqlNodeControl, SqlNodes
from chimes.store.sql.notifications import SqlDeliveries, SqlInbox
from chimes.store.sql.prefetch import SqlPrefetch
from chimes.store.sql.records import SqlCheckpoints, SqlRecords, SqlTokens
from chimes.store.sql.rollups import status_statements
from chimes.store.sql.rows.values import micros, moment_of
from chimes.store.sql.runs import SqlRuns
from chimes.store.sql.schedules import SqlSchedules
from chimes.store.sql.tables import DUE, deliveries, schedules, store_facts


class SqlStore(
    SqlSchedules,
    SqlFiring,
    SqlPrefetch,
    SqlRuns,
    SqlClaims,
    SqlDeliveries,
    SqlInbox,
    SqlTokens,
    SqlCheckpoints,
    SqlNodes,
    SqlNodeControl,
    SqlRecords,
    SqlExport,
    SqlInsights,
):
    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def status(self) -> StoreStatus:
        return StoreStatus(
            kind=self._database.dialect.name,
            location=self._database.location,
            schema=HEAD,
            degraded=self._database.degraded,
        )

    async def migrate(self) -> tuple[str | None, str]:
        """Use instead of `open`. Returns the old and new schema revision. Safe to repeat, and on a
        server safe while nodes are running."""
        return await self._database.migrate()

    async def epoch(self) -> Epoch:
        def work(tx: Tx) -> Epoch:
            if tx.connection.dialect.update_returning:
                row = tx.first(_RAISE_EPOCH.returning(store_facts.c.value))
            else:
                tx.run(_RAISE_EPOCH)
                row = tx.first(_EPOCH)
            assert row is not None
            history, now = self._database.identity(tx.connection), tx.now()
            begun = _history_began(tx, history, now) if self.dialect.forks else None
            return Epoch(int(row.value), history, at=now, begun=begun)

        return await self._database.write(work)

    def counters(self) -> Mapping[str, int]:
        """Returns counters of database errors that were handled, by name."""
        return self._database.error_counts()

    @property
    def dialect(self) -> Dialect:
        """For a transaction of the caller (`joined_transaction`)."""
        return self._database.dialect

    async def now(self) -> datetime:
        return await self._database.now()

    def changes(self) -> int:
        return self._database.changes()

    def wake(self) -> None:
        self._database.wake()

    async def wait_for_work(self, since: int, until: datetime | None) -> None:
        seconds = None
        if until is not None:
            seconds = max(0.0, (until - await self._database.approximate_now()).total_seconds())
        await self._database.wait(since, seconds)

    async def counts(self) -> Counts:
        return await self._database.read(_counts)


_RAISE_EPOCH = (
    update(store_facts).where(store_facts.c.name == "epoch").values(value=store_facts.c.value + 1)
)
_EPOCH = select(store_facts.c.value).where(store_facts.c.name == "epoch")
_NUMBER = func.count().label("number")
#: Answered from an index alone, at the cost of a full index scan.
ENABLED = select(
    schedules.c.enabled,
    func.count(case((schedules.c.deleted_at.is_(None), 1))).label("number"),
).group_by(schedules.c.enabled)
STATES = select(deliveries.c.state, _NUMBER).group_by(deliveries.c.state)


def _history_began(tx: Tx, history: str, now: datetime) -> datetime:
    """Returns when a node first saw this history. The first node records it while it holds the row
    of the epoch."""
    name = f"history {history}"
    row = tx.first(select(store_facts.c.value).where(store_facts.c.name == name))
    if row is not None:
        return moment_of(row.value)
    tx.run(insert(store_facts).values(name=name, value=micros(now)))
    return now


def _counts(tx: Tx) -> Counts:
    due = (
        select(_NUMBER)
        .select_from(schedules)
        .where(text(DUE), schedules.c.next_run_at <= micros(tx.now()))
    )
    enabled = {row.enabled: row.number for row in tx.rows(ENABLED)}
    return Counts(
        schedules=sum(enabled.values()),
        enabled=enabled.get(1, 0),
        due=tx.rows(due)[0].number,
        runs=_runs_by_status(tx),
        deliveries={DeliveryState(row.state): row.number for row in tx.rows(STATES)},
    )


def _runs_by_status(tx: Tx) -> dict[RunStatus, int]:
    """Reads rollups: a million ended runs are not counted one by one."""
    found: Counter[RunStatus] = Counter()
    for statement in status_statements():
        for row in tx.rows(statement):
            found[RunStatus(row.status)] += int(row.number)
    return {status: number for status, number in found.items() if number}
