"""Authenticates requests: API key, internal token or open mode on loopback; applies rate limits."""

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
from chimes.model.access import ANONYMOUS_OWNER, Actor, OwnerType, Role, Scope
from chimes.model.audit import entry
from chimes.model.ids import KeyId
from chimes.services.access import RateLimiter, SharedLimiter, secrets_equal
from chimes.web.requests import WebContext

#: Credentials of the native API; not the query string, which ends up in logs and histories.
NATIVE = ("Bearer", "ApiKey", "X-API-Key")
#: Header with the internal token of a trusted service.
INTERNAL = "X-Internal-Token"
_AUTH_SCHEMES = frozenset({"Bearer", "ApiKey"})
_MAX_FAILURES = 10
_FAILURE_SECONDS = 10.0
_MAX_ADDRESSES = 10_000
_log = logging.getLogger("chimes.access")


class Authenticator:
    """Shared by all APIs of the server, so that rate limits apply across them."""

    def __init__(self, context: WebContext) -> None:
        self._access = context.access
        self._store = context.store
        rate = context.settings.requests_per_second
        self._burst = 0 if math.isinf(rate) else max(1, round(2 * rate))
        self._calls = SharedLimiter(context.store, context.clock, rate=rate, burst=self._burst)
        self._failures = FailureWindow(context.clock)
        self._audit_limit = RateLimiter(context.clock, rate=0.1, burst=_MAX_FAILURES)

    async def authenticate(
        self, request: Request, *, interface: str, accepts: Sequence[str], counted: bool = True
    ) -> Actor:
        address = request.client.host if request.client else ""
        if not await self._access.auth_enabled():
            # A reverse proxy on this machine makes every client look like loopback.
            if any(_is_forwarding_header(name) for name in request.headers):
                raise NotAuthenticated(presented=False)
            return Actor(interface=interface, address=address)
        presented = presented_key(request, accepts)
        try:
            actor = await self._access.authenticate(presented, interface=interface, address=address)
        except NotAuthenticated:
            await self._reject(address, interface, presented)
        if counted:
            await self.count(request, actor)
        return actor

    async def authenticate_internal(self, request: Request, *, interface: str, token: str) -> Actor:
        """Authenticates a service that presents the internal token. It may read, operate and write
        schedules and nothing else. Without a configured token only open mode admits requests."""
        address = request.client.host if request.client else ""
        if not token and not await self._access.auth_enabled():
            return await self.authenticate(request, interface=interface, accepts=())
        presented = request.headers.get(INTERNAL, "")
        if not token or not secrets_equal(presented, token):
            await self._reject(address, interface, presented)
        return Actor(
            key_id=KeyId("internal"),
            interface=interface,
            address=address,
            scopes=(Scope.READ, Scope.OPERATE, Scope.WRITE),
        )

    async def _reject(self, address: str, interface: str, presented: str) -> NoReturn:
        anonymous = Actor(
            owner=ANONYMOUS_OWNER, role=Role.VIEWER, interface=interface, address=address
        )
        await self._audit(anonymous, "auth_failed", "access", address)
        if presented:
            self._failures.count(address)
        raise NotAuthenticated(presented=bool(presented)) from None

    async def count(self, request: Request, actor: Actor) -> None:
        """Counts one call of an authenticated caller. Raises RateLimited."""
        if not self._burst:
            return
        try:
            allowance = await self._calls.take(rate_limit_key(actor))
        except RateLimited as limited:
            wait = math.ceil(limited.retry_after.total_seconds())
            request.state.answer_headers = _rate_headers(self._burst, 0, max(1, wait))
            raise
        request.state.answer_headers = _rate_headers(
            allowance.limit, allowance.remaining, round(allowance.reset)
        )

    async def audit_refusal(self, request: Request, actor: Actor, why: ChimesError) -> None:
        """Writes an audit entry for a request refused for missing rights or an exceeded quota."""
        verb = f"{request.method} {request.url.path}"[:200]
        reason = why.message if isinstance(why, QuotaExceeded) else ""
        await self._audit(actor, "refused", "request", verb, reason)

    async def _audit(self, actor: Actor, verb: str, kind: str, what: str, reason: str = "") -> None:
        try:
            self._audit_limit.take(f"{verb} {actor.key_id or actor.address}")
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
            pass  # A flood of bad calls must not fill the audit.
        except StoreError:
            _log.warning("refused request not written to the audit", extra={"verb": verb})


def rate_limit_key(actor: Actor) -> str:
    """The rate limit key: keys of one user or chat share a limit, system keys have one each."""
    return actor.name if actor.owner.type is OwnerType.SYSTEM else str(actor.owner)


def _rate_headers(limit: int, remaining: int, reset: int) -> dict[str, str]:
    return {
        "RateLimit-Limit": str(limit),
        "RateLimit-Remaining": str(remaining),
        "RateLimit-Reset": str(reset),
    }


class FailureWindow:
    """Limits wrong keys per address. Requests with a valid key are not affected."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()

    def count(self, address: str) -> None:
        now = self._clock.monotonic()
        seen = self._seen.setdefault(address, deque())
        self._seen.move_to_end(address)
        while seen and now - seen[0] >= _FAILURE_SECONDS:
            seen.popleft()
        if len(seen) >= _MAX_FAILURES:
            raise RateLimited(
                _("Too many wrong keys"),
                retry_after=timedelta(seconds=_FAILURE_SECONDS - (now - seen[0])),
            )
        seen.append(now)
        if len(self._seen) > _MAX_ADDRESSES:
            self._seen.popitem(last=False)


async def authenticate(
    request: Request,
    *,
    interface: str = "native",
    accepts: Sequence[str] = NATIVE,
    counted: bool = True,
) -> Actor:
    """Authenticates a request; stores the actor in `request.state.actor`.

    `accepts` lists where a key may be: `Bearer` and `ApiKey` are schemes of Authorization,
    `?name` is a query parameter, anything else a header. `counted` is False for a check of a
    request that was counted already, such as an open stream. Raises NotAuthenticated (`presented`
    in its details says whether the request had a key) or RateLimited.
    """
    authenticator: Authenticator = request.app.state.authenticator
    actor = await authenticator.authenticate(
        request, interface=interface, accepts=accepts, counted=counted
    )
    request.state.actor = actor
    return actor


async def authenticate_internal(request: Request, *, interface: str, token: str) -> Actor:
    """`authenticate` for routes that services call with the internal token."""
    authenticator: Authenticator = request.app.state.authenticator
    actor = await authenticator.authenticate_internal(request, interface=interface, token=token)
    request.state.actor = actor
    return actor


def presented_key(request: Request, accepts: Sequence[str]) -> str:
    """The key in the request; empty if there is none."""
    for place in accepts:
        if place in _AUTH_SCHEMES:
            scheme, _unused, key = request.headers.get("authorization", "").partition(" ")
            found = key.strip() if scheme.lower() == place.lower() else ""
        elif place.startswith("?"):
            found = request.query_params.get(place[1:], "")
        else:
            found = request.headers.get(place, "").strip()
        if found:
            return found
    return ""


def _is_forwarding_header(header: str) -> bool:
    return header.startswith("x-forwarded-") or header in ("forwarded", "x-real-ip")
