"""The schema's history. Alembic takes most of a second to import, so it is left alone until there
is something to migrate; which revisions exist is written here for that reason."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

#: Oldest first; one for each module in `versions`.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")
HEAD = REVISIONS[-1]
#: The oldest schema that this code works with.
OLDEST = "0007"

#: Under this name `env` finds the connection, whose transaction is the caller's.
CONNECTION = "connection"
#: Whether nodes may be at work while it is migrated.
ONLINE = "online"
#: The name of the table that remembers the revision. On a server the database may be that of an
#: application which has an `alembic_version` of its own.
VERSIONS = "versions"
FILE_VERSIONS = "alembic_version"
SERVER_VERSIONS = "chimes_version"


def upgrade(
    connection: Connection,
    revision: str = HEAD,
    *,
    online: bool = False,
    versions: str = FILE_VERSIONS,
) -> None:
    """Brings the database to the revision; the caller holds the lock, and the transaction unless
    it is done `online`."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes[CONNECTION] = connection
    config.attributes[ONLINE] = online
    config.attributes[VERSIONS] = versions
    command.upgrade(config, revision)
