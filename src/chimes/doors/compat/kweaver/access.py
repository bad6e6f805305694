"""Who calls the KWeaver door, and for which account (C15).

Without keys everybody on this machine is the same actor, and the headers say for whom it asks.
With keys the key says so, and headers change nothing: nobody acts as somebody else. On internal
routes a peer that knows the internal token is believed what its headers say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from fastapi import Request

from chimes.config import Settings
from chimes.doors.auth import authenticate, authenticate_internal
from chimes.doors.compat.kweaver.wire import Account
from chimes.errors import InvalidInput
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.action_rules import check_action_id
from chimes.wording import say

DOOR = "kweaver"
ACCEPTS = ("Bearer", "ApiKey", "X-API-Key")
#: Of an account that comes without one.
USER = "user"
ID, TYPE = "X-Account-Id", "X-Account-Type"


@dataclass(frozen=True, slots=True)
class Caller:
    actor: Actor
    account: Account


Admission = Callable[[Request], Awaitable[Caller]]


async def by_key(request: Request) -> Caller:
    actor = await authenticate(request, door=DOOR, accepts=ACCEPTS)
    if actor.key_id is None:
        return Caller(actor, _told(request))
    return Caller(actor, Account(actor.owner.id, actor.owner.type.value))


def by_token(settings: Settings) -> Admission:
    async def admit(request: Request) -> Caller:
        actor = await authenticate_internal(request, door=DOOR, token=settings.internal_token)
        account = _told(request)
        if actor.key_id is not None and account.id and account.type == USER:
            # What it makes belongs to them, so that their own key finds it.
            owner = Owner(type=OwnerType.USER, id=account.id)
            actor = request.state.actor = replace(actor, owner=owner)
        return Caller(actor, account)

    return admit


def _told(request: Request) -> Account:
    """What the headers say, checked on every route: it is kept with whatever is written."""
    account_id, account_type = _header(request, ID), _header(request, TYPE)
    return Account(account_id, account_type or USER) if account_id else Account()


def _header(request: Request, name: str) -> str:
    """As UTF-8, which is how it is sent on; the framework reads headers as Latin-1."""
    given = request.headers.get(name, "")
    try:
        text = given.encode("latin-1").decode().strip(" \t")
    except UnicodeError:
        raise InvalidInput(
            say("{field} is not UTF-8 text", field=name), field=name, code="not_text"
        ) from None
    if text:
        check_action_id(text, name)
    return text
