"""Executes claimed runs and tracks them until their completion is stored.

A run passes through the methods of `Executor` in the order of the file: `accept` (claimed),
`_execute` (one attempt), `_finish` (outcome to completion, to the recorder), `_on_recorded`
(stored). `stop` may end the attempt in between.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from chimes.clock import Clock
from chimes.engine.events import (
    AttemptAbandoned,
    CompletionFenced,
    Events,
    RunEnded,
    RunReleased,
    RunRetrying,
    RunStarted,
    TargetRaised,
    TargetStuck,
)
from chimes.engine.flow_steps import FlowSteps
from chimes.engine.in_flight import Capacity, Claim, InFlightRun, StopReason
from chimes.engine.limits import Deferral, LimitGate
from chimes.engine.membership import Membership, StoreClock
from chimes.engine.prefetch import PrefetchQueue
from chimes.engine.recorder import LimitResult, Recorder, unlimited_result
from chimes.errors import StoreUnavailable, message_of
from chimes.failpoints import hit
from chimes.i18n import _, joined
from chimes.model import replace
from chimes.model.access import secret_names
from chimes.model.checkpoint import (
    action_checkpoint_name,
    agent_callback_name,
    agent_checkpoint_name,
    engine_checkpoint_name,
)
from chimes.model.ids import RunId
from chimes.model.policy import OnLost
from chimes.model.run import (
    Attempt,
    AttemptEnd,
    Completion,
    Outcome,
    Run,
    completion_of,
    deferral_of,
)
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    CeleryTarget,
    DaskTarget,
    KubernetesTarget,
    SyncTarget,
)
from chimes.services.secrets import resolve_secrets
from chimes.store.port import PrefetchStore, Store
from chimes.targets.base import Call, TargetRunner, WrongNode

if TYPE_CHECKING:
    from chimes.engine.spans import RunTracing

T = TypeVar("T")
#: Seconds past its deadline before a target, which has its own timeout, is stopped from outside.
TIMEOUT_SLACK = 0.5
#: Seconds between two checks for overdue attempts.
SWEEP_INTERVAL = 0.25
#: Seconds that a target may continue after it was stopped.
STUCK_AFTER = 5.0


class Executor:
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
        limit_result: LimitResult = unlimited_result,
        tracing: RunTracing | None = None,
    ) -> None:
        self._store = store
        self._runners = runners
        self._membership = membership
        self._steps = steps
        self._clock = clock
        self._time = time
        self._events = events
        self._in_flight: dict[Claim, InFlightRun] = {}
        #: Claims that can be released without a trace.
        self._releasable: list[Claim] = []
        #: Claims of attempts that started and were given up without a completion.
        self._abandoned: set[Claim] = set()
        self._accepting = True
        self._sweeping = False
        #: Outcomes of prefetched runs that wait until the rest of their batch has started.
        self._deferred: list[tuple[InFlightRun, Outcome | None]] = []
        self._gate = LimitGate(store, membership, clock=clock, time=time, events=events)
        self._tracing = tracing
        self._pool = TaskPool(self._execute if tracing is None else self._execute_traced)
        self.recorder = Recorder(store, clock, self._on_recorded, limit_result)
        #: None where the store does not support prefetch.
        self.prefetched: PrefetchQueue | None = None
        if isinstance(store, PrefetchStore) and store.supports_prefetch:
            self.prefetched = PrefetchQueue(
                store,
                time,
                start=self._start_prefetched,
                drop=lambda attempt: self.stop(attempt, StopReason.LOST),
            )
        #: Set when the reconciler has something to do.
        self.reconcile = asyncio.Event()
        #: Set while no run is in flight.
        self.empty = asyncio.Event()
        self.empty.set()
        self.accepted_total = 0
        #: Targets that did not stop within `STUCK_AFTER`.
        self.stuck_total = 0

    # --- claimed ------------------------------------------------------------------------------
    def accept(self, runs: Iterable[Run], capacity: Capacity) -> int:
        """Starts runs that were claimed for this node; returns how many permits they use."""
        accepted = 0
        ready: list[InFlightRun] = []
        node_id, prefetched = self._membership.node_id, self.prefetched
        on_first_log, now = self.recorder.logs.watch, self._time.now
        for run in runs:
            # A claim of a former lease: its answer arrived after this node had joined again.
            lost = run.holder is not None and run.holder != node_id
            if lost or not self._accepting:
                self._releasable.append((run.id, run.fence))
                continue
            attempt = InFlightRun(run, capacity, on_first_log, now)
            self._in_flight[attempt.claim] = attempt
            if prefetched is not None and run.prefetched:
                prefetched.add(attempt)
            else:
                ready.append(attempt)
            accepted += 1
        self._pool.submit(ready)
        self.accepted_total += accepted
        if accepted:
            self.empty.clear()
            self._start_sweeping()
        if accepted or self._releasable:
            self.reconcile.set()
        return accepted

    def _start_prefetched(self, attempts: Sequence[InFlightRun]) -> None:
        for attempt in attempts:
            attempt.prefetched = False
            attempt.finishes_with_batch = True
        self._pool.submit(attempts)

    # --- executed -----------------------------------------------------------------------------
    def _execute(self, attempt: InFlightRun) -> Awaitable[None] | None:
        """Executes an attempt. Returns what is left of it if it has to wait."""
        hit("run.claimed")
        if attempt.run.definition.policy.limits:
            return self._await(attempt, self._enter_limits_and_call(attempt))
        if names := self._secrets_used(attempt.run):
            return self._await(attempt, self._resolve_and_call(attempt, names))
        if _records_start(attempt.run):
            return self._await(attempt, self._record_and_call(attempt))
        try:
            called = self._call_target(attempt)
        except Exception as error:
            called = self._outcome_of_error(attempt, error)
        if called is None or isinstance(called, Outcome):
            self._end(attempt, called)
            return None
        return self._await(attempt, called)

    async def _execute_traced(self, attempt: InFlightRun) -> None:
        """Executes an attempt within its span."""
        assert self._tracing is not None
        attempt.span = self._tracing.start_attempt(attempt.run, self._time.now())
        with self._tracing.current(attempt.span):
            rest = self._execute(attempt)
            if rest is not None:
                await rest

    async def _await(self, attempt: InFlightRun, rest: Awaitable[Outcome | None]) -> None:
        try:
            outcome = await rest
            if outcome is not None and outcome.end is AttemptEnd.CANCELED and attempt.is_canceled():
                outcome = replace(outcome, code=attempt.cancel_reason)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if attempt.stop is None or task is None:
                raise
            task.uncancel()
            outcome = self._outcome_of_stop(attempt)
        except Exception as error:
            outcome = self._outcome_of_error(attempt, error)
        self._end(attempt, outcome)

    def _secrets_used(self, run: Run) -> frozenset[str]:
        """The named secrets of the owner that an attempt needs."""
        target = run.definition.target
        if target.kind == "task":
            # The most frequent kind, which takes none.
            return frozenset()
        more = getattr(self._runners[target.kind], "secret_names", None)
        return secret_names(target) | (frozenset() if more is None else more(target))

    async def _enter_limits_and_call(self, attempt: InFlightRun) -> Outcome | None:
        attempt.deferral = await self._gate.enter(attempt)
        if attempt.deferral is not None or attempt.stop is not None:
            return None
        if names := self._secrets_used(attempt.run):
            return await self._resolve_and_call(attempt, names)
        if _records_start(attempt.run):
            return await self._record_and_call(attempt)
        called = self._call_target(attempt)
        return called if called is None or isinstance(called, Outcome) else await called

    async def _resolve_and_call(
        self, attempt: InFlightRun, names: frozenset[str]
    ) -> Outcome | None:
        """Secrets are read for each attempt, so that a new value is used by the next one."""
        attempt.started_monotonic = self._clock.monotonic()
        owner = attempt.run.owner
        attempt.secrets = await _retrying(lambda: resolve_secrets(self._store, owner, names))
        if _records_start(attempt.run):
            return await self._record_and_call(attempt)
        called = self._call_target(attempt)
        return called if called is None or isinstance(called, Outcome) else await called

    async def _record_and_call(self, attempt: InFlightRun) -> Outcome | None:
        attempt.started_monotonic = self._clock.monotonic()
        if not self._membership.trusted or not await self._record_start(attempt.run):
            return None
        called = self._call_target(attempt)
        return called if called is None or isinstance(called, Outcome) else await called

    async def _record_start(self, run: Run) -> bool:
        try:
            return await self._store.start(run.id, run.fence)
        except StoreUnavailable:
            return False

    def _call_target(self, attempt: InFlightRun) -> Outcome | Awaitable[Outcome] | None:
        """None: the attempt did not start, so no effect can have happened and the run may be
        released."""
        hit("run.started")
        hit("run.before_effect")
        # Checked last before the effect: the process may have been suspended meanwhile.
        moment = self._clock.monotonic()
        if not self._membership.is_trusted_at(moment):
            return None
        call = self._begin(attempt, moment)
        if (problem := attempt.secrets.problem) is not None:
            call.log("error", problem.message)
            return Outcome(
                end=AttemptEnd.FAILED,
                retryable=problem.retryable,
                error=problem.message,
                code=problem.code,
            )
        runner = self._runners[call.run.definition.target.kind]
        if call.run.resumable:
            return self._execute_resumable(runner, call, attempt)
        begin: Callable[[Call], Outcome | Awaitable[Outcome]]
        begin = getattr(runner, "begin", None) or runner.execute
        return begin(call)

    def _begin(self, attempt: InFlightRun, moment: float) -> Call:
        run = attempt.run
        # A flow that has waited or was released begins no first attempt.
        resumes = run.resumable and run.fence > 1
        due = run.planned_at if run.attempt == 1 and not resumes else run.available_at
        # The store has decided that the run is due: an earlier estimate of its time is wrong.
        now = max(self._time.at(moment), due)
        attempt.started_monotonic = moment
        attempt.started = True
        attempt.started_at = now
        self._events.emit(RunStarted(run=run, lag=(now - due).total_seconds()))
        return Call(
            run=run,
            triggered_at=now,
            log=attempt.add_log,
            secrets=attempt.secrets.values,
            state=checkpoint_of(self._store, run),
            canceled=attempt.is_canceled,
            completing=attempt.set_self_completing,
            unwritten=attempt.unwritten_logs,
        )

    def _outcome_of_error(self, attempt: InFlightRun, error: Exception) -> Outcome | None:
        """What a target raised that has to return an outcome."""
        run = attempt.run
        if isinstance(error, WrongNode):
            attempt.started = False
            attempt.capacity.yield_requirement(run.target.requirement)
            self._events.emit(RunReleased(run=run))
            return None
        secrets = attempt.secrets
        if (masked := secrets.mask(str(error))) != str(error):
            # Listeners log the error with its text.
            error = RuntimeError(f"{type(error).__name__}: {masked}")
        self._events.emit(TargetRaised(run=run, error=error))
        return Outcome(
            end=AttemptEnd.FAILED,
            retryable=True,
            error=joined(": ", (type(error).__name__, message_of(error))),
            code="target_error",
        )

    async def _execute_resumable(
        self, runner: TargetRunner, call: Call, attempt: InFlightRun
    ) -> Outcome:
        attempt.steps = self._steps.open(call.run)
        try:
            return await runner.execute(replace(call, steps=attempt.steps))
        finally:
            self._steps.close(call.run)

    def _end(self, attempt: InFlightRun, outcome: Outcome | None) -> None:
        attempt.ended = self._clock.monotonic()
        attempt.task = None
        if not attempt.finishes_with_batch:
            self._finish(attempt, outcome)
            return
        if not self._deferred:
            asyncio.get_running_loop().call_soon(self._finish_deferred)
        self._deferred.append((attempt, outcome))

    # --- outcome to completion ----------------------------------------------------------------
    def _finish_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for attempt, outcome in deferred:
            self._finish(attempt, outcome)

    def _finish(self, attempt: InFlightRun, outcome: Outcome | None) -> None:
        """Passes the completion to the recorder; without an outcome the run is given up."""
        if attempt.finished:
            return
        try:
            suspended = None if outcome is None else outcome.suspended_until
            if suspended is not None and outcome is not None:
                seconds = max(0.0, (suspended - self._time.now()).total_seconds())
                attempt.deferral, outcome = Deferral(outcome.code, seconds), None
            completion = None if outcome is None else self._completion(attempt, outcome)
            attempt.finished = True
            if attempt.limits:
                self._gate.leave(attempt, outcome)
            if attempt.deferral is not None and attempt.stop is None:
                completion = self._deferral(attempt, attempt.deferral)
            if attempt.stuck_timer is not None:
                attempt.stuck_timer.cancel()
            if self._tracing is not None and attempt.span is not None:
                now = self._time.now() if completion is None else completion.attempt.finished_at
                self._tracing.end_attempt(attempt.span, attempt.run, outcome, now, attempt.duration)
            if completion is None:
                self._give_up(attempt)
                return
            # The permit is free while the completion is written, unless as many completions as
            # there are permits wait: each is an effect that is repeated if this process dies now.
            if self.recorder.unrecorded < attempt.capacity.total:
                self._release_permit(attempt)
            self.recorder.record(attempt, completion)
        except Exception as error:
            # The attempt then ends by its timeout, and the others go on.
            attempt.ended = None
            self._events.emit(TargetRaised(run=attempt.run, error=error))

    def _completion(self, attempt: InFlightRun, outcome: Outcome) -> Completion:
        run = attempt.run
        if attempt.secrets.forms:
            outcome = replace(
                outcome,
                result=attempt.secrets.mask_result(outcome.result),
                error=attempt.secrets.mask(outcome.error),
            )
        ended = self._clock.monotonic() if attempt.ended is None else attempt.ended
        now = max(self._time.at(ended), attempt.started_at or run.created_at)
        attempt.duration = ended - attempt.started_monotonic if attempt.started else 0.0
        record = outcome.completed or Attempt(
            number=run.attempt,
            fence=run.fence,
            node=run.holder or self._membership.node_id,
            started_at=attempt.started_at or now,
            finished_at=now,
            end=outcome.end,
            error=outcome.error,
        )
        return completion_of(run, outcome, record, attempt.pending_logs)

    def _deferral(self, attempt: InFlightRun, deferral: Deferral) -> Completion:
        run, now = attempt.run, self._time.now()
        unmade = Attempt(
            number=run.attempt,
            fence=run.fence,
            node=self._membership.node_id,
            started_at=now,
            finished_at=now,
            end=AttemptEnd.CANCELED,
        )
        return deferral_of(run, unmade, deferral.reason, timedelta(seconds=deferral.seconds))

    def _give_up(self, attempt: InFlightRun) -> None:
        """Without a completion: another node, or this one, makes another attempt."""
        if not attempt.started or attempt.run.resumable:
            self._releasable.append(attempt.claim)
            self.reconcile.set()
        else:
            self._abandoned.add(attempt.claim)
        self.recorder.logs.abandon(attempt)
        self._remove(attempt)

    # --- recorded -----------------------------------------------------------------------------
    def _on_recorded(self, claim: Claim, completion: Completion, run: Run | None) -> None:
        """`run`: as stored, or None if the completion was refused because of its fence."""
        attempt = self._in_flight[claim]
        self._remove(attempt)
        if completion.deferred:
            if run is not None and run.status.terminal:
                self._events.emit(RunEnded(run=run, seconds=0.0))
            elif attempt.steps is not None:
                self._steps.suspended(attempt.run.id, attempt.steps.unfinished)
            return
        if run is None:
            self._events.emit(CompletionFenced(run=attempt.run, completion=completion))
            return
        if run.parent_id is not None and run.status.terminal:
            self._steps.step_ended(run)
        if completion.retry_in is not None and not run.status.terminal:
            self._events.emit(RunRetrying(run=run, seconds=attempt.duration))
        else:
            self._events.emit(RunEnded(run=run, seconds=attempt.duration))

    def _remove(self, attempt: InFlightRun) -> None:
        self._release_permit(attempt)
        del self._in_flight[attempt.claim]
        if not self._in_flight:
            self.empty.set()

    def _release_permit(self, attempt: InFlightRun) -> None:
        if attempt.has_permit:
            attempt.has_permit = False
            attempt.capacity.release()

    # --- stopped ------------------------------------------------------------------------------
    def stop(self, attempt: InFlightRun, why: StopReason, reason: str = "") -> None:
        if attempt.stop is not None or attempt.finished or attempt.ended is not None:
            return
        attempt.stop, attempt.cancel_reason = why, reason
        if attempt.prefetched:
            # It did not start, so its claim is released, whatever the reason.
            self._finish(attempt, None)
            return
        if attempt.task is None:
            self._finish_stopped(attempt)
            return
        attempt.task.cancel()
        # The task may end without passing through `_execute`.
        attempt.task.add_done_callback(lambda _task: self._finish_stopped(attempt))
        if attempt.stuck_timer is not None:
            attempt.stuck_timer.cancel()
        attempt.stuck_timer = asyncio.get_running_loop().call_later(
            STUCK_AFTER + self._stop_seconds(attempt.run), self._give_up_stuck, attempt
        )

    def _stop_seconds(self, run: Run) -> float:
        """How much longer than others its target may take to stop."""
        seconds = getattr(self._runners[run.target.kind], "stop_seconds", None)
        return 0.0 if seconds is None else seconds(run.target)

    def stop_all(self, why: StopReason) -> int:
        attempts = list(self.executing.values())
        for attempt in attempts:
            self.stop(attempt, why)
        return len(attempts)

    def stop_accepting(self) -> None:
        """Releases runs that have not started, also those that are claimed later, and those that
        another node can resume."""
        self._accepting = False
        for attempt in self.executing.values():
            if not attempt.started or attempt.run.resumable:
                self.stop(attempt, StopReason.DRAIN)

    def resume_accepting(self) -> None:
        self._accepting = True

    def _start_sweeping(self) -> None:
        """One timer for all attempts: most end long before their deadline, and a timer for each
        would cost more than its execution."""
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(SWEEP_INTERVAL, self._stop_overdue)

    def _stop_overdue(self) -> None:
        self._sweeping = False
        for attempt in self.executing.values():
            if self._seconds_overdue(attempt) > TIMEOUT_SLACK:
                self.stop(attempt, StopReason.TIMEOUT)
        if self._in_flight:
            self._start_sweeping()

    def _seconds_overdue(self, attempt: InFlightRun) -> float:
        """The timeout applies to each attempt; for a resumable run to all attempts together."""
        run = attempt.run
        if run.resumable and run.started_at is not None:
            steps = attempt.steps
            if steps is None or not steps.complete:
                return 0.0
            spent = self._time.now() - run.started_at - steps.waited
            return (spent - run.policy.timeout).total_seconds()
        elapsed = self._clock.monotonic() - attempt.started_monotonic
        return elapsed - run.policy.timeout.total_seconds()

    def _give_up_stuck(self, attempt: InFlightRun) -> None:
        if not attempt.finished:
            self.stuck_total += 1
            self._events.emit(TargetStuck(run=attempt.run))
        self._finish_stopped(attempt)

    def _finish_stopped(self, attempt: InFlightRun) -> None:
        if not attempt.finished:
            self._finish(attempt, self._outcome_of_stop(attempt))

    def _outcome_of_stop(self, attempt: InFlightRun) -> Outcome | None:
        """None: another attempt is due."""
        run = attempt.run
        match attempt.stop:
            case StopReason.CANCEL:
                return Outcome(end=AttemptEnd.CANCELED, code=attempt.cancel_reason)
            case StopReason.TIMEOUT:
                return Outcome(
                    end=AttemptEnd.TIMEOUT,
                    # Another attempt of a flow would have no time left either.
                    retryable=not run.resumable,
                    error=_(
                        "no answer within {seconds:g} s",
                        seconds=run.policy.timeout.total_seconds(),
                    ),
                    code="timeout",
                )
            case _:
                if attempt.started and run.resumable:
                    self._events.emit(RunReleased(run=run))
                elif attempt.started:
                    why = attempt.stop or StopReason.LOST
                    self._events.emit(AttemptAbandoned(run=run, why=why))
                return None

    # --- state, for the reconciler and the engine ---------------------------------------------
    @property
    def run_ids(self) -> tuple[RunId, ...]:
        return tuple(run_id for run_id, _fence in self._in_flight)

    @property
    def count(self) -> int:
        """Runs in flight; safe from any thread."""
        return len(self._in_flight)

    @property
    def executing(self) -> dict[Claim, InFlightRun]:
        """The runs whose attempt is not over."""
        return {claim: each for claim, each in self._in_flight.items() if not each.finished}

    @property
    def only_prefetched(self) -> bool:
        """Whether no attempt executes."""
        return all(each.prefetched or each.finished for each in self._in_flight.values())

    def tracks(self, run: Run) -> bool:
        """Whether the run is in flight, or was abandoned after its start: releasing it would claim
        that nothing has happened."""
        claim = run.id, run.fence
        return claim in self._in_flight or claim in self._abandoned

    @property
    def releasable(self) -> Sequence[Claim]:
        return tuple(self._releasable)

    def forget_released(self, claims: Sequence[Claim]) -> None:
        self._releasable = [claim for claim in self._releasable if claim not in claims]

    @property
    def abandoned(self) -> frozenset[Claim]:
        """Abandoned claims that this node may still own."""
        return frozenset(self._abandoned)

    def forget_abandoned(self, claims: Iterable[Claim]) -> None:
        """This node does not own them any more."""
        self._abandoned.difference_update(claims)


def _records_start(run: Run) -> bool:
    return run.definition.policy.on_lost is OnLost.STOP and not run.resumable


#: Attempts in a row that a task executes without suspending, before one task is enough.
SHRINK_AFTER = 20


class TaskPool:
    """Executes attempts one after another in few tasks.

    Most attempts end without suspending, and a task for each would double their cost. An attempt
    that suspends keeps its task to itself, and other tasks continue with the queue: twice as many
    whenever all of them were found suspended, so that a large batch of slow attempts is soon under
    way."""

    def __init__(self, execute: Callable[[InFlightRun], Awaitable[None] | None]) -> None:
        """`execute` returns what is left of an attempt that has to wait."""
        self._execute = execute
        self._queue: deque[InFlightRun] = deque()
        #: Tasks to start at once; more than one where attempts usually suspend.
        self._width = 1
        self._growth: asyncio.Handle | None = None
        #: Strong references: the event loop keeps only weak ones.
        self._tasks: set[asyncio.Task[None]] = set()
        #: Tasks before their first step. They will take from the queue, so that attempts which end
        #: in the same turn of the event loop start no others for it.
        self._unstarted: set[asyncio.Task[None]] = set()
        #: Every task starts with a copy of this context, independent of its caller.
        self._context = contextvars.copy_context()

    def submit(self, attempts: Iterable[InFlightRun]) -> None:
        self._queue.extend(attempts)
        self._start_tasks()

    def _start_tasks(self) -> None:
        for _number in range(min(self._width, len(self._queue)) - len(self._unstarted)):
            task = asyncio.create_task(self._work(), context=self._context.copy())
            self._tasks.add(task)
            self._unstarted.add(task)
            task.add_done_callback(self._discard)
        if self._queue:
            if self._growth is not None:
                self._growth.cancel()
            # Runs behind the first step of the new tasks.
            self._growth = asyncio.get_running_loop().call_soon(self._grow)

    def _discard(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # A task that is canceled before its first step never removes itself.
        self._unstarted.discard(task)

    def _grow(self) -> None:
        self._growth = None
        if self._queue:
            self._width = min(self._width * 2, len(self._queue))
            self._start_tasks()

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._unstarted.discard(task)
        suspended = _Flag()
        # Called as soon as this task suspends.
        asyncio.get_running_loop().call_soon(suspended.set)
        in_a_row = 0
        while self._queue:
            attempt = self._queue.popleft()
            if attempt.finished:
                continue
            attempt.task = task
            try:
                rest = self._execute(attempt)
                if rest is not None:
                    await rest
            except Exception:
                self._start_tasks()
                raise
            if suspended.is_set or task.cancelling():
                # A suspended attempt may leave state behind in its task, above all a pending
                # cancellation, so the task is not reused.
                self._start_tasks()
                return
            in_a_row += 1
            if in_a_row == SHRINK_AFTER:
                self._width = 1


class _Flag:
    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        self.is_set = True


# --- checkpoints: state that a target keeps between runs or between the attempts of a run ---------
#: Seconds between two tries while the store is unavailable. The reconciler stops an attempt that
#: loses its run meanwhile.
CHECKPOINT_RETRY_PAUSE = 0.25


class TargetState:
    """Implements `chimes.targets.base.State`."""

    def __init__(self, store: Store, run: Run, name: str) -> None:
        self._store = store
        self._run = run
        self._name = name

    async def read(self) -> str | None:
        return await self._read(self._name)

    async def read_callback(self) -> str | None:
        return await self._read(agent_callback_name(self._run.id))

    async def save(self, value: str) -> bool:
        run = self._run
        return await _retrying(
            lambda: self._store.save_checkpoint(run.id, run.fence, self._name, value)
        )

    async def _read(self, name: str) -> str | None:
        checkpoint = await _retrying(lambda: self._store.get_checkpoint(name))
        return None if checkpoint is None else checkpoint.value


def checkpoint_of(store: Store, run: Run) -> TargetState | None:
    """None for a target without a checkpoint. A sync keeps one for all its runs; an agent
    prompt, an action or a job of an engine keeps one per run, which is deleted when the run has
    ended."""
    target = run.definition.target
    if target.kind == "task":
        # The most frequent kind, decided first: this is called for every attempt.
        return None
    match target:
        case SyncTarget():
            return TargetState(store, run, target.key)
        case AgentTarget():
            return TargetState(store, run, agent_checkpoint_name(run.id))
        case ActionTarget():
            return TargetState(store, run, action_checkpoint_name(run.id))
        case CeleryTarget() | DaskTarget() | KubernetesTarget():
            return TargetState(store, run, engine_checkpoint_name(run.id))
        case _:
            return None


async def _retrying(operation: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await operation()
        except StoreUnavailable:
            await asyncio.sleep(CHECKPOINT_RETRY_PAUSE)
