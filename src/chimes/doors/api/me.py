"""Who the caller is, what it likes, and how much of its quota is used."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import JSONResponse, Response

from chimes.doors.api.fields import Body
from chimes.doors.api.outputs import BODY, EVERYWHERE, Out, OwnerOut, gives
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import Json
from chimes.doors.context import Doorway
from chimes.model.access import Actor, Role, Scope
from chimes.service.preferences import Preferences
from chimes.store.codec.schedule import owner_to_plain

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
async def get_me(door: ToDoorway, actor: Caller) -> Response:
    """The caller: its owner, role, scopes and preferences."""
    return await _answer(door, actor, await door.preferences.of(actor.owner))


@router.patch("", responses=gives(MeOut) | BODY)
async def change_me(body: MeIn, door: ToDoorway, actor: Caller) -> Response:
    """Choose the zone and the language of the caller's owner."""
    chosen = {name: getattr(body, name) for name in body.model_fields_set}
    return await _answer(door, actor, await door.preferences.change(actor, chosen))


async def _answer(door: Doorway, actor: Actor, liked: Preferences) -> Response:
    shown: Json = {
        "owner": owner_to_plain(actor.owner),
        "role": actor.role.value,
        "key_id": actor.key_id,
        "scopes": [scope.value for scope in actor.scopes],
        "timezone": liked.timezone or door.settings.default_timezone,
        "language": liked.language,
        "quotas": [
            {
                "quota": "active_schedules" if each.quota.active else "schedules",
                "namespace": each.quota.namespace,
                "limit": each.quota.limit,
                "used": each.used,
            }
            for each in await door.schedules.quota_use(actor.owner)
        ],
    }
    return JSONResponse(shown)
