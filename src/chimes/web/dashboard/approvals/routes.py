"""Approvals: steps of flows that wait for a decision, and a page on which a person decides."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from chimes.i18n import Message, _
from chimes.model.wait import APPROVAL_STATUS_NAMES, Approval, ApprovalStatus, Decision
from chimes.services.waits import may_decide
from chimes.web.dashboard.core.page_request import (
    FORM_ERRORS,
    FormError,
    PageRequest,
    PageRouter,
    status_of,
)
from chimes.web.dashboard.runs.views import visible

router = PageRouter()
_PATH = "/ui/approvals"
_LIMIT = 100
_TONES = {
    ApprovalStatus.OPEN: "warn",
    ApprovalStatus.APPROVED: "ok",
    ApprovalStatus.REJECTED: "bad",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalView:
    approval: Approval
    status: Message
    tone: str

    @property
    def is_open(self) -> bool:
        return self.approval.status is ApprovalStatus.OPEN


@router.get("/approvals")
async def list_approvals(request: PageRequest) -> Response:
    """Open approvals, or all (`?status=all`)."""
    wanted = None if request.query.get("status") == "all" else ApprovalStatus.OPEN
    found = await request.context.approvals.find(request.actor, wanted, limit=_LIMIT)
    return request.render(
        "approvals/page.html",
        rows=[_view(each) for each in found],
        all=wanted is None,
        visible=visible,
    )


@router.get("/approvals/{id}")
async def show_approval(request: PageRequest) -> Response:
    return await _page(request)


@router.post("/approvals/{id}/approve")
async def approve(request: PageRequest) -> Response:
    return await _decide(request, Decision.APPROVE)


@router.post("/approvals/{id}/reject")
async def reject(request: PageRequest) -> Response:
    return await _decide(request, Decision.REJECT)


async def _decide(request: PageRequest, decision: Decision) -> Response:
    """A refused decision shows the page again, with the approval as it is now."""
    try:
        decided = await request.context.approvals.decide(
            request.actor, request.path_params["id"], decision, reason=request.form.raw("reason")
        )
    except FORM_ERRORS as error:
        return await _page(request, await request.form_error(error))
    text = _("Approved. The flow goes on.")
    if decision is Decision.REJECT:
        text = _("Rejected.")
    return request.redirect_with_toast(text, to=f"/ui/runs/{decided.run.parent_id}")


async def _page(request: PageRequest, error: FormError | None = None) -> Response:
    approval = await request.context.approvals.get(request.actor, request.path_params["id"])
    return request.render(
        "approvals/approval.html",
        status=status_of(error),
        view=_view(approval),
        may_decide=may_decide(request.actor, approval),
        error=error,
        reason=request.form.raw("reason"),
        visible=visible,
    )


def _view(approval: Approval) -> ApprovalView:
    return ApprovalView(
        approval=approval,
        status=APPROVAL_STATUS_NAMES[approval.status],
        tone=_TONES.get(approval.status, ""),
    )
