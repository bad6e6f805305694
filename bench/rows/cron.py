"""cron: time to compute the next fire time, compared with cronsim and croniter.

All libraries compute the same fire times in interleaved rounds, so that a busy machine slows all of
them alike. Input and output are datetimes; figures are medians over the rounds. cronsim and
croniter use zones of zoneinfo.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from time import perf_counter
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim
from suite.bench import Bench
from suite.report import Line, line

from chimes.triggers import Cron

MIX = [
    ("* * * * *", "UTC"),
    ("*/5 * * * *", "America/New_York"),
    ("*/15 9-17 * * MON-FRI", "Europe/Berlin"),
    ("30 2 * * *", "America/New_York"),
    ("0 9 * * *", "Asia/Bangkok"),
    ("0 0 * * SUN", "Australia/Lord_Howe"),
    ("15 10 1,15 * *", "America/Sao_Paulo"),
    ("0 12 L * *", "Asia/Tokyo"),
    ("45 23 * 6-8 FRI", "Europe/London"),
    ("0 0 1 1 *", "Asia/Tehran"),
]
MOMENTS = [
    datetime(2026, 3, 8, 3, 17, 5, tzinfo=UTC),
    datetime(2026, 7, 1, 12, 0, tzinfo=UTC),
    datetime(2026, 10, 31, 22, 59, 30, tzinfo=UTC),
    datetime(2027, 1, 15, 6, 30, tzinfo=UTC),
]
ROW = "cron"
STEPS = 60

MOST_MICROSECONDS = 5.0
LEAST_TIMES_CRONSIM = 5.0
LEAST_TIMES_CRONITER = 20.0

Walk = Callable[[int], float]


def timed(advance: Callable[[], object], steps: int) -> float:
    start = perf_counter()
    for _ in range(steps):
        advance()
    return (perf_counter() - start) / steps * 1e6


def chimes_walk(expression: str, zone: str, moment: datetime) -> Walk:
    trigger = Cron(expression, timezone=zone)

    def walk(steps: int) -> float:
        at: datetime | None = moment
        start = perf_counter()
        for _ in range(steps):
            assert at is not None
            at = trigger.next_after(at)
        return (perf_counter() - start) / steps * 1e6

    return walk


def cronsim_walk(expression: str, zone: str, moment: datetime) -> Walk:
    local = moment.astimezone(ZoneInfo(zone))

    def walk(steps: int) -> float:
        return timed(CronSim(expression, local).__next__, steps)

    return walk


def croniter_walk(expression: str, zone: str, moment: datetime) -> Walk:
    local = moment.astimezone(ZoneInfo(zone))

    def walk(steps: int) -> float:
        iterator = croniter(expression, local)
        return timed(lambda: iterator.get_next(datetime), steps)

    return walk


LIBRARIES = {"chimes": chimes_walk, "cronsim": cronsim_walk, "croniter": croniter_walk}


def _microseconds(expression: str, zone: str, rounds: int) -> dict[str, float]:
    """Median microseconds per fire of each library, over interleaved rounds and all moments."""
    samples: dict[str, list[float]] = {name: [] for name in LIBRARIES}
    walks = [
        (name, make(expression, zone, moment))
        for moment in MOMENTS
        for name, make in LIBRARIES.items()
    ]
    for _ in range(rounds):
        for name, walk in walks:
            # Sixty yearly fires would leave the range of supported years.
            samples[name].append(walk(STEPS if "1 1" not in expression else STEPS // 10))
    return {name: median(values) for name, values in samples.items()}


def measure(bench: Bench) -> list[Line]:
    rows = [_microseconds(expression, zone, bench.rounds) for expression, zone in MIX]
    samples = {name: [row[name] for row in rows] for name in LIBRARIES}
    own = median(samples["chimes"])
    lines = [
        line(
            *(ROW, "Chimes, next fire time", "µs", samples["chimes"]),
            goal=f"≤ {MOST_MICROSECONDS:.0f} µs",
            met=own <= MOST_MICROSECONDS,
            how=f"median of {len(MIX)} expressions in {len({zone for _, zone in MIX})} zones",
        )
    ]
    for name, least in (("cronsim", LEAST_TIMES_CRONSIM), ("croniter", LEAST_TIMES_CRONITER)):
        times = median(samples[name]) / own
        lines.append(
            line(
                *(ROW, name, "µs", samples[name]),
                goal=f"Chimes ≥ {least:.0f} × as fast",
                ratio=times,
                met=times >= least,
            )
        )
    return lines
