"""API keys, authentication, quotas and rate limits."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from chimes.clock import Clock
from chimes.errors import (
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
    QuotaExceeded,
    RateLimited,
    StoreError,
)
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import (
    SCOPES_OF,
    SYSTEM_OWNER,
    Actor,
    ApiKey,
    Owner,
    OwnerType,
    Quota,
    Role,
    Scope,
    revoke,
)
from chimes.model.audit import entry
from chimes.model.ids import KeyId
from chimes.model.listing import RunQuery
from chimes.model.run import RunStatus
from chimes.model.validation import clean_name
from chimes.services.schedules.prompts import NAMESPACE
from chimes.store.port import Store, TokenGrant

T = TypeVar("T")
KEY_PREFIX = "chm"
_ID_LENGTH = 12
_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
#: Seconds for which a key is cached, which is also the delay until a revocation on another node
#: takes effect.
_KEY_CACHE_SECONDS = 1.0
#: Seconds for which "there are no keys" is cached. Once any process creates a key, every call
#: needs one.
_AUTH_CHECK_SECONDS = 0.2
_NO_KEY = "0" * 64
#: State key of the users with passwords. The first user enables authentication.
USERS = "dashboard:users"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewKey:
    key: ApiKey
    #: The whole key; shown once, never stored.
    text: str


class AccessService:
    """`fixed`: keys from the configuration, an admin token or a file of keys. `closed`: users sign
    in elsewhere, so that calls need a key or a session before the first user exists."""

    def __init__(
        self, store: Store, clock: Clock, *, fixed: Sequence[str] = (), closed: bool = False
    ) -> None:
        self._store = store
        self._clock = clock
        self._fixed = tuple(_digest(key) for key in fixed)
        self._cache: dict[KeyId, tuple[ApiKey | None, float]] = {}
        self._auth_enabled = bool(fixed) or closed
        self._checked_at = float("-inf")

    async def auth_enabled(self) -> bool:
        """Whether calls need a key or a session. Without keys and users all calls are allowed, and
        the server listens on loopback only."""
        if (
            not self._auth_enabled
            and self._clock.monotonic() - self._checked_at > _AUTH_CHECK_SECONDS
        ):
            # An expired key still counts: it was created to restrict access.
            keys = any(key.revoked_at is None for key in await self._store.list_keys())
            self._auth_enabled = keys or await self._store.get_checkpoint(USERS) is not None
            self._checked_at = self._clock.monotonic()
        return self._auth_enabled

    @property
    def open_mode(self) -> bool:
        """The last result of `auth_enabled`, for rules that cannot await the store."""
        return not self._auth_enabled

    def end_open_mode(self) -> None:
        """For the node that creates a user: it need not wait for the next check."""
        self._auth_enabled = True

    async def authenticate(self, presented: str, *, interface: str, address: str = "") -> Actor:
        """The actor of a key. Every failure has the same error and takes the same time."""
        digest = _digest(presented)
        fixed = [hmac.compare_digest(digest, known) for known in self._fixed]
        key = await self._key(presented)
        stored = key.secret_hash if key is not None else _NO_KEY
        matches = hmac.compare_digest(stored, _digest(_secret_part(presented)))
        if any(fixed):
            return Actor(
                role=Role.ADMIN, key_id=KeyId("configured"), interface=interface, address=address
            )
        if key is None or not matches or not key.usable(await self._store.now()):
            raise NotAuthenticated()
        return Actor(
            owner=key.owner,
            role=key.role,
            key_id=key.id,
            interface=interface,
            address=address,
            scopes=key.scopes,
        )

    async def get_key_actor(
        self, key_id: KeyId, *, interface: str, address: str = ""
    ) -> Actor | None:
        """The actor of a key that was authenticated before; None if it is no longer valid."""
        key = await self._key_by_id(key_id)
        if key is None or not key.usable(await self._store.now()):
            return None
        return Actor(
            owner=key.owner,
            role=key.role,
            key_id=key.id,
            interface=interface,
            address=address,
            scopes=key.scopes,
        )

    def configured_key_mark(self, presented: str) -> str:
        """A hash that identifies a key of the configuration; empty: it is none of them."""
        digest = _digest(presented)
        return _digest(digest) if digest in self._fixed else ""

    def get_configured_actor(self, mark: str, *, interface: str, address: str = "") -> Actor | None:
        """The actor of a configured key; None if it is no longer configured."""
        if all(_digest(known) != mark for known in self._fixed):
            return None
        return Actor(
            role=Role.ADMIN, key_id=KeyId("configured"), interface=interface, address=address
        )

    async def _key(self, presented: str) -> ApiKey | None:
        parts = presented.split("_", 2)
        if len(parts) != 3 or parts[0] != KEY_PREFIX:
            return None
        return await self._key_by_id(KeyId(parts[1]))

    async def _key_by_id(self, key_id: KeyId) -> ApiKey | None:
        now = self._clock.monotonic()
        known = self._cache.get(key_id)
        if known is not None and now - known[1] < _KEY_CACHE_SECONDS:
            return known[0]
        key = await self._store.get_key(key_id)
        if key is not None:
            self._cache[key_id] = (key, now)
            await self._touch(key)
        return key

    async def _touch(self, key: ApiKey) -> None:
        now = await self._store.now()
        if key.last_used_at is None or now - key.last_used_at > timedelta(minutes=1):
            await self._store.change_key(key.id, lambda k, at: replace(k, last_used_at=at))

    async def create(
        self,
        actor: Actor,
        *,
        name: str,
        role: Role,
        owner: Owner = SYSTEM_OWNER,
        expires_at: datetime | None = None,
        scopes: Collection[Scope] = (),
    ) -> NewKey:
        """Creates a key. Only for admins, so that no key can exceed the rights of its creator.
        `scopes` restrict the role; empty: no restriction."""
        self._only_admin(actor)
        narrowed = _checked_scopes(role, scopes)
        now = await self._store.now()
        if expires_at is not None and expires_at <= now:
            raise InvalidInput(_("is in the past"), field="expires_at", code="in_the_past")
        key_id = KeyId("".join(secrets.choice(_ID_ALPHABET) for _position in range(_ID_LENGTH)))
        secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        key = ApiKey(
            id=key_id,
            secret_hash=_digest(secret),
            name=clean_name(name),
            role=role,
            owner=owner,
            created_at=now,
            created_by=actor.name,
            expires_at=expires_at,
            scopes=narrowed,
        )
        audit = entry(
            actor,
            "create_key",
            "key",
            key_id,
            at=now,
            owner=owner,
            changes={"name": key.name, "role": role.value}
            | ({"scopes": list(narrowed)} if narrowed else {}),
        )
        await self._store.add_key(key, audit)
        self._auth_enabled = True
        return NewKey(key=key, text=f"{KEY_PREFIX}_{key_id}_{secret}")

    async def keys(self, actor: Actor) -> tuple[ApiKey, ...]:
        self._only_admin(actor)
        return await self._store.list_keys()

    async def revoke(self, actor: Actor, key_id: KeyId) -> ApiKey:
        self._only_admin(actor)
        found = await self._store.get_key(key_id)
        owner = found.owner if found is not None else actor.owner
        audit = entry(actor, "revoke_key", "key", key_id, at=await self._store.now(), owner=owner)
        key = await self._store.change_key(key_id, revoke, audit)
        self._cache.pop(key_id, None)
        return key

    @staticmethod
    def _only_admin(actor: Actor) -> None:
        if not actor.administers:
            raise NotAllowed()


def _checked_scopes(role: Role, scopes: Collection[Scope]) -> tuple[Scope, ...]:
    """In the order of the enumeration. Raises InvalidInput for a scope beyond the role."""
    beyond = [each for each in Scope if each in scopes and each not in SCOPES_OF[role]]
    if beyond:
        raise InvalidInput(
            _(
                "the role {role} does not include {scopes}",
                role=role.value,
                scopes=", ".join(beyond),
            ),
            field="scopes",
            code="wider_than_role",
        )
    if Scope.AGENT_SCHEDULES in scopes and Scope.AGENT not in scopes:
        raise InvalidInput(
            _("agent_schedules requires agent"), field="scopes", code="incomplete_scopes"
        )
    return tuple(each for each in Scope if each in scopes)


def _secret_part(presented: str) -> str:
    return presented.split("_", 2)[2] if presented.count("_") >= 2 else presented


def secrets_equal(presented: str, known: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(_digest(presented), _digest(known))


def _digest(text: str) -> str:
    """256 random bits need no slow hash, which would make a flood of requests expensive."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- quotas of schedules --------------------------------------------------------------------------
#: Active schedules of an owner if the setting is not set.
DEFAULT_ACTIVE = 20
#: The quotas that apply to an owner.
QuotaRule = Callable[[Owner], tuple[Quota, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaUsage:
    quota: Quota
    used: int


def no_quotas(owner: Owner) -> tuple[Quota, ...]:
    return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerQuotas:
    """A QuotaRule. With authentication, `schedules` limits all schedules of an owner.

    `active` limits the active schedules of the Softnix API and of chats: with authentication,
    always for chats, and always if it is set. 0 means no limit.
    """

    schedules: int
    active: int | None
    auth_enabled: bool

    def __call__(self, owner: Owner) -> tuple[Quota, ...]:
        found: list[Quota] = []
        if self.auth_enabled:
            found.append(Quota(limit=self.schedules))
        limits_active = self.active is not None or self.auth_enabled or owner.type is OwnerType.CHAT
        limit = DEFAULT_ACTIVE if self.active is None else self.active
        if limits_active and limit:
            found.append(Quota(limit=limit, active=True, namespace=NAMESPACE))
        return tuple(found)


# --- quotas of runs -------------------------------------------------------------------------------
_DAY = 24 * 60 * 60


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLimits:
    """0: no limit."""

    running: int = 0
    #: Manual runs; slots of schedules are limited by the shortest interval.
    per_day: int = 0


NO_RUN_LIMITS = RunLimits()


class RunQuotas:
    """Checked before a run is added, not in its transaction: concurrent requests can exceed a
    quota slightly (ADR 26)."""

    def __init__(self, store: Store, limits: Callable[[], RunLimits]) -> None:
        self._store = store
        self._limits = limits

    async def check(self, actor: Actor, owner: Owner, *, count: int = 1) -> None:
        """Raises QuotaExceeded. Requests of an admin are not counted."""
        limits = self._limits()
        if actor.role is Role.ADMIN:
            return
        if limits.running and await self._running(owner, limits.running) >= limits.running:
            raise QuotaExceeded(
                _(
                    "{owner} already has {limit} active runs, the maximum allowed",
                    owner=owner,
                    limit=limits.running,
                ),
                quota="running",
                limit=limits.running,
            )
        if limits.per_day:
            taken = await self._store.take_tokens(
                f"runs:{owner}", rate=limits.per_day / _DAY, burst=limits.per_day, count=count
            )
            if not taken.granted:
                raise QuotaExceeded(
                    _(
                        "{owner} may start {limit} runs a day",
                        owner=owner,
                        limit=limits.per_day,
                    ),
                    quota="runs_per_day",
                    limit=limits.per_day,
                )

    async def _running(self, owner: Owner, most: int) -> int:
        query = RunQuery(owner=owner, statuses=(RunStatus.RUNNING,), limit=most)
        return len((await self._store.list_runs(query)).items)


# --- rate limits ----------------------------------------------------------------------------------
# One token bucket per caller, shared by all nodes.

_MAX_CALLERS = 10_000
#: Seconds after which fetched tokens expire.
_TOKEN_LIFETIME = 1.0
#: A node fetches at most this fraction of a burst at once.
_SHARE = 8
_log = logging.getLogger("chimes.access")


@dataclass(frozen=True, kw_only=True, slots=True)
class RateLimitStatus:
    """The state of a bucket after a call, for the rate-limit headers."""

    limit: int
    remaining: int
    reset: float


class RateLimiter:
    """`rate` calls a second on average, `burst` at once."""

    def __init__(self, clock: Clock, *, rate: float, burst: int) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> RateLimitStatus:
        now = self._clock.monotonic()
        tokens, at = self._buckets.pop(caller, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - at) * self._rate)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        while len(self._buckets) > _MAX_CALLERS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise RateLimited(retry_after=timedelta(seconds=(1 - tokens) / self._rate))
        left = tokens - 1
        return RateLimitStatus(
            limit=self._burst, remaining=int(left), reset=(self._burst - left) / self._rate
        )

    def check(self, caller: str) -> None:
        """Raises RateLimited if the bucket is empty; takes no token."""
        now = self._clock.monotonic()
        tokens, at = self._buckets.get(caller, (float(self._burst), now))
        if tokens + (now - at) * self._rate < 1:
            wait = (1 - tokens - (now - at) * self._rate) / self._rate
            raise RateLimited(retry_after=timedelta(seconds=wait))


@dataclass(slots=True)
class _FetchedTokens:
    """Tokens that a node has fetched for a caller and not spent yet."""

    tokens: int = 0
    fetched_at: float = float("-inf")
    #: Tokens of the last fetch. The next fetch takes as many as were spent of them, or twice as
    #: many if all were spent before they expired.
    size: int = 0
    #: Tokens left in the shared bucket after the last fetch.
    remaining: int = 0
    #: Until then the shared bucket is empty.
    empty_until: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedLimiter:
    """One limit for all nodes together.

    A node fetches tokens from the store in small batches, so that a busy caller costs a fraction
    of a write per request. While the store is unavailable the node limits on its own.
    """

    def __init__(self, store: Store, clock: Clock, *, rate: float, burst: int) -> None:
        self._store = store
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._local = RateLimiter(clock, rate=rate, burst=burst)
        self._fetched: OrderedDict[str, _FetchedTokens] = OrderedDict()

    async def take(self, caller: str) -> RateLimitStatus:
        fetched = self._fetched.setdefault(caller, _FetchedTokens())
        self._fetched.move_to_end(caller)
        while len(self._fetched) > _MAX_CALLERS:
            self._fetched.popitem(last=False)
        if not self._has_tokens(fetched):
            # One request fetches for all that wait.
            async with fetched.lock:
                if not self._has_tokens(fetched):
                    try:
                        await self._fetch(caller, fetched)
                    except StoreError:
                        _log.debug("store unavailable; limiting the rate on this node only")
                        return self._local.take(caller)
                fetched.tokens -= 1
        else:
            fetched.tokens -= 1
        left = fetched.tokens + fetched.remaining
        return RateLimitStatus(
            limit=self._burst, remaining=left, reset=(self._burst - left) / self._rate
        )

    def _has_tokens(self, fetched: _FetchedTokens) -> bool:
        fresh = self._clock.monotonic() - fetched.fetched_at < _TOKEN_LIFETIME
        return fetched.tokens > 0 and fresh

    async def _fetch(self, caller: str, fetched: _FetchedTokens) -> None:
        now = self._clock.monotonic()
        if now < fetched.empty_until:
            raise self._limited(fetched.empty_until - now)
        spent = fetched.size - fetched.tokens
        used_up = not fetched.tokens and now - fetched.fetched_at < _TOKEN_LIFETIME
        wanted = 2 * spent if used_up else spent
        count = max(1, min(wanted, self._burst // _SHARE))
        taken = await self._take(caller, count)
        if not taken.granted and count > 1:
            count, taken = 1, await self._take(caller, 1)
        if not taken.granted:
            wait = taken.wait.total_seconds()
            fetched.tokens = fetched.size = 0
            fetched.empty_until = now + wait
            raise self._limited(wait)
        fetched.tokens = fetched.size = count
        fetched.remaining, fetched.fetched_at = taken.remaining, now

    async def _take(self, caller: str, count: int) -> TokenGrant:
        return await self._store.take_tokens(
            f"requests:{caller}", rate=self._rate, burst=self._burst, count=count
        )

    def _limited(self, seconds: float) -> RateLimited:
        return RateLimited(retry_after=timedelta(seconds=seconds))


# --- stored bytes ---------------------------------------------------------------------------------
#: A node fetches at most this fraction of the bytes at once.
_BYTE_SHARE = 128
_MAX_FETCHED_BYTES = 1024 * 1024


class ByteBudget:
    """Limits the bytes of each owner in the store, on all nodes together: at most `limit` bytes
    that are deleted after `period`.

    Half of them are available at once, the other half over the period, so that what was stored
    within any period stays below the limit. A node fetches bytes in advance, so that small values
    cost no write each.
    """

    def __init__(self, store: Store, kind: str, *, limit: int, period: timedelta) -> None:
        self._store = store
        self._kind = kind
        self._burst = max(1, limit // 2)
        # A retention of zero deletes with the next pass of the maintenance.
        self._rate = self._burst / max(1.0, period.total_seconds())
        self._fetched: OrderedDict[str, int] = OrderedDict()

    async def take(self, owner: str, count: int) -> bool:
        """Whether the owner may store so many bytes more."""
        left = self._fetched.get(owner, 0)
        if left < count:
            share = min(_MAX_FETCHED_BYTES, self._burst // _BYTE_SHARE)
            for wanted in (max(count, share), count):
                if (await self._take(owner, wanted)).granted:
                    # Others may have taken or fetched bytes meanwhile.
                    left = self._fetched.get(owner, 0) + wanted
                    break
            else:
                return False
        self._fetched[owner] = left - count
        self._fetched.move_to_end(owner)
        while len(self._fetched) > _MAX_CALLERS:
            self._fetched.popitem(last=False)
        return True

    async def _take(self, owner: str, count: int) -> TokenGrant:
        return await self._store.take_tokens(
            f"{self._kind}:{owner}", rate=self._rate, burst=self._burst, count=count
        )


# --- computations in threads ----------------------------------------------------------------------
class BoundedThreads:
    """Threads for long computations of requests, which would stop the event loop. A bounded number
    waits; beyond it, requests are rejected."""

    def __init__(self, name: str, *, threads: int, waiting: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = threads + waiting
        self._unfinished = 0

    async def run(self, compute: Callable[[], T]) -> T:
        """Raises RateLimited while too many computations wait."""
        if self._unfinished >= self._most:
            raise RateLimited(
                _("The server computes too much at the moment"), retry_after=timedelta(seconds=1)
            )
        self._unfinished += 1
        try:
            loop, context = asyncio.get_running_loop(), copy_context()
            return await loop.run_in_executor(self._threads, context.run, compute)
        finally:
            self._unfinished -= 1


#: For triggers and sentences.
CALCULATIONS = BoundedThreads("calculation", threads=2, waiting=32)
