"""One attempt: from a claimed run to the verdict on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime

from chimes.clock import Clock
from chimes.engine.events import Events, RunDropped, RunHandedOn, RunStarted, TargetBroken
from chimes.engine.hold import Hold, Stop
from chimes.engine.kept_states import state_of
from chimes.engine.membership import Membership
from chimes.engine.steps import FlowSteps
from chimes.engine.storetime import StoreTime
from chimes.errors import StoreUnavailable, told
from chimes.failpoints import hit
from chimes.model.change import maker, replace
from chimes.model.policy import OnLost
from chimes.model.run import Attempt, AttemptEnd, Outcome, Run, Verdict, judged
from chimes.store.port import Store
from chimes.targets.base import Call, NotHere, TargetRunner
from chimes.wording import joined, say

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
        time: StoreTime,
        events: Events,
    ) -> None:
        self._store = store
        self._runners = runners
        self._membership = membership
        self._steps = steps
        self._clock = clock
        self._time = time
        self._events = events

    async def attempt(self, hold: Hold) -> Outcome | None:
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

    def stopped(self, hold: Hold) -> Outcome | None:
        """What came of an attempt that was told to stop; None where a new attempt is due."""
        match hold.stop:
            case Stop.CANCEL:
                return Outcome(end=AttemptEnd.CANCELED, code=hold.reason)
            case Stop.TIMEOUT:
                return Outcome(
                    end=AttemptEnd.TIMEOUT,
                    # Another attempt would find the same steps, and no time left either.
                    retryable=not hold.run.resumable,
                    error=say(
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

    def overtime(self, hold: Hold) -> float:
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

    def _begin(self, hold: Hold) -> None:
        hold.began = self._clock.monotonic()
        run = hold.run
        due = run.planned_at if run.attempt == 1 else run.available_at
        # The store has said that it is due: a guess at its time that lies before is wrong.
        now = max(self._time.at(hold.began), due)
        hold.begun = True
        hold.began_at = now
        self._events.emit(_make_started(run, (now - due).total_seconds()))

    async def _execute(self, hold: Hold) -> Outcome:
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

    def verdict(self, hold: Hold, outcome: Outcome) -> Verdict:
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
