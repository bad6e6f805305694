"""Proposals: a caller describes changes, another one approves or rejects them (ADR 70).

A proposal is a document of its own; an index document lists all of them. The index is written
first, so that a document without an entry cannot exist; entries without a document are ignored.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from chimes.errors import (
    ChimesError,
    Conflict,
    InvalidInput,
    NotAllowed,
    NotFound,
    QuotaExceeded,
    RateLimited,
    StoreError,
)
from chimes.i18n import _, to_stored
from chimes.model import replace
from chimes.model.access import Actor, Owner
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import ScheduleId, uuid7
from chimes.model.notification import make_proposal_delivery
from chimes.model.proposal import (
    MAX_CHANGES,
    MAX_NAMED_FIRES,
    MAX_REASON,
    MAX_TITLE,
    PROPOSALS_CHECKPOINT,
    Asker,
    PlannedChange,
    PlannedWarning,
    Proposal,
    ProposalStatus,
    asking_actor,
    begin_approval,
    check_digest,
    check_lifetime,
    check_open,
    decide,
    plan_changed,
    planning_actor,
    withdraw_approval,
)
from chimes.model.schedule import Schedule
from chimes.model.validation import check_text
from chimes.services.documents import Document, DocumentStore
from chimes.services.manual_runs import ManualRuns
from chimes.services.schedules.changeset import (
    Action,
    Changeset,
    ChangesetItem,
    ChangesetService,
    WantedSchedule,
)
from chimes.services.schedules.prompts import run_id_for
from chimes.services.schedules.rules import deciding_recipients
from chimes.services.schedules.service import ScheduleService
from chimes.store.port import Store

_log = logging.getLogger("chimes.proposals")
#: Open proposals of one owner, and proposals of all owners. Beyond that the oldest that are not
#: open are dropped.
MAX_OPEN = 20
MAX_STORED = 500
#: New proposals of one owner: so many at once, then one per interval.
BURST, INTERVAL = 20, timedelta(minutes=1)
#: Characters of a stored proposal.
MAX_LENGTH = 300_000
#: Deliveries about one proposal.
_MAX_RECIPIENTS = 20
#: Errors that another attempt to approve would repeat.
_FINAL = (InvalidInput, NotFound, QuotaExceeded)

Json = Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestedChanges:
    """The changes of a proposal as model values."""

    wanted: Sequence[WantedSchedule] = ()
    namespace: str
    #: Schedules to delete, pause or resume.
    actions: Mapping[ScheduleId, Action] = field(default_factory=dict)
    #: Schedules to run once.
    run: Sequence[ScheduleId] = ()

    @property
    def count(self) -> int:
        return len(self.wanted) + len(self.actions) + len(self.run)


#: Reads the changes of a request; the owner is that of new schedules which name none.
ReadChanges = Callable[[Json, Owner, datetime], Awaitable[RequestedChanges]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    changeset: Changeset
    runs: Sequence[Schedule]

    @property
    def digest(self) -> str:
        text = json.dumps([self.changeset.digest, [[each.id, each.version] for each in self.runs]])
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    def owners(self) -> set[Owner]:
        found = {each.owner for each in self.runs}
        for item in self.changeset.items:
            found |= {each.owner for each in (item.before, item.after) if each is not None}
        return found

    def changes(self) -> tuple[PlannedChange, ...]:
        items = [
            _planned_change(each) for each in self.changeset.items if each.action is not Action.NONE
        ]
        return (*items, *(_planned_run(each) for each in self.runs))


class ProposalService:
    """Proposals of other owners are NotFound, except for actors that see everything."""

    def __init__(
        self,
        store: Store,
        schedules: ScheduleService,
        changesets: ChangesetService,
        read: ReadChanges,
    ) -> None:
        self._store = store
        self._schedules = schedules
        self._changesets = changesets
        self._manual_runs = ManualRuns(store, schedules.rules)
        self._read = read
        self._index = DocumentStore(store, PROPOSALS_CHECKPOINT)

    # --- proposing ----------------------------------------------------------------------------
    async def propose(
        self,
        actor: Actor,
        changes: Json,
        *,
        reason: str,
        title: str = "",
        lifetime: timedelta | None = None,
        proposal_id: str | None = None,
    ) -> Proposal:
        """Stores a proposal with its plan, and notifies the users that may decide.

        `changes`: in the form of the API. `title`: what the asker calls itself. `proposal_id`:
        derived from the request, so that its repetition returns the first proposal.
        """
        reason = _checked_text(reason, "reason", MAX_REASON)
        if not reason:
            raise InvalidInput(_("say why"), field="reason", code="missing")
        title = _checked_text(title, "asker", MAX_TITLE)
        lifetime = check_lifetime(lifetime)
        now = await self._store.now()
        if proposal_id is not None:
            known = await read_proposal(self._store, proposal_id)
            if known is not None and known.owner == actor.owner:
                return known
        requested, plan = await self._checked_plan(actor, changes, now)
        if not plan.changes():
            raise InvalidInput(
                _("nothing would change: the schedules are as wanted already"),
                field="schedules",
                code="no_changes",
            )
        proposal = Proposal(
            id=proposal_id or uuid7(now),
            owner=actor.owner,
            asker=Asker(
                name=actor.name,
                title=title,
                key_id=actor.key_id,
                agent=actor.is_agent,
                sees_everything=actor.sees_everything,
            ),
            reason=reason,
            namespace=requested.namespace,
            changes=changes,
            plan=plan.changes(),
            digest=plan.digest,
            created_at=now,
            expires_at=now + lifetime,
        )
        document = _to_document(proposal)
        if len(json.dumps(document)) > MAX_LENGTH:
            raise InvalidInput(
                _("the proposal is too large; make several"), field="schedules", code="too_large"
            )
        await self._limit_rate(actor)
        await self._add_to_index(proposal, now)
        audit = _audit(actor, "propose", proposal, now, reason=reason)
        await _document(self._store, proposal.id).change(lambda stored: (document, audit))
        await self._notify(proposal, now)
        return proposal

    async def preview(self, actor: Actor, changes: Json) -> tuple[tuple[PlannedChange, ...], str]:
        """The plan that `propose` would store, and its digest."""
        _requested, plan = await self._checked_plan(actor, changes, await self._store.now())
        return plan.changes(), plan.digest

    async def _checked_plan(
        self, actor: Actor, changes: Json, now: datetime
    ) -> tuple[RequestedChanges, _Plan]:
        planner = planning_actor(actor)
        requested = await self._read(changes, actor.owner, now)
        if not 0 < requested.count <= MAX_CHANGES:
            raise InvalidInput(
                _("a proposal has 1 to {most} changes", most=MAX_CHANGES),
                field="schedules",
                code="out_of_range",
            )
        for schedule_id in (*requested.actions, *requested.run):
            try:
                await self._schedules.get(planner, schedule_id)
            except NotFound as error:
                action = requested.actions.get(schedule_id)
                name = action.value if action else "run"
                raise InvalidInput(error.message, field=name, code="not_found") from None
        return requested, await self._plan(planner, requested)

    async def _limit_rate(self, actor: Actor) -> None:
        taken = await self._store.take_tokens(
            f"proposals:{actor.owner}", rate=1 / INTERVAL.total_seconds(), burst=BURST
        )
        if not taken.granted:
            raise RateLimited(
                _("too many proposals; try again in a minute"), retry_after=taken.wait
            )

    async def _add_to_index(self, proposal: Proposal, now: datetime) -> None:
        owner = str(proposal.owner)
        dropped: list[str] = []

        def add(document: Document) -> tuple[Document, AuditEntry | None]:
            dropped.clear()
            entries = _entries(document)
            entries.pop(proposal.id, None)
            is_open = {key: each for key, each in entries.items() if each.is_open(now)}
            if sum(each.owner == owner for each in is_open.values()) >= MAX_OPEN:
                raise Conflict(
                    _(
                        "{owner} has {most} open proposals: approve or reject some first",
                        owner=owner,
                        most=MAX_OPEN,
                    ),
                    code="too_many_proposals",
                )
            entries[proposal.id] = _Entry(
                owner=owner, created_at=proposal.created_at, expires_at=proposal.expires_at
            )
            surplus = [key for key in entries if key not in is_open and key != proposal.id]
            while len(entries) > MAX_STORED and surplus:
                dropped.append(surplus.pop(0))
                del entries[dropped[-1]]
            if len(entries) > MAX_STORED:
                raise Conflict(_("too many open proposals"), code="too_many_proposals")
            return msgspec.to_builtins(entries), None

        await self._index.change(add)
        for each in dropped:
            await self._store.set_checkpoint(_name(each), None)

    async def _notify(self, proposal: Proposal, now: datetime) -> None:
        """Into the inbox and the linked chats of the users that may decide."""
        recipients = await deciding_recipients(self._store, proposal.owner)
        for owner, recipient in recipients[:_MAX_RECIPIENTS]:
            await self._store.add_delivery(
                make_proposal_delivery(proposal.id, recipient, owner, now)
            )

    # --- reading ------------------------------------------------------------------------------
    async def get(self, actor: Actor, proposal_id: str) -> Proposal:
        found = await read_proposal(self._store, proposal_id)
        if found is None or not actor.may_see(found.owner):
            raise NotFound(_("proposal {id} not found", id=proposal_id))
        return _as_of(found, await self._store.now())

    async def find(
        self, actor: Actor, status: ProposalStatus | None = None, *, limit: int
    ) -> list[Proposal]:
        """The newest first."""
        now = await self._store.now()
        found: list[Proposal] = []
        for key, each in reversed(_entries(await self._index.read()).items()):
            if not _may_see(actor, each.owner):
                continue
            if status is ProposalStatus.OPEN and not each.is_open(now):
                continue
            proposal = await read_proposal(self._store, key)
            if proposal is None or status not in (None, proposal.status_at(now)):
                continue
            found.append(_as_of(proposal, now))
            if len(found) >= limit:
                break
        return found

    async def count_open(self, actor: Actor, now: datetime) -> int:
        """How many the actor can see; reads the index only."""
        entries = _entries(await self._index.read()).values()
        return sum(each.is_open(now) and _may_see(actor, each.owner) for each in entries)

    # --- deciding -----------------------------------------------------------------------------
    async def approve(
        self, actor: Actor, proposal_id: str, *, digest: str = "", reason: str = ""
    ) -> Proposal:
        """Makes the changes with the rights of the actor, within what the asker could see.

        `digest`: of the plan that the actor looked at; empty: the stored one. Raises Conflict
        `plan_changed` if the changes would now do something else; the proposal then has the new
        plan and stays open. Of concurrent approvals one succeeds, the others raise Conflict. If the
        changes cannot be made, the proposal becomes `failed`.
        """
        reason = _checked_text(reason, "reason", MAX_REASON)
        proposal = await self.get(actor, proposal_id)
        check_approver(actor, proposal)
        now = await self._store.now()
        check_open(proposal, now)
        digest = digest or proposal.digest
        check_digest(proposal, digest)
        await self._check_visible(actor, proposal)
        try:
            requested = await self._read(proposal.changes, proposal.owner, proposal.created_at)
            plan = await self._plan(actor, requested)
        except _FINAL as error:
            await self._begin(actor, proposal_id, digest)
            return await self._fail(actor, proposal_id, error, reason)
        asker = asking_actor(proposal)
        if not all(asker.may_see(owner) for owner in plan.owners()):
            raise NotAllowed()
        if plan.digest != digest:
            await self._store_new_plan(proposal_id, plan)
            raise plan_changed()
        self._check_runs(actor, plan)
        await self._begin(actor, proposal_id, digest)
        return await self._apply(actor, proposal, requested, plan, reason)

    async def _begin(self, actor: Actor, proposal_id: str, digest: str) -> None:
        now = await self._store.now()
        await self._change(
            proposal_id, lambda stored: (begin_approval(stored, digest, actor.name, now), None)
        )

    async def _apply(
        self,
        actor: Actor,
        proposal: Proposal,
        requested: RequestedChanges,
        plan: _Plan,
        reason: str,
    ) -> Proposal:
        """Makes the changes of an approval that has begun."""
        try:
            await self._changesets.apply(
                actor,
                requested.wanted,
                origin="",
                namespace=requested.namespace,
                actions=requested.actions,
                expected=plan.changeset.digest,
            )
        except _FINAL as error:
            return await self._fail(actor, proposal.id, error, reason)
        except Conflict:
            # A schedule was changed or created after the plan: nothing was changed.
            await self._withdraw(proposal.id)
            await self._store_new_plan(proposal.id, await self._plan(actor, requested))
            raise plan_changed() from None
        except BaseException:
            # The store does not answer, or the request is canceled: another approval plans again.
            await self._withdraw(proposal.id)
            raise
        runs: list[str] = []
        try:
            for each in plan.runs:
                # The id is derived: a repetition after a crash makes no second run.
                run_id = run_id_for(f"proposal:{proposal.id}:{each.id}")
                run, _created = await self._manual_runs.run_now_or_get(
                    actor, each.id, run_id=run_id
                )
                runs.append(run.id)
        except StoreError:
            await self._withdraw(proposal.id)
            raise
        except ChimesError as error:
            return await self._fail(actor, proposal.id, error, reason, tuple(runs))
        return await self._decide(
            actor, proposal.id, ProposalStatus.APPROVED, "approve", reason, runs=tuple(runs)
        )

    async def _withdraw(self, proposal_id: str) -> None:
        try:
            await self._change(proposal_id, lambda stored: (withdraw_approval(stored), None))
        except ChimesError as error:
            _log.warning("the approval of %s ends by itself: %s", proposal_id, error)

    async def _fail(
        self,
        actor: Actor,
        proposal_id: str,
        error: ChimesError,
        reason: str,
        runs: tuple[str, ...] = (),
    ) -> Proposal:
        return await self._decide(
            actor,
            proposal_id,
            ProposalStatus.FAILED,
            "approve",
            reason,
            error=to_stored(error.message),
            runs=runs,
        )

    async def reject(self, actor: Actor, proposal_id: str, *, reason: str = "") -> Proposal:
        """For users that may change something of the owner, and for the asker."""
        reason = _checked_text(reason, "reason", MAX_REASON)
        proposal = await self.get(actor, proposal_id)
        own = actor.name == proposal.asker.name
        if not own and (actor.is_agent or not _may_decide(actor, proposal.owner)):
            raise NotAllowed()
        check_open(proposal, await self._store.now())
        return await self._decide(actor, proposal_id, ProposalStatus.REJECTED, "reject", reason)

    async def _decide(
        self,
        actor: Actor,
        proposal_id: str,
        status: ProposalStatus,
        verb: str,
        reason: str,
        *,
        error: str = "",
        runs: tuple[str, ...] = (),
    ) -> Proposal:
        now = await self._store.now()

        def change(stored: Proposal) -> tuple[Proposal, AuditEntry | None]:
            if status is ProposalStatus.REJECTED or stored.status is not ProposalStatus.OPEN:
                check_open(stored, now)
            after = decide(stored, status, actor.name, now, reason=reason, error=error, runs=runs)
            changes = {"status": [ProposalStatus.OPEN.value, status.value]}
            return after, _audit(actor, verb, after, now, reason=reason, changes=changes)

        decided = await self._change(proposal_id, change)
        await self._close_entry(proposal_id)
        return decided

    async def _close_entry(self, proposal_id: str) -> None:
        def close(document: Document) -> tuple[Document, AuditEntry | None]:
            entries = _entries(document)
            if proposal_id in entries:
                entries[proposal_id] = replace(entries[proposal_id], decided=True)
            return msgspec.to_builtins(entries), None

        await self._index.change(close)

    async def _store_new_plan(self, proposal_id: str, plan: _Plan) -> None:
        now = await self._store.now()

        def change(stored: Proposal) -> tuple[Proposal, AuditEntry | None]:
            check_open(stored, now)
            return replace(stored, plan=plan.changes(), digest=plan.digest), None

        await self._change(proposal_id, change)

    async def _change(
        self,
        proposal_id: str,
        change: Callable[[Proposal], tuple[Proposal, AuditEntry | None]],
    ) -> Proposal:
        def changed(document: Document) -> tuple[Document, AuditEntry | None]:
            stored = _from_document(document)
            if stored is None:
                raise NotFound(_("proposal {id} not found", id=proposal_id))
            after, audit = change(stored)
            return _to_document(after), audit

        found = _from_document(await _document(self._store, proposal_id).change(changed))
        assert found is not None
        return found

    # --- plans --------------------------------------------------------------------------------
    async def _plan(self, actor: Actor, requested: RequestedChanges) -> _Plan:
        changeset = await self._changesets.plan(
            actor,
            requested.wanted,
            origin="",
            namespace=requested.namespace,
            actions=requested.actions,
        )
        runs: list[Schedule] = []
        for schedule_id in requested.run:
            try:
                runs.append(await self._schedules.get(actor, schedule_id))
            except NotFound:
                continue
        return _Plan(changeset=changeset, runs=runs)

    async def _check_visible(self, actor: Actor, proposal: Proposal) -> None:
        """A plan leaves out what the actor does not see; such a plan must not replace the one that
        was shown."""
        for each in proposal.plan:
            schedule = await self._store.get_schedule(ScheduleId(each.id))
            if schedule is not None and not actor.may_see(schedule.owner):
                raise NotAllowed()

    def _check_runs(self, actor: Actor, plan: _Plan) -> None:
        if not all(actor.may_operate(each.owner) for each in plan.runs):
            raise NotAllowed()


def check_approver(actor: Actor, proposal: Proposal) -> None:
    """Raises NotAllowed for agents, for the key that proposed, and for callers without rights. What
    the approval changes is checked when it is planned."""
    if actor.is_agent:
        raise NotAllowed(_("the key of an agent cannot approve proposals"))
    if actor.key_id is not None and actor.key_id == proposal.asker.key_id:
        raise NotAllowed(
            _("the key that made a proposal cannot approve it; use another key or the dashboard")
        )
    if not _may_decide(actor, proposal.owner):
        raise NotAllowed()


def may_decide(actor: Actor, proposal: Proposal) -> bool:
    """Whether to offer the decision; the changes themselves may need more rights."""
    try:
        check_approver(actor, proposal)
    except NotAllowed:
        return False
    return True


async def read_proposal(store: Store, proposal_id: str) -> Proposal | None:
    """None: it does not exist, or cannot be read."""
    return _from_document(await _document(store, proposal_id).read())


async def prune_proposals(store: Store, *, before: datetime) -> int:
    """Deletes proposals that ended before then; returns how many."""
    index = DocumentStore(store, PROPOSALS_CHECKPOINT)
    old = [key for key, each in _entries(await index.read()).items() if each.expires_at < before]
    for key in old:
        await store.set_checkpoint(_name(key), None)

    def remove(document: Document) -> tuple[Document, AuditEntry | None]:
        entries = _entries(document)
        return msgspec.to_builtins({k: each for k, each in entries.items() if k not in old}), None

    if old:
        await index.change(remove)
    return len(old)


# --- documents ------------------------------------------------------------------------------------
class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the index."""

    owner: str
    created_at: datetime
    expires_at: datetime
    #: False shortly after a decision, or if the deciding node died; the document decides.
    decided: bool = False

    def is_open(self, now: datetime) -> bool:
        return not self.decided and now < self.expires_at


def _entries(document: Document) -> dict[str, _Entry]:
    """Oldest first."""
    found: dict[str, _Entry] = {}
    for key, each in document.items():
        try:
            found[key] = msgspec.convert(each, _Entry)
        except msgspec.ValidationError:
            continue
    return dict(sorted(found.items(), key=lambda each: (each[1].created_at, each[0])))


def _may_see(actor: Actor, owner: str) -> bool:
    return actor.sees_everything or owner == str(actor.owner)


def _may_decide(actor: Actor, owner: Owner) -> bool:
    return actor.may_write(owner) or actor.may_operate(owner)


def _name(proposal_id: str) -> str:
    return f"proposal:{proposal_id}"


def _document(store: Store, proposal_id: str) -> DocumentStore:
    return DocumentStore(store, _name(proposal_id))


def _to_document(proposal: Proposal) -> Document:
    """The changes are in a field that redaction recognises, so that stores encrypt the document."""
    document: Document = msgspec.to_builtins(proposal)
    document["secret"] = json.dumps(document.pop("changes"), ensure_ascii=False)
    return document


def _from_document(document: Document) -> Proposal | None:
    if not document:
        return None
    try:
        content = dict(document)
        content["changes"] = json.loads(str(content.pop("secret")))
        return msgspec.convert(content, Proposal)
    except (KeyError, ValueError) as error:
        _log.warning("a proposal cannot be read: %s", error)
        return None


def _as_of(proposal: Proposal, now: datetime) -> Proposal:
    return replace(proposal, status=proposal.status_at(now))


def _checked_text(text: str, name: str, most: int) -> str:
    text = text.strip().replace("\r\n", "\n")
    for line in text.split("\n"):
        check_text(line, name)
    if len(text) > most:
        raise InvalidInput(_("at most {most} characters", most=most), field=name, code="too_long")
    return text


def _audit(
    actor: Actor,
    verb: str,
    proposal: Proposal,
    now: datetime,
    *,
    reason: str,
    changes: Mapping[str, object] | None = None,
) -> AuditEntry:
    about: dict[str, object] = {
        "asker": proposal.asker.title or proposal.asker.name,
        "schedules": [each.name for each in proposal.plan[:MAX_NAMED_FIRES]],
        "count": len(proposal.plan),
    }
    return entry(
        actor,
        verb,
        "proposal",
        proposal.id,
        at=now,
        owner=proposal.owner,
        changes=about | dict(changes or {}),
        reason=reason,
    )


def _planned_change(item: ChangesetItem) -> PlannedChange:
    fires = item.fires
    return PlannedChange(
        action=item.action.value,
        id=item.id,
        name=item.name,
        namespace=item.namespace,
        version=item.version,
        fields=dict(item.fields),
        added=len(fires.added),
        dropped=len(fires.dropped),
        moved=len(fires.moved),
        until=fires.until,
        first_added=fires.added[:MAX_NAMED_FIRES],
        first_dropped=fires.dropped[:MAX_NAMED_FIRES],
        first_moved=fires.moved[:MAX_NAMED_FIRES],
        warnings=tuple(
            PlannedWarning(code=each.code, field=each.field, message=to_stored(each.message))
            for each in item.warnings
        ),
    )


def _planned_run(schedule: Schedule) -> PlannedChange:
    return PlannedChange(
        action="run",
        id=schedule.id,
        name=schedule.name,
        namespace=schedule.namespace,
        version=schedule.version,
    )
