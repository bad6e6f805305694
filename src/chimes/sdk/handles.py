"""Handles on runs, and the schedule view that the SDK returns."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NoReturn, assert_never, cast

from chimes.engine.events import Event, RunEnded
from chimes.errors import Conflict, RunCanceled, RunFailed, RunLost, RunNotCarriedOut, RunTimedOut
from chimes.i18n import _
from chimes.model.ids import RunId, canonical_namespace
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    AmqpTarget,
    CeleryTarget,
    CommandTarget,
    DaskTarget,
    FlowTarget,
    HttpTarget,
    KafkaTarget,
    KubernetesTarget,
    MessageTarget,
    NatsTarget,
    RedisStreamTarget,
    SyncTarget,
    TaskTarget,
    connection_name,
)
from chimes.sdk.arguments import Duration, to_duration
from chimes.triggers.text import format_trigger_text

if sys.version_info >= (3, 13):
    from typing import TypeVar
else:
    from typing_extensions import TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chimes.runtime.composition import Runtime

#: What the run returns; object if only its id is known.
R_co = TypeVar("R_co", covariant=True, default=object)

#: Seconds between two polls of a run that another process executes: short at first, because most
#: runs are short, then growing to the maximum.
MIN_POLL, MAX_POLL = 0.02, 0.5
_LOG_PAGE = 1000
_ERRORS: dict[RunStatus, type[RunFailed]] = {
    RunStatus.FAILED: RunFailed,
    RunStatus.TIMEOUT: RunTimedOut,
    RunStatus.CANCELED: RunCanceled,
    RunStatus.SKIPPED: RunNotCarriedOut,
    RunStatus.MISSED: RunNotCarriedOut,
    RunStatus.UNKNOWN: RunLost,
}


class RunWaiters:
    """An engine listener that wakes the waiters for a run in this process when it ends.

    Only a shortcut: the store is authoritative, and waiters poll it anyway.
    """

    def __init__(self) -> None:
        self._waiting: dict[RunId, set[asyncio.Event]] = {}

    event_types = (RunEnded,)

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            for waiter in self._waiting.get(event.run.id, ()):
                waiter.set()

    @contextmanager
    def wait_for(self, run_id: RunId) -> Iterator[asyncio.Event]:
        """An event that is set when the run ends."""
        ended = asyncio.Event()
        self._waiting.setdefault(run_id, set()).add(ended)
        try:
            yield ended
        finally:
            self._waiting[run_id].discard(ended)
            if not self._waiting[run_id]:
                del self._waiting[run_id]


class RunHandle(Generic[R_co]):
    """One run. `app.run_handle(run_id)` makes a handle from a stored id."""

    __slots__ = ("_convert", "_runtime", "id")

    def __init__(
        self,
        run_id: RunId,
        runtime: Callable[[], Runtime],
        convert: Callable[[object], object] | None = None,
    ) -> None:
        """`convert`: makes the result from the stored JSON value; None: it is that value."""
        self.id = run_id
        self._runtime = runtime
        self._convert = convert

    def converted(self, convert: Callable[[object], object]) -> RunHandle[Any]:
        """The same run, with results that `convert` makes from the stored JSON value."""
        return RunHandle(self.id, self._runtime, convert)

    def __repr__(self) -> str:
        return f"RunHandle({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    async def run(self) -> Run:
        """The run as it is in the store.

        NotFound if it does not exist, e.g. because the transaction that enqueued it was rolled
        back, or because it is older than the retention.
        """
        runtime = self._runtime()
        return await runtime.services.runs.get(runtime.actor, self.id)

    async def status(self) -> RunStatus:
        return (await self.run()).status

    async def result(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109
        """Waits for the end of the run and returns what the task returned.

        RunFailed (or a subclass) with the run's own error if it did not succeed; TimeoutError if
        it does not end in time.
        """
        seconds = None if timeout is None else to_duration(timeout, "timeout").total_seconds()
        async with asyncio.timeout(seconds):
            run = await self._wait_for_end()
        if run.status is not RunStatus.SUCCEEDED:
            raise_error(run)
        result = run.result
        value = result["value"] if result is not None and "value" in result else result
        return cast(R_co, value if self._convert is None else self._convert(value))

    async def cancel(self) -> bool:
        """Requests cancellation; True if the run was still queued or running.

        A running task stops when it reacts to the cancellation: wait for `result()`.
        """
        runtime = self._runtime()
        try:
            await runtime.services.runs.cancel(runtime.actor, self.id)
        except Conflict:
            return False
        return True

    async def logs(self) -> list[LogEntry]:
        """The log of the run so far, oldest first."""
        runtime = self._runtime()
        entries: list[LogEntry] = []
        while True:
            after = entries[-1].number if entries else 0
            page = await runtime.services.runs.list_logs(
                runtime.actor, self.id, after=after, limit=_LOG_PAGE
            )
            entries.extend(page)
            if len(page) < _LOG_PAGE:
                return entries

    async def _wait_for_end(self) -> Run:
        pause = MIN_POLL
        with self._runtime().run_waiters.wait_for(self.id) as ended:
            while True:
                run = await self.run()
                if run.status.terminal:
                    return run
                ended.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await ended.wait()
                pause = min(pause * 1.5, MAX_POLL)


def raise_error(run: Run) -> NoReturn:
    """Raises the error of a run that ended without success."""
    cause = run.error or run.reason
    values = {
        "id": run.id,
        "name": run.schedule_name or run.target.requirement,
        "status": run.status.value,
    }
    raise _ERRORS[run.status](
        _("run {id} of {name} ended as {status}: {why}", **values, why=cause)
        if cause
        else _("run {id} of {name} ended as {status}", **values),
        run_id=run.id,
        status=run.status.value,
        error=run.error,
        reason=run.reason,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleInfo:
    """A schedule as the SDK returns it."""

    id: str
    name: str
    namespace: str
    #: Kind of the target: `task`, `flow`, `http`, `sync`, `agent`, `action` or `message`.
    kind: str
    #: Name of the task or flow, the URL, source/collection, the prompt, the action type or the
    #: text.
    target: str
    #: Arguments of the task, input of the flow, parameters of the action.
    input: Mapping[str, object]
    cron_spec: str
    timezone: str
    next_run_at: datetime | None
    #: The latest slot that was fired, skipped or missed.
    last_run_at: datetime | None
    last_enqueued_at: datetime | None
    last_status: str | None
    last_error: str
    enabled: bool
    #: skip, one or all.
    catch_up: str
    max_concurrent_runs: int | None
    priority: int
    labels: Mapping[str, str | None]
    owner: str
    version: int
    created_at: datetime
    updated_at: datetime


def schedule_info(schedule: Schedule) -> ScheduleInfo:
    target, input = _target_and_input(schedule)
    return ScheduleInfo(
        id=schedule.id,
        name=schedule.name,
        namespace=canonical_namespace(schedule.namespace),
        kind=schedule.target.kind,
        target=target,
        input=input,
        cron_spec=format_trigger_text(schedule.trigger),
        timezone=schedule.trigger.zone,
        next_run_at=schedule.next_run_at,
        last_run_at=schedule.last_slot,
        last_enqueued_at=schedule.last_enqueued_at,
        last_status=None if schedule.last_status is None else schedule.last_status.value,
        last_error=schedule.last_error,
        enabled=schedule.enabled,
        catch_up=schedule.policy.misfire.value,
        max_concurrent_runs=schedule.policy.max_concurrent_runs,
        priority=schedule.priority,
        labels=schedule.labels,
        owner=str(schedule.owner),
        version=schedule.version,
        created_at=schedule.created_at,
        updated_at=schedule.updated_at,
    )


def _target_and_input(schedule: Schedule) -> tuple[str, Mapping[str, object]]:
    match schedule.target:
        case HttpTarget(url=url):
            return url, {}
        case TaskTarget(name=name, args=args):
            return name, args
        case FlowTarget(name=name, input=input):
            return name, input
        case SyncTarget(source=source, collection=collection):
            return f"{source}/{collection}", {}
        case AgentTarget(prompt=prompt):
            return prompt, {}
        case ActionTarget(action_type_id=action_type_id, params=params):
            return action_type_id, params
        case MessageTarget(text=text):
            return text, {}
        case CommandTarget(command=command, shell=shell):
            return shlex.join(command) or shell, {}
        case CeleryTarget(task=name, kwargs=given) | DaskTarget(function=name, kwargs=given):
            return name, given
        case RedisStreamTarget(stream=name, fields=given):
            return name, given
        case KubernetesTarget() | AmqpTarget() | NatsTarget() | KafkaTarget() as target:
            return connection_name(target), {}
        case _:
            assert_never(schedule.target)
