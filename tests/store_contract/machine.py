"""A machine that drives a store and the memory store through the same random life.

Every answer is compared as a whole value, the contents at the end, and the safety rules of
RELIABILITY section 2 after every step. Faults that need several steps in a row (a stall past the
lease with a takeover, a run that kills its nodes) are single rules: left to chance they are never
reached. `reached` counts what happened; a life in which nothing was fenced proves nothing (I15).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from chimes.clock import Clock
from chimes.errors import AlreadyExists, ChimesError
from chimes.model.ids import NodeId, RunId, ScheduleId
from chimes.model.listing import RunQuery, RunSort, ScheduleQuery, ScheduleSort
from chimes.model.node import Beat
from chimes.model.planning import (
    backfill_run,
    ended_at_once,
    manual_run,
    plan,
    retry_run,
    slot_run,
)
from chimes.model.policy import Misfire, OnLost, Overlap, Policy
from chimes.model.run import CRASH_LIMIT, AttemptEnd, Reason, Run, RunStatus, Verdict
from chimes.model.schedule import (
    Dependency,
    Schedule,
    deleted,
    edited,
    moved,
    passed,
    paused,
    rescheduled,
    resumed,
)
from chimes.store.memory import MemoryStore
from chimes.store.port import Fired, Store
from chimes.testing import SettableClock
from chimes.triggers import Every, Once
from tests.builders import (
    LEASE,
    NOW,
    SECOND,
    a_node,
    a_retry,
    a_schedule,
    a_verdict,
    an_entry,
    log_lines,
    places,
)
from tests.store_contract.scenes import all_runs, contents

POLICIES = (
    Policy(),
    Policy(misfire=Misfire.SKIP, misfire_grace=SECOND),
    Policy(misfire=Misfire.ALL, misfire_grace=SECOND, catch_up_limit=3, overlap=Overlap.QUEUE),
    Policy(overlap=Overlap.CANCEL_OLD, max_retries=2),
    Policy(overlap=Overlap.QUEUE, max_concurrent_runs=2, misfire=Misfire.ALL),
    Policy(overlap=Overlap.ALLOW, on_lost=OnLost.STOP),
)
INTERVALS = (5, 12, 40)
STALE_DEEDS = ("beat", "claim", "start", "log", "release", "finish")
ENDS = (AttemptEnd.SUCCEEDED, AttemptEnd.FAILED, AttemptEnd.TIMEOUT, AttemptEnd.CANCELED)
#: Durability is proved elsewhere; a thousand lives should not wait for a disk.
IN_MEMORY = Path("/dev/shm")
index = st.integers(0, 1000)
amount = st.integers(1, 4)


@dataclass(frozen=True)
class Told:
    """A verdict that was sent, and whether the store took it."""

    verdict: Verdict
    accepted: bool


class StoreMachine(RuleBasedStateMachine):
    make_subject: ClassVar[Callable[[Path, Clock], Store]]
    reached: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = SettableClock()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
        self.subject = type(self).make_subject(Path(self.directory.name), self.clock)
        self.reference: Store = MemoryStore(clock=self.clock)
        self._wait(self.subject.open())
        self._wait(self.reference.open())
        self.schedules: list[ScheduleId] = []
        self.nodes: list[NodeId] = []
        #: Runs as they were handed out; some are stale by now.
        self.held: list[Run] = []
        self.told: list[Told] = []
        self.last_seen: dict[RunId, Run] = {}
        self.made = 0
        self.join()

    def teardown(self) -> None:
        try:
            self._drain()
            assert self._wait(contents(self.subject)) == self._wait(contents(self.reference))
        finally:
            self._wait(self.subject.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.directory.cleanup()

    # --- both stores --------------------------------------------------------------------------
    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def _both(self, verb: str, *given: Any, **named: Any) -> Any:
        answers = [
            self._wait(_answer(getattr(store, verb)(*given, **named)))
            for store in (self.reference, self.subject)
        ]
        assert answers[1] == answers[0], f"{verb} answered differently"
        return answers[0]

    def _pick(self, rows: Sequence[Any], number: int) -> Any:
        return rows[number % len(rows)]

    def _now(self) -> datetime:
        return self.clock.now()

    def _runs(self) -> dict[str, Run]:
        return self._wait(all_runs(self.reference))

    # --- nodes --------------------------------------------------------------------------------
    @precondition(lambda self: len(self.nodes) < 4)
    @rule()
    def join(self) -> None:
        self.made += 1
        self._both("join", a_node(f"node-{self.made}"), LEASE)
        self.nodes.append(NodeId(f"node-{self.made}"))

    @rule(number=index, skew=st.sampled_from([-600, 0, 600]))
    def beat(self, number: int, skew: int) -> None:
        node = self._pick(self.nodes, number)
        self._beat(node, skew)

    def _beat(self, node: NodeId, skew: int = 0) -> Beat:
        clock = self._now() + timedelta(seconds=skew)
        answer: Beat = self._both("beat", node, LEASE, clock=clock)
        self.reached["beat refused"] += not answer.alive
        self.reached["cancel heard"] += bool(answer.cancel)
        return answer

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(number=index)
    def leave(self, number: int) -> None:
        node = self._pick(self.nodes, number)
        self.nodes.remove(node)
        self._both("leave", node)

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(number=index)
    def die(self, number: int) -> None:
        """kill -9: nothing is said, the lease runs out some time."""
        self.nodes.remove(self._pick(self.nodes, number))

    @rule()
    def rescue(self) -> None:
        rescued = self._both("rescue", limit=1000)
        self.reached["rescued"] += len(rescued)
        self.reached["crash limit"] += sum(run.reason == Reason.CRASH_LIMIT for run in rescued)
        self.reached["unknown"] += sum(run.status is RunStatus.UNKNOWN for run in rescued)
        self._both("nodes")

    # --- time ---------------------------------------------------------------------------------
    @rule(seconds=st.integers(1, 12), beating=st.booleans())
    def advance(self, seconds: int, beating: bool) -> None:
        self.clock.advance(seconds)
        for node in self.nodes if beating else ():
            self._beat(node)

    @rule(seconds=st.sampled_from([70, 200]))
    def outage(self, seconds: int) -> None:
        """Everything stands still; on waking the nodes find their leases ended."""
        self.clock.advance(seconds)
        self.rescue()
        self.nodes.clear()
        self.join()

    # --- schedules ----------------------------------------------------------------------------
    @initialize(first=index, interval=st.sampled_from(INTERVALS), priority=st.integers(-1, 1))
    def furnish(self, first: int, interval: int, priority: int) -> None:
        """An empty store has nothing to get wrong."""
        for number in (first, first + 1, len(POLICIES) - 1):
            self.add_schedule(number, interval, priority, number % 2 == 0, None, number % 5 == 0)
        for _ in range(2):
            self.work(first, interval, 2)

    @precondition(lambda self: len(self.schedules) < 6)
    @rule(
        number=index,
        interval=st.sampled_from(INTERVALS),
        priority=st.integers(-1, 1),
        jitter=st.booleans(),
        max_runs=st.sampled_from([None, None, 3]),
        depends=st.booleans(),
    )
    def add_schedule(
        self,
        number: int,
        interval: int,
        priority: int,
        jitter: bool,
        max_runs: int | None,
        depends: bool,
    ) -> None:
        now = self._now()
        every = Every(
            timedelta(seconds=interval),
            anchor=now,
            jitter=timedelta(seconds=interval // 2) if jitter else None,
            max_runs=max_runs,
        )
        schedule = a_schedule(
            id=ScheduleId(f"s{len(self.schedules)}"),
            trigger=Once(now + timedelta(seconds=interval)) if number % 7 == 0 else every,
            policy=self._pick(POLICIES, number),
            priority=priority,
            depends_on=Dependency(schedule_id=ScheduleId("s0")) if depends and number % 3 else None,
            created_at=now,
            updated_at=now,
            next_slot=now,
            next_run_at=now,
        )
        self._both("add_schedule", schedule, an_entry(at=now, verb="create"), quota=6)
        self.schedules.append(schedule.id)

    def _change(
        self,
        number: int,
        change: Callable[[Schedule, datetime], Schedule],
        **named: Any,
    ) -> None:
        schedule_id = self._pick(self.schedules, number)
        self._both("change_schedule", schedule_id, change, **named)

    @precondition(lambda self: self.schedules)
    @rule(number=index)
    def pause(self, number: int) -> None:
        self._change(number, lambda s, now: paused(s, now, "me", note="x"))

    @precondition(lambda self: self.schedules)
    @rule(number=index)
    def resume(self, number: int) -> None:
        self._change(number, lambda s, now: resumed(s, now, "me"))

    @precondition(lambda self: self.schedules)
    @rule(number=index, policy=st.sampled_from(POLICIES), priority=st.integers(-1, 1))
    def edit(self, number: int, policy: Policy, priority: int) -> None:
        self._change(
            number,
            lambda s, now: edited(s, replace(s, policy=policy, priority=priority), now, "me"),
        )

    @precondition(lambda self: self.schedules)
    @rule(number=index, interval=st.sampled_from(INTERVALS))
    def edit_trigger(self, number: int, interval: int) -> None:
        trigger = Every(timedelta(seconds=interval), anchor=NOW)
        self._change(number, lambda s, now: edited(s, replace(s, trigger=trigger), now, "me"))

    @precondition(lambda self: self.schedules)
    @rule(number=index)
    def delete(self, number: int) -> None:
        self._change(number, lambda s, now: deleted(s, now, "me"))

    @precondition(lambda self: self.schedules)
    @rule(number=index, seconds=st.integers(-20, 40), keep_slot=st.booleans())
    def move(self, number: int, seconds: int, keep_slot: bool) -> None:
        step = timedelta(seconds=seconds)

        def change(schedule: Schedule, now: datetime) -> Schedule:
            if schedule.next_slot is None:
                return schedule
            how = moved if keep_slot else rescheduled
            return how(schedule, now + step, now, "me")

        self._change(number, change)

    @precondition(lambda self: self.schedules)
    @rule(number=index)
    def skip(self, number: int) -> None:
        def change(schedule: Schedule, now: datetime) -> Schedule:
            return passed(schedule, now, "me") if schedule.next_slot else schedule

        def rows(schedule: Schedule, now: datetime) -> list[Run]:
            if schedule.next_slot is None:
                return []
            run = slot_run(schedule, schedule.next_slot, now)
            return [ended_at_once(run, RunStatus.SKIPPED, Reason.SKIPPED_BY_HAND, now)]

        self._change(number, change, runs=rows)

    @precondition(lambda self: self.schedules)
    @rule(number=index, intervals=st.integers(1, 3))
    def rewind_cursor(self, number: int, intervals: int) -> None:
        """A backfill gone wrong, an edit by hand, a store's clock set back."""

        def change(schedule: Schedule, now: datetime) -> Schedule:
            slot = schedule.next_slot
            for _ in range(intervals if slot is not None else 0):
                assert slot is not None
                slot = schedule.trigger.previous_before(slot) or slot
            return replace(schedule, next_slot=slot, next_run_at=slot)

        self._change(number, change)

    # --- firing and claiming ------------------------------------------------------------------
    @rule(number=index, limit=st.sampled_from([1, 2, 10]), free=st.integers(0, 3))
    def fire(self, number: int, limit: int, free: int) -> None:
        node = self._pick(self.nodes, number)
        given = places(node, free) if number % 4 else None
        fired: Fired = self._both("fire_due", plan, limit=limit, places=given)
        self.held.extend(fired.claimed)
        self.reached["fired claimed"] += len(fired.claimed)
        for run in fired.others:
            self.reached["fired " + ("blocked" if run.blocked else run.status)] += 1
        assert not fired.broken

    @rule(number=index, seconds=st.integers(1, 12), free=amount)
    def work(self, number: int, seconds: int, free: int) -> None:
        """What a healthy node does all day."""
        self.advance(seconds, beating=True)
        self.fire(number | 1, 10, free)
        self.claim(number, free)

    @rule(number=index, free=amount)
    def claim(self, number: int, free: int) -> None:
        self._claim(self._pick(self.nodes, number), free)

    def _claim(self, node: NodeId, free: int) -> tuple[Run, ...]:
        claimed: tuple[Run, ...] = self._both("claim", places(node, free))
        self.held.extend(claimed)
        self.reached["claimed"] += len(claimed)
        return claimed

    # --- work ---------------------------------------------------------------------------------
    @precondition(lambda self: self.held)
    @rule(number=index)
    def start(self, number: int) -> None:
        run = self._pick(self.held, number)
        self._both("start", run.id, run.fence)

    @precondition(lambda self: self.held)
    @rule(number=index, lines=amount)
    def write_logs(self, number: int, lines: int) -> None:
        run = self._pick(self.held, number)
        self._both("append_logs", run.id, run.fence, log_lines(*map(str, range(lines))))
        self._both("read_logs", run.id, after=lines - 1, limit=3)

    @precondition(lambda self: self.held)
    @rule(number=index, end=st.sampled_from(ENDS), gone=st.booleans())
    def finish(self, number: int, end: AttemptEnd, gone: bool) -> None:
        run = self.held.pop(number % len(self.held))
        pause = "gone" if gone and end is AttemptEnd.FAILED else ""
        logs = tuple(log_lines("end"))
        self._tell(a_verdict(run, self._now(), end, logs=logs, pause_schedule=pause))
        self.tell_again(-1)

    @precondition(lambda self: self.held)
    @rule(number=index, seconds=st.integers(0, 8))
    def finish_with_retry(self, number: int, seconds: int) -> None:
        run = self.held.pop(number % len(self.held))
        self._tell(a_retry(run, self._now(), timedelta(seconds=seconds)))
        self.tell_again(-1)

    @precondition(lambda self: len(self.held) > 1)
    @rule()
    def finish_all(self) -> None:
        """A batch: good ones, stale ones and twins of each other."""
        verdicts = [a_verdict(run, self._now()) for run in self.held]
        self.held.clear()
        self._tell(*verdicts, verdicts[0])

    def _tell(self, *verdicts: Verdict) -> None:
        finished = self._both("finish", verdicts)
        self.reached["accepted"] += len(finished.accepted)
        self.reached["fenced"] += len(finished.refused)
        self.told.extend(
            Told(verdict, verdict.run_id not in finished.refused) for verdict in verdicts
        )

    # F23: the answer was lost
    @precondition(lambda self: self.told)
    @rule(number=index)
    def tell_again(self, number: int) -> None:
        told = self._pick(self.told, number)
        finished = self._both("finish", [told.verdict])
        pruned = told.verdict.run_id not in self._runs()
        assert bool(finished.accepted) == (told.accepted and not pruned)
        self.reached["replayed"] += told.accepted
        self.reached["stale again"] += not told.accepted

    @precondition(lambda self: self.held)
    @rule(number=index)
    def release(self, number: int) -> None:
        run = self._pick(self.held, number)
        self._both("release", [(run.id, run.fence)])

    # F14-F16
    @precondition(lambda self: self.held)
    @rule(number=index, deeds=st.permutations(STALE_DEEDS), again=st.booleans())
    def stall_past_lease(self, number: int, deeds: list[str], again: bool) -> None:
        """The holder sleeps past its lease, another node takes over, the first one wakes and goes
        on as if nothing had happened."""
        run = self.held.pop(number % len(self.held))
        assert run.holder is not None
        self.clock.advance(LEASE)
        self.rescue()
        self.nodes.clear()
        self.join()
        taken = self._claim(self.nodes[0], 50)
        self.reached["taken over"] += any(each.id == run.id for each in taken)
        for deed in deeds:
            match deed:
                case "beat":
                    assert not self._beat(run.holder).alive
                case "claim":
                    assert self._both("claim", places(run.holder, 9)) == ()
                case "start":
                    self._both("start", run.id, run.fence)
                case "log":
                    self._both("append_logs", run.id, run.fence, log_lines("stale"))
                case "release":
                    self._both("release", [(run.id, run.fence)])
                case "finish" if again:
                    self._tell(a_retry(run, self._now(), SECOND))
                case "finish":
                    self._tell(a_verdict(run, self._now()))
                    self.tell_again(-1)

    # F66
    @rule(times=st.integers(1, CRASH_LIMIT + 1), begun=st.booleans())
    def poison(self, times: int, begun: bool) -> None:
        """Whatever is claimed kills its node, several times in a row."""
        self.clock.advance(max(INTERVALS))
        self.fire(0, 10, 0)
        self.nodes.clear()
        for _ in range(times):
            self.made += 1
            victim = NodeId(f"victim-{self.made}")
            self._both("join", a_node(victim), LEASE)
            for run in self._both("claim", places(victim, 5)):
                self.held.append(run)
                if begun:
                    self._both("start", run.id, run.fence)
            self.clock.advance(LEASE)
            self.rescue()
        self.join()

    # --- runs by hand -------------------------------------------------------------------------
    @precondition(lambda self: self.schedules)
    @rule(number=index, beside=st.booleans())
    def run_now(self, number: int, beside: bool) -> None:
        schedule = self._both("get_schedule", self._pick(self.schedules, number))
        run = manual_run(schedule, self._now(), beside_others=beside)
        self.made += 1
        self._both("add_runs", [replace(run, id=RunId(f"manual-{self.made}"))], an_entry())

    @precondition(lambda self: self.schedules)
    @rule(number=index, count=amount)
    def backfill(self, number: int, count: int) -> None:
        schedule = self._both("get_schedule", self._pick(self.schedules, number))
        slots: list[datetime] = []
        slot = schedule.trigger.previous_before(self._now())
        while slot is not None and len(slots) < count:
            slots.append(slot)
            slot = schedule.trigger.previous_before(slot)
        taken = self._both("slots_taken", schedule.id, slots)
        now = self._now()
        rows = [
            backfill_run(schedule, slot, taken.get(slot), now)
            for slot in slots
            if schedule.purged_until is None or slot > schedule.purged_until
        ]
        self._both("add_runs", rows)

    @precondition(lambda self: self.last_seen)
    @rule(number=index)
    def cancel(self, number: int) -> None:
        running = [run.id for run in self.last_seen.values() if run.status is RunStatus.RUNNING]
        run_id = self._pick(sorted(running or self.last_seen), number)
        run = self._both("cancel_run", run_id, Reason.CANCELED_BY_HAND, an_entry(verb="cancel"))
        if run is not None and run.holder is not None:
            self._beat(run.holder)

    @precondition(lambda self: self.last_seen)
    @rule(number=index)
    def retry_by_hand(self, number: int) -> None:
        run = self._both("get_run", self._pick(sorted(self.last_seen), number))
        if run is not None and run.status.terminal:
            self.made += 1
            again = replace(retry_run(run, self._now()), id=RunId(f"again-{self.made}"))
            self._both("add_runs", [again])

    @rule(age=st.sampled_from([10, 60]), limit=st.sampled_from([2, 100]))
    def prune(self, age: int, limit: int) -> None:
        before = self._now() - timedelta(seconds=age)
        self.reached["pruned"] += self._both("prune_runs", before=before, limit=limit)
        gone = self.last_seen.keys() - self._runs().keys()
        for run_id in gone:
            assert self.last_seen.pop(run_id).status.terminal

    # --- questions ----------------------------------------------------------------------------
    @rule(
        number=index,
        by=st.sampled_from(ScheduleSort),
        sort=st.sampled_from(RunSort),
        descending=st.booleans(),
        limit=amount,
        status=st.sampled_from([None, *RunStatus]),
    )
    def ask(
        self,
        number: int,
        by: ScheduleSort,
        sort: RunSort,
        descending: bool,
        limit: int,
        status: RunStatus | None,
    ) -> None:
        for verb in ("next_due", "next_available", "counts", "nodes"):
            self._both(verb)
        schedules = ScheduleQuery(sort=by, descending=descending, limit=limit)
        self._pages(partial(self._both, "list_schedules"), schedules)
        self._both("count_schedules", schedules)
        statuses = (status,) if status else ()
        runs = RunQuery(sort=sort, descending=descending, limit=limit, statuses=statuses)
        self._pages(partial(self._both, "list_runs"), runs)
        taken = a_schedule(id=self._pick(self.schedules, number))
        assert self._both("add_schedule", taken) is AlreadyExists

    def _pages(self, ask: Callable[[Any], Any], query: Any) -> None:
        for _ in range(3):
            page = ask(query)
            if page.next is None:
                return
            query = replace(query, after=page.next)

    # --- what always holds --------------------------------------------------------------------
    @invariant()
    def is_safe(self) -> None:
        """I2, I4, I5, F66, C6 on the reference; the other store gives the same answers."""
        runs = self._runs()
        slots = Counter((run.schedule_id, run.slot) for run in runs.values() if run.slot)
        assert all(times == 1 for times in slots.values())
        admitted: Counter[str] = Counter()
        limits: dict[str, int] = {}
        for run in runs.values():
            before = self.last_seen.get(run.id)
            if before is not None:
                assert before == run or not before.status.terminal, "an ended run changed"
                assert run.fence >= before.fence
                assert len(run.attempts) >= len(before.attempts)
            assert run.crashes <= CRASH_LIMIT
            assert (run.holder is None) == (run.status is not RunStatus.RUNNING)
            if run.concurrency_key and run.admitted:
                admitted[run.concurrency_key] += 1
                limits[run.concurrency_key] = max(
                    limits.get(run.concurrency_key, 0), run.concurrency_limit
                )
        assert all(times <= limits[key] for key, times in admitted.items())
        self.last_seen = dict(runs)

    def _drain(self) -> None:
        """I3: with one healthy node and all the time of the world, every run ends."""
        self.clock.advance(LEASE)
        self.rescue()
        for schedule_id in self.schedules:
            self._both("change_schedule", schedule_id, lambda s, now: paused(s, now, "me"))
        self.made += 1
        drainer = NodeId(f"drainer-{self.made}")
        self._both("join", a_node(drainer), timedelta(days=1))
        while claimed := self._both("claim", places(drainer, 50)):
            self._tell(*(a_verdict(run, self._now()) for run in claimed))
            self.clock.advance(SECOND)
        waiting = [run for run in self._runs().values() if not run.status.terminal]
        assert all(run.available_at > self._now() for run in waiting), "a run never ends"
        if waiting:
            self.clock.set(max(run.available_at for run in waiting))
            for run in self._both("claim", places(drainer, 1000)):
                self._tell(a_verdict(run, self._now()))
        assert all(run.status.terminal for run in self._runs().values())


async def _answer(work: Coroutine[Any, Any, Any]) -> Any:
    """What the verb returned, or the kind of error; rows whose order means nothing are sorted."""
    try:
        answer = await work
    except ChimesError as error:
        return type(error)
    if isinstance(answer, Fired):
        return replace(
            answer,
            others=tuple(sorted(answer.others, key=_id)),
            broken=tuple(sorted(answer.broken, key=_id)),
        )
    if isinstance(answer, Beat):
        return replace(answer, cancel=tuple(sorted(answer.cancel)))
    return answer


def _id(row: Run | Schedule) -> str:
    return row.id


def machine_for(make: Callable[[Path, Clock], Store]) -> type[StoreMachine]:
    """A machine class of its own, so that two stores do not share what was reached."""
    name = "StoreMachine"
    return type(name, (StoreMachine,), {"make_subject": staticmethod(make), "reached": Counter()})
