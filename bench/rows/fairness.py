"""fairness: single runs of one owner beside the 10,000 queued runs of another."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from datetime import timedelta
from statistics import median

from suite.bench import Bench
from suite.chimes_tables import ChimesTables, open_store, queued_run
from suite.nodes import Nodes, call_faults
from suite.report import Faults, Line, faults_line, line

from chimes.engine.worker import claim_limit
from chimes.model import replace
from chimes.model.access import Owner, OwnerType
from chimes.model.ids import manual_run_id
from chimes.model.run import share_of

ROW = "fairness"
COUNT = 10_000
PERMITS = 500
#: What the node has claimed already, and the claim that contains the single run: all of it, as the
#: order in which a claim is started is not promised, or the share of the other owner.
GOALS = {
    "goal": PERMITS + claim_limit(PERMITS) - 1,
    "stretch goal": PERMITS + share_of(claim_limit(PERMITS), 2),
}
AHEAD = timedelta(seconds=2)
PAUSE_SECONDS = 0.02
SINGLE = Owner(type=OwnerType.USER, id="single")

Added = list[tuple[int, float]]


async def add_singles(tables: ChimesTables, first: int, begin: float) -> Added:
    """Adds a run at a time while the queue has runs of the other owner: number, and when its
    insertion had been committed."""
    store = open_store(tables.url)
    await store.open()
    added: Added = []
    await asyncio.sleep(max(0.0, begin - time.time()))
    while int(await asyncio.to_thread(tables.sql, "SELECT count(*) FROM queue")):
        now = await store.now()
        run = queued_run(manual_run_id(now), first + len(added), now)
        definition = replace(run.definition, owner=SINGLE)
        await store.add_runs([replace(run, definition=definition)])
        added.append((first + len(added), time.time()))
        await asyncio.sleep(PAUSE_SECONDS)
    await store.close()
    return added


def measure(bench: Bench) -> list[Line]:
    tables = ChimesTables(bench.postgres, "fairness")
    nodes = Nodes(tables, 1, workers=PERMITS)
    rounds: list[tuple[int, Added]] = []
    total = 0
    try:
        for _ in range(bench.rounds):
            tables.empty()
            available = tables.now() + AHEAD
            tables.queue(COUNT, available=available, first=total)
            tables.analyze()
            singles = total + COUNT
            added = asyncio.run(add_singles(tables, singles, available.timestamp()))
            nodes.wait_until_done(available, 180)
            rounds.append((total, added))
            total = singles + len(added)
    finally:
        calls = nodes.close()
    doubles, missing = call_faults(calls, total)
    return [*_lines(rounds, calls), faults_line(ROW, Faults(duplicates=doubles, missed=missing))]


def _lines(rounds: list[tuple[int, Added]], calls: list[tuple[int, float]]) -> list[Line]:
    started = dict(calls)
    before: list[list[int]] = []
    late: list[float] = []
    for first, added in rounds:
        others = sorted(started[number] for number in range(first, first + COUNT))
        counts = []
        for number, moment in added:
            # Later ones had no other owner beside them.
            if moment < others[-1]:
                start = started[number]
                counts.append(max(0, bisect_left(others, start) - bisect_right(others, moment)))
                late.append(max(0.0, start - moment) * 1000)
        before.append(counts)
    number = sum(map(len, before))
    how = f"{number} single runs beside {COUNT:,}"
    most = [float(max(counts)) for counts in before]
    return [
        line(ROW, "started before, median", "runs", [median(c) for c in before], how=how),
        *(
            line(
                *(ROW, "started before, most", "runs", most),
                goal=f"≤ {limit} ({kind})",
                met=max(most) <= limit,
                how=f"{PERMITS} permits, claims of {claim_limit(PERMITS)}",
            )
            for kind, limit in GOALS.items()
        ),
        line(ROW, "lateness of a single run, median", "ms", [median(late)]),
        line(ROW, "lateness of a single run, most", "ms", [max(late)]),
    ]
