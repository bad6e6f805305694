"""People who sign in with a password. Their owner is `user:NAME`.

They are few, and kept as one document on every store (ADR 31).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import AlreadyExists, InvalidInput, NotAllowed, NotFound
from chimes.model.access import Actor, Owner, OwnerType, Role
from chimes.model.audit import AuditEntry
from chimes.service.access import USERS
from chimes.service.audit import entry
from chimes.service.documents import DocumentStore
from chimes.service.passwords import LONGEST, SHORTEST, Passwords
from chimes.store.port import Store
from chimes.wording import say

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

    async def any(self) -> bool:
        return bool(await self._document.read())

    async def all(self, actor: Actor) -> tuple[User, ...]:
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
                say("letters, digits and . _ @ -, at most 64 of them, a letter or digit first"),
                field="name",
                code="bad_name",
            )
        kept = await self._passwords.hashed(_checked(password))
        now = await self._store.now()
        async with self._document.changing() as users:
            if name in users:
                raise AlreadyExists(say("there is a user {name} already", name=name))
            if len(users) >= MOST:
                raise InvalidInput(say("there are as many users as there may be"), field="name")
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
            say(
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
        raise NotFound(say("there is no user {name}", name=name))
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
