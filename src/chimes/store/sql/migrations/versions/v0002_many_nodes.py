"""What runs need of a node and what nodes offer; the children of a run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_CHILD = sa.text("parent_id IS NOT NULL")


def upgrade() -> None:
    # Every target of the first release was an HTTP callback, whose needs are its kind.
    op.add_column("runs", sa.Column("needs", sa.String(300), nullable=False, server_default="http"))
    op.add_column("nodes", sa.Column("offers", sa.Text(), nullable=False, server_default="[]"))
    op.create_index(
        "runs_by_parent",
        "runs",
        ["parent_id", "created_at", "id"],
        sqlite_where=_CHILD,
        postgresql_where=_CHILD,
    )
