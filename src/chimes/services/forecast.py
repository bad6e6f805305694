"""Forecast of the load per minute, and quieter times for a trigger; of what the actor may see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chimes.model.access import Actor
from chimes.model.forecast import (
    Forecast,
    QuieterTime,
    as_it_will_fire,
    forecast,
    quieter_times,
    runs_beside,
)
from chimes.model.ids import ScheduleId
from chimes.model.insights import MAX_SCHEDULES
from chimes.model.schedule import Schedule
from chimes.model.simulation import Outage, Simulation, simulate
from chimes.services.access import CALCULATIONS
from chimes.services.insights import InsightService
from chimes.services.maintenance import MaintenanceService
from chimes.services.schedules.service import ScheduleService
from chimes.store.port import Store
from chimes.triggers import Trigger

#: Schedules whose history is read; for others the expected time is unknown.
MAX_WITH_HISTORY = 10 * MAX_SCHEDULES
#: Runs that a simulation in the dashboard makes; the command line has no such limit.
MAX_SIMULATED_RUNS = 50_000
#: Period in which a trigger is compared with the load of others.
COMPARED = timedelta(days=7)


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    #: The trigger, with its zone and anchor.
    trigger: Trigger
    #: Runs of other schedules in the busiest minute in which it fires, and that minute.
    runs: int
    at: datetime | None
    quieter: tuple[QuieterTime, ...]


class ForecastService:
    def __init__(self, store: Store, schedules: ScheduleService) -> None:
        self._store = store
        self._schedules = schedules
        self._insights = InsightService(store)

    async def get(self, actor: Actor, span: timedelta) -> Forecast:
        """The runs per minute of the next days."""
        now = await self._store.now()
        schedules = await self._schedules.list_visible(actor)
        durations = await self.list_durations(actor, schedules)
        return await CALCULATIONS.run(lambda: forecast(schedules, durations, now, now + span))

    async def list_durations(
        self, actor: Actor, schedules: Iterable[Schedule]
    ) -> dict[ScheduleId, timedelta]:
        """Median durations of the schedules that have run."""
        ids = [each.id for each in schedules][:MAX_WITH_HISTORY]
        found: dict[ScheduleId, timedelta] = {}
        for first in range(0, len(ids), MAX_SCHEDULES):
            part = ids[first : first + MAX_SCHEDULES]
            found |= await self._insights.get_expected_durations(actor, part)
        return found

    async def simulate(
        self,
        actor: Actor,
        span: timedelta,
        *,
        capacity: int,
        default_duration: timedelta,
        with_history: bool = True,
        outages: Sequence[Outage] = (),
        most: int = MAX_SIMULATED_RUNS,
    ) -> Simulation:
        """What the planner would do with the schedules from now on, under a virtual clock."""
        now = await self._store.now()
        schedules = await self._schedules.list_visible(actor)
        durations = await self.list_durations(actor, schedules) if with_history else {}
        windows = await MaintenanceService(self._store).list_active()
        return await CALCULATIONS.run(
            lambda: simulate(
                [each for each in schedules if not each.trigger.on_event],
                now,
                now + span,
                capacity=capacity,
                durations=durations,
                default_duration=default_duration,
                outages=outages,
                windows=windows,
                keep_cursors=True,
                most=most,
            )
        )

    async def suggest(
        self, actor: Actor, trigger: Trigger, exclude: ScheduleId | None = None
    ) -> Suggestion:
        """How many other schedules fire together with the trigger, and at which minutes fewer do.
        `exclude`: the schedule whose trigger it is."""
        now = await self._store.now()
        zone = await self._schedules.rules.zone_for(actor.owner, trigger)
        resolved = await self._schedules.rules.calendars.resolve(trigger)
        resolved = resolved.with_default_zone(zone).with_default_anchor().seeded(exclude or "")
        others = [each for each in await self._schedules.list_visible(actor) if each.id != exclude]

        def compute() -> Suggestion:
            found = forecast(others, {}, now, now + COMPARED)
            loads = {each.at: each.runs for each in found.minutes}
            runs, at = runs_beside(resolved, loads, now)
            return Suggestion(
                trigger=resolved, runs=runs, at=at, quieter=quieter_times(resolved, loads, now)
            )

        return await CALCULATIONS.run(compute)

    async def suggest_for(self, actor: Actor, schedule_id: ScheduleId) -> Suggestion:
        """For a stored schedule. Raises NotFound."""
        schedule = await self._schedules.get(actor, schedule_id)
        shown = as_it_will_fire(schedule, await self._store.now())
        return await self.suggest(actor, shown.trigger, schedule.id)
