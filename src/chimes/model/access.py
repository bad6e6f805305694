"""Who may do what: owners, roles, keys, and the actor on whose behalf a verb is called."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from chimes.model.ids import KeyId


class OwnerType(StrEnum):
    USER = "user"
    CHAT = "chat"
    SYSTEM = "system"


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    type: OwnerType = OwnerType.SYSTEM
    id: str = "default"

    def __str__(self) -> str:
        return f"{self.type}:{self.id}"


SYSTEM_OWNER = Owner()


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """How many schedules an owner may have; deleted ones do not count."""

    limit: int
    #: Count only those that will still fire: enabled, with a next run (R1.13).
    active: bool = False
    #: Count only those of this namespace.
    namespace: str | None = None


class Scope(StrEnum):
    """What a key is for. One without scopes may do all that its role may; with scopes it may do
    no more than they say, and never more than its role."""

    READ = "read"
    #: Pause, resume, run, cancel.
    OPERATE = "operate"
    #: Create, edit, delete.
    WRITE = "write"
    #: It is in the hands of agent runs: it makes no schedules (S75, F67).
    AGENT = "agent"
    #: With `agent`: it may make schedules, but none whose target is an agent again.
    AGENT_SCHEDULES = "agent_schedules"


class Role(StrEnum):
    """From least to most: a viewer reads its owner's objects, a member changes them, an operator
    sees all and may pause, resume, run and cancel, an admin may do everything."""

    VIEWER = "viewer"
    MEMBER = "member"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """Somebody who calls a verb, and through which door."""

    owner: Owner = SYSTEM_OWNER
    role: Role = Role.ADMIN
    key_id: KeyId | None = None
    door: str = "native"
    address: str = ""

    @property
    def name(self) -> str:
        return f"key:{self.key_id}" if self.key_id else str(self.owner)

    @property
    def sees_everything(self) -> bool:
        return self.role in (Role.OPERATOR, Role.ADMIN)

    def may_see(self, owner: Owner) -> bool:
        return self.sees_everything or owner == self.owner

    def may_write(self, owner: Owner) -> bool:
        """Create, edit and delete."""
        return self.role is Role.ADMIN or (self.role is Role.MEMBER and owner == self.owner)

    def may_operate(self, owner: Owner) -> bool:
        """Pause, resume, run, cancel."""
        return self.role is Role.OPERATOR or self.may_write(owner)


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiKey:
    """A key as it is stored: the secret itself is shown once and never kept."""

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


def revoked(key: ApiKey, now: datetime) -> ApiKey:
    return key if key.revoked_at else replace(key, revoked_at=now)
