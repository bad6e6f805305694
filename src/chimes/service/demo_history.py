"""Example schedules and two weeks that never were (pure): the same slot has the same story however
often it is told."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from chimes.model.access import SYSTEM_OWNER
from chimes.model.change import replace
from chimes.model.ids import NodeId, ScheduleId, declared_id
from chimes.model.planning import ended_at_once, slot_run
from chimes.model.policy import Misfire, Policy
from chimes.model.run import Attempt, AttemptEnd, LogEntry, Reason, Run, RunStatus
from chimes.model.schedule import Schedule, planned
from chimes.model.target import AgentTarget, FlowTarget, HttpTarget, Target, TaskTarget
from chimes.triggers import Cron
from chimes.wording import say

LABEL = "demo"
NAMESPACE = "native"
PAST = timedelta(days=14)
#: Of `chimes serve --demo`; takes `seconds`, and fails if it is told to (`fails`).
TASK = "chimes_demo"
FAILURE = "RuntimeError"
#: However long an example is said to take, nobody waits longer.
LONGEST = 30.0
#: On record as all texts are, in English, and told again in the reader's language.
PAUSED_BECAUSE = str(
    say("An example. It is paused, because it would need something that is not here.")
)
NOT_LIVE = str(say("An example. It runs on a node that was started with --demo."))
MADE_UP = "made up for the demo"
NODE = NodeId("demo-node")
#: So far back everything has its log: more would be slow to load.
_LOGGED = timedelta(days=3)
#: When everything was down, counted back from now: what was due then was missed.
_OUTAGE = (timedelta(days=5, hours=4), timedelta(days=5, hours=2))


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    slug: str
    name: str
    cron: str
    zone: str
    #: None: `TASK`, which does nothing but take its time.
    target: Target | None = None
    #: How long it usually takes, in seconds.
    usual: float = 0.2
    #: Of all its runs.
    failing: float = 0.0
    skipped: float = 0.0
    #: So many of the newest failed.
    failed_last: int = 0
    missed_last: bool = False
    error: str = f"ConnectionError: nobody answers ({MADE_UP})"
    paused: bool = False
    timeout: timedelta = timedelta(seconds=30)
    labels: Mapping[str, str | None] = field(default_factory=dict)


EXAMPLES = (
    Example(
        slug="web",
        name="Demo: is the website up?",
        cron="*/20 * * * *",
        zone="UTC",
        usual=0.18,
        failing=0.01,
        labels={"team": "web"},
    ),
    Example(
        slug="orders",
        name="Demo: fetch new orders",
        cron="10 * * * *",
        zone="Asia/Bangkok",
        usual=4.2,
        failing=0.03,
        skipped=0.02,
        labels={"team": "sales"},
    ),
    Example(
        slug="backup",
        name="Demo: nightly backup",
        cron="30 2 * * *",
        zone="Asia/Bangkok",
        usual=1260,
        missed_last=True,
        timeout=timedelta(hours=1),
        labels={"team": "ops"},
    ),
    Example(
        slug="report",
        name="Demo: sales report on weekdays",
        cron="0 9 * * 1-5",
        zone="Asia/Bangkok",
        usual=38,
        labels={"team": "sales"},
    ),
    Example(
        slug="supplier",
        name="Demo: supplier feed (fails)",
        cron="0 */6 * * *",
        zone="America/New_York",
        usual=0.4,
        failing=0.1,
        failed_last=4,
        error=f"{FAILURE}: {MADE_UP}",
        labels={"team": "sales"},
    ),
    Example(
        slug="cleanup",
        name="Demo: clean up old files",
        cron="15 */4 * * *",
        zone="Asia/Shanghai",
        usual=75,
        failing=0.02,
        timeout=timedelta(minutes=5),
        labels={"team": "ops"},
    ),
    Example(
        slug="rates",
        name="Demo: exchange rates",
        cron="5 8-18/2 * * 1-5",
        zone="Asia/Shanghai",
        usual=1.1,
        failing=0.04,
    ),
    Example(
        slug="invoices",
        name="Demo: invoices at the end of the month",
        cron="0 18 L * *",
        zone="America/New_York",
        target=HttpTarget(url="https://billing.example.com/invoices"),
        usual=420,
        timeout=timedelta(minutes=30),
        paused=True,
    ),
    Example(
        slug="brief",
        name="Demo: morning brief by an agent",
        cron="0 7 * * *",
        zone="Asia/Bangkok",
        target=AgentTarget(prompt="Say in five lines what happened in sales yesterday."),
        usual=12,
        failing=0.05,
        paused=True,
    ),
    Example(
        slug="warehouse",
        name="Demo: load the warehouse (flow)",
        cron="0 4 * * *",
        zone="Asia/Bangkok",
        target=FlowTarget(name="warehouse"),
        usual=540,
        failing=0.08,
        paused=True,
        timeout=timedelta(hours=1),
    ),
)


def demo_ids(generation: int) -> tuple[ScheduleId, ...]:
    return tuple(_id(each, generation) for each in EXAMPLES)


def _id(example: Example, generation: int) -> ScheduleId:
    return declared_id(LABEL, example.slug, generation)


def demo_schedule(example: Example, generation: int, now: datetime, *, live: bool) -> Schedule:
    """Without its past. `live`: there is a node that can carry it out."""
    began = now - PAST
    work = {"seconds": min(example.usual, LONGEST), "fails": example.failed_last > 0}
    note = PAUSED_BECAUSE if example.paused else "" if live else NOT_LIVE
    schedule = Schedule(
        id=_id(example, generation),
        namespace=NAMESPACE,
        name=example.name if generation == 1 else f"{example.name} ({generation})",
        owner=SYSTEM_OWNER,
        trigger=Cron(example.cron, timezone=example.zone),
        target=example.target or TaskTarget(name=TASK, args=work),
        # As its past has it: what was missed was not made up for.
        policy=Policy(timeout=example.timeout, misfire=Misfire.SKIP),
        labels={LABEL: None, **example.labels},
        enabled=not note,
        pause_note=note,
        created_at=began,
        updated_at=began,
        created_by=LABEL,
        updated_by=LABEL,
    )
    return planned(schedule, now)


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    """A schedule with all that never happened to it."""

    schedule: Schedule
    runs: tuple[Run, ...]
    #: Of those that went wrong and of those of the last days, by run.
    logs: Mapping[str, tuple[LogEntry, ...]]


def story_of(example: Example, generation: int, now: datetime, *, live: bool) -> Story:
    schedule = demo_schedule(example, generation, now, live=live)
    slots = list(_slots(schedule, now))
    runs = tuple(
        _run(schedule, example, slot, now, left=len(slots) - 1 - place)
        for place, slot in enumerate(slots)
    )
    return Story(
        schedule=_as_it_ended(schedule, runs),
        runs=runs,
        logs={
            run.id: _lines(run, example)
            for run in runs
            if run.started_at is not None and (run.error or run.started_at > now - _LOGGED)
        },
    )


def _slots(schedule: Schedule, now: datetime) -> Iterator[datetime]:
    """Those whose longest run is over by now."""
    slot = schedule.trigger.next_after(now - PAST)
    while slot is not None and slot + schedule.policy.timeout * 2 < now:
        yield slot
        slot = schedule.trigger.next_after(slot)


def _run(schedule: Schedule, example: Example, slot: datetime, now: datetime, *, left: int) -> Run:
    """`left`: how many come after it."""
    run = replace(slot_run(schedule, slot, slot), concurrency_key=None)
    chance = _chance(run.id, "end")
    started = slot + timedelta(seconds=_lag(run.id))
    outage = now - _OUTAGE[0] <= slot < now - _OUTAGE[1]
    if outage or (example.missed_last and left == 0):
        return replace(
            ended_at_once(run, RunStatus.MISSED, Reason.MISFIRE, slot + timedelta(minutes=5)),
            missed_count=1,
        )
    if chance < example.skipped:
        return ended_at_once(run, RunStatus.SKIPPED, Reason.OVERLAP, started)
    length = example.usual * (0.7 + 0.8 * _chance(run.id, "length") ** 2)
    failed = left < example.failed_last or chance < example.skipped + example.failing
    late = failed and _chance(run.id, "how") < 0.25 and not left < example.failed_last
    if late:
        length = schedule.policy.timeout.total_seconds()
    return _ended(
        run,
        RunStatus.TIMEOUT if late else RunStatus.FAILED if failed else RunStatus.SUCCEEDED,
        started,
        started + timedelta(seconds=length),
        _error(schedule, example, late) if failed else "",
    )


def _error(schedule: Schedule, example: Example, late: bool) -> str:
    return (
        f"timed out after {schedule.policy.timeout.total_seconds():g}s" if late else example.error
    )


def _ended(run: Run, status: RunStatus, started: datetime, finished: datetime, error: str) -> Run:
    attempt = Attempt(
        number=1,
        fence=1,
        node=NODE,
        started_at=started,
        finished_at=finished,
        end=AttemptEnd(status.value),
        error=error,
    )
    return replace(
        run,
        status=status,
        attempt=1,
        fence=1,
        claimed_at=started,
        started_at=started,
        finished_at=finished,
        result={"text": MADE_UP} if status is RunStatus.SUCCEEDED else None,
        error=error,
        attempts=(attempt,),
    )


def _as_it_ended(schedule: Schedule, runs: tuple[Run, ...]) -> Schedule:
    """What the schedule remembers of its runs."""
    begun = [run for run in runs if run.started_at is not None]
    good = [run for run in begun if run.status is RunStatus.SUCCEEDED]
    if not runs:
        return schedule
    return replace(
        schedule,
        last_slot=runs[-1].slot,
        fired_count=len(runs),
        last_enqueued_at=begun[-1].planned_at if begun else None,
        last_run_at=begun[-1].started_at if begun else None,
        last_status=runs[-1].status,
        last_error=runs[-1].error,
        last_success_at=good[-1].finished_at if good else None,
    )


def _lines(run: Run, example: Example) -> tuple[LogEntry, ...]:
    """Numbered here: what is loaded into a store is taken as it is."""
    assert run.started_at is not None
    assert run.finished_at is not None
    length = run.finished_at - run.started_at
    told: list[tuple[float, str, str]] = [
        (0.0, "info", f"{example.slug}: started on {run.attempts[0].node} ({MADE_UP})"),
        (0.3, "info", f"{example.slug}: {200 + round(_chance(run.id, 'items') * 800)} items to do"),
    ]
    if run.error:
        told.append((0.6, "warning", f"{example.slug}: no answer yet, still waiting"))
        told.append((1.0, "error", _trace(run, example)))
    else:
        told.append((1.0, "info", f"{example.slug}: done in {length.total_seconds():.2f} s"))
    return tuple(
        LogEntry(at=run.started_at + length * share, level=level, message=text, number=number)
        for number, (share, level, text) in enumerate(told, 1)
    )


def _trace(run: Run, example: Example) -> str:
    """As a task would leave it, which raised what its error says."""
    if run.status is not RunStatus.FAILED or not isinstance(run.target, TaskTarget):
        return run.error
    where = f'  File "{example.slug}.py", line 12, in {example.slug}'
    return f"Traceback (most recent call last):\n{where}\n{run.error}"


def _lag(run_id: str) -> float:
    """Mostly a blink, sometimes longer."""
    usual = 0.02 + 0.3 * _chance(run_id, "lag") ** 3
    return usual + (20 * _chance(run_id, "wait") if _chance(run_id, "busy") > 0.98 else 0.0)


def _chance(*about: str) -> float:
    """From 0 to 1, always the same for the same."""
    found = hashlib.blake2b("\0".join(about).encode(), digest_size=4).digest()
    return int.from_bytes(found) / 2**32
