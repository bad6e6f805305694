"""A SQLite file sets itself up and migrates itself when it is opened."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

from chimes.errors import SchemaMismatch
from chimes.store.sql.migrations import HEAD, REVISIONS, upgrade
from chimes.wording import say


def migrate(connection: Connection, path: Path) -> None:
    """Two processes that start at once: the second waits for the lock, and then finds nothing
    left to do."""
    if stored_revision(connection, path) == HEAD:
        return
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    try:
        if stored_revision(connection, path) != HEAD:
            upgrade(connection)
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        connection.exec_driver_sql("ROLLBACK")
        raise


def stored_revision(connection: Connection, path: Path) -> str | None:
    """None: the file is empty. Raises SchemaMismatch where this code cannot go on from."""
    tables = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")
    names = set(tables.scalars())
    if not names:
        return None
    revision = None
    if "alembic_version" in names:
        revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if not isinstance(revision, str):
        raise SchemaMismatch(
            say("{path} is a database of something else, not of Chimes", path=path)
        )
    if revision not in REVISIONS:
        raise SchemaMismatch(
            say(
                "{path} has schema {revision}, which this version of Chimes (schema {head}) does"
                " not know; was it written by a newer one?",
                path=path,
                revision=revision,
                head=HEAD,
            )
        )
    return revision
