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

    def usable(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def revoked(key: ApiKey, now: datetime) -> ApiKey:
    return key if key.revoked_at else replace(key, revoked_at=now)
