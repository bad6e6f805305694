"""What can be done with runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from chimes.errors import Conflict, NotAllowed, NotFound
from chimes.model.access import Actor
from chimes.model.ids import RunId
from chimes.model.listing import Page, RunQuery
from chimes.model.planning import retry_run
from chimes.model.run import LogEntry, Reason, Run
from chimes.model.source import NOW as NOW_CLASS
from chimes.model.target import SyncTarget
from chimes.service.audit import entry
from chimes.service.run_quotas import NO_RUN_LIMITS, RunLimits, RunQuotas
from chimes.service.schedule_changes import refuse_agents
from chimes.store.port import Store
from chimes.wording import say


class RunService:
    def __init__(
        self, store: Store, *, limits: Callable[[], RunLimits] = lambda: NO_RUN_LIMITS
    ) -> None:
        self._store = store
        self._quotas = RunQuotas(store, limits)

    async def get(self, actor: Actor, run_id: RunId) -> Run:
        run = await self._store.get_run(run_id)
        if run is None or not actor.may_see(run.owner):
            raise NotFound(say("run {id} not found", id=run_id))
        return run

    async def find(self, actor: Actor, query: RunQuery) -> Page[Run]:
        if not actor.sees_everything:
            query = replace(query, owner=actor.owner)
        return await self._store.list_runs(query)

    async def logs(
        self, actor: Actor, run_id: RunId, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogEntry, ...]:
        await self.get(actor, run_id)
        return await self._store.read_logs(run_id, after=after, limit=limit)

    async def cancel(self, actor: Actor, run_id: RunId) -> Run:
        """A run that has ended stays as it is: one verdict (I4)."""
        run = await self._operable(actor, run_id)
        if run.status.terminal:
            raise Conflict(
                say("the run has ended already: {status}", status=run.status), code="ended"
            )
        now = await self._store.now()
        note = entry(actor, "cancel", "run", run.id, at=now, owner=run.owner)
        canceled = await self._store.cancel_run(run.id, Reason.CANCELED_BY_HAND, note)
        if canceled is None:
            raise NotFound(say("run {id} not found", id=run_id))
        return canceled

    async def retry(
        self, actor: Actor, run_id: RunId, *, new_id: RunId | None = None
    ) -> tuple[Run, bool]:
        """A new run, origin manual, that names the old one. With `new_id` this can be asked for
        again: the run that has the id is the answer. False: of a pair that is busy it is the task
        that is under way (R4.18), and nothing was added."""
        run = await self._operable(actor, run_id)
        if not run.status.terminal:
            raise Conflict(
                say("the run has not ended yet: {status}", status=run.status), code="not_ended"
            )
        refuse_agents(actor, run.target)
        await self._quotas.check(actor, run.owner)
        now = await self._store.now()
        again = retry_run(run, now)
        if new_id is not None:
            again = replace(again, id=new_id)
        note = entry(
            actor, "retry", "run", run.id, at=now, owner=run.owner, changes={"run_id": again.id}
        )
        if not isinstance(again.target, SyncTarget):
            return (await self._store.add_runs([again], note))[0], True
        again = replace(again, priority=NOW_CLASS)
        found, created = await self._store.add_unless_active(again, note)
        return found, created or found.id == again.id

    async def _operable(self, actor: Actor, run_id: RunId) -> Run:
        run = await self.get(actor, run_id)
        if not actor.may_operate(run.owner):
            raise NotAllowed()
        return run
