"""Named limits: two nodes start runs under a shared concurrency, rate and circuit breaker."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from chimes.engine.events import BreakerClosed, BreakerOpened, RunDeferred
from chimes.model.access import Actor, Role
from chimes.model.checkpoint import Checkpoint
from chimes.model.ids import RunId
from chimes.model.limit import Breaker, BreakerState, LimitState
from chimes.model.policy import Policy
from chimes.model.run import Outcome, Run, RunStatus, describe_reason
from chimes.services.limits import (
    LimitService,
    LimitValues,
    change_state,
    limits_for,
    read_state,
)
from chimes.targets.base import Call
from tests.builders import ALICE, BOB, a_run
from tests.engine.rig import FAILURE, SUCCESS, Faults, Rig, eventually, until

ADMIN = Actor(owner=ALICE, role=Role.ADMIN)
LIMITED = Policy(limits=("api",), timeout=timedelta(minutes=5))


async def set_limit(rig: Rig, name: str = "api", *, shared: bool = False, **values: Any) -> None:
    await LimitService(rig.store).put(ADMIN, name, LimitValues(**values), shared=shared)


async def add_runs(rig: Rig, count: int, **given: Any) -> list[RunId]:
    now = await rig.now()
    values = {"owner": ALICE, "policy": LIMITED, "concurrency_key": None, "slot": None}
    times = {"created_at": now, "planned_at": now, "available_at": now}
    runs = [a_run(**(values | times | given)) for _number in range(count)]
    await rig.store.add_runs(runs)
    return [run.id for run in runs]


async def all_ended(rig: Rig, ids: list[RunId]) -> list[Run]:
    async def found() -> list[Run]:
        return [run for run in await rig.runs() if run.id in ids]

    return await eventually(found, lambda runs: all(run.status.terminal for run in runs))


class Calls:
    """A behaviour that takes some time, and its calls."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.at: list[float] = []
        self.active = self.most = 0

    async def __call__(self, call: Call) -> Outcome:
        self.at.append(time.monotonic())
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.active -= 1
        return SUCCESS


async def test_two_nodes_share_a_rate(rig: Rig) -> None:
    rate, burst, count = 10, 5, 50
    await set_limit(rig, rate=f"{rate}/s", burst=burst)
    calls = Calls()
    rig.runner.script = [calls]
    ids = await add_runs(rig, count)
    begun = time.monotonic()
    await rig.engine()
    await rig.engine()
    runs = await all_ended(rig, ids)
    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    # Waiting for the limit is no attempt.
    assert {(run.attempt, len(run.attempts)) for run in runs} == {(1, 1)}
    assert len(calls.at) == count
    # From the start, not between two calls: on a busy machine calls may be made late, in a burst,
    # but none is made before it has a token.
    for made, at in enumerate(calls.at, 1):
        assert made <= burst + rate * (at - begun) + 1, (made, at - begun)


async def test_two_nodes_share_a_concurrency(rig: Rig) -> None:
    await set_limit(rig, concurrency=3)
    calls = Calls(0.05)
    rig.runner.script = [calls]
    ids = await add_runs(rig, 30)
    await rig.engine()
    await rig.engine()
    runs = await all_ended(rig, ids)
    assert {(run.status, run.attempt) for run in runs} == {(RunStatus.SUCCEEDED, 1)}
    assert len(calls.at) == 30
    assert calls.most == 3
    # Permits are given back after the end of the run is stored.
    await eventually(
        lambda: LimitService(rig.store).list_limits(ADMIN), lambda found: found[0].use.in_use == 0
    )


async def test_a_waiting_run_says_so_and_leaves_the_node_to_others(rig: Rig) -> None:
    await set_limit(rig, concurrency=1)
    await rig.engine(workers=4)
    rig.runner.script = [rig.runner.wait]
    (first,) = await add_runs(rig, 1)
    await until(lambda: len(rig.runner.calls) == 1)
    waiting = await add_runs(rig, 8)

    async def reasons() -> set[str]:
        return {run.reason for run in await rig.runs() if run.id in waiting}

    # One of four may wait in the process.
    await eventually(reasons, lambda found: "limit:api" in found)
    assert str(describe_reason("limit:api")) == "waiting for limit api"
    (report,) = await eventually(
        lambda: LimitService(rig.store).list_limits(ADMIN), lambda found: found[0].use.waiting > 0
    )
    assert report.use.in_use == 1
    free = await add_runs(rig, 20, policy=Policy())
    rig.runner.script = [SUCCESS]
    assert {run.status for run in await all_ended(rig, free)} == {RunStatus.SUCCEEDED}
    assert (await rig.run(first)).status is RunStatus.RUNNING
    # A run that waits can be canceled, in the process and in the queue.
    for run_id in waiting[:4]:
        await rig.store.cancel_run(run_id, "canceled_by_hand")
    assert {run.status for run in await all_ended(rig, waiting[:4])} == {RunStatus.CANCELED}
    rig.runner.gate.set()
    runs = await all_ended(rig, [first, *waiting[4:]])
    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    assert {run.reason for run in runs} == {""}
    assert rig.emitted(RunDeferred)


async def test_the_highest_rank_goes_first(rig: Rig) -> None:
    await set_limit(rig, concurrency=1)
    await rig.engine(workers=40)
    rig.runner.script = [rig.runner.wait]
    await add_runs(rig, 1)
    await until(lambda: len(rig.runner.calls) == 1)
    low = await add_runs(rig, 3)
    high = await add_runs(rig, 3, priority=5)
    (report,) = await eventually(
        lambda: LimitService(rig.store).list_limits(ADMIN), lambda found: found[0].use.waiting == 6
    )
    assert report.use.in_use == 1
    rig.runner.script = [SUCCESS]
    rig.runner.gate.set()
    await all_ended(rig, [*low, *high])
    order = [call.run.id for call in rig.runner.calls[1:]]
    assert (set(order[:3]), set(order[3:])) == (set(high), set(low))


async def test_breaker_opens_and_a_probe_closes_it(rig: Rig) -> None:
    pause = 1.0
    await set_limit(rig, breaker=Breaker(failures=3, pause=timedelta(seconds=pause)))
    calls = Calls()
    answers = [FAILURE] * 4

    async def answer(call: Call) -> Outcome:
        await calls(call)
        return answers.pop(0) if answers else SUCCESS

    rig.runner.script = [answer]
    await rig.engine()
    await rig.engine()
    for number in range(3):
        (run,) = await all_ended(rig, await add_runs(rig, 1))
        assert run.status is RunStatus.FAILED, number
    await until(lambda: rig.emitted(BreakerOpened))
    (report,) = await LimitService(rig.store).list_limits(ADMIN)
    # On a busy machine the pause may be over already.
    assert report.use.breaker in (BreakerState.OPEN, BreakerState.PROBING)
    assert report.use.open_until is not None
    ids = await add_runs(rig, 10)
    runs = await all_ended(rig, ids)
    # The first probe fails and opens the breaker again, the second one closes it.
    assert sorted(run.status for run in runs) == ["failed"] + ["succeeded"] * 9
    opened, probe, second = calls.at[2:5]
    assert probe - opened > pause * 0.9
    assert second - probe > pause * 0.9
    await until(lambda: rig.emitted(BreakerClosed))
    assert len(rig.emitted(BreakerOpened)) == 2
    assert len(rig.emitted(BreakerClosed)) == 1
    (report,) = await LimitService(rig.store).list_limits(ADMIN)
    assert (report.use.breaker, report.use.failures) == (BreakerState.CLOSED, 0)


async def test_limits_of_owners_are_separate_and_shared_ones_are_not(rig: Rig) -> None:
    await set_limit(rig, concurrency=1)
    await set_limit(rig, "all", shared=True, concurrency=2)
    await rig.engine(workers=20)
    rig.runner.script = [rig.runner.wait]
    both = Policy(limits=("all", "api"), timeout=timedelta(minutes=5))
    mine = await add_runs(rig, 2, policy=both)
    # Bob has no limit `api`: his runs have a warning in their log.
    theirs = await add_runs(rig, 3, policy=both, owner=BOB)
    await until(lambda: len(rig.runner.calls) == 2)
    await asyncio.sleep(0.5)
    assert len(rig.runner.calls) == 2
    reports = await LimitService(rig.store).list_limits(ADMIN)
    assert {each.use.limit.name: each.use.in_use for each in reports}["all"] == 2
    rig.runner.gate.set()
    await all_ended(rig, [*mine, *theirs])
    assert any("no limit 'api'" in each.message for each in await rig.store.read_logs(theirs[0]))
    await eventually(
        lambda: LimitService(rig.store).list_limits(ADMIN),
        lambda found: {each.use.in_use for each in found} == {0},
    )


async def test_permits_survive_lost_answers_and_end_with_their_runs(rig: Rig) -> None:
    """The answer to a permit is lost; a run is given up with its permit in the state."""
    from chimes.errors import StoreUnavailable

    await set_limit(rig, concurrency=1)
    faults = Faults(rig.store)
    faults.answer_lost["set_checkpoint"] = StoreUnavailable("away")
    rig.runner.script = [rig.runner.wait]
    engine = await rig.engine(store=faults.store)
    (first,) = await add_runs(rig, 1)
    await until(lambda: len(rig.runner.calls) == 1)
    # The node ends without leaving the limit.
    faults.failing["set_checkpoint"] = StoreUnavailable("away")
    await engine.drain(timedelta(0))
    await rig.store.leave(engine.node_id)
    rig.runner.script = [SUCCESS]
    await rig.engine()
    (second,) = await add_runs(rig, 1)
    runs = await all_ended(rig, [first, second])
    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}


async def test_all_void_permits_are_found_with_one_query(rig: Rig) -> None:
    await set_limit(rig, concurrency=150)
    (limit,) = (await limits_for(rig.store, ALICE)).values()
    lost = LimitState(permits={f"lost{number}": 1 for number in range(150)})
    await change_state(rig.store, limit, lambda _state: lost)
    rig.runner.script = [SUCCESS]
    await rig.engine()
    await all_ended(rig, await add_runs(rig, 1))
    await eventually(partial(read_state, rig.store, limit), lambda state: not state.permits)


async def test_runs_without_limits_read_no_limits(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    get_checkpoint = rig.store.get_checkpoint

    async def recorded(name: str) -> Checkpoint | None:
        read.append(name)
        return await get_checkpoint(name)

    monkeypatch.setattr(rig.store, "get_checkpoint", recorded)
    await rig.engine()
    await all_ended(rig, await add_runs(rig, 3, policy=Policy()))
    assert [name for name in read if name.startswith("limit")] == []
    await all_ended(rig, await add_runs(rig, 1))
    assert [name for name in read if name.startswith("limit")] != []
