"""`chimes` as the next version would be: its schema has one more, compatible change.

A clone may lack earlier commits, so the other version in a rolling upgrade is a newer one."""

from __future__ import annotations

from sqlalchemy import Connection, inspect

from chimes.cli import main as chimes
from chimes.store.sql import migrations
from chimes.store.sql import store as sql_store
from chimes.store.sql.database import inspection, server, sqlite

NEXT = str(int(migrations.HEAD) + 1)


def add_column(connection: Connection) -> None:
    if "novelty" not in {each["name"] for each in inspect(connection).get_columns("cursors")}:
        connection.exec_driver_sql("ALTER TABLE cursors ADD COLUMN novelty BIGINT DEFAULT 0")


def main() -> None:
    migrations.CHANGES = (*migrations.CHANGES, (NEXT, add_column))
    revisions = (*migrations.REVISIONS, NEXT)
    for module in (migrations, server, sqlite, inspection, sql_store):
        for name, value in (("HEAD", NEXT), ("REVISIONS", revisions)):
            if hasattr(module, name):
                setattr(module, name, value)
    chimes()
