"""Access control: owners, quotas, roles, scopes, API keys, actors and named secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import TypeVar, cast

from msgspec import Struct, structs

from chimes.errors import InvalidInput
from chimes.i18n import Message, _
from chimes.model import replace
from chimes.model.ids import KeyId
from chimes.redaction import PLACEHOLDER_MARK, secret_placeholders

T = TypeVar("T")


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
    #: Whether a viewer reads the schedules and runs of all owners (the setting `viewers_see`).
    reads_all: bool = False

    @property
    def name(self) -> str:
        return f"key:{self.key_id}" if self.key_id else str(self.owner)

    @property
    def sees_everything(self) -> bool:
        """Every scope includes reading: the response to a change contains its object anyway."""
        return self.role in (Role.OPERATOR, Role.ADMIN)

    @property
    def sees_all_owners(self) -> bool:
        """Whether schedules and runs of other owners are visible; monitors, nodes, rules and the
        audit log need `sees_everything`."""
        return self.sees_everything or (self.reads_all and self.role is Role.VIEWER)

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

    def may_read(self, owner: Owner) -> bool:
        """A schedule or a run; `may_see` is about all objects of an owner, also those that contain
        credentials."""
        return self.sees_all_owners or owner == self.owner

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


# --- named secrets of an owner, and the placeholders `{{secret.NAME}}` that use them (ADR 58) -----
# A Struct names the fields that may have placeholders in `takes_secrets`. Values are filled in when
# a target is executed or a message is sent, never before: what is stored has the placeholder.
MAX_SECRETS = 100
MAX_SECRET_LENGTH = 8192
#: Shorter values occur everywhere and could not be masked.
MIN_SECRET_LENGTH = 4
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
#: Whatever is meant as the placeholder of a secret.
_MARK = re.compile(r"\{\{\s*secret[.:\s]")


class NamedSecret(Struct, frozen=True, kw_only=True):
    """Without its value, which no interface returns."""

    name: str
    owner: Owner
    created_at: datetime
    updated_at: datetime


def check_secret_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            _(
                "the name of a secret has up to 64 letters, digits, `_` and `-`, and does not "
                "begin with a digit or `-`"
            ),
            field="name",
            code="secret_name",
        )
    return name


def check_secret_value(value: str) -> str:
    if not MIN_SECRET_LENGTH <= len(value) <= MAX_SECRET_LENGTH:
        raise InvalidInput(
            _(
                "the value of a secret has {least} to {most} characters, not {count}",
                least=MIN_SECRET_LENGTH,
                most=MAX_SECRET_LENGTH,
                count=len(value),
            ),
            field="value",
            code="secret_length",
        )
    if _CONTROL.search(value) or any("\ud800" <= each <= "\udfff" for each in value):
        raise InvalidInput(
            _("the value of a secret is text without control characters"),
            field="value",
            code="secret_characters",
        )
    return value


# --- placeholders ---------------------------------------------------------------------------------


def secret_names(*values: object) -> frozenset[str]:
    """The secrets that targets, recipients or other values name."""
    return frozenset(
        name for value in values for _path, text in _texts(value, "") for name in _names(text)
    )


def secret_fields(value: object) -> Iterator[tuple[str, str]]:
    """The field and the name of each secret that a value names. InvalidInput for a placeholder
    that is not well formed."""
    for path, text in _texts(value, ""):
        names = _names(text)
        if len(names) != len(_MARK.findall(text)):
            raise InvalidInput(
                _(
                    "write a secret as {form}, with the name of a stored secret",
                    form="{{secret.NAME}}",
                ),
                field=path,
                code="unknown_secret",
            )
        for name in names:
            yield path, name


def fill_secrets(value: T, secrets: Mapping[str, str]) -> T:
    """A text, JSON-like data or a Struct with its placeholders filled; names that are not among the
    secrets stay. For a place with its own syntax, such as a URL, `chimes.targets.http.request`
    escapes the values."""
    return cast(T, _filled(value, secrets)) if secrets else value


def _filled(value: object, secrets: Mapping[str, str]) -> object:
    if isinstance(value, str):
        if PLACEHOLDER_MARK not in value:
            return value
        return secret_placeholders().sub(lambda found: secrets.get(found[1], found[0]), value)
    if isinstance(value, Mapping):
        return {name: _filled(each, secrets) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, secrets) for each in value]
    if isinstance(value, tuple):
        return tuple(_filled(each, secrets) for each in value)
    if isinstance(value, Struct):
        fields = {name: _filled(getattr(value, name), secrets) for name in _taking(value)}
        return structs.replace(value, **fields)
    return value


def unknown_secret(name: str, owner: Owner) -> Message:
    return _(
        "there is no secret {name!r} of {owner}: store it with `chimes secret set {name}`, or "
        "correct the name",
        name=name,
        owner=str(owner),
    )


def _names(text: str) -> list[str]:
    return secret_placeholders().findall(text) if PLACEHOLDER_MARK in text else []


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    """The texts that may have placeholders, with the names of their fields."""
    if isinstance(value, str):
        if PLACEHOLDER_MARK in value:
            yield path, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from _texts(each, f"{path}[{place}]")
    else:
        for name in _taking(value):
            yield from _texts(getattr(value, name), f"{path}.{name}" if path else name)


def _taking(value: object) -> Iterable[str]:
    found: Iterable[str] = getattr(type(value), "takes_secrets", ())
    return found
