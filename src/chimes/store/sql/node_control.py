"""Nodes as operators see them, and what the store tells about itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sqlalchemy import bindparam, delete, func, select, text, update

from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId
from chimes.model.node import Node, NodeMark
from chimes.store.node_control import no_node, node_alive, node_gone
from chimes.store.sql.base import SqlBase, append_audit
from chimes.store.sql.database import Tx
from chimes.store.sql.nodes import lose_all, mark
from chimes.store.sql.rows.parts import micros
from chimes.store.sql.rows.records import mark_of, node_of
from chimes.store.sql.runs import ENDED_BEFORE
from chimes.store.sql.tables import metadata, node_marks, nodes
from chimes.store.sql.without_schedules import write_runs

_NODE = select(nodes).where(nodes.c.id == bindparam("node_id"))
_ASK = update(nodes).where(nodes.c.id == bindparam("node_id")).values(drain=bindparam("asked"))
_REMOVE = delete(nodes).where(nodes.c.id == bindparam("node_id"))
_NEWEST_MARKS = (
    select(node_marks)
    .where(node_marks.c.at >= bindparam("since"))
    .order_by(node_marks.c.at.desc(), node_marks.c.node.desc(), node_marks.c.joined.desc())
    .limit(bindparam("most"))
)
#: In the order of its index, so that it is read and nothing else.
_PRUNABLE = select(func.count()).select_from(ENDED_BEFORE.subquery())
#: Of our own tables: others may share the database. SQLite knows its file.
_SIZES = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = to_regnamespace(current_schema())"
    " AND relname IN :names",
    "mariadb": "SELECT SUM(DATA_LENGTH + INDEX_LENGTH) FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN :names",
}


class SqlNodeControl(SqlBase):
    async def drain_node(
        self, node_id: NodeId, drain: bool, audit: AuditEntry | None = None
    ) -> Node:
        def work(tx: Tx) -> Node:
            node = _held(tx, node_id)
            if node.lease_until <= tx.now():
                raise node_gone(node_id)
            tx.run(_ASK, {"node_id": node_id, "asked": int(drain)})
            if audit is not None:
                append_audit(tx, audit)
            tx.wakes = True
            return replace(node, drain=drain)

        return await self._database.write(work)

    async def forget_node(self, node_id: NodeId, audit: AuditEntry | None = None) -> Node:
        def work(tx: Tx) -> Node:
            now = tx.now()
            row = tx.first(_NODE, {"node_id": node_id})
            if row is None:
                raise no_node(node_id)
            if node_of(row).lease_until <= now:
                # Before the node itself, as everybody does who takes runs away.
                lose_all(tx, node_id, now)
            node = _held(tx, node_id)
            if node.lease_until > now:
                raise node_alive(node_id)
            tx.run(_REMOVE, {"node_id": node_id})
            mark(tx, node, node.lease_until, joined=False)
            if audit is not None:
                append_audit(tx, audit)
            tx.wakes = True
            return node

        return await write_runs(self._database, work)

    async def node_marks(self, since: datetime, *, limit: int = 200) -> tuple[NodeMark, ...]:
        given = {"since": micros(since), "most": limit}
        rows = await self._database.look(lambda tx: tx.rows(_NEWEST_MARKS, given))
        return tuple(mark_of(row) for row in reversed(rows))

    async def count_prunable(self, before: datetime, *, most: int) -> int:
        given = {"before": micros(before), "most": most}
        row = await self._database.look(lambda tx: tx.first(_PRUNABLE, given))
        return 0 if row is None else int(row[0])

    async def size(self) -> int | None:
        statement = text(_SIZES[self._database.dialect.name])
        given: dict[str, object] = {}
        if "names" in statement.compile().params:
            statement = statement.bindparams(bindparam("names", expanding=True))
            given = {"names": sorted(metadata.tables)}
        row = await self._database.look(lambda tx: tx.first(statement, given))
        return None if row is None or row[0] is None else int(row[0])


def _held(tx: Tx, node_id: NodeId) -> Node:
    row = tx.first(tx.held(_NODE, nodes.c.id), {"node_id": node_id})
    if row is None:
        raise no_node(node_id)
    return node_of(row)
