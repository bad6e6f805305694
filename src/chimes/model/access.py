"""Access control: owners, quotas, roles, scopes, API keys and actors."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from chimes.model import replace
from chimes.model.ids import KeyId


class OwnerType(StrEnum):
    USER = "user"
    CHAT = "chat"
    SYSTEM = "system"


class Owner(Struct, frozen=True, kw_only=True):
    type: OwnerType = OwnerType.SYSTEM
    id: str = "default"

    def __str__(self) -> str:
        return f"{self.type}:{self.id}"


SYSTEM_OWNER = Owner()
#: Owner of requests without a valid key or session. Its name is in stored audit entries.
ANONYMOUS_OWNER = Owner(id="nobody")


class Quota(Struct, frozen=True, kw_only=True):
    """How many schedules an owner may have; deleted ones do not count."""

    limit: int
    #: Count only those that will still fire: enabled, with a next run.
    active: bool = False
    #: Count only those of this namespace.
    namespace: str | None = None


class Scope(StrEnum):
    """Restricts a key to a part of the rights of its role; no scopes: all of them."""

    READ = "read"
    #: Pause, resume, run, cancel.
    OPERATE = "operate"
    #: Create, edit, delete.
    WRITE = "write"
    #: Used by agent runs: cannot create schedules, or an agent could multiply itself.
    AGENT = "agent"
    #: With `agent`: can create schedules, except with an agent target.
    AGENT_SCHEDULES = "agent_schedules"


class Role(StrEnum):
    """From least to most: a viewer reads its owner's objects, a member changes them, an operator
    sees all and may pause, resume, run and cancel, an admin may do everything."""

    VIEWER = "viewer"
    MEMBER = "member"
    OPERATOR = "operator"
    ADMIN = "admin"


class Actor(Struct, frozen=True, kw_only=True):
    """The caller of a service, and the interface it uses."""

    owner: Owner = SYSTEM_OWNER
    role: Role = Role.ADMIN
    key_id: KeyId | None = None
    interface: str = "native"
    address: str = ""
    #: Empty: all rights of the role.
    scopes: tuple[Scope, ...] = ()

    @property
    def name(self) -> str:
        return f"key:{self.key_id}" if self.key_id else str(self.owner)

    @property
    def sees_everything(self) -> bool:
        """Every scope includes reading: the response to a change contains its object anyway."""
        return self.role in (Role.OPERATOR, Role.ADMIN)

    @property
    def is_agent(self) -> bool:
        """Whether it acts for an agent run."""
        return Scope.AGENT in self.scopes

    @property
    def administers(self) -> bool:
        """May manage keys and other objects without an owner. No scope grants it, so that a scoped
        key cannot create a wider one."""
        return self.role is Role.ADMIN and not self.scopes

    def may_see(self, owner: Owner) -> bool:
        return self.sees_everything or owner == self.owner

    def may_write(self, owner: Owner) -> bool:
        """Edit, delete, and create, unless it is an agent."""
        return self._within(Scope.WRITE) and self._owns(owner)

    def may_create(self, owner: Owner) -> bool:
        if self.is_agent:
            return Scope.AGENT_SCHEDULES in self.scopes and self._owns(owner)
        return self.may_write(owner)

    def may_operate(self, owner: Owner) -> bool:
        """Pause, resume, run, cancel."""
        return self._within(Scope.OPERATE) and (self.role is Role.OPERATOR or self._owns(owner))

    def _owns(self, owner: Owner) -> bool:
        return self.role is Role.ADMIN or (self.role is Role.MEMBER and owner == self.owner)

    def _within(self, scope: Scope) -> bool:
        return not self.scopes or scope in self.scopes


#: The scopes that a key of each role can have.
SCOPES_OF = {
    Role.VIEWER: frozenset({Scope.READ, Scope.AGENT}),
    Role.MEMBER: frozenset(Scope),
    Role.OPERATOR: frozenset({Scope.READ, Scope.OPERATE, Scope.AGENT}),
    Role.ADMIN: frozenset(Scope),
}


class ApiKey(Struct, frozen=True, kw_only=True):
    """A stored key; the secret is shown once and only its hash is stored."""

    id: KeyId
    secret_hash: str
    name: str
    role: Role
    owner: Owner
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    scopes: tuple[Scope, ...] = ()

    def usable(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def revoke(key: ApiKey, now: datetime) -> ApiKey:
    return key if key.revoked_at else replace(key, revoked_at=now)


def unused_keys(keys: Iterable[ApiKey], before: datetime) -> list[ApiKey]:
    """Keys that were revoked or expired before then, oldest first. One key that is not revoked
    stays, even if it has expired: without any, calls would need no key (`auth_enabled`)."""
    ordered = sorted(keys, key=lambda key: (key.created_at, key.id))
    revoked = [key for key in ordered if key.revoked_at is not None and key.revoked_at < before]
    others = [key for key in ordered if key.revoked_at is None]
    expired = [key for key in others if key.expires_at is not None and key.expires_at < before]
    return revoked + (expired if len(expired) < len(others) else expired[:-1])
