"""Run by Alembic: migrations use the connection that the store hands in, in its transaction."""

from __future__ import annotations

from alembic import context

from chimes.store.sql.migrations import CONNECTION
from chimes.store.sql.tables import metadata

context.configure(
    connection=context.config.attributes[CONNECTION],
    target_metadata=metadata,
    transactional_ddl=False,
)
context.run_migrations()
