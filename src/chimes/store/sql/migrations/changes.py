"""Steps from one schema to the next. Each can be repeated, also while nodes of the former schema
are running."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from chimes.model.run import owner_number
from chimes.store.sql.migrations.baseline import create_index
from chimes.store.sql.tables import POSTGRES, claims, definitions, queue, set_dialect_options

_OWNERS = text(
    "SELECT queue.run_id, definitions.owner_type, definitions.owner_id FROM queue"
    " JOIN runs ON runs.id = queue.run_id JOIN definitions ON definitions.key = runs.definition"
    " WHERE queue.owner = 0"
)
_SET_OWNER = text("UPDATE queue SET owner = :owner WHERE run_id = :run_id")


def add_definition_trace(connection: Connection) -> None:
    """Schema 3: trace contexts of requests that make runs."""
    if "trace" not in {each["name"] for each in inspect(connection).get_columns("definitions")}:
        connection.exec_driver_sql("ALTER TABLE definitions ADD COLUMN trace VARCHAR(64)")


def add_definition_labels_and_cause(connection: Connection) -> None:
    """Schema 5: labels of runs, for routing rules, and events that start runs."""
    present = {each["name"] for each in inspect(connection).get_columns("definitions")}
    for column in (definitions.c.labels, definitions.c.cause):
        if column.name not in present:
            kind = column.type.compile(connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE definitions ADD COLUMN {column.name} {kind}")


def add_queue_owner(connection: Connection) -> None:
    """Schema 2: owners take turns in the queue."""
    if "owner" not in {each["name"] for each in inspect(connection).get_columns("queue")}:
        connection.exec_driver_sql("ALTER TABLE queue ADD COLUMN owner BIGINT NOT NULL DEFAULT 0")
    set_dialect_options(connection.dialect.name)
    for index in queue.indexes:
        if index.name == "queue_turns":
            create_index(connection, index)
    owners = [
        {"run_id": run_id, "owner": owner_number(f"{owner_type}:{owner_id}")}
        for run_id, owner_type, owner_id in connection.execute(_OWNERS).all()
    ]
    if owners:
        connection.execute(_SET_OWNER, owners)


def index_canceled_claims(connection: Connection) -> None:
    """Schema 4: on PostgreSQL, only the claims of runs that are to be canceled have an index by
    node."""
    if connection.dialect.name != POSTGRES:
        return
    set_dialect_options(connection.dialect.name)
    for index in claims.indexes:
        if index.name == "claims_to_cancel":
            create_index(connection, index)
    connection.exec_driver_sql("DROP INDEX IF EXISTS claims_by_node")
