"""Users with passwords, and sessions of the dashboard.

The owner of a user is `user:NAME`. Users are few and stored as one document (ADR 31).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
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
from chimes.model.access import ANONYMOUS_OWNER, Actor, Owner, OwnerType, Role
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import KeyId
from chimes.services.access import USERS, AccessService
from chimes.services.documents import Document, DocumentStore
from chimes.store.port import Store

MIN_PASSWORD, MAX_PASSWORD = 10, 200
#: Concurrent password hashes; each takes 19 MiB of memory.
_CONCURRENT_HASHES = 2


class Passwords:
    """Hashes and verifies passwords in threads: argon2id with the minimum that OWASP recommends."""

    def __init__(self) -> None:
        self._permits = asyncio.Semaphore(_CONCURRENT_HASHES)
        self._decoy = ""

    async def hashed(self, password: str) -> str:
        async with self._permits:
            return await asyncio.to_thread(_hashed, password)

    async def matches(self, stored: str | None, password: str) -> bool:
        """`stored` None: an unknown user, which takes the same time as a wrong password."""
        if not self._decoy:
            self._decoy = await self.hashed("decoy")
        async with self._permits:
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


MAX_USERS = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, kw_only=True, slots=True)
class User:
    name: str
    role: Role
    created_at: datetime
    created_by: str
    #: Changes with the password, which ends the user's sessions.
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
        """Sorted by name; for admins."""
        _only_admin(actor)
        found = (_user(name, each) for name, each in (await self._document.read()).items())
        return tuple(sorted((user for user in found if user), key=lambda user: user.name))

    async def get(self, name: str) -> User | None:
        return _user(name, (await self._document.read()).get(name))

    async def create(self, actor: Actor, *, name: str, password: str, role: Role) -> User:
        _only_admin(actor)
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                _("use letters, digits and . _ @ -, at most 64, starting with a letter or digit"),
                field="name",
                code="bad_name",
            )
        hashed = await self._passwords.hashed(_checked(password))
        now = await self._store.now()
        user = {
            "password": hashed,
            "role": role.value,
            "created_at": now.isoformat(),
            "created_by": actor.name,
        }
        audit = _audit_entry(actor, "create_user", name, now, {"role": role.value})

        def add(users: Document) -> tuple[Document, AuditEntry]:
            if name in users:
                raise AlreadyExists(_("user {name} already exists", name=name))
            if len(users) >= MAX_USERS:
                raise InvalidInput(_("at most {most} users", most=MAX_USERS), field="name")
            return {**users, name: user}, audit

        return _get_user(await self._document.change(add), name)

    async def remove(self, actor: Actor, name: str) -> None:
        """Sessions of the user end with the next request."""
        _only_admin(actor)
        audit = _audit_entry(actor, "remove_user", name, await self._store.now())

        def remove(users: Document) -> tuple[Document, AuditEntry]:
            _get_user(users, name)
            return {each: users[each] for each in users if each != name}, audit

        await self._document.change(remove)

    async def set_password(self, actor: Actor, name: str, password: str) -> User:
        """By an admin or by the user. Ends all sessions of the user."""
        if actor.owner != Owner(type=OwnerType.USER, id=name) or actor.key_id is not None:
            _only_admin(actor)
        hashed = await self._passwords.hashed(_checked(password))
        audit = _audit_entry(actor, "change_password", name, await self._store.now())

        def change(users: Document) -> tuple[Document, AuditEntry]:
            _get_user(users, name)
            return {**users, name: {**_plain(users[name]), "password": hashed}}, audit

        return _get_user(await self._document.change(change), name)

    async def set_role(self, actor: Actor, name: str, role: Role) -> User:
        _only_admin(actor)
        now = await self._store.now()

        def change(users: Document) -> tuple[Document, AuditEntry]:
            changes = {"role": [_get_user(users, name).role.value, role.value]}
            audit = _audit_entry(actor, "change_role", name, now, changes)
            return {**users, name: {**_plain(users[name]), "role": role.value}}, audit

        return _get_user(await self._document.change(change), name)

    async def authenticate(self, name: str, password: str) -> User | None:
        """None, after the same time, for a wrong password and for an unknown name."""
        found = _plain((await self._document.read()).get(name))
        stored = found.get("password")
        right = await self._passwords.matches(
            stored if isinstance(stored, str) else None, password[: MAX_PASSWORD + 1]
        )
        return _user(name, found) if right else None


def _audit_entry(
    actor: Actor, verb: str, name: str, now: datetime, changes: Mapping[str, object] | None = None
) -> AuditEntry:
    owner = Owner(type=OwnerType.USER, id=name)
    return entry(actor, verb, "user", name, at=now, owner=owner, changes=changes)


def _only_admin(actor: Actor) -> None:
    if not actor.administers:
        raise NotAllowed()


def _checked(password: str) -> str:
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise InvalidInput(
            _(
                "a password has {shortest} to {longest} characters",
                shortest=MIN_PASSWORD,
                longest=MAX_PASSWORD,
            ),
            field="password",
            code="bad_password",
        )
    return password


def _get_user(users: Mapping[str, object], name: str) -> User:
    user = _user(name, users.get(name))
    if user is None:
        raise NotFound(_("user {name} not found", name=name))
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


# --- login limit ----------------------------------------------------------------------------------
#: Failed logins per address and name within the window, on all nodes together.
MAX_FAILED_LOGINS = 5
WINDOW = timedelta(minutes=15)
#: Time until one more attempt is allowed.
_REFILL = WINDOW / MAX_FAILED_LOGINS
_MAX_BLOCKED = 10_000


class LoginLimit:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        #: Blocked subjects known to this node, and until when.
        self._blocked: OrderedDict[str, float] = OrderedDict()

    def check(self, subject: str) -> None:
        """Raises RateLimited; called before the credentials are checked."""
        left = self._blocked.get(subject, float("-inf")) - self._clock.monotonic()
        if left > 0:
            raise _too_many(timedelta(seconds=left))

    async def failed(self, subject: str) -> None:
        """Counts a failed login. Raises RateLimited if the limit is already used up elsewhere."""
        name = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        rate = MAX_FAILED_LOGINS / WINDOW.total_seconds()
        taken = await self._store.take_tokens(f"login:{name}", rate=rate, burst=MAX_FAILED_LOGINS)
        if taken.remaining == 0:
            self._blocked[subject] = self._clock.monotonic() + _REFILL.total_seconds()
            self._blocked.move_to_end(subject)
            if len(self._blocked) > _MAX_BLOCKED:
                self._blocked.popitem(last=False)
        if taken.granted == 0:
            raise _too_many(taken.wait)


def _too_many(wait: timedelta) -> RateLimited:
    return RateLimited(_("Too many failed logins"), retry_after=wait)


# --- sessions -------------------------------------------------------------------------------------
# The cookie has 128 random bits; stored are their hash, the identity and the time of the last
# request. Permissions are looked up at each request, so that a revoked key, a removed user or a
# changed password ends a session at once.

STATE = "dashboard:sign-ins"
INTERFACE = "dashboard"
IDLE = timedelta(hours=12)
LIFE = timedelta(days=7)
#: Beyond this the session that was idle for the longest time is dropped.
MAX_SESSIONS = 1000
#: Seconds for which sessions are cached; a session ended on another node ends within this time.
_CACHE_SECONDS = 1.0
#: Precision of `seen_at`.
_SEEN_STEP = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRecord:
    """A stored session. `id` is the hash of the secret in the cookie."""

    id: str
    #: `key`, `user` or `configured` (an admin token or a key from a file).
    kind: str
    #: The id of the key, the name of the user, or the hash of a configured key.
    ref: str
    #: `User.stamp` at login.
    stamp: str = ""
    created_at: datetime
    seen_at: datetime
    address: str = ""
    agent: str = ""

    def alive(self, now: datetime) -> bool:
        return now < self.seen_at + IDLE and now < self.created_at + LIFE


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A logged-in user of the dashboard."""

    record: SessionRecord
    actor: Actor
    #: Set if logged in with a password.
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
        self._sessions_cache: dict[str, SessionRecord] = {}
        self._read_at = float("-inf")

    async def login_with_key(
        self, presented: str, *, address: str, agent: str
    ) -> tuple[str, Session]:
        """The secret of a new session. Raises NotAuthenticated, and RateLimited after too many
        failures."""
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
        return await self._begin(
            _user_actor(user, address), "user", name, stamp=user.stamp, agent=agent
        )

    async def _begin(
        self, actor: Actor, kind: str, ref: str, *, agent: str, stamp: str = ""
    ) -> tuple[str, Session]:
        secret = secrets.token_urlsafe(16)
        now = await self._store.now()
        record = SessionRecord(
            id=_digest(secret),
            kind=kind,
            ref=ref,
            stamp=stamp,
            created_at=now,
            seen_at=now,
            address=actor.address,
            agent=agent[:200],
        )
        audit = entry(actor, "sign_in", "session", record.id[:12], at=now, owner=actor.owner)

        def add(sessions: dict[str, SessionRecord]) -> None:
            while len(sessions) >= MAX_SESSIONS:
                del sessions[min(sessions, key=lambda each: sessions[each].seen_at)]
            sessions[record.id] = record

        await self._change(add, now, audit)
        return secret, Session(record=record, actor=actor)

    async def _failed(self, name: str, address: str) -> None:
        """Audits and counts a failed login."""
        anonymous = Actor(
            owner=ANONYMOUS_OWNER, role=Role.VIEWER, interface=INTERFACE, address=address
        )
        audit = entry(
            anonymous,
            "sign_in",
            "session",
            name or address,
            at=await self._store.now(),
            owner=ANONYMOUS_OWNER,
            allowed=False,
        )
        await self._store.append_audit(audit)
        await self._limit.failed(f"{address} {name}" if name else address)

    async def authenticate(self, secret: str, *, address: str) -> Session:
        """The session of a cookie. Raises NotAuthenticated if it is unknown or has ended."""
        record = (await self._sessions()).get(_digest(secret))
        now = await self._store.now()
        if record is None or not record.alive(now):
            raise NotAuthenticated()
        session = await self._resume(record, address)
        if session is None:
            raise NotAuthenticated()
        if now - record.seen_at >= _SEEN_STEP:
            await self._touch(record.id, now)
        return session

    async def _resume(self, record: SessionRecord, address: str) -> Session | None:
        """The session with its current permissions; None if its user or key is gone."""
        if record.kind == "user":
            user = await self._users.get(record.ref)
            if user is None or user.stamp != record.stamp:
                return None
            return Session(record=record, actor=_user_actor(user, address), user=user)
        if record.kind == "configured":
            actor = self._access.get_configured_actor(
                record.ref, interface=INTERFACE, address=address
            )
        else:
            actor = await self._access.get_key_actor(
                KeyId(record.ref), interface=INTERFACE, address=address
            )
        return None if actor is None else Session(record=record, actor=actor)

    async def logout(self, session: Session) -> None:
        """Ends the session on all nodes."""
        await self._drop(session.actor, session.record.id, "sign_out")

    async def revoke(self, actor: Actor, session_id: str) -> None:
        """Ends any session, for admins; `session_id` as listed."""
        if not actor.administers:
            raise NotAllowed()
        await self._drop(actor, session_id, "end_session")

    async def list_sessions(self, actor: Actor) -> tuple[SessionRecord, ...]:
        """Active sessions, last seen first; for admins."""
        if not actor.administers:
            raise NotAllowed()
        found = _alive(await self._document.read(), await self._store.now()).values()
        return tuple(sorted(found, key=lambda each: each.seen_at, reverse=True))

    async def _drop(self, actor: Actor, session_id: str, verb: str) -> None:
        now = await self._store.now()
        audit = entry(actor, verb, "session", session_id[:12], at=now, owner=actor.owner)

        def drop(sessions: dict[str, SessionRecord]) -> None:
            if session_id not in sessions:
                raise NotFound(_("the session has already ended"))
            del sessions[session_id]

        await self._change(drop, now, audit)

    async def _touch(self, session_id: str, now: datetime) -> None:
        def touch(sessions: dict[str, SessionRecord]) -> None:
            if session_id in sessions:
                sessions[session_id] = replace(sessions[session_id], seen_at=now)

        await self._change(touch, now, None)

    async def _change(
        self,
        change: Callable[[dict[str, SessionRecord]], None],
        now: datetime,
        audit: AuditEntry | None,
    ) -> None:
        """Edits the active sessions; ended ones are dropped."""

        def changed(document: Document) -> tuple[Document, AuditEntry | None]:
            sessions = _alive(document, now)
            change(sessions)
            return _to_document(sessions), audit

        self._cache(_sessions(await self._document.change(changed)))

    async def _sessions(self) -> Mapping[str, SessionRecord]:
        if self._clock.monotonic() - self._read_at >= _CACHE_SECONDS:
            self._cache(_sessions(await self._document.read()))
        return self._sessions_cache

    def _cache(self, sessions: dict[str, SessionRecord]) -> None:
        self._sessions_cache, self._read_at = sessions, self._clock.monotonic()


def _user_actor(user: User, address: str) -> Actor:
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


def _to_document(sessions: Mapping[str, SessionRecord]) -> dict[str, object]:
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
