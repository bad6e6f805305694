"""All that one application declares, and what becomes of it: written to the store, timed here, or
moved from the one to the other."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from chimes.errors import InvalidInput, InvalidTrigger, NotFound
from chimes.i18n import _
from chimes.model.ids import ScheduleId, declared_id
from chimes.model.policy import Policy, RunDefaults, with_own
from chimes.model.schedule import Dependency, Schedule, planned
from chimes.model.target import HttpTarget, TaskTarget
from chimes.runtime.composition import Runtime
from chimes.sdk.arguments import with_nearest
from chimes.sdk.declare import Complete, Declared, Mode, Syncing, check_memory, draft, in_order
from chimes.sdk.flows import AppFlow
from chimes.sdk.memory_mode import Timed, known_ids
from chimes.services.validation import checked, checked_policy, default_policy, zoned
from chimes.targets.python import Registry
from chimes.targets.python.registry import Registry as Registry_offers
from chimes.targets.python.registry import Task, schema_of
from chimes.triggers import NEVER_FIRES

# @@ What nodes of an application can carry out, and how.

_TASK, _FLOW = "task:", "flow:"


class AppOffers(Mapping[str, RunDefaults]):
    """By `target.needs`. Looked up anew each time: tasks are declared until the node starts, and
    one answer is cheaper than all of them."""

    def __init__(self, registry: Registry_offers, flows: Mapping[str, AppFlow]) -> None:
        self._registry = registry
        self._flows = flows
        #: Asked for with every run that is started, and it takes its time to be made.
        self._schemas: dict[str, tuple[Task, dict[str, object]]] = {}

    def __getitem__(self, needs: str) -> RunDefaults:
        if needs not in self:
            raise KeyError(needs)
        if needs.startswith(_TASK):
            task = self._registry.get(needs.removeprefix(_TASK))
            return RunDefaults(
                policy=task.policy(Policy()), priority=task.priority, arguments=self._schema(task)
            )
        flow = self._flows[needs.removeprefix(_FLOW)]
        return RunDefaults(policy=flow.policy(Policy()), priority=flow.priority)

    def _schema(self, task: Task) -> dict[str, object]:
        known = self._schemas.get(task.name)
        if known is None or known[0] is not task:
            known = self._schemas[task.name] = (task, schema_of(task))
        return known[1]

    def __contains__(self, needs: object) -> bool:
        if not isinstance(needs, str):
            return False
        if needs.startswith(_TASK):
            return needs.removeprefix(_TASK) in self._registry
        return needs.startswith(_FLOW) and needs.removeprefix(_FLOW) in self._flows

    def __iter__(self) -> Iterator[str]:
        yield from (f"{_TASK}{name}" for name in self._registry.names)
        yield from (f"{_FLOW}{name}" for name in self._flows)

    def __len__(self) -> int:
        return len(self._registry) + len(self._flows)


logger = logging.getLogger("chimes.runtime")
IdOf = Callable[[str], Awaitable[ScheduleId]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Backfilled:
    """What a backfill did, or would do (R2.7)."""

    name: str
    #: False: there is a schedule of this name, which stays as it is.
    created: bool
    schedule: Schedule


class Declarations:
    def __init__(self, namespace: str, registry: Registry, flows: Mapping[str, AppFlow]) -> None:
        self._namespace = namespace
        self._registry = registry
        self._offers = AppOffers(registry, flows)
        self._declared: dict[str, Declared] = {}
        #: Ids of those that are in the store.
        self._ids: dict[str, ScheduleId] = {}
        #: Those that had ended before they were ever created.
        self._over: set[str] = set()

    def add(self, declared: Declared) -> None:
        if declared.name in self._declared:
            raise InvalidInput(
                _(
                    "two schedules are named {name!r}; give one of them another name",
                    name=declared.name,
                ),
                field="name",
                code="exists",
            )
        if declared.depends_on is not None and declared.depends_on.name == declared.name:
            raise InvalidInput(
                _("schedule {name!r} cannot depend on itself", name=declared.name),
                field="depends_on",
            )
        if declared.mode is Mode.MEMORY:
            check_memory(declared)
        self._check_limits(declared)
        self._declared[declared.name] = declared

    def __bool__(self) -> bool:
        return bool(self._declared)

    def __contains__(self, name: object) -> bool:
        return name in self._declared

    def __getitem__(self, name: str) -> Declared:
        return self._declared[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._declared)

    def modes(self, runtime: Runtime) -> dict[str, Mode]:
        """Those that say nothing go by `use_db_driven_scheduling` (R2.15)."""
        usual = Mode.DB if runtime.settings.use_db_driven_scheduling else Mode.MEMORY
        return {name: each.mode or usual for name, each in self._declared.items()}

    def in_mode(self, runtime: Runtime, mode: Mode) -> list[str]:
        """In the order in which they depend on each other."""
        modes = self.modes(runtime)
        depends = {
            name: each.depends_on.name if each.depends_on else None
            for name, each in self._declared.items()
        }
        return [name for name in in_order(depends) if modes[name] is mode]

    # --- mode db ------------------------------------------------------------------------------
    async def sync(self, runtime: Runtime) -> list[Schedule]:
        """Those in mode db, as the store has them now."""
        syncing = self._syncing(runtime)
        written: list[Schedule] = []
        for name in self.in_mode(runtime, Mode.DB):
            await self._check_dependency(runtime, name, syncing)
            complete = await self._complete(runtime, name, syncing.id_of)
            try:
                stored = await syncing.upsert(complete)
            except InvalidTrigger as error:
                if error.code != NEVER_FIRES:
                    raise _about(name, error) from error
                if name not in self._over:
                    logger.warning(
                        "a declared schedule is over and was not created", extra=_named(name)
                    )
                self._over.add(name)
                continue
            except InvalidInput as error:
                raise _about(name, error) from error
            self._ids[name] = stored.id
            written.append(stored)
        return written

    async def insert(
        self, runtime: Runtime, only: Iterable[str] | None, *, confirm: bool
    ) -> list[Backfilled]:
        """R2.7, R2.34: those of mode memory (or those named) into the store, where there is none
        of the name. Without `confirm`: what would be written."""
        syncing = self._syncing(runtime)
        done: list[Backfilled] = []
        for name in self._chosen(runtime, only):
            complete = await self._complete(runtime, name, syncing.id_of)
            created = await syncing.insert(complete) if confirm else None
            found = created or await syncing.find(name)
            if found is None:
                now = await runtime.services.store.now()
                drafted = draft(complete, await syncing.id_of(name), self._namespace, now)
                prepared = runtime.services.schedules.prepared(runtime.actor, drafted, now)
                done.append(Backfilled(name=name, created=True, schedule=prepared))
                continue
            done.append(Backfilled(name=name, created=created is not None, schedule=found))
        return done

    def _chosen(self, runtime: Runtime, only: Iterable[str] | None) -> list[str]:
        if only is None:
            return self.in_mode(runtime, Mode.MEMORY)
        wanted = set(only)
        for name in sorted(wanted - self._declared.keys()):
            raise NotFound(
                with_nearest(
                    _("there is no schedule {name!r} in this application", name=name),
                    name,
                    self._declared,
                )
            )
        both = [*self.in_mode(runtime, Mode.DB), *self.in_mode(runtime, Mode.MEMORY)]
        return [name for name in both if name in wanted]

    # --- mode memory, and fallback ------------------------------------------------------------
    async def timed(self, runtime: Runtime) -> list[Timed]:
        """All that is declared, as it stands in the store or would stand there."""
        store, syncing = runtime.services.store, self._syncing(runtime)
        in_store = self.in_mode(runtime, Mode.DB)
        if any(name not in self._ids and name not in self._over for name in in_store):
            await self.sync(runtime)
        found: list[Timed] = []
        for name in in_store:
            stored = await store.get_schedule(self._ids[name]) if name in self._ids else None
            if stored is None or stored.deleted_at is not None:
                stored = await syncing.find(name)
            if stored is not None:
                self._ids[name] = stored.id
                found.append(Timed(schedule=stored, always=False))
        for name in self.in_mode(runtime, Mode.MEMORY):
            complete = await self._complete(runtime, name, syncing.id_of)
            found.append(
                await self._here(runtime, complete, await syncing.id_of(name), always=True)
            )
        return found

    async def guessed(self, runtime: Runtime) -> list[Timed]:
        """The same for a start while the schedules cannot be read: ids as they are in the runs,
        or as they would be if nothing was ever deleted."""
        ids = await known_ids(runtime.services.store, self._namespace, self._declared)

        async def id_of(name: str) -> ScheduleId:
            return ids.get(name) or declared_id(self._namespace, name, 1)

        modes = self.modes(runtime)
        return [
            await self._here(
                runtime,
                await self._complete(runtime, name, id_of),
                await id_of(name),
                always=modes[name] is Mode.MEMORY,
            )
            for name in self._declared
        ]

    async def _here(
        self, runtime: Runtime, complete: Complete, schedule_id: ScheduleId, *, always: bool
    ) -> Timed:
        now = await runtime.services.store.now()
        schedule = checked(draft(complete, schedule_id, self._namespace, now))
        return Timed(schedule=planned(schedule, now), always=always)

    async def memory_schedule(self, runtime: Runtime, name: str) -> Schedule:
        """One in mode memory, for running it by hand."""
        syncing = self._syncing(runtime)
        complete = await self._complete(runtime, name, syncing.id_of)
        return (
            await self._here(runtime, complete, await syncing.id_of(name), always=True)
        ).schedule

    # --- parts --------------------------------------------------------------------------------
    def _syncing(self, runtime: Runtime) -> Syncing:
        return Syncing(runtime.services, runtime.actor, self._namespace)

    async def _complete(self, runtime: Runtime, name: str, id_of: IdOf) -> Complete:
        declared = self._declared[name]
        depends_on = None
        if declared.depends_on is not None:
            other = await id_of(declared.depends_on.name)
            depends_on = Dependency(schedule_id=other, within=declared.depends_on.within)
        usual, priority = await self._usual(runtime, declared)
        policy, zone = replace(usual, **declared.policy), runtime.settings.default_timezone
        return Complete(
            declared=declared,
            # All that saving would complete, so that the mark of the code fits what is written.
            policy=checked_policy(zoned(policy, zone, declared.trigger), declared.target),
            priority=priority,
            default_timezone=zone,
            depends_on=depends_on,
        )

    async def _usual(self, runtime: Runtime, declared: Declared) -> tuple[Policy, int]:
        """Policy and priority where the declaration says nothing: as the target has them itself,
        also one of another application."""
        policy, priority = default_policy(runtime.settings, declared.target), 0
        own = self._offers.get(declared.target.needs)
        if own is None and not isinstance(declared.target, HttpTarget):
            own = await runtime.services.schedules.defaults_of(declared.target)
        if own is not None:
            policy, priority = with_own(policy, own.policy, ()), own.priority
        return policy, priority if declared.priority is None else declared.priority

    def _check_limits(self, declared: Declared) -> None:
        target = declared.target
        if (
            "max_concurrent_runs" in declared.policy
            and isinstance(target, TaskTarget)
            and target.name in self._registry
            and self._registry.get(target.name).concurrency is not None
        ):
            raise InvalidInput(
                _(
                    "schedule {name!r}: task {task!r} has a concurrency of its own, "
                    "which all its runs share; leave max_concurrent_runs out",
                    name=declared.name,
                    task=target.name,
                ),
                field="max_concurrent_runs",
                code="both",
            )

    async def _check_dependency(self, runtime: Runtime, name: str, syncing: Syncing) -> None:
        depends_on = self._declared[name].depends_on
        if depends_on is None:
            return
        if depends_on.name not in self._declared and await syncing.find(depends_on.name) is None:
            raise InvalidInput(
                with_nearest(
                    _(
                        "schedule {name!r}: there is no schedule {other!r} to depend on",
                        name=name,
                        other=depends_on.name,
                    ),
                    depends_on.name,
                    self._declared,
                ),
                field="depends_on",
                code="not_found",
            )
        if self.modes(runtime).get(depends_on.name) is Mode.MEMORY:
            raise InvalidInput(
                _(
                    "schedule {name!r} (mode db) depends on {other!r}, which is timed in "
                    "memory: the store knows nothing of it",
                    name=name,
                    other=depends_on.name,
                ),
                field="depends_on",
                code="needs_db",
            )


def _about(name: str, error: InvalidInput) -> InvalidInput:
    return InvalidInput(
        _("schedule {name!r}: {problem}", name=name, problem=error.message),
        field=error.field,
        code=error.code,
        hint=error.hint,
    )


def _named(name: str) -> dict[str, object]:
    return {"job_name": name}
