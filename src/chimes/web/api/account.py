"""The caller: identity, preferences, quotas and saved filters."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import JSONResponse, Response

from chimes.model.access import Actor, Role, Scope
from chimes.services.preferences import (
    MAX_FILTER_NAME,
    MAX_FILTER_TEXT,
    ListName,
    Preferences,
    SavedFilter,
    SavedFilters,
)
from chimes.store.codec.values import owner_to_plain
from chimes.web.api.paging import Query
from chimes.web.api.responses import (
    BODY_ERRORS,
    COMMON_ERRORS,
    CONFLICT,
    NOT_FOUND,
    Out,
    OwnerOut,
    returns,
)
from chimes.web.api.route import Caller, Context, NativeRoute
from chimes.web.api.schemas import Body, EnumField
from chimes.web.api.translate import Json
from chimes.web.requests import WebContext

router = APIRouter(
    prefix="/api/v1/me", tags=["system"], route_class=NativeRoute, responses=COMMON_ERRORS
)


class MeIn(Body):
    """Omitted fields stay as they are; null removes a preference."""

    timezone: str | None = Field(default=None, description="IANA name", examples=["Asia/Bangkok"])
    language: str | None = Field(default=None, description="en, th or zh", examples=["th"])


class QuotaOut(Out):
    quota: str = Field(description="schedules or active_schedules")
    namespace: str | None = Field(description="The namespace that is counted; null for all.")
    limit: int
    used: int


class MeOut(Out):
    owner: OwnerOut
    role: Role
    key_id: str | None = Field(description="Null if keys are not enabled.")
    scopes: list[Scope] = Field(description="Empty for all rights of the role.")
    timezone: str = Field(description="Default time zone of new schedules.")
    language: str | None = Field(description="Null to use Accept-Language.")
    quotas: list[QuotaOut]


@router.get("", responses=returns(MeOut))
async def get_me(context: Context, actor: Caller) -> Response:
    """Get the owner, role, scopes, preferences and quotas of the caller."""
    return await _me_response(context, actor, await context.preferences.get(actor.owner))


@router.patch("", responses=returns(MeOut) | BODY_ERRORS)
async def change_me(body: MeIn, context: Context, actor: Caller) -> Response:
    """Change the time zone and the language of the caller's owner."""
    chosen = {name: getattr(body, name) for name in body.model_fields_set}
    return await _me_response(context, actor, await context.preferences.change(actor, chosen))


async def _me_response(context: WebContext, actor: Actor, preferences: Preferences) -> Response:
    content: Json = {
        "owner": owner_to_plain(actor.owner),
        "role": actor.role.value,
        "key_id": actor.key_id,
        "scopes": [scope.value for scope in actor.scopes],
        "timezone": preferences.timezone or context.settings.default_timezone,
        "language": preferences.language,
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
    return JSONResponse(content)


filter_router = APIRouter(
    prefix="/api/v1/me/filters", tags=["system"], route_class=NativeRoute, responses=COMMON_ERRORS
)
Name = Annotated[str, Field(max_length=MAX_FILTER_NAME, examples=["What failed this week"])]


class FilterIn(Body):
    list: Annotated[ListName, EnumField]
    name: Name
    filter: Annotated[str, Field(max_length=MAX_FILTER_TEXT, examples=["status:failed since:7d"])]


class FilterPatch(Body):
    list: Annotated[ListName, EnumField]
    name: Name
    to: Name = Field(description="The new name.")


class FilterQuery(Query):
    list: ListName
    name: Annotated[str, Field(max_length=MAX_FILTER_NAME)]


class FilterOut(Out):
    list: ListName
    name: str
    filter: str = Field(description="Filter text, as in the dashboard and in `q`.")


class FilterPage(Out):
    items: list[FilterOut]


@filter_router.get("", responses=returns(FilterPage))
async def list_filters(context: Context, actor: Caller) -> Response:
    """List the saved filters of the caller, by name."""
    found = await SavedFilters(context.store).list_filters(actor)
    return JSONResponse({"items": [_filter_out(each) for each in found]})


@filter_router.post("", responses=returns(FilterOut) | CONFLICT | BODY_ERRORS)
async def save_filter(body: FilterIn, context: Context, actor: Caller) -> Response:
    """Save a filter. An existing filter of this name is replaced."""
    saved = await SavedFilters(context.store).save(actor, body.list, body.name, body.filter)
    return JSONResponse(_filter_out(saved))


@filter_router.patch("", responses=returns(FilterOut) | NOT_FOUND | CONFLICT | BODY_ERRORS)
async def rename_filter(body: FilterPatch, context: Context, actor: Caller) -> Response:
    """Rename a filter; 409 if the new name exists."""
    renamed = await SavedFilters(context.store).rename(actor, body.list, body.name, body.to)
    return JSONResponse(_filter_out(renamed))


@filter_router.delete("", status_code=204, responses=NOT_FOUND)
async def remove_filter(
    query: Annotated[FilterQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """Delete a filter."""
    await SavedFilters(context.store).remove(actor, query.list, query.name)
    return Response(status_code=204)


def _filter_out(saved: SavedFilter) -> Json:
    return {"list": saved.list.value, "name": saved.name, "filter": saved.text}
