"""Schedules of the collections that a file has: written where they differ, removed where the file
no longer has them (R4.19)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from chimes.app.composition import Services
from chimes.app.declared import Complete, Declared, Mode, draft, updated
from chimes.app.syncing import Syncing
from chimes.config import Settings
from chimes.errors import ConfigError, InvalidInput, NotFound
from chimes.model.access import Actor, Owner, OwnerType
from chimes.model.defaults import RunDefaults
from chimes.model.ids import ScheduleId
from chimes.model.listing import ScheduleQuery
from chimes.model.node import Node
from chimes.model.schedule import Schedule
from chimes.model.source import SYNC_NAMESPACE, Sources, task_name, task_policy
from chimes.model.target import SyncTarget
from chimes.service.sources import KnownSources, SourceChange, Word
from chimes.wording import say

#: As the audit names what a file asks for.
FILE_ACTOR = Actor(owner=Owner(type=OwnerType.SYSTEM, id="config"), door="config")
_PAGE = 500


class PairDefaults(Mapping[str, RunDefaults]):
    """How the tasks of each pair are carried out, by `SyncTarget.key`."""

    def __init__(self, known: KnownSources) -> None:
        self._known = known

    def __getitem__(self, key: str) -> RunDefaults:
        for target, collection in self._known.now.pairs():
            if target.key == key:
                policy = task_policy(target, timeout=collection.timeout)
                return RunDefaults(policy=policy, priority=collection.priority)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (target.key for target, _ in self._known.now.pairs())

    def __len__(self) -> int:
        return sum(1 for _ in self._known.now.pairs())


class SourceSchedules:
    def __init__(self, services: Services, settings: Settings) -> None:
        self._services = services
        self._settings = settings
        self._syncing = Syncing(services, FILE_ACTOR, SYNC_NAMESPACE)

    def check(self, sources: Sources, before: Sources, now: datetime) -> None:
        """Raises ConfigError for a collection that the service would not take. What has not changed
        since `before` was taken once."""
        old = dict(before.pairs())
        changed = {task_name(target) for target, each in sources.pairs() if old.get(target) != each}
        for name, complete in self._wanted(sources).items():
            if name in changed:
                try:
                    new = draft(complete, ScheduleId(""), SYNC_NAMESPACE, now)
                    self._services.schedules.prepared(FILE_ACTOR, new, now)
                except InvalidInput as error:
                    raise ConfigError(
                        say("collection {name}: {problem}", name=name, problem=error.message),
                        key=name,
                    ) from None

    async def plan(self, sources: Sources, own_node: str = "") -> list[SourceChange]:
        """What `write` would do. `own_node`: what this node offers itself keeps nothing."""
        stored = await self._stored()
        wanted = self._wanted(sources)
        changes = [
            SourceChange(name, self._word(complete, stored.get(name)))
            for name, complete in wanted.items()
        ]
        others = [node for node in await self._alive() if node.id != own_node]
        own = {target for target, _ in sources.pairs()}
        for name, schedule in stored.items():
            if name not in wanted and isinstance(schedule.target, SyncTarget):
                kept = schedule.target not in own and any(
                    _has(node, schedule.target, alone=schedule.target.source not in sources.by_id)
                    for node in others
                )
                changes.append(SourceChange(name, "kept" if kept else "deleted"))
        return sorted(changes, key=lambda change: change.name)

    async def write(self, sources: Sources, own_node: str = "") -> list[SourceChange]:
        """By name, also if several nodes do it at once: of one name there is one schedule. The
        same definition is not touched, so it keeps its next slot."""
        changes = await self.plan(sources, own_node)
        await self._carry_out(changes, sources)
        return changes

    async def clear_up(self, sources: Sources, own_node: str = "") -> None:
        """What has changed since `write` because nodes came or went. Those with other files are
        let have their way: only pairs that nobody has lose their schedules, only those that
        somebody has get them, and none is changed; otherwise two nodes would do and undo for
        ever."""
        changes = await self.plan(sources, own_node)
        own = {task_name(target): target.key for target, _ in sources.pairs()}
        named = {key for node in await self._alive() for key in node.defaults}
        due = [
            change
            for change in changes
            if (change.what == "deleted" and change.name not in own)
            or (change.what == "created" and own[change.name] in named)
        ]
        await self._carry_out(due, sources)

    async def _carry_out(self, changes: list[SourceChange], sources: Sources) -> None:
        wanted = self._wanted(sources)
        for change in changes:
            if change.what in ("created", "updated"):
                try:
                    await self._syncing.upsert(wanted[change.name])
                except InvalidInput as error:
                    raise InvalidInput(
                        say(
                            "collection {name}: {problem}",
                            name=change.name,
                            problem=error.message,
                        ),
                        field=error.field,
                        code=error.code,
                        hint=error.hint,
                    ) from error
            elif change.what == "deleted":
                found = await self._syncing.find(change.name)
                if found is not None:
                    with contextlib.suppress(NotFound):
                        await self._services.schedules.delete(FILE_ACTOR, found.id)

    def _word(self, complete: Complete, stored: Schedule | None) -> Word:
        if stored is None:
            return "created"
        return "unchanged" if updated(complete, stored) == stored else "updated"

    def _wanted(self, sources: Sources) -> dict[str, Complete]:
        found: dict[str, Complete] = {}
        for target, collection in sources.pairs():
            if collection.trigger is None:
                continue
            declared = Declared(
                name=task_name(target), trigger=collection.trigger, target=target, mode=Mode.DB
            )
            found[declared.name] = Complete(
                declared=declared,
                policy=task_policy(
                    target,
                    timeout=collection.timeout,
                    misfire_grace=self._settings.misfire_grace,
                ),
                priority=collection.priority,
                default_timezone=self._settings.default_timezone,
            )
        return found

    async def _stored(self) -> dict[str, Schedule]:
        """Those that a file asked for; whoever else uses the namespace is left alone."""
        found: dict[str, Schedule] = {}
        query = ScheduleQuery(namespace=SYNC_NAMESPACE, limit=_PAGE)
        while True:
            page = await self._services.schedules.find(FILE_ACTOR, query)
            for each in page.items:
                if isinstance(each.target, SyncTarget) and each.name == task_name(each.target):
                    found.setdefault(each.name, each)
            if page.next is None:
                return found
            query = replace(query, after=page.next)

    async def _alive(self) -> list[Node]:
        store = self._services.store
        now = await store.now()
        return [node for node in await store.nodes() if node.lease_until > now]


def _has(node: Node, target: SyncTarget, *, alone: bool) -> bool:
    """Whether it has the pair in its file. `alone`: nobody here knows the source, so that whoever
    offers it decides about all of it."""
    return target.key in node.defaults or (alone and target.needs in node.offers)
