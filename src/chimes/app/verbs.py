"""What an application can do with the schedules of its namespace, by name."""

from __future__ import annotations

from abc import ABC, abstractmethod

from chimes.app.declarations import Declarations
from chimes.app.declared import Mode
from chimes.app.handles import RunHandle
from chimes.app.info import ScheduleInfo, info_of
from chimes.app.reading import Moment, moment_of
from chimes.app.runtime import Runtime
from chimes.app.syncing import Syncing
from chimes.errors import Conflict, NotFound
from chimes.model.listing import ScheduleQuery, ScheduleSort
from chimes.model.planning import manual_run
from chimes.model.schedule import Schedule
from chimes.wording import say


class Verbs(ABC):
    namespace: str
    declarations: Declarations

    @abstractmethod
    def runtime(self) -> Runtime:
        """What an opened application works with."""

    @abstractmethod
    def run_handle(self, run_id: str) -> RunHandle: ...

    async def list_schedules(self, *, everywhere: bool = False) -> list[ScheduleInfo]:
        """R2.19: those of the namespace in the store, or all, by next_run_at; those without come
        last."""
        runtime = self.runtime()
        query = ScheduleQuery(
            namespace=None if everywhere else self.namespace,
            sort=ScheduleSort.NEXT_RUN_AT,
            limit=None,
        )
        page = await runtime.services.schedules.find(runtime.actor, query)
        return [info_of(each) for each in page.items]

    async def get_schedule(self, name: str) -> ScheduleInfo:
        return info_of(await self._stored(name))

    async def trigger_schedule(self, name: str) -> RunHandle:
        """R2.21, C7: a run now; next_run_at stays, and a paused schedule may be run too."""
        runtime = self.runtime()
        schedules = runtime.services.schedules
        if self._in_memory(name) and await self._syncing().find(name) is None:
            store = runtime.services.store
            schedule = await self.declarations.memory_schedule(runtime, name)
            run = manual_run(schedule, await store.now())
            return self.run_handle((await store.add_runs([run]))[0].id)
        found = await self._stored(name)
        return self.run_handle((await schedules.run_now(runtime.actor, found.id)).id)

    async def reschedule_for(self, name: str, time: Moment) -> ScheduleInfo:
        """R2.22: the next run is at `time`; the past means now. Conflict while paused."""
        runtime = self.runtime()
        to = moment_of(time, "time")
        found = await self._stored(name)
        return info_of(await runtime.services.schedules.reschedule(runtime.actor, found.id, to))

    async def set_schedule_enabled(self, name: str, enabled: bool) -> ScheduleInfo:
        """R2.23, C8: no runs until it is enabled again; then from the first slot after now on."""
        runtime = self.runtime()
        schedules = runtime.services.schedules
        found = await self._stored(name)
        verb = schedules.resume if enabled else schedules.pause
        return info_of(await verb(runtime.actor, found.id))

    async def delete_schedule(self, name: str) -> bool:
        """Whether there was one. One that is declared comes back with the next sync."""
        runtime = self.runtime()
        found = await self._syncing().find(name)
        if found is None:
            return False
        try:
            await runtime.services.schedules.delete(runtime.actor, found.id)
        except NotFound:
            return False
        return True

    async def _stored(self, name: str) -> Schedule:
        if self._in_memory(name) and await self._syncing().find(name) is None:
            raise Conflict(
                say(
                    "schedule {name!r} is timed in memory: the store cannot show or change it; "
                    "declare it with mode='db'",
                    name=name,
                ),
                code="in_memory",
            )
        return await self._syncing().get(name)

    def _in_memory(self, name: str) -> bool:
        return self.declarations.modes(self.runtime()).get(name) is Mode.MEMORY

    def _syncing(self) -> Syncing:
        runtime = self.runtime()
        return Syncing(runtime.services, runtime.actor, self.namespace)
