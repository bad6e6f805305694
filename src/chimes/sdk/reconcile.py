"""Reconciles the declared schedules of an application with the store.

Schedules of mode db are created or updated in the store; those of mode memory are handed to the
memory scheduler, or moved into the store by a backfill.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chimes.errors import AlreadyExists, InvalidInput, InvalidTrigger, NotFound, StoreUnavailable
from chimes.i18n import _
from chimes.model import replace
from chimes.model.access import Actor
from chimes.model.ids import ScheduleId, declared_id, declared_ids
from chimes.model.listing import ScheduleQuery
from chimes.model.policy import Overlap, Policy, RunDefaults, apply_task_defaults
from chimes.model.schedule import Dependency, Schedule, clear_source_marker, is_detached, plan_after
from chimes.model.target import HttpTarget, TaskTarget
from chimes.model.validation import validate_policy, validate_schedule
from chimes.runtime.composition import Runtime, Services
from chimes.sdk.arguments import with_suggestion
from chimes.sdk.capabilities import AppCapabilities
from chimes.sdk.declare import (
    Declaration,
    Mode,
    ResolvedDeclaration,
    apply_declaration,
    check_memory_mode,
    dependency_order,
    new_schedule,
)
from chimes.sdk.flows import AppFlow
from chimes.sdk.memory_mode import LocalSchedule, ids_from_runs
from chimes.services.schedules.rules import default_policy, with_default_zones
from chimes.services.schedules.service import unused_declared_id
from chimes.targets.python import Registry
from chimes.triggers import NEVER_FIRES, OnRunEnd

logger = logging.getLogger("chimes.runtime")
#: Attempts of an upsert that loses races against other nodes.
_ATTEMPTS = 20
_SUGGESTED_NAMES = 1000
#: Schedules of one name that are compared.
_SAME_NAME = 100
IdOf = Callable[[str], Awaitable[ScheduleId]]


class ScheduleReconciler:
    """Stored schedules of one namespace, in which the name identifies a schedule."""

    def __init__(self, services: Services, actor: Actor, namespace: str) -> None:
        self._services = services
        self._actor = actor
        self._namespace = namespace

    async def find(self, name: str) -> Schedule | None:
        """By name. If there are several, the one declared by code, else the oldest."""
        query = ScheduleQuery(namespace=self._namespace, name=name, limit=_SAME_NAME)
        page = await self._services.schedules.find(self._actor, query)
        declared = declared_ids(self._namespace, name)
        return min(page.items, key=lambda each: each.id not in declared, default=None)

    async def get(self, name: str) -> Schedule:
        schedule = await self.find(name)
        if schedule is None:
            query = ScheduleQuery(namespace=self._namespace, limit=_SUGGESTED_NAMES)
            page = await self._services.schedules.find(self._actor, query)
            raise NotFound(
                with_suggestion(
                    _("there is no schedule {name!r}", name=name),
                    name,
                    (each.name for each in page.items),
                )
            )
        return schedule

    async def id_of(self, name: str) -> ScheduleId:
        """The id of the stored schedule, or the one that it would be created with."""
        for _attempt in range(_ATTEMPTS):
            schedule = await self.find(name)
            if schedule is not None:
                return schedule.id
            with contextlib.suppress(AlreadyExists):
                return await self._unused_id(name)
        raise _contended(name)

    async def upsert(self, resolved: ResolvedDeclaration) -> Schedule:
        """Creates or updates the schedule by name; safe if several nodes do it at once. Writes
        nothing if nothing differs."""
        name = resolved.declared.name
        for _attempt in range(_ATTEMPTS):
            stored = await self.find(name)
            try:
                if stored is None:
                    return await self._create(resolved)
                updated = apply_declaration(resolved, stored)
                if is_detached(updated):
                    logger.warning(
                        "declared schedule was edited elsewhere and is not updated",
                        extra={"job_name": name},
                    )
                if updated == stored:
                    return stored
                if _same_definition(updated, stored):
                    return await self._update_call_site(resolved, stored)
                return await self._update(resolved, stored)
            except (AlreadyExists, NotFound):
                # Created by another node, or deleted, since `find`.
                continue
        raise _contended(name)

    async def insert(self, resolved: ResolvedDeclaration) -> Schedule | None:
        """Creates the schedule; None if the name is taken."""
        if await self.find(resolved.declared.name) is not None:
            return None
        try:
            return await self._create(resolved)
        except AlreadyExists:
            return None

    async def _create(self, resolved: ResolvedDeclaration) -> Schedule:
        new_id = await self._unused_id(resolved.declared.name)
        now = await self._services.store.now()
        return await self._services.schedules.create(
            self._actor, new_schedule(resolved, new_id, self._namespace, now)
        )

    async def _update(self, resolved: ResolvedDeclaration, stored: Schedule) -> Schedule:
        def edit(before: Schedule) -> Schedule:
            updated = apply_declaration(resolved, before)
            # Equal if it was detached since `find`: then it is left as it is.
            return before if _same_definition(updated, before) else updated

        return await self._services.schedules.change(self._actor, stored.id, edit)

    async def _update_call_site(self, resolved: ResolvedDeclaration, stored: Schedule) -> Schedule:
        """Writes the new call site without a new version or an audit entry: the definition is
        unchanged."""

        def edit(before: Schedule, now: datetime) -> Schedule:
            updated = apply_declaration(resolved, before)
            return updated if _same_definition(updated, before) else before

        return await self._services.store.change_schedule(stored.id, edit)

    async def _unused_id(self, name: str) -> ScheduleId:
        return await unused_declared_id(self._services.store, self._namespace, name)


def _same_definition(one: Schedule, other: Schedule) -> bool:
    return clear_source_marker(one) == clear_source_marker(other)


def _contended(name: str) -> StoreUnavailable:
    return StoreUnavailable(
        _("schedule {name!r} is being changed by other nodes; try again", name=name)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class BackfillResult:
    """One declared schedule that a backfill wrote, or would write, into the store."""

    name: str
    #: False: a schedule of this name exists and stays as it is.
    created: bool
    schedule: Schedule


class Declarations:
    """The declared schedules of one application."""

    def __init__(
        self, namespace: str, registry: Registry, flows: Mapping[str, AppFlow[Any, Any]]
    ) -> None:
        self._namespace = namespace
        self._registry = registry
        self._capabilities = AppCapabilities(registry, flows)
        self._declared: dict[str, Declaration] = {}
        #: Ids of the stored schedules, by name.
        self._ids: dict[str, ScheduleId] = {}
        #: Names of schedules that ended before they were created.
        self._ended: set[str] = set()

    def add(self, declared: Declaration) -> None:
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
            check_memory_mode(declared)
        self._check_concurrency(declared)
        self._declared[declared.name] = declared

    def __bool__(self) -> bool:
        return bool(self._declared)

    def __contains__(self, name: object) -> bool:
        return name in self._declared

    def __getitem__(self, name: str) -> Declaration:
        return self._declared[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._declared)

    def modes(self, runtime: Runtime) -> dict[str, Mode]:
        """`use_db_driven_scheduling` decides for declarations without a mode."""
        default = Mode.DB if runtime.settings.use_db_driven_scheduling else Mode.MEMORY
        return {name: each.mode or default for name, each in self._declared.items()}

    def in_mode(self, runtime: Runtime, mode: Mode) -> list[str]:
        """Names in the order of their dependencies."""
        modes = self.modes(runtime)
        dependencies = {
            name: each.depends_on.name if each.depends_on else _source_name(each)
            for name, each in self._declared.items()
        }
        return [name for name in dependency_order(dependencies) if modes[name] is mode]

    # --- mode db ------------------------------------------------------------------------------
    async def sync(self, runtime: Runtime) -> list[Schedule]:
        """Writes the schedules of mode db; returns them as they are stored now."""
        reconciler = self._reconciler(runtime)
        written: list[Schedule] = []
        for name in self.in_mode(runtime, Mode.DB):
            await self._check_dependency(runtime, name, reconciler)
            resolved = await self._resolve(runtime, name, reconciler.id_of)
            try:
                stored = await reconciler.upsert(resolved)
            except InvalidTrigger as error:
                if error.code != NEVER_FIRES:
                    raise _with_name(name, error) from error
                if name not in self._ended:
                    logger.warning(
                        "declared schedule has ended and is not created", extra={"job_name": name}
                    )
                self._ended.add(name)
                continue
            except InvalidInput as error:
                raise _with_name(name, error) from error
            self._ids[name] = stored.id
            written.append(stored)
        return written

    async def backfill(
        self, runtime: Runtime, only: Iterable[str] | None, *, confirm: bool
    ) -> list[BackfillResult]:
        """Inserts the schedules of mode memory, or those named, into the store unless the name is
        taken. Without `confirm` nothing is written."""
        reconciler = self._reconciler(runtime)
        results: list[BackfillResult] = []
        for name in self._selected(runtime, only):
            resolved = await self._resolve(runtime, name, reconciler.id_of)
            created = await reconciler.insert(resolved) if confirm else None
            stored = created or await reconciler.find(name)
            if stored is None:
                now = await runtime.services.store.now()
                draft = new_schedule(resolved, await reconciler.id_of(name), self._namespace, now)
                prepared = runtime.services.schedules.prepare(runtime.actor, draft, now)
                results.append(BackfillResult(name=name, created=True, schedule=prepared))
                continue
            results.append(BackfillResult(name=name, created=created is not None, schedule=stored))
        return results

    def _selected(self, runtime: Runtime, only: Iterable[str] | None) -> list[str]:
        if only is None:
            return self.in_mode(runtime, Mode.MEMORY)
        selected = set(only)
        for name in sorted(selected - self._declared.keys()):
            raise NotFound(
                with_suggestion(
                    _("there is no schedule {name!r} in this application", name=name),
                    name,
                    self._declared,
                )
            )
        names = [*self.in_mode(runtime, Mode.DB), *self.in_mode(runtime, Mode.MEMORY)]
        return [name for name in names if name in selected]

    # --- mode memory, and fallback ------------------------------------------------------------
    async def local_schedules(self, runtime: Runtime) -> list[LocalSchedule]:
        """All declared schedules: those of mode db as they are stored, those of mode memory as
        they would be stored."""
        store, reconciler = runtime.services.store, self._reconciler(runtime)
        in_store = self.in_mode(runtime, Mode.DB)
        if any(name not in self._ids and name not in self._ended for name in in_store):
            await self.sync(runtime)
        schedules: list[LocalSchedule] = []
        for name in in_store:
            stored = await store.get_schedule(self._ids[name]) if name in self._ids else None
            if stored is None or stored.deleted_at is not None:
                stored = await reconciler.find(name)
            if stored is not None:
                self._ids[name] = stored.id
                schedules.append(LocalSchedule(schedule=stored, memory_mode=False))
        for name in self.in_mode(runtime, Mode.MEMORY):
            schedule = await self.memory_schedule(runtime, name)
            schedules.append(LocalSchedule(schedule=schedule, memory_mode=True))
        return schedules

    async def local_schedules_from_runs(self, runtime: Runtime) -> list[LocalSchedule]:
        """All declared schedules while the schedules table cannot be read: their ids come from
        their runs, or are those of the first generation."""
        ids = await ids_from_runs(runtime.services.store, self._namespace, self._declared)

        async def id_of(name: str) -> ScheduleId:
            return ids.get(name) or declared_id(self._namespace, name, 1)

        modes = self.modes(runtime)
        return [
            LocalSchedule(
                schedule=await self._build_schedule(runtime, name, id_of),
                memory_mode=modes[name] is Mode.MEMORY,
            )
            for name in self._declared
        ]

    async def memory_schedule(self, runtime: Runtime, name: str) -> Schedule:
        """A schedule of mode memory as it would be stored."""
        return await self._build_schedule(runtime, name, self._reconciler(runtime).id_of)

    async def _build_schedule(self, runtime: Runtime, name: str, id_of: IdOf) -> Schedule:
        resolved = await self._resolve(runtime, name, id_of)
        schedule_id = await id_of(name)
        now = await runtime.services.store.now()
        schedule = new_schedule(resolved, schedule_id, self._namespace, now)
        calendars = runtime.services.schedules.rules.calendars
        trigger = await calendars.resolve(schedule.trigger)
        return plan_after(validate_schedule(replace(schedule, trigger=trigger)), now)

    # --- resolution ---------------------------------------------------------------------------
    def _reconciler(self, runtime: Runtime) -> ScheduleReconciler:
        return ScheduleReconciler(runtime.services, runtime.actor, self._namespace)

    async def _resolve(self, runtime: Runtime, name: str, id_of: IdOf) -> ResolvedDeclaration:
        declared = self._declared[name]
        trigger = declared.trigger
        if isinstance(trigger, OnRunEnd) and trigger.schedule in self._declared:
            # A schedule of the same application is named, as in `depends_on`.
            source = await id_of(trigger.schedule)
            declared = replace(declared, trigger=replace(trigger, schedule=source))
        depends_on = None
        if declared.depends_on is not None:
            other = await id_of(declared.depends_on.name)
            depends_on = Dependency(schedule_id=other, within=declared.depends_on.within)
        base, priority = await self._defaults(runtime, declared)
        if declared.trigger.on_event:
            base = replace(base, overlap=Overlap.QUEUE)
        policy, zone = replace(base, **declared.policy), runtime.settings.default_timezone
        return ResolvedDeclaration(
            declared=declared,
            # Completed as on saving, so that the comparison with the stored policy is exact.
            policy=validate_policy(
                with_default_zones(policy, zone, declared.trigger), declared.target
            ),
            priority=priority,
            default_timezone=zone,
            depends_on=depends_on,
        )

    async def _defaults(self, runtime: Runtime, declared: Declaration) -> tuple[Policy, int]:
        """Policy and priority where the declaration sets none: those of the target itself, which
        may belong to another application."""
        policy, priority = default_policy(runtime.settings, declared.target), 0
        defaults = self._capabilities.get(declared.target.requirement)
        if defaults is None and not isinstance(declared.target, HttpTarget):
            defaults = await self._defaults_elsewhere(runtime, declared)
        if defaults is not None:
            policy, priority = apply_task_defaults(policy, defaults.policy, ()), defaults.priority
        return policy, priority if declared.priority is None else declared.priority

    async def _defaults_elsewhere(
        self, runtime: Runtime, declared: Declaration
    ) -> RunDefaults | None:
        rules = runtime.services.schedules.rules
        try:
            return await rules.get_run_defaults(declared.target)
        except InvalidInput as error:
            if error.code not in ("unknown_task", "unknown_flow"):
                raise
            # Another application has it, whose worker may not be up yet.
            logger.warning(
                "a schedule waits for a worker",
                extra={"schedule": declared.name, "why": str(error)},
            )
            return None

    def _check_concurrency(self, declared: Declaration) -> None:
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

    async def _check_dependency(
        self, runtime: Runtime, name: str, reconciler: ScheduleReconciler
    ) -> None:
        depends_on = self._declared[name].depends_on
        if depends_on is None:
            return
        if depends_on.name not in self._declared and await reconciler.find(depends_on.name) is None:
            raise InvalidInput(
                with_suggestion(
                    _(
                        "schedule {name!r} depends on {other!r}, which does not exist",
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
                    "schedule {name!r} (mode db) depends on {other!r} (mode memory), which is not "
                    "in the store; declare both with the same mode",
                    name=name,
                    other=depends_on.name,
                ),
                field="depends_on",
                code="needs_db",
            )


def _with_name(name: str, error: InvalidInput) -> InvalidInput:
    return InvalidInput(
        _("schedule {name!r}: {problem}", name=name, problem=error.message),
        field=error.field,
        code=error.code,
        hint=error.hint,
    )


def _source_name(declared: Declaration) -> str | None:
    """The schedule whose runs start this one."""
    trigger = declared.trigger
    return trigger.schedule if isinstance(trigger, OnRunEnd) else None
