"""Who the caller is, what it likes, and how much of its quota is used."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import JSONResponse, Response

from chimes.model.access import Actor, Role, Scope
from chimes.services.preferences import (
    LONGEST_NAME,
    LONGEST_TEXT,
    ListName,
    Preferences,
    SavedFilter,
    SavedFilters,
)
from chimes.store.codec.schedule import owner_to_plain
from chimes.web.api.paging import Query
from chimes.web.api.responses import BODY, EVERYWHERE, MISSING, TAKEN, Out, OwnerOut, gives
from chimes.web.api.route import Caller, Context, NativeRoute
from chimes.web.api.schemas import Body, Word
from chimes.web.api.translate import Json
from chimes.web.context import WebContext

router = APIRouter(
    prefix="/api/v1/me", tags=["system"], route_class=NativeRoute, responses=EVERYWHERE
)


class MeIn(Body):
    """What is left out stays; null forgets a choice."""

    timezone: str | None = Field(default=None, description="IANA name", examples=["Asia/Bangkok"])
    language: str | None = Field(default=None, description="en, th or zh", examples=["th"])


class QuotaOut(Out):
    quota: str = Field(description="schedules, or active_schedules")
    namespace: str | None = Field(description="Only those of this one; null: of all.")
    limit: int
    used: int


class MeOut(Out):
    owner: OwnerOut
    role: Role
    key_id: str | None = Field(description="Null where keys are off.")
    scopes: list[Scope] = Field(description="Empty: all that the role may.")
    timezone: str = Field(description="Of schedules that name none; the system's if none is set.")
    language: str | None = Field(description="Null: as Accept-Language says.")
    quotas: list[QuotaOut]


@router.get("", responses=gives(MeOut))
async def get_me(context: Context, actor: Caller) -> Response:
    """The caller: its owner, role, scopes and preferences."""
    return await _answer(context, actor, await context.preferences.of(actor.owner))


@router.patch("", responses=gives(MeOut) | BODY)
async def change_me(body: MeIn, context: Context, actor: Caller) -> Response:
    """Choose the zone and the language of the caller's owner."""
    chosen = {name: getattr(body, name) for name in body.model_fields_set}
    return await _answer(context, actor, await context.preferences.change(actor, chosen))


async def _answer(context: WebContext, actor: Actor, liked: Preferences) -> Response:
    shown: Json = {
        "owner": owner_to_plain(actor.owner),
        "role": actor.role.value,
        "key_id": actor.key_id,
        "scopes": [scope.value for scope in actor.scopes],
        "timezone": liked.timezone or context.settings.default_timezone,
        "language": liked.language,
        "quotas": [
            {
                "quota": "active_schedules" if each.quota.active else "schedules",
                "namespace": each.quota.namespace,
                "limit": each.quota.limit,
                "used": each.used,
            }
            for each in await context.schedules.list_quota_usage(actor.owner)
        ],
    }
    return JSONResponse(shown)


# @@ Filters that the caller's owner has saved under a name.

router_filters = APIRouter(
    prefix="/api/v1/me/filters", tags=["system"], route_class=NativeRoute, responses=EVERYWHERE
)
Name = Annotated[str, Field(max_length=LONGEST_NAME, examples=["What failed this week"])]


class FilterIn(Body):
    list: Annotated[ListName, Word]
    name: Name
    filter: Annotated[str, Field(max_length=LONGEST_TEXT, examples=["status:failed since:7d"])]


class FilterPatch(Body):
    list: Annotated[ListName, Word]
    name: Name
    to: Name = Field(description="What it is called from now on.")


class FilterQuery(Query):
    list: ListName
    name: Annotated[str, Field(max_length=LONGEST_NAME)]


class FilterOut(Out):
    list: ListName
    name: str
    filter: str = Field(description="As it stands in the box of the dashboard, and in `q`.")


class FilterPage(Out):
    items: list[FilterOut]


@router_filters.get("", responses=gives(FilterPage))
async def list_filters(context: Context, actor: Caller) -> Response:
    """All of them, by name."""
    found = await SavedFilters(context.store).of(actor)
    return JSONResponse({"items": [_out(each) for each in found]})


@router_filters.post("", responses=gives(FilterOut) | TAKEN | BODY)
async def save_filter(body: FilterIn, context: Context, actor: Caller) -> Response:
    """Under a name that is taken it replaces what was there."""
    saved = await SavedFilters(context.store).save(actor, body.list, body.name, body.filter)
    return JSONResponse(_out(saved))


@router_filters.patch("", responses=gives(FilterOut) | MISSING | TAKEN | BODY)
async def rename_filter(body: FilterPatch, context: Context, actor: Caller) -> Response:
    """Another name; 409 if that is taken."""
    renamed = await SavedFilters(context.store).rename(actor, body.list, body.name, body.to)
    return JSONResponse(_out(renamed))


@router_filters.delete("", status_code=204, responses=MISSING)
async def remove_filter(
    query: Annotated[FilterQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """Its name is free again."""
    await SavedFilters(context.store).remove(actor, query.list, query.name)
    return Response(status_code=204)


def _out(saved: SavedFilter) -> Json:
    return {"list": saved.list.value, "name": saved.name, "filter": saved.text}
