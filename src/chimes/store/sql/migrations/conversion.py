"""Converts a database of schema 0009 or 0010, whose tables were wider, in place.

The old tables are renamed, the new ones are created and filled in batches, and at the end the old
ones are dropped. The position after each batch is stored with it, and every other step can be
repeated, so a conversion that was killed continues where it stopped. While it is not complete, the
recorded version is `CONVERTING`, which every program refuses to open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Table,
    column,
    func,
    insert,
    inspect,
    select,
    table,
    text,
    update,
)
from sqlalchemy.schema import DropTable

from chimes.errors import SchemaMismatch
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.model.run import Attempt, AttemptEnd, own_key, owner_number
from chimes.store.sql.migrations import CONVERTING, HEAD, Progress, baseline, record
from chimes.store.sql.rows.run import OWN_KEY, attempts_of
from chimes.store.sql.rows.schedule import definition_digest
from chimes.store.sql.rows.values import micros, number_of, schedule_number, target_of
from chimes.store.sql.tables import (
    MARIADB,
    POSTGRES,
    ROLLUPS,
    SQLITE,
    audit,
    claims,
    concurrency_keys,
    cursors,
    definitions,
    queue,
    runs,
    schedule_stats,
    schedules,
)

Values = dict[str, Any]
Row = Mapping[Any, Any]

BATCH: Final = 500
#: Definitions whose keys are remembered from batch to batch.
_REMEMBERED: Final = 20_000

_OLD_SCHEDULES = table(
    "old_schedules",
    *map(column, ("id", "namespace", "name", "owner_type", "owner_id", "kind", "trigger")),
    *map(column, ("target", "policy", "priority", "labels", "enabled", "pause_note")),
    *map(column, ("pause_until", "depends_on", "door_data", "next_slot", "next_run_at")),
    *map(column, ("last_slot", "last_enqueued_at", "last_run_at", "last_status", "last_error")),
    *map(column, ("last_success_at", "fired_count", "purged_until", "version", "created_at")),
    *map(column, ("created_by", "updated_at", "updated_by", "deleted_at")),
)
_OLD_RUNS = table(
    "old_runs",
    *map(column, ("id", "schedule_id", "schedule_name", "schedule_version", "namespace")),
    *map(column, ("owner_type", "owner_id", "slot", "origin", "parent_id", "step", "retry_of")),
    *map(column, ("kind", "target", "policy", "priority", "catch_up", "rank")),
    *map(column, ("concurrency_key", "concurrency_limit", "blocked", "status", "attempt")),
    *map(column, ("fence", "holder", "started", "cancel_requested", "created_at", "planned_at")),
    *map(column, ("available_at", "claimed_at", "started_at", "finished_at", "result", "error")),
    *map(column, ("reason", "missed_count", "missed_until", "attempts", "needs", "batch_id")),
)
_OLD_KEYS = table("old_concurrency_keys", column("key"))
#: By a column that the new table does not have.
_RENAMED = (
    ("schedules", "door_data", _OLD_SCHEDULES),
    ("runs", "schedule_name", _OLD_RUNS),
)
_POSITIONS = table("conversion", column("step"), column("position"), column("number"))
_CREATE_POSITIONS = """
CREATE TABLE IF NOT EXISTS conversion (
  step VARCHAR(32) NOT NULL PRIMARY KEY, position VARCHAR(255){collation} NOT NULL,
  number BIGINT NOT NULL
){options}
"""
_COLLATIONS = {POSTGRES: ' COLLATE "C"'}
_OPTIONS = {MARIADB: " ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"}

# Views and triggers of the old tables. On servers views are replaced, so that privileges on them,
# and views of others that read them, remain.
_OBSOLETE: dict[str, tuple[str, ...]] = {
    POSTGRES: (),
    MARIADB: (
        "DROP TRIGGER IF EXISTS schedules_compat_insert",
        "DROP TRIGGER IF EXISTS schedules_compat_update",
    ),
    SQLITE: (
        "DROP VIEW IF EXISTS cb_schedule_metrics",
        "DROP VIEW IF EXISTS cb_schedule_templates",
    ),
}
_FILLED = (schedules, cursors, schedule_stats, definitions, runs, queue, claims)
# Wider than before; SQLite does not limit text.
_WIDENED = {
    POSTGRES: 'ALTER TABLE kept_states ALTER COLUMN name TYPE VARCHAR(700) COLLATE "C"',
    MARIADB: "ALTER TABLE kept_states MODIFY `name` VARCHAR(700) NOT NULL",
}


def convert(connection: Connection, versions: str, now: int, progress: Progress) -> None:
    """The caller has checked the version and holds the lock of migrations; there is no transaction.
    `now` is the store's time in microseconds. Raises SchemaMismatch while nodes are running."""
    _check_nodes(connection, now)
    with _transaction(connection):
        _begin(connection, versions)
        _rename(connection)
        baseline.create_tables(connection)
        # Before the rows: on MariaDB triggers fill the columns of the view.
        baseline.create_views(connection)
    copier = _Copier(connection, now)
    _copy(connection, _OLD_SCHEDULES, copier.schedules, "schedules", progress)
    _copy(connection, _OLD_RUNS, copier.runs, "runs", progress)
    with _transaction(connection):
        _finish(connection, versions)


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    if connection.dialect.name != SQLITE:
        with connection.begin():
            yield
        return
    # Connections to files are in autocommit mode.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")


def _check_nodes(connection: Connection, now: int) -> None:
    with _transaction(connection):
        found = connection.execute(
            text("SELECT id FROM nodes WHERE lease_until > :now ORDER BY id"), {"now": now}
        ).scalars()
        live = list(found)
    if live:
        raise SchemaMismatch(
            _(
                "nodes are running on this store: {nodes}. Stop all nodes, wait until their leases"
                " have expired, and repeat the command",
                nodes=", ".join(live),
            )
        )


# --- preparation ----------------------------------------------------------------------------------
def _begin(connection: Connection, versions: str) -> None:
    """Makes programs of the old schema refuse the database."""
    dialect = connection.dialect.name
    hit("migrate.step")
    connection.exec_driver_sql(
        _CREATE_POSITIONS.format(
            collation=_COLLATIONS.get(dialect, ""), options=_OPTIONS.get(dialect, "")
        )
    )
    hit("migrate.step")
    connection.execute(
        text("UPDATE store_facts SET value = :value WHERE name = 'min_revision'"),
        {"value": baseline.REVISION_OFFSET + 1},
    )
    record(connection, CONVERTING, versions)
    if dialect == MARIADB:
        # The next statement, which changes the schema, would commit as well.
        hit("migrate.step")


def _rename(connection: Connection) -> None:
    dialect = connection.dialect.name
    for statement in _OBSOLETE[dialect]:
        hit("migrate.step")
        connection.exec_driver_sql(statement)
    quote = connection.dialect.identifier_preparer.quote
    for name, old_column, old in _RENAMED:
        if _has_column(connection, name, old_column):
            _rename_table(connection, name, old.name)
    if not _has_column(connection, concurrency_keys.name, "name") and _exists(
        connection, concurrency_keys.name
    ):
        _rename_table(connection, concurrency_keys.name, _OLD_KEYS.name)
    if _has_column(connection, audit.name, "door"):
        hit("migrate.step")
        connection.exec_driver_sql(
            f"ALTER TABLE {audit.name} RENAME COLUMN {quote('door')} TO {quote('interface')}"
        )
    if dialect in _WIDENED:
        hit("migrate.step")
        connection.exec_driver_sql(_WIDENED[dialect])
    # They are counted again from the runs.
    if connection.execute(text("SELECT 1 FROM store_facts WHERE name = 'rolled_until'")).first():
        for rollup in ROLLUPS:
            hit("migrate.step")
            connection.execute(DropTable(rollup, if_exists=True))
        connection.exec_driver_sql("DELETE FROM store_facts WHERE name = 'rolled_until'")


def _rename_table(connection: Connection, name: str, new_name: str) -> None:
    """Without its indexes, whose names the new table needs; only the primary key is used."""
    dialect = connection.dialect.name
    if dialect != MARIADB:
        inspector = inspect(connection)
        for unique in inspector.get_unique_constraints(name) if dialect == POSTGRES else ():
            connection.exec_driver_sql(f'ALTER TABLE {name} DROP CONSTRAINT "{unique["name"]}"')
        inspector.clear_cache()
        for index in inspector.get_indexes(name):
            connection.exec_driver_sql(f'DROP INDEX IF EXISTS "{index["name"]}"')
    hit("migrate.step")
    connection.exec_driver_sql(f"ALTER TABLE {name} RENAME TO {new_name}")
    if dialect == POSTGRES:
        connection.exec_driver_sql(f"ALTER INDEX {name}_pkey RENAME TO {new_name}_pkey")


def _exists(connection: Connection, name: str) -> bool:
    return inspect(connection).has_table(name)


def _has_column(connection: Connection, name: str, wanted: str) -> bool:
    if not _exists(connection, name):
        return False
    return wanted in {each["name"] for each in inspect(connection).get_columns(name)}


# --- copying --------------------------------------------------------------------------------------
def _copy(
    connection: Connection,
    source: Any,
    write: Callable[[Sequence[Row]], None],
    name: str,
    progress: Progress,
) -> None:
    """In the order of the ids."""
    step = source.name
    with _transaction(connection):
        if not _exists(connection, step):
            return  # converted by an earlier try
        total = connection.execute(select(func.count()).select_from(source)).scalar_one()
        if connection.execute(select(_POSITIONS).where(_POSITIONS.c.step == step)).first() is None:
            connection.execute(insert(_POSITIONS).values(step=step, position="", number=0))
    while True:
        hit("migrate.step")
        with _transaction(connection):
            if not _exists(connection, step):
                return  # completed by another process, which a file does not prevent
            position, done = connection.execute(
                select(_POSITIONS.c.position, _POSITIONS.c.number).where(_POSITIONS.c.step == step)
            ).one()
            progress(name, done, total)
            batch = (
                connection.execute(
                    select(source).where(source.c.id > position).order_by(source.c.id).limit(BATCH)
                )
                .mappings()
                .all()
            )
            if not batch:
                return
            write(batch)
            connection.execute(
                update(_POSITIONS)
                .where(_POSITIONS.c.step == step)
                .values(position=batch[-1]["id"], number=done + len(batch))
            )
            hit("migrate.step")


class _Copier:
    def __init__(self, connection: Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        #: Keys by digest.
        self._definitions: dict[str, int] = {}

    def schedules(self, batch: Sequence[Row]) -> None:
        wanted = [_schedule_definition(row, self._now) for row in batch]
        found = self._store_definitions([each for each in wanted if each is not None])
        written: list[Values] = []
        for row, definition in zip(batch, wanted, strict=True):
            key = 0 if definition is None else found[definition["digest"]]
            written.append(_schedule_values(row, key))
        self._insert(schedules, written)
        self._insert(cursors, [_cursor_values(row) for row in batch])
        self._insert(schedule_stats, [_stats_values(row) for row in batch])

    def runs(self, batch: Sequence[Row]) -> None:
        wanted = [self._run_definition(row) for row in batch]
        found = self._store_definitions(wanted)
        added: list[Values] = []
        waiting: list[Values] = []
        claimed: list[Values] = []
        for row, definition in zip(batch, wanted, strict=True):
            added.append(_run_values(row, found[definition["digest"]]))
            if row["status"] not in ("queued", "running"):
                continue
            if row["status"] == "running" and row["holder"] is not None:
                claimed.append(_claim_values(row, _concurrency(row)))
            else:
                waiting.append(_queue_values(row, _concurrency(row)))
        self._insert(runs, added)
        self._insert(queue, waiting)
        self._insert(claims, claimed)

    def _run_definition(self, row: Row) -> Values:
        values = {
            "schedule": _schedule_key(row["schedule_id"]),
            **{name: row[name] for name in _DEFINITION_OF_RUN},
        }
        return {"digest": definition_digest(values), **values, "used_at": self._now}

    def _store_definitions(self, wanted: Sequence[Values]) -> dict[str, int]:
        """Keys by digest; adds those that are missing."""
        known = self._definitions
        if len(known) > _REMEMBERED:
            known.clear()
        missing = {each["digest"]: each for each in wanted if each["digest"] not in known}
        keys = {digest: number_of(digest) for digest in missing}
        while missing:
            taken = dict(
                self._connection.execute(
                    select(definitions.c.key, definitions.c.digest).where(
                        definitions.c.key.in_([keys[digest] for digest in missing])
                    )
                ).all()
            )
            new = [each for digest, each in missing.items() if keys[digest] not in taken]
            self._insert(definitions, [{"key": keys[each["digest"]], **each} for each in new])
            known.update((each["digest"], keys[each["digest"]]) for each in new)
            known.update((digest, key) for key, digest in taken.items() if digest in missing)
            # Practically never: the key of another definition.
            missing = {digest: each for digest, each in missing.items() if digest not in known}
            keys = {digest: keys[digest] + 1 for digest in missing}
        return known

    def _insert(self, into: Table, rows: Sequence[Values]) -> None:
        if rows:
            self._connection.execute(insert(into), rows)


_DEFINITION_OF_RUN = (
    *("schedule_id", "schedule_name", "schedule_version", "namespace", "owner_type", "owner_id"),
    *("kind", "target", "policy", "needs"),
)
_SAME_IN_SCHEDULES = (
    *("id", "namespace", "name", "owner_type", "owner_id", "kind", "trigger", "target", "policy"),
    *("priority", "labels", "enabled", "pause_note", "pause_until", "depends_on", "version"),
    *("created_at", "created_by", "updated_at", "updated_by", "deleted_at"),
)
_SAME_IN_CURSORS = (
    *("next_slot", "next_run_at", "last_slot", "last_enqueued_at", "fired_count"),
    "purged_until",
)
_SAME_IN_STATS = ("last_run_at", "last_status", "last_error", "last_success_at")
_SAME_IN_RUNS = (
    *("id", "slot", "origin", "parent_id", "retry_of", "priority", "catch_up"),
    *("concurrency_limit", "created_at", "planned_at", "batch_id", "missed_until", "available_at"),
    *("attempt", "fence", "claimed_at", "finished_at", "result"),
)
_SAME_IN_QUEUE = (
    *("rank", "available_at", "planned_at", "needs", "attempt", "fence", "blocked"),
    "concurrency_limit",
)
_SAME_IN_CLAIMS = (
    *("attempt", "fence", "started", "cancel_requested", "claimed_at", "available_at"),
)


def _schedule_definition(row: Row, now: int) -> Values | None:
    """None if the target cannot be read: the store reports it when the schedule fires."""
    try:
        needs = target_of(row["target"]).requirement
    except Exception:
        return None
    values = {
        "schedule": schedule_number(row["id"]),
        "schedule_id": row["id"],
        "schedule_name": row["name"],
        "schedule_version": row["version"],
        **{name: row[name] for name in ("namespace", "owner_type", "owner_id", "kind")},
        "target": row["target"],
        "policy": row["policy"],
        "needs": needs,
    }
    return {"digest": definition_digest(values), **values, "used_at": now}


def _schedule_values(row: Row, definition: int) -> Values:
    return {
        "key": schedule_number(row["id"]),
        **{name: row[name] for name in _SAME_IN_SCHEDULES},
        "compat_data": row["door_data"],
        "definition": definition,
    }


def _cursor_values(row: Row) -> Values:
    live = row["enabled"] == 1 and row["deleted_at"] is None
    return {
        "schedule": schedule_number(row["id"]),
        "revision": row["version"],
        "live": int(live),
        **{name: row[name] for name in _SAME_IN_CURSORS},
    }


def _stats_values(row: Row) -> Values:
    return {
        "schedule": schedule_number(row["id"]),
        **{name: row[name] for name in _SAME_IN_STATS},
    }


def _schedule_key(schedule_id: str | None) -> int | None:
    return None if schedule_id is None else schedule_number(schedule_id)


def _uses_own_key(row: Row) -> bool:
    schedule_id = row["schedule_id"]
    return schedule_id is not None and row["concurrency_key"] == own_key(schedule_id)


def _concurrency(row: Row) -> int | None:
    key = row["concurrency_key"]
    if key is None:
        return None
    return -schedule_number(row["schedule_id"]) if _uses_own_key(row) else number_of(key)


def _run_values(row: Row, definition: int) -> Values:
    status, started_at = row["status"], row["started_at"]
    active = status in ("queued", "running")
    if status == "running" and started_at == row["claimed_at"]:
        # The start of the first attempt is that of its claim until the run ends.
        started_at = None
    attempts = _attempts(row["attempts"])
    last = attempts[-1] if attempts else None
    described = attempts is not None and (
        not attempts or (not active and len(attempts) == 1 and _in_columns(attempts[0], row))
    )
    return {
        **{name: row[name] for name in _SAME_IN_RUNS},
        "schedule": _schedule_key(row["schedule_id"]),
        "definition": definition,
        "args": None,
        "source": row["needs"] if row["kind"] == "sync" else None,
        "step": row["step"] or None,
        "concurrency_key": OWN_KEY if _uses_own_key(row) else row["concurrency_key"],
        "missed_count": row["missed_count"] or None,
        "status": "queued" if active else status,
        "node": last.node if last else None,
        "started_at": started_at,
        "attempt_started_at": micros(last.started_at) if last else None,
        "attempt_finished_at": micros(last.finished_at) if last else None,
        "error": row["error"] or None,
        "reason": row["reason"] or None,
        "attempts": None if described else row["attempts"],
        "problem": None if active or status == "succeeded" else status,
    }


def _attempts(stored: str) -> tuple[Attempt, ...] | None:
    """None if they cannot be read: the text stays as it is."""
    try:
        return () if stored == "[]" else attempts_of(stored)
    except Exception:
        return None


def _in_columns(only: Attempt, row: Row) -> bool:
    """Whether the columns of the run describe its only attempt."""
    return (
        only.end is AttemptEnd.SUCCEEDED
        and not only.error
        and only.number == row["attempt"]
        and only.fence == row["fence"]
    )


def _queue_values(row: Row, concurrency: int | None) -> Values:
    same = {name: row[name] for name in _SAME_IN_QUEUE}
    owner = owner_number(f"{row['owner_type']}:{row['owner_id']}")
    return {"run_id": row["id"], **same, "concurrency": concurrency, "owner": owner}


def _claim_values(row: Row, concurrency: int | None) -> Values:
    same = {name: row[name] for name in _SAME_IN_CLAIMS}
    return {"run_id": row["id"], "node": row["holder"], **same, "concurrency": concurrency}


# --- end ------------------------------------------------------------------------------------------
def _finish(connection: Connection, versions: str) -> None:
    if _exists(connection, _OLD_KEYS.name):
        _copy_keys(connection)
    for name in (_OLD_KEYS.name, _OLD_RUNS.name, _OLD_SCHEDULES.name, _POSITIONS.name):
        hit("migrate.step")
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")
    record(connection, HEAD, versions)
    if connection.dialect.name == POSTGRES:
        # Its plans depend on statistics, which it would collect a minute later.
        connection.exec_driver_sql(f"ANALYZE {', '.join(each.name for each in _FILLED)}")


def _copy_keys(connection: Connection) -> None:
    """Few: keys that are shared, and owners whose quota is counted."""
    known = set(connection.execute(select(concurrency_keys.c.name)).scalars())
    old = connection.execute(select(_OLD_KEYS.c.key)).scalars()
    missing = [{"key": number_of(name), "name": name} for name in old if name not in known]
    if missing:
        connection.execute(insert(concurrency_keys), missing)
