"""Declared schedules into the store: created once, changed where they differ, else left alone."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from datetime import datetime
from functools import partial

from chimes.app.composition import Services
from chimes.app.declared import Complete, draft, updated
from chimes.app.reading import with_nearest
from chimes.errors import AlreadyExists, InvalidInput, NotFound, StoreUnavailable
from chimes.model.access import Actor
from chimes.model.code_mark import is_detached, unmarked
from chimes.model.ids import ScheduleId, declared_id
from chimes.model.listing import ScheduleQuery
from chimes.model.schedule import Schedule
from chimes.wording import say

logger = logging.getLogger("chimes.app")
#: How often others may get in between before we say so.
_ROUNDS = 20
_NAMES_FOR_HINT = 1000


class Syncing:
    """Schedules of one namespace, where the name is the identity (C22)."""

    def __init__(self, services: Services, actor: Actor, namespace: str) -> None:
        self._services = services
        self._actor = actor
        self._namespace = namespace

    async def find(self, name: str) -> Schedule | None:
        """By name, whoever created it; the oldest, where another door made several."""
        query = ScheduleQuery(namespace=self._namespace, name=name, limit=1)
        page = await self._services.schedules.find(self._actor, query)
        return page.items[0] if page.items else None

    async def get(self, name: str) -> Schedule:
        found = await self.find(name)
        if found is None:
            query = ScheduleQuery(namespace=self._namespace, limit=_NAMES_FOR_HINT)
            page = await self._services.schedules.find(self._actor, query)
            raise NotFound(
                with_nearest(
                    say("there is no schedule {name!r}", name=name),
                    name,
                    (each.name for each in page.items),
                )
            )
        return found

    async def id_of(self, name: str) -> ScheduleId:
        """Of the schedule that is there, or that would be created."""
        for _ in range(_ROUNDS):
            found = await self.find(name)
            if found is not None:
                return found.id
            with contextlib.suppress(AlreadyExists):
                return await self._free_id(name)
        raise _too_fast(name)

    async def upsert(self, complete: Complete) -> Schedule:
        """By (namespace, name), also if several nodes do it at once (R2, C22). Nothing is written
        where nothing differs."""
        name = complete.declared.name
        for _ in range(_ROUNDS):
            stored = await self.find(name)
            try:
                if stored is None:
                    return await self._create(complete)
                wanted = updated(complete, stored)
                if is_detached(wanted):
                    logger.warning(
                        "a declared schedule was edited elsewhere and stays as it is",
                        extra={"job_name": name},
                    )
                if wanted == stored:
                    return stored
                if unmarked(wanted) == unmarked(stored):
                    return await self._noted(complete, stored)
                return await self._services.schedules.change(
                    self._actor, stored.id, partial(_written, complete)
                )
            except (AlreadyExists, NotFound):
                # Another node created it, or somebody deleted it, since we looked.
                continue
        raise _too_fast(name)

    async def _noted(self, complete: Complete, stored: Schedule) -> Schedule:
        """Only where the code stands is new: that is no new version, and nobody's change."""

        def noted(before: Schedule, now: datetime) -> Schedule:
            wanted = updated(complete, before)
            return wanted if unmarked(wanted) == unmarked(before) else before

        return await self._services.store.change_schedule(stored.id, noted)

    async def insert(self, complete: Complete) -> Schedule | None:
        """R2.7: as INSERT .. ON CONFLICT DO NOTHING; None if there is one of this name."""
        if await self.find(complete.declared.name) is not None:
            return None
        try:
            return await self._create(complete)
        except AlreadyExists:
            return None

    async def _create(self, complete: Complete) -> Schedule:
        new_id = await self._free_id(complete.declared.name)
        now = await self._services.store.now()
        return await self._services.schedules.create(
            self._actor, draft(complete, new_id, self._namespace, now)
        )

    async def _free_id(self, name: str) -> ScheduleId:
        """The first generation that was never used. They are used in order, so it is found by
        doubling and then halving, however often the name was deleted. AlreadyExists if the last
        one is in use: somebody created it since we looked, and a second would be a double."""
        taken, free = 0, 1
        while await self._used(name, free):
            taken, free = free, free * 2
        while free - taken > 1:
            middle = (taken + free) // 2
            if await self._used(name, middle):
                taken = middle
            else:
                free = middle
        last = await self._used(name, taken) if taken else None
        if last is not None and last.deleted_at is None and last.name == name:
            raise AlreadyExists(say("schedule {name!r} exists", name=name))
        return declared_id(self._namespace, name, free)

    async def _used(self, name: str, generation: int) -> Schedule | None:
        return await self._services.store.get_schedule(
            declared_id(self._namespace, name, generation)
        )


def _written(complete: Complete, before: Schedule) -> Schedule:
    """Somebody may have edited it since we looked: then it is left alone, as a whole."""
    wanted = updated(complete, before)
    return before if unmarked(wanted) == unmarked(before) else wanted


def _too_fast(name: str) -> StoreUnavailable:
    return StoreUnavailable(say("schedule {name!r} changes too fast; try again", name=name))


def in_order(dependencies: Mapping[str, str | None]) -> list[str]:
    """Names so that what one depends on comes before it. InvalidInput for a circle."""
    ordered: list[str] = []
    for name in dependencies:
        chain: list[str] = []
        at: str | None = name
        while at is not None and at in dependencies and at not in ordered:
            if at in chain:
                circle = " -> ".join([*chain[chain.index(at) :], at])
                raise InvalidInput(
                    say(
                        "these schedules would wait for each other for ever: {circle}",
                        circle=circle,
                    ),
                    field="depends_on",
                    code="cycle",
                )
            chain.append(at)
            at = dependencies[at]
        ordered.extend(reversed(chain))
    return ordered
