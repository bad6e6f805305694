"""Keys: making, checking and revoking them; and who may call when there are none."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.errors import InvalidInput, NotAllowed, NotAuthenticated
from chimes.model.access import (
    SCOPES_OF,
    SYSTEM_OWNER,
    Actor,
    ApiKey,
    Owner,
    Role,
    Scope,
    revoked,
)
from chimes.model.ids import KeyId
from chimes.service.audit import entry
from chimes.service.rules import clean_name
from chimes.store.port import Store
from chimes.wording import say

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
        self._keys_on = bool(fixed)
        self._looked_at = float("-inf")

    async def keys_on(self) -> bool:
        """Whether a key is needed. Without any, calls are open (and the bind is loopback only)."""
        if not self._keys_on and self._clock.monotonic() - self._looked_at > _LOOK_AGAIN:
            # One that has expired was made to keep others out, and still does.
            keys = any(key.revoked_at is None for key in await self._store.list_keys())
            self._keys_on = keys or await self._store.read_state(USERS) is not None
            self._looked_at = self._clock.monotonic()
        return self._keys_on

    @property
    def open_mode(self) -> bool:
        """As last seen by `keys_on`; for rules that cannot wait for the store."""
        return not self._keys_on

    async def authenticate(self, presented: str, *, door: str, address: str = "") -> Actor:
        """The actor behind a key. Every refusal is the same and costs the same (S01)."""
        digest = _digest(presented)
        fixed = [hmac.compare_digest(digest, known) for known in self._fixed]
        key = await self._key(presented)
        stored = key.secret_hash if key is not None else _NO_KEY
        matches = hmac.compare_digest(stored, _digest(_secret_part(presented)))
        if any(fixed):
            return Actor(role=Role.ADMIN, key_id=KeyId("configured"), door=door, address=address)
        if key is None or not matches or not key.usable(await self._store.now()):
            raise NotAuthenticated()
        return Actor(
            owner=key.owner,
            role=key.role,
            key_id=key.id,
            door=door,
            address=address,
            scopes=key.scopes,
        )

    async def standing(self, key_id: KeyId, *, door: str, address: str = "") -> Actor | None:
        """What a key may that was shown before; None if it is no longer good."""
        key = await self._key_by_id(key_id)
        if key is None or not key.usable(await self._store.now()):
            return None
        return Actor(
            owner=key.owner,
            role=key.role,
            key_id=key.id,
            door=door,
            address=address,
            scopes=key.scopes,
        )

    def configured_mark(self, presented: str) -> str:
        """Which key of the configuration this is, without giving it away; empty: none."""
        digest = _digest(presented)
        return _digest(digest) if digest in self._fixed else ""

    def configured(self, mark: str, *, door: str, address: str = "") -> Actor | None:
        """Whoever showed that key; None if it is no longer configured."""
        if all(_digest(known) != mark for known in self._fixed):
            return None
        return Actor(role=Role.ADMIN, key_id=KeyId("configured"), door=door, address=address)

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
            raise InvalidInput(say("lies in the past"), field="expires_at", code="in_the_past")
        key_id = KeyId("".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH)))
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
        self._keys_on = True
        return NewKey(key=key, text=f"{KEY_PREFIX}_{key_id}_{secret}")

    async def keys(self, actor: Actor) -> tuple[ApiKey, ...]:
        self._only_admin(actor)
        return await self._store.list_keys()

    async def revoke(self, actor: Actor, key_id: KeyId) -> ApiKey:
        self._only_admin(actor)
        found = await self._store.get_key(key_id)
        owner = found.owner if found is not None else actor.owner
        note = entry(actor, "revoke_key", "key", key_id, at=await self._store.now(), owner=owner)
        key = await self._store.change_key(key_id, revoked, note)
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
            say("a {role} may not {scopes}", role=role.value, scopes=", ".join(beyond)),
            field="scopes",
            code="wider_than_role",
        )
    if Scope.AGENT_SCHEDULES in scopes and Scope.AGENT not in scopes:
        raise InvalidInput(
            say("agent_schedules goes with agent"), field="scopes", code="incomplete_scopes"
        )
    return tuple(each for each in Scope if each in scopes)


def _secret_part(presented: str) -> str:
    return presented.split("_", 2)[2] if presented.count("_") >= 2 else presented


def same_secret(presented: str, known: str) -> bool:
    """Compared in a time that tells nothing about either."""
    return hmac.compare_digest(_digest(presented), _digest(known))


def _digest(text: str) -> str:
    """256 random bits need no slow hash, and one per request would invite a flood."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
