"""Draining of nodes, node reports and node events. Nothing that the code of 0006 uses changes, so
`min_revision` stays: nodes of 0006 continue, ignore drain requests and write no events."""

from __future__ import annotations

import sqlalchemy as sa

from chimes.store.sql.migrations.steps import add_column, create_table
from chimes.store.sql.migrations.versions.v0001_first import IDENTITY, MOMENT, TEXT, WORD

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    add_column("nodes", sa.Column("drain", sa.SmallInteger(), nullable=False, server_default="0"))
    add_column("nodes", sa.Column("facts", TEXT, nullable=False, server_default=""))
    create_table(
        "node_marks",
        sa.Column("at", MOMENT, primary_key=True, autoincrement=False),
        sa.Column("node", IDENTITY, primary_key=True),
        sa.Column("joined", sa.SmallInteger(), primary_key=True, autoincrement=False),
        sa.Column("version", WORD, nullable=False),
        sqlite_with_rowid=False,
    )
