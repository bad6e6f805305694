"""Steps from one schema to the next. Each can be repeated, also while nodes of the former schema
are running."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from chimes.model.run import owner_number
from chimes.store.sql.migrations.baseline import create_index
from chimes.store.sql.tables import queue, set_dialect_options

_OWNERS = text(
    "SELECT queue.run_id, definitions.owner_type, definitions.owner_id FROM queue"
    " JOIN runs ON runs.id = queue.run_id JOIN definitions ON definitions.key = runs.definition"
    " WHERE queue.owner = 0"
)
_SET_OWNER = text("UPDATE queue SET owner = :owner WHERE run_id = :run_id")


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
