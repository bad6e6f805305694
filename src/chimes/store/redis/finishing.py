"""Verdicts. Those on plain runs that this process has claimed itself take one trip to the server:
what the claim said is used as it was, and the revision tells whether it still holds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from chimes.model.change import replace
from chimes.model.ids import RunId
from chimes.model.run import Run, RunStatus, Verdict, accepts, settled, unreadable
from chimes.store.port import Finished
from chimes.store.redis.base import Conflicted, RedisBase
from chimes.store.redis.damage import is_damaged
from chimes.store.redis.message_rows import post_ops
from chimes.store.redis.run_rows import changed_fields, log_rows
from chimes.store.redis.settling import Settling
from chimes.store.redis.wire import Wire, flat

#: Runs of this process that are under way; more than any node has places.
MOST_HELD = 20_000


class RedisFinishing(RedisBase):
    def _hold(self, run: Run, rev: str) -> None:
        self._in_hand[run.id] = run, rev
        if len(self._in_hand) > MOST_HELD:
            self._in_hand.popitem(last=False)

    def _forget_held(self, run_id: RunId) -> None:
        self._in_hand.pop(run_id, None)

    async def finish(self, verdicts: Sequence[Verdict]) -> Finished:
        held = [self._in_hand.pop(verdict.run_id, None) for verdict in verdicts]
        known = [each for each in held if each is not None]
        if len(known) == len(verdicts) and verdicts:
            plain = all(
                _plain(run, verdict) for (run, _), verdict in zip(known, verdicts, strict=True)
            )
            if plain:
                try:
                    return await self._finish_plain(known, verdicts)
                except Conflicted:
                    pass
        return await self._until_agreed(lambda: self._finish(verdicts))

    async def _finish_plain(
        self, known: Sequence[tuple[Run, str]], verdicts: Sequence[Verdict]
    ) -> Finished:
        expected: list[Wire] = []
        ops: list[Wire] = []
        wakes = False
        ended: list[Run] = []
        for (run, rev), verdict in zip(known, verdicts, strict=True):
            # The moment is the server's to say; any will do until then.
            after = settled(run, verdict, run.created_at)
            ended.append(after)
            expected.append(["run", run.id, rev])
            changes = changed_fields(run, after) | {"finished": "@now"}
            ops.append(["put", run.id, flat(changes.items())])
            if verdict.logs:
                ops.append(["log", run.id, log_rows(verdict.logs)])
            ops += post_ops(after)
            if run.schedule_id is not None:
                ops.append(["summary", run.schedule_id, run.id, after.status.value, after.error])
            if run.concurrency_key is not None:
                ops.append(["unblock", run.id])
            wakes |= run.parent_id is not None
        now = await self._commit(expected, ops, wakes=wakes, urgent=True)
        return Finished(accepted=tuple(replace(run, finished_at=now) for run in ended))

    async def _finish(self, verdicts: Sequence[Verdict]) -> Finished:
        accepted: list[Run] = []
        refused: list[RunId] = []
        ids = list(dict.fromkeys(verdict.run_id for verdict in verdicts))
        now, found, children = await self._read_family(ids)
        settling = Settling(now, found, children)
        wakes = False
        for verdict in verdicts:
            run = settling.runs.get(verdict.run_id)
            if run is not None and accepts(run, verdict.fence):
                after = settled(run, verdict, now)
                settling.settle(after, verdict)
                wakes |= not after.status.terminal
                wakes |= after.parent_id is not None or after.resumable
                accepted.append(after)
            elif run is not None and verdict.attempt in run.attempts:
                accepted.append(run)
            else:
                refused.append(verdict.run_id)
        if settling.pauses:
            schedules = [(await self._read_schedule(each))[1] for each in settling.pauses]
            settling.pause(each for each in schedules if each is not None)
        if settling.ops:
            async with self._turn(settling.audit):
                await self._commit(
                    settling.expected, settling.ops, settling.audit, wakes=wakes, urgent=True
                )
        return Finished(accepted=tuple(accepted), refused=tuple(refused))

    async def _claimed_runs(self, records: Sequence[Wire]) -> tuple[Run, ...]:
        """What a claim brought; a run that cannot be read ends instead of being handed out."""
        good: list[Run] = []
        for record in records:
            run, rev = self._runs.run(record)
            if is_damaged(run):
                await self._until_agreed(partial(self._end_damaged, run.id))
            else:
                good.append(run)
                self._hold(run, rev)
        return tuple(good)

    async def _end_damaged(self, run_id: RunId) -> None:
        now, found, children = await self._read_family([run_id])
        if run_id in found:
            settling = Settling(now, found, children)
            settling.settle(unreadable(settling.runs[run_id], now))
            await self._commit(settling.expected, settling.ops, wakes=True)


def _plain(run: Run, verdict: Verdict) -> bool:
    """It ends, and nothing hangs on it but its schedule and those of its key."""
    if any(told.by_the_clock for told in run.policy.delivery):
        # When somebody is told depends on the moment, which only the server knows.
        return False
    return (
        accepts(run, verdict.fence)
        and verdict.retry_in is None
        and verdict.status is not RunStatus.QUEUED
        and not verdict.pause_schedule
        and not run.resumable
    )
