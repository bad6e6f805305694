"""The system as its operators see it: audit, keys, state."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from chimes.doors.api.idempotency import OneTimeAnswer
from chimes.doors.api.inputs import KeyIn
from chimes.doors.api.outputs import (
    BODY,
    EVERYWHERE,
    MISSING,
    AuditPage,
    AuditVerdict,
    KeyPage,
    NewKeyOut,
    SystemOut,
    gives,
)
from chimes.doors.api.queries import AuditsQuery
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import moment_from, owner_from, time_out
from chimes.doors.api.wire_runs import audit_out, key_out
from chimes.errors import InvalidInput, NotAllowed
from chimes.model.access import SYSTEM_OWNER, Actor
from chimes.model.ids import KeyId
from chimes.model.listing import AuditQuery
from chimes.redaction import HIDDEN
from chimes.service.audit import verified_chain
from chimes.wording import say

router = APIRouter(prefix="/api/v1", tags=["system"], route_class=NativeRoute, responses=EVERYWHERE)


@router.get("/system", responses=gives(SystemOut))
async def system(door: ToDoorway, actor: Caller) -> Response:
    """Version, store, counts, and whether this node takes traffic."""
    _operators_only(actor)
    status, counts, now = (
        await door.store.status(),
        await door.store.counts(),
        await door.store.now(),
    )
    not_ready = door.not_ready()
    return JSONResponse(
        {
            "version": door.version,
            "now": time_out(now),
            "open_mode": not await door.access.keys_on(),
            "default_timezone": door.settings.default_timezone,
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
    query: Annotated[AuditsQuery, Query()], door: ToDoorway, actor: Caller
) -> Response:
    """Who did what, newest first; each entry is chained to the one before it."""
    _operators_only(actor)
    found = await door.store.list_audit(
        AuditQuery(
            owner=query.owner,
            object_id=query.object_id,
            verb=query.verb,
            actor=query.actor,
            door=query.door,
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
async def verify_audit(door: ToDoorway, actor: Caller) -> Response:
    """Walk through the whole chain: whether anything in it was changed or taken out."""
    _operators_only(actor)
    found = await verified_chain(door.store)
    return JSONResponse({"ok": found.ok, "checked": found.checked, "first_bad": found.first_bad})


@router.get("/keys", responses=gives(KeyPage))
async def list_keys(door: ToDoorway, actor: Caller) -> Response:
    """Every key, without its secret."""
    return JSONResponse({"items": [key_out(key) for key in await door.access.keys(actor)]})


@router.post("/keys", status_code=201, responses=gives(NewKeyOut, 201) | BODY)
async def create_key(body: KeyIn, door: ToDoorway, actor: Caller) -> Response:
    """Make a key. Its text is in this answer and nowhere else; from the first key on, every
    call needs one."""
    expires_at = (
        None if body.expires_at is None else moment_from(body.expires_at, None, "expires_at")
    )
    if "expires_in" in body.model_fields_set:
        if expires_at is not None:
            raise InvalidInput(
                say("send expires_at or expires_in"), field="expires_in", code="both"
            )
        expires_at = await door.store.now() + body.expires_in
    made = await door.access.create(
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
async def revoke_key(key_id: str, door: ToDoorway, actor: Caller) -> Response:
    """Make a key useless for good."""
    await door.access.revoke(actor, KeyId(key_id))
    return Response(status_code=204)


def _operators_only(actor: Actor) -> None:
    if not actor.sees_everything:
        raise NotAllowed()
