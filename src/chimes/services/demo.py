"""Demo data: example schedules with a generated history of two weeks; removable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from chimes.errors import NotAllowed, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import SYSTEM_OWNER, Actor
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import DEFAULT_NAMESPACE, InboxId, NodeId, ScheduleId, declared_id
from chimes.model.listing import RunQuery
from chimes.model.notification import InboxItem
from chimes.model.planning import end_immediately, slot_run
from chimes.model.policy import Misfire, Policy
from chimes.model.run import Attempt, AttemptEnd, LogEntry, Reason, Run, RunStatus
from chimes.model.schedule import Schedule, delete_schedule, plan_after
from chimes.model.target import AgentTarget, FlowTarget, HttpTarget, Target, TaskTarget
from chimes.store.port import Item, RunLog, Store
from chimes.triggers import Cron

# --- schedules and runs (pure, deterministic) -----------------------------------------------------
LABEL = "demo"
NAMESPACE = DEFAULT_NAMESPACE
PAST = timedelta(days=14)
#: Task of `chimes serve --demo`: takes `seconds`, and fails if `fails` is set.
TASK = "chimes_demo"
FAILURE = "RuntimeError"
#: Longest duration of a real demo run, in seconds.
LONGEST = 30.0
#: Stored as messages and translated when displayed.
PAUSED_BECAUSE = _("Example, paused because its target is not available.")
NOT_LIVE = _("Example, runs only on a node started with --demo.")
MADE_UP = "demo data"
NODE = NodeId("demo-node")
#: Only runs of the last days have logs, to keep loading fast.
_LOGGED = timedelta(days=3)
#: An outage in the past: slots within it are missed.
_OUTAGE = (timedelta(days=5, hours=4), timedelta(days=5, hours=2))


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    slug: str
    name: str
    cron: str
    zone: str
    #: None: `TASK`.
    target: Target | None = None
    #: Typical duration in seconds.
    usual: float = 0.2
    #: Fractions of its runs.
    failing: float = 0.0
    skipped: float = 0.0
    #: Number of newest runs that failed.
    failed_last: int = 0
    missed_last: bool = False
    error: str = f"ConnectionError: no response ({MADE_UP})"
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
    """The schedule without history. `live`: a node can execute it; otherwise it is paused."""
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
        # Matches the generated history, in which missed slots were not caught up.
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
class DemoHistory:
    """A schedule with its generated runs."""

    schedule: Schedule
    runs: tuple[Run, ...]
    #: Logs of failed and of recent runs, by run id.
    logs: Mapping[str, tuple[LogEntry, ...]]


def generate_history(
    example: Example, generation: int, now: datetime, *, live: bool
) -> DemoHistory:
    schedule = demo_schedule(example, generation, now, live=live)
    slots = list(_slots(schedule, example, now))
    runs = tuple(
        _run(schedule, example, slot, now, left=len(slots) - 1 - place)
        for place, slot in enumerate(slots)
    )
    return DemoHistory(
        schedule=_with_run_fields(schedule, runs),
        runs=runs,
        logs={
            run.id: _lines(run, example)
            for run in runs
            if run.started_at is not None and (run.error or run.started_at > now - _LOGGED)
        },
    )


def _slots(schedule: Schedule, example: Example, now: datetime) -> Iterator[datetime]:
    """Past slots whose runs have ended even if they took the timeout. A missed slot takes no time,
    so the newest one is always within the last period of its schedule."""
    longest = timedelta(0) if example.missed_last else schedule.policy.timeout * 2
    slot = schedule.trigger.next_after(now - PAST)
    while slot is not None and slot + longest < now:
        yield slot
        slot = schedule.trigger.next_after(slot)


def _run(schedule: Schedule, example: Example, slot: datetime, now: datetime, *, left: int) -> Run:
    """`left`: the number of slots after this one."""
    run = replace(slot_run(schedule, slot, slot), concurrency_key=None)
    chance = _chance(run.id, "end")
    started = slot + timedelta(seconds=_lag(run.id))
    outage = now - _OUTAGE[0] <= slot < now - _OUTAGE[1]
    if outage or (example.missed_last and left == 0):
        ended = min(slot + timedelta(minutes=5), now)
        return replace(
            end_immediately(run, RunStatus.MISSED, Reason.MISFIRE, ended), missed_count=1
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


def _with_run_fields(schedule: Schedule, runs: tuple[Run, ...]) -> Schedule:
    """The schedule with the fields that derive from its runs."""
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
    """Log lines, numbered here because the store loads them unchanged."""
    assert run.started_at is not None
    assert run.finished_at is not None
    length = run.finished_at - run.started_at
    lines: list[tuple[float, str, str]] = [
        (0.0, "info", f"{example.slug}: started on {run.attempts[0].node} ({MADE_UP})"),
        (0.3, "info", f"{example.slug}: {200 + round(_chance(run.id, 'items') * 800)} items to do"),
    ]
    if run.error:
        lines.append((0.6, "warning", f"{example.slug}: no answer yet, still waiting"))
        lines.append((1.0, "error", _trace(run, example)))
    else:
        lines.append((1.0, "info", f"{example.slug}: done in {length.total_seconds():.2f} s"))
    return tuple(
        LogEntry(at=run.started_at + length * share, level=level, message=text, number=number)
        for number, (share, level, text) in enumerate(lines, 1)
    )


def _trace(run: Run, example: Example) -> str:
    """A traceback that matches the error of a failed task."""
    if run.status is not RunStatus.FAILED or not isinstance(run.target, TaskTarget):
        return run.error
    where = f'  File "{example.slug}.py", line 12, in {example.slug}'
    return f"Traceback (most recent call last):\n{where}\n{run.error}"


def _lag(run_id: str) -> float:
    """Lag in seconds: mostly short, sometimes long."""
    usual = 0.02 + 0.3 * _chance(run_id, "lag") ** 3
    return usual + (20 * _chance(run_id, "wait") if _chance(run_id, "busy") > 0.98 else 0.0)


def _chance(*about: str) -> float:
    """A number from 0 to 1 that is determined by the arguments."""
    found = hashlib.blake2b("\0".join(about).encode(), digest_size=4).digest()
    return int.from_bytes(found) / 2**32


# --- inbox messages (pure) ------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True, slots=True)
class _Message:
    slug: str
    #: Slug of its example.
    about: str
    title: str
    text: str
    #: Status of its run, or the kind of message.
    status: str
    #: Age of a message without a run.
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
    return tuple(_message_id(each, generation) for each in _MESSAGES)


def _message_id(message: _Message, generation: int) -> InboxId:
    return InboxId(declared_id(LABEL, f"message {message.slug}", generation))


def generate_messages(
    histories: Mapping[str, DemoHistory], generation: int, now: datetime
) -> tuple[InboxItem, ...]:
    """`histories`: by the slug of the example."""
    return tuple(_item(each, histories[each.about], generation, now) for each in _MESSAGES)


def _item(message: _Message, history: DemoHistory, generation: int, now: datetime) -> InboxItem:
    run = _matching_run(message, history.runs)
    at = now - message.ago if run is None or run.finished_at is None else run.finished_at
    return InboxItem(
        id=_message_id(message, generation),
        owner=SYSTEM_OWNER,
        run_id=None if run is None else run.id,
        schedule_id=history.schedule.id,
        schedule_name=history.schedule.name,
        title=message.title,
        text=message.text,
        status=message.status,
        created_at=at,
        read_at=at if message.read else None,
    )


def _matching_run(message: _Message, runs: Sequence[Run]) -> Run | None:
    """The newest run with the status of the message."""
    return next((run for run in reversed(runs) if run.status.value == message.status), None)


_STATE = "demo"
_REQUIREMENT = TaskTarget(name=TASK).requirement
_BATCH = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class _DemoState:
    #: Part of all ids: each load after a removal uses new ids.
    generation: int = 0
    #: `loading`, `loaded` or `removed`.
    state: str = "removed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    schedules: int = 0
    runs: int = 0


class DemoService:
    """Loads and removes the demo data, which belongs to the system owner. For admins."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def is_loaded(self, actor: Actor) -> bool:
        """Whether demo data is loaded; False if the actor may not see it."""
        if not actor.may_see(SYSTEM_OWNER):
            return False
        return (await self._state()).state != "removed"

    async def load(self, actor: Actor, *, live: bool | None = None) -> int:
        """Adds the schedules and returns their number; 0 if the demo is already loaded.

        `live`: whether a node can execute the examples (None: check the nodes); otherwise they are
        paused. An interrupted load is resumed.
        """
        _require_admin(actor)
        state = await self._state()
        if state.state == "loaded":
            return 0
        generation = state.generation + (state.state == "removed")
        now = await self._store.now()
        if live is None:
            live = any(
                node.lease_until > now and _REQUIREMENT in node.capabilities
                for node in await self._store.nodes()
            )
        await self._save_state(_DemoState(generation=generation, state="loading"), None)
        # Loaded directly, so that no notifications are sent.
        batch: list[Item] = []
        for item in _items(generation, now, live=live):
            batch.append(item)
            if len(batch) == _BATCH:
                await self._store.load(batch)
                batch = []
        await self._store.load(batch)
        await self._save_state(
            _DemoState(generation=generation, state="loaded"), _audit_entry(actor, "load_demo", now)
        )
        return len(EXAMPLES)

    async def remove(self, actor: Actor) -> Removed:
        """Removes the examples, their runs and messages, also if users changed or ran them."""
        _require_admin(actor)
        state = await self._state()
        if state.state == "removed":
            return Removed()
        now = await self._store.now()
        schedules = runs = 0
        for schedule_id in demo_ids(state.generation):
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
                    # Still active; retention deletes them later.
                    break
        await self._store.forget_inbox(message_ids(state.generation))
        await self._save_state(
            _DemoState(generation=state.generation, state="removed"),
            _audit_entry(actor, "remove_demo", now),
        )
        return Removed(schedules=schedules, runs=runs)

    async def _state(self) -> _DemoState:
        state = await self._store.get_checkpoint(_STATE)
        return _DemoState() if state is None else _DemoState(**json.loads(state.value))

    async def _save_state(self, state: _DemoState, audit: AuditEntry | None) -> None:
        value = json.dumps({"generation": state.generation, "state": state.state})
        await self._store.set_checkpoint(_STATE, value, audit)


def _items(generation: int, now: datetime, *, live: bool) -> Iterator[Item]:
    histories = {each.slug: generate_history(each, generation, now, live=live) for each in EXAMPLES}
    for history in histories.values():
        yield history.schedule
        yield from history.runs
        for run in history.runs:
            if run.id in history.logs:
                yield RunLog(run_id=run.id, entries=history.logs[run.id])
    yield from generate_messages(histories, generation, now)


def _audit_entry(actor: Actor, verb: str, now: datetime) -> AuditEntry:
    return entry(actor, verb, "demo", _STATE, at=now, owner=SYSTEM_OWNER)


def _require_admin(actor: Actor) -> None:
    if not actor.administers:
        raise NotAllowed()
