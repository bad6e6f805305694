"""Log lines are readable while their attempt runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from chimes.clock import SystemClock
from chimes.engine.in_flight import (
    DEFAULT_LOG_LIMITS,
    LOG_LIMITS_BY_KIND,
    AttemptLog,
    Capacity,
    InFlightRun,
    Pool,
)
from chimes.engine.recorder import LOG_BATCH_CHARACTERS, LOG_BATCH_LINES, LogWriter
from chimes.errors import StoreUnavailable
from chimes.model.ids import RunId
from chimes.model.policy import Policy
from chimes.model.run import Completion, LogEntry, Outcome, RunStatus
from chimes.model.target import TaskTarget
from chimes.store.memory import MemoryStore
from chimes.targets.base import Call
from tests.builders import NOW, a_completion, a_node, a_run, claim_request
from tests.engine.rig import FAILURE, SUCCESS, Faults, Recording, Rig, eventually, until


@pytest.fixture
async def memory_rig() -> Rig:
    """For tests that do not depend on the store."""
    return Rig(MemoryStore(), "memory")


async def lines(rig: Rig, run_id: RunId) -> list[str]:
    found = await rig.store.read_logs(run_id, limit=100_000)
    assert [entry.number for entry in found] == list(range(1, len(found) + 1))
    return [entry.message for entry in found]


async def waiting_run(rig: Rig) -> RunId:
    run = a_run(available_at=await rig.now(), planned_at=await rig.now())
    await rig.store.add_runs([run])
    return run.id


def logging_target(runner: Recording, *, before: int = 3) -> Callable[[Call], Awaitable[Outcome]]:
    """Logs, waits for the gate, and logs again."""

    async def log_and_wait(call: Call) -> Outcome:
        for number in range(before):
            call.log("info", f"before {number}")
        await runner.gate.wait()
        call.log("error", "after")
        return SUCCESS

    return log_and_wait


BEFORE = ["before 0", "before 1", "before 2"]


async def test_lines_are_readable_while_the_attempt_runs(rig: Rig) -> None:
    rig.runner.script = [logging_target(rig.runner)]
    await rig.engine()
    run_id = await waiting_run(rig)
    await until(lambda: rig.runner.calls)
    await eventually(lambda: lines(rig, run_id), lambda found: found == BEFORE)
    assert (await rig.run(run_id)).status is RunStatus.RUNNING
    rig.runner.gate.set()
    await rig.reached(run_id, RunStatus.SUCCEEDED)
    assert await lines(rig, run_id) == [*BEFORE, "after"]


async def test_a_short_attempt_writes_its_lines_with_its_completion(memory_rig: Rig) -> None:
    rig = memory_rig

    async def short(call: Call) -> Outcome:
        call.log("info", "quick")
        return SUCCESS

    rig.runner.script = [short]
    faults = Faults(rig.store)
    engine = await rig.engine(store=faults.store)
    ids = [await waiting_run(rig) for _ in range(20)]
    for run_id in ids:
        await rig.reached(run_id, RunStatus.SUCCEEDED)
        assert await lines(rig, run_id) == ["quick"]
    await engine.drain()
    assert faults.count["append_logs"] == 0


async def test_every_attempt_adds_to_the_log(rig: Rig) -> None:
    async def failing(call: Call) -> Outcome:
        call.log("info", f"try {call.run.attempt}")
        await eventually(
            lambda: lines(rig, call.run.id), lambda found: f"try {call.run.attempt}" in found
        )
        call.log("info", f"end {call.run.attempt}")
        return FAILURE

    rig.runner.script = [failing]
    policy = Policy(max_retries=1, retry_backoff=timedelta(0))
    run = a_run(policy=policy, available_at=await rig.now())
    await rig.store.add_runs([run])
    await rig.engine()
    await rig.reached(run.id, RunStatus.FAILED)
    assert await lines(rig, run.id) == ["try 1", "end 1", "try 2", "end 2"]


@pytest.mark.parametrize("trouble", ["failing", "answer_lost"])
async def test_after_an_outage_every_line_is_stored_once(rig: Rig, trouble: str) -> None:
    """After a lost answer the store is read to find out whether the lines arrived."""
    faults = Faults(rig.store)
    rig.runner.script = [logging_target(rig.runner)]
    await rig.engine(store=faults.store)
    away = {"append_logs": StoreUnavailable("away")}
    setattr(faults, trouble, away)
    run_id = await waiting_run(rig)
    await until(lambda: faults.count["append_logs"] >= 1)
    faults.failing = {}
    await eventually(lambda: lines(rig, run_id), lambda found: found == BEFORE)
    rig.runner.gate.set()
    await rig.reached(run_id, RunStatus.SUCCEEDED)
    assert await lines(rig, run_id) == [*BEFORE, "after"]


@pytest.mark.parametrize("trouble", ["failing", "answer_lost"])
async def test_a_completion_waits_for_unconfirmed_lines(rig: Rig, trouble: str) -> None:
    faults = Faults(rig.store)
    rig.runner.script = [logging_target(rig.runner)]
    await rig.engine(store=faults.store)
    setattr(faults, trouble, {"append_logs": StoreUnavailable("away")})
    run_id = await waiting_run(rig)
    await until(lambda: faults.count["append_logs"] >= 1)
    faults.down = StoreUnavailable("away")
    rig.runner.gate.set()
    await until(lambda: faults.count["read_logs"] >= 1)
    assert (await rig.run(run_id)).status is RunStatus.RUNNING
    faults.down, faults.failing = None, {}
    await rig.reached(run_id, RunStatus.SUCCEEDED)
    assert await lines(rig, run_id) == [*BEFORE, "after"]


async def test_an_attempt_that_ends_during_a_write_waits_for_its_answer(
    memory_rig: Rig,
) -> None:
    rig = memory_rig
    writing, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Faults):
        def __getattr__(self, name: str) -> object:
            verb = super().__getattr__(name)
            if name != "append_logs":
                return verb

            async def slowly(*args: object) -> object:
                answer = await verb(*args)
                writing.set()
                await go_on.wait()
                return answer

            return slowly

    faults = Slow(rig.store)
    rig.runner.script = [logging_target(rig.runner)]
    await rig.engine(store=faults.store)
    run_id = await waiting_run(rig)
    await asyncio.wait_for(writing.wait(), 60)
    rig.runner.gate.set()
    await until(lambda: rig.engines[0]._executor.recorder.logs.waiting)
    assert faults.count["finish"] == 0
    go_on.set()
    await rig.reached(run_id, RunStatus.SUCCEEDED)
    assert await lines(rig, run_id) == [*BEFORE, "after"]
    await rig.close()


async def test_an_attempt_that_ends_while_its_lines_are_sent_writes_them_once() -> None:
    store, put = MemoryStore(), list[Completion]()
    node = await store.join(a_node(), timedelta(minutes=1))
    await store.add_runs([a_run(available_at=await store.now())])
    (run,) = await store.claim(claim_request(node.id))
    writer = LogWriter(store, SystemClock(), lambda _claim, completion: put.append(completion))
    pool = Pool(name="worker", runners=(), permits=1)
    attempt = InFlightRun(run, Capacity(pool, asyncio.Event()), writer.watch, lambda: NOW)
    attempt.started_monotonic = 0.0
    attempt.add_log("info", "only once")
    one_pass = asyncio.create_task(writer.run_once())
    # The pass has selected the lines, and has not sent them.
    await asyncio.sleep(0)
    writer.close(attempt, a_completion(run, NOW, logs=attempt.pending_logs))
    await one_pass
    await store.finish(put)
    assert [entry.message for entry in await store.read_logs(run.id)] == ["only once"]


async def test_many_last_lines_are_written_in_batches_before_the_completion() -> None:
    """50,000 lines could be too much for one write."""
    store, put = MemoryStore(), list[Completion]()
    node = await store.join(a_node(), timedelta(minutes=1))
    task = TaskTarget(name="talkative", args={})
    await store.add_runs([a_run(target=task, available_at=await store.now())])
    (run,) = await store.claim(claim_request(node.id, capabilities=frozenset({task.requirement})))
    writer = LogWriter(store, SystemClock(), lambda _claim, completion: put.append(completion))
    pool = Pool(name="worker", runners=(), permits=1)
    attempt = InFlightRun(run, Capacity(pool, asyncio.Event()), writer.watch, lambda: NOW)
    spoken = [f"line {number}" for number in range(50_000)]
    for line in spoken:
        attempt.add_log("info", line)
    writer.close(attempt, a_completion(run, NOW, logs=attempt.pending_logs))
    assert not put
    await writer.run_once()
    (completion,) = put
    assert len(completion.logs) <= LOG_BATCH_LINES
    await store.finish(put)
    assert [entry.message for entry in await store.read_logs(run.id, limit=60_000)] == spoken


async def test_a_node_that_lost_the_run_adds_no_lines(rig: Rig) -> None:
    """Lines are fenced like a completion."""
    faults = Faults(rig.store)
    rig.runner.script = [logging_target(rig.runner)]
    engine = await rig.engine(store=faults.store)
    faults.failing = {
        verb: StoreUnavailable("away") for verb in ("append_logs", "heartbeat", "list_runs")
    }
    run_id = await waiting_run(rig)
    await until(lambda: faults.count["append_logs"] >= 1)
    # The store removes the node, and another one claims the run.
    await rig.store.leave(engine.node_id)
    other = Recording()
    await rig.engine(runner=other)
    await rig.reached(run_id, RunStatus.SUCCEEDED)
    seen = faults.count["append_logs"]
    faults.failing = {}
    await until(lambda: faults.count["append_logs"] > seen)
    rig.runner.gate.set()
    await engine.drain()
    assert await lines(rig, run_id) == []


async def test_a_drain_writes_all_lines(rig: Rig) -> None:
    rig.runner.script = [logging_target(rig.runner)]
    engine = await rig.engine()
    run_id = await waiting_run(rig)
    await until(lambda: rig.runner.calls)
    await engine.drain(timedelta(0))
    assert await lines(rig, run_id) == BEFORE


async def test_many_lines_are_written_in_batches(memory_rig: Rig) -> None:
    rig = memory_rig
    text = "x" * 8000

    async def talkative(call: Call) -> Outcome:
        for number in range(100):
            call.log("info", f"{number} {text}")
        await rig.runner.gate.wait()
        return SUCCESS

    rig.runner.script = [talkative]
    faults = Faults(rig.store)
    await rig.engine(store=faults.store)
    run_id = await waiting_run(rig)
    await eventually(lambda: lines(rig, run_id), lambda found: len(found) == 100)
    assert faults.count["append_logs"] >= 100 * 8000 // LOG_BATCH_CHARACTERS
    rig.runner.gate.set()
    await rig.reached(run_id, RunStatus.SUCCEEDED)
    assert [each.split()[0] for each in await lines(rig, run_id)] == [
        str(number) for number in range(100)
    ]
    await rig.close()


class TestAttemptLog:
    def test_the_log_is_limited_by_lines(self) -> None:
        for kind, limits in (("http", DEFAULT_LOG_LIMITS), *LOG_LIMITS_BY_KIND.items()):
            log = AttemptLog(kind)
            for number in range(limits.lines + 10):
                log.add(NOW, "info", str(number))
            assert len(log.pending) == limits.lines + 1
            assert log.pending[-2].message == str(limits.lines - 1)
            assert (log.pending[-1].level, "omitted" in log.pending[-1].message) == (
                "warning",
                True,
            )

    def test_the_log_is_limited_by_size(self) -> None:
        log = AttemptLog("sync")
        for _ in range(10):
            log.add(NOW, "info", "x" * 1024 * 1024)
        assert len(log.pending) == 6
        assert sum(len(entry.message) for entry in log.pending) < 6 * 1024 * 1024
        assert log.pending[-1].level == "warning"

    def test_lines_have_distinct_times(self) -> None:
        log = AttemptLog("task")
        for _ in range(3):
            log.add(NOW, "info", "same")
        assert [entry.at - NOW for entry in log.pending] == [
            timedelta(microseconds=number) for number in range(3)
        ]

    def test_lines_are_confirmed_in_order(self) -> None:
        log = AttemptLog("task")
        assert log.is_settled
        for number in range(3):
            log.add(NOW, "info", str(number))
        log.mark_sent(log.pending[:2])
        assert not log.is_settled
        log.discard_sent()
        assert [entry.message for entry in log.pending] == ["0", "1", "2"]
        log.mark_sent(log.pending[:2])
        log.add(NOW, "info", "3")
        log.confirm()
        assert log.is_settled
        assert ([entry.message for entry in log.pending], log.written) == (["2", "3"], 2)
        assert isinstance(log.pending[0], LogEntry)
