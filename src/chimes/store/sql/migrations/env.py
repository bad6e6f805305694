"""Alembic environment: migrations use the connection and transaction of the store."""

from __future__ import annotations

from alembic import context

from chimes.store.sql.migrations import CONNECTION, VERSIONS
from chimes.store.sql.tables import metadata

context.configure(
    connection=context.config.attributes[CONNECTION],
    target_metadata=metadata,
    version_table=context.config.attributes[VERSIONS],
    transactional_ddl=False,
)
context.run_migrations()
