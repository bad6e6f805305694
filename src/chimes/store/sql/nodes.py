"""Nodes, leases and heartbeats, and the rescue of runs whose node is gone."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Row,
    Select,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    update,
)

from chimes.model import replace
from chimes.model.access import Owner, OwnerType
from chimes.model.audit import AuditEntry
from chimes.model.ids import NodeId, RunId
from chimes.model.node import (
    HeartbeatResult,
    Node,
    NodeEvent,
    NodeReport,
    capabilities_in,
    published_names,
)
from chimes.model.run import Run, mark_lost
from chimes.store.codec.records import (
    defaults_from_plain,
    defaults_to_plain,
    report_from_text,
    report_to_text,
)
from chimes.store.port import NODE_EVENT_RETENTION, node_alive, node_gone, node_not_found
from chimes.store.sql.completion import CompletionEffects
from chimes.store.sql.database.base import Tx
from chimes.store.sql.database.server import IDLE_SECONDS
from chimes.store.sql.dialects.base import Dialect
from chimes.store.sql.locks import (
    lock_for_completion,
    lock_schedules_and_keys,
    lock_targets_of,
)
from chimes.store.sql.records import append_audit
from chimes.store.sql.rows.access import load_runs
from chimes.store.sql.rows.values import Value, encode, micros, moment_of
from chimes.store.sql.runs import ENDED_BEFORE
from chimes.store.sql.tables import (
    claims,
    metadata,
    node_marks,
    nodes,
    runs,
    schedules,
    sql_changes,
)

# Changes through the compatibility views become audit entries. SQL does not compute the hashes of
# the chain, so the trigger of a view inserts a row, and maintenance turns it into an entry.

_AUDIT_BATCH = 100
_UNAUDITED = select(sql_changes).limit(_AUDIT_BATCH)
_OWNERS = select(schedules.c.id, schedules.c.owner_type, schedules.c.owner_id)


def _audit_sql_changes(tx: Tx) -> None:
    """Oldest first; each change exactly once."""
    pending = tx.rows(
        tx.for_update(_UNAUDITED.order_by(sql_changes.c.id), sql_changes.c.id, skip=True)
    )
    if not pending:
        return
    names = {row.schedule_id for row in pending}
    owners = {
        row.id: str(Owner(type=OwnerType(row.owner_type), id=row.owner_id))
        for row in tx.rows(
            _OWNERS.where(tx.dialect.among(schedules.c.id, "ids")),
            {"ids": tx.dialect.listed(names)},
        )
    }
    tx.run(delete(sql_changes).where(sql_changes.c.id.in_([row.id for row in pending])))
    for row in pending:
        changes: Mapping[str, object] = json.loads(row.changes)
        append_audit(
            tx,
            AuditEntry(
                at=moment_of(row.at),
                actor=row.actor,
                interface="sql",
                verb=_verb(changes),
                object_kind="schedule",
                object_id=row.schedule_id,
                owner=owners.get(row.schedule_id, ""),
                changes=changes,
            ),
        )


def _verb(changes: Mapping[str, object]) -> str:
    match changes.get("enabled"):
        case [_, after]:
            return "resume" if after else "pause"
        case _:
            return "reschedule"


_log = logging.getLogger(__name__)

_RENEW = (
    update(nodes)
    .where(nodes.c.id == bindparam("node_id"), nodes.c.lease_until > bindparam("now"))
    .values(
        heartbeat_at=bindparam("now"),
        lease_until=bindparam("until"),
        clock_offset=bindparam("offset"),
        facts=bindparam("report"),
    )
)
_TO_DRAIN = select(nodes.c.drain).where(nodes.c.id == bindparam("node_id"))
TO_CANCEL = (
    select(claims.c.run_id)
    .join(runs, runs.c.id == claims.c.run_id)
    # A literal, so that a partial index matches.
    .where(claims.c.node == bindparam("node_id"), claims.c.cancel_requested == literal_column("1"))
    .order_by(runs.c.created_at, runs.c.id)
)
RUNS_OF_NODE = select(claims.c.run_id).where(claims.c.node == bindparam("node_id"))
_ALIVE = select(nodes.c.id).where(nodes.c.lease_until > bindparam("now"))
HOLDERS = select(claims.c.node).distinct()
#: Whether `rescue` has anything to do, in one query: every node runs it all the time.
RESCUE_NEEDED = select(
    or_(
        select(nodes.c.id).where(nodes.c.lease_until <= bindparam("now")).exists(),
        select(sql_changes.c.id).exists(),
        select(claims.c.node).where(claims.c.node.not_in(_ALIVE)).exists(),
    )
)
_THIS = select(nodes).where(nodes.c.id == bindparam("node_id"))
_REMOVE = delete(nodes).where(nodes.c.id == bindparam("node_id"))
_EXPIRED_WITHOUT_RUNS = select(nodes).where(
    nodes.c.lease_until <= bindparam("now"),
    ~select(claims.c.run_id).where(claims.c.node == nodes.c.id).exists(),
)
_REMOVE_ENDED = _REMOVE.where(nodes.c.lease_until <= bindparam("now"))
_OLD_MARKS = delete(node_marks).where(node_marks.c.at < bindparam("before"))


def join(tx: Tx, node: Node, lease: timedelta) -> Node:
    now = tx.now()
    row = tx.first(tx.for_update(_THIS, nodes.c.id), {"node_id": node.id})
    before = None if row is None else node_of(row)
    joined = replace(
        node,
        started_at=now if before is None else before.started_at,
        heartbeat_at=now,
        lease_until=now + lease,
        drain=node.drain if before is None else before.drain,
        report=node.report if before is None else before.report,
    )
    tx.run(_REMOVE, {"node_id": node.id})
    tx.run(insert(nodes), node_values(joined))
    if before is None:
        tx.run(_OLD_MARKS, {"before": micros(now - NODE_EVENT_RETENTION)})
        _record_event(tx, joined, now, joined=True)
    return joined


def heartbeat(
    tx: Tx, node_id: NodeId, lease: timedelta, clock: datetime, report: NodeReport | None
) -> HeartbeatResult:
    now = tx.now()
    parameters = {
        "node_id": node_id,
        "now": micros(now),
        "until": micros(now + lease),
        "offset": (clock - now).total_seconds(),
        "report": report_to_text(report),
    }
    if tx.run(_RENEW, parameters) == 0:
        return HeartbeatResult(alive=False, now=now)
    cancel = tuple(RunId(row[0]) for row in tx.tuples(TO_CANCEL, {"node_id": node_id}))
    row = tx.first(_TO_DRAIN, {"node_id": node_id})
    drain = row is not None and bool(row.drain)
    return HeartbeatResult(alive=True, now=now, cancel=cancel, drain=drain)


def leave(tx: Tx, node_id: NodeId) -> None:
    row = tx.first(_THIS, {"node_id": node_id})
    if row is None:
        return
    now = tx.now()
    _lose_runs(tx, node_id, now)
    if tx.run(_REMOVE, {"node_id": node_id}):
        _record_event(tx, node_of(row), now, joined=False)
    tx.wakes = True


def rescue_needed(tx: Tx, about: datetime) -> bool:
    """`about` is precise enough to decide whether a transaction is worthwhile; `rescue` uses the
    exact time. Also terminates the sessions of stalled nodes."""
    ended = tx.dialect.end_stalled(tx.connection, IDLE_SECONDS)
    if ended:
        _log.warning("terminated %d sessions of stalled nodes", ended)
    row = tx.first(RESCUE_NEEDED, {"now": micros(about)})
    assert row is not None
    return bool(row[0])


def rescue(tx: Tx, limit: int) -> tuple[Run, ...]:
    now = tx.now()
    rescued = _mark_lost(tx, _lost_runs(tx, now, limit), now)
    _remove_expired(tx, now)
    tx.wakes |= bool(rescued)
    if tx.schedules_usable:
        _audit_sql_changes(tx)
    return rescued


def list_nodes(tx: Tx) -> tuple[Node, ...]:
    return tuple(node_of(row) for row in tx.rows(select(nodes).order_by(nodes.c.id)))


def _record_event(tx: Tx, node: Node, at: datetime, *, joined: bool) -> None:
    values = {"at": micros(at), "node": node.id, "joined": int(joined), "version": node.version}
    tx.run(tx.dialect.insert_new(node_marks), values)


def _lose_runs(tx: Tx, node_id: NodeId, now: datetime) -> None:
    """Marks all runs of a node as lost."""
    run_ids = [RunId(row[0]) for row in tx.tuples(RUNS_OF_NODE, {"node_id": node_id})]
    lock_for_completion(tx, run_ids)
    _mark_lost(tx, [run for run in load_runs(tx, run_ids).values() if run.holder == node_id], now)


def _remove_expired(tx: Tx, now: datetime) -> None:
    """Only the transaction that removed a node records its event."""
    for row in tx.rows(_EXPIRED_WITHOUT_RUNS.order_by(nodes.c.id), {"now": micros(now)}):
        if tx.run(_REMOVE_ENDED, {"node_id": row.id, "now": micros(now)}):
            _record_event(tx, node_of(row), moment_of(row.lease_until), joined=False)


def claims_of_nodes(dialect: Dialect) -> Select[Any]:
    """The oldest runs first, so that they are rescued first."""
    return (
        select(claims.c.run_id)
        .join(runs, runs.c.id == claims.c.run_id)
        .where(dialect.among(claims.c.node, "holders"))
        .order_by(runs.c.created_at, runs.c.id)
        .limit(bindparam("most"))
    )


def _lost_runs(tx: Tx, now: datetime, limit: int) -> list[Run]:
    """Loads and locks lost runs, oldest first. Runs that another transaction has locked are left
    for the next call."""
    expired = _expired_holders(tx, now)
    if not expired:
        return []
    parameters = {"holders": tx.dialect.listed(expired), "most": limit}
    ids = [row[0] for row in tx.tuples(claims_of_nodes(tx.dialect), parameters)]
    if tx.locking:
        ids = _lock_lost(tx, ids)
    found = [run for run in load_runs(tx, ids).values() if run.holder in expired]
    if tx.locking:
        # A concurrent heartbeat has either renewed the lease, or will find that it has ended.
        holders = {run.holder for run in found if run.holder is not None}
        renewed = _renewed(tx, set(holders), now)
        found = [run for run in found if run.holder not in renewed]
    return sorted(found, key=lambda run: (run.created_at, run.id))


def _lock_lost(tx: Tx, ids: Sequence[RunId]) -> list[RunId]:
    """Locks the schedules, keys and claims of lost runs; returns the runs of which nothing is
    locked by others."""
    targets = {run_id: lock_targets_of(tx, [run_id]) for run_id in ids}
    locked = lock_schedules_and_keys(
        tx, {target for each in targets.values() for target in each}, skip=True
    )
    free = [
        run_id
        for run_id in ids
        if all(schedule_id is None or schedule_id in locked for schedule_id, _ in targets[run_id])
    ]
    if not free:
        return []
    statement = select(claims.c.run_id).where(tx.dialect.among(claims.c.run_id, "ids"))
    statement = tx.for_update(statement, claims.c.run_id, skip=True)
    return [row[0] for row in tx.tuples(statement, {"ids": tx.dialect.listed(free)})]


def _renewed(tx: Tx, holders: set[str], now: datetime) -> set[str]:
    """Returns the nodes whose lease was renewed. The other nodes stay locked until the end of the
    transaction, so that no heartbeat renews them meanwhile."""
    if not holders:
        return set()
    statement = select(nodes.c.id, nodes.c.lease_until).where(
        tx.dialect.among(nodes.c.id, "holders")
    )
    rows = tx.rows(tx.for_update(statement, nodes.c.id), {"holders": tx.dialect.listed(holders)})
    return {row.id for row in rows if row.lease_until > micros(now)}


def _expired_holders(tx: Tx, now: datetime) -> set[str]:
    """Returns nodes that hold runs although their lease has ended or their row is missing."""
    holders = {row[0] for row in tx.tuples(HOLDERS)}
    return holders - {row.id for row in tx.rows(_ALIVE, {"now": micros(now)})}


def _mark_lost(tx: Tx, before: Sequence[Run], now: datetime) -> tuple[Run, ...]:
    effects = CompletionEffects(tx, now, before)
    after = tuple(mark_lost(run, now) for run in before)
    for run in after:
        effects.apply(run)
    effects.write()
    return after


# Node control for operators, and storage statistics.

_SET_DRAIN = (
    update(nodes).where(nodes.c.id == bindparam("node_id")).values(drain=bindparam("asked"))
)
_NEWEST_MARKS = (
    select(node_marks)
    .where(node_marks.c.at >= bindparam("since"))
    .order_by(node_marks.c.at.desc(), node_marks.c.node.desc(), node_marks.c.joined.desc())
    .limit(bindparam("most"))
)
#: In the order of its index, so that only the index is read.
_PRUNABLE = select(func.count()).select_from(ENDED_BEFORE.subquery())
#: Only our own tables, because other applications may share the database. SQLite counts the file.
_SIZES = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "postgresql": "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = to_regnamespace(current_schema())"
    " AND relname IN :names",
    "mariadb": "SELECT SUM(DATA_LENGTH + INDEX_LENGTH) FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN :names",
}


def drain_node(tx: Tx, node_id: NodeId, drain: bool, audit: AuditEntry | None) -> Node:
    node = _lock_node(tx, node_id)
    if node.lease_until <= tx.now():
        raise node_gone(node_id)
    tx.run(_SET_DRAIN, {"node_id": node_id, "asked": int(drain)})
    if audit is not None:
        append_audit(tx, audit)
    tx.wakes = True
    return replace(node, drain=drain)


def forget_node(tx: Tx, node_id: NodeId, audit: AuditEntry | None) -> Node:
    now = tx.now()
    row = tx.first(_THIS, {"node_id": node_id})
    if row is None:
        raise node_not_found(node_id)
    if node_of(row).lease_until <= now:
        # Before the node itself: runs are locked before nodes.
        _lose_runs(tx, node_id, now)
    node = _lock_node(tx, node_id)
    if node.lease_until > now:
        raise node_alive(node_id)
    tx.run(_REMOVE, {"node_id": node_id})
    _record_event(tx, node, node.lease_until, joined=False)
    if audit is not None:
        append_audit(tx, audit)
    tx.wakes = True
    return node


def node_events(tx: Tx, since: datetime, limit: int) -> tuple[NodeEvent, ...]:
    rows = tx.rows(_NEWEST_MARKS, {"since": micros(since), "most": limit})
    return tuple(node_event_of(row) for row in reversed(rows))


def count_prunable(tx: Tx, before: datetime, most: int) -> int:
    row = tx.first(_PRUNABLE, {"before": micros(before), "most": most})
    return 0 if row is None else int(row[0])


def size(tx: Tx) -> int | None:
    statement = text(_SIZES[tx.dialect.name])
    parameters: dict[str, object] = {}
    if "names" in statement.compile().params:
        statement = statement.bindparams(bindparam("names", expanding=True))
        parameters = {"names": sorted(metadata.tables)}
    row = tx.first(statement, parameters)
    return None if row is None or row[0] is None else int(row[0])


def _lock_node(tx: Tx, node_id: NodeId) -> Node:
    row = tx.first(tx.for_update(_THIS, nodes.c.id), {"node_id": node_id})
    if row is None:
        raise node_not_found(node_id)
    return node_of(row)


# --- rows -----------------------------------------------------------------------------------------
def node_values(node: Node) -> dict[str, Value]:
    return {
        "id": node.id,
        "version": node.version,
        "roles": encode(list(node.roles)),
        "capacity": node.capacity,
        "started_at": micros(node.started_at),
        "heartbeat_at": micros(node.heartbeat_at),
        "lease_until": micros(node.lease_until),
        "clock_offset": node.clock_offset,
        "offers": encode(
            {name: defaults_to_plain(node.defaults.get(name)) for name in published_names(node)}
        ),
        "drain": int(node.drain),
        "facts": report_to_text(node.report),
    }


def node_of(row: Row[Any]) -> Node:
    offers = json.loads(row.offers)
    return Node(
        id=NodeId(row.id),
        version=row.version,
        roles=tuple(json.loads(row.roles)),
        capacity=row.capacity,
        started_at=moment_of(row.started_at),
        heartbeat_at=moment_of(row.heartbeat_at),
        lease_until=moment_of(row.lease_until),
        clock_offset=row.clock_offset,
        capabilities=capabilities_in(offers),
        defaults=defaults_from_plain(offers),
        drain=bool(row.drain),
        report=report_from_text(row.facts),
    )


def node_event_of(row: Row[Any]) -> NodeEvent:
    return NodeEvent(
        at=moment_of(row.at),
        node_id=NodeId(row.node),
        version=row.version,
        joined=bool(row.joined),
    )
