"""Creates the newest schema: tables, first rows, compatibility views. Each step is repeatable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Index
from sqlalchemy.schema import CreateIndex, CreateTable

from chimes.failpoints import hit
from chimes.store.sql.migrations import views
from chimes.store.sql.tables import (
    COUNTED_UNTIL,
    MARIADB,
    POSTGRES,
    metadata,
    set_dialect_options,
)

#: Added to the oldest schema whose code still works on the database: programs of the schemas 0001
#: to 0010 compare the stored number with theirs, and refuse a higher one.
REVISION_OFFSET = 1000

_FACTS = (("epoch", 0), ("min_revision", REVISION_OFFSET + 1), (COUNTED_UNTIL, 0))
#: Key, and what follows INSERT INTO.
_FIRST_ROWS = (
    *(("name", f"store_facts (name, value) VALUES ('{name}', {value})") for name, value in _FACTS),
    ("id", "audit_head (id, number, hash) VALUES (1, 0, '')"),
)

# A commit that changed nothing else than token buckets does not wait for the disk.
_POSTGRES = (
    "ALTER TABLE buckets SET UNLOGGED",
    "ALTER TABLE buckets SET (fillfactor = 50)",
)
# One counter row for wake-ups (see `MariadbWakeConnection`).
_MARIADB = (
    """
CREATE TABLE IF NOT EXISTS wakeups (
  `id` SMALLINT NOT NULL,
  `count` BIGINT NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin
""",
    "INSERT INTO wakeups (`id`, `count`) VALUES (1, 0) ON DUPLICATE KEY UPDATE `id` = `id`",
)


def create(connection: Connection) -> None:
    create_tables(connection)
    create_views(connection)


def create_tables(connection: Connection) -> None:
    """Also the first rows. What exists is not changed."""
    set_dialect_options(connection.dialect.name)
    # Not `create_all`, which creates no index on a table that exists: on MariaDB a set-up may have
    # been interrupted between the two.
    for table in metadata.sorted_tables:
        hit("migrate.step")
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in sorted(table.indexes, key=lambda each: str(each.name)):
            hit("migrate.step")
            create_index(connection, index)
    for statement in _more_statements(connection.dialect.name):
        hit("migrate.step")
        connection.exec_driver_sql(statement)


def create_index(connection: Connection, index: Index) -> None:
    """Unlike `execute`, this respects `ddl_if`."""
    create: Any = CreateIndex(index, if_not_exists=True)
    create._invoke_with(connection)


def _more_statements(dialect: str) -> Iterator[str]:
    for key, row in _FIRST_ROWS:
        if dialect == MARIADB:
            yield f"INSERT INTO {row} ON DUPLICATE KEY UPDATE {key} = {key}"
        else:
            yield f"INSERT INTO {row} ON CONFLICT DO NOTHING"
    if dialect == POSTGRES:
        yield from _POSTGRES
    elif dialect == MARIADB:
        yield from _MARIADB


def create_views(connection: Connection) -> None:
    match connection.dialect.name:
        case "postgresql":
            statements: tuple[str, ...] = views.POSTGRES
        case "mariadb":
            # Imported here, because it needs the driver.
            from chimes.store.sql.migrations import mariadb_view

            mariadb_view.create(connection)
            return
        case _:
            statements = views.SQLITE
    for statement in statements:
        hit("migrate.step")
        connection.exec_driver_sql(statement)
