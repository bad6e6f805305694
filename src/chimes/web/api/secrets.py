"""Routes of named secrets. No response contains a value."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import JSONResponse, Response

from chimes.model.access import MAX_SECRET_LENGTH, MIN_SECRET_LENGTH, NamedSecret
from chimes.services.secrets import SecretUse
from chimes.store.codec.values import owner_to_plain
from chimes.web.api.paging import OwnerWord, Query, owner_filter
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
from chimes.web.api.route import Caller, Context, NativeRoute
from chimes.web.api.schemas import Body
from chimes.web.api.translate import Json, time_out

router = APIRouter(
    prefix="/api/v1/secrets", tags=["secrets"], route_class=NativeRoute, responses=COMMON_ERRORS
)


class SecretsQuery(Query):
    owner: OwnerWord | None = Field(
        default=None, description="Default: the caller. Only an admin may name another owner."
    )


class DeletionQuery(SecretsQuery):
    force: bool = Field(default=False, description="Delete it although schedules use it.")


class SecretIn(Body):
    value: Annotated[
        str,
        Field(
            min_length=MIN_SECRET_LENGTH,
            max_length=MAX_SECRET_LENGTH,
            description="Never returned.",
            json_schema_extra={"format": "password", "writeOnly": True},
        ),
    ]


class SecretOut(Out):
    name: str
    owner: OwnerOut
    created_at: Moment
    updated_at: Moment


class SecretUser(Out):
    id: str
    name: str


class UsedSecretOut(SecretOut):
    schedules: list[SecretUser] = Field(description="Schedules that use it, at most 100.")
    schedule_count: int = Field(description="How many schedules use it.")


class SecretList(Out):
    items: list[UsedSecretOut]


@router.get("", responses=returns(SecretList) | NOT_FOUND)
async def list_secrets(
    query: Annotated[SecretsQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """List the secrets of an owner by name, without their values, and the schedules that use
    them."""
    found = await context.secrets.list_secrets(actor, owner_filter(query.owner))
    return JSONResponse({"items": [_use_out(each) for each in found]})


@router.put("/{name}", responses=returns(SecretOut) | NOT_FOUND | CONFLICT | BODY_ERRORS)
async def put_secret(
    name: str,
    body: SecretIn,
    query: Annotated[SecretsQuery, InQuery()],
    context: Context,
    actor: Caller,
) -> Response:
    """Store a secret, or replace its value. Attempts that begin later use the new value."""
    found = await context.secrets.put(actor, name, body.value, owner_filter(query.owner))
    return JSONResponse(_secret_out(found))


@router.delete("/{name}", status_code=204, responses=NOT_FOUND | CONFLICT)
async def delete_secret(
    name: str, query: Annotated[DeletionQuery, InQuery()], context: Context, actor: Caller
) -> Response:
    """Delete a secret; 409 with the schedules that use it, unless `force`."""
    await context.secrets.remove(actor, name, owner_filter(query.owner), force=query.force)
    return Response(status_code=204)


def _secret_out(secret: NamedSecret) -> Json:
    return {
        "name": secret.name,
        "owner": owner_to_plain(secret.owner),
        "created_at": time_out(secret.created_at),
        "updated_at": time_out(secret.updated_at),
    }


def _use_out(use: SecretUse) -> Json:
    return _secret_out(use.secret) | {
        "schedules": [{"id": each.id, "name": each.name} for each in use.schedules],
        "schedule_count": use.count,
    }
