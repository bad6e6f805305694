"""A handle on one run: what became of it, from any process that reaches the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn, assert_never

from chimes.engine.events import Event, RunEnded
from chimes.errors import Conflict, RunCanceled, RunFailed, RunLost, RunNotCarriedOut, RunTimedOut
from chimes.i18n import _
from chimes.model.ids import RunId
from chimes.model.run import LogEntry, Run, RunStatus
from chimes.model.schedule import Schedule
from chimes.model.target import (
    ActionTarget,
    AgentTarget,
    FlowTarget,
    HttpTarget,
    MessageTarget,
    SyncTarget,
    TaskTarget,
)
from chimes.sdk.arguments import Duration, duration_of
from chimes.triggers.expression import trigger_to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chimes.runtime.composition import Runtime


#: Seconds between two looks at a run that another process carries out: soon at first, because
#: most runs are short, then ever more rarely.
FIRST_LOOK, LONGEST_LOOK = 0.02, 0.5
_LOG_PAGE = 1000
_ERRORS: dict[RunStatus, type[RunFailed]] = {
    RunStatus.FAILED: RunFailed,
    RunStatus.TIMEOUT: RunTimedOut,
    RunStatus.CANCELED: RunCanceled,
    RunStatus.SKIPPED: RunNotCarriedOut,
    RunStatus.MISSED: RunNotCarriedOut,
    RunStatus.UNKNOWN: RunLost,
}


class Endings:
    """A listener of the engine: tells those in this process who wait for a run that it ended.
    Only a shortcut; the store is what counts, and who waits looks there in any case."""

    def __init__(self) -> None:
        self._waiting: dict[RunId, set[asyncio.Event]] = {}

    hears = (RunEnded,)

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            for waiting in self._waiting.get(event.run.id, ()):
                waiting.set()

    @contextmanager
    def of(self, run_id: RunId) -> Iterator[asyncio.Event]:
        ended = asyncio.Event()
        self._waiting.setdefault(run_id, set()).add(ended)
        try:
            yield ended
        finally:
            self._waiting[run_id].discard(ended)
            if not self._waiting[run_id]:
                del self._waiting[run_id]


class RunHandle:
    """One run. It may be made from an id that was kept elsewhere: `app.run_handle(run_id)`."""

    __slots__ = ("_runtime", "id")

    def __init__(self, run_id: RunId, runtime: Callable[[], Runtime]) -> None:
        self.id = run_id
        self._runtime = runtime

    def __repr__(self) -> str:
        return f"RunHandle({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    async def run(self) -> Run:
        """The run as the store has it. NotFound: there is none, e.g. because the transaction
        that enqueued it was rolled back, or because it is older than the retention."""
        runtime = self._runtime()
        return await runtime.services.runs.get(runtime.actor, self.id)

    async def status(self) -> RunStatus:
        return (await self.run()).status

    async def result(self, timeout: Duration | None = None) -> object:  # noqa: ASYNC109
        """What the task returned, once the run has ended. RunFailed (or one of its kinds) with
        the run's own error if it did not succeed; TimeoutError if it has not ended in time."""
        seconds = None if timeout is None else duration_of(timeout, "timeout").total_seconds()
        async with asyncio.timeout(seconds):
            run = await self._ended()
        if run.status is not RunStatus.SUCCEEDED:
            _raise(run)
        result = run.result
        return result["value"] if result is not None and "value" in result else result

    async def cancel(self) -> bool:
        """Ask it to stop: True if it was still waiting or running. A running one ends when its
        task notices; wait for `result()` to know."""
        runtime = self._runtime()
        try:
            await runtime.services.runs.cancel(runtime.actor, self.id)
        except Conflict:
            return False
        return True

    async def logs(self) -> list[LogEntry]:
        """Everything it has logged so far, oldest first."""
        runtime = self._runtime()
        found: list[LogEntry] = []
        while True:
            after = found[-1].number if found else 0
            page = await runtime.services.runs.logs(
                runtime.actor, self.id, after=after, limit=_LOG_PAGE
            )
            found.extend(page)
            if len(page) < _LOG_PAGE:
                return found

    async def _ended(self) -> Run:
        pause = FIRST_LOOK
        with self._runtime().endings.of(self.id) as ended:
            while True:
                run = await self.run()
                if run.status.terminal:
                    return run
                ended.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), pause)
                pause = min(pause * 1.5, LONGEST_LOOK)


def _raise(run: Run) -> NoReturn:
    about = run.error or run.reason
    name = run.schedule_name or run.target.needs
    told = {"id": run.id, "name": name, "status": run.status.value}
    raise _ERRORS[run.status](
        _("run {id} of {name} ended as {status}: {why}", **told, why=about)
        if about
        else _("run {id} of {name} ended as {status}", **told),
        run_id=run.id,
        status=run.status.value,
        error=run.error,
        reason=run.reason,
    )


# @@ A schedule as the verbs of the SDK answer it, in the words of the Catbird seed.


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleInfo:
    id: str
    name: str
    namespace: str
    #: `task`, `flow`, `http` or `sync`.
    kind: str
    #: Name of the task or flow, the URL, or source/collection.
    target: str
    #: Arguments of the task, input of the flow.
    input: Mapping[str, object]
    cron_spec: str
    timezone: str
    next_run_at: datetime | None
    #: The newest slot that has had its turn; None: none yet.
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


def info_of(schedule: Schedule) -> ScheduleInfo:
    name, given = _target(schedule)
    return ScheduleInfo(
        id=schedule.id,
        name=schedule.name,
        namespace=schedule.namespace,
        kind=schedule.target.kind,
        target=name,
        input=given,
        cron_spec=trigger_to_text(schedule.trigger),
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


def _target(schedule: Schedule) -> tuple[str, Mapping[str, object]]:
    match schedule.target:
        case HttpTarget(url=url):
            return url, {}
        case TaskTarget(name=name, args=args):
            return name, args
        case FlowTarget(name=name, input=given):
            return name, given
        case SyncTarget(source=source, collection=collection):
            return f"{source}/{collection}", {}
        case AgentTarget(prompt=prompt):
            return prompt, {}
        case ActionTarget(action_type_id=action_type_id, params=params):
            return action_type_id, params
        case MessageTarget(text=text):
            return text, {}
        case _:
            assert_never(schedule.target)
