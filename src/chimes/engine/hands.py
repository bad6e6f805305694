"""The runs that this process has in hand: from the claim to the store's answer to the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from chimes.clock import Clock
from chimes.engine.capacity import Capacity
from chimes.engine.carriers import Carriers
from chimes.engine.events import (
    Events,
    RunEnded,
    RunRetrying,
    TargetBroken,
    TargetStuck,
    VerdictFenced,
)
from chimes.engine.execution import Execution
from chimes.engine.hold import Hold, Stop
from chimes.engine.live_logs import LiveLogs
from chimes.engine.outlook import Outlook
from chimes.engine.recorder import Recorder
from chimes.engine.steps import FlowSteps
from chimes.engine.storetime import StoreTime
from chimes.engine.waiting_room import WaitingRoom
from chimes.model.change import maker
from chimes.model.ids import RunId
from chimes.model.run import Outcome, Run, Verdict
from chimes.store.port import LookingAhead, Store

#: How much longer than its own deadline a target may take before it is stopped from outside.
GUARD_SLACK = 0.5
#: Seconds between two looks for targets that take longer.
SWEEP = 0.25
#: How long a target may go on after it was told to stop.
STUCK_AFTER = 5.0

_make_ended = maker(RunEnded)


class Hands:
    def __init__(
        self,
        store: Store,
        execution: Execution,
        steps: FlowSteps,
        events: Events,
        clock: Clock,
        time: StoreTime | None = None,
    ) -> None:
        """Without a time nothing waits here for its own."""
        self._execution = execution
        self._steps = steps
        self._events = events
        #: Set when there is something to look after: a run in hand, one to give back, a doubt.
        self.stirred = asyncio.Event()
        self._holds: dict[tuple[RunId, int], Hold] = {}
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
        self._carriers = Carriers(self._carry_out)
        #: Attempts of crowds whose targets have answered.
        self._answered: list[tuple[Hold, Outcome | None]] = []
        self.empty = asyncio.Event()
        self.empty.set()

    @property
    def running(self) -> tuple[RunId, ...]:
        return tuple(run_id for run_id, _ in self._holds)

    @property
    def count(self) -> int:
        """Of those; safe from any thread."""
        return len(self._holds)

    @property
    def executing(self) -> dict[tuple[RunId, int], Hold]:
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
        at_once: list[Hold] = []
        for run in runs:
            if self._draining:
                self._unstarted.append((run.id, run.fence))
                continue
            hold = Hold(run, capacity, self.logs.watch, self._execution.now)
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

    def stop(self, hold: Hold, why: Stop, reason: str = "") -> None:
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
        hold.task.add_done_callback(lambda _: self._ended(hold))
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

    def _go(self, holds: Sequence[Hold]) -> None:
        for hold in holds:
            hold.waiting = False
        self._carriers.put(holds)

    async def _carry_out(self, hold: Hold) -> None:
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

    def _conclude(self, hold: Hold, outcome: Outcome | None) -> None:
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

    def _stuck(self, hold: Hold) -> None:
        if not hold.handed_over:
            self.stuck += 1
            self._events.emit(TargetStuck(run=hold.run))
        self._ended(hold)

    def _ended(self, hold: Hold) -> None:
        if not hold.handed_over:
            self._conclude(hold, self._execution.stopped(hold))

    def _hand_over(self, hold: Hold, verdict: Verdict | None) -> None:
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

    def _settled(self, verdict: Verdict, run: Run | None) -> None:
        hold = self._holds[verdict.run_id, verdict.fence]
        self._let_go(hold)
        if run is not None and run.parent_id is not None and run.status.terminal:
            self._steps.heard(run)
        if run is None:
            self._events.emit(VerdictFenced(run=hold.run, verdict=verdict))
        elif verdict.retry_in is not None and not run.status.terminal:
            self._events.emit(RunRetrying(run=run, seconds=hold.seconds))
        else:
            self._events.emit(_make_ended(run, hold.seconds))

    def _free_place(self, hold: Hold) -> None:
        if hold.placed:
            hold.placed = False
            hold.capacity.give_back()

    def _let_go(self, hold: Hold) -> None:
        self._free_place(hold)
        del self._holds[hold.run.id, hold.run.fence]
        if not self._holds:
            self.empty.set()
