"""Waits of flows: approvals that people decide, events that flows receive, pictures (ADR 81, 82).

A wait is a child run in the queue that no node can claim (`chimes.model.wait`). Ending it is one
change of its row; a second change makes the parent flow due at once (`expedite`). Both are
idempotent. If a process dies between them, the flow's periodic check resumes it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec

from chimes.errors import InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Role
from chimes.model.audit import AuditEntry, entry
from chimes.model.flow_graph import (
    FLOW_GRAPHS,
    FlowGraph,
    PublishedGraph,
    graph_at,
    publish,
    published,
)
from chimes.model.ids import RunId, uuid7
from chimes.model.listing import RunQuery
from chimes.model.notification import make_approval_delivery
from chimes.model.recipient import Recipient
from chimes.model.run import Origin, Run, RunStatus
from chimes.model.target import FlowTarget
from chimes.model.validation import check_text
from chimes.model.wait import (
    MAX_EVENT_DATA,
    MAX_KEY,
    MAX_REASON,
    Approval,
    ApprovalStatus,
    Decision,
    WaitEvent,
    WaitKind,
    approval_of,
    check_event_name,
    decide_wait,
    expedite,
    is_open,
    matches,
    receive_event,
    wait_requirement,
)
from chimes.services.documents import Document, DocumentStore
from chimes.services.schedules.rules import deciding_recipients
from chimes.store.port import Store

#: Gets a run and the store's time; returns what becomes of it.
Change = Callable[[Run, datetime], Run]

_log = logging.getLogger("chimes.waits")
#: Events of one owner that are kept for flows that do not wait yet, and for how long.
MAX_EVENTS, MAX_EVENTS_LENGTH = 500, 500_000
EVENT_RETENTION = timedelta(days=1)
#: The last approvals that were announced, oldest first.
_RECENT, MAX_RECENT = "approvals", 1000
#: Prefix of the documents that keep recent events, one per owner.
_EVENTS = "flow-events:"
#: Events that reach the flows of all owners. The asterisk is part of the name, not a pattern.
_EVERYWHERE = f"{_EVENTS}*"
#: Waits that one page of a search reads.
_PAGE = 200
_MAX_RECIPIENTS = 20
_ROLES = list(Role)


# --- approvals ------------------------------------------------------------------------------------
class ApprovalService:
    """Approvals of other owners are NotFound, except for actors that see everything."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(
        self, actor: Actor, status: ApprovalStatus | None = None, *, limit: int
    ) -> list[Approval]:
        """Newest first. Open approvals are read from the queue, decided ones from the last
        MAX_RECENT that were announced, because a search of all runs is too slow."""
        now = await self._store.now()
        owner = None if actor.sees_everything else actor.owner
        if status is ApprovalStatus.OPEN:
            query = RunQuery(
                owner=owner,
                requirement=wait_requirement(WaitKind.APPROVAL),
                origin=Origin.CHILD,
                statuses=(RunStatus.QUEUED,),
                limit=_PAGE,
            )
        else:
            query = RunQuery(owner=owner, ids=await self._recent(), limit=_PAGE)
        found: list[Approval] = []
        while True:
            page = await self._store.list_runs(query)
            for run in page.items:
                approval = approval_of(run, now)
                if approval is not None and status in (None, approval.status):
                    found.append(approval)
                    if len(found) == limit:
                        return found
            if page.next is None:
                return found
            query = replace(query, after=page.next)

    async def count_open(self, actor: Actor) -> int:
        """The open ones among the last MAX_RECENT that the actor may see. Cheap, for pages that are
        polled."""
        recent = await self._recent()
        if not recent:
            return 0
        owner = None if actor.sees_everything else actor.owner
        query = RunQuery(owner=owner, ids=recent, statuses=(RunStatus.QUEUED,), limit=None)
        now = await self._store.now()
        return sum(is_open(run, now) for run in (await self._store.list_runs(query)).items)

    async def _recent(self) -> tuple[RunId, ...]:
        return _ids_of(await DocumentStore(self._store, _RECENT).read())

    async def get(self, actor: Actor, approval_id: str) -> Approval:
        run = await self._store.get_run(RunId(approval_id))
        found = None
        if run is not None and actor.may_see(run.owner):
            found = approval_of(run, await self._store.now())
        if found is None:
            raise NotFound(_("approval {id} not found", id=approval_id[:100]))
        return found

    async def decide(
        self, actor: Actor, approval_id: str, decision: Decision, *, reason: str = ""
    ) -> Approval:
        """Of concurrent decisions one succeeds, the others raise Conflict."""
        approval = await self.get(actor, approval_id)
        reason = _checked_reason(reason)
        if not may_decide(actor, approval):
            raise NotAllowed(_not_allowed(actor, approval))
        now = await self._store.now()
        run = approval.run
        audit = entry(
            actor,
            "approve_step" if decision is Decision.APPROVE else "reject_step",
            "approval",
            run.id,
            at=now,
            owner=run.owner,
            changes={"flow": approval.flow, "step": run.step, "run_id": run.parent_id},
            reason=reason,
        )

        def change(stored: Run, at: datetime) -> Run:
            return decide_wait(stored, decision, actor.name, reason, at)

        decided = await end_wait(self._store, run.id, change, audit)
        found = None if decided is None else approval_of(decided, now)
        if found is None:
            raise NotFound(_("approval {id} not found", id=approval_id[:100]))
        return found


def may_decide(actor: Actor, approval: Approval) -> bool:
    """Whether the actor may operate the run, is no agent, and has the role that the step names."""
    role = approval.wait.role
    enough = role is None or _ROLES.index(actor.role) >= _ROLES.index(role)
    return enough and not actor.is_agent and actor.may_operate(approval.run.owner)


def _not_allowed(actor: Actor, approval: Approval) -> str:
    if actor.is_agent:
        return _("the key of an agent cannot decide about approvals")
    role = approval.wait.role
    if role is not None and _ROLES.index(actor.role) < _ROLES.index(role):
        return _("this approval needs the role {role}", role=role.value)
    return _("you may not decide about this approval")


def _checked_reason(reason: str) -> str:
    reason = reason.strip().replace("\r\n", "\n")
    for line in reason.split("\n"):
        check_text(line, "reason")
    if len(reason) > MAX_REASON:
        raise InvalidInput(
            _("at most {most} characters", most=MAX_REASON), field="reason", code="too_long"
        )
    return reason


async def end_wait(
    store: Store,
    run_id: RunId,
    change: Change,
    audit: AuditEntry | None = None,
) -> Run | None:
    """Changes a wait, and lets its flow continue if it has ended."""
    run = await store.change_run(run_id, change, audit)
    if run is not None and run.status.terminal and run.parent_id is not None:
        await store.change_run(run.parent_id, expedite)
    return run


async def announce_approval(store: Store, run: Run, recipients: Sequence[Recipient]) -> None:
    """Notes an approval for lists, and writes its deliveries; existing ones stay unchanged."""

    def note(document: Document) -> tuple[Document, None]:
        known = _ids_of(document)
        kept = known if run.id in known else (*known, run.id)
        return {"ids": list(kept[-MAX_RECENT:])}, None

    await DocumentStore(store, _RECENT).change(note)
    approval = approval_of(run, run.created_at)
    admins = approval is not None and approval.wait.role is Role.ADMIN
    found = await deciding_recipients(store, run.owner, admins=admins)
    found += [(run.owner, each) for each in recipients]
    for owner, recipient in found[:_MAX_RECIPIENTS]:
        await store.add_delivery(make_approval_delivery(run, recipient, owner))


def _ids_of(document: Document) -> tuple[RunId, ...]:
    ids = document.get("ids", [])
    return tuple(RunId(str(each)) for each in ids) if isinstance(ids, list) else ()


# --- events ---------------------------------------------------------------------------------------
class FlowEvents:
    """Events that waiting flows receive."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def send(
        self, actor: Actor, name: str, *, key: str = "", data: object = None, event_id: str = ""
    ) -> tuple[WaitEvent, tuple[RunId, ...]]:
        """Stores an event, and ends the waits that it is for; returns their ids. A repeated id is
        the same event, so that no wait gets it twice. Flows of owners whose runs the actor may
        operate receive it."""
        everywhere = actor.role in (Role.OPERATOR, Role.ADMIN)
        if actor.is_agent or not actor.may_operate(actor.owner):
            raise NotAllowed()
        now = await self._store.now()
        event = WaitEvent(
            id=_checked_id(event_id) or uuid7(now),
            name=check_event_name(name),
            key=_checked_key(key),
            data=_checked_data(data),
            at=now,
            owner=str(actor.owner),
            everywhere=everywhere,
        )
        event = await self._keep(event)
        return event, await self._deliver(event)

    async def _keep(self, event: WaitEvent) -> WaitEvent:
        """Stores the event before any wait is ended, so that a wait that begins meanwhile finds it.
        Returns the stored one if its id was sent before."""
        name = _EVERYWHERE if event.everywhere else f"{_EVENTS}{event.owner}"

        def add(document: Document) -> tuple[Document, None]:
            known = _events_of(document)
            same = next((each for each in known if each.id == event.id), None)
            if same is not None:
                return document, None
            kept = [each for each in known if each.at > event.at - EVENT_RETENTION]
            plain = [msgspec.to_builtins(each) for each in [*kept[1 - MAX_EVENTS :], event]]
            sizes = [len(json.dumps(each, ensure_ascii=False)) for each in plain]
            while sum(sizes) > MAX_EVENTS_LENGTH:
                del sizes[0], plain[0]
            return {"events": plain}, None

        stored = await DocumentStore(self._store, name).change(add)
        return next((each for each in _events_of(stored) if each.id == event.id), event)

    async def _deliver(self, event: WaitEvent) -> tuple[RunId, ...]:
        ended: list[RunId] = []
        query = RunQuery(
            requirement=wait_requirement(WaitKind.EVENT, event.name),
            origin=Origin.CHILD,
            statuses=(RunStatus.QUEUED,),
            limit=_PAGE,
        )
        while True:
            page = await self._store.list_runs(query)
            for run in page.items:
                # A flow that was started later does not receive it.
                if matches(run, event, event.at) and run.created_at <= event.at:
                    after = await end_wait(self._store, run.id, partial(_receive, event=event))
                    if after is not None and _received(after, event):
                        ended.append(run.id)
            if page.next is None:
                return tuple(ended)
            query = replace(query, after=page.next)


def _receive(run: Run, now: datetime, *, event: WaitEvent) -> Run:
    return receive_event(run, event, now)


def _received(run: Run, event: WaitEvent) -> bool:
    return run.result is not None and run.result.get("event_id") == event.id


async def receive_stored_event(
    store: Store, run: Run, since: datetime, used: Collection[str]
) -> Run | None:
    """Ends a wait with the first event stored since `since` whose id is not in `used`; None if
    there is none."""
    for name in (f"{_EVENTS}{run.owner}", _EVERYWHERE):
        for event in _events_of(await DocumentStore(store, name).read()):
            if event.at >= since and event.id not in used and matches(run, event, event.at):
                return await store.change_run(run.id, partial(_receive, event=event))
    return None


def _events_of(document: Document) -> list[WaitEvent]:
    try:
        return msgspec.convert(document.get("events", []), list[WaitEvent])
    except msgspec.ValidationError as error:
        _log.warning("stored events cannot be read: %s", error)
        return []


def _checked_id(event_id: str) -> str:
    check_text(event_id, "id")
    return event_id if len(event_id) <= 100 else hashlib.sha256(event_id.encode()).hexdigest()


def _checked_key(key: str) -> str:
    check_text(key, "key")
    if len(key) > MAX_KEY:
        raise InvalidInput(
            _("at most {most} characters", most=MAX_KEY), field="key", code="too_long"
        )
    return key


def _checked_data(data: object) -> object:
    if len(json.dumps(data, ensure_ascii=False)) > MAX_EVENT_DATA:
        raise InvalidInput(
            _("at most {most} characters", most=MAX_EVENT_DATA), field="data", code="too_large"
        )
    return data


# --- pictures -------------------------------------------------------------------------------------
async def publish_graph(store: Store, graph: FlowGraph, now: datetime) -> None:
    def change(document: Document) -> tuple[Document, AuditEntry | None]:
        return publish(document, graph, now), None

    await DocumentStore(store, f"{FLOW_GRAPHS}{graph.name}").change(change)


async def graph_of_run(store: Store, run: Run) -> FlowGraph | None:
    """The steps of the flow as they were when the run ended, or are now; None: unknown."""
    if not isinstance(run.target, FlowTarget):
        return None
    graphs: Sequence[PublishedGraph] = published(
        await DocumentStore(store, f"{FLOW_GRAPHS}{run.target.name}").read()
    )
    return graph_at(graphs, run.finished_at or await store.now())
