"""due: lateness and fired/s of real nodes with 1,000 and 10,000 schedules due at one instant, and
of the peers with 10,000."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from statistics import median

from suite import peers
from suite.bench import Bench
from suite.chimes_tables import ChimesTables
from suite.nodes import Nodes, call_faults
from suite.report import Faults, Line, faults_line, line
from suite.rounds import interleave, percentile

LATENESS, FIRED = "lateness", "fired/s"
FEW, MANY = 1_000, 10_000
#: Time between filling the table and the due instant: nodes see new rows at their next poll and
#: prefetch up to 5 s ahead.
AHEAD = timedelta(seconds=8)
#: Time limit of a slow peer. A peer that finishes before it is rated by all 10,000.
WATCHED_SECONDS, WATCHED_LONG_SECONDS = 5.0, 120.0
#: Peers that fire nothing before they have read or written all 10,000, which takes 10 s and more:
#: they get a longer limit and fewer rounds.
SLOW_SECONDS, SLOW_ROUNDS = 90.0, 3
SLOW = (peers.PGQUEUER, peers.APSCHEDULER3)
QUICK = (peers.APSCHEDULER3_MEMORY, peers.APSCHEDULER4, peers.PROCRASTINATE)

GOALS_MS = {FEW: (25.0, 15.0), MANY: (220.0, 150.0)}
LEAST_TIMES = {
    peers.PGQUEUER: 15.0,
    peers.PROCRASTINATE: 60.0,
    peers.APSCHEDULER3_MEMORY: 2.0,
}


@dataclass(slots=True)
class Batch:
    first: int
    count: int
    due: datetime


@dataclass(slots=True)
class Site:
    """Chimes nodes with their own database, idle between rounds."""

    tables: ChimesTables
    nodes: Nodes
    batches: list[Batch] = field(default_factory=list)
    next_number: int = 0

    def fire(self, count: int) -> None:
        due = (self.tables.now() + AHEAD).replace(microsecond=0)
        batch = Batch(self.next_number, count, due)
        self.tables.fill("every", count, due=due, first=batch.first)
        self.tables.analyze()
        self.next_number += count
        self.nodes.wait_until_done(due, 120)
        self.batches.append(batch)


def start_site(bench: Bench, name: str, nodes: int) -> Site:
    tables = ChimesTables(bench.postgres, name)
    # A permit for each run: without one a run would wait for another to end.
    return Site(tables, Nodes(tables, nodes, workers=MANY))


def measure(bench: Bench) -> list[Line]:
    one, two = start_site(bench, "due_one", 1), start_site(bench, "due_two", 2)
    watched = WATCHED_LONG_SECONDS if bench.long else WATCHED_SECONDS
    rates: dict[peers.Peer, list[float]] = {}

    def rate_peer(peer: peers.Peer, seconds: float, rounds: int) -> None:
        found = rates.setdefault(peer, [])
        if len(found) < rounds:
            try:
                answer = peers.measure_peer(peer, bench.postgres, "schedules", MANY, seconds)
            except peers.PeerError as error:
                print(f"  skipped: {error}", file=sys.stderr, flush=True)
            else:
                found.append(answer.rate)

    contestants: dict[str, Callable[[], None]] = {
        "Chimes, 1 node, 1,000": partial(one.fire, FEW),
        "Chimes, 1 node, 10,000": partial(one.fire, MANY),
        "Chimes, 2 nodes, 10,000": partial(two.fire, MANY),
    }
    for peer in QUICK:
        contestants[peer.name] = partial(rate_peer, peer, watched, bench.rounds)
    rounds = bench.rounds if bench.long else min(SLOW_ROUNDS, bench.rounds)
    for peer in SLOW:
        contestants[peer.name] = partial(rate_peer, peer, SLOW_SECONDS, rounds)
    try:
        interleave(bench.rounds, contestants)
    finally:
        calls = {1: one.nodes.close(), 2: two.nodes.close()}
    return _lines(one, two, calls, rates)


def _lines(
    one: Site,
    two: Site,
    calls: dict[int, list[tuple[int, float]]],
    rates: dict[peers.Peer, list[float]],
) -> list[Line]:
    lines: list[Line] = []
    fired: dict[int, list[float]] = {}
    faults = Faults()
    for nodes, site in ((1, one), (2, two)):
        late = {count: _lateness(site, calls[nodes], count) for count in (FEW, MANY)}
        faults += _faults(site, calls[nodes])
        for count, samples in late.items():
            if samples:
                lines += _lateness_lines(nodes, count, samples)
        fired[nodes] = [MANY / max(sample) for sample in late[MANY]]
    for nodes, samples in fired.items():
        name = f"Chimes, {nodes} node{'s' * (nodes > 1)}"
        lines.append(line(FIRED, name, "fired/s", samples, how="10,000 / lateness of the last"))
    ours = median(fired[1])
    for peer, samples in rates.items():
        if not samples:
            continue
        theirs = median(samples)
        least = LEAST_TIMES.get(peer)
        lines.append(
            line(
                *(FIRED, peer.name, "fired/s", samples),
                goal=f"Chimes, 1 node, ≥ {least:g} × this" if least else "",
                ratio=ours / theirs,
                met=ours >= least * theirs if least else None,
                how=f"{len(samples)} rounds",
            )
        )
    return [*lines, faults_line(FIRED, faults)]


def _lateness(site: Site, calls: list[tuple[int, float]], count: int) -> list[list[float]]:
    """Per round of this count: seconds from the due instant to the start of each task."""
    found = []
    for batch in site.batches:
        if batch.count == count:
            numbers = range(batch.first, batch.first + batch.count)
            due = batch.due.timestamp()
            found.append([moment - due for number, moment in calls if number in numbers])
    return found


def _lateness_lines(nodes: int, count: int, samples: list[list[float]]) -> list[Line]:
    name = f"{count:,} due, {nodes} node{'s' * (nodes > 1)}"
    p50 = [percentile(sample, 0.5) * 1000 for sample in samples]
    p99 = [percentile(sample, 0.99) * 1000 for sample in samples]
    lines = [line(LATENESS, f"{name}, p50", "ms", p50, how="task start minus slot")]
    if nodes > 1:
        return [*lines, line(LATENESS, f"{name}, p99", "ms", p99)]
    for most, kind in zip(GOALS_MS[count], ("goal", "stretch goal"), strict=True):
        lines.append(
            line(
                *(LATENESS, f"{name}, p99", "ms", p99),
                goal=f"< {most:.0f} ms ({kind})",
                met=median(p99) < most,
            )
        )
    return lines


def _faults(site: Site, calls: list[tuple[int, float]]) -> Faults:
    """Counted in the store and in the calls that the tasks recorded; the larger number counts."""
    stored = site.tables.faults(site.next_number)
    doubles, missing = call_faults(calls, site.next_number)
    return Faults(duplicates=max(stored.duplicates, doubles), missed=max(stored.missed, missing))
