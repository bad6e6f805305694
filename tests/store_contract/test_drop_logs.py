"""Deleting the logs of ended runs (sync_log_runs)."""

from __future__ import annotations

from chimes.model.ids import RunId
from chimes.model.run import AttemptEnd
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import a_completion, log_lines
from tests.store_contract.scenes import running_run


async def test_only_logs_of_ended_runs_are_deleted(store: Store, clock: SettableClock) -> None:
    ended, kept, running = [await running_run(store) for _ in range(3)]
    for run in (ended, kept, running):
        await store.append_logs(run.id, run.fence, log_lines("one", "two"))
    await store.finish(
        [a_completion(run, clock.now(), AttemptEnd.SUCCEEDED) for run in (ended, kept)]
    )
    before = await store.get_run(ended.id)
    await store.drop_logs([ended.id, running.id, RunId("unknown")])
    assert await store.read_logs(ended.id) == ()
    assert await store.get_run(ended.id) == before
    for run in (kept, running):
        assert [entry.message for entry in await store.read_logs(run.id)] == ["one", "two"]
    await store.drop_logs([ended.id])
    await store.drop_logs([])
    # The running run still appends to its log.
    assert await store.append_logs(running.id, running.fence, log_lines("three"))
    assert [entry.number for entry in await store.read_logs(running.id)] == [1, 2, 3]
