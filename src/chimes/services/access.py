"""Keys: making, checking and revoking them; and who may call when there are none."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

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
from chimes.model.ids import KeyId
from chimes.model.listing import RunQuery
from chimes.model.run import RunStatus
from chimes.services.audit import entry
from chimes.services.prompts import NAMESPACE
from chimes.services.validation import clean_name
from chimes.store.port import Store, Taken

KEY_PREFIX = "chm"
_ID_LENGTH = 12
_SECRET_LENGTH = 43
_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
#: How long a key once found good is not looked up again; one revoked elsewhere dies within it.
_TRUST = 1.0
#: How long "there are no keys" is believed: from the first one on, made by whichever process,
#: every call needs one.
_LOOK_AGAIN = 0.2
_NO_KEY = "0" * 64
#: Where the people with passwords are (`users`): from the first one on, nobody else gets in.
USERS = "dashboard:users"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewKey:
    key: ApiKey
    #: Shown once, never stored.
    text: str


class AccessService:
    """`fixed` are keys from the configuration: an admin token, or a file of keys."""

    def __init__(self, store: Store, clock: Clock, *, fixed: Sequence[str] = ()) -> None:
        self._store = store
        self._clock = clock
        self._fixed = tuple(_digest(key) for key in fixed)
        self._known: dict[KeyId, tuple[ApiKey | None, float]] = {}
        self._auth_enabled = bool(fixed)
        self._looked_at = float("-inf")

    async def auth_enabled(self) -> bool:
        """Whether a key is needed. Without any, calls are open (and the bind is loopback only)."""
        if not self._auth_enabled and self._clock.monotonic() - self._looked_at > _LOOK_AGAIN:
            # One that has expired was made to keep others out, and still does.
            keys = any(key.revoked_at is None for key in await self._store.list_keys())
            self._auth_enabled = keys or await self._store.read_state(USERS) is not None
            self._looked_at = self._clock.monotonic()
        return self._auth_enabled

    @property
    def open_mode(self) -> bool:
        """As last seen by `keys_on`; for rules that cannot wait for the store."""
        return not self._auth_enabled

    async def authenticate(self, presented: str, *, interface: str, address: str = "") -> Actor:
        """The actor behind a key. Every refusal is the same and costs the same (S01)."""
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

    async def standing(self, key_id: KeyId, *, interface: str, address: str = "") -> Actor | None:
        """What a key may that was shown before; None if it is no longer good."""
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
        """Which key of the configuration this is, without giving it away; empty: none."""
        digest = _digest(presented)
        return _digest(digest) if digest in self._fixed else ""

    def configured(self, mark: str, *, interface: str, address: str = "") -> Actor | None:
        """Whoever showed that key; None if it is no longer configured."""
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
        known = self._known.get(key_id)
        if known is not None and now - known[1] < _TRUST:
            return known[0]
        key = await self._store.get_key(key_id)
        if key is not None:
            self._known[key_id] = (key, now)
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
        """Only an admin makes keys, so nobody can make one wider than its own (S09). Scopes narrow
        its role down; none: all that the role may."""
        self._only_admin(actor)
        narrowed = _checked_scopes(role, scopes)
        now = await self._store.now()
        if expires_at is not None and expires_at <= now:
            raise InvalidInput(_("lies in the past"), field="expires_at", code="in_the_past")
        key_id = KeyId("".join(secrets.choice(_ID_ALPHABET) for _unused in range(_ID_LENGTH)))
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
        note = entry(
            actor,
            "create_key",
            "key",
            key_id,
            at=now,
            owner=owner,
            changes={"name": key.name, "role": role.value}
            | ({"scopes": list(narrowed)} if narrowed else {}),
        )
        await self._store.add_key(key, note)
        self._auth_enabled = True
        return NewKey(key=key, text=f"{KEY_PREFIX}_{key_id}_{secret}")

    async def keys(self, actor: Actor) -> tuple[ApiKey, ...]:
        self._only_admin(actor)
        return await self._store.list_keys()

    async def revoke(self, actor: Actor, key_id: KeyId) -> ApiKey:
        self._only_admin(actor)
        found = await self._store.get_key(key_id)
        owner = found.owner if found is not None else actor.owner
        note = entry(actor, "revoke_key", "key", key_id, at=await self._store.now(), owner=owner)
        key = await self._store.change_key(key_id, revoke, note)
        self._known.pop(key_id, None)
        return key

    @staticmethod
    def _only_admin(actor: Actor) -> None:
        if not actor.administers:
            raise NotAllowed()


def _checked_scopes(role: Role, scopes: Collection[Scope]) -> tuple[Scope, ...]:
    """In the order of the enumeration; InvalidInput for what the role cannot do (S09)."""
    beyond = [each for each in Scope if each in scopes and each not in SCOPES_OF[role]]
    if beyond:
        raise InvalidInput(
            _("a {role} may not {scopes}", role=role.value, scopes=", ".join(beyond)),
            field="scopes",
            code="wider_than_role",
        )
    if Scope.AGENT_SCHEDULES in scopes and Scope.AGENT not in scopes:
        raise InvalidInput(
            _("agent_schedules goes with agent"), field="scopes", code="incomplete_scopes"
        )
    return tuple(each for each in Scope if each in scopes)


def _secret_part(presented: str) -> str:
    return presented.split("_", 2)[2] if presented.count("_") >= 2 else presented


def secrets_equal(presented: str, known: str) -> bool:
    """Compared in a time that tells nothing about either."""
    return hmac.compare_digest(_digest(presented), _digest(known))


def _digest(text: str) -> str:
    """256 random bits need no slow hash, and one per request would invite a flood."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# @@ How many schedules an owner may have.

#: R1.38, where nobody said otherwise.
DEFAULT_ACTIVE = 20
#: The quotas that hold for an owner.
QuotaRule = Callable[[Owner], tuple[Quota, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaUsage:
    quota: Quota
    used: int


def no_quotas(owner: Owner) -> tuple[Quota, ...]:
    return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerQuotas:
    """A QuotaRule. All schedules are counted where keys are on. Of those made through the Softnix
    door or in a chat the active ones are (R1.13): where keys are on, always for chats, and always
    where the number was set. 0 means no limit (C13)."""

    schedules: int
    active: int | None
    auth_enabled: bool

    def __call__(self, owner: Owner) -> tuple[Quota, ...]:
        found: list[Quota] = []
        if self.auth_enabled:
            found.append(Quota(limit=self.schedules))
        asked = self.active is not None or self.auth_enabled or owner.type is OwnerType.CHAT
        limit = DEFAULT_ACTIVE if self.active is None else self.active
        if asked and limit:
            found.append(Quota(limit=limit, active=True, namespace=NAMESPACE))
        return tuple(found)


# @@ How many runs an owner may ask for, where keys are on (RELIABILITY 8, S24).

_DAY = 24 * 60 * 60


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLimits:
    """0: no limit."""

    running: int = 0
    #: Those asked for by hand; slots of schedules have the shortest interval.
    per_day: int = 0


NO_RUN_LIMITS = RunLimits()


class RunQuotas:
    """Asked before a run is added, not in its transaction: several that come at the same instant
    may all find room for one (ADR 26)."""

    def __init__(self, store: Store, limits: Callable[[], RunLimits]) -> None:
        self._store = store
        self._limits = limits

    async def check(self, actor: Actor, owner: Owner, *, count: int = 1) -> None:
        """Raises QuotaExceeded. What an admin asks for is not counted."""
        limits = self._limits()
        if actor.role is Role.ADMIN:
            return
        if limits.running and await self._running(owner, limits.running) >= limits.running:
            raise QuotaExceeded(
                _(
                    "{owner} already has {limit} runs under way, as many as are allowed",
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
                        "{owner} may ask for {limit} runs a day",
                        owner=owner,
                        limit=limits.per_day,
                    ),
                    quota="runs_per_day",
                    limit=limits.per_day,
                )

    async def _running(self, owner: Owner, most: int) -> int:
        query = RunQuery(owner=owner, statuses=(RunStatus.RUNNING,), limit=most)
        return len((await self._store.list_runs(query)).items)


# @@ Rate limits, where keys are on: a bucket of tokens for each caller, shared by all nodes.

_MOST_CALLERS = 10_000
#: For how long a node may spend what it has fetched: what is left then is lost, not saved up.
_SPEND_WITHIN = 1.0
#: The share of a burst that a node fetches at once, at most.
_SHARE = 8
_log = logging.getLogger("chimes.access")


@dataclass(frozen=True, kw_only=True, slots=True)
class RateLimitStatus:
    """What is left after a call, for the rate-limit headers."""

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
        while len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise RateLimited(retry_after=timedelta(seconds=(1 - tokens) / self._rate))
        left = tokens - 1
        return RateLimitStatus(
            limit=self._burst, remaining=int(left), reset=(self._burst - left) / self._rate
        )

    def check(self, caller: str) -> None:
        """Raise if the caller has used up its allowance, without using any."""
        now = self._clock.monotonic()
        tokens, at = self._buckets.get(caller, (float(self._burst), now))
        if tokens + (now - at) * self._rate < 1:
            wait = (1 - tokens - (now - at) * self._rate) / self._rate
            raise RateLimited(retry_after=timedelta(seconds=wait))


@dataclass(slots=True)
class _Purse:
    """What a node has fetched for a caller and not spent yet."""

    tokens: int = 0
    fetched_at: float = float("-inf")
    #: How many were fetched. As many as were spent of them come next; twice as many if that was
    #: all of them, and soon.
    size: int = 0
    #: In the bucket after that.
    remaining: int = 0
    #: The bucket is empty until then.
    empty_until: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedLimiter:
    """The same limit on all nodes together. A node fetches tokens from the store in small amounts
    and spends them by itself, so that a busy caller costs a fraction of a write per request; it
    fetches more only for those who have used what they got. What it cannot ask the store for, it
    counts alone, by the same rate."""

    def __init__(self, store: Store, clock: Clock, *, rate: float, burst: int) -> None:
        self._store = store
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._alone = RateLimiter(clock, rate=rate, burst=burst)
        self._purses: OrderedDict[str, _Purse] = OrderedDict()

    async def take(self, caller: str) -> RateLimitStatus:
        purse = self._purses.setdefault(caller, _Purse())
        self._purses.move_to_end(caller)
        while len(self._purses) > _MOST_CALLERS:
            self._purses.popitem(last=False)
        if not self._has_some(purse):
            # One fetches for all that wait for it.
            async with purse.lock:
                if not self._has_some(purse):
                    try:
                        await self._fetch(caller, purse)
                    except StoreError:
                        _log.debug("the store keeps no limits at the moment")
                        return self._alone.take(caller)
                purse.tokens -= 1
        else:
            purse.tokens -= 1
        left = purse.tokens + purse.remaining
        return RateLimitStatus(
            limit=self._burst, remaining=left, reset=(self._burst - left) / self._rate
        )

    def _has_some(self, purse: _Purse) -> bool:
        fresh = self._clock.monotonic() - purse.fetched_at < _SPEND_WITHIN
        return purse.tokens > 0 and fresh

    async def _fetch(self, caller: str, purse: _Purse) -> None:
        now = self._clock.monotonic()
        if now < purse.empty_until:
            raise self._limited(purse.empty_until - now)
        spent = purse.size - purse.tokens
        used_up = not purse.tokens and now - purse.fetched_at < _SPEND_WITHIN
        wanted = 2 * spent if used_up else spent
        count = max(1, min(wanted, self._burst // _SHARE))
        taken = await self._ask(caller, count)
        if not taken.granted and count > 1:
            count, taken = 1, await self._ask(caller, 1)
        if not taken.granted:
            wait = taken.wait.total_seconds()
            purse.tokens = purse.size = 0
            purse.empty_until = now + wait
            raise self._limited(wait)
        purse.tokens = purse.size = count
        purse.remaining, purse.fetched_at = taken.remaining, now

    async def _ask(self, caller: str, count: int) -> Taken:
        return await self._store.take_tokens(
            f"requests:{caller}", rate=self._rate, burst=self._burst, count=count
        )

    def _limited(self, seconds: float) -> RateLimited:
        return RateLimited(retry_after=timedelta(seconds=seconds))
