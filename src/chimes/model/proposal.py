"""Proposals: changes that one caller wants and another one approves or rejects (ADR 70)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct, field

from chimes.errors import Conflict, InvalidInput
from chimes.i18n import Message, _, counted, joined
from chimes.model import replace
from chimes.model.access import Actor, Owner, Role
from chimes.model.ids import KeyId

#: Name of the document that lists all proposals.
PROPOSALS_CHECKPOINT = "proposals"
DEFAULT_LIFETIME = timedelta(hours=24)
MIN_LIFETIME = timedelta(minutes=1)
MAX_LIFETIME = timedelta(days=7)
MAX_REASON = 2000
MAX_TITLE = 100
#: Changes of one proposal.
MAX_CHANGES = 100
#: Fires of each kind that a plan names; the others are counted.
MAX_NAMED_FIRES = 5
#: How long an approval may take before another one may begin: its node may have died.
APPROVAL_LEASE = timedelta(minutes=2)


class ProposalStatus(StrEnum):
    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    #: No decision in time. Derived from the time, not stored.
    EXPIRED = "expired"
    #: Approved, but the changes could not be made.
    FAILED = "failed"


class Asker(Struct, frozen=True, kw_only=True):
    """Who proposed, and what it could see then."""

    #: As in the audit log.
    name: str
    #: What it calls itself, e.g. `claude via MCP`.
    title: str = ""
    key_id: KeyId | None = None
    #: Whether its key was one of an agent.
    agent: bool = False
    sees_everything: bool = False


class PlannedWarning(Struct, frozen=True, kw_only=True):
    code: str
    field: str = ""
    #: As stores keep a message (`to_stored`).
    message: str = ""


class PlannedChange(Struct, frozen=True, kw_only=True):
    """One change of a plan, with its effect on fires."""

    #: create, update, delete, pause, resume or run.
    action: str
    #: Of the schedule.
    id: str
    name: str
    namespace: str
    #: Null: it does not exist yet.
    version: int | None = None
    #: Path of a field -> value before and after, without secrets.
    fields: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    added: int = 0
    dropped: int = 0
    moved: int = 0
    #: End of the compared period; None for a run.
    until: datetime | None = None
    #: The first of them.
    first_added: tuple[datetime, ...] = ()
    first_dropped: tuple[datetime, ...] = ()
    first_moved: tuple[tuple[datetime, datetime], ...] = ()
    warnings: tuple[PlannedWarning, ...] = ()


class Approval(Struct, frozen=True, kw_only=True):
    """An approval that is being carried out."""

    by: str
    at: datetime


class Proposal(Struct, frozen=True, kw_only=True):
    id: str
    #: The asker's.
    owner: Owner
    asker: Asker
    reason: str
    namespace: str
    #: As in the request; may contain secrets.
    changes: Mapping[str, object]
    plan: tuple[PlannedChange, ...]
    #: Identifies the plan: equal if it does the same with the same versions of schedules.
    digest: str
    created_at: datetime
    expires_at: datetime
    status: ProposalStatus = ProposalStatus.OPEN
    decided_by: str = ""
    decided_at: datetime | None = None
    #: What the deciding person wrote.
    decision: str = ""
    #: Why it failed, as stores keep a message.
    error: str = ""
    #: Runs that were started.
    runs: tuple[str, ...] = ()
    approval: Approval | None = None

    def status_at(self, now: datetime) -> ProposalStatus:
        if self.status is not ProposalStatus.OPEN or now < self.expires_at:
            return self.status
        # An approval that began in time may still end.
        return self.status if self.is_being_approved(now) else ProposalStatus.EXPIRED

    def is_being_approved(self, now: datetime) -> bool:
        return self.approval is not None and now < self.approval.at + APPROVAL_LEASE


def asking_actor(proposal: Proposal) -> Actor:
    """What the owner of the asker could do, within what the asker could see."""
    return _planner(proposal.owner, sees_everything=proposal.asker.sees_everything)


def planning_actor(actor: Actor) -> Actor:
    """As `asking_actor`, of a caller: it may propose what it may not do itself."""
    planner = _planner(actor.owner, sees_everything=actor.sees_everything)
    return replace(planner, key_id=actor.key_id, interface=actor.interface, address=actor.address)


def _planner(owner: Owner, *, sees_everything: bool) -> Actor:
    return Actor(owner=owner, role=Role.ADMIN if sees_everything else Role.MEMBER)


def check_lifetime(lifetime: timedelta | None) -> timedelta:
    if lifetime is None:
        return DEFAULT_LIFETIME
    if not MIN_LIFETIME <= lifetime <= MAX_LIFETIME:
        raise InvalidInput(
            _("a proposal expires after one minute to seven days"),
            field="expires_in",
            code="out_of_range",
        )
    return lifetime


def check_open(proposal: Proposal, now: datetime) -> None:
    """Raises Conflict if it was decided, has expired or is being approved."""
    status = proposal.status_at(now)
    if status is ProposalStatus.EXPIRED:
        raise Conflict(
            _("the proposal has expired; it must be proposed again"), code="proposal_expired"
        )
    if status is not ProposalStatus.OPEN:
        raise Conflict(
            _(
                "the proposal is {status} already, by {user}",
                status=STATUS_NAMES[status],
                user=proposal.decided_by,
            ),
            code="proposal_decided",
        )
    if proposal.is_being_approved(now):
        raise Conflict(_("the proposal is being approved"), code="under_way")


def begin_approval(proposal: Proposal, digest: str, by: str, now: datetime) -> Proposal:
    """Raises Conflict if another approval has begun, or the plan is not the one of `digest`."""
    check_open(proposal, now)
    check_digest(proposal, digest)
    return replace(proposal, approval=Approval(by=by, at=now))


def check_digest(proposal: Proposal, digest: str) -> None:
    if proposal.digest != digest:
        raise plan_changed()


def plan_changed() -> Conflict:
    return Conflict(
        _("the schedules changed since the plan was shown; look at the new plan"),
        code="plan_changed",
    )


def decide(
    proposal: Proposal,
    status: ProposalStatus,
    by: str,
    now: datetime,
    *,
    reason: str = "",
    error: str = "",
    runs: tuple[str, ...] = (),
) -> Proposal:
    return replace(
        proposal,
        status=status,
        decided_by=by,
        decided_at=now,
        decision=reason,
        error=error,
        runs=runs,
        approval=None,
    )


def withdraw_approval(proposal: Proposal) -> Proposal:
    """Open again after an approval that changed nothing."""
    return replace(proposal, approval=None)


STATUS_NAMES: Mapping[ProposalStatus, Message] = {
    ProposalStatus.OPEN: _("open"),
    ProposalStatus.APPROVED: _("approved"),
    ProposalStatus.REJECTED: _("rejected"),
    ProposalStatus.EXPIRED: _("expired"),
    ProposalStatus.FAILED: _("failed"),
}


def describe_change(change: PlannedChange) -> Message:
    """One line, e.g. `Update backup: adds 7 fires, drops 1`."""
    match change.action:
        case "create":
            head = _("Create {name}", name=change.name)
        case "update":
            head = _("Update {name}", name=change.name)
        case "delete":
            head = _("Delete {name}", name=change.name)
        case "pause":
            head = _("Pause {name}", name=change.name)
        case "resume":
            head = _("Resume {name}", name=change.name)
        case _:
            return _("Run {name} once, now", name=change.name)
    return _("{change}: {fires}", change=head, fires=describe_fires(change))


def describe_fires(change: PlannedChange) -> Message:
    effects = [
        (counted("adds {count} fire", "adds {count} fires", change.added), change.added),
        (counted("drops {count} fire", "drops {count} fires", change.dropped), change.dropped),
        (counted("moves {count} fire", "moves {count} fires", change.moved), change.moved),
    ]
    found = [text for text, count in effects if count]
    return joined(", ", found) if found else _("no fire changes")
