"""The log of a run."""

from __future__ import annotations

from chimes.model import replace
from chimes.model.ids import RunId
from chimes.model.run import LogEntry
from chimes.store.port import Store
from chimes.testing import SettableClock
from tests.builders import LEASE, NOW, SECOND, a_completion, a_retry, claim_request, log_lines
from tests.store_contract.scenes import running_run


async def test_log_lines_are_numbered_across_attempts(store: Store, clock: SettableClock) -> None:
    run = await running_run(store)
    given = [
        LogEntry(at=NOW + SECOND / 3, message="ก 水 \U0001f514 'quoted'\n", level="warning"),
        LogEntry(at=NOW, message="", level="error", number=77),
    ]
    assert await store.append_logs(run.id, run.fence, given)
    assert await store.append_logs(run.id, run.fence, [])
    assert await store.append_logs(run.id, run.fence, log_lines("three"))
    retry = replace(a_retry(run, clock.now(), SECOND), logs=tuple(log_lines("four")))
    await store.finish([retry])
    clock.advance(1)
    (again,) = await store.claim(claim_request())
    assert await store.append_logs(run.id, again.fence, log_lines("five"))
    expected = [*given, *log_lines("three", "four", "five")]
    assert await store.read_logs(run.id) == tuple(
        replace(entry, number=number) for number, entry in enumerate(expected, 1)
    )


async def test_logs_are_read_in_pages(store: Store) -> None:
    run = await running_run(store)
    other = await running_run(store)
    await store.append_logs(other.id, other.fence, log_lines("other"))
    await store.append_logs(run.id, run.fence, log_lines(*map(str, range(1, 11))))

    async def messages(after: int = 0, limit: int = 1000) -> list[str]:
        found = await store.read_logs(run.id, after=after, limit=limit)
        assert [entry.number for entry in found] == [int(entry.message) for entry in found]
        return [entry.message for entry in found]

    assert await messages(limit=3) == ["1", "2", "3"]
    assert await messages(after=3, limit=3) == ["4", "5", "6"]
    assert await messages(after=9) == ["10"]
    assert await messages(after=10) == []
    assert await store.read_logs(RunId("nobody")) == ()


async def test_only_the_current_fence_may_append_logs(store: Store, clock: SettableClock) -> None:
    run = await running_run(store)
    assert not await store.append_logs(run.id, run.fence + 1, log_lines("no"))
    assert not await store.append_logs(RunId("nobody"), 1, log_lines("no"))
    clock.advance(LEASE)
    await store.rescue(limit=10)
    assert not await store.append_logs(run.id, run.fence, log_lines("no"))
    ended = await running_run(store, node_id="node-2")
    await store.finish([a_completion(ended, clock.now())])
    assert not await store.append_logs(ended.id, ended.fence, log_lines("no"))
    assert await store.read_logs(run.id) == ()
    assert await store.read_logs(ended.id) == ()


async def test_last_log_line_of_several_runs(store: Store) -> None:
    one, other, silent = [await running_run(store) for _ in range(3)]
    hostile = LogEntry(at=NOW + SECOND, message="ก <b>\n水", level="error")
    await store.append_logs(one.id, one.fence, log_lines(*map(str, range(1, 13))))
    await store.append_logs(one.id, one.fence, [hostile])
    await store.append_logs(other.id, other.fence, log_lines("only"))
    wanted = [one.id, other.id, silent.id, RunId("nobody")]
    assert await store.last_logs(wanted) == {
        one.id: replace(hostile, number=13),
        other.id: replace(log_lines("only")[0], number=1),
    }
    assert await store.last_logs([other.id]) == {other.id: (await store.read_logs(other.id))[-1]}
    assert await store.last_logs([silent.id]) == await store.last_logs([]) == {}
