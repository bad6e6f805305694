"""Routes of the rules for notifications: routing, silences, message templates."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import JSONResponse, Response

from chimes.errors import InvalidInput
from chimes.i18n import _
from chimes.model.access import Owner
from chimes.model.fields import to_json
from chimes.model.ids import RunId, ScheduleId
from chimes.model.recipient import NotifyOn, Recipient
from chimes.model.routing import MAX_RULE_RECIPIENTS, MAX_RULES, Routing, Rule
from chimes.model.run import RunStatus
from chimes.model.silence import Silence
from chimes.notifications.templates import (
    MAX_TEMPLATES,
    MAX_TEXT,
    MAX_TITLE,
    PLACEHOLDERS,
    MessageTemplate,
)
from chimes.web.api.paging import Query, Word
from chimes.web.api.responses import (
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    Moment,
    Out,
    RecipientOut,
    returns,
)
from chimes.web.api.route import Caller, Context, NativeRoute
from chimes.web.api.schemas import (
    Body,
    EnumField,
    LabelMap,
    MomentField,
    RecipientIn,
    Remark,
)
from chimes.web.api.translate import Json, moment_from, recipients_from, recipients_out, time_out

Labels = Annotated[
    LabelMap | list[str],
    Field(
        description="Labels that a schedule must have: names with values (null: any value), or a "
        "list of names.",
    ),
]
Name = Annotated[str, Field(max_length=120)]


def _labels(given: dict[str, str | None] | list[str]) -> dict[str, str | None]:
    return dict.fromkeys(given) if isinstance(given, list) else given


# --- routing --------------------------------------------------------------------------------------
routing_router = APIRouter(
    prefix="/api/v1/routing", tags=["deliveries"], route_class=NativeRoute, responses=COMMON_ERRORS
)


class RuleIn(Body):
    name: Name = Field(default="", description="For people.")
    labels: Labels = Field(default_factory=dict)
    owner: Name = Field(default="", description="Owner of the run, such as user:alice.")
    statuses: list[Annotated[RunStatus, EnumField]] = Field(
        default_factory=list, max_length=len(RunStatus), description="Empty: every status."
    )
    on: list[Annotated[NotifyOn, EnumField]] = Field(
        default_factory=lambda: [NotifyOn.ALWAYS],
        max_length=len(NotifyOn),
        description="Events. A recipient gets those that its own `on` includes, too.",
    )
    recipients: list[RecipientIn] = Field(max_length=MAX_RULE_RECIPIENTS)
    proceed: bool = Field(
        default=False,
        alias="continue",
        description="Whether later rules are applied to a run that matches.",
    )


class RoutingIn(Body):
    rules: list[RuleIn] = Field(max_length=MAX_RULES)
    version: int | None = Field(
        default=None, ge=0, description="The version that must be stored. Default: any."
    )


class RuleOut(Out):
    name: str
    labels: LabelMap
    owner: str
    statuses: list[RunStatus]
    on: list[NotifyOn]
    recipients: list[RecipientOut]
    proceed: bool = Field(
        alias="continue", description="Whether later rules are applied to a run that matches."
    )


class RoutingOut(Out):
    version: int = Field(description="Number of changes.")
    rules: list[RuleOut]


class RoutingTestQuery(Query):
    status: RunStatus = Field(default=RunStatus.FAILED, description="How the run ends.")


class RoutingTestOut(Out):
    rules: list[RuleOut] = Field(description="The rules that match, in their order.")
    recipients: list[RecipientOut] = Field(
        description="Who would be notified, including the recipients of the schedule."
    )


@routing_router.get("", responses=returns(RoutingOut))
async def get_routing(context: Context, actor: Caller) -> Response:
    """Get the routing rules."""
    return JSONResponse(_routing_out(await context.routing.get(actor)))


@routing_router.put("", responses=returns(RoutingOut) | CONFLICT | BODY_ERRORS)
async def set_routing(body: RoutingIn, context: Context, actor: Caller) -> Response:
    """Replace the routing rules. They add recipients to runs that end from now on; the first rule
    that matches a run decides, unless it has `continue`. Every node applies them within seconds."""
    stored: tuple[Recipient, ...] = ()
    if actor.administers:
        before = await context.routing.get(actor)
        stored = tuple(each for rule in before.rules for each in rule.recipients)
    rules = [_rule(each, place, stored) for place, each in enumerate(body.rules)]
    routing = await context.routing.set(actor, rules, expected=body.version)
    return JSONResponse(_routing_out(routing))


@routing_router.get("/test/{schedule_id}", responses=returns(RoutingTestOut) | NOT_FOUND)
async def test_routing(
    schedule_id: str,
    query: Annotated[RoutingTestQuery, InQuery()],
    context: Context,
    actor: Caller,
) -> Response:
    """Show who would be notified if a run of a schedule ended now with this status."""
    schedule = await context.schedules.get(actor, ScheduleId(schedule_id))
    recipients, rules = await context.routing.recipients_for(actor, schedule, query.status)
    return JSONResponse(
        {
            "rules": [_rule_out(each) for each in rules],
            "recipients": recipients_out(recipients),
        }
    )


def _rule(given: RuleIn, place: int, stored: tuple[Recipient, ...]) -> Rule:
    try:
        recipients = recipients_from(given.recipients, stored)
    except InvalidInput as error:
        raise error.within(f"rules[{place}]") from None
    return Rule(
        name=given.name,
        labels=_labels(given.labels),
        owner=given.owner,
        statuses=tuple(dict.fromkeys(given.statuses)),
        on=tuple(dict.fromkeys(given.on)) or (NotifyOn.ALWAYS,),
        recipients=recipients,
        proceed=given.proceed,
    )


def _rule_out(rule: Rule) -> Json:
    return {
        "name": rule.name,
        "labels": dict(rule.labels),
        "owner": rule.owner,
        "statuses": [each.value for each in rule.statuses],
        "on": [each.value for each in rule.on],
        "recipients": recipients_out(rule.recipients),
        "continue": rule.proceed,
    }


def _routing_out(routing: Routing) -> Json:
    return {"version": routing.version, "rules": [_rule_out(each) for each in routing.rules]}


# --- silences -------------------------------------------------------------------------------------
silence_router = APIRouter(
    prefix="/api/v1/silences", tags=["deliveries"], route_class=NativeRoute, responses=COMMON_ERRORS
)


class SilenceIn(Body):
    """Exactly one of `labels`, `schedule` and `all`."""

    labels: Labels | None = None
    schedule: Word | None = Field(default=None, description="Id of a schedule.")
    all: bool = Field(default=False, description="Every schedule that the caller may silence.")
    since: MomentField | None = Field(default=None, alias="from", description="Default: now.")
    until: MomentField
    timezone: str | None = Field(default=None, description="Zone of times that have none.")
    reason: Remark = Field(default="", description="Shown at each message that is not sent.")


class SilenceOut(Out):
    id: str
    labels: LabelMap
    schedule: str | None
    owner: str | None = Field(description="null: the schedules of all owners.")
    since: Moment = Field(alias="from")
    until: Moment
    active: bool
    reason: str
    by: str


class SilenceList(Out):
    items: list[SilenceOut] = Field(description="Active and planned silences, by their begin.")


@silence_router.get("", responses=returns(SilenceList))
async def list_silences(context: Context, actor: Caller) -> Response:
    """List active and planned silences."""
    found = await context.silences.list_current(actor)
    now = await context.now()
    return JSONResponse({"items": [_silence_out(each, each.is_active(now)) for each in found]})


@silence_router.post(
    "", status_code=201, responses=returns(SilenceOut, 201) | NOT_FOUND | CONFLICT | BODY_ERRORS
)
async def add_silence(body: SilenceIn, context: Context, actor: Caller) -> Response:
    """Send no notifications of matching schedules for a while. What happens meanwhile is recorded
    as a `suppressed` delivery."""
    if [body.labels is not None, body.schedule is not None, body.all].count(True) != 1:
        raise InvalidInput(
            _("give exactly one of labels, schedule and all"), field="labels", code="missing"
        )
    if body.labels is not None and not body.labels:
        raise InvalidInput(
            _("name at least one label; `all` silences everything"), field="labels", code="missing"
        )
    zone = body.timezone
    silence = await context.silences.add(
        actor,
        labels=_labels(body.labels or {}),
        schedule=body.schedule or "",
        since=None if body.since is None else moment_from(body.since, zone, "from"),
        until=moment_from(body.until, zone, "until"),
        reason=body.reason,
    )
    active = silence.is_active(await context.now())
    return JSONResponse(_silence_out(silence, active), status_code=201)


@silence_router.delete("/{silence_id}", status_code=204, responses=NOT_FOUND)
async def delete_silence(silence_id: str, context: Context, actor: Caller) -> Response:
    """End a silence now, or cancel a planned one."""
    await context.silences.remove(actor, silence_id)
    return Response(status_code=204)


def _silence_out(silence: Silence, active: bool) -> Json:
    return {
        "id": silence.id,
        "labels": dict(silence.labels),
        "schedule": silence.schedule or None,
        "owner": silence.owner or None,
        "from": time_out(silence.since),
        "until": time_out(silence.until),
        "active": active,
        "reason": silence.reason,
        "by": silence.by,
    }


# --- message templates ----------------------------------------------------------------------------
template_router = APIRouter(
    prefix="/api/v1/message-templates",
    tags=["deliveries"],
    route_class=NativeRoute,
    responses=COMMON_ERRORS,
)
TemplateLanguage = Literal["", "en", "th", "zh"]


class MessageTemplateIn(Body):
    language: TemplateLanguage = Field(default="", description="Empty: every language.")
    on: Annotated[NotifyOn, EnumField] | None = Field(
        default=None, description="Event. Default: every event."
    )
    title: Annotated[str, Field(max_length=MAX_TITLE)] = Field(
        default="", description="One line; empty: the usual title."
    )
    text: Annotated[str, Field(max_length=MAX_TEXT)] = Field(
        default="", description="Markdown with placeholders; empty: the usual text."
    )


class MessageTemplatesIn(Body):
    templates: list[MessageTemplateIn] = Field(max_length=MAX_TEMPLATES)


class TemplatePreviewIn(MessageTemplateIn):
    run_id: Word | None = Field(default=None, description="Default: an example.")


class MessageTemplateOut(Out):
    language: TemplateLanguage
    on: NotifyOn | None
    title: str
    text: str


class MessageTemplatesOut(Out):
    scope: Literal["own", "instance"]
    templates: list[MessageTemplateOut]
    placeholders: list[str] = Field(description="Names for {{name}} in title and text.")


class TemplatePreviewOut(Out):
    title: str
    text: str = Field(description="Markdown, as in the inbox.")
    plain: str = Field(description="Without markup, as in a chat.")


class TemplatesQuery(Query):
    scope: Literal["own", "instance"] = Field(
        default="own", description="Of the caller's owner, or those of the instance."
    )


@template_router.get("", responses=returns(MessageTemplatesOut))
async def get_message_templates(
    query: Annotated[TemplatesQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """Get the message templates of the caller's owner, or of the instance."""
    found = await context.message_templates.get(_scope(actor.owner, query))
    return JSONResponse(_templates_out(query.scope, found))


@template_router.put("", responses=returns(MessageTemplatesOut) | BODY_ERRORS)
async def set_message_templates(
    query: Annotated[TemplatesQuery, InQuery()],
    body: MessageTemplatesIn,
    context: Context,
    actor: Caller,
) -> Response:
    """Replace the message templates. A template of an owner precedes those of the instance."""
    templates = [_template(each) for each in body.templates]
    owner = _scope(actor.owner, query)
    stored = await context.message_templates.set(actor, owner, templates)
    return JSONResponse(_templates_out(query.scope, stored))


@template_router.post("/preview", responses=returns(TemplatePreviewOut) | NOT_FOUND | BODY_ERRORS)
async def preview_message_template(
    body: TemplatePreviewIn, context: Context, actor: Caller
) -> Response:
    """Show the message that a template makes for a run, or for an example. Stores nothing."""
    run = None if body.run_id is None else await context.runs.get(actor, RunId(body.run_id))
    url = context.settings.public_url
    message = await context.message_templates.preview(actor, _template(body), run, url)
    return JSONResponse({"title": message.title, "text": message.markdown, "plain": message.text})


def _scope(owner: Owner, query: TemplatesQuery) -> Owner | None:
    return owner if query.scope == "own" else None


def _template(given: MessageTemplateIn) -> MessageTemplate:
    return MessageTemplate(language=given.language, on=given.on, title=given.title, text=given.text)


def _templates_out(scope: str, templates: tuple[MessageTemplate, ...]) -> Json:
    return {
        "scope": scope,
        "templates": [to_json(each) for each in templates],
        "placeholders": list(PLACEHOLDERS),
    }
