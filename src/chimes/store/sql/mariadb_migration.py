"""Sets up and migrates a database on MariaDB.

Every statement commits by itself and can be repeated, and the revision is written down behind the
last one: whoever comes after a migrator that was killed begins that revision again (F71).
"""

from __future__ import annotations

from sqlalchemy import Connection

from chimes.failpoints import hit
from chimes.store.sql.mariadb_schema import STATEMENTS
from chimes.store.sql.migrations import SERVER_VERSIONS

_REMEMBER = f"CREATE TABLE IF NOT EXISTS {SERVER_VERSIONS} (version_num VARCHAR(32) NOT NULL)"


def bring_up_to_date(connection: Connection) -> None:
    """The caller holds the lock."""
    # The first of all tables: as long as it is empty, what else is there is ours and half made.
    connection.exec_driver_sql(_REMEMBER)
    stored = connection.exec_driver_sql(f"SELECT version_num FROM {SERVER_VERSIONS}").scalar()  # noqa: S608
    for revision, statements in STATEMENTS.items():
        if isinstance(stored, str) and revision <= stored:
            continue
        for statement in statements:
            hit("migrate.step")
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f"DELETE FROM {SERVER_VERSIONS}")  # noqa: S608
        connection.exec_driver_sql(
            f"INSERT INTO {SERVER_VERSIONS} (version_num) VALUES (%s)",  # noqa: S608
            (revision,),
        )
        connection.commit()
