"""Routes of waiting flows: approvals, events that flows receive, and their steps as a graph."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.i18n import in_language
from chimes.model.ids import RunId
from chimes.model.run import RunStatus, describe_reason
from chimes.model.wait import (
    MAX_KEY,
    Approval,
    ApprovalStatus,
    Decision,
    OnReject,
    WaitKind,
)
from chimes.services.flow_pictures import StepState
from chimes.services.waits import may_decide
from chimes.store.codec.values import owner_to_plain
from chimes.web.api.paging import DEFAULT_LIMIT, MAX_LIMIT, Query
from chimes.web.api.responses import (
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    Moment,
    Out,
    OwnerOut,
    returns,
)
from chimes.web.api.route import Caller, Context, NativeRoute, idempotent_id
from chimes.web.api.schemas import Body, Remark
from chimes.web.api.translate import Json, time_out
from chimes.web.requests import NegotiatedLanguage, set_language

router = APIRouter(
    prefix="/api/v1/approvals", tags=["approvals"], route_class=NativeRoute, responses=COMMON_ERRORS
)
event_router = APIRouter(
    prefix="/api/v1/events", tags=["events"], route_class=NativeRoute, responses=COMMON_ERRORS
)
graph_router = APIRouter(
    prefix="/api/v1/runs", tags=["runs"], route_class=NativeRoute, responses=COMMON_ERRORS
)


# --- approvals ------------------------------------------------------------------------------------
class ApprovalsQuery(Query):
    status: ApprovalStatus | None = Field(
        default=None, description="Only approvals with this status."
    )
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)


class DecisionIn(Body):
    reason: Remark = Field(default="", description="Kept with the decision.")


class DecisionMade(StrEnum):
    APPROVED = "approved"
    REJECTED = "rejected"


class ApprovalOut(Out):
    id: str = Field(description="Id of the approval: that of the run of its step.")
    run_id: str = Field(description="The run of the flow.")
    flow: str = Field(description="Name of the schedule or flow.")
    step: str = Field(description="Name of the step.")
    owner: OwnerOut
    namespace: str
    prompt: str = Field(description="The question.")
    status: ApprovalStatus
    default: Decision = Field(description="The decision when `expires_at` has passed.")
    on_reject: OnReject = Field(
        description="What a rejection does: the step fails, is skipped, or succeeds."
    )
    role: str | None = Field(description="The least role that may decide; null: any that may run.")
    may_decide: bool = Field(description="Whether the caller may decide.")
    created_at: Moment
    expires_at: Moment
    decision: DecisionMade | None = Field(
        description="The decision, also the default of an expired approval."
    )
    decided_by: str | None = Field(description="Who decided; null for the default.")
    decided_at: Moment | None
    reason: str | None = Field(description="What the deciding person wrote.")


class ApprovalList(Out):
    items: list[ApprovalOut]


@router.get("", responses=returns(ApprovalList))
async def list_approvals(
    query: Annotated[ApprovalsQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """List steps of flows that wait for a decision, or waited, the newest first."""
    found = await context.approvals.find(actor, query.status, limit=query.limit)
    return JSONResponse(
        {"items": [approval_out(each, decides=may_decide(actor, each)) for each in found]}
    )


@router.get("/{approval_id}", responses=returns(ApprovalOut) | NOT_FOUND)
async def get_approval(approval_id: str, context: Context, actor: Caller) -> Response:
    """Get an approval."""
    found = await context.approvals.get(actor, approval_id)
    return JSONResponse(approval_out(found, decides=may_decide(actor, found)))


_DECIDED = returns(ApprovalOut) | NOT_FOUND | CONFLICT | BODY_ERRORS


@router.post("/{approval_id}/approve", responses=_DECIDED)
async def approve_step(
    approval_id: str, context: Context, actor: Caller, body: DecisionIn | None = None
) -> Response:
    """Approve: the flow goes on. Of several decisions the first counts, the others get 409
    `decided`; after its expiry 409 `expired`. Keys of agents cannot decide."""
    return await _decide(context, actor, approval_id, Decision.APPROVE, body)


@router.post("/{approval_id}/reject", responses=_DECIDED)
async def reject_step(
    approval_id: str, context: Context, actor: Caller, body: DecisionIn | None = None
) -> Response:
    """Reject: the step fails, is skipped or succeeds, as its `on_reject` says."""
    return await _decide(context, actor, approval_id, Decision.REJECT, body)


async def _decide(
    context: Context, actor: Caller, approval_id: str, decision: Decision, body: DecisionIn | None
) -> Response:
    decided = await context.approvals.decide(
        actor, approval_id, decision, reason="" if body is None else body.reason
    )
    return JSONResponse(approval_out(decided, decides=may_decide(actor, decided)))


def approval_out(approval: Approval, *, decides: bool) -> Json:
    run, wait = approval.run, approval.wait
    is_open = approval.status is ApprovalStatus.OPEN
    return {
        "id": approval.id,
        "run_id": run.parent_id,
        "flow": approval.flow,
        "step": run.step,
        "owner": owner_to_plain(run.owner),
        "namespace": run.namespace,
        "prompt": wait.prompt,
        "status": approval.status.value,
        "default": wait.default.value,
        "on_reject": wait.on_reject.value,
        "role": None if wait.role is None else wait.role.value,
        "may_decide": is_open and decides,
        "created_at": time_out(run.created_at),
        "expires_at": time_out(approval.expires_at),
        "decision": approval.decision or None,
        "decided_by": approval.decided_by or None,
        "decided_at": time_out(run.finished_at),
        "reason": approval.reason or None,
    }


# --- events ---------------------------------------------------------------------------------------
class FlowEventIn(Body):
    key: Annotated[str, Field(max_length=MAX_KEY)] = Field(
        default="", description="Only flows that wait for this key, or for any, receive it."
    )
    data: object = Field(
        default=None, description="The output of the waiting steps; at most 64,000 characters."
    )


class FlowEventOut(Out):
    id: str = Field(description="Id of the event: the Idempotency-Key, if there is one.")
    name: str = Field(description="Name of the event.")
    key: str = Field(description="Its key; empty: none.")
    at: Moment = Field(description="When it was stored.")
    run_ids: list[str] = Field(description="Runs of the waiting steps that received it now.")


@event_router.post(
    "/{event_name}", status_code=202, responses=returns(FlowEventOut, 202) | CONFLICT | BODY_ERRORS
)
async def send_event(
    request: Request,
    event_name: str,
    context: Context,
    actor: Caller,
    body: FlowEventIn | None = None,
) -> Response:
    """Send an event to flows that wait for it (`wait_for_event`). It is stored first, for a day: a
    flow that was started before, and comes to its wait later, receives it too. Flows receive events
    of callers who may operate them."""
    given = body or FlowEventIn()
    event, run_ids = await context.flow_events.send(
        actor, event_name, key=given.key, data=given.data, event_id=idempotent_id(request) or ""
    )
    content = {
        "id": event.id,
        "name": event.name,
        "key": event.key,
        "at": time_out(event.at),
        "run_ids": list(run_ids),
    }
    return JSONResponse(content, status_code=202)


# --- graphs ---------------------------------------------------------------------------------------
class FlowStepOut(Out):
    name: str = Field(description="Name of the step.")
    after: list[str] = Field(description="Names of the steps that it comes after.")
    wait: WaitKind | None = Field(description="What the step waits for; null: it is a task.")
    status: RunStatus | None = Field(
        description="Status of its run; of a mapped step the worst one; null: not begun."
    )
    reason: str | None = Field(description="Why it is in this status.")
    run_id: str | None = Field(description="Its run; null if there is none, or several.")
    runs: int = Field(description="How many runs it has: one for each element of a mapped list.")
    ended: int = Field(description="How many of them have ended.")


class FlowGraphOut(Out):
    flow: str = Field(description="Name of the flow.")
    steps: list[FlowStepOut] = Field(description="In the order of their dependencies.")


@graph_router.get("/{run_id}/graph", responses=returns(FlowGraphOut) | NOT_FOUND)
async def get_run_graph(
    run_id: str, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Get the steps of the run of a flow, with what each comes after and its status. 404 if the run
    is not one of a flow."""
    run = await context.runs.get(actor, RunId(run_id))
    graph = await context.flow_pictures.of(run)
    content = {"flow": graph.flow, "steps": [_step_out(each, lang) for each in graph.steps]}
    return set_language(JSONResponse(content), lang)


def _step_out(step: StepState, lang: str) -> Json:
    return {
        "name": step.name,
        "after": list(step.after),
        "wait": step.wait or None,
        "status": None if step.status is None else step.status.value,
        "reason": in_language(describe_reason(step.reason), lang) or None,
        "run_id": step.run_id,
        "runs": step.runs,
        "ended": step.ended,
    }
