"""Creating and changing schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from chimes.errors import AlreadyExists, Conflict, NotFound
from chimes.i18n import _
from chimes.model.access import AuditEntry, Quota
from chimes.model.ids import RunId, ScheduleId, canonical_namespace
from chimes.model.run import Reason, Run, cancel
from chimes.model.schedule import Schedule, counts_against, quota_exceeded
from chimes.store.port import ScheduleChange, ScheduleEdit
from chimes.store.redis.base import WriteConflict
from chimes.store.redis.completion import CompletionEffects
from chimes.store.redis.due_schedules import RedisFiring
from chimes.store.redis.rows import all_fields, corrupt_parts, new_fields, outbox_rows, task_row
from chimes.store.redis.wire import Wire, flag, micros, moment, rows, text


class RedisSchedules(RedisFiring):
    async def add_schedule(
        self, schedule: Schedule, audit: AuditEntry | None = None, *, quotas: Sequence[Quota] = ()
    ) -> Schedule:
        expected: list[Wire] = [["schedule", schedule.id, "", ""]]
        expected += _counted(None, schedule, quotas)
        ops: list[Wire] = [["schedule", schedule.id, all_fields(schedule)]]
        try:
            async with self._turn(audit):
                await self._commit(expected, ops, [audit] if audit else (), wakes=True)
        except WriteConflict as conflict:
            if quota := _exceeded(conflict, quotas):
                raise quota_exceeded(schedule.owner, quota) from None
            raise AlreadyExists(_("schedule {id} exists already", id=schedule.id)) from None
        self.wake()
        return schedule

    async def get_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        _unused, found = await self._read_schedule(schedule_id)
        return found[0] if found else None

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
        async def attempt() -> Schedule:
            now, (answer,) = await self._ask("schedules", [schedule_id], "")
            found = rows(answer)
            if not found:
                raise _missing(schedule_id)
            before, revision = self._schedules.schedule(found[0][0])
            if before.deleted_at is not None and not deleted:
                raise _missing(schedule_id)
            after = change(before, now)
            if revision.damaged and after.deleted_at is None:
                _check_corrupt(text(found[0][0][0]), before, after)
            expected: list[Wire] = [
                ["schedule", schedule_id, revision.definition, revision.summary]
            ]
            expected += _counted(before, after, quotas)
            ops: list[Wire] = [self._insert_new(run) for run in (runs(before, now) if runs else ())]
            ops.append(["schedule", schedule_id, all_fields(after)])
            if after.deleted_at is not None:
                ending = await self._end_waiting([schedule_id], now)
                expected += ending.expected
                ops += ending.ops
            try:
                await self._commit(expected, ops, [audit] if audit else (), wakes=True)
            except WriteConflict as conflict:
                if quota := _exceeded(conflict, quotas):
                    raise quota_exceeded(after.owner, quota) from None
                raise
            return after

        after = await self._until_agreed(attempt, audit)
        self.wake()
        return after

    async def change_schedules(self, edits: Sequence[ScheduleEdit]) -> tuple[Schedule, ...]:
        audit = [edit.audit for edit in edits if edit.audit is not None]

        async def attempt() -> tuple[Schedule, ...]:
            now, (answer,) = await self._ask("schedules", [e.schedule_id for e in edits], "")
            found = {text(row[0][-1]): row[0] for row in rows(answer)}
            expected: list[Wire] = []
            ops: list[Wire] = []
            changed: list[Schedule] = []
            for edit in edits:
                record = found.get(edit.schedule_id)
                if record is None:
                    raise _missing(edit.schedule_id)
                before, revision = self._schedules.schedule(record)
                if before.deleted_at is not None:
                    raise _missing(edit.schedule_id)
                after = edit.change(before, now)
                if revision.damaged and after.deleted_at is None:
                    _check_corrupt(text(record[0]), before, after)
                expected.append(["schedule", before.id, revision.definition, revision.summary])
                new = edit.runs(before, now) if edit.runs else ()
                ops += [self._insert_new(run) for run in new]
                ops.append(["schedule", before.id, all_fields(after)])
                changed.append(after)
            gone = [each.id for each in changed if each.deleted_at is not None]
            if gone:
                ending = await self._end_waiting(gone, now)
                expected += ending.expected
                ops += ending.ops
            await self._commit(expected, ops, audit, wakes=True)
            return tuple(changed)

        async with self._turn(audit):
            after = await self._repeated(attempt)
        self.wake()
        return after

    def _insert_new(self, run: Run) -> Wire:
        fields = new_fields(run, self._runs.body(run))
        key: list[Wire] = [run.schedule_id or "", micros(run.slot)]
        return ["insert_new", run.id, fields, task_row(run), *key, *outbox_rows(run)]

    async def _end_waiting(
        self, schedule_ids: Sequence[ScheduleId], now: datetime
    ) -> CompletionEffects:
        """Cancel the queued runs of deleted schedules."""
        waiting: list[RunId] = []
        for schedule_id in schedule_ids:
            _unused, (answer,) = await self._ask("waiting", schedule_id)
            waiting += [self._runs.run(record)[0].id for record in rows(answer)]
        found: dict[RunId, tuple[Run, str]] = {}
        children: dict[RunId, list[RunId]] = {}
        if waiting:
            _unused, found, children = await self._read_family(waiting)
        settling = CompletionEffects(now, found, children)
        for run_id in waiting:
            run = settling.runs.get(run_id)
            if run is None or run.status.terminal or run.holder is not None:
                raise WriteConflict(_("a run was claimed meanwhile"))
            ended = cancel(run, Reason.SCHEDULE_DELETED, now)
            settling.put(ended)
            settling.post(ended)
            # Runs of other schedules may share its concurrency key.
            settling.unblock(ended)
            settling.abandon_children(ended)
        return settling

    async def next_due(self) -> datetime | None:
        _unused, (answer,) = await self._ask("next_due")
        return moment(text(answer)) if answer else None


def _missing(schedule_id: ScheduleId) -> NotFound:
    return NotFound(_("schedule {id} not found", id=schedule_id))


def _counted(before: Schedule | None, after: Schedule, quotas: Sequence[Quota]) -> list[Wire]:
    """For each quota that the schedule newly counts against: index, limit, whether only active ones
    count, and the sets to count. The writing script counts, so the check is atomic."""
    found: list[Wire] = []
    for number, quota in enumerate(quotas):
        if not counts_against(after, quota) or (before and counts_against(before, quota)):
            continue
        sets = [f"schedules:owner:{after.owner}"]
        if quota.namespace is not None:
            sets.append(f"schedules:namespace:{canonical_namespace(quota.namespace)}")
        found.append(["quota", str(number), str(quota.limit), flag(quota.active), *sets])
    return found


def _exceeded(conflict: WriteConflict, quotas: Sequence[Quota]) -> Quota | None:
    word, _unused, number = str(conflict).partition(":")
    return quotas[int(number)] if word == "quota" else None


def _check_corrupt(body: str, before: Schedule, after: Schedule) -> None:
    """A placeholder must not overwrite corrupt data that may still be repaired."""
    for part in sorted(corrupt_parts(body)):
        if part == "body" or getattr(after, part, None) == getattr(before, part, None):
            raise Conflict(
                _(
                    "schedule {id} cannot be read: replace the {part}, or delete it",
                    id=before.id,
                    part=part,
                ),
                code="unreadable",
            )
