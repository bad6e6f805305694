"""Who is calling: keys in headers, open mode on loopback, and what failed tries cost."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from datetime import timedelta
from typing import NoReturn

from starlette.requests import Request

from chimes.clock import Clock
from chimes.errors import ChimesError, NotAuthenticated, QuotaExceeded, RateLimited, StoreError
from chimes.i18n import _
from chimes.model.access import Actor, Owner, OwnerType, Role, Scope
from chimes.model.ids import KeyId
from chimes.services.access import RateLimiter, SharedLimiter, same_secret
from chimes.services.audit import entry
from chimes.web.context import WebContext

#: What the native API takes. A key in a query string ends up in logs and histories.
NATIVE = ("Bearer", "ApiKey", "X-API-Key")
#: Where a peer says the internal token.
INTERNAL = "X-Internal-Token"
_SCHEMES = frozenset({"Bearer", "ApiKey"})
_FAILURES = 10
_WINDOW = 10.0
_MOST_ADDRESSES = 10_000
_NOBODY = Owner(id="nobody")
_log = logging.getLogger("chimes.access")


class Authenticator:
    """One for the whole server, so that every door shares the limits."""

    def __init__(self, context: WebContext) -> None:
        self._access = context.access
        self._store = context.store
        rate = context.settings.requests_per_second
        self._burst = 0 if math.isinf(rate) else max(1, round(2 * rate))
        self._calls = SharedLimiter(context.store, context.clock, rate=rate, burst=self._burst)
        self._failures = FailureWindow(context.clock)
        self._notes = RateLimiter(context.clock, rate=0.1, burst=_FAILURES)

    async def admit(self, request: Request, *, interface: str, accepts: Sequence[str]) -> Actor:
        address = request.client.host if request.client else ""
        if not await self._access.keys_on():
            # A proxy on this machine makes the whole world look like loopback.
            if any(_forwarding(name) for name in request.headers):
                raise NotAuthenticated(presented=False)
            return Actor(interface=interface, address=address)
        presented = presented_key(request, accepts)
        try:
            actor = await self._access.authenticate(presented, interface=interface, address=address)
        except NotAuthenticated:
            await self._turn_away(address, interface, presented)
        await self.count(request, actor)
        return actor

    async def admit_internal(self, request: Request, *, interface: str, token: str) -> Actor:
        """A peer that knows the internal token `token`; it may do all with schedules that
        anybody may, and nothing else. Without a token only open mode lets anybody in."""
        address = request.client.host if request.client else ""
        if not token and not await self._access.keys_on():
            return await self.admit(request, interface=interface, accepts=())
        presented = request.headers.get(INTERNAL, "")
        if not token or not same_secret(presented, token):
            await self._turn_away(address, interface, presented)
        return Actor(
            key_id=KeyId("internal"),
            interface=interface,
            address=address,
            scopes=(Scope.READ, Scope.OPERATE, Scope.WRITE),
        )

    async def _turn_away(self, address: str, interface: str, presented: str) -> NoReturn:
        stranger = Actor(owner=_NOBODY, role=Role.VIEWER, interface=interface, address=address)
        await self._note(stranger, "auth_failed", "access", address)
        if presented:
            self._failures.count(address)
        raise NotAuthenticated(presented=bool(presented)) from None

    async def count(self, request: Request, actor: Actor) -> None:
        """One more call of somebody known, by whichever way they came in. RateLimited."""
        if not self._burst:
            return
        try:
            allowance = await self._calls.take(counted_as(actor))
        except RateLimited as refused:
            wait = math.ceil(refused.retry_after.total_seconds())
            request.state.answer_headers = _rate_headers(self._burst, 0, max(1, wait))
            raise
        request.state.answer_headers = _rate_headers(
            allowance.limit, allowance.remaining, round(allowance.reset)
        )

    async def refused(self, request: Request, actor: Actor, why: ChimesError) -> None:
        """Leave a trace of something that a known caller was not allowed to do, or that its
        quota did not allow."""
        verb = f"{request.method} {request.url.path}"[:200]
        reason = why.message if isinstance(why, QuotaExceeded) else ""
        await self._note(actor, "refused", "request", verb, reason)

    async def _note(self, actor: Actor, verb: str, kind: str, what: str, reason: str = "") -> None:
        try:
            self._notes.take(f"{verb} {actor.key_id or actor.address}")
            note = entry(
                actor,
                verb,
                kind,
                what,
                at=await self._store.now(),
                owner=actor.owner,
                reason=reason,
                allowed=False,
            )
            await self._store.append_audit(note)
        except RateLimited:
            pass  # a flood of bad calls must not fill the audit
        except StoreError:
            _log.warning("a refusal could not be written to the audit", extra={"verb": verb})


def counted_as(actor: Actor) -> str:
    """All keys of a user or a chat share one limit; those of the system have nothing in
    common."""
    return actor.name if actor.owner.type is OwnerType.SYSTEM else str(actor.owner)


def _rate_headers(limit: int, remaining: int, reset: int) -> dict[str, str]:
    return {
        "RateLimit-Limit": str(limit),
        "RateLimit-Remaining": str(remaining),
        "RateLimit-Reset": str(reset),
    }


class FailureWindow:
    """Bad keys by address. Only callers with a bad key meet it, so a good one still works."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()

    def count(self, address: str) -> None:
        now = self._clock.monotonic()
        seen = self._seen.setdefault(address, deque())
        self._seen.move_to_end(address)
        while seen and now - seen[0] >= _WINDOW:
            seen.popleft()
        if len(seen) >= _FAILURES:
            raise RateLimited(
                _("Too many wrong keys"), retry_after=timedelta(seconds=_WINDOW - (now - seen[0]))
            )
        seen.append(now)
        if len(self._seen) > _MOST_ADDRESSES:
            self._seen.popitem(last=False)


async def authenticate(
    request: Request, *, interface: str = "native", accepts: Sequence[str] = NATIVE
) -> Actor:
    """The actor behind a request, also left in `request.state.actor`.

    `accepts` names where a key may stand: `Bearer` and `ApiKey` are schemes of Authorization,
    `?name` is a query parameter, anything else a header. Raises NotAuthenticated (`presented` in
    its details says whether there was a key at all) or RateLimited.
    """
    authenticator: Authenticator = request.app.state.authenticator
    actor = await authenticator.admit(request, interface=interface, accepts=accepts)
    request.state.actor = actor
    return actor


async def authenticate_internal(request: Request, *, interface: str, token: str) -> Actor:
    """As `authenticate`, for routes that peers call with the internal token."""
    authenticator: Authenticator = request.app.state.authenticator
    actor = await authenticator.admit_internal(request, interface=interface, token=token)
    request.state.actor = actor
    return actor


def presented_key(request: Request, accepts: Sequence[str]) -> str:
    """The key as it was sent, empty if there is none."""
    for place in accepts:
        if place in _SCHEMES:
            scheme, _unused, key = request.headers.get("authorization", "").partition(" ")
            found = key.strip() if scheme.lower() == place.lower() else ""
        elif place.startswith("?"):
            found = request.query_params.get(place[1:], "")
        else:
            found = request.headers.get(place, "").strip()
        if found:
            return found
    return ""


def _forwarding(header: str) -> bool:
    return header.startswith("x-forwarded-") or header in ("forwarded", "x-real-ip")
