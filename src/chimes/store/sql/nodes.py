"""Nodes with their leases, and the rescue of runs whose node is gone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, bindparam, delete, insert, or_, select, text, update

from chimes.model.ids import NodeId, RunId
from chimes.model.node import Beat, Node, NodeFacts
from chimes.model.run import Run, lost
from chimes.store.codec.node import facts_to_text
from chimes.store.node_control import MARKS_KEPT
from chimes.store.sql.base import SqlBase, load_runs
from chimes.store.sql.database import Tx
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.locking import hold_places, hold_runs
from chimes.store.sql.rows.mending import readable_run
from chimes.store.sql.rows.parts import micros, moment_of
from chimes.store.sql.rows.records import node_of, node_values
from chimes.store.sql.server import IDLE_SECONDS
from chimes.store.sql.settling import Settling
from chimes.store.sql.sql_changes import audit_sql_changes
from chimes.store.sql.tables import HELD, node_marks, nodes, runs, sql_changes
from chimes.store.sql.without_schedules import write_runs

_log = logging.getLogger(__name__)

_RENEW = (
    update(nodes)
    .where(nodes.c.id == bindparam("node_id"), nodes.c.lease_until > bindparam("now"))
    .values(
        heartbeat_at=bindparam("now"),
        lease_until=bindparam("until"),
        clock_offset=bindparam("offset"),
        facts=bindparam("told"),
    )
)
_TO_DRAIN = select(nodes.c.drain).where(nodes.c.id == bindparam("node_id"))
TO_CANCEL = (
    select(runs.c.id)
    .where(text(HELD), runs.c.holder == bindparam("node_id"), runs.c.cancel_requested == 1)
    .order_by(runs.c.created_at, runs.c.id)
)
HELD_BY = select(runs.c.id).where(text(HELD), runs.c.holder == bindparam("node_id"))
_ALIVE = select(nodes.c.id).where(nodes.c.lease_until > bindparam("now"))
HOLDERS = select(runs.c.holder).where(text(HELD)).distinct()
#: Whether there is anything to do for `rescue`, in one question: every node asks it all the time.
TROUBLED = select(
    or_(
        select(nodes.c.id).where(nodes.c.lease_until <= bindparam("now")).exists(),
        select(sql_changes.c.id).exists(),
        select(runs.c.holder).where(text(HELD), runs.c.holder.not_in(_ALIVE)).exists(),
    )
)
_THIS = select(nodes).where(nodes.c.id == bindparam("node_id"))
_REMOVE = delete(nodes).where(nodes.c.id == bindparam("node_id"))
_EMPTY = select(nodes).where(
    nodes.c.lease_until <= bindparam("now"),
    ~select(runs.c.id).where(text(HELD), runs.c.holder == nodes.c.id).exists(),
)
_REMOVE_ENDED = _REMOVE.where(nodes.c.lease_until <= bindparam("now"))
_OLD_MARKS = delete(node_marks).where(node_marks.c.at < bindparam("before"))


class SqlNodes(SqlBase):
    async def join(self, node: Node, lease: timedelta) -> Node:
        def work(tx: Tx) -> Node:
            now = tx.now()
            row = tx.first(tx.held(_THIS, nodes.c.id), {"node_id": node.id})
            before = None if row is None else node_of(row)
            joined = replace(
                node,
                started_at=now if before is None else before.started_at,
                heartbeat_at=now,
                lease_until=now + lease,
                drain=node.drain if before is None else before.drain,
                facts=node.facts if before is None else before.facts,
            )
            tx.run(_REMOVE, {"node_id": node.id})
            tx.run(insert(nodes), node_values(joined))
            if before is None:
                tx.run(_OLD_MARKS, {"before": micros(now - MARKS_KEPT)})
                mark(tx, joined, now, joined=True)
            return joined

        joined = await self._database.write(work)
        self._node_id = joined.id
        return joined

    async def beat(
        self,
        node_id: NodeId,
        lease: timedelta,
        *,
        clock: datetime,
        facts: NodeFacts | None = None,
    ) -> Beat:
        """From any thread and event loop. It shares the writer with the other verbs and goes
        ahead of them: on SQLite a connection of its own would wait for the same lock, and
        less fairly."""

        def work(tx: Tx) -> Beat:
            now = tx.now()
            given = {
                "node_id": node_id,
                "now": micros(now),
                "until": micros(now + lease),
                "offset": (clock - now).total_seconds(),
                "told": facts_to_text(facts),
            }
            if tx.run(_RENEW, given) == 0:
                return Beat(alive=False, now=now)
            cancel = tuple(RunId(row.id) for row in tx.rows(TO_CANCEL, {"node_id": node_id}))
            asked = tx.first(_TO_DRAIN, {"node_id": node_id})
            drain = asked is not None and bool(asked.drain)
            return Beat(alive=True, now=now, cancel=cancel, drain=drain)

        return await self._database.write(work, urgent=True)

    async def leave(self, node_id: NodeId) -> None:
        def work(tx: Tx) -> None:
            row = tx.first(_THIS, {"node_id": node_id})
            if row is None:
                return
            now = tx.now()
            lose_all(tx, node_id, now)
            if tx.run(_REMOVE, {"node_id": node_id}):
                mark(tx, node_of(row), now, joined=False)
            tx.wakes = True

        await write_runs(self._database, work)

    async def rescue(self, *, limit: int) -> tuple[Run, ...]:
        # Near enough to see whether it is worth a transaction, which then goes by the exact time.
        about = micros(await self._database.about_now())

        def needed(tx: Tx) -> bool:
            ended = tx.dialect.end_stalled(tx.connection, IDLE_SECONDS)
            if ended:
                _log.warning("ended %d sessions whose node stands still", ended)
            row = tx.first(TROUBLED, {"now": about})
            assert row is not None
            return bool(row[0])

        def work(tx: Tx) -> tuple[Run, ...]:
            now = tx.now()
            rescued = _lose(tx, _lost_runs(tx, now, limit), now)
            _forget_empty(tx, now)
            tx.wakes |= bool(rescued)
            if tx.schedules_usable:
                audit_sql_changes(tx)
            return rescued

        return await write_runs(self._database, work) if await self._database.look(needed) else ()

    async def nodes(self) -> tuple[Node, ...]:
        rows = await self._database.look(lambda tx: tx.rows(select(nodes).order_by(nodes.c.id)))
        return tuple(node_of(row) for row in rows)


def mark(tx: Tx, node: Node, at: datetime, *, joined: bool) -> None:
    values = {"at": micros(at), "node": node.id, "joined": int(joined), "version": node.version}
    tx.run(tx.dialect.insert_new(node_marks), values)


def lose_all(tx: Tx, node_id: NodeId, now: datetime) -> None:
    """All that a node holds counts as lost."""
    held = [RunId(row.id) for row in tx.rows(HELD_BY, {"node_id": node_id})]
    hold_runs(tx, held)
    _lose(tx, [run for run in load_runs(tx, held).values() if run.holder == node_id], now)


def _forget_empty(tx: Tx, now: datetime) -> None:
    """Of several that look at once, the one that took a node off leaves its mark."""
    for row in tx.rows(_EMPTY.order_by(nodes.c.id), {"now": micros(now)}):
        if tx.run(_REMOVE_ENDED, {"node_id": row.id, "now": micros(now)}):
            mark(tx, node_of(row), moment_of(row.lease_until), joined=False)


def held_by_any(dialect: Dialect) -> Select[Any]:
    return (
        select(runs)
        .where(text(HELD), dialect.among(runs.c.holder, "holders"))
        .order_by(runs.c.created_at, runs.c.id)
        .limit(bindparam("most"))
    )


def _lost_runs(tx: Tx, now: datetime, limit: int) -> list[Run]:
    """Held, oldest first. What somebody else is just at work on is left for the next time."""
    gone = _gone(tx, now)
    if not gone:
        return []
    given = {"holders": tx.dialect.listed(gone), "most": limit}
    found = tx.rows(held_by_any(tx.dialect), given)
    if tx.dialect.locks_rows:
        places = [(row.schedule_id, row.concurrency_key) for row in found]
        held = hold_places(tx, places, skip=True)
        ids = [row.id for row in found if row.schedule_id is None or row.schedule_id in held]
        if not ids:
            return []
        statement = select(runs).where(tx.dialect.among(runs.c.id, "ids"))
        found = tx.rows(tx.held(statement, runs.c.id, skip=True), {"ids": tx.dialect.listed(ids)})
        # A beat that was under way has renewed the lease, or finds now that it has ended.
        holders = {row.holder for row in found if row.holder is not None}
        renewed = _renewed(tx, holders, now)
        found = [row for row in found if row.holder in gone - renewed]
    return sorted((readable_run(row) for row in found), key=lambda run: (run.created_at, run.id))


def _renewed(tx: Tx, holders: set[str], now: datetime) -> set[str]:
    """Those whose lease is alive after all; the others' nodes stay as they are until we are done,
    so that no beat comes back to life meanwhile."""
    if not holders:
        return set()
    statement = select(nodes.c.id, nodes.c.lease_until).where(
        tx.dialect.among(nodes.c.id, "holders")
    )
    rows = tx.rows(tx.held(statement, nodes.c.id), {"holders": tx.dialect.listed(holders)})
    return {row.id for row in rows if row.lease_until > micros(now)}


def _gone(tx: Tx, now: datetime) -> set[str]:
    """Who holds runs although its lease has ended, or although nobody knows it."""
    holders = {row.holder for row in tx.rows(HOLDERS)}
    return holders - {row.id for row in tx.rows(_ALIVE, {"now": micros(now)})}


def _lose(tx: Tx, held: Sequence[Run], now: datetime) -> tuple[Run, ...]:
    settling = Settling(tx, now, held)
    after = tuple(lost(run, now) for run in held)
    for run in after:
        settling.apply(run)
    settling.write()
    return after
