"""The runs that this process has in hand: from the claim to the store's answer to the verdict."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime

from chimes.clock import Clock
from chimes.engine.capacity import Capacity
from chimes.engine.checkpoints import state_of
from chimes.engine.events import (
    CompletionFenced,
    Events,
    RunDropped,
    RunEnded,
    RunHandedOn,
    RunRetrying,
    RunStarted,
    TargetBroken,
    TargetStuck,
)
from chimes.engine.flow_steps import FlowSteps
from chimes.engine.in_flight import InFlightRun, Stop
from chimes.engine.membership import Membership, StoreClock
from chimes.engine.prefetch import Outlook, WaitingRoom
from chimes.engine.recorder import LiveLogs, Recorder
from chimes.errors import StoreUnavailable, told
from chimes.failpoints import hit
from chimes.i18n import _, joined
from chimes.model.change import maker, replace
from chimes.model.ids import RunId
from chimes.model.policy import OnLost
from chimes.model.run import Attempt, AttemptEnd, Completion, Outcome, Run, judged
from chimes.store.port import LookingAhead, Store
from chimes.targets.base import Call, NotHere, TargetRunner

# @@ The tasks that carry out attempts, one attempt after another.
#
# Most attempts end without ever waiting, and a task for each would cost as much as they do. One
# that waits has its task to itself from then on, and others go on with those behind it: twice as
# many whenever all of them were found waiting, so that a crowd of attempts that wait is soon
# under way.

#: Attempts in a row that one task carried out without waiting, after which one is enough.
ENOUGH = 20


class TaskPool:
    def __init__(self, carry_out: Callable[[InFlightRun], Awaitable[None]]) -> None:
        self._carry_out = carry_out
        #: In the order in which they begin.
        self._line: deque[InFlightRun] = deque()
        #: How many start at once; more than one where attempts usually wait.
        self._width = 1
        self._relief: asyncio.Handle | None = None
        #: A task that nobody refers to may be collected.
        self._tasks: set[asyncio.Task[None]] = set()
        #: Every carrier begins with this one, whoever starts it.
        self._context = contextvars.copy_context()

    def put(self, holds: Iterable[InFlightRun]) -> None:
        self._line.extend(holds)
        self._start()

    def _start(self) -> None:
        for _unused in range(min(self._width, len(self._line))):
            task = asyncio.create_task(self._carry(), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._line:
            if self._relief is not None:
                self._relief.cancel()
            # Behind the first steps of those.
            self._relief = asyncio.get_running_loop().call_soon(self._relieve)

    def _relieve(self) -> None:
        self._relief = None
        if self._line:
            self._width = min(self._width * 2, len(self._line))
            self._start()

    async def _carry(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        waited = Flag()
        # Comes to its turn as soon as this task waits for anything.
        asyncio.get_running_loop().call_soon(waited.set)
        in_a_row = 0
        while self._line:
            hold = self._line.popleft()
            if hold.handed_over:
                continue
            hold.task = task
            try:
                await self._carry_out(hold)
            except Exception:
                self._start()
                raise
            if waited.is_set or task.cancelling():
                # Who waited may have left something behind in its task, above all that it was
                # told to stop: nobody else is to find it.
                self._start()
                return
            in_a_row += 1
            if in_a_row == ENOUGH:
                self._width = 1


class Flag:
    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        self.is_set = True


# @@ One attempt: from a claimed run to the verdict on it.

_make_call = maker(Call)
_make_attempt = maker(Attempt)
_make_started = maker(RunStarted)


class Execution:
    def __init__(
        self,
        store: Store,
        runners: Mapping[str, TargetRunner],
        membership: Membership,
        steps: FlowSteps,
        *,
        clock: Clock,
        time: StoreClock,
        events: Events,
    ) -> None:
        self._store = store
        self._runners = runners
        self._membership = membership
        self._steps = steps
        self._clock = clock
        self._time = time
        self._events = events

    async def attempt(self, hold: InFlightRun) -> Outcome | None:
        """None: there is no verdict to write. If the attempt has not begun then, no effect can
        have happened and the run may be given back."""
        run = hold.run
        try:
            hit("run.claimed")
            if _marks_its_start(run):
                hold.began = self._clock.monotonic()
                if not self._membership.trusted or not await self._marked(run):
                    return None
            hit("run.started")
            hit("run.before_effect")
            # The last look before the effect: the process may have stood still meanwhile (F14).
            if not self._membership.trusted:
                return None
            self._begin(hold)
            outcome = await self._execute(hold)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if hold.stop is None or task is None:
                raise
            task.uncancel()
            return self.stopped(hold)
        except NotHere:
            hold.begun = False
            hold.capacity.stand_back(run.target.needs)
            self._events.emit(RunHandedOn(run=run))
            return None
        except Exception as error:
            self._events.emit(TargetBroken(run=run, error=error))
            outcome = Outcome(
                end=AttemptEnd.FAILED,
                retryable=True,
                error=joined(": ", (type(error).__name__, told(error))),
                code="target_error",
            )
        hold.ended = self._clock.monotonic()
        return outcome

    def stopped(self, hold: InFlightRun) -> Outcome | None:
        """What came of an attempt that was told to stop; None where a new attempt is due."""
        match hold.stop:
            case Stop.CANCEL:
                return Outcome(end=AttemptEnd.CANCELED, code=hold.reason)
            case Stop.TIMEOUT:
                return Outcome(
                    end=AttemptEnd.TIMEOUT,
                    # Another attempt would find the same steps, and no time left either.
                    retryable=not hold.run.resumable,
                    error=_(
                        "no answer within {seconds:g} s",
                        seconds=hold.run.policy.timeout.total_seconds(),
                    ),
                    code="timeout",
                )
            case _:
                if hold.begun and hold.run.resumable:
                    self._events.emit(RunHandedOn(run=hold.run))
                elif hold.begun:
                    self._events.emit(RunDropped(run=hold.run, why=hold.stop or Stop.LOST))
                return None

    def now(self) -> datetime:
        """The store's time, near enough for a line of a log."""
        return self._time.now()

    def overtime(self, hold: InFlightRun) -> float:
        """Seconds past its deadline. Each attempt has its own time; what is resumable has it
        once, from its first start."""
        run = hold.run
        if run.resumable and run.started_at is not None:
            return (self._time.now() - run.started_at - run.policy.timeout).total_seconds()
        return self._clock.monotonic() - hold.began - run.policy.timeout.total_seconds()

    async def _marked(self, run: Run) -> bool:
        try:
            return await self._store.start(run.id, run.fence)
        except StoreUnavailable:
            return False

    def _begin(self, hold: InFlightRun) -> None:
        hold.began = self._clock.monotonic()
        run = hold.run
        due = run.planned_at if run.attempt == 1 else run.available_at
        # The store has said that it is due: a guess at its time that lies before is wrong.
        now = max(self._time.at(hold.began), due)
        hold.begun = True
        hold.began_at = now
        self._events.emit(_make_started(run, (now - due).total_seconds()))

    async def _execute(self, hold: InFlightRun) -> Outcome:
        run = hold.run
        runner = self._runners[run.target.kind]
        call = _make_call(
            run,
            hold.began_at,
            hold.add_log,
            None,  # steps
            state_of(self._store, run),
            hold.is_canceled,
            hold.ends_its_run,
            hold.unwritten,
        )
        if not run.resumable:
            return await runner.execute(call)
        try:
            return await runner.execute(replace(call, steps=self._steps.of(run)))
        finally:
            self._steps.forget(run)

    def verdict(self, hold: InFlightRun, outcome: Outcome) -> Completion:
        run = hold.run
        ended = self._clock.monotonic() if hold.ended is None else hold.ended
        now = max(self._time.at(ended), hold.began_at or run.created_at)
        hold.seconds = ended - hold.began if hold.begun else 0.0
        attempt = outcome.completed or _make_attempt(
            run.attempt,
            run.fence,
            run.holder or self._membership.node_id,
            hold.began_at or now,  # started_at
            now,
            outcome.end,
            outcome.error,
        )
        return judged(run, outcome, attempt, hold.logs)


def _marks_its_start(run: Run) -> bool:
    return run.policy.on_lost is OnLost.STOP and not run.resumable


#: How much longer than its own deadline a target may take before it is stopped from outside.
GUARD_SLACK = 0.5
#: Seconds between two looks for targets that take longer.
SWEEP = 0.25
#: How long a target may go on after it was told to stop.
STUCK_AFTER = 5.0

_make_ended = maker(RunEnded)


class Executor:
    def __init__(
        self,
        store: Store,
        execution: Execution,
        steps: FlowSteps,
        events: Events,
        clock: Clock,
        time: StoreClock | None = None,
    ) -> None:
        """Without a time nothing waits here for its own."""
        self._execution = execution
        self._steps = steps
        self._events = events
        #: Set when there is something to look after: a run in hand, one to give back, a doubt.
        self.stirred = asyncio.Event()
        self._holds: dict[tuple[RunId, int], InFlightRun] = {}
        self._unstarted: list[tuple[RunId, int]] = []
        self._dropped: set[tuple[RunId, int]] = set()
        self._draining = False
        self._sweeping = False
        #: Targets so far that did not stop when told.
        self.stuck = 0
        #: Runs so far that were begun with.
        self.taken = 0
        self.recorder = Recorder(store, self._settled)
        self.logs = LiveLogs(store, clock, self.recorder.put)
        #: Where the store takes crowds ahead of their time.
        self.outlook: Outlook | None = None
        self.room: WaitingRoom | None = None
        if time is not None and isinstance(store, LookingAhead) and store.looks_ahead:
            self.outlook = Outlook(store, clock)
            self.room = WaitingRoom(
                store,
                time,
                go=self._go,
                turn_away=lambda hold: self.stop(hold, Stop.LOST),
            )
        self._carriers = TaskPool(self._carry_out)
        #: Attempts of crowds whose targets have answered.
        self._answered: list[tuple[InFlightRun, Outcome | None]] = []
        self.empty = asyncio.Event()
        self.empty.set()

    @property
    def running(self) -> tuple[RunId, ...]:
        return tuple(run_id for run_id, _unused in self._holds)

    @property
    def count(self) -> int:
        """Of those; safe from any thread."""
        return len(self._holds)

    @property
    def executing(self) -> dict[tuple[RunId, int], InFlightRun]:
        """Those whose target has not answered yet."""
        return {key: hold for key, hold in self._holds.items() if not hold.handed_over}

    @property
    def only_waiting(self) -> bool:
        """Whether nothing is being carried out but what waits for its time."""
        return all(hold.waiting or hold.handed_over for hold in self._holds.values())

    def knows(self, run: Run) -> bool:
        """Whether it is in hand, or was let go after it had begun: giving that back would say
        that nothing has happened."""
        key = run.id, run.fence
        return key in self._holds or key in self._dropped

    def take(self, runs: Iterable[Run], capacity: Capacity) -> int:
        """Begin with runs that were claimed for this node; how many of the places they fill."""
        taken = 0
        at_once: list[InFlightRun] = []
        for run in runs:
            if self._draining:
                self._unstarted.append((run.id, run.fence))
                continue
            hold = InFlightRun(run, capacity, self.logs.watch, self._execution.now)
            self._holds[run.id, run.fence] = hold
            if run.ahead and self.room is not None:
                self.room.admit(hold)
            else:
                at_once.append(hold)
            taken += 1
        self._carriers.put(at_once)
        self.taken += taken
        if taken:
            self.empty.clear()
            self._look_out()
        if taken or self._unstarted:
            self.stirred.set()
        return taken

    def stop(self, hold: InFlightRun, why: Stop, reason: str = "") -> None:
        if hold.stop is not None or hold.handed_over or hold.ended is not None:
            return
        hold.stop, hold.reason = why, reason
        if hold.waiting:
            # It has not begun, whatever the reason: the store knows what to do with it.
            self._hand_over(hold, None)
            return
        if hold.task is None:
            # Nobody has come to it yet.
            self._ended(hold)
            return
        hold.task.cancel()
        # Its task may have ended without a word, by somebody else's doing.
        hold.task.add_done_callback(lambda _unused: self._ended(hold))
        if hold.timer is not None:
            hold.timer.cancel()
        hold.timer = asyncio.get_running_loop().call_later(STUCK_AFTER, self._stuck, hold)

    def stop_all(self, why: Stop) -> int:
        holds = list(self.executing.values())
        for hold in holds:
            self.stop(hold, why)
        return len(holds)

    def stop_taking(self) -> None:
        """Runs that have not begun are given back, those that come in late too, and those that
        another node can go on with (F69)."""
        self._draining = True
        for hold in self.executing.values():
            if not hold.begun or hold.run.resumable:
                self.stop(hold, Stop.DRAIN)

    def take_again(self) -> None:
        self._draining = False

    def unstarted(self) -> Sequence[tuple[RunId, int]]:
        """What can be given back to the store without a trace."""
        return tuple(self._unstarted)

    def given_back(self, holds: Sequence[tuple[RunId, int]]) -> None:
        self._unstarted = [hold for hold in self._unstarted if hold not in holds]

    @property
    def dropped(self) -> frozenset[tuple[RunId, int]]:
        """Begun and let go without a verdict, as far as this node may still own them."""
        return frozenset(self._dropped)

    def forget(self, dropped: Iterable[tuple[RunId, int]]) -> None:
        """They are not this node's any more."""
        self._dropped.difference_update(dropped)

    def _go(self, holds: Sequence[InFlightRun]) -> None:
        for hold in holds:
            hold.waiting = False
        self._carriers.put(holds)

    async def _carry_out(self, hold: InFlightRun) -> None:
        outcome = await self._execution.attempt(hold)
        hold.task = None
        if not hold.run.ahead:
            self._conclude(hold, outcome)
            return
        # It is one of a crowd: first the others begin, then its end is dealt with.
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._conclude_all)
        self._answered.append((hold, outcome))

    def _conclude_all(self) -> None:
        answered, self._answered = self._answered, []
        for hold, outcome in answered:
            self._conclude(hold, outcome)

    def _conclude(self, hold: InFlightRun, outcome: Outcome | None) -> None:
        if hold.handed_over:
            return
        try:
            verdict = None if outcome is None else self._execution.verdict(hold, outcome)
            self._hand_over(hold, verdict)
        except Exception as error:
            # As if its target had not answered: its time ends it. The others go on.
            hold.ended = None
            self._events.emit(TargetBroken(run=hold.run, error=error))

    def _look_out(self) -> None:
        """One timer for all, while there is anything in hand: most runs end long before their
        deadline, and a timer for each would cost more than carrying it out."""
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(SWEEP, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        for hold in self.executing.values():
            if self._execution.overtime(hold) > GUARD_SLACK:
                self.stop(hold, Stop.TIMEOUT)
        if self._holds:
            self._look_out()

    def _stuck(self, hold: InFlightRun) -> None:
        if not hold.handed_over:
            self.stuck += 1
            self._events.emit(TargetStuck(run=hold.run))
        self._ended(hold)

    def _ended(self, hold: InFlightRun) -> None:
        if not hold.handed_over:
            self._conclude(hold, self._execution.stopped(hold))

    def _hand_over(self, hold: InFlightRun, verdict: Completion | None) -> None:
        hold.handed_over = True
        if hold.timer is not None:
            hold.timer.cancel()
        if verdict is not None:
            # Its place is free: writing the verdict down goes on beside the next claim. But not
            # while as many wait to be written as there are places: every effect without a verdict
            # in the store is one that is repeated if this process dies now (I6).
            if self.recorder.waiting + self.logs.waiting < hold.capacity.total:
                self._free_place(hold)
            self.logs.ended(hold, verdict)
            return
        self._free_place(hold)
        if not hold.begun or hold.run.resumable:
            self._unstarted.append((hold.run.id, hold.run.fence))
            self.stirred.set()
        else:
            self._dropped.add((hold.run.id, hold.run.fence))
        self.logs.let_go(hold)
        self._let_go(hold)

    def _settled(self, verdict: Completion, run: Run | None) -> None:
        hold = self._holds[verdict.run_id, verdict.fence]
        self._let_go(hold)
        if run is not None and run.parent_id is not None and run.status.terminal:
            self._steps.heard(run)
        if run is None:
            self._events.emit(CompletionFenced(run=hold.run, verdict=verdict))
        elif verdict.retry_in is not None and not run.status.terminal:
            self._events.emit(RunRetrying(run=run, seconds=hold.seconds))
        else:
            self._events.emit(_make_ended(run, hold.seconds))

    def _free_place(self, hold: InFlightRun) -> None:
        if hold.placed:
            hold.placed = False
            hold.capacity.give_back()

    def _let_go(self, hold: InFlightRun) -> None:
        self._free_place(hold)
        del self._holds[hold.run.id, hold.run.fence]
        if not self._holds:
            self.empty.set()
