"""Runs: read, cancel, retry; requests for runs without a schedule; who requested a manual run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import DEFAULT_NAMESPACE, RunId
from chimes.model.listing import AuditQuery, Page, RunQuery
from chimes.model.planning import retry_run
from chimes.model.policy import PRIORITY, UNLIMITED, Policy, RunDefaults, apply_task_defaults
from chimes.model.run import LogEntry, Origin, Reason, Run, RunDefinition, shared_key
from chimes.model.sync import NOW as NOW_CLASS
from chimes.model.target import FlowTarget, SyncTarget, Target
from chimes.model.validation import (
    LONGEST_WAIT,
    check_priority,
    clean_name,
    validate_policy,
)
from chimes.redaction import mask_secrets
from chimes.services.access import NO_RUN_LIMITS, RunLimits, RunQuotas
from chimes.services.filters import RunFilter
from chimes.services.schedules.rules import refuse_agents
from chimes.store.codec.values import recipient_to_plain, target_to_plain
from chimes.store.port import Store
from chimes.store.selection import run_value
from chimes.telemetry import current_traceparent

#: Runs that one search reads, and that one query of it reads.
MAX_SCANNED, _SCAN_BATCH = 2000, 200


class RunService:
    def __init__(
        self, store: Store, *, limits: Callable[[], RunLimits] = lambda: NO_RUN_LIMITS
    ) -> None:
        self._store = store
        self._quotas = RunQuotas(store, limits)

    async def get(self, actor: Actor, run_id: RunId) -> Run:
        run = await self._store.get_run(run_id)
        if run is None or not actor.may_read(run.owner):
            raise NotFound(_("run {id} not found", id=run_id))
        return run

    async def find(self, actor: Actor, query: RunQuery) -> Page[Run]:
        if not actor.sees_all_owners:
            query = replace(query, owner=actor.owner)
        return await self._store.list_runs(query)

    async def search(self, actor: Actor, found: RunFilter) -> Page[Run]:
        """A page of the runs that match a filter. Conditions that the store cannot apply are
        checked in memory, for at most `MAX_SCANNED` runs: the page can then be short, or empty,
        although more follow."""
        if found.same is not None and found.error is None:
            found = found.with_error((await self.get(actor, found.same)).error)
        query = found.query
        if not found.scans:
            return await self.find(actor, query)
        matching: list[Run] = []
        scanned, after = 0, query.after
        while True:
            page = await self.find(actor, replace(query, after=after, limit=_SCAN_BATCH))
            for run in page.items:
                if found.matches(run):
                    matching.append(run)
                    if len(matching) == query.limit and run is not page.items[-1]:
                        # The position of this run, where the next page goes on.
                        return Page(tuple(matching), (run_value(run, query.sort), run.id))
            scanned, after = scanned + len(page.items), page.next
            if after is None or len(matching) == query.limit or scanned >= MAX_SCANNED:
                return Page(tuple(matching), after)

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
        self, actor: Actor, run_id: RunId, *, new_id: RunId | None = None, from_step: str = ""
    ) -> tuple[Run, bool]:
        """Adds a manual run with `retry_of` set, and returns it with whether it was accepted.

        `from_step`: of a flow; the results of steps that succeeded are kept, except those of this
        step and of the steps after it. Idempotent with `new_id`. False: the pair of a sync target
        already has an active run; that run is returned and nothing was added.
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
        retry = traced(retry)
        changes: dict[str, object] = {"run_id": retry.id}
        if from_step:
            retry = replace(retry, step=await self._checked_step(run, from_step))
            changes["from_step"] = from_step
        audit = entry(actor, "retry", "run", run.id, at=now, owner=run.owner, changes=changes)
        if not isinstance(retry.target, SyncTarget):
            return (await self._store.add_runs([retry], audit))[0], True
        retry = replace(retry, priority=NOW_CLASS)
        stored, created = await self._store.add_unless_active(retry, audit)
        return stored, created or stored.id == retry.id

    async def _checked_step(self, run: Run, step: str) -> str:
        """The step, if the run of the flow has come to it."""
        if not isinstance(run.target, FlowTarget):
            raise InvalidInput(
                _("only a flow can be repeated from a step"), field="from_step", code="not_a_flow"
            )
        page = await self._store.list_runs(RunQuery(parent_id=run.id, limit=None))
        known = sorted({each.step.partition("[")[0] for each in page.items})
        if step not in known:
            raise InvalidInput(
                _(
                    "the run has no step {step!r}; it has: {known}",
                    step=step,
                    known=", ".join(known) or _("none"),
                ),
                field="from_step",
                code="unknown_step",
            )
        return step

    async def _operable(self, actor: Actor, run_id: RunId) -> Run:
        run = await self.get(actor, run_id)
        if not actor.may_operate(run.owner):
            raise NotAllowed()
        return run

    async def get_origins(self, actor: Actor, runs: Sequence[Run]) -> dict[RunId, RunOrigin]:
        """Who requested the manual and backfill runs among `runs`, in one query."""
        return await get_run_origins(
            self._store, [run for run in runs if actor.may_read(run.owner)]
        )

    async def list_last_logs(
        self, actor: Actor, run_id: RunId, *, limit: int
    ) -> tuple[LogEntry, ...]:
        """The last `limit` entries of the log."""
        await self.get(actor, run_id)
        last = (await self._store.last_logs([run_id])).get(run_id)
        if last is None:
            return ()
        return await self._store.read_logs(run_id, after=max(0, last.number - limit), limit=limit)


# --- requests for runs ----------------------------------------------------------------------------
#: Audit verbs that add manual runs.
_VERBS = ("start", "run", "retry", "backfill")
#: Audit entries read at once: one for each run, or one for a whole backfill.
_MAX_ENTRIES = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    target: Target
    policy: Policy
    name: str = ""
    namespace: str = DEFAULT_NAMESPACE
    priority: int = 0
    #: None: the actor.
    owner: Owner | None = None
    #: None or a time in the past: now.
    at: datetime | None = None
    #: The policy fields, and `priority`, that the caller chose; the others come from the run
    #: defaults of the task or flow. None: all of them.
    explicit_fields: frozenset[str] | None = None


def with_defaults(request: RunRequest, defaults: RunDefaults | None) -> RunRequest:
    """Fills the fields that the caller did not choose from the run defaults of the target."""
    explicit = request.explicit_fields
    if explicit is None or defaults is None:
        return request
    priority = NOW_CLASS if isinstance(request.target, SyncTarget) else defaults.priority
    return replace(
        request,
        policy=apply_task_defaults(request.policy, defaults.policy, explicit),
        priority=request.priority if PRIORITY in explicit else priority,
        explicit_fields=None,
    )


def traced(run: Run) -> Run:
    """The run with the trace context of the current request."""
    trace = current_traceparent()
    if trace == run.definition.trace:
        return run
    return replace(run, definition=replace(run.definition, trace=trace))


def build_run(request: RunRequest, owner: Owner, run_id: RunId, now: datetime) -> Run:
    """The run of a request. Raises InvalidInput with the field that is wrong."""
    policy = validate_policy(request.policy, request.target)
    check_priority(request.priority, request.target)
    due = max(request.at or now, now)
    if due - now > LONGEST_WAIT:
        raise InvalidInput(
            _("at is more than {days} days ahead", days=LONGEST_WAIT.days),
            field="at",
            code="out_of_range",
        )
    limit = policy.concurrency_limit
    key = shared_key(policy, request.target, owner) if limit < UNLIMITED else None
    return Run(
        id=run_id,
        definition=RunDefinition(
            schedule_name=clean_name(request.name) if request.name else "",
            namespace=request.namespace,
            owner=owner,
            target=request.target,
            policy=policy,
            trace=current_traceparent(),
        ),
        origin=Origin.MANUAL,
        priority=request.priority,
        concurrency_key=key,
        concurrency_limit=limit,
        created_at=now,
        planned_at=due,
        available_at=due,
    )


def audit_details(request: RunRequest) -> dict[str, object]:
    """Target and recipients without secrets, for the audit entry."""
    details: dict[str, object] = {"target": target_to_plain(request.target)}
    if request.policy.delivery:
        details["delivery"] = [recipient_to_plain(each) for each in request.policy.delivery]
    return mask_secrets(details)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOrigin:
    """Who requested a manual run, and through which interface, as recorded in the audit log."""

    name: str
    interface: str


async def get_run_origins(store: Store, runs: Sequence[Run]) -> dict[RunId, RunOrigin]:
    """The origins of the manual and backfill runs among `runs`, in one query.

    The caller has checked that the actor may see the runs; at most a thousand.
    """
    manual = [run for run in runs if run.origin in (Origin.MANUAL, Origin.BACKFILL)]
    if not manual:
        return {}
    times = [run.created_at for run in manual]
    entries = await store.list_audit(
        AuditQuery(
            object_ids=tuple({_audited_object(run) for run in manual}),
            verbs=_VERBS,
            # A run and its audit entry have the same timestamp.
            since=min(times),
            until=max(times),
            limit=_MAX_ENTRIES,
        )
    )
    return match_run_origins(entries, manual)


def match_run_origins(entries: Iterable[AuditEntry], runs: Iterable[Run]) -> dict[RunId, RunOrigin]:
    """An entry names its run; the one entry of a backfill matches its runs by timestamp."""
    by_run: dict[str, RunOrigin] = {}
    by_time: dict[tuple[str, datetime], RunOrigin] = {}
    for each in entries:
        origin = RunOrigin(name=each.actor, interface=each.interface)
        if each.verb == "backfill":
            by_time[each.object_id, each.at] = origin
        else:
            by_run[str(each.changes.get("run_id") or each.object_id)] = origin
    matched = {
        run.id: by_time.get((run.schedule_id or "", run.created_at))
        if run.origin is Origin.BACKFILL
        else by_run.get(run.id)
        for run in runs
    }
    return {run_id: origin for run_id, origin in matched.items() if origin is not None}


def _audited_object(run: Run) -> str:
    """The object id of the audit entry that added the run."""
    scheduled = run.schedule_id or run.id
    return scheduled if run.origin is Origin.BACKFILL else run.retry_of or scheduled
