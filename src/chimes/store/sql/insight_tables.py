"""The schema of the sums that windows are answered from; see `tables` and `rolling`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, SmallInteger, Table

from chimes.store.sql.tables import IDENTITY, MOMENT, WORD, metadata

#: Whose sums those of all owners are.
ALL = ""
#: The fact up to when, by `finished_at`, ended runs are in the sums.
ROLLED_UNTIL = "rolled_until"

#: Ended runs by the quarter of an hour for which they were planned, once for their owner and once
#: for `ALL`.
run_tallies = Table(
    "run_tallies",
    metadata,
    Column("owner_type", WORD, primary_key=True),
    Column("owner_id", IDENTITY, primary_key=True),
    Column("quarter", MOMENT, primary_key=True, autoincrement=False),
    Column("namespace", IDENTITY, primary_key=True),
    Column("kind", WORD, primary_key=True),
    Column("origin", WORD, primary_key=True),
    Column("status", WORD, primary_key=True),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
# For those that have become none when runs are forgotten.
Index("run_tallies_by_quarter", run_tallies.c.quarter)

#: The same runs, as far as they have a lag, by its bracket.
run_lags = Table(
    "run_lags",
    metadata,
    Column("owner_type", WORD, primary_key=True),
    Column("owner_id", IDENTITY, primary_key=True),
    Column("quarter", MOMENT, primary_key=True, autoincrement=False),
    Column("bracket", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
Index("run_lags_by_quarter", run_lags.c.quarter)

#: Those of all owners, by who began them.
node_lags = Table(
    "node_lags",
    metadata,
    Column("quarter", MOMENT, primary_key=True, autoincrement=False),
    Column("node", IDENTITY, primary_key=True),
    Column("bracket", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

SUMS = (run_tallies, run_lags, node_lags)
