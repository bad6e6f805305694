"""The simulation: no violation, the same history for the same seed, planted bugs are found."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from chimes.cli.command import OK, USAGE
from chimes.torture.checker import Report
from chimes.torture.planted_bugs import BUGS, planted
from chimes.torture.simulation import Simulation, simulate
from chimes.torture.virtual_loop import VirtualLoop, context_of
from tests.forking import run_chimes


@cache
def simulated(seed: int) -> tuple[Report, Simulation, str]:
    return simulate(seed)


def test_seeds_have_no_violation_and_reach_every_event() -> None:
    reached = set[str]()
    for seed in (1, 2):
        report, world, _ = simulated(seed)
        assert report.clean, report.violations
        assert report.targets["must"] > 500
        assert report.runs["terminal"] == report.runs["rows"]
        assert world.faults.total() > 15
        assert not any(each.enabled for each in world.store._state.schedules.values())
        reached |= {name for name, count in world.reached.items() if count}
    assert reached >= {"takeovers", "fenced_writes", "lost_answers", "crashes_in_calls"}


@pytest.mark.parametrize(
    "bug", [pytest.param(each, marks=[pytest.mark.long] * (each != "not_atomic")) for each in BUGS]
)
def test_planted_bugs_are_found(bug: str) -> None:
    for seed in range(1, 21):
        report, _, _ = simulate(seed, bug=bug)
        if BUGS[bug].shown_by & {kind for kind, found in report.violations.items() if found}:
            return
    raise AssertionError(f"{bug} was not found")


def test_planted_bugs_are_removed_again() -> None:
    for name, bug in BUGS.items():
        places = [(owner, attribute) for owner, attribute, _ in bug.patches()]
        before = [getattr(*place) for place in places]
        with planted(name):
            assert all(getattr(*place) != each for place, each in zip(places, before, strict=True))
        assert [getattr(*place) for place in places] == before


def test_command_has_the_same_history_in_another_process(tmp_path: Path) -> None:
    # Hashes of strings differ between processes, the histories do not.
    report = tmp_path / "report.json"
    options = ["torture", "--simulate", "--seeds", "1-1", "--report", str(report), "--json"]
    done = run_chimes(options, cwd=tmp_path, timeout=300)
    assert done.returncode == OK, done.stderr
    found = json.loads(report.read_text())
    assert found == {key: each for key, each in json.loads(done.stdout).items() if key != "id"}
    assert (found["simulated"], found["seeds"], found["lost"]) == (True, "1-1", 0)
    assert found["digest"] == sha256(simulated(1)[2].encode()).hexdigest()
    assert simulated(1)[2] != simulated(2)[2]


def test_invalid_seeds_are_refused(tmp_path: Path) -> None:
    for wrong in ("a-b", "5-2", "-3"):
        refused = run_chimes(["torture", "--simulate", "--seeds", wrong], cwd=tmp_path)
        assert refused.returncode == USAGE, refused.stderr
        assert "Invalid seeds" in refused.stderr


# --- clients --------------------------------------------------------------------------------------
def test_a_client_that_is_canceled_together_with_its_answer_stops() -> None:
    world = Simulation(1)
    seen = set[str]()

    async def cancel_after(steps: int) -> None:
        answer = asyncio.Event()
        client = asyncio.create_task(world.on_node(world.nodes[0], answer.wait()))
        await asyncio.sleep(1)
        answer.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        canceled = client.cancel()
        await asyncio.wait({client})
        assert client.cancelled() == canceled, f"after {steps} steps"
        seen.add("canceled" if canceled else "answered")

    async def main() -> None:
        for steps in range(12):
            await cancel_after(steps)

    world.loop.run(main())
    assert seen == {"canceled", "answered"}


def test_requests_end_before_the_wind_down_unless_their_node_is_dead() -> None:
    world = Simulation(1)
    node, dead = world.nodes[:2]
    answered: list[float] = []

    async def request() -> None:
        await asyncio.sleep(30)
        answered.append(world.loop.time())

    async def main() -> None:
        for each in (node, dead):
            each.number, each.alive = world.new_number(), True
        clients = [
            asyncio.create_task(world.on_node(each, request(), within=60)) for each in (node, dead)
        ]
        await asyncio.sleep(1)
        dead.die()
        await world._stop_clients(clients)

    world.loop.run(main())
    assert answered == [30]
    assert world.loop.time() < 31


# --- virtual loop ---------------------------------------------------------------------------------
def test_suspended_nodes_wait_and_dead_ones_end() -> None:
    loop = VirtualLoop(1)
    seen: list[tuple[int, float]] = []

    async def tick(node: int) -> None:
        while True:
            await asyncio.sleep(1)
            seen.append((node, loop.time()))

    async def main() -> None:
        tasks = [loop.create_task(tick(node), context=context_of(node)) for node in (1, 2)]
        await asyncio.sleep(2.5)
        loop.suspend(1)
        loop.kill(2)
        await asyncio.sleep(5)
        loop.resume(1)
        await asyncio.sleep(1.9)
        for task in tasks:
            task.cancel()

    loop.run(main())
    assert [at for node, at in seen if node == 2] == [1, 2]
    # The timer of second 3 fires when the node continues.
    assert [at for node, at in seen if node == 1] == [1, 2, 7.5, 8.5]
