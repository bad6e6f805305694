"""Example schedules with a made-up past, for whoever wants to look before there is anything to see:
loaded once, removed without a trace in the numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from chimes.errors import NotAllowed, NotFound
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Actor
from chimes.model.audit import AuditEntry
from chimes.model.change import replace
from chimes.model.ids import InboxId, NodeId, ScheduleId, declared_id
from chimes.model.listing import RunQuery
from chimes.model.notification import InboxItem
from chimes.model.planning import end_immediately, slot_run
from chimes.model.policy import Misfire, Policy
from chimes.model.run import Attempt, AttemptEnd, LogEntry, Reason, Run, RunStatus
from chimes.model.schedule import Schedule, delete_schedule, plan_after
from chimes.model.target import AgentTarget, FlowTarget, HttpTarget, Target, TaskTarget
from chimes.services.audit import entry
from chimes.store.port import Item, RunLog, Store
from chimes.triggers import Cron

# @@ Example schedules and two weeks that never were (pure): the same slot has the same story
# however often it is told.

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
    _("An example. It is paused, because it would need something that is not here.")
)
NOT_LIVE = str(_("An example. It runs on a node that was started with --demo."))
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
    return plan_after(schedule, now)


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
            end_immediately(run, RunStatus.MISSED, Reason.MISFIRE, slot + timedelta(minutes=5)),
            missed_count=1,
        )
    if chance < example.skipped:
        return end_immediately(run, RunStatus.SKIPPED, Reason.OVERLAP, started)
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


# @@ What the examples are said to have delivered: an inbox to look at (pure).


@dataclass(frozen=True, kw_only=True, slots=True)
class _Message:
    slug: str
    #: The example that it is about.
    about: str
    title: str
    text: str
    #: Of the run that it tells of, or the kind of message.
    status: str
    #: Where no run is told of: so long ago.
    ago: timedelta = timedelta(hours=2)
    read: bool = False


_MESSAGES = (
    _Message(
        slug="failed",
        about="supplier",
        title="Demo: supplier feed (fails): failed",
        text=f"Reason: exception\nError: RuntimeError: {MADE_UP}",
        status=RunStatus.FAILED.value,
    ),
    _Message(
        slug="brief",
        about="brief",
        title="Demo: morning brief by an agent",
        text=f"**Sales yesterday** ({MADE_UP})\n\n"
        "- 214 orders, 6 % more than the week before\n"
        "- Bangkok sold most, Shanghai grew most\n"
        "- 3 orders wait for the supplier, whose feed fails\n",
        status="",
    ),
    _Message(
        slug="report",
        about="report",
        title="Demo: sales report on weekdays",
        text=f"The week so far ({MADE_UP}):\n\n"
        "| Shop | Orders | Revenue |\n|:--|--:|--:|\n"
        "| Bangkok | 612 | 184,300 |\n| New York | 377 | 152,900 |\n| Shanghai | 455 | 141,700 |\n",
        status=RunStatus.SUCCEEDED.value,
        read=True,
    ),
    _Message(
        slug="digest",
        about="web",
        title="Demo: the last day in one message",
        text=f"72 runs of **Demo: is the website up?**, all but one went well ({MADE_UP}).",
        status="digest",
        ago=timedelta(hours=9),
        read=True,
    ),
)


def message_ids(generation: int) -> tuple[InboxId, ...]:
    return tuple(_id_demo_messages(each, generation) for each in _MESSAGES)


def _id_demo_messages(message: _Message, generation: int) -> InboxId:
    return InboxId(declared_id(LABEL, f"message {message.slug}", generation))


def messages_of(
    stories: Mapping[str, Story], generation: int, now: datetime
) -> tuple[InboxItem, ...]:
    """`stories`: by the slug of their example."""
    return tuple(_item(each, stories[each.about], generation, now) for each in _MESSAGES)


def _item(message: _Message, story: Story, generation: int, now: datetime) -> InboxItem:
    run = _told_of(message, story.runs)
    at = now - message.ago if run is None or run.finished_at is None else run.finished_at
    return InboxItem(
        id=_id_demo_messages(message, generation),
        owner=SYSTEM_OWNER,
        run_id=None if run is None else run.id,
        schedule_id=story.schedule.id,
        schedule_name=story.schedule.name,
        title=message.title,
        text=message.text,
        status=message.status,
        created_at=at,
        read_at=at if message.read else None,
    )


def _told_of(message: _Message, runs: Sequence[Run]) -> Run | None:
    """The newest that ended so."""
    return next((run for run in reversed(runs) if run.status.value == message.status), None)


_STATE = "demo"
_NEEDS = TaskTarget(name=TASK).requirement
_BATCH = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kept:
    #: An id is never used again: each loading after a removal has its own.
    generation: int = 0
    #: `loading`, `loaded` or `removed`.
    state: str = "removed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    schedules: int = 0
    runs: int = 0


class DemoService:
    """For admins: the examples belong to the system."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def is_loaded(self, actor: Actor) -> bool:
        """Whether there is anything of it, for somebody who would see it."""
        if not actor.may_see(SYSTEM_OWNER):
            return False
        return (await self._kept()).state != "removed"

    async def load(self, actor: Actor, *, live: bool | None = None) -> int:
        """How many schedules were added; 0 if the demo is there. `live`: whether there is a node
        that carries the examples out (None: look), otherwise they are paused. Loading that was
        interrupted is taken up again."""
        _administers(actor)
        kept = await self._kept()
        if kept.state == "loaded":
            return 0
        generation = kept.generation + (kept.state == "removed")
        now = await self._store.now()
        if live is None:
            live = any(
                node.lease_until > now and _NEEDS in node.capabilities
                for node in await self._store.nodes()
            )
        await self._keep(_Kept(generation=generation, state="loading"), None)
        # Straight into the store, so that nobody is told of what never happened.
        batch: list[Item] = []
        for item in _items(generation, now, live=live):
            batch.append(item)
            if len(batch) == _BATCH:
                await self._store.load(batch)
                batch = []
        await self._store.load(batch)
        await self._keep(
            _Kept(generation=generation, state="loaded"), _note(actor, "load_demo", now)
        )
        return len(EXAMPLES)

    async def remove(self, actor: Actor) -> Removed:
        """The examples, all their runs, and what they are said to have delivered; also those that
        somebody has changed or run since."""
        _administers(actor)
        kept = await self._kept()
        if kept.state == "removed":
            return Removed()
        now = await self._store.now()
        schedules = runs = 0
        for schedule_id in demo_ids(kept.generation):
            try:
                await self._store.change_schedule(
                    schedule_id, lambda before, at: delete_schedule(before, at, actor.name)
                )
                schedules += 1
            except NotFound:
                pass
            query = RunQuery(schedule_id=schedule_id, limit=_BATCH)
            while page := (await self._store.list_runs(query)).items:
                forgotten = await self._store.forget_runs([run.id for run in page])
                runs += forgotten
                if not forgotten:
                    # Still under way; they are forgotten with all the others one day.
                    break
        await self._store.forget_inbox(message_ids(kept.generation))
        await self._keep(
            _Kept(generation=kept.generation, state="removed"), _note(actor, "remove_demo", now)
        )
        return Removed(schedules=schedules, runs=runs)

    async def _kept(self) -> _Kept:
        state = await self._store.get_checkpoint(_STATE)
        return _Kept() if state is None else _Kept(**json.loads(state.value))

    async def _keep(self, kept: _Kept, note: AuditEntry | None) -> None:
        value = json.dumps({"generation": kept.generation, "state": kept.state})
        await self._store.set_checkpoint(_STATE, value, note)


def _items(generation: int, now: datetime, *, live: bool) -> Iterator[Item]:
    stories = {each.slug: story_of(each, generation, now, live=live) for each in EXAMPLES}
    for story in stories.values():
        yield story.schedule
        yield from story.runs
        for run in story.runs:
            if run.id in story.logs:
                yield RunLog(run_id=run.id, entries=story.logs[run.id])
    yield from messages_of(stories, generation, now)


def _note(actor: Actor, verb: str, now: datetime) -> AuditEntry:
    return entry(actor, verb, "demo", _STATE, at=now, owner=SYSTEM_OWNER)


def _administers(actor: Actor) -> None:
    if not actor.administers:
        raise NotAllowed()
