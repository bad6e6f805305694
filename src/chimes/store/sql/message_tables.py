"""The schema of what is told to people, and of the limits that all nodes share; see `tables`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, Table, text

from chimes.store.sql.tables import (
    FLAG,
    IDENTITY,
    MOMENT,
    TEXT,
    WORD,
    metadata,
)

__all__ = ["PENDING", "buckets", "deliveries", "inbox", "metadata"]

PENDING = "state = 'pending'"
_FINISHED = text("finished_at IS NOT NULL")

#: The outbox: one row for each run and recipient (`model/delivery.py`).
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", IDENTITY, primary_key=True),
    Column("run_id", IDENTITY, nullable=False),
    Column("schedule_id", IDENTITY),
    Column("schedule_name", TEXT, nullable=False),
    Column("owner_type", WORD, nullable=False),
    Column("owner_id", IDENTITY, nullable=False),
    Column("channel", WORD, nullable=False),
    Column("recipient", TEXT, nullable=False),
    Column("occasion", WORD, nullable=False),
    Column("state", WORD, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("progress", Integer, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("available_at", MOMENT, nullable=False),
    Column("finished_at", MOMENT),
    Column("error", TEXT, nullable=False),
    Column("code", WORD, nullable=False),
    Column("receipt", TEXT, nullable=False),
)
# What was delivered long ago is not in it: the cost depends on what waits.
Index(
    "deliveries_pending",
    deliveries.c.available_at,
    deliveries.c.id,
    sqlite_where=text(PENDING),
    postgresql_where=text(PENDING),
)
Index(
    "deliveries_ended",
    deliveries.c.finished_at,
    deliveries.c.id,
    sqlite_where=_FINISHED,
    postgresql_where=_FINISHED,
)
Index("deliveries_by_run", deliveries.c.run_id)
Index(
    "deliveries_by_owner",
    deliveries.c.owner_type,
    deliveries.c.owner_id,
    deliveries.c.created_at,
    deliveries.c.id,
)
# Counts by state need nothing but this.
Index("deliveries_by_state", deliveries.c.state, deliveries.c.created_at, deliveries.c.id)
Index("deliveries_created", deliveries.c.created_at, deliveries.c.id)

inbox = Table(
    "inbox",
    metadata,
    Column("id", IDENTITY, primary_key=True),
    Column("owner_type", WORD, nullable=False),
    Column("owner_id", IDENTITY, nullable=False),
    Column("run_id", IDENTITY),
    Column("schedule_id", IDENTITY),
    Column("schedule_name", TEXT, nullable=False),
    Column("title", TEXT, nullable=False),
    Column("text", TEXT, nullable=False),
    Column("status", WORD, nullable=False),
    Column("artifacts", TEXT, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("read_at", MOMENT),
    Column("starred", FLAG, nullable=False),
    Column("archived_at", MOMENT),
    Column("snoozed_until", MOMENT),
)
Index("inbox_by_owner", inbox.c.owner_type, inbox.c.owner_id, inbox.c.created_at, inbox.c.id)
Index("inbox_created", inbox.c.created_at, inbox.c.id)
Index("inbox_by_run", inbox.c.run_id)

#: Buckets of tokens. On PostgreSQL they are not logged: taking one must not wait for a disk, and
#: none has to survive a crash.
buckets = Table(
    "buckets",
    metadata,
    Column("name", IDENTITY, primary_key=True),
    Column("tokens", Float(53), nullable=False),
    #: When there were so many.
    Column("at", MOMENT, nullable=False),
    #: How many the last one who asked got.
    Column("granted", BigInteger, nullable=False),
    #: From when on it is full for sure, so that it may be forgotten.
    Column("full_at", MOMENT, nullable=False),
)
