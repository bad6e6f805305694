"""The schema in a database: creation, and changes of later versions.

An empty database gets the newest schema directly from `tables`. A database with an older schema is
changed step by step; `CHANGES` lists the steps. The schemas 0009 and 0010 had other tables, which
`conversion` copies.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from chimes.errors import SchemaMismatch
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.store.sql.migrations import baseline, changes

#: What leads from the first schema to the newest: the name of each later one, oldest first, and its
#: step. On PostgreSQL and SQLite, a step may be part of a transaction; on MariaDB it has to be
#: repeatable, because every change of the schema commits there.
CHANGES: tuple[tuple[str, Callable[[Connection], None]], ...] = (
    ("2", changes.add_queue_owner),
    ("3", changes.add_definition_trace),
    ("4", changes.index_canceled_claims),
    ("5", changes.add_definition_labels_and_cause),
)
#: Oldest first.
REVISIONS = ("1", *(name for name, _step in CHANGES))
HEAD = REVISIONS[-1]
#: The oldest schema that this code works with.
OLDEST = "5"

#: Earlier schemas that `conversion` converts.
CONVERTIBLE = ("0009", "0010")
#: Earlier schemas that only programs of their time can bring to a convertible one.
TOO_OLD = tuple(f"{number:04d}" for number in range(1, 9))
#: The recorded version while a conversion is not complete.
CONVERTING = "converting"

#: Gets the name of a step (`schedules`, `runs`), how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]

#: Table of the version in a SQLite file, and on a server, whose database may belong to an
#: application with an `alembic_version` of its own. The names are those of the first releases, so
#: that their programs refuse the new schema.
FILE_VERSIONS = "alembic_version"
SERVER_VERSIONS = "chimes_version"


def upgrade(connection: Connection, *, versions: str = FILE_VERSIONS) -> None:
    """Creates the schema, or changes an older one. The caller holds the lock, and a transaction
    where the database has transactions for schemas. Can be repeated after an interruption."""
    stored = create_versions(connection, versions)
    if stored is None:
        baseline.create(connection)
    else:
        for name, step in CHANGES[REVISIONS.index(stored) :]:
            hit("migrate.step")
            step(connection)
            record(connection, name, versions)
    record(connection, HEAD, versions)


def create_versions(connection: Connection, versions: str) -> str | None:
    """Created first: while it is empty, the other tables are ours and incomplete. Returns the
    stored version."""
    connection.exec_driver_sql(
        f"CREATE TABLE IF NOT EXISTS {versions} (version_num VARCHAR(32) NOT NULL)"
    )
    found = connection.exec_driver_sql(f"SELECT version_num FROM {versions}").scalar()  # noqa: S608
    return found if isinstance(found, str) else None


def record(connection: Connection, version: str, versions: str) -> None:
    changed = connection.exec_driver_sql(f"UPDATE {versions} SET version_num = '{version}'")  # noqa: S608
    # MariaDB does not count a row that had this value.
    if changed.rowcount == 0:
        connection.exec_driver_sql(f"DELETE FROM {versions}")  # noqa: S608
        connection.exec_driver_sql(f"INSERT INTO {versions} VALUES ('{version}')")  # noqa: S608


def no_progress(_step: str, _done: int, _total: int) -> None:
    """Shows nothing."""


def is_convertible(stored: str | None) -> bool:
    return stored in CONVERTIBLE or stored == CONVERTING


def check_is_recent(stored: str | None) -> None:
    """Raises SchemaMismatch for a schema from before the first of `REVISIONS`."""
    if stored == CONVERTING:
        raise SchemaMismatch(
            _("the conversion of the store is not complete: run `chimes store migrate` again")
        )
    if stored in CONVERTIBLE:
        raise SchemaMismatch(
            _(
                "the store has schema {stored} of an earlier version of Chimes: stop all nodes and"
                " run `chimes store migrate`",
                stored=stored,
            )
        )
    check_is_known(stored)


def check_is_known(stored: str | None) -> None:
    """Raises SchemaMismatch for a schema that is too old to be converted."""
    if stored in TOO_OLD:
        raise SchemaMismatch(
            _(
                "the store has schema {stored}, which is too old to be converted: bring it to"
                " schema {newest} with the program that created it first",
                stored=stored,
                newest=CONVERTIBLE[-1],
            )
        )
