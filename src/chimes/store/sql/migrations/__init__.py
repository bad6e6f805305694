"""The schema's history. Alembic takes most of a second to import, so it is left alone until there
is something to migrate; which revisions exist is written here for that reason."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

#: Oldest first; one for each module in `versions`.
REVISIONS = ("0001", "0002")
HEAD = REVISIONS[-1]

#: Under this name `env` finds the connection, whose transaction is the caller's.
CONNECTION = "connection"


def upgrade(connection: Connection, revision: str = HEAD) -> None:
    """Brings the database to the revision; the caller holds the lock and the transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes[CONNECTION] = connection
    command.upgrade(config, revision)
