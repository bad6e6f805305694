"""Proposals: the list, and a page with the plan on which a person approves or rejects."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from chimes.errors import NotFound
from chimes.i18n import Message, _, from_stored
from chimes.model.ids import ScheduleId
from chimes.model.proposal import (
    STATUS_NAMES,
    PlannedChange,
    Proposal,
    ProposalStatus,
    describe_change,
    describe_fires,
)
from chimes.services.proposals import may_decide
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    FormError,
    PageRequest,
    PageRouter,
    status_of,
)

router = PageRouter()
_PATH = "/ui/proposals"
_LIMIT = 100
#: Characters of a value in the table of changed fields.
_MAX_VALUE = 2000
_TONES = {
    ProposalStatus.OPEN: "warn",
    ProposalStatus.APPROVED: "ok",
    ProposalStatus.FAILED: "bad",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedField:
    path: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeView:
    change: PlannedChange
    title: Message
    fires: Message
    fields: tuple[ChangedField, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProposalView:
    proposal: Proposal
    asker: str
    status: Message
    tone: str
    changes: tuple[ChangeView, ...]

    @property
    def is_open(self) -> bool:
        return self.proposal.status is ProposalStatus.OPEN

    @property
    def error(self) -> str:
        return from_stored(self.proposal.error)


@router.get("/proposals")
async def list_proposals(request: PageRequest) -> Response:
    """Open proposals, or all (`?status=all`)."""
    wanted = None if request.query.get("status") == "all" else ProposalStatus.OPEN
    found = await request.context.proposals.find(request.actor, wanted, limit=_LIMIT)
    return request.render(
        "proposals/page.html", rows=[_view(each) for each in found], all=wanted is None
    )


@router.get("/proposals/{id}")
async def show_proposal(request: PageRequest) -> Response:
    return await _page(request)


@router.post("/proposals/{id}/approve")
async def approve_proposal(request: PageRequest) -> Response:
    return await _decide(
        request,
        lambda: request.context.proposals.approve(
            request.actor,
            request.path_params["id"],
            digest=request.form.text("digest"),
            reason=request.form.raw("reason"),
        ),
    )


@router.post("/proposals/{id}/reject")
async def reject_proposal(request: PageRequest) -> Response:
    return await _decide(
        request,
        lambda: request.context.proposals.reject(
            request.actor, request.path_params["id"], reason=request.form.raw("reason")
        ),
    )


async def _decide(request: PageRequest, decide: Callable[[], Awaitable[Proposal]]) -> Response:
    """A refused decision shows the page again, with the plan as it is now."""
    try:
        decided = await decide()
    except FORM_ERRORS as error:
        return await _page(request, await request.form_error(error))
    page = f"{_PATH}/{decided.id}"
    if decided.status is ProposalStatus.FAILED:
        return request.redirect_with_toast(
            _("The changes could not be made."), to=page, kind="error"
        )
    if decided.status is ProposalStatus.REJECTED:
        return request.redirect_with_toast(_("Proposal rejected."), to=page)
    return request.redirect_with_toast(_("Proposal approved. The changes are made."), to=page)


async def _page(request: PageRequest, error: FormError | None = None) -> Response:
    proposal = await request.context.proposals.get(request.actor, request.path_params["id"])
    own = request.actor.name == proposal.asker.name
    may = may_decide(request.actor, proposal)
    return request.render(
        "proposals/proposal.html",
        status=status_of(error),
        view=_view(proposal),
        may_approve=may,
        may_reject=may or own,
        error=error,
        reason=request.form.raw("reason"),
        schedules=await _existing(request, proposal),
    )


async def _existing(request: PageRequest, proposal: Proposal) -> frozenset[str]:
    """Ids of schedules that have a page for the user."""
    found: set[str] = set()
    for each in proposal.plan:
        try:
            found.add((await request.context.schedules.get(request.actor, ScheduleId(each.id))).id)
        except NotFound:
            continue
    return frozenset(found)


def _view(proposal: Proposal) -> ProposalView:
    return ProposalView(
        proposal=proposal,
        asker=proposal.asker.title or proposal.asker.name,
        status=STATUS_NAMES[proposal.status],
        tone=_TONES.get(proposal.status, ""),
        changes=tuple(_change_view(each) for each in proposal.plan),
    )


def _change_view(change: PlannedChange) -> ChangeView:
    fields = [
        ChangedField(path=path, before=_text(before), after=_text(after))
        for path, (before, after) in change.fields.items()
        if path != "name" or change.action == "update"
    ]
    if change.action != "update":
        # Of a new schedule the fields that have a value; a deleted one is shown by its page.
        fields = [each for each in fields if each.after and change.action != "delete"]
    return ChangeView(
        change=change,
        title=describe_change(change),
        fires=describe_fires(change),
        fields=tuple(fields),
        warnings=tuple(from_stored(each.message) for each in change.warnings),
    )


def _text(value: object) -> str:
    if value in (None, "", {}, []):
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"
