"""Named limits of owners, and shared ones of the instance (ADR 74).

The definitions of an owner are one document, the state of each limit is another, which nodes change
often (`chimes.engine.limits`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import msgspec

from chimes.errors import Conflict, InvalidInput, NotAllowed, NotFound
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor, Owner, Role
from chimes.model.audit import AuditEntry, entry
from chimes.model.limit import (
    MAX_LIMITS,
    Breaker,
    Limit,
    LimitState,
    LimitUse,
    check_limit,
    check_limit_name,
    check_limit_names,
    limit_use,
    unknown_limit,
)
from chimes.model.listing import ScheduleQuery
from chimes.model.run import owner_key
from chimes.model.schedule import Schedule
from chimes.services.documents import Document, DocumentStore
from chimes.store.port import Store
from chimes.triggers import format_moment, parse_moment

_DEFINITIONS = "limits:"
_STATE = "limit:"
#: Stands for the owner of shared limits; no owner has this text.
_SHARED = "*"
#: Schedules named in an error or a list.
MAX_USES = 100
_PAGE = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitValues:
    """What a caller sets."""

    concurrency: int | None = None
    rate: str = ""
    burst: int | None = None
    breaker: Breaker | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitReport:
    """A limit, its current use, and the schedules that name it."""

    use: LimitUse
    #: At most MAX_USES of them.
    schedules: tuple[Schedule, ...] = ()
    count: int = 0


class LimitService:
    """Limits of other owners are NotFound, except for an admin. Shared ones are visible to
    all owners and changed by admins."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_limits(self, actor: Actor, owner: Owner | None = None) -> list[LimitReport]:
        """Those of the owner (None: the actor) and shared ones, by name."""
        owner = self._visible(actor, owner)
        own, shared = await _read(self._store, owner), await _read(self._store, None)
        limits = [*own.values(), *shared.values()]
        return await self._reports(actor, sorted(limits, key=lambda each: each.name))

    async def get(
        self, actor: Actor, name: str, owner: Owner | None = None, *, shared: bool = False
    ) -> LimitReport:
        """The limit that runs of the owner with this name use; `shared`: the shared one."""
        owner = self._visible(actor, owner)
        found = (await _read(self._store, None)).get(name)
        if not shared:
            found = (await _read(self._store, owner)).get(name) or found
        if found is None:
            raise _not_found(name)
        return (await self._reports(actor, [found]))[0]

    async def put(
        self,
        actor: Actor,
        name: str,
        values: LimitValues,
        owner: Owner | None = None,
        *,
        shared: bool = False,
    ) -> LimitReport:
        """Creates or replaces a limit. Runs that begin later follow it."""
        scope = self._writable(actor, name, owner, shared=shared)
        whose = scope or actor.owner
        now = await self._store.now()
        new = Limit(
            name=check_limit_name(name),
            owner=scope,
            concurrency=values.concurrency,
            rate=values.rate.replace(" ", ""),
            burst=values.burst,
            breaker=values.breaker,
            created_at=now,
            updated_at=now,
        )
        check_limit(new)

        def change(stored: Document) -> tuple[Document, AuditEntry | None]:
            if name not in stored and len(stored) >= MAX_LIMITS:
                raise InvalidInput(
                    _("an owner has at most {most} limits: delete one", most=MAX_LIMITS),
                    field="name",
                    code="too_many",
                )
            before = cast(Mapping[str, Any], stored.get(name, {}))
            plain = _to_plain(new)
            if before:
                plain["created_at"] = before["created_at"]
            changes = {
                key: [before.get(key), plain.get(key)]
                for key in ("concurrency", "rate", "burst", "breaker")
                if before.get(key) != plain.get(key)
            }
            audit = entry(actor, "set_limit", "limit", name, at=now, owner=whose, changes=changes)
            return stored | {name: plain}, audit

        stored = await _document(self._store, scope).change(change)
        return (await self._reports(actor, [_limit(stored, name, scope)]))[0]

    async def remove(
        self, actor: Actor, name: str, owner: Owner | None = None, *, shared: bool = False
    ) -> None:
        """Raises Conflict if schedules use it."""
        scope = self._writable(actor, name, owner, shared=shared)
        whose = scope or actor.owner
        limit = (await _read(self._store, scope)).get(name)
        if limit is None:
            raise _not_found(name)
        now = await self._store.now()
        others = {} if scope is None else await _read(self._store, None)
        if name not in others:
            # Otherwise the schedules use the shared one from now on.
            used = [each async for each in self._schedules(scope) if name in each.policy.limits]
            if scope is None:
                used = [each for each in used if not await self._has_own(each.owner, name)]
            if used:
                raise _in_use(name, used)

        def change(stored: Document) -> tuple[Document, AuditEntry | None]:
            if name not in stored:
                raise _not_found(name)
            rest = {each: value for each, value in stored.items() if each != name}
            return rest, entry(actor, "delete_limit", "limit", name, at=now, owner=whose)

        await _document(self._store, scope).change(change)
        await self._store.set_checkpoint(_state_name(limit), None)

    async def missing(self, owner: Owner, names: Collection[str]) -> list[str]:
        """The names of which there is no limit for runs of the owner."""
        known = await limits_for(self._store, owner) if names else {}
        return [name for name in names if name not in known]

    async def check_names(
        self, owner: Owner, names: Collection[str], known: Collection[str] = ()
    ) -> None:
        """Raises InvalidInput for an unknown limit. `known`: names that the schedule has
        already."""
        check_limit_names(tuple(names))
        new = [name for name in names if name not in known]
        for name in await self.missing(owner, new):
            raise InvalidInput(unknown_limit(name), field="policy.limits", code="unknown_limit")

    async def _has_own(self, owner: Owner, name: str) -> bool:
        return name in await _read(self._store, owner)

    def _visible(self, actor: Actor, owner: Owner | None) -> Owner:
        owner = owner or actor.owner
        if not actor.may_see(owner):
            raise NotFound(_("there are no limits of {owner}", owner=str(owner)))
        return owner

    def _writable(
        self, actor: Actor, name: str, owner: Owner | None, *, shared: bool
    ) -> Owner | None:
        if shared:
            if actor.role is not Role.ADMIN:
                raise NotAllowed(_("only an admin may change a shared limit"))
            return None
        owner = owner or actor.owner
        if actor.may_write(owner):
            return owner
        raise NotAllowed() if actor.may_see(owner) else _not_found(name)

    async def _reports(self, actor: Actor, limits: list[Limit]) -> list[LimitReport]:
        if not limits:
            return []
        now = await self._store.now()
        found = {
            (each.owner, each.name): LimitReport(
                use=limit_use(each, await read_state(self._store, each), now)
            )
            for each in limits
        }
        owners = {each.owner for each in limits}
        query = (
            None
            if None in owners and actor.role is Role.ADMIN
            else next((each for each in owners if each is not None), actor.owner)
        )
        async for schedule in self._schedules(query):
            for name in schedule.policy.limits:
                key = schedule.owner, name
                place = key if key in found else (None, name)
                if place in found and not (
                    place[0] is None and await self._has_own(schedule.owner, name)
                ):
                    found[place] = _with_schedule(found[place], schedule)
        return list(found.values())

    async def _schedules(self, owner: Owner | None) -> AsyncIterator[Schedule]:
        """Of an owner, or of all."""
        query = ScheduleQuery(owner=owner, limit=_PAGE)
        while True:
            page = await self._store.list_schedules(query)
            for each in page.items:
                if each.policy.limits:
                    yield each
            if page.next is None:
                return
            query = replace(query, after=page.next)


def _with_schedule(report: LimitReport, schedule: Schedule) -> LimitReport:
    shown = report.schedules if report.count >= MAX_USES else (*report.schedules, schedule)
    return LimitReport(use=report.use, schedules=shown, count=report.count + 1)


# --- documents ------------------------------------------------------------------------------------
async def limits_for(store: Store, owner: Owner) -> dict[str, Limit]:
    """The limits that runs of the owner can name. One of its own goes before a shared one."""
    return await _read(store, None) | await _read(store, owner)


async def read_state(store: Store, limit: Limit) -> LimitState:
    return _state_of(await DocumentStore(store, _state_name(limit)).read())


async def change_state(
    store: Store, limit: Limit, change: Callable[[LimitState], LimitState]
) -> None:
    """Stores what the function makes of the state of the limit. It is called again if another node
    was faster. Raises StoreUnavailable."""

    def changed(stored: Document) -> tuple[Document, AuditEntry | None]:
        after: Document = msgspec.to_builtins(change(_state_of(stored)))
        return after, None

    await DocumentStore(store, _state_name(limit)).change(changed)


def _state_of(stored: Document) -> LimitState:
    try:
        return msgspec.convert(stored, LimitState)
    except msgspec.ValidationError:
        # It is made again from nothing: permits are known by their runs as soon as these end.
        return LimitState()


def _scope(owner: Owner | None) -> str:
    return _SHARED if owner is None else owner_key(owner)


def _state_name(limit: Limit) -> str:
    return f"{_STATE}{_scope(limit.owner)}/{limit.name}"


def _document(store: Store, owner: Owner | None) -> DocumentStore:
    return DocumentStore(store, f"{_DEFINITIONS}{_scope(owner)}")


async def _read(store: Store, owner: Owner | None) -> dict[str, Limit]:
    stored = await _document(store, owner).read()
    return {name: _limit(stored, name, owner) for name in stored}


def _to_plain(limit: Limit) -> dict[str, object]:
    plain: dict[str, object] = {}
    if limit.concurrency is not None:
        plain["concurrency"] = limit.concurrency
    if limit.rate:
        plain["rate"] = limit.rate
    if limit.burst is not None:
        plain["burst"] = limit.burst
    if limit.breaker is not None:
        pause = limit.breaker.pause // timedelta(milliseconds=1)
        plain["breaker"] = {"failures": limit.breaker.failures, "pause_ms": pause}
    at = format_moment(limit.updated_at)
    return plain | {"created_at": at, "updated_at": at}


def _limit(stored: Document, name: str, owner: Owner | None) -> Limit:
    plain = cast(Mapping[str, Any], stored[name])
    breaker = plain.get("breaker")
    return Limit(
        name=name,
        owner=owner,
        concurrency=plain.get("concurrency"),
        rate=plain.get("rate", ""),
        burst=plain.get("burst"),
        breaker=None
        if breaker is None
        else Breaker(
            failures=breaker["failures"], pause=timedelta(milliseconds=breaker["pause_ms"])
        ),
        created_at=parse_moment(plain["created_at"]),
        updated_at=parse_moment(plain["updated_at"]),
    )


def _not_found(name: str) -> NotFound:
    return NotFound(_("there is no limit {name!r}", name=name))


def _in_use(name: str, used: Collection[Schedule]) -> Conflict:
    named = [f"{each.name} ({each.id})" for each in used]
    return Conflict(
        _(
            "limit {name!r} is in use: {schedules}. Change these schedules first",
            name=name,
            schedules=", ".join(named[:MAX_USES]) + (", …" if len(named) > MAX_USES else ""),
        ),
        code="limit_in_use",
    )
