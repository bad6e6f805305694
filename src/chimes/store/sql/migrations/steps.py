"""Steps of schema revisions: each can be repeated, so that a migrator that was killed between two
of them can be started again."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import context, op

from chimes.failpoints import hit
from chimes.store.sql.migrations import ONLINE


def dialect() -> str:
    return op.get_bind().dialect.name


def online() -> bool:
    """Whether nodes may be running: then there is no surrounding transaction, and no step may hold
    a lock for long."""
    return bool(context.config.attributes.get(ONLINE, False))


def create_table(name: str, *columns: sa.Column[object] | sa.Constraint, **options: object) -> None:
    hit("migrate.step")
    op.create_table(name, *columns, if_not_exists=True, **options)


def add_column(table: str, column: sa.Column[object]) -> None:
    hit("migrate.step")
    if column.name not in {each["name"] for each in sa.inspect(op.get_bind()).get_columns(table)}:
        op.add_column(table, column)


def create_index(
    name: str,
    table: str,
    columns: Sequence[str | sa.TextClause],
    *,
    where: str | None = None,
    using: str | None = None,
    unique: bool = False,
) -> None:
    hit("migrate.step")
    condition = None if where is None else sa.text(where)
    concurrently = online() and dialect() == "postgresql"
    if concurrently:
        _drop_half_built(name)
    op.create_index(
        name,
        table,
        columns,
        unique=unique,
        if_not_exists=True,
        sqlite_where=condition,
        postgresql_where=condition,
        postgresql_concurrently=concurrently,
        postgresql_using=using,
    )


def drop_index(name: str) -> None:
    hit("migrate.step")
    concurrently = online() and dialect() == "postgresql"
    op.drop_index(name, if_exists=True, postgresql_concurrently=concurrently)


def execute(statement: str) -> None:
    hit("migrate.step")
    op.get_bind().exec_driver_sql(statement)


def _drop_half_built(name: str) -> None:
    """What an interrupted CREATE INDEX CONCURRENTLY leaves: it costs and answers nothing."""
    half = sa.text(
        "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(:name) AND NOT indisvalid"
    )
    if op.get_bind().execute(half, {"name": name}).first() is not None:
        op.drop_index(name, postgresql_concurrently=True)
