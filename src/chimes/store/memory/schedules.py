"""Schedules and firing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from chimes.errors import AlreadyExists, NotFound
from chimes.failpoints import hit
from chimes.i18n import _
from chimes.model.access import AuditEntry, Owner, Quota
from chimes.model.ids import RunId, ScheduleId
from chimes.model.listing import Page, ScheduleQuery
from chimes.model.planning import (
    FireContext,
    FirePlan,
    cancels_only_own_runs,
    concurrency_key,
    runs_to_insert,
)
from chimes.model.run import Reason, Run, cancel
from chimes.model.schedule import Schedule, counts_against, quota_exceeded, stop_with_error
from chimes.store.memory.base import MemoryBase
from chimes.store.port import ClaimRequest, FireResult, Planner, ScheduleChange, ScheduleEdit
from chimes.store.selection import group_by_zone, matches_schedule, select_schedules


class MemorySchedules(MemoryBase):
    async def add_schedule(
        self, schedule: Schedule, audit: AuditEntry | None = None, *, quotas: Sequence[Quota] = ()
    ) -> Schedule:
        with self._lock:
            if schedule.id in self._state.schedules:
                raise AlreadyExists(_("schedule {id} exists already", id=schedule.id))
            self._check_quotas(None, schedule, quotas)
            self._state.put_schedule(schedule)
            self._audit(audit)
        await self._commit()
        self.wake()
        return schedule

    def _check_quotas(
        self, before: Schedule | None, after: Schedule, quotas: Sequence[Quota]
    ) -> None:
        every = self._state.schedules.values()
        for quota in quotas:
            if counts_against(after, quota) and not (before and counts_against(before, quota)):
                owned = sum(s.owner == after.owner and counts_against(s, quota) for s in every)
                if owned >= quota.limit:
                    raise quota_exceeded(after.owner, quota)

    async def get_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        return self._state.schedules.get(schedule_id)

    async def change_schedule(
        self,
        schedule_id: ScheduleId,
        change: ScheduleChange,
        audit: AuditEntry | None = None,
        *,
        runs: Callable[[Schedule, datetime], Sequence[Run]] | None = None,
        quotas: Sequence[Quota] = (),
        deleted: bool = False,
    ) -> Schedule:
        with self._lock:
            now = self._clock.now()
            before = self._present(schedule_id, deleted=deleted)
            after = change(before, now)
            self._check_quotas(before, after, quotas)
            self._put_changed(after, runs(before, now) if runs else (), now)
            self._audit(audit)
        await self._commit()
        self.wake()
        return after

    async def change_schedules(self, edits: Sequence[ScheduleEdit]) -> tuple[Schedule, ...]:
        with self._lock:
            now = self._clock.now()
            found = [(edit, self._present(edit.schedule_id)) for edit in edits]
            # Compute all before the first write: each may raise.
            changed = [
                (edit, edit.change(before, now), edit.runs(before, now) if edit.runs else ())
                for edit, before in found
            ]
            for edit, after, new in changed:
                self._put_changed(after, new, now)
                self._audit(edit.audit)
        await self._commit()
        self.wake()
        return tuple(after for _edit, after, _runs in changed)

    def _present(self, schedule_id: ScheduleId, *, deleted: bool = False) -> Schedule:
        found = self._state.schedules.get(schedule_id)
        if found is None or (found.deleted_at is not None and not deleted):
            raise NotFound(_("schedule {id} not found", id=schedule_id))
        return found

    def _put_changed(self, after: Schedule, new: Sequence[Run], now: datetime) -> None:
        for run in new:
            if self._state.insert_run(run):
                self._post(run, now)
        self._state.put_schedule(after)
        if after.deleted_at is None:
            return
        for run in self._state.waiting_of(after.id):
            ended = cancel(run, Reason.SCHEDULE_DELETED, now)
            self._state.put_run(ended)
            self._post(ended, now)
            # Runs of other schedules may share its concurrency key.
            self._unblock(ended)
            self._abandon_children(ended, now)

    async def list_schedules(self, query: ScheduleQuery) -> Page[Schedule]:
        with self._lock:
            return select_schedules(self._state.schedules.values(), query)

    async def count_schedules(self, query: ScheduleQuery) -> int:
        with self._lock:
            every = replace(query, after=None, limit=None)
            return len(select_schedules(self._state.schedules.values(), every).items)

    async def next_due(self) -> datetime | None:
        with self._lock:
            return self._state.next_due()

    async def zones_in_use(self, owner: Owner | None = None) -> dict[str, tuple[ScheduleId, ...]]:
        query = ScheduleQuery(owner=owner, enabled=True)
        with self._lock:
            return group_by_zone(
                (each.trigger.zone, each.id)
                for each in self._state.schedules.values()
                if each.next_run_at is not None and matches_schedule(each, query)
            )

    async def fire_due(
        self,
        plan: Planner,
        *,
        limit: int,
        request: ClaimRequest | None = None,
        prefetch: timedelta = timedelta(0),
    ) -> FireResult:
        with self._lock:
            now = self._clock.now()
            due = self._state.due(now, limit)
            inserted: list[Run] = []
            plans: list[tuple[Schedule, FirePlan]] = []
            broken: list[Schedule] = []
            stopped = False
            for schedule in due:
                try:
                    firing = plan(schedule, self._context(schedule), now)
                except Exception as error:
                    broken.append(stop_with_error(schedule, f"{type(error).__name__}: {error}"))
                    self._state.put_schedule(broken[-1])
                else:
                    inserted.extend(self._fire(firing, now))
                    plans.append((schedule, firing))
                    stopped |= bool(firing.cancel)
            taken = self._claim_new(inserted, request, now)
            others = tuple(self._state.runs[r.id] for r in inserted if r.id not in taken)
        if due:
            hit("fire.before_commit")
            await self._commit()
        if stopped or any(run.claimable for run in others):
            self.wake()
        return FireResult(
            claimed=tuple(taken.values()),
            others=others,
            plans=tuple(plans),
            broken=tuple(broken),
            more=len(due) == limit,
        )

    def _context(self, schedule: Schedule) -> FireContext:
        depends_on = schedule.depends_on
        other = self._state.schedules.get(depends_on.schedule_id) if depends_on else None
        admitted = self._state.admitted(concurrency_key(schedule))
        others = [r.id for r in admitted if r.schedule_id != schedule.id]
        return FireContext(
            admitted=tuple(run.id for run in admitted),
            others=frozenset(others if cancels_only_own_runs(schedule) else ()),
            dependency_succeeded_at=other.last_success_at if other else None,
        )

    def _fire(self, firing: FirePlan, now: datetime) -> list[Run]:
        free = {run.id for run in firing.runs if self._state.existing(run) is None}
        inserted = [run for run in runs_to_insert(firing.runs, free) if self._state.insert_run(run)]
        for run in inserted:
            self._post(run, now)
        self._state.put_schedule(firing.schedule)
        for run_id in firing.cancel if inserted else ():
            self._cancel(self._state.runs[run_id], Reason.REPLACED, now)
        return inserted

    def _claim_new(
        self, inserted: Sequence[Run], request: ClaimRequest | None, now: datetime
    ) -> dict[RunId, Run]:
        if request is None or not self._state.alive(request.node_id, now):
            return {}
        claimable = [
            current
            for run in inserted
            if (current := self._state.runs[run.id]).claimable
            and current.available_at <= now
            and current.target.requirement in request.capabilities
        ]
        return self._hand_out(claimable, request, now)
