"""The numbers behind the dashboard, each for whoever asks: an operator or admin sees those of all
owners, anybody else its own, and what belongs to others is as if it were not there (S04)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from chimes.errors import NotAllowed
from chimes.model.access import Actor, Owner
from chimes.model.attention import Attentions
from chimes.model.ids import ScheduleId
from chimes.model.insights import (
    EVERY_RUN,
    GLANCE_RESULTS,
    ErrorGroups,
    Glance,
    LagBucket,
    Result,
    RunFilter,
    ScheduleCounts,
    Tally,
    Window,
    glance_at,
    median_duration,
)
from chimes.model.lags import Lags
from chimes.model.listing import ScheduleQuery
from chimes.model.run import Run
from chimes.service.fire_log import (
    EVERYTHING,
    FireLogPage,
    FireLogPosition,
    FireLogWish,
    fire_log,
)
from chimes.store.port import Store

#: From when on a slot that has not begun counts as late.
LATE = timedelta(minutes=1)
EVERY_SCHEDULE = ScheduleQuery()


class InsightService:
    def __init__(self, store: Store) -> None:
        self._store = store

    # --- schedules ----------------------------------------------------------------------------
    async def schedule_counts(
        self, actor: Actor, query: ScheduleQuery = EVERY_SCHEDULE, *, failing: bool = False
    ) -> ScheduleCounts:
        if not actor.sees_everything:
            query = replace(query, owner=actor.owner)
        return await self._store.schedule_counts(query, failing=failing)

    async def glances(
        self, actor: Actor, schedule_ids: Collection[ScheduleId]
    ) -> dict[ScheduleId, Glance]:
        """Of those that have any runs."""
        found = await self._newest(actor, schedule_ids, GLANCE_RESULTS)
        return {schedule_id: glance_at(results) for schedule_id, results in found.items()}

    async def expected_durations(
        self, actor: Actor, schedule_ids: Collection[ScheduleId]
    ) -> dict[ScheduleId, timedelta]:
        """Of those with a success among their newest results (`median_duration`)."""
        found = await self._newest(actor, schedule_ids, GLANCE_RESULTS)
        medians = {name: median_duration(results) for name, results in found.items()}
        return {name: length for name, length in medians.items() if length is not None}

    async def results(
        self, actor: Actor, schedule_ids: Collection[ScheduleId], *, each: int
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        """Of each its newest runs, newest first: more than a glance has."""
        return await self._newest(actor, schedule_ids, each)

    async def points(
        self, actor: Actor, schedule_id: ScheduleId, *, limit: int = 200
    ) -> tuple[Result, ...]:
        """Its newest runs, newest first: for charts of durations and lags."""
        found = await self._newest(actor, [schedule_id], limit)
        return found.get(schedule_id, ())

    async def _newest(
        self, actor: Actor, schedule_ids: Collection[ScheduleId], each: int
    ) -> dict[ScheduleId, tuple[Result, ...]]:
        owner = _seen_by(actor)
        return await self._store.newest_results(schedule_ids, each=each, owner=owner)

    async def attention(
        self, actor: Actor, *, late: timedelta = LATE, limit: int = 20
    ) -> Attentions:
        return await self._store.needing_attention(_seen_by(actor), late=late, limit=limit)

    async def fire_log(
        self,
        actor: Actor,
        schedule_id: ScheduleId,
        *,
        wish: FireLogWish = EVERYTHING,
        after: FireLogPosition | None = None,
        limit: int = 50,
    ) -> FireLogPage:
        """What became of its slots, and who changed that, newest first. NotFound."""
        return await fire_log(self._store, actor, schedule_id, wish=wish, after=after, limit=limit)

    # --- runs ---------------------------------------------------------------------------------
    async def run_totals(
        self, actor: Actor, window: Window, filter_: RunFilter = EVERY_RUN
    ) -> Tally:
        (tally,) = await self._store.count_runs(window, _seen(actor, filter_))
        return tally

    async def run_buckets(
        self, actor: Actor, window: Window, step: timedelta, filter_: RunFilter = EVERY_RUN
    ) -> tuple[Tally, ...]:
        return await self._store.count_runs(window, _seen(actor, filter_), step=step)

    async def error_groups(
        self, actor: Actor, window: Window, filter_: RunFilter = EVERY_RUN, *, limit: int = 20
    ) -> ErrorGroups:
        return await self._store.error_groups(window, _seen(actor, filter_), limit=limit)

    async def held(self, actor: Actor, *, limit: int) -> tuple[Run, ...]:
        """Those that run just now, the longest first."""
        return await self._store.running_now(_seen_by(actor), limit=limit)

    # --- lags ---------------------------------------------------------------------------------
    async def lag(self, actor: Actor, window: Window) -> Lags:
        (bucket,) = await self._store.run_lags(window, _seen_by(actor))
        return bucket.lags

    async def lag_series(
        self, actor: Actor, window: Window, step: timedelta, *, by_node: bool = False
    ) -> tuple[LagBucket, ...]:
        """By node: for those who see everything. NotAllowed."""
        if by_node and not actor.sees_everything:
            raise NotAllowed()
        return await self._store.run_lags(window, _seen_by(actor), step=step, by_node=by_node)


def _seen_by(actor: Actor) -> Owner | None:
    return None if actor.sees_everything else actor.owner


def _seen(actor: Actor, filter_: RunFilter) -> RunFilter:
    return filter_ if actor.sees_everything else replace(filter_, owner=actor.owner)
