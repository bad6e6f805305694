"""Filters that the caller's owner has saved under a name."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import JSONResponse, Response

from chimes.doors.api.fields import Body
from chimes.doors.api.inputs import Word
from chimes.doors.api.outputs import BODY, EVERYWHERE, MISSING, TAKEN, Out, gives
from chimes.doors.api.queries import Query
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import Json
from chimes.service.saved_filters import (
    LONGEST_NAME,
    LONGEST_TEXT,
    ListName,
    SavedFilter,
    SavedFilters,
)

router = APIRouter(
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


@router.get("", responses=gives(FilterPage))
async def list_filters(door: ToDoorway, actor: Caller) -> Response:
    """All of them, by name."""
    found = await SavedFilters(door.store).of(actor)
    return JSONResponse({"items": [_out(each) for each in found]})


@router.post("", responses=gives(FilterOut) | TAKEN | BODY)
async def save_filter(body: FilterIn, door: ToDoorway, actor: Caller) -> Response:
    """Under a name that is taken it replaces what was there."""
    saved = await SavedFilters(door.store).save(actor, body.list, body.name, body.filter)
    return JSONResponse(_out(saved))


@router.patch("", responses=gives(FilterOut) | MISSING | TAKEN | BODY)
async def rename_filter(body: FilterPatch, door: ToDoorway, actor: Caller) -> Response:
    """Another name; 409 if that is taken."""
    renamed = await SavedFilters(door.store).rename(actor, body.list, body.name, body.to)
    return JSONResponse(_out(renamed))


@router.delete("", status_code=204, responses=MISSING)
async def remove_filter(
    query: Annotated[FilterQuery, InQuery()], door: ToDoorway, actor: Caller
) -> Response:
    """Its name is free again."""
    await SavedFilters(door.store).remove(actor, query.list, query.name)
    return Response(status_code=204)


def _out(saved: SavedFilter) -> Json:
    return {"list": saved.list.value, "name": saved.name, "filter": saved.text}
