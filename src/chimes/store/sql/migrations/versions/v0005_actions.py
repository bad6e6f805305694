"""Action targets: the MariaDB view t_action_schedule reads them (`mariadb_view`). No change on
other databases."""

from __future__ import annotations

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """No change."""
