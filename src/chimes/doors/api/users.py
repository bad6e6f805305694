"""People who sign in at the dashboard with a password."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import JSONResponse, Response

from chimes.doors.api.fields import Body
from chimes.doors.api.inputs import Word
from chimes.doors.api.outputs import BODY, EVERYWHERE, MISSING, Moment, Out, OwnerOut, gives
from chimes.doors.api.route import Caller, NativeRoute, ToDoorway
from chimes.doors.api.wire import Json, time_out
from chimes.errors import InvalidInput
from chimes.model.access import Role
from chimes.service.users import User, UserService
from chimes.store.codec.schedule import owner_to_plain
from chimes.wording import say

router = APIRouter(
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


@router.get("", responses=gives(UserPage))
async def list_users(door: ToDoorway, actor: Caller) -> Response:
    """Everybody who has a password, by name."""
    found = await UserService(door.store).all(actor)
    return JSONResponse({"items": [_out(user) for user in found]})


@router.post("", status_code=201, responses=gives(UserOut, 201) | BODY)
async def create_user(body: UserIn, door: ToDoorway, actor: Caller) -> Response:
    """Somebody who can sign in at the dashboard, and whose objects are `user:NAME`'s. From the
    first one on, every call needs a key or a session."""
    user = await UserService(door.store).create(
        actor, name=body.name, password=body.password, role=body.role
    )
    answer = JSONResponse(_out(user), status_code=201)
    answer.headers["Location"] = f"/api/v1/users/{user.name}"
    return answer


@router.patch("/{name}", responses=gives(UserOut) | BODY | MISSING)
async def change_user(name: str, body: UserPatch, door: ToDoorway, actor: Caller) -> Response:
    """Another password, which signs this user out everywhere, or another role."""
    users = UserService(door.store)
    user = None
    if body.role is not None:
        user = await users.set_role(actor, name, body.role)
    if body.password is not None:
        user = await users.set_password(actor, name, body.password)
    if user is None:
        raise InvalidInput(say("say a password, a role, or both"), code="nothing_to_change")
    return JSONResponse(_out(user))


@router.delete("/{name}", status_code=204, responses=MISSING)
async def remove_user(name: str, door: ToDoorway, actor: Caller) -> Response:
    """Whoever is signed in as this user is out; what belongs to it stays."""
    await UserService(door.store).remove(actor, name)
    return Response(status_code=204)


def _out(user: User) -> Json:
    return {
        "name": user.name,
        "role": user.role.value,
        "owner": owner_to_plain(user.owner),
        "created_at": time_out(user.created_at),
        "created_by": user.created_by,
    }
