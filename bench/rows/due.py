"""lateness and fired/s: real nodes with 1,000 and 10,000 schedules due at one instant, and the
peers with 10,000."""

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
from suite.report import Faults, Line, faultless, line
from suite.rounds import interleaved, percentile

LATENESS, FIRED = "lateness", "fired/s"
FEW, MANY = 1_000, 10_000
#: From before filling the table to the instant. Schedules stand there long before they are due:
#: nodes see at their next poll what was put there, and look up to 5 s ahead.
AHEAD = timedelta(seconds=8)
#: How long a slow peer is watched; one that is through before is rated by all 10,000.
WATCHED_SECONDS, WATCHED_LONG_SECONDS = 5.0, 120.0
#: Some fire nothing before they have found or written all 10,000, which takes them 10 s and more:
#: these are watched to the end, in fewer rounds.
SLOW_SECONDS, SLOW_ROUNDS = 90.0, 3
SLOW = (peers.PGQUEUER, peers.APSCHEDULER3)
QUICK = (peers.APSCHEDULER3_MEMORY, peers.APSCHEDULER4, peers.PROCRASTINATE)

GOALS_MS = {FEW: (60.0, 15.0), MANY: (600.0, 150.0)}
LEAST_TIMES = {
    peers.PGQUEUER: 15.0,
    peers.PROCRASTINATE: 60.0,
    peers.APSCHEDULER3_MEMORY: 0.7,
}


@dataclass(slots=True)
class Herd:
    first: int
    count: int
    due: datetime


@dataclass(slots=True)
class Site:
    """Nodes of Chimes on a database of their own, idle between the rounds."""

    tables: ChimesTables
    nodes: Nodes
    herds: list[Herd] = field(default_factory=list)
    next_number: int = 0

    def fire(self, count: int) -> None:
        due = (self.tables.now() + AHEAD).replace(microsecond=0)
        herd = Herd(self.next_number, count, due)
        self.tables.fill("every", count, due=due, first=herd.first)
        self.tables.sql("ANALYZE schedules")
        self.next_number += count
        self.nodes.wait_until_done(due, 120)
        self.herds.append(herd)


def site(bench: Bench, name: str, nodes: int) -> Site:
    tables = ChimesTables(bench.postgres, name)
    # Room for all of them: who has no place when the crowd comes waits for one.
    return Site(tables, Nodes(tables, nodes, workers=MANY))


def measure(bench: Bench) -> list[Line]:
    one, two = site(bench, "due_one", 1), site(bench, "due_two", 2)
    watched = WATCHED_LONG_SECONDS if bench.long else WATCHED_SECONDS
    rates: dict[peers.Peer, list[float]] = {}

    def rated(peer: peers.Peer, seconds: float, rounds: int) -> None:
        found = rates.setdefault(peer, [])
        if len(found) < rounds:
            try:
                answer = peers.measured(peer, bench.postgres, "schedules", MANY, seconds)
            except peers.PeerFailed as error:
                print(f"  left out: {error}", file=sys.stderr, flush=True)
            else:
                found.append(answer.rate)

    contestants: dict[str, Callable[[], None]] = {
        "Chimes, 1 node, 1,000": partial(one.fire, FEW),
        "Chimes, 1 node, 10,000": partial(one.fire, MANY),
        "Chimes, 2 nodes, 10,000": partial(two.fire, MANY),
    }
    for peer in QUICK:
        contestants[peer.name] = partial(rated, peer, watched, bench.rounds)
    rounds = bench.rounds if bench.long else min(SLOW_ROUNDS, bench.rounds)
    for peer in SLOW:
        contestants[peer.name] = partial(rated, peer, SLOW_SECONDS, rounds)
    try:
        interleaved(bench.rounds, contestants)
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
    for nodes, place in ((1, one), (2, two)):
        late = {count: _lateness(place, calls[nodes], count) for count in (FEW, MANY)}
        faults += _faults(place, calls[nodes])
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
    return [*lines, faultless(FIRED, faults)]


def _lateness(place: Site, calls: list[tuple[int, float]], count: int) -> list[list[float]]:
    """For each round of that many, when its tasks started after the instant, in seconds."""
    found = []
    for herd in place.herds:
        if herd.count == count:
            numbers = range(herd.first, herd.first + herd.count)
            due = herd.due.timestamp()
            found.append([moment - due for number, moment in calls if number in numbers])
    return found


def _lateness_lines(nodes: int, count: int, samples: list[list[float]]) -> list[Line]:
    name = f"{count:,} due, {nodes} node{'s' * (nodes > 1)}"
    p50 = [percentile(sample, 0.5) * 1000 for sample in samples]
    p99 = [percentile(sample, 0.99) * 1000 for sample in samples]
    lines = [line(LATENESS, f"{name}, p50", "ms", p50, how="task's clock less slot")]
    if nodes > 1:
        return [*lines, line(LATENESS, f"{name}, p99", "ms", p99)]
    for most, kind in zip(GOALS_MS[count], ("must", "goal"), strict=True):
        lines.append(
            line(
                *(LATENESS, f"{name}, p99", "ms", p99),
                goal=f"< {most:.0f} ms ({kind})",
                met=median(p99) < most,
            )
        )
    return lines


def _faults(place: Site, calls: list[tuple[int, float]]) -> Faults:
    """In the store, and in what the tasks themselves saw."""
    stored = place.tables.faults(place.next_number)
    doubles, missing = call_faults(calls, place.next_number)
    return Faults(duplicates=max(stored.duplicates, doubles), missed=max(stored.missed, missing))
