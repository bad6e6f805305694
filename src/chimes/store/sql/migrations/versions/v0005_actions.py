"""Actions are targets: the view t_action_schedule of MariaDB reads them there (`mariadb_schema`).
The other databases have nothing to change."""

from __future__ import annotations

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Nothing here."""
