"""Routes of proposals: changes that wait for the decision of a person."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.config import Settings
from chimes.errors import InvalidInput, InvalidItems
from chimes.i18n import _, from_stored, in_language
from chimes.model import replace
from chimes.model.access import Actor, Owner
from chimes.model.ids import DEFAULT_NAMESPACE, ScheduleId
from chimes.model.proposal import (
    MAX_CHANGES,
    MAX_REASON,
    MAX_TITLE,
    PlannedChange,
    Proposal,
    ProposalStatus,
)
from chimes.model.validation import ID_LIMIT
from chimes.services.proposals import ReadChanges, RequestedChanges
from chimes.services.schedules.changeset import Action
from chimes.services.schedules.rules import load_calendars
from chimes.store.codec.values import owner_to_plain
from chimes.web.api.paging import DEFAULT_LIMIT, MAX_LIMIT, Query
from chimes.web.api.responses import (
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    FireChangesOut,
    Moment,
    Out,
    OwnerOut,
    WarningOut,
    returns,
)
from chimes.web.api.route import (
    Caller,
    Context,
    NativeRoute,
    SetRoute,
    idempotent_id,
    mark_without_effect,
)
from chimes.web.api.schemas import (
    AppliedScheduleIn,
    Body,
    DurationField,
    Namespace,
    Remark,
)
from chimes.web.api.translate import Json, time_out, wanted_from
from chimes.web.requests import NegotiatedLanguage, set_language

router = APIRouter(
    prefix="/api/v1/proposals", tags=["proposals"], route_class=NativeRoute, responses=COMMON_ERRORS
)
#: For bodies with many schedules.
set_router = APIRouter(
    prefix="/api/v1/proposals", tags=["proposals"], route_class=SetRoute, responses=COMMON_ERRORS
)

Ids = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=ID_LIMIT)]], Field(max_length=MAX_CHANGES)
]


class ProposedChangesIn(Body):
    """What a proposal changes. At least one change."""

    schedules: dict[str, AppliedScheduleIn] = Field(
        default_factory=dict,
        max_length=MAX_CHANGES,
        description="Schedules to create or update, by name, as in `POST /api/v1/apply`.",
    )
    namespace: Namespace = Field(
        default=DEFAULT_NAMESPACE, description="Namespace of items that name none."
    )
    delete: Ids = Field(default_factory=list, description="Ids of schedules to delete.")
    pause: Ids = Field(default_factory=list, description="Ids of schedules to pause.")
    resume: Ids = Field(default_factory=list, description="Ids of schedules to resume.")
    run: Ids = Field(default_factory=list, description="Ids of schedules to run once.")


CHANGE_FIELDS = frozenset(ProposedChangesIn.model_fields)


class ProposalIn(ProposedChangesIn):
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON)] = Field(
        description="Why, for the person who decides."
    )
    asker: Annotated[str, Field(max_length=MAX_TITLE)] = Field(
        default="", description="What the asker calls itself, such as `claude via MCP`."
    )
    expires_in: DurationField | None = Field(
        default=None, description="Default: 24 hours; at most 7 days."
    )


class ApprovalIn(Body):
    digest: Annotated[str, Field(max_length=64)] = Field(
        default="",
        description="`digest` of the plan that was looked at; 409 if it has become another."
        " Default: that of the proposal.",
    )
    reason: Remark = ""


class RejectionIn(Body):
    reason: Remark = ""


class ProposalsQuery(Query):
    status: ProposalStatus | None = Field(
        default=None, description="Only proposals with this status."
    )
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)


class AskerOut(Out):
    name: str
    title: str
    agent: bool


class NamedFiresOut(Out):
    added: list[Moment]
    dropped: list[Moment]
    moved: list[list[Moment]]


class ProposedFiresOut(FireChangesOut):
    until: Moment | None  # type: ignore[assignment]
    first: NamedFiresOut


class ProposedChangeOut(Out):
    action: Literal["create", "update", "delete", "pause", "resume", "run"]
    name: str
    namespace: str
    id: str
    version: int | None = Field(description="The version of the plan; null if it is created.")
    fields: dict[str, list[object]] = Field(
        description="Path of a field, such as `policy.timeout`, with its value before and after."
    )
    fires: ProposedFiresOut
    warnings: list[WarningOut]


class ProposedPlanOut(Out):
    plan: list[ProposedChangeOut]
    digest: str = Field(description="Identifies the plan.")


class ProposalOut(Out):
    id: str
    owner: OwnerOut
    namespace: str
    asker: AskerOut
    reason: str
    plan: list[ProposedChangeOut]
    digest: str = Field(description="Identifies the plan: `digest` of the approval.")
    status: ProposalStatus
    created_at: Moment
    expires_at: Moment
    decided_by: str | None
    decided_at: Moment | None
    decision: str | None = Field(description="What the deciding person wrote.")
    error: str | None = Field(description="Why the changes could not be made.")
    runs: list[str] = Field(description="Ids of the runs that were started.")


class ProposalList(Out):
    items: list[ProposalOut]


@set_router.post(
    "", status_code=201, responses=returns(ProposalOut, 201) | NOT_FOUND | CONFLICT | BODY_ERRORS
)
async def propose_changes(
    request: Request, body: ProposalIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Propose changes of schedules. Nothing changes until a person approves the proposal. Any key
    may propose, also one that may only read."""
    given = await request.json()
    assert isinstance(given, Mapping)
    made = await context.proposals.propose(
        actor,
        {name: given[name] for name in CHANGE_FIELDS & given.keys()},
        reason=body.reason,
        title=body.asker,
        lifetime=body.expires_in,
        proposal_id=idempotent_id(request),
    )
    answer = _response(made, lang, status=201)
    answer.headers["Location"] = f"/api/v1/proposals/{made.id}"
    return answer


@set_router.post("/plan", responses=returns(ProposedPlanOut) | CONFLICT | BODY_ERRORS)
async def plan_proposal(
    request: Request,
    body: ProposedChangesIn,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """Show what changes would do, in fields and in fires. Saves nothing. Any key may plan, also one
    that may only read."""
    mark_without_effect(request)
    given = await request.json()
    assert isinstance(given, Mapping)
    plan, digest = await context.proposals.preview(actor, given)
    content = {"plan": [_change_out(each, lang) for each in plan], "digest": digest}
    return set_language(JSONResponse(content), lang)


@router.get("", responses=returns(ProposalList))
async def list_proposals(
    query: Annotated[ProposalsQuery, InQuery()],
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
) -> Response:
    """List proposals, the newest first."""
    found = await context.proposals.find(actor, query.status, limit=query.limit)
    answer = JSONResponse({"items": [proposal_out(each, lang) for each in found]})
    return set_language(answer, lang)


@router.get("/{proposal_id}", responses=returns(ProposalOut) | NOT_FOUND)
async def get_proposal(
    proposal_id: str, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Get a proposal with its plan."""
    return _response(await context.proposals.get(actor, proposal_id), lang)


@router.post(
    "/{proposal_id}/approve",
    responses=returns(ProposalOut) | NOT_FOUND | CONFLICT | BODY_ERRORS,
)
async def approve_proposal(
    proposal_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: ApprovalIn | None = None,
) -> Response:
    """Make the changes of a proposal, with your rights. If the schedules changed since the plan was
    made, nothing changes: 409 `plan_changed`, and the proposal has the new plan. The key that made
    the proposal, and keys of agents, cannot approve. If the changes cannot be made, the proposal
    becomes `failed`."""
    given = body or ApprovalIn()
    decided = await context.proposals.approve(
        actor, proposal_id, digest=given.digest, reason=given.reason
    )
    return _response(decided, lang)


@router.post(
    "/{proposal_id}/reject",
    responses=returns(ProposalOut) | NOT_FOUND | CONFLICT | BODY_ERRORS,
)
async def reject_proposal(
    proposal_id: str,
    context: Context,
    actor: Caller,
    lang: NegotiatedLanguage,
    body: RejectionIn | None = None,
) -> Response:
    """Reject a proposal. The asker can withdraw its own."""
    reason = body.reason if body else ""
    return _response(await context.proposals.reject(actor, proposal_id, reason=reason), lang)


def _response(proposal: Proposal, lang: str, *, status: int = 200) -> Response:
    answer = JSONResponse(proposal_out(proposal, lang), status_code=status)
    return set_language(answer, lang)


def proposal_out(proposal: Proposal, lang: str) -> Json:
    error = from_stored(proposal.error)
    return {
        "id": proposal.id,
        "owner": owner_to_plain(proposal.owner),
        "namespace": proposal.namespace,
        "asker": {
            "name": proposal.asker.name,
            "title": proposal.asker.title,
            "agent": proposal.asker.agent,
        },
        "reason": proposal.reason,
        "plan": [_change_out(each, lang) for each in proposal.plan],
        "digest": proposal.digest,
        "status": proposal.status.value,
        "created_at": time_out(proposal.created_at),
        "expires_at": time_out(proposal.expires_at),
        "decided_by": proposal.decided_by or None,
        "decided_at": time_out(proposal.decided_at),
        "decision": proposal.decision or None,
        "error": in_language(error, lang) or None,
        "runs": list(proposal.runs),
    }


def _change_out(change: PlannedChange, lang: str) -> Json:
    return {
        "action": change.action,
        "name": change.name,
        "namespace": change.namespace,
        "id": change.id,
        "version": change.version,
        "fields": {path: list(pair) for path, pair in change.fields.items()},
        "fires": {
            "added": change.added,
            "dropped": change.dropped,
            "moved": change.moved,
            "until": time_out(change.until),
            "first": {
                "added": [time_out(each) for each in change.first_added],
                "dropped": [time_out(each) for each in change.first_dropped],
                "moved": [[time_out(each) for each in pair] for pair in change.first_moved],
            },
        },
        "warnings": [
            {
                "code": each.code,
                "field": each.field,
                "message": in_language(from_stored(each.message), lang),
            }
            for each in change.warnings
        ],
    }


def changes_reader(settings: Settings) -> ReadChanges:
    """Reads the stored or requested changes of a proposal."""

    async def read(changes: Mapping[str, object], owner: Owner, now: datetime) -> RequestedChanges:
        if any("holidays" in str(value) for value in changes.values()):
            await load_calendars("holidays")
        try:
            given = ProposedChangesIn.model_validate(dict(changes))
        except ValidationError as error:
            # The request was valid: another version of this program stored it.
            raise InvalidInput(
                _("the stored changes are not valid: {error}", error=str(error))
            ) from None
        return _requested(given, owner, settings, now)

    return read


def _requested(
    given: ProposedChangesIn, owner: Owner, settings: Settings, now: datetime
) -> RequestedChanges:
    asker = Actor(owner=owner)
    wanted, errors = [], {}
    for name, item in given.schedules.items():
        try:
            found = wanted_from(name, item, asker, settings, now, given.namespace)
        except InvalidInput as error:
            errors[name] = error
            continue
        # The caller may be another one than the asker, to whom new schedules belong.
        is_new = found.owner is None and found.id is None
        wanted.append(replace(found, owner=owner) if is_new else found)
    if errors:
        raise InvalidItems(errors, field="schedules")
    actions: dict[ScheduleId, Action] = {}
    for action in (Action.DELETE, Action.PAUSE, Action.RESUME):
        for each in getattr(given, action.value):
            if actions.setdefault(ScheduleId(each), action) is not action:
                raise InvalidInput(
                    _("{id} is changed twice", id=each), field=action.value, code="duplicate"
                )
    return RequestedChanges(
        wanted=wanted,
        namespace=given.namespace,
        actions=actions,
        run=tuple(dict.fromkeys(ScheduleId(each) for each in given.run)),
    )
