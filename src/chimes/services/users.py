"""People who sign in with a password. Their owner is `user:NAME`.

They are few, and kept as one document on every store (ADR 31).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from chimes.clock import Clock
from chimes.errors import (
    AlreadyExists,
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    RateLimited,
)
from chimes.i18n import _
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.audit import AuditEntry
from chimes.model.ids import KeyId
from chimes.services.access import USERS, AccessService
from chimes.services.audit import entry
from chimes.services.preferences import DocumentStore
from chimes.store.port import Store

# @@ Passwords: argon2id with the least that OWASP recommends (RELIABILITY 8).

SHORTEST, LONGEST = 10, 200
#: Each costs 19 MiB: a crowd at the door must not be one in memory.
_AT_ONCE = 2


class Passwords:
    """Hashing and checking, in threads and few at a time."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._decoy = ""

    async def hashed(self, password: str) -> str:
        async with self._room:
            return await asyncio.to_thread(_hashed, password)

    async def matches(self, stored: str | None, password: str) -> bool:
        """None: there is no such user, which takes as long to find out (S51)."""
        if not self._decoy:
            self._decoy = await self.hashed("nobody has this one")
        async with self._room:
            found = await asyncio.to_thread(_matches, stored or self._decoy, password)
        return found and stored is not None


def _hashed(password: str) -> str:
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1).hash(password)


def _matches(stored: str, password: str) -> bool:
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return PasswordHasher().verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False


MOST = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, kw_only=True, slots=True)
class User:
    name: str
    role: Role
    created_at: datetime
    created_by: str
    #: Changes with the password: whoever signed in with another one is out.
    stamp: str

    @property
    def owner(self) -> Owner:
        return Owner(type=OwnerType.USER, id=self.name)


class UserService:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._document = DocumentStore(store, USERS)
        self._passwords = Passwords()

    async def has_users(self) -> bool:
        return bool(await self._document.read())

    async def list_users(self, actor: Actor) -> tuple[User, ...]:
        """By name; for admins."""
        _only_admin(actor)
        found = (_user(name, each) for name, each in (await self._document.read()).items())
        return tuple(sorted((user for user in found if user), key=lambda user: user.name))

    async def get(self, name: str) -> User | None:
        return _user(name, (await self._document.read()).get(name))

    async def create(self, actor: Actor, *, name: str, password: str, role: Role) -> User:
        _only_admin(actor)
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                _("letters, digits and . _ @ -, at most 64 of them, a letter or digit first"),
                field="name",
                code="bad_name",
            )
        kept = await self._passwords.hashed(_checked(password))
        now = await self._store.now()
        async with self._document.changing() as users:
            if name in users:
                raise AlreadyExists(_("there is a user {name} already", name=name))
            if len(users) >= MOST:
                raise InvalidInput(_("there are as many users as there may be"), field="name")
            users[name] = {
                "password": kept,
                "role": role.value,
                "created_at": now.isoformat(),
                "created_by": actor.name,
            }
            user = _user(name, users[name])
            assert user is not None
            note = entry(
                actor, "create_user", "user", name, at=now, owner=user.owner,
                changes={"role": role.value},
            )  # fmt: skip
            await self._document.write(users, note)
        return user

    async def remove(self, actor: Actor, name: str) -> None:
        """Whoever is signed in as this user is out at the next request (S11)."""
        _only_admin(actor)
        async with self._document.changing() as users:
            user = _known(users, name)
            del users[name]
            await self._document.write(users, await self._note(actor, "remove_user", user))

    async def set_password(self, actor: Actor, name: str, password: str) -> User:
        """By an admin, or by the user itself. Everybody signed in as this user is out (S51)."""
        if actor.owner != Owner(type=OwnerType.USER, id=name) or actor.key_id is not None:
            _only_admin(actor)
        kept = await self._passwords.hashed(_checked(password))
        async with self._document.changing() as users:
            user = _known(users, name)
            users[name] = {**_plain(users[name]), "password": kept}
            await self._document.write(users, await self._note(actor, "change_password", user))
            changed = _user(name, users[name])
        assert changed is not None
        return changed

    async def set_role(self, actor: Actor, name: str, role: Role) -> User:
        _only_admin(actor)
        async with self._document.changing() as users:
            user = _known(users, name)
            users[name] = {**_plain(users[name]), "role": role.value}
            note = entry(
                actor, "change_role", "user", name, at=await self._store.now(), owner=user.owner,
                changes={"role": [user.role.value, role.value]},
            )  # fmt: skip
            await self._document.write(users, note)
            changed = _user(name, users[name])
        assert changed is not None
        return changed

    async def authenticate(self, name: str, password: str) -> User | None:
        """None, after the same work, for a wrong password and for a name there is not (S51)."""
        found = _plain((await self._document.read()).get(name))
        stored = found.get("password")
        right = await self._passwords.matches(
            stored if isinstance(stored, str) else None, password[: LONGEST + 1]
        )
        return _user(name, found) if right else None

    async def _note(self, actor: Actor, verb: str, user: User) -> AuditEntry:
        now = await self._store.now()
        return entry(actor, verb, "user", user.name, at=now, owner=user.owner)


def _only_admin(actor: Actor) -> None:
    if not actor.administers:
        raise NotAllowed()


def _checked(password: str) -> str:
    if not SHORTEST <= len(password) <= LONGEST:
        raise InvalidInput(
            _(
                "a password has {shortest} to {longest} characters",
                shortest=SHORTEST,
                longest=LONGEST,
            ),
            field="password",
            code="bad_password",
        )
    return password


def _known(users: Mapping[str, object], name: str) -> User:
    user = _user(name, users.get(name))
    if user is None:
        raise NotFound(_("there is no user {name}", name=name))
    return user


def _plain(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def _user(name: str, value: object) -> User | None:
    found = _plain(value)
    try:
        return User(
            name=name,
            role=Role(str(found["role"])),
            created_at=datetime.fromisoformat(str(found["created_at"])),
            created_by=str(found["created_by"]),
            stamp=hashlib.sha256(str(found["password"]).encode()).hexdigest()[:16],
        )
    except (KeyError, ValueError):
        return None


# @@ How often somebody may guess: five times in a quarter of an hour, by address and name, on all
# nodes together (RELIABILITY 8, S51). Only wrong guesses cost something.

TRIES = 5
WINDOW = timedelta(minutes=15)
#: Until there is one try more.
_EACH = WINDOW / TRIES
_MOST = 10_000


class LoginLimit:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        #: Who has guessed too often, as far as this node knows, and until when.
        self._closed: OrderedDict[str, float] = OrderedDict()

    def check(self, subject: str) -> None:
        """Before anything is looked at. RateLimited."""
        left = self._closed.get(subject, float("-inf")) - self._clock.monotonic()
        if left > 0:
            raise _too_many(timedelta(seconds=left))

    async def failed(self, subject: str) -> None:
        """RateLimited if other nodes have seen as many already."""
        name = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        rate = TRIES / WINDOW.total_seconds()
        taken = await self._store.take_tokens(f"login:{name}", rate=rate, burst=TRIES)
        if taken.remaining == 0:
            self._closed[subject] = self._clock.monotonic() + _EACH.total_seconds()
            self._closed.move_to_end(subject)
            if len(self._closed) > _MOST:
                self._closed.popitem(last=False)
        if taken.granted == 0:
            raise _too_many(taken.wait)


def _too_many(wait: timedelta) -> RateLimited:
    return RateLimited(_("Too many failed attempts to sign in"), retry_after=wait)


# @@ Who is signed in at the dashboard: sessions that every node knows and anybody allowed can
# end.
#
# A session is 128 random bits in a cookie; here is their hash, who it was, and when it was last
# seen. What it may is looked up anew each time, so that a revoked key, a removed user or a
# changed password ends it at once (S11, S51).

STATE = "dashboard:sign-ins"
INTERFACE = "dashboard"
IDLE = timedelta(hours=12)
LIFE = timedelta(days=7)
#: When there are more, the one that was not seen for longest goes.
#: What was read is believed for so long; a session ended elsewhere dies within it.
_TRUST = 1.0
#: How exact "last seen" is.
_SEEN_STEP = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRecord:
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
class Session:
    """Somebody who has signed in."""

    session: SessionRecord
    actor: Actor
    #: Set for one with a password.
    user: User | None = None


class SessionService:
    def __init__(
        self, store: Store, access: AccessService, users: UserService, clock: Clock
    ) -> None:
        self._store = store
        self._access = access
        self._users = users
        self._clock = clock
        self._document = DocumentStore(store, STATE)
        self._limit = LoginLimit(store, clock)
        self._known: dict[str, SessionRecord] = {}
        self._read_at = float("-inf")

    async def login_with_key(
        self, presented: str, *, address: str, agent: str
    ) -> tuple[str, Session]:
        """The secret of a new session. NotAuthenticated if the key is not good, RateLimited after
        too many that were not."""
        try:
            self._limit.check(address)
            actor = await self._access.authenticate(presented, interface=INTERFACE, address=address)
        except NotAuthenticated:
            await self._failed("", address)
            raise
        mark = self._access.configured_key_mark(presented)
        kind, ref = ("configured", mark) if mark else ("key", str(actor.key_id))
        return await self._begin(actor, kind, ref, agent=agent)

    async def login_with_password(
        self, name: str, password: str, *, address: str, agent: str
    ) -> tuple[str, Session]:
        self._limit.check(f"{address} {name}")
        user = await self._users.authenticate(name, password)
        if user is None:
            await self._failed(name, address)
            raise NotAuthenticated()
        return await self._begin(_as(user, address), "user", name, stamp=user.stamp, agent=agent)

    async def _begin(
        self, actor: Actor, kind: str, ref: str, *, agent: str, stamp: str = ""
    ) -> tuple[str, Session]:
        secret = secrets.token_urlsafe(16)
        now = await self._store.now()
        session = SessionRecord(
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
            await self._document.write(_plain_signins(sessions), note)
        self._remember(sessions)
        return secret, Session(session=session, actor=actor)

    async def _failed(self, name: str, address: str) -> None:
        """On record, and it counts."""
        stranger = Actor(
            owner=Owner(id="nobody"), role=Role.VIEWER, interface=INTERFACE, address=address
        )
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

    async def authenticate(self, secret: str, *, address: str) -> Session:
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

    async def _standing(self, session: SessionRecord, address: str) -> Session | None:
        if session.kind == "user":
            user = await self._users.get(session.ref)
            if user is None or user.stamp != session.stamp:
                return None
            return Session(session=session, actor=_as(user, address), user=user)
        if session.kind == "configured":
            actor = self._access.configured(session.ref, interface=INTERFACE, address=address)
        else:
            actor = await self._access.standing(
                KeyId(session.ref), interface=INTERFACE, address=address
            )
        return None if actor is None else Session(session=session, actor=actor)

    async def logout(self, guest: Session) -> None:
        """Sign out: gone on every node."""
        await self._drop(guest.actor, guest.session.id, "sign_out")

    async def revoke(self, actor: Actor, session_id: str) -> None:
        """By an admin; `session_id` as listed."""
        if not actor.administers:
            raise NotAllowed()
        await self._drop(actor, session_id, "end_session")

    async def list_sessions(self, actor: Actor) -> tuple[SessionRecord, ...]:
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
                raise NotFound(_("this session has ended already"))
            del sessions[session_id]
            note = entry(actor, verb, "session", session_id[:12], at=now, owner=actor.owner)
            await self._document.write(_plain_signins(sessions), note)
        self._remember(sessions)

    async def _seen(self, session_id: str, now: datetime) -> None:
        async with self._document.changing() as document:
            sessions = _alive(document, now)
            if session_id in sessions:
                sessions[session_id] = replace(sessions[session_id], seen_at=now)
                await self._document.write(_plain_signins(sessions))
        self._remember(sessions)

    async def _sessions(self) -> Mapping[str, SessionRecord]:
        if self._clock.monotonic() - self._read_at >= _TRUST:
            self._remember(_sessions(await self._document.read()))
        return self._known

    def _remember(self, sessions: dict[str, SessionRecord]) -> None:
        self._known, self._read_at = sessions, self._clock.monotonic()


def _as(user: User, address: str) -> Actor:
    return Actor(owner=user.owner, role=user.role, interface=INTERFACE, address=address)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _alive(document: Mapping[str, object], now: datetime) -> dict[str, SessionRecord]:
    return {each.id: each for each in _sessions(document).values() if each.alive(now)}


def _sessions(document: Mapping[str, object]) -> dict[str, SessionRecord]:
    found = {}
    for name, value in document.items():
        if not isinstance(value, dict):
            continue
        try:
            found[name] = SessionRecord(
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


def _plain_signins(sessions: Mapping[str, SessionRecord]) -> dict[str, object]:
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
