"""Sets up and migrates a database on MariaDB.

Every statement commits by itself and can be repeated, and the revision is written down behind the
last one: whoever comes after a migrator that was killed begins that revision again (F71).
"""

from __future__ import annotations

import logging

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from chimes.errors import SchemaMismatch
from chimes.failpoints import hit
from chimes.store.sql.mariadb_errors import error_number
from chimes.store.sql.mariadb_schema import STATEMENTS
from chimes.store.sql.mariadb_view import ACTION_VIEW
from chimes.store.sql.migrations import SERVER_VERSIONS
from chimes.wording import say

_log = logging.getLogger(__name__)
_NO_TRIGGERS = 1419
_NO_VIEW = 1347
_REMEMBER = f"CREATE TABLE IF NOT EXISTS {SERVER_VERSIONS} (version_num VARCHAR(32) NOT NULL)"


def bring_up_to_date(connection: Connection) -> None:
    """The caller holds the lock."""
    # The first of all tables: as long as it is empty, what else is there is ours and half made.
    connection.exec_driver_sql(_REMEMBER)
    stored = connection.exec_driver_sql(f"SELECT version_num FROM {SERVER_VERSIONS}").scalar()  # noqa: S608
    missing = [each for each in STATEMENTS if not isinstance(stored, str) or each > stored]
    for revision in missing:
        for statement in STATEMENTS[revision]:
            hit("migrate.step")
            _carry_out(connection, statement)
        # A set-up is one piece: half of it would wait for somebody to migrate it.
        if isinstance(stored, str) or revision == missing[-1]:
            _write_down(connection, revision)


def _write_down(connection: Connection, revision: str) -> None:
    connection.exec_driver_sql(f"DELETE FROM {SERVER_VERSIONS}")  # noqa: S608
    connection.exec_driver_sql(
        f"INSERT INTO {SERVER_VERSIONS} (version_num) VALUES (%s)",  # noqa: S608
        (revision,),
    )
    connection.commit()


def _carry_out(connection: Connection, statement: str) -> None:
    try:
        connection.exec_driver_sql(statement)
    except DBAPIError as error:
        number = None if error.orig is None else error_number(error.orig)
        if number == _NO_VIEW and statement is ACTION_VIEW:
            # Somebody's table, and not for us to touch: `import-kweaver --take-over` does.
            _log.warning(
                "there is a table t_action_schedule here already, so the view of that name is left"
                " out; see `chimes store import-kweaver`"
            )
            return
        if number == _NO_TRIGGERS:
            raise SchemaMismatch(
                say(
                    "the server keeps a binary log and lets only administrators create triggers,"
                    " which the view t_action_schedule needs. Let one of them say SET GLOBAL"
                    " log_bin_trust_function_creators = 1, or set up the store with the right"
                    " SUPER; later neither is needed"
                )
            ) from error
        raise
