"""Runs from the queue to their completion, logs and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime

from chimes.model.access import AuditEntry
from chimes.model.change import replace
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import RunId, ScheduleId
from chimes.model.run import (
    LogEntry,
    Reason,
    Run,
    cancel,
    cancel_step,
    mark_started,
    owns_fence,
    release_or_cancel,
)
from chimes.store.port import ClaimRequest
from chimes.store.redis.base import AuditTrail
from chimes.store.redis.completion import CompletionEffects, RedisCompletions
from chimes.store.redis.rows import log_entry, log_rows, new_fields, outbox_rows, rest_of, task_row
from chimes.store.redis.wire import Wire, micros, moment, rows, text, texts, to_json


class RedisRuns(RedisCompletions):
    async def add_runs(
        self, runs: Sequence[Run], audit: AuditEntry | None = None
    ) -> tuple[Run, ...]:
        if not runs and audit is None:
            self.wake()
            return ()
        given = list(runs)
        if len(given) == 1 and audit is None:
            now, answer = await self._adding(self._new_row(given[0]))
            self.wake()
            return (self._added(given[0], answer, now),)
        asked = [self._new_row(run) for run in given]

        async def attempt(trail: AuditTrail) -> tuple[datetime, list[Wire]] | None:
            now, (answer,) = await self._tell("add", asked, trail.row)
            return None if answer == "head" else (now, rows(answer))

        async with self._turn(audit):
            (now, answers), _ = await self._appending([audit] if audit else [], attempt)
        self.wake()
        return tuple(
            self._added(run, answer, now) for run, answer in zip(given, answers, strict=True)
        )

    def _added(self, run: Run, answer: Wire, now: datetime) -> Run:
        if answer == "over":
            return replace(cancel_step(run, now), blocked=False)
        if isinstance(answer, str):
            return replace(run, blocked=answer == "blocked")
        return self._runs.run(answer)[0]

    def _new_row(self, run: Run) -> Wire:
        body = self._runs.body(run)
        over, key = "", ""
        if run.parent_id is not None and not run.status.terminal:
            over = rest_of(cancel(run, Reason.FLOW_ENDED, run.created_at))
        if run.concurrency_key is not None and not run.status.terminal:
            key = run.concurrency_key
        return [
            run.id,
            new_fields(run, body),
            task_row(run),
            run.schedule_id or "",
            micros(run.slot),
            key,
            str(run.concurrency_limit),
            run.parent_id or "",
            over,
            *outbox_rows(run),
        ]

    async def add_unless_active(
        self, run: Run, audit: AuditEntry | None = None
    ) -> tuple[Run, bool]:
        assert run.concurrency_key is not None
        row = self._new_row(run)

        async def attempt(trail: AuditTrail) -> Wire | None:
            _, (answer,) = await self._tell("add_unless_active", row, trail.row)
            return None if answer == "head" else answer

        async with self._turn(audit):
            answer, _ = await self._appending([audit] if audit else [], attempt)
        if answer != "new":
            return self._runs.run(answer)[0], False
        self.wake()
        return run, True

    async def get_run(self, run_id: RunId) -> Run | None:
        found = await self._read_runs([run_id])
        return found[run_id][0] if run_id in found else None

    async def find_slot_runs(
        self, schedule_id: ScheduleId, slots: Collection[datetime]
    ) -> dict[datetime, Run]:
        wanted = list(slots)
        _, (answer,) = await self._ask("slots", schedule_id, [micros(slot) for slot in wanted])
        found = zip(wanted, rows(answer), strict=True)
        return {slot: self._runs.run(record)[0] for slot, record in found if record}

    async def next_available(self) -> datetime | None:
        _, (answer,) = await self._ask("next_available")
        return moment(text(answer)) if answer else None

    async def claim(self, request: ClaimRequest) -> tuple[Run, ...]:
        capabilities = sorted(request.capabilities)
        _, (answer,) = await self._tell("claim", request.node_id, str(request.free), capabilities)
        return await self._claimed_runs(rows(answer))

    async def start(self, run_id: RunId, fence: int) -> bool:
        held = self._in_hand.pop(run_id, None)
        _, (rev,) = await self._tell("start", run_id, str(fence))
        if held is not None and rev == str(int(held[1]) + 1):
            self._hold(mark_started(held[0]), text(rev))
        return bool(rev)

    async def release(self, claims: Sequence[tuple[RunId, int]]) -> None:
        async def attempt() -> None:
            now, found, children = await self._read_family([run_id for run_id, _ in claims])
            settling = CompletionEffects(now, found, children)
            for run_id, fence in claims:
                run = settling.runs.get(run_id)
                if run is not None and owns_fence(run, fence):
                    settling.settle(release_or_cancel(run, now))
            await self._commit(settling.expected, settling.ops, wakes=True)

        for run_id, _ in claims:
            self._forget_held(run_id)
        await self._until_agreed(attempt)
        self.wake()

    async def cancel_run(
        self, run_id: RunId, reason: str, audit: AuditEntry | None = None
    ) -> Run | None:
        async def attempt() -> Run | None:
            now, found, children = await self._read_family([run_id])
            if run_id not in found:
                return None
            settling = CompletionEffects(now, found, children)
            after = settling.cancel(settling.runs[run_id], reason)
            await self._commit(
                settling.expected, settling.ops, [audit] if audit else (), wakes=True
            )
            return after

        after = await self._until_agreed(attempt, audit)
        if after is not None:
            self.wake()
        return after

    async def prune_runs(self, *, before: datetime, limit: int) -> int:
        _, (answer,) = await self._tell("prune", micros(before), str(limit))
        return int(text(answer))

    async def forget_runs(self, run_ids: Sequence[RunId]) -> int:
        _, (answer,) = await self._tell("forget_runs", list(run_ids))
        return int(text(answer))

    # --- logs ---------------------------------------------------------------------------------
    async def append_logs(self, run_id: RunId, fence: int, entries: Sequence[LogEntry]) -> bool:
        _, (answer,) = await self._tell("append_logs", run_id, str(fence), log_rows(entries))
        return answer == "1"

    async def read_logs(
        self, run_id: RunId, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogEntry, ...]:
        if limit <= 0:
            return ()
        first, last = max(0, after), max(0, after) + limit - 1
        _, (answer,) = await self._ask("logs", run_id, str(first), str(last))
        return tuple(log_entry(row, first + n) for n, row in enumerate(texts(answer), 1))

    async def last_logs(self, run_ids: Sequence[RunId]) -> dict[RunId, LogEntry]:
        if not run_ids:
            return {}
        _, (answer,) = await self._ask("last_logs", list(run_ids))
        found = (texts(each) for each in rows(answer))
        return {RunId(name): log_entry(row, int(number)) for name, number, row in found}

    async def drop_logs(self, run_ids: Sequence[RunId]) -> None:
        await self._tell("drop_logs", list(run_ids))

    # --- checkpoints --------------------------------------------------------------------------
    async def save_checkpoint(self, run_id: RunId, fence: int, name: str, value: str) -> bool:
        _, (answer,) = await self._tell("keep_state", run_id, str(fence), name, value)
        return answer == "1"

    async def get_checkpoint(self, name: str) -> Checkpoint | None:
        _, (answer,) = await self._ask("value", "states", name)
        return decode_checkpoint(name, text(answer)) if answer else None

    async def set_checkpoint(
        self, name: str, value: str | None, audit: AuditEntry | None = None
    ) -> Checkpoint | None:
        async def attempt() -> Checkpoint | None:
            now, (answer,) = await self._ask("value", "states", name)
            before = text(answer)
            ops: list[Wire] = [["unset", "states", name]]
            if value is not None:
                ops = [["set", "states", name, checkpoint_row(value, micros(now), "")]]
            await self._commit([["value", "states", name, before]], ops, [audit] if audit else ())
            return decode_checkpoint(name, before) if before else None

        return await self._until_agreed(attempt, audit)


def checkpoint_row(value: str, changed: str, run_id: str) -> str:
    return to_json([value, changed, run_id])


def decode_checkpoint(name: str, row: str) -> Checkpoint:
    value, changed, run_id = json.loads(row)
    return Checkpoint(name=name, value=value, changed_at=moment(changed), run_id=RunId(run_id))
