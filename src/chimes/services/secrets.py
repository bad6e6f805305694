"""Named secrets of owners: stored encrypted, never returned, filled in at execution (ADR 58).

All secrets of an owner are one document, which stores encrypt as a whole, because its field
`secret` is one that redaction recognises.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import cast

from chimes.envelope import VARIABLE
from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound, SecretUnreadable
from chimes.i18n import Message, _, map_text
from chimes.model import replace
from chimes.model.access import (
    MAX_SECRETS,
    Actor,
    NamedSecret,
    Owner,
    check_secret_name,
    check_secret_value,
    secret_names,
    unknown_secret,
)
from chimes.model.audit import AuditEntry, entry
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.redaction import echoed_forms, mask_known
from chimes.services.documents import Document, DocumentStore
from chimes.store.port import Store
from chimes.triggers import format_moment, parse_moment

_STATE = "secrets:"
#: Schedules named in a list or an error.
MAX_USES = 100
_PAGE = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretUse:
    """A secret and the schedules of its owner that name it."""

    secret: NamedSecret
    #: At most MAX_USES of them.
    schedules: tuple[Schedule, ...] = ()
    count: int = 0


class SecretService:
    """Secrets of other owners are NotFound, except for an admin."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_secrets(self, actor: Actor, owner: Owner | None = None) -> list[SecretUse]:
        """By name. `owner`: None is the actor's."""
        owner = owner or actor.owner
        if not actor.may_see(owner):
            raise NotFound(_("there are no secrets of {owner}", owner=str(owner)))
        stored = await _document(self._store, owner).read()
        found = {name: SecretUse(secret=_secret(stored, name, owner)) for name in sorted(stored)}
        if found:
            async for schedule in self._schedules(owner):
                for name in names_used(schedule) & found.keys():
                    found[name] = _with_use(found[name], schedule)
        return list(found.values())

    async def put(
        self, actor: Actor, name: str, value: str, owner: Owner | None = None
    ) -> NamedSecret:
        """Stores or replaces a value."""
        owner = self._writable(actor, name, owner)
        check_secret_name(name)
        check_secret_value(value)
        self._require_key()
        now = await self._store.now()
        at = format_moment(now)

        def change(stored: Document) -> tuple[Document, AuditEntry | None]:
            if name not in stored and len(stored) >= MAX_SECRETS:
                raise InvalidInput(
                    _("an owner has at most {most} secrets: delete one", most=MAX_SECRETS),
                    field="name",
                    code="too_many",
                )
            before = cast(Mapping[str, object], stored.get(name, {"created_at": at}))
            new = {"secret": value, "created_at": before["created_at"], "updated_at": at}
            audit = entry(actor, "set_secret", "secret", name, at=now, owner=owner)
            return stored | {name: new}, audit

        stored = await _document(self._store, owner).change(change)
        return _secret(stored, name, owner)

    async def remove(
        self, actor: Actor, name: str, owner: Owner | None = None, *, force: bool = False
    ) -> None:
        """Raises Conflict if schedules use it, unless `force`."""
        owner = self._writable(actor, name, owner)
        now = await self._store.now()

        def change(stored: Document) -> tuple[Document, AuditEntry | None]:
            if name not in stored:
                raise _not_found(name, owner)
            rest = {each: value for each, value in stored.items() if each != name}
            return rest, entry(actor, "delete_secret", "secret", name, at=now, owner=owner)

        if name not in await _document(self._store, owner).read():
            raise _not_found(name, owner)
        if not force:
            used = [each async for each in self._schedules(owner) if name in names_used(each)]
            if used:
                raise _in_use(name, used)
        await _document(self._store, owner).change(change)

    async def missing(self, owner: Owner, names: Collection[str]) -> list[str]:
        """The names of which the owner has no secret."""
        stored = await _document(self._store, owner).read() if names else {}
        return sorted(name for name in names if name not in stored)

    def _writable(self, actor: Actor, name: str, owner: Owner | None) -> Owner:
        owner = owner or actor.owner
        if actor.may_write(owner):
            return owner
        raise NotAllowed() if actor.may_see(owner) else _not_found(name, owner)

    def _require_key(self) -> None:
        keyring = self._store.keyring
        if keyring.durable and not keyring.can_seal:
            raise InvalidInput(
                _(
                    "secrets cannot be stored: this store needs {variable}. Set it to the output "
                    "of `chimes secret generate-key` on all nodes",
                    variable=VARIABLE,
                ),
                field="value",
                code="secret_key_missing",
            )

    async def _schedules(self, owner: Owner) -> AsyncIterator[Schedule]:
        query = ScheduleQuery(owner=owner, limit=_PAGE)
        while True:
            page = await self._store.list_schedules(query)
            for each in page.items:
                yield each
            if page.next is None:
                return
            query = replace(query, after=page.next)


def names_used(schedule: Schedule) -> frozenset[str]:
    """The secrets that a schedule names."""
    return secret_names(schedule.target, schedule.policy.delivery)


def _document(store: Store, owner: Owner) -> DocumentStore:
    return DocumentStore(store, f"{_STATE}{owner}")


def _secret(stored: Document, name: str, owner: Owner) -> NamedSecret:
    found = cast(Mapping[str, str], stored[name])
    return NamedSecret(
        name=name,
        owner=owner,
        created_at=parse_moment(found["created_at"]),
        updated_at=parse_moment(found["updated_at"]),
    )


def _with_use(use: SecretUse, schedule: Schedule) -> SecretUse:
    shown = use.schedules if use.count >= MAX_USES else (*use.schedules, schedule)
    return SecretUse(secret=use.secret, schedules=shown, count=use.count + 1)


def _not_found(name: str, owner: Owner) -> NotFound:
    return NotFound(_("there is no secret {name!r} of {owner}", name=name, owner=str(owner)))


def _in_use(name: str, used: Collection[Schedule]) -> Conflict:
    named = [f"{each.name} ({each.id})" for each in used]
    return Conflict(
        _(
            "secret {name!r} is in use: {schedules}. Change these schedules first, or delete it "
            "with force; their runs then fail",
            name=name,
            schedules=", ".join(named[:MAX_USES]) + (", …" if len(named) > MAX_USES else ""),
        ),
        code="secret_in_use",
    )


# --- execution ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretProblem:
    """Why an attempt cannot have its secrets."""

    code: str
    message: Message
    retryable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedSecrets:
    """The values that one attempt uses, and how to mask them in what it leaves behind."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    problem: SecretProblem | None = None
    #: The values as they may be repeated.
    forms: tuple[str, ...] = field(default=(), repr=False)

    def mask(self, text: str) -> str:
        """A text or a message without the values."""
        return map_text(text, self._mask) if self.forms else text

    def mask_result(self, result: Mapping[str, object] | None) -> Mapping[str, object] | None:
        if not self.forms or result is None:
            return result
        return cast(Mapping[str, object], mask_known(result, self.forms))

    def _mask(self, text: str) -> str:
        return str(mask_known(text, self.forms))


NO_SECRETS = ResolvedSecrets()


async def resolve_secrets(store: Store, owner: Owner, names: Collection[str]) -> ResolvedSecrets:
    """The current values of an owner's secrets. Raises StoreUnavailable."""
    if not names:
        return NO_SECRETS
    try:
        stored = await _document(store, owner).read()
    except SecretUnreadable as error:
        # Another node may have the key.
        problem = SecretProblem(
            code="secret_unreadable",
            message=_("the secrets cannot be read: {reason}", reason=error.message),
            retryable=True,
        )
        return ResolvedSecrets(problem=problem)
    values = {
        name: str(cast(Mapping[str, object], stored[name])["secret"])
        for name in names
        if name in stored
    }
    unknown = sorted(name for name in names if name not in stored)
    return ResolvedSecrets(
        values=values,
        forms=echoed_forms(values.values()),
        problem=SecretProblem(code="unknown_secret", message=unknown_secret(unknown[0], owner))
        if unknown
        else None,
    )
