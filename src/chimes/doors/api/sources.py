"""The sources of this node's file, and reading it again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from chimes.doors.api.outputs import EVERYWHERE, TAKEN, Out, gives
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.errors import ConfigError, InvalidInput, NotAllowed
from chimes.service.audit import entry
from chimes.triggers.duration import format_duration_go

router = APIRouter(
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


@router.get("/sources", responses=gives(SourcesOut))
async def list_sources(door: ToDoorway, actor: Caller) -> Response:
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
        for source in door.sources.now.by_id.values()
    ]
    return JSONResponse({"file": door.sources.file, "items": items})


@router.post("/sources/reload", responses=gives(ReloadedOut) | TAKEN)
async def reload_sources(
    door: ToDoorway, actor: Caller, dry_run: Annotated[bool, Query()] = False
) -> Response:
    """Read the file again, as SIGHUP does; a file that is not valid changes nothing."""
    try:
        done = await door.sources.reload(actor, dry_run=dry_run)
    except ConfigError as error:
        raise InvalidInput(error.message, code="bad_config") from None
    if not dry_run:
        changed = {each.name: each.what for each in done.changes if each.what != "unchanged"}
        note = entry(
            actor,
            "reload_sources",
            "file",
            done.file,
            at=await door.store.now(),
            owner=actor.owner,
            changes=changed,
        )
        await door.store.append_audit(note)
    return JSONResponse(
        {
            "file": done.file,
            "dry_run": dry_run,
            "changes": [{"name": each.name, "what": each.what} for each in done.changes],
        }
    )
