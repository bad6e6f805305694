"""Rollups of the dashboard (ADR 30). Nothing that the code of 0005 uses changes, so `min_revision`
stays and nodes of 0005 continue. Runs that they delete by retention stay in the rollups, but are
too old to be queried."""

from __future__ import annotations

import sqlalchemy as sa

from chimes.store.sql.migrations.steps import create_index, create_table, execute
from chimes.store.sql.migrations.versions.v0001_first import IDENTITY, MOMENT, WORD

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    create_table(
        "run_tallies",
        sa.Column("owner_type", WORD, primary_key=True),
        sa.Column("owner_id", IDENTITY, primary_key=True),
        sa.Column("quarter", MOMENT, primary_key=True, autoincrement=False),
        sa.Column("namespace", IDENTITY, primary_key=True),
        sa.Column("kind", WORD, primary_key=True),
        sa.Column("origin", WORD, primary_key=True),
        sa.Column("status", WORD, primary_key=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    create_index("run_tallies_by_quarter", "run_tallies", ["quarter"])
    create_table(
        "run_lags",
        sa.Column("owner_type", WORD, primary_key=True),
        sa.Column("owner_id", IDENTITY, primary_key=True),
        sa.Column("quarter", MOMENT, primary_key=True, autoincrement=False),
        sa.Column("bracket", sa.SmallInteger(), primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    create_index("run_lags_by_quarter", "run_lags", ["quarter"])
    create_table(
        "node_lags",
        sa.Column("quarter", MOMENT, primary_key=True, autoincrement=False),
        sa.Column("node", IDENTITY, primary_key=True),
        sa.Column("bracket", sa.SmallInteger(), primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    execute(
        "INSERT INTO store_facts (name, value) SELECT 'rolled_until', 0"
        " WHERE NOT EXISTS (SELECT 1 FROM store_facts WHERE name = 'rolled_until')"
    )
