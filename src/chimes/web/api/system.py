"""The system as its operators see it: audit, keys, state."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import JSONResponse, Response

from chimes.errors import ConfigError, InvalidInput, NotAllowed
from chimes.i18n import _
from chimes.model.access import SYSTEM_OWNER, Actor, Role
from chimes.model.ids import KeyId, NodeId
from chimes.model.listing import AuditQuery
from chimes.model.node import Node
from chimes.redaction import HIDDEN
from chimes.services.audit import entry, verified_chain
from chimes.services.nodes import NodeService
from chimes.services.users import User, UserService
from chimes.store.codec.schedule import owner_to_plain
from chimes.triggers.duration import format_duration_go
from chimes.web.api.idempotency import OneTimeAnswer
from chimes.web.api.paging import AuditsQuery
from chimes.web.api.responses import (
    BODY,
    EVERYWHERE,
    MISSING,
    TAKEN,
    Answers,
    AuditPage,
    AuditVerdict,
    KeyPage,
    Moment,
    NewKeyOut,
    NodeOut,
    NodePage,
    Out,
    OwnerOut,
    SystemOut,
    gives,
    problem,
)
from chimes.web.api.route import Caller, Context, NativeRoute
from chimes.web.api.schemas import Body, KeyIn, ReasonIn, Word
from chimes.web.api.translate import (
    Json,
    audit_out,
    key_out,
    moment_from,
    node_out,
    owner_from,
    time_out,
)
from chimes.web.context import WebContext

router = APIRouter(prefix="/api/v1", tags=["system"], route_class=NativeRoute, responses=EVERYWHERE)


@router.get("/system", responses=gives(SystemOut))
async def system(context: Context, actor: Caller) -> Response:
    """Version, store, counts, and whether this node takes traffic."""
    _operators_only(actor)
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
            "open_mode": not await context.access.keys_on(),
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
        }
    )


@router.get("/audit", responses=gives(AuditPage))
async def list_audit(
    query: Annotated[AuditsQuery, Query()], context: Context, actor: Caller
) -> Response:
    """Who did what, newest first; each entry is chained to the one before it."""
    _operators_only(actor)
    found = await context.store.list_audit(
        AuditQuery(
            owner=query.owner,
            object_id=query.object_id,
            verb=query.verb,
            actor=query.actor,
            interface=query.interface,
            before=query.before,
            limit=query.limit + 1,
        )
    )
    shown = found[: query.limit]
    more = len(found) > query.limit
    return JSONResponse(
        {
            "items": [audit_out(entry) for entry in shown],
            "next_before": shown[-1].number if more else None,
        }
    )


@router.get("/audit/verify", responses=gives(AuditVerdict))
async def verify_audit(context: Context, actor: Caller) -> Response:
    """Walk through the whole chain: whether anything in it was changed or taken out."""
    _operators_only(actor)
    found = await verified_chain(context.store)
    return JSONResponse({"ok": found.ok, "checked": found.checked, "first_bad": found.first_bad})


@router.get("/keys", responses=gives(KeyPage))
async def list_keys(context: Context, actor: Caller) -> Response:
    """Every key, without its secret."""
    return JSONResponse({"items": [key_out(key) for key in await context.access.keys(actor)]})


@router.post("/keys", status_code=201, responses=gives(NewKeyOut, 201) | BODY)
async def create_key(body: KeyIn, context: Context, actor: Caller) -> Response:
    """Make a key. Its text is in this answer and nowhere else; from the first key on, every
    call needs one."""
    expires_at = (
        None if body.expires_at is None else moment_from(body.expires_at, None, "expires_at")
    )
    if "expires_in" in body.model_fields_set:
        if expires_at is not None:
            raise InvalidInput(_("send expires_at or expires_in"), field="expires_in", code="both")
        expires_at = await context.store.now() + body.expires_in
    made = await context.access.create(
        actor,
        name=body.name,
        role=body.role,
        owner=owner_from(body.owner) if body.owner else SYSTEM_OWNER,
        expires_at=expires_at,
        scopes=body.scopes,
    )
    shown = key_out(made.key)
    answer = OneTimeAnswer(
        shown | {"key": made.text}, kept=shown | {"key": HIDDEN}, status_code=201
    )
    answer.headers["Location"] = f"/api/v1/keys/{made.key.id}"
    return answer


@router.delete("/keys/{key_id}", status_code=204, responses=MISSING)
async def revoke_key(key_id: str, context: Context, actor: Caller) -> Response:
    """Make a key useless for good."""
    await context.access.revoke(actor, KeyId(key_id))
    return Response(status_code=204)


def _operators_only(actor: Actor) -> None:
    if not actor.sees_everything:
        raise NotAllowed()


# @@ The processes that share the store: listing, draining, resuming, forgetting.

router_nodes = APIRouter(
    prefix="/api/v1/nodes", tags=["system"], route_class=NativeRoute, responses=EVERYWHERE
)
_GONE: Answers = {409: problem("Its lease is over")}
_ALIVE: Answers = {409: problem("Its lease is alive")}


@router_nodes.get("", responses=gives(NodePage))
async def list_nodes(context: Context, actor: Caller) -> Response:
    """The processes that share this store."""
    found = await NodeService(context.store).all(actor)
    now = await context.store.now()
    return JSONResponse({"items": [node_out(node, now) for node in found]})


@router_nodes.get("/{node_id}", responses=gives(NodeOut) | MISSING)
async def get_node(node_id: str, context: Context, actor: Caller) -> Response:
    """One node: what it does, what it offers, and whether it drains."""
    return await _shown(context, await NodeService(context.store).get(actor, NodeId(node_id)))


@router_nodes.post("/{node_id}/drain", responses=gives(NodeOut) | MISSING | BODY | _GONE)
async def drain_node(
    node_id: str, context: Context, actor: Caller, body: ReasonIn | None = None
) -> Response:
    """Let it take nothing new from its next heartbeat on; what it has goes on to its end. It stays
    drained until it is resumed, or its process is started anew."""
    reason = body.reason if body else ""
    nodes = NodeService(context.store)
    return await _shown(context, await nodes.drain(actor, NodeId(node_id), reason=reason))


@router_nodes.post("/{node_id}/resume", responses=gives(NodeOut) | MISSING | BODY | _GONE)
async def resume_node(
    node_id: str, context: Context, actor: Caller, body: ReasonIn | None = None
) -> Response:
    """Let a drained node go on."""
    reason = body.reason if body else ""
    nodes = NodeService(context.store)
    return await _shown(context, await nodes.resume(actor, NodeId(node_id), reason=reason))


@router_nodes.delete("/{node_id}", status_code=204, responses=MISSING | _ALIVE)
async def forget_node(node_id: str, context: Context, actor: Caller) -> Response:
    """Take a node off the list whose lease is over; its runs are taken over."""
    await NodeService(context.store).forget(actor, NodeId(node_id))
    return Response(status_code=204)


async def _shown(context: WebContext, node: Node) -> Response:
    return JSONResponse(node_out(node, await context.store.now()))


# @@ People who sign in at the dashboard with a password.

router_users = APIRouter(
    prefix="/api/v1/users", tags=["system"], route_class=NativeRoute, responses=EVERYWHERE
)


class UserIn(Body):
    name: str = Field(examples=["anna"])
    password: str = Field(description="10 to 200 characters; it is never shown.")
    role: Annotated[Role, Word] = Role.MEMBER


class UserPatch(Body):
    """What is left out stays."""

    password: str | None = None
    role: Annotated[Role, Word] | None = None


class UserOut(Out):
    name: str
    role: Role
    owner: OwnerOut
    created_at: Moment
    created_by: str


class UserPage(Out):
    items: list[UserOut]


@router_users.get("", responses=gives(UserPage))
async def list_users(context: Context, actor: Caller) -> Response:
    """Everybody who has a password, by name."""
    found = await UserService(context.store).all(actor)
    return JSONResponse({"items": [_out(user) for user in found]})


@router_users.post("", status_code=201, responses=gives(UserOut, 201) | BODY)
async def create_user(body: UserIn, context: Context, actor: Caller) -> Response:
    """Somebody who can sign in at the dashboard, and whose objects are `user:NAME`'s. From the
    first one on, every call needs a key or a session."""
    user = await UserService(context.store).create(
        actor, name=body.name, password=body.password, role=body.role
    )
    answer = JSONResponse(_out(user), status_code=201)
    answer.headers["Location"] = f"/api/v1/users/{user.name}"
    return answer


@router_users.patch("/{name}", responses=gives(UserOut) | BODY | MISSING)
async def change_user(name: str, body: UserPatch, context: Context, actor: Caller) -> Response:
    """Another password, which signs this user out everywhere, or another role."""
    users = UserService(context.store)
    user = None
    if body.role is not None:
        user = await users.set_role(actor, name, body.role)
    if body.password is not None:
        user = await users.set_password(actor, name, body.password)
    if user is None:
        raise InvalidInput(_("say a password, a role, or both"), code="nothing_to_change")
    return JSONResponse(_out(user))


@router_users.delete("/{name}", status_code=204, responses=MISSING)
async def remove_user(name: str, context: Context, actor: Caller) -> Response:
    """Whoever is signed in as this user is out; what belongs to it stays."""
    await UserService(context.store).remove(actor, name)
    return Response(status_code=204)


def _out(user: User) -> Json:
    return {
        "name": user.name,
        "role": user.role.value,
        "owner": owner_to_plain(user.owner),
        "created_at": time_out(user.created_at),
        "created_by": user.created_by,
    }


# @@ The sources of this node's file, and reading it again.

router_sources = APIRouter(
    prefix="/api/v1", tags=["sources"], route_class=NativeRoute, responses=EVERYWHERE
)


class CollectionOut(Out):
    name: str
    #: None: synchronised only when somebody asks for it.
    trigger: dict[str, object] | None
    priority: int
    timeout: str


class SourceOut(Out):
    id: str
    driver: str
    collections: list[CollectionOut]


class SourcesOut(Out):
    #: Empty: this node has no file.
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


@router_sources.get("/sources", responses=gives(SourcesOut))
async def list_sources(context: Context, actor: Caller) -> Response:
    """The sources that this node carries out, without what their drivers are told."""
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


@router_sources.post("/sources/reload", responses=gives(ReloadedOut) | TAKEN)
async def reload_sources(
    context: Context, actor: Caller, dry_run: Annotated[bool, Query()] = False
) -> Response:
    """Read the file again, as SIGHUP does; a file that is not valid changes nothing."""
    try:
        done = await context.sources.reload(actor, dry_run=dry_run)
    except ConfigError as error:
        raise InvalidInput(error.message, code="bad_config") from None
    if not dry_run:
        changed = {each.name: each.what for each in done.changes if each.what != "unchanged"}
        note = entry(
            actor,
            "reload_sources",
            "file",
            done.file,
            at=await context.store.now(),
            owner=actor.owner,
            changes=changed,
        )
        await context.store.append_audit(note)
    return JSONResponse(
        {
            "file": done.file,
            "dry_run": dry_run,
            "changes": [{"name": each.name, "what": each.what} for each in done.changes],
        }
    )
