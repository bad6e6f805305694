"""Users with passwords, and sessions of the dashboard.

The owner of a user is `user:NAME`. Users are few and stored as one document (ADR 31).
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from ipaddress import IPv6Address, IPv6Network, ip_address

from chimes.clock import Clock
from chimes.config import Settings
from chimes.errors import (
    AlreadyExists,
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    RateLimited,
    StoreError,
)
from chimes.i18n import _
from chimes.model.access import ANONYMOUS_OWNER, Actor, Owner, OwnerType, Role
from chimes.model.audit import AuditEntry, entry
from chimes.model.ids import KeyId
from chimes.model.listing import ScheduleQuery
from chimes.services.access import USERS, AccessService, BoundedThreads
from chimes.services.documents import Document, DocumentStore
from chimes.services.single_sign_on import Identity, SignInFailed, role_of
from chimes.store.port import Store, TokenGrant

MIN_PASSWORD, MAX_PASSWORD = 10, 200
#: Concurrent password hashes of a process; each takes 19 MiB of memory.
CONCURRENT_HASHES = 2
#: Further hashes that wait for a thread; beyond them, requests are rejected.
MAX_WAITING_HASHES = 16
_log = logging.getLogger("chimes.access")


class Passwords:
    """Hashes and verifies passwords in threads: argon2id with the minimum that OWASP recommends.
    Raises RateLimited while too many hashes wait."""

    def __init__(self) -> None:
        self._threads = BoundedThreads(
            "password", threads=CONCURRENT_HASHES, waiting=MAX_WAITING_HASHES
        )
        self._decoy = ""

    async def hashed(self, password: str) -> str:
        return await self._threads.run(partial(_hashed, password))

    async def matches(self, stored: str | None, password: str) -> bool:
        """`stored` None: an unknown user, which takes the same time as a wrong password."""
        if not self._decoy:
            self._decoy = await self.hashed("decoy")
        found = await self._threads.run(partial(_matches, stored or self._decoy, password))
        return found and stored is not None


#: Shared by all services of the process, so that the limits apply to the process.
_PASSWORDS = Passwords()


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
    #: Authenticates the user instead of a password; empty: none.
    issuer: str = ""

    @property
    def owner(self) -> Owner:
        return Owner(type=OwnerType.USER, id=self.name)


class UserService:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._document = DocumentStore(store, USERS)
        self._passwords = _PASSWORDS

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
            if _get_user(users, name).issuer:
                raise InvalidInput(
                    _("{name} signs in through a provider and has no password", name=name),
                    field="password",
                    code="no_password",
                )
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

    async def sign_in(
        self, identity: Identity, role: Role, *, create: bool, link: bool, address: str
    ) -> User:
        """The user of an identity, with the role that its groups give. The first sign-in adds the
        user, if `create`, or takes over a user of the same name, if `link`. Raises SignInFailed."""
        now = await self._store.now()
        known = {"issuer": identity.issuer, "subject": identity.subject}
        owns = not link and await self._owns_anything(identity.name)

        def change(users: Document) -> tuple[Document, AuditEntry | None]:
            name = next((n for n, each in users.items() if _plain(each) | known == each), None)
            if name is None:
                if owns and identity.name not in users:
                    raise SignInFailed(
                        _(
                            "Keys or schedules of {name} exist already. An administrator can "
                            "remove them, or set sso_link_existing to let you take them over.",
                            name=identity.name,
                        ),
                        status=403,
                    )
                return _first_sign_in(users, identity, role, now, address, create, link)
            before = _get_user(users, name)
            if before.role is role:
                return users, None
            changes = {"role": [before.role.value, role.value]}
            actor = _user_actor(before, address)
            audit = _audit_entry(actor, "change_role", name, now, changes)
            return {**users, name: {**_plain(users[name]), "role": role.value}}, audit

        users = await self._document.change(change)
        name = next(n for n, each in users.items() if _plain(each) | known == each)
        return _get_user(users, name)

    async def _owns_anything(self, name: str) -> bool:
        """Whether a key or schedules belong to the user of this name already: of a program, or of a
        user who was removed."""
        owner = Owner(type=OwnerType.USER, id=name)
        if any(key.owner == owner for key in await self._store.list_keys()):
            return True
        return bool((await self._store.list_schedules(ScheduleQuery(owner=owner, limit=1))).items)

    async def authenticate(self, name: str, password: str) -> User | None:
        """None, after the same time, for a wrong password and for an unknown name."""
        found = _plain((await self._document.read()).get(name))
        stored = found.get("password")
        right = await self._passwords.matches(
            stored if isinstance(stored, str) else None, password[: MAX_PASSWORD + 1]
        )
        return _user(name, found) if right else None


def _first_sign_in(
    users: Document,
    identity: Identity,
    role: Role,
    now: datetime,
    address: str,
    create: bool,
    link: bool,
) -> tuple[Document, AuditEntry]:
    name = identity.name
    owner = Owner(type=OwnerType.USER, id=name)
    actor = Actor(owner=owner, role=role, interface=INTERFACE, address=address)
    entered = {"issuer": identity.issuer, "subject": identity.subject, "role": role.value}
    if name in users:
        existing = _plain(users[name])
        if not link or "issuer" in existing:
            raise SignInFailed(
                _(
                    "There is another user {name} already. An administrator can remove it, or set "
                    "sso_link_existing to let you take it over.",
                    name=name,
                ),
                status=403,
            )
        del existing["password"]
        audit = _audit_entry(actor, "link_user", name, now, entered)
        return {**users, name: {**existing, **entered}}, audit
    if not create:
        raise SignInFailed(
            _("{name} is not a user of Chimes. Ask an administrator.", name=name), status=403
        )
    if not _NAME.fullmatch(name):
        raise SignInFailed(
            _(
                "{name!r} cannot be a user name: use letters, digits and . _ @ -, at most 64, "
                "starting with a letter or digit. Ask an administrator to set oidc_user_claim.",
                name=name[:64],
            ),
            status=403,
        )
    if len(users) >= MAX_USERS:
        raise SignInFailed(_("at most {most} users", most=MAX_USERS), status=403)
    created = {"created_at": now.isoformat(), "created_by": identity.issuer}
    audit = _audit_entry(actor, "create_user", name, now, entered)
    return {**users, name: {**entered, **created}}, audit


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
    issuer = str(found.get("issuer", ""))
    try:
        proof = f"{issuer} {found['subject']}" if issuer else str(found["password"])
        return User(
            name=name,
            role=Role(str(found["role"])),
            created_at=datetime.fromisoformat(str(found["created_at"])),
            created_by=str(found["created_by"]),
            stamp=hashlib.sha256(proof.encode()).hexdigest()[:16],
            issuer=issuer,
        )
    except (KeyError, ValueError):
        return None


# --- login limit ----------------------------------------------------------------------------------
#: Failed logins within the window, on all nodes together: per address and name, per address with
#: any names, and per name from all addresses. The last one is a compromise: it slows down guessing
#: from many addresses, and such an attack keeps the user from signing in with the password.
MAX_FAILED_LOGINS, MAX_FAILED_PER_ADDRESS, MAX_FAILED_PER_NAME = 5, 50, 50
WINDOW = timedelta(minutes=15)
_MAX_BLOCKED = 10_000
#: Failed logins in the audit log: so many at once and per hour; new names cost nothing.
MAX_AUDITED_FAILURES = 100


class LoginLimit:
    """Limits failed logins. Each attempt takes its tokens before the credentials are checked, so
    that concurrent attempts cannot pass the limit; a successful one returns them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        #: Empty buckets known to this node, and until when.
        self._blocked: OrderedDict[str, float] = OrderedDict()

    async def take(self, address: str, name: str = "") -> LoginAttempt:
        """Counts an attempt. Raises RateLimited."""
        group = address_group(address)
        limits = {_bucket("", f"{group} {name}"): MAX_FAILED_LOGINS}
        limits[_bucket("address:", group)] = MAX_FAILED_PER_ADDRESS
        if name:
            limits[_bucket("name:", name)] = MAX_FAILED_PER_NAME
        for bucket in limits:
            left = self._blocked.get(bucket, float("-inf")) - self._clock.monotonic()
            if left > 0:
                raise _too_many(timedelta(seconds=left))
        # The narrowest limit first: attempts that it rejects must not use up the others.
        for bucket, most in limits.items():
            taken = await self._count(bucket, most, 1)
            if not taken.granted:
                self._block(bucket, taken.wait)
                raise _too_many(taken.wait)
        return LoginAttempt(self, limits)

    async def give_back(self, limits: Mapping[str, int]) -> None:
        for bucket, most in limits.items():
            await self._count(bucket, most, -1)
            self._blocked.pop(bucket, None)

    async def _count(self, bucket: str, most: int, count: int) -> TokenGrant:
        rate = most / WINDOW.total_seconds()
        return await self._store.take_tokens(bucket, rate=rate, burst=most, count=count)

    def _block(self, bucket: str, wait: timedelta) -> None:
        self._blocked[bucket] = self._clock.monotonic() + wait.total_seconds()
        self._blocked.move_to_end(bucket)
        if len(self._blocked) > _MAX_BLOCKED:
            self._blocked.popitem(last=False)


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """A counted attempt: bucket and limit of each token that it took."""

    limit: LoginLimit
    buckets: Mapping[str, int]

    async def give_back(self) -> None:
        """After a success, or if the credentials were not checked."""
        await self.limit.give_back(self.buckets)


def address_group(address: str) -> str:
    """The addresses that share a limit: an IPv4 address, or the IPv6 network of a customer."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(IPv6Network((found, 64), strict=False))
    return address


def _bucket(kind: str, subject: str) -> str:
    return f"login:{kind}{_digest(subject)[:32]}"


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
#: Beyond this the session that was idle for the longest time ends: of all, and of an account.
MAX_SESSIONS, MAX_SESSIONS_PER_ACCOUNT = 1000, 20
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
        attempt = await self._limit.take(address)
        try:
            actor = await self._access.authenticate(presented, interface=INTERFACE, address=address)
        except NotAuthenticated:
            await self._audit_failure(address, address)
            raise
        except StoreError:
            # The key was not checked.
            await self._give_back(attempt)
            raise
        await attempt.give_back()
        mark = self._access.configured_key_mark(presented)
        kind, ref = ("configured", mark) if mark else ("key", str(actor.key_id))
        return await self._begin(actor, kind, ref, agent=agent)

    async def login_with_password(
        self, name: str, password: str, *, address: str, agent: str
    ) -> tuple[str, Session]:
        attempt = await self._limit.take(address, name)
        try:
            user = await self._users.authenticate(name, password)
        except (RateLimited, StoreError):
            # The password was not checked.
            await self._give_back(attempt)
            raise
        if user is None:
            await self._audit_failure(name, address)
            raise NotAuthenticated()
        await attempt.give_back()
        return await self._begin(
            _user_actor(user, address), "user", name, stamp=user.stamp, agent=agent
        )

    async def login_with_identity(
        self, identity: Identity, settings: Settings, *, address: str, agent: str
    ) -> tuple[str, Session]:
        """The secret of a new session of a user whom a provider or proxy has authenticated. Raises
        SignInFailed."""
        try:
            user = await self._users.sign_in(
                identity,
                role_of(identity, settings),
                create=settings.sso_create_users,
                link=settings.sso_link_existing,
                address=address,
            )
        except SignInFailed:
            await self._audit_failure(identity.name[:64], address)
            raise
        self._access.end_open_mode()
        return await self._begin(
            _user_actor(user, address), "user", user.name, stamp=user.stamp, agent=agent
        )

    async def count_attempt(self, address: str) -> LoginAttempt:
        """Counts a login that is checked elsewhere. Raises RateLimited."""
        return await self._limit.take(address)

    async def _give_back(self, attempt: LoginAttempt) -> None:
        with suppress(StoreError):
            await attempt.give_back()

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
            same = [each for each in sessions.values() if (each.kind, each.ref) == (kind, ref)]
            _end_idle(sessions, same, MAX_SESSIONS_PER_ACCOUNT - 1)
            _end_idle(sessions, [*sessions.values()], MAX_SESSIONS - 1)
            sessions[record.id] = record

        await self._change(add, now, audit)
        return secret, Session(record=record, actor=actor)

    async def _audit_failure(self, name: str, address: str) -> None:
        """The number of entries is limited: anyone can try ever new names."""
        taken = await self._store.take_tokens(
            "login:audit", rate=MAX_AUDITED_FAILURES / 3600, burst=MAX_AUDITED_FAILURES
        )
        if not taken.granted:
            _log.warning("failed login not written to the audit", extra={"address": address})
            return
        anonymous = Actor(
            owner=ANONYMOUS_OWNER, role=Role.VIEWER, interface=INTERFACE, address=address
        )
        audit = entry(
            anonymous,
            "sign_in",
            "session",
            name,
            at=await self._store.now(),
            owner=ANONYMOUS_OWNER,
            allowed=False,
        )
        await self._store.append_audit(audit)

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


def _end_idle(
    sessions: dict[str, SessionRecord], candidates: list[SessionRecord], most: int
) -> None:
    """Ends the candidates that were idle for the longest time, until `most` of them are left."""
    candidates.sort(key=lambda each: (each.seen_at, each.created_at), reverse=True)
    for record in candidates[most:]:
        del sessions[record.id]


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
