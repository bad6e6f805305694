"""Changes as a stream; system state, audit, keys, nodes, users and sync sources for operators."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from pydantic.config import JsonDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chimes.errors import ConfigError, InvalidInput, NotAllowed
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Actor, Role
from chimes.model.audit import entry
from chimes.model.ids import KeyId, NodeId
from chimes.model.listing import AuditQuery
from chimes.model.node import Node
from chimes.redaction import HIDDEN
from chimes.services.audit import verify_chain
from chimes.services.insights import TOPICS
from chimes.services.system import ConnectionService
from chimes.services.users import MAX_PASSWORD, MIN_PASSWORD, User, UserService
from chimes.store.codec.values import owner_to_plain
from chimes.triggers.values import format_duration_go
from chimes.web.api.paging import AuditsQuery, EventsQuery, MaintenanceQuery, owner_filter
from chimes.web.api.responses import (
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    AuditPage,
    AuditVerification,
    KeyPage,
    MaintenanceList,
    MaintenanceOut,
    Moment,
    NewKeyOut,
    NodeOut,
    NodePage,
    Out,
    OwnerOut,
    Responses,
    ScheduleWarningOut,
    SystemOut,
    TriggerOut,
    problem,
    returns,
)
from chimes.web.api.route import (
    Caller,
    Context,
    NativeRoute,
    OneTimeResponse,
    mark_without_effect,
)
from chimes.web.api.schemas import Body, EnumField, KeyIn, MaintenanceIn, ReasonIn
from chimes.web.api.streams import EventStream, empty_stream, event_stream, still_allowed
from chimes.web.api.translate import (
    Json,
    audit_out,
    key_out,
    maintenance_out,
    misconfigured_out,
    moment_from,
    node_out,
    owner_from,
    time_out,
)
from chimes.web.live_updates import LiveUpdates, Snapshot, parse_event_id
from chimes.web.requests import NegotiatedLanguage, WebContext

router = APIRouter(
    prefix="/api/v1", tags=["system"], route_class=NativeRoute, responses=COMMON_ERRORS
)


@router.get("/system", responses=returns(SystemOut))
async def get_system(context: Context, actor: Caller, lang: NegotiatedLanguage) -> Response:
    """Get version, store, counts and readiness of this node."""
    _check_operator(actor)
    status, counts, now = (
        await context.store.status(),
        await context.store.counts(),
        await context.store.now(),
    )
    not_ready = context.not_ready()
    return JSONResponse(
        {
            "version": context.version,
            "now": time_out(now),
            "open_mode": not await context.access.auth_enabled(),
            "default_timezone": context.settings.default_timezone,
            "ready": not not_ready,
            "not_ready": not_ready,
            "store": {
                "kind": status.kind,
                "location": status.location,
                "schema_version": status.schema,
                "degraded": status.degraded,
            },
            "schedules": {
                "total": counts.schedules,
                "enabled": counts.enabled,
                "due": counts.due,
            },
            "runs": {status.value: count for status, count in counts.runs.items()},
            "warnings": [
                misconfigured_out(each, lang)
                for each in await context.setup.find(actor, limit=MAX_WARNINGS)
            ],
        }
    )


@router.get("/events", response_class=EventStream)
async def stream_events(
    request: Request,
    query: Annotated[EventsQuery, Query()],
    context: Context,
    actor: Caller,
) -> Response:
    """Stream changes as Server-Sent Events, until the client disconnects. The event
    `runs.changed`, `schedules.changed`, `inbox.changed` or, for operators, `nodes.changed` says
    that something of that topic has changed which the caller may see; request it with the other
    routes. `beat` is sent at the begin and every ten seconds. The `id` of an event stands for the
    state of all topics: sent as `Last-Event-ID`, also to another node or after a restart, it
    brings the events that were missed."""
    allowed = TOPICS if actor.sees_everything else tuple(each for each in TOPICS if each != "nodes")
    topics = allowed
    if query.topics is not None:
        topics = tuple(each.strip() for each in query.topics.split(","))
        for each in topics:
            if each not in allowed:
                raise InvalidInput(
                    _("must be one of {known}", known=", ".join(allowed)),
                    field="topics",
                    code="unknown_value",
                    source="query",
                )
    known = _last_seen(request, query)
    live: LiveUpdates = request.app.state.live_updates
    live.streams.check_limit(actor)
    events = live.stream(actor, known, partial(still_allowed, request), topics)
    if request.scope["state"].get("head"):
        events = empty_stream()
    return event_stream(events)


def _last_seen(request: Request, query: EventsQuery) -> Snapshot | None:
    """The state that the client has seen. The header, which a reconnecting browser sends, wins over
    the parameter."""
    header = request.headers.get("last-event-id", "").strip()
    text = header or query.after
    if text is None:
        return None
    found = parse_event_id(text)
    if found is None:
        raise InvalidInput(
            _("expected the `id` of an event of this stream"),
            field="Last-Event-ID" if header else "after",
            code="bad_event_id",
            source="header" if header else "query",
        )
    return found


@router.get("/audit", responses=returns(AuditPage))
async def list_audit(
    query: Annotated[AuditsQuery, Query()], context: Context, actor: Caller
) -> Response:
    """List the audit entries, newest first. Each has the hash of the entry before it."""
    _check_operator(actor)
    owner = owner_filter(query.owner)
    found = await context.store.list_audit(
        AuditQuery(
            owner=None if owner is None else str(owner),
            object_id=query.object_id,
            verb=query.verb,
            actor=query.actor,
            interface=query.interface,
            before=query.before,
            limit=query.limit + 1,
        )
    )
    entries = found[: query.limit]
    more = len(found) > query.limit
    return JSONResponse(
        {
            "items": [audit_out(entry) for entry in entries],
            "next_before": entries[-1].number if more else None,
        }
    )


@router.get("/audit/verify", responses=returns(AuditVerification))
async def verify_audit(context: Context, actor: Caller) -> Response:
    """Verify the hash chain of the audit: detects changed and removed entries."""
    _check_operator(actor)
    found = await verify_chain(context.store, context.settings.audit_key)
    pruned = found.checkpoint
    return JSONResponse(
        {
            "ok": found.ok,
            "checked": found.checked,
            "first_bad": found.first_bad,
            "checkpoint": found.state,
            "pruned_until": pruned.number if pruned else None,
            "pruned_at": time_out(pruned.at) if pruned else None,
            "pruned": pruned.deleted if pruned else 0,
        }
    )


@router.get("/keys", responses=returns(KeyPage))
async def list_keys(context: Context, actor: Caller) -> Response:
    """List all keys, without their secrets."""
    return JSONResponse({"items": [key_out(key) for key in await context.access.keys(actor)]})


@router.post("/keys", status_code=201, responses=returns(NewKeyOut, 201) | BODY_ERRORS)
async def create_key(
    body: KeyIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Create a key. Its text is only in this response. Once a key exists, every request needs
    one."""
    expires_at = (
        None if body.expires_at is None else moment_from(body.expires_at, None, "expires_at")
    )
    if "expires_in" in body.model_fields_set:
        if expires_at is not None:
            raise InvalidInput(_("send expires_at or expires_in"), field="expires_in", code="both")
        expires_at = await context.store.now() + body.expires_in
    is_first = not await context.access.auth_enabled()
    created = await context.access.create(
        actor,
        name=body.name,
        role=body.role,
        owner=owner_from(body.owner) if body.owner else SYSTEM_OWNER,
        expires_at=expires_at,
        scopes=body.scopes,
    )
    denied = await context.setup.find_denied(limit=MAX_WARNINGS) if is_first else ()
    content = key_out(created.key) | {
        "warnings": [misconfigured_out(each, lang) for each in denied]
    }
    response = OneTimeResponse(
        content | {"key": created.text}, stored=content | {"key": HIDDEN}, status_code=201
    )
    response.headers["Location"] = f"/api/v1/keys/{created.key.id}"
    return response


@router.delete("/keys/{key_id}", status_code=204, responses=NOT_FOUND)
async def revoke_key(key_id: str, context: Context, actor: Caller) -> Response:
    """Revoke a key permanently."""
    await context.access.revoke(actor, KeyId(key_id))
    return Response(status_code=204)


#: Schedules with a warning in one response.
MAX_WARNINGS = 100


def _check_operator(actor: Actor) -> None:
    if not actor.sees_everything:
        raise NotAllowed()


node_router = APIRouter(
    prefix="/api/v1/nodes", tags=["system"], route_class=NativeRoute, responses=COMMON_ERRORS
)
_GONE: Responses = {409: problem("The lease of the node has expired")}
_ALIVE: Responses = {409: problem("The lease of the node is valid")}


@node_router.get("", responses=returns(NodePage))
async def list_nodes(context: Context, actor: Caller) -> Response:
    """List the nodes that share this store."""
    found = await context.nodes.list_nodes(actor)
    now = await context.store.now()
    return JSONResponse({"items": [node_out(node, now) for node in found]})


@node_router.get("/{node_id}", responses=returns(NodeOut) | NOT_FOUND)
async def get_node(node_id: str, context: Context, actor: Caller) -> Response:
    """Get one node: roles, capabilities, load and drain state."""
    return await _node_response(context, await context.nodes.get(actor, NodeId(node_id)))


@node_router.post("/{node_id}/drain", responses=returns(NodeOut) | NOT_FOUND | BODY_ERRORS | _GONE)
async def drain_node(
    node_id: str, context: Context, actor: Caller, body: ReasonIn | None = None
) -> Response:
    """Drain a node: from its next heartbeat it claims nothing new and completes its runs. It stays
    drained until it is resumed or restarted."""
    reason = body.reason if body else ""
    nodes = context.nodes
    return await _node_response(context, await nodes.drain(actor, NodeId(node_id), reason=reason))


@node_router.post("/{node_id}/resume", responses=returns(NodeOut) | NOT_FOUND | BODY_ERRORS | _GONE)
async def resume_node(
    node_id: str, context: Context, actor: Caller, body: ReasonIn | None = None
) -> Response:
    """Resume a drained node."""
    reason = body.reason if body else ""
    nodes = context.nodes
    return await _node_response(context, await nodes.resume(actor, NodeId(node_id), reason=reason))


@node_router.delete("/{node_id}", status_code=204, responses=NOT_FOUND | _ALIVE)
async def forget_node(node_id: str, context: Context, actor: Caller) -> Response:
    """Remove a node whose lease has expired; its runs are rescued."""
    await context.nodes.forget(actor, NodeId(node_id))
    return Response(status_code=204)


async def _node_response(context: WebContext, node: Node) -> Response:
    return JSONResponse(node_out(node, await context.store.now()))


maintenance_router = APIRouter(
    prefix="/api/v1/maintenance", tags=["system"], route_class=NativeRoute, responses=COMMON_ERRORS
)
_NOT_ON: Responses = {409: problem("Maintenance is not on for this namespace")}


@maintenance_router.get("", responses=returns(MaintenanceList))
async def get_maintenance(context: Context, actor: Caller) -> Response:
    """Get the maintenance that is on now."""
    active = await context.maintenance.list_active()
    return JSONResponse({"items": [maintenance_out(each) for each in active]})


@maintenance_router.post("", responses=returns(MaintenanceOut) | BODY_ERRORS)
async def begin_maintenance(
    context: Context, actor: Caller, body: MaintenanceIn | None = None
) -> Response:
    """Stop all firing of the instance or of a namespace. Due slots are recorded as skipped; runs
    that exist continue. No schedule changes. If it is on already, `until` and `reason` change."""
    given = body or MaintenanceIn()
    until = None if given.until is None else moment_from(given.until, given.timezone, "until")
    window = await context.maintenance.begin(
        actor,
        namespace=given.namespace or "",
        until=until,
        reason=given.reason,
        silence=given.silence,
    )
    return JSONResponse(maintenance_out(window))


@maintenance_router.delete("", status_code=204, responses=_NOT_ON)
async def end_maintenance(
    query: Annotated[MaintenanceQuery, Query()], context: Context, actor: Caller
) -> Response:
    """End the maintenance of the instance, or of a namespace. Schedules continue with their next
    slot; those that were paused stay paused."""
    await context.maintenance.end(actor, namespace=query.namespace or "", reason=query.reason)
    return Response(status_code=204)


class DemoRemoved(Out):
    schedules: int = Field(description="Example schedules that were removed.")


@router.delete("/demo", responses=returns(DemoRemoved))
async def remove_demo(context: Context, actor: Caller) -> Response:
    """Remove the example schedules of `chimes serve --demo` with their history."""
    removed = await context.demo.remove(actor)
    return JSONResponse({"schedules": removed.schedules})


user_router = APIRouter(
    prefix="/api/v1/users", tags=["system"], route_class=NativeRoute, responses=COMMON_ERRORS
)


#: Documentation; the service checks it and returns its own code.
_PASSWORD: JsonDict = {"minLength": MIN_PASSWORD, "maxLength": MAX_PASSWORD}


class UserIn(Body):
    name: str = Field(examples=["anna"], json_schema_extra={"minLength": 1})
    password: str = Field(
        description="10 to 200 characters; never returned.", json_schema_extra=_PASSWORD
    )
    role: Annotated[Role, EnumField] = Role.MEMBER


class UserPatch(Body):
    """Omitted fields stay as they are."""

    password: str | None = Field(default=None, json_schema_extra=_PASSWORD)
    role: Annotated[Role, EnumField] | None = None


class UserOut(Out):
    name: str
    role: Role
    owner: OwnerOut
    created_at: Moment
    created_by: str


class NewUserOut(UserOut):
    warnings: list[ScheduleWarningOut] = Field(
        description="Schedules whose callbacks are denied once keys are required."
    )


class UserPage(Out):
    items: list[UserOut]


@user_router.get("", responses=returns(UserPage))
async def list_users(context: Context, actor: Caller) -> Response:
    """List the dashboard users, by name."""
    found = await UserService(context.store).list_users(actor)
    return JSONResponse({"items": [_user_out(user) for user in found]})


@user_router.post("", status_code=201, responses=returns(NewUserOut, 201) | CONFLICT | BODY_ERRORS)
async def create_user(
    body: UserIn, context: Context, actor: Caller, lang: NegotiatedLanguage
) -> Response:
    """Create a dashboard user. Objects of the user belong to `user:NAME`. Once a user exists, every
    request needs a key or a session."""
    is_first = not await context.access.auth_enabled()
    user = await UserService(context.store).create(
        actor, name=body.name, password=body.password, role=body.role
    )
    context.access.end_open_mode()
    denied = await context.setup.find_denied(limit=MAX_WARNINGS) if is_first else ()
    content = _user_out(user) | {"warnings": [misconfigured_out(each, lang) for each in denied]}
    response = JSONResponse(content, status_code=201)
    response.headers["Location"] = f"/api/v1/users/{user.name}"
    return response


@user_router.patch("/{name}", responses=returns(UserOut) | BODY_ERRORS | NOT_FOUND)
async def change_user(name: str, body: UserPatch, context: Context, actor: Caller) -> Response:
    """Change the password or the role of a user. A new password ends all sessions of the user."""
    users = UserService(context.store)
    user = None
    if body.role is not None:
        user = await users.set_role(actor, name, body.role)
    if body.password is not None:
        user = await users.set_password(actor, name, body.password)
    if user is None:
        raise InvalidInput(_("send a password, a role or both"), code="nothing_to_change")
    return JSONResponse(_user_out(user))


@user_router.delete("/{name}", status_code=204, responses=NOT_FOUND)
async def remove_user(name: str, context: Context, actor: Caller) -> Response:
    """Delete a user and end its sessions; its objects stay."""
    await UserService(context.store).remove(actor, name)
    return Response(status_code=204)


def _user_out(user: User) -> Json:
    return {
        "name": user.name,
        "role": user.role.value,
        "owner": owner_to_plain(user.owner),
        "created_at": time_out(user.created_at),
        "created_by": user.created_by,
    }


source_router = APIRouter(
    prefix="/api/v1", tags=["sources"], route_class=NativeRoute, responses=COMMON_ERRORS
)


class CollectionOut(Out):
    name: str
    trigger: TriggerOut | None
    priority: int
    timeout: str


class SourceOut(Out):
    id: str
    driver: str
    collections: list[CollectionOut]


class SourcesOut(Out):
    #: Empty if this node has no configuration file.
    file: str
    items: list[SourceOut]


class SourceChangeOut(Out):
    name: str
    #: created, updated, deleted, unchanged or kept
    what: str


class ReloadedOut(Out):
    file: str
    dry_run: bool
    changes: list[SourceChangeOut]


@source_router.get("/sources", responses=returns(SourcesOut))
async def list_sources(context: Context, actor: Caller) -> Response:
    """List the sync sources of this node, without the configuration of their drivers."""
    if not actor.sees_everything:
        raise NotAllowed()
    items = [
        {
            "id": source.id,
            "driver": source.driver,
            "collections": [
                {
                    "name": each.name,
                    "trigger": None if each.trigger is None else each.trigger.to_dict(),
                    "priority": each.priority,
                    "timeout": format_duration_go(each.timeout),
                }
                for each in source.collections
            ],
        }
        for source in context.sources.now.by_id.values()
    ]
    return JSONResponse({"file": context.sources.file, "items": items})


class ConnectionOut(Out):
    name: str
    kind: str
    #: Roles that may create schedules with it; empty: this server does not have it in its file.
    roles: list[str]
    #: Patterns of what may be used of it; empty: anything.
    allow: list[str]
    #: Live nodes that have it; only for those who may see all nodes.
    nodes: list[str]


class ConnectionsOut(Out):
    items: list[ConnectionOut]


@source_router.get("/connections", responses=returns(ConnectionsOut))
async def list_connections(context: Context, actor: Caller) -> Response:
    """List the engines and brokers in the files of this server and of the live nodes, without
    their URLs and credentials."""
    items = [
        {
            "name": each.name,
            "kind": each.kind,
            "roles": list(each.roles),
            "allow": list(each.allow),
            "nodes": list(each.nodes),
        }
        for each in await ConnectionService(context.store, context.settings).list(actor)
    ]
    return JSONResponse({"items": items})


@source_router.post("/sources/reload", responses=returns(ReloadedOut) | CONFLICT)
async def reload_sources(
    request: Request, context: Context, actor: Caller, dry_run: Annotated[bool, Query()] = False
) -> Response:
    """Reload the configuration file, as SIGHUP does. An invalid file changes nothing."""
    if dry_run:
        mark_without_effect(request)
    try:
        reloaded = await context.sources.reload(actor, dry_run=dry_run)
    except ConfigError as error:
        raise InvalidInput(error.message, code="bad_config") from None
    if not dry_run:
        changed = {each.name: each.what for each in reloaded.changes if each.what != "unchanged"}
        audit_entry = entry(
            actor,
            "reload_sources",
            "file",
            reloaded.file,
            at=await context.store.now(),
            owner=actor.owner,
            changes=changed,
        )
        await context.store.append_audit(audit_entry)
    return JSONResponse(
        {
            "file": reloaded.file,
            "dry_run": dry_run,
            "changes": [{"name": each.name, "what": each.what} for each in reloaded.changes],
        }
    )
