"""Example schedules with a made-up past, for whoever wants to look before there is anything to see:
loaded once, removed without a trace in the numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from chimes.errors import NotAllowed, NotFound
from chimes.model.access import SYSTEM_OWNER, Actor
from chimes.model.audit import AuditEntry
from chimes.model.listing import RunQuery
from chimes.model.schedule import deleted
from chimes.model.target import TaskTarget
from chimes.service.audit import entry
from chimes.service.demo_history import EXAMPLES, TASK, demo_ids, story_of
from chimes.service.demo_messages import message_ids, messages_of
from chimes.store.port import Item, RunLog, Store

_STATE = "demo"
_NEEDS = TaskTarget(name=TASK).needs
_BATCH = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kept:
    #: An id is never used again: each loading after a removal has its own.
    generation: int = 0
    #: `loading`, `loaded` or `removed`.
    state: str = "removed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    schedules: int = 0
    runs: int = 0


class DemoService:
    """For admins: the examples belong to the system."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def loaded(self, actor: Actor) -> bool:
        """Whether there is anything of it, for somebody who would see it."""
        if not actor.may_see(SYSTEM_OWNER):
            return False
        return (await self._kept()).state != "removed"

    async def load(self, actor: Actor, *, live: bool | None = None) -> int:
        """How many schedules were added; 0 if the demo is there. `live`: whether there is a node
        that carries the examples out (None: look), otherwise they are paused. Loading that was
        interrupted is taken up again."""
        _administers(actor)
        kept = await self._kept()
        if kept.state == "loaded":
            return 0
        generation = kept.generation + (kept.state == "removed")
        now = await self._store.now()
        if live is None:
            live = any(
                node.lease_until > now and _NEEDS in node.offers
                for node in await self._store.nodes()
            )
        await self._keep(_Kept(generation=generation, state="loading"), None)
        # Straight into the store, so that nobody is told of what never happened.
        batch: list[Item] = []
        for item in _items(generation, now, live=live):
            batch.append(item)
            if len(batch) == _BATCH:
                await self._store.load(batch)
                batch = []
        await self._store.load(batch)
        await self._keep(
            _Kept(generation=generation, state="loaded"), _note(actor, "load_demo", now)
        )
        return len(EXAMPLES)

    async def remove(self, actor: Actor) -> Removed:
        """The examples, all their runs, and what they are said to have delivered; also those that
        somebody has changed or run since."""
        _administers(actor)
        kept = await self._kept()
        if kept.state == "removed":
            return Removed()
        now = await self._store.now()
        schedules = runs = 0
        for schedule_id in demo_ids(kept.generation):
            try:
                await self._store.change_schedule(
                    schedule_id, lambda before, at: deleted(before, at, actor.name)
                )
                schedules += 1
            except NotFound:
                pass
            query = RunQuery(schedule_id=schedule_id, limit=_BATCH)
            while page := (await self._store.list_runs(query)).items:
                forgotten = await self._store.forget_runs([run.id for run in page])
                runs += forgotten
                if not forgotten:
                    # Still under way; they are forgotten with all the others one day.
                    break
        await self._store.forget_inbox(message_ids(kept.generation))
        await self._keep(
            _Kept(generation=kept.generation, state="removed"), _note(actor, "remove_demo", now)
        )
        return Removed(schedules=schedules, runs=runs)

    async def _kept(self) -> _Kept:
        state = await self._store.read_state(_STATE)
        return _Kept() if state is None else _Kept(**json.loads(state.value))

    async def _keep(self, kept: _Kept, note: AuditEntry | None) -> None:
        value = json.dumps({"generation": kept.generation, "state": kept.state})
        await self._store.set_state(_STATE, value, note)


def _items(generation: int, now: datetime, *, live: bool) -> Iterator[Item]:
    stories = {each.slug: story_of(each, generation, now, live=live) for each in EXAMPLES}
    for story in stories.values():
        yield story.schedule
        yield from story.runs
        for run in story.runs:
            if run.id in story.logs:
                yield RunLog(run_id=run.id, entries=story.logs[run.id])
    yield from messages_of(stories, generation, now)


def _note(actor: Actor, verb: str, now: datetime) -> AuditEntry:
    return entry(actor, verb, "demo", _STATE, at=now, owner=SYSTEM_OWNER)


def _administers(actor: Actor) -> None:
    if not actor.administers:
        raise NotAllowed()
