"""Profiles of torture runs: duration, load, and the minimum coverage for a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Profile:
    name: str
    minutes: float
    nodes: int
    schedules: int
    #: API calls and faults per second.
    calls: float
    faults: float
    baseline: float
    #: Minimum counts for a conclusive result after `minutes`; fewer for a shorter run.
    slots: int
    fault_count: int
    fault_classes: int
    fenced_writes: int
    takeovers: int
    ambiguous_commits: int


PROFILES = {
    profile.name: profile
    for profile in (
        # Used by a test on each store, which shares the cores with other tests.
        Profile(
            name="round",
            minutes=0.3,
            nodes=3,
            schedules=60,
            calls=3.0,
            faults=0.7,
            baseline=1.0,
            slots=150,
            fault_count=5,
            fault_classes=3,
            fenced_writes=1,
            takeovers=1,
            ambiguous_commits=1,
        ),
        Profile(
            name="pr",
            minutes=2,
            nodes=4,
            schedules=270,
            calls=6.0,
            faults=2.6,
            baseline=10.0,
            slots=10_000,
            fault_count=100,
            fault_classes=8,
            fenced_writes=5,
            takeovers=20,
            ambiguous_commits=2,
        ),
        Profile(
            name="nightly",
            minutes=30,
            nodes=4,
            schedules=300,
            calls=6.0,
            faults=2.6,
            baseline=10.0,
            slots=200_000,
            fault_count=2_000,
            fault_classes=12,
            fenced_writes=50,
            takeovers=500,
            ambiguous_commits=20,
        ),
        Profile(
            name="release",
            minutes=120,
            nodes=4,
            schedules=300,
            calls=6.0,
            faults=2.6,
            baseline=10.0,
            slots=1_000_000 // 5,
            fault_count=2_000,
            fault_classes=12,
            fenced_writes=200,
            takeovers=2_000,
            ambiguous_commits=100,
        ),
    )
}
#: Number of kinds of faults on stores without a server.
FILE_CLASSES = {"sqlite": 5, "json": 4}


def below_minimum(
    profile: Profile, store: str, minutes: float, reached: Mapping[str, int]
) -> list[str]:
    """The counts that are below the minimum."""
    share = min(1.0, minutes / profile.minutes)
    server = store not in FILE_CLASSES
    wanted = {
        "slots": round(profile.slots * share),
        "faults": round(profile.fault_count * share),
        "fault_classes": min(profile.fault_classes, FILE_CLASSES.get(store, 99)),
        "fenced_writes": max(1, round(profile.fenced_writes * share)),
        "takeovers": max(1, round(profile.takeovers * share)),
        "ambiguous_commits": max(1, round(profile.ambiguous_commits * share)) if server else 0,
    }
    if store == "json":
        # A single process: no takeovers and no late completions; firing is limited by rewriting
        # the whole file.
        wanted |= {"fenced_writes": 0, "takeovers": 0, "slots": 0}
    return [
        f"{name}: {reached.get(name, 0)} of {least}"
        for name, least in wanted.items()
        if reached.get(name, 0) < least
    ]
