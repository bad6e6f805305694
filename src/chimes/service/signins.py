"""Who is signed in at the dashboard: sessions that every node knows and anybody allowed can end.

A session is 128 random bits in a cookie; here is their hash, who it was, and when it was last
seen. What it may is looked up anew each time, so that a revoked key, a removed user or a changed
password ends it at once (S11, S51).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.errors import NotAllowed, NotAuthenticated, NotFound
from chimes.model.access import Actor, Owner, Role
from chimes.model.ids import KeyId
from chimes.service.access import AccessService
from chimes.service.audit import entry
from chimes.service.documents import DocumentStore
from chimes.service.login_limit import LoginLimit
from chimes.service.users import User, UserService
from chimes.store.port import Store
from chimes.wording import say

STATE = "dashboard:sign-ins"
DOOR = "dashboard"
IDLE = timedelta(hours=12)
LIFE = timedelta(days=7)
#: When there are more, the one that was not seen for longest goes.
MOST = 1000
#: What was read is believed for so long; a session ended elsewhere dies within it.
_TRUST = 1.0
#: How exact "last seen" is.
_SEEN_STEP = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignIn:
    """One session. `id` names it to people; the secret is in the cookie only."""

    id: str
    #: `key`, `user` or `configured`: an admin token, or a key from a file.
    kind: str
    #: The key's id, the user's name, or the mark of a configured key.
    ref: str
    #: Of the user's password.
    stamp: str = ""
    created_at: datetime
    seen_at: datetime
    address: str = ""
    agent: str = ""

    def alive(self, now: datetime) -> bool:
        return now < self.seen_at + IDLE and now < self.created_at + LIFE


@dataclass(frozen=True, kw_only=True, slots=True)
class Guest:
    """Somebody who has signed in."""

    session: SignIn
    actor: Actor
    #: Set for one with a password.
    user: User | None = None


class SignInService:
    def __init__(
        self, store: Store, access: AccessService, users: UserService, clock: Clock
    ) -> None:
        self._store = store
        self._access = access
        self._users = users
        self._clock = clock
        self._document = DocumentStore(store, STATE)
        self._limit = LoginLimit(store, clock)
        self._known: dict[str, SignIn] = {}
        self._read_at = float("-inf")

    async def with_key(self, presented: str, *, address: str, agent: str) -> tuple[str, Guest]:
        """The secret of a new session. NotAuthenticated if the key is not good, RateLimited after
        too many that were not."""
        try:
            self._limit.check(address)
            actor = await self._access.authenticate(presented, door=DOOR, address=address)
        except NotAuthenticated:
            await self._failed("", address)
            raise
        mark = self._access.configured_mark(presented)
        kind, ref = ("configured", mark) if mark else ("key", str(actor.key_id))
        return await self._begin(actor, kind, ref, agent=agent)

    async def with_password(
        self, name: str, password: str, *, address: str, agent: str
    ) -> tuple[str, Guest]:
        self._limit.check(f"{address} {name}")
        user = await self._users.authenticate(name, password)
        if user is None:
            await self._failed(name, address)
            raise NotAuthenticated()
        return await self._begin(_as(user, address), "user", name, stamp=user.stamp, agent=agent)

    async def _begin(
        self, actor: Actor, kind: str, ref: str, *, agent: str, stamp: str = ""
    ) -> tuple[str, Guest]:
        secret = secrets.token_urlsafe(16)
        now = await self._store.now()
        session = SignIn(
            id=_digest(secret),
            kind=kind,
            ref=ref,
            stamp=stamp,
            created_at=now,
            seen_at=now,
            address=actor.address,
            agent=agent[:200],
        )
        note = entry(actor, "sign_in", "session", session.id[:12], at=now, owner=actor.owner)
        async with self._document.changing() as document:
            sessions = _alive(document, now)
            while len(sessions) >= MOST:
                del sessions[min(sessions, key=lambda each: sessions[each].seen_at)]
            sessions[session.id] = session
            await self._document.write(_plain(sessions), note)
        self._remember(sessions)
        return secret, Guest(session=session, actor=actor)

    async def _failed(self, name: str, address: str) -> None:
        """On record, and it counts."""
        stranger = Actor(owner=Owner(id="nobody"), role=Role.VIEWER, door=DOOR, address=address)
        note = entry(
            stranger,
            "sign_in",
            "session",
            name or address,
            at=await self._store.now(),
            owner=stranger.owner,
            allowed=False,
        )
        await self._store.append_audit(note)
        await self._limit.failed(f"{address} {name}" if name else address)

    async def guest(self, secret: str, *, address: str) -> Guest:
        """Whose cookie this is. NotAuthenticated if it is nobody's, or no longer."""
        session = (await self._sessions()).get(_digest(secret))
        now = await self._store.now()
        if session is None or not session.alive(now):
            raise NotAuthenticated()
        guest = await self._standing(session, address)
        if guest is None:
            raise NotAuthenticated()
        if now - session.seen_at >= _SEEN_STEP:
            await self._seen(session.id, now)
        return guest

    async def _standing(self, session: SignIn, address: str) -> Guest | None:
        if session.kind == "user":
            user = await self._users.get(session.ref)
            if user is None or user.stamp != session.stamp:
                return None
            return Guest(session=session, actor=_as(user, address), user=user)
        if session.kind == "configured":
            actor = self._access.configured(session.ref, door=DOOR, address=address)
        else:
            actor = await self._access.standing(KeyId(session.ref), door=DOOR, address=address)
        return None if actor is None else Guest(session=session, actor=actor)

    async def end(self, guest: Guest) -> None:
        """Sign out: gone on every node."""
        await self._drop(guest.actor, guest.session.id, "sign_out")

    async def revoke(self, actor: Actor, session_id: str) -> None:
        """By an admin; `session_id` as listed."""
        if not actor.administers:
            raise NotAllowed()
        await self._drop(actor, session_id, "end_session")

    async def all(self, actor: Actor) -> tuple[SignIn, ...]:
        """Those alive, the one seen last first; for admins."""
        if not actor.administers:
            raise NotAllowed()
        found = _alive(await self._document.read(), await self._store.now()).values()
        return tuple(sorted(found, key=lambda each: each.seen_at, reverse=True))

    async def _drop(self, actor: Actor, session_id: str, verb: str) -> None:
        now = await self._store.now()
        async with self._document.changing() as document:
            sessions = _alive(document, now)
            if session_id not in sessions:
                raise NotFound(say("this session has ended already"))
            del sessions[session_id]
            note = entry(actor, verb, "session", session_id[:12], at=now, owner=actor.owner)
            await self._document.write(_plain(sessions), note)
        self._remember(sessions)

    async def _seen(self, session_id: str, now: datetime) -> None:
        async with self._document.changing() as document:
            sessions = _alive(document, now)
            if session_id in sessions:
                sessions[session_id] = replace(sessions[session_id], seen_at=now)
                await self._document.write(_plain(sessions))
        self._remember(sessions)

    async def _sessions(self) -> Mapping[str, SignIn]:
        if self._clock.monotonic() - self._read_at >= _TRUST:
            self._remember(_sessions(await self._document.read()))
        return self._known

    def _remember(self, sessions: dict[str, SignIn]) -> None:
        self._known, self._read_at = sessions, self._clock.monotonic()


def _as(user: User, address: str) -> Actor:
    return Actor(owner=user.owner, role=user.role, door=DOOR, address=address)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _alive(document: Mapping[str, object], now: datetime) -> dict[str, SignIn]:
    return {each.id: each for each in _sessions(document).values() if each.alive(now)}


def _sessions(document: Mapping[str, object]) -> dict[str, SignIn]:
    found = {}
    for name, value in document.items():
        if not isinstance(value, dict):
            continue
        try:
            found[name] = SignIn(
                id=name,
                kind=str(value["kind"]),
                ref=str(value["ref"]),
                stamp=str(value.get("stamp", "")),
                created_at=datetime.fromisoformat(value["created_at"]),
                seen_at=datetime.fromisoformat(value["seen_at"]),
                address=str(value.get("address", "")),
                agent=str(value.get("agent", "")),
            )
        except (KeyError, TypeError, ValueError):
            continue
    return found


def _plain(sessions: Mapping[str, SignIn]) -> dict[str, object]:
    return {
        each.id: {
            "kind": each.kind,
            "ref": each.ref,
            "stamp": each.stamp,
            "created_at": each.created_at.isoformat(),
            "seen_at": each.seen_at.isoformat(),
            "address": each.address,
            "agent": each.agent,
        }
        for each in sessions.values()
    }
