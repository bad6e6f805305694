"""wal: bytes of write-ahead log per run, from its row to its stored result.

The figures do not depend on other load, so they compare with the tables of an earlier commit that
were measured once in the same way."""

from __future__ import annotations

from datetime import timedelta

from suite.bench import Bench
from suite.chimes_tables import ChimesTables
from suite.nodes import Nodes
from suite.report import Line, line
from suite.rounds import interleave

ROW = "WAL"
QUEUED, FIRED = "no-op runs, added to ended", "scheduled runs, fired to ended"
COUNT = 10_000
#: Bytes per run with the wide tables, schema 0009, measured at this commit.
EARLIER_COMMIT = "7f594fd"
EARLIER = {QUEUED: 2_700.0, FIRED: 4_778.0}
MOST = 0.5
AHEAD = timedelta(seconds=8)


def measure_queued(tables: ChimesTables, nodes: Nodes, first: int) -> float:
    begin = _position(tables)
    available = tables.now() + timedelta(seconds=2)
    tables.queue(COUNT, available=available, first=first)
    nodes.wait_until_done(available, 120)
    return (_position(tables) - begin) / COUNT


def measure_fired(tables: ChimesTables, nodes: Nodes, first: int) -> float:
    due = (tables.now() + AHEAD).replace(microsecond=0)
    tables.fill("every", COUNT, due=due, first=first)
    begin = _position(tables)
    nodes.wait_until_done(due, 120)
    return (_position(tables) - begin) / COUNT


def measure(bench: Bench) -> list[Line]:
    tables = ChimesTables(bench.postgres, "wal")
    # A permit for each run, so that all are prefetched as in the row `due`.
    nodes = Nodes(tables, 1, workers=COUNT)
    turn = {QUEUED: 0, FIRED: 0}

    def next_first(name: str) -> int:
        turn[name] += 1
        return turn[name] * COUNT

    try:
        found = interleave(
            bench.rounds,
            {
                QUEUED: lambda: measure_queued(tables, nodes, next_first(QUEUED)),
                FIRED: lambda: measure_fired(tables, nodes, next_first(FIRED)),
            },
        )
    finally:
        nodes.close()
    lines = []
    for name, samples in found.items():
        earlier = EARLIER[name]
        share = line(ROW, name, "", samples).value / earlier
        lines.append(
            line(
                *(ROW, name, "bytes/run", samples),
                goal=f"≤ {MOST} × the wide tables",
                ratio=share,
                met=share <= MOST,
                how=f"{earlier:,.0f} at {EARLIER_COMMIT}",
            )
        )
    return lines


def _position(tables: ChimesTables) -> int:
    return int(tables.sql("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))
