"""Runs: read, cancel, retry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from chimes.errors import Conflict, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model.access import Actor
from chimes.model.definition import SyncTarget
from chimes.model.ids import RunId
from chimes.model.listing import Page, RunQuery
from chimes.model.planning import retry_run
from chimes.model.run import LogEntry, Reason, Run
from chimes.model.sync import NOW as NOW_CLASS
from chimes.services.access import NO_RUN_LIMITS, RunLimits, RunQuotas
from chimes.services.audit import entry
from chimes.services.run_requests import RunOrigin, get_run_origins
from chimes.services.schedules.rules import refuse_agents
from chimes.store.port import Store


class RunService:
    def __init__(
        self, store: Store, *, limits: Callable[[], RunLimits] = lambda: NO_RUN_LIMITS
    ) -> None:
        self._store = store
        self._quotas = RunQuotas(store, limits)

    async def get(self, actor: Actor, run_id: RunId) -> Run:
        run = await self._store.get_run(run_id)
        if run is None or not actor.may_see(run.owner):
            raise NotFound(_("run {id} not found", id=run_id))
        return run

    async def find(self, actor: Actor, query: RunQuery) -> Page[Run]:
        if not actor.sees_everything:
            query = replace(query, owner=actor.owner)
        return await self._store.list_runs(query)

    async def list_logs(
        self, actor: Actor, run_id: RunId, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogEntry, ...]:
        await self.get(actor, run_id)
        return await self._store.read_logs(run_id, after=after, limit=limit)

    async def cancel(self, actor: Actor, run_id: RunId) -> Run:
        """Cancels a run that has not ended; one that has ended is a Conflict."""
        run = await self._operable(actor, run_id)
        if run.status.terminal:
            raise Conflict(
                _("the run has ended already: {status}", status=run.status), code="ended"
            )
        now = await self._store.now()
        audit = entry(actor, "cancel", "run", run.id, at=now, owner=run.owner)
        canceled = await self._store.cancel_run(run.id, Reason.CANCELED_BY_HAND, audit)
        if canceled is None:
            raise NotFound(_("run {id} not found", id=run_id))
        return canceled

    async def retry(
        self, actor: Actor, run_id: RunId, *, new_id: RunId | None = None
    ) -> tuple[Run, bool]:
        """Adds a manual run with `retry_of` set, and returns it with whether it was accepted.

        Idempotent with `new_id`. False: the pair of a sync target already has an active run; that
        run is returned and nothing was added.
        """
        run = await self._operable(actor, run_id)
        if not run.status.terminal:
            raise Conflict(
                _("the run has not ended yet: {status}", status=run.status), code="not_ended"
            )
        refuse_agents(actor, run.target)
        await self._quotas.check(actor, run.owner)
        now = await self._store.now()
        retry = retry_run(run, now)
        if new_id is not None:
            retry = replace(retry, id=new_id)
        audit = entry(
            actor, "retry", "run", run.id, at=now, owner=run.owner, changes={"run_id": retry.id}
        )
        if not isinstance(retry.target, SyncTarget):
            return (await self._store.add_runs([retry], audit))[0], True
        retry = replace(retry, priority=NOW_CLASS)
        stored, created = await self._store.add_unless_active(retry, audit)
        return stored, created or stored.id == retry.id

    async def _operable(self, actor: Actor, run_id: RunId) -> Run:
        run = await self.get(actor, run_id)
        if not actor.may_operate(run.owner):
            raise NotAllowed()
        return run

    async def get_origins(self, actor: Actor, runs: Sequence[Run]) -> dict[RunId, RunOrigin]:
        """Who requested the manual and backfill runs among `runs`, in one query."""
        return await get_run_origins(self._store, [run for run in runs if actor.may_see(run.owner)])

    async def list_last_logs(
        self, actor: Actor, run_id: RunId, *, limit: int
    ) -> tuple[LogEntry, ...]:
        """The last `limit` entries of the log."""
        await self.get(actor, run_id)
        last = (await self._store.last_logs([run_id])).get(run_id)
        if last is None:
            return ()
        return await self._store.read_logs(run_id, after=max(0, last.number - limit), limit=limit)

    async def get_last_log_lines(self, actor: Actor, runs: Sequence[Run]) -> dict[RunId, LogEntry]:
        """The newest log line of each run, in one query."""
        ids = [run.id for run in runs if actor.may_see(run.owner)]
        return await self._store.last_logs(ids) if ids else {}
