"""Changes by SQL withdraw only runs that are prefetched and not confirmed. Nothing that the code of
0007 to 0009 uses changes, and this code works with their function."""

from __future__ import annotations

from chimes.store.sql.migrations.steps import dialect, execute
from chimes.store.sql.migrations.views import POSTGRES_VIEWS_0010

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    if dialect() == "postgresql":
        for statement in POSTGRES_VIEWS_0010:
            execute(statement)
