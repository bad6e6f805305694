"""Schema migrations. Alembic takes most of a second to import, so it is imported only when there is
something to migrate; therefore the revisions are listed here."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

#: Oldest first; one for each module in `versions`.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010")
HEAD = REVISIONS[-1]
#: The oldest schema that this code works with.
OLDEST = "0007"

#: Name of the attribute with the connection for `env`; the caller owns its transaction.
CONNECTION = "connection"
#: Whether nodes may be running during the migration.
ONLINE = "online"
#: Name of the table that records the revision. On a server, the database may belong to an
#: application with its own `alembic_version`.
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
    """Upgrades the database to the revision. The caller holds the lock, and the transaction unless
    `online`."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes[CONNECTION] = connection
    config.attributes[ONLINE] = online
    config.attributes[VERSIONS] = versions
    command.upgrade(config, revision)
