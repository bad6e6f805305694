"""What was changed through the compatibility views becomes part of the audit (C27). The chain's
hashes are not for SQL to compute, so a view's trigger leaves a row, and maintenance picks it up."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import delete, select

from chimes.model.access import Owner, OwnerType
from chimes.model.audit import AuditEntry
from chimes.store.sql.base import append_audit
from chimes.store.sql.database import Tx
from chimes.store.sql.rows.parts import moment_of
from chimes.store.sql.tables import schedules, sql_changes

_AT_ONCE = 100
_WAITING = select(sql_changes).limit(_AT_ONCE)
_OWNERS = select(schedules.c.id, schedules.c.owner_type, schedules.c.owner_id)


def audit_sql_changes(tx: Tx) -> None:
    """Oldest first; each exactly once."""
    waiting = tx.rows(tx.held(_WAITING.order_by(sql_changes.c.id), sql_changes.c.id, skip=True))
    if not waiting:
        return
    names = {row.schedule_id for row in waiting}
    owners = {
        row.id: str(Owner(type=OwnerType(row.owner_type), id=row.owner_id))
        for row in tx.rows(
            _OWNERS.where(tx.dialect.among(schedules.c.id, "ids")),
            {"ids": tx.dialect.listed(names)},
        )
    }
    tx.run(delete(sql_changes).where(sql_changes.c.id.in_([row.id for row in waiting])))
    for row in waiting:
        changes: Mapping[str, object] = json.loads(row.changes)
        append_audit(
            tx,
            AuditEntry(
                at=moment_of(row.at),
                actor=row.actor,
                door="sql",
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
