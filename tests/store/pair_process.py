"""Eight processes that request the same pairs concurrently, like eight nodes on one store.

`main()`, with the location as argument, prints the answers of each process as JSON. The processes
are forked from this one, so that they share its imports, and begin each round together.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from chimes.model import replace
from chimes.model.ids import RunId, ScheduleId
from chimes.model.planning import plan
from chimes.model.policy import Overlap, Policy
from chimes.model.target import SyncTarget
from chimes.store.port import Store
from chimes.store.redis import open_redis
from chimes.store.sql import open_mariadb, open_postgres, open_sqlite
from chimes.triggers import Every
from tests.builders import a_schedule, a_sync_run
from tests.forking import run_chimes

PROCESSES = 8
PAIRS = 4
#: Rounds of each kind: requests only; requests and due slots.
ROUNDS = 3
#: The longest time that a process waits for the others.
PATIENCE = 60.0


@dataclass(frozen=True)
class Round:
    number: int
    ticking: bool

    @property
    def pairs(self) -> list[SyncTarget]:
        """New pairs for each round."""
        return [
            SyncTarget(source=f"source-{self.number}", collection=f"c{number}")
            for number in range(PAIRS)
        ]


ALL_ROUNDS = [Round(number, ticking=number % 2 == 1) for number in range(2 * ROUNDS)]


def store_at(location: str) -> Store:
    openers: dict[str, Callable[[str], Store]] = {
        "postgresql": open_postgres,
        "mariadb": open_mariadb,
        "redis": open_redis,
    }
    return openers.get(location.partition(":")[0], open_sqlite)(location)


async def set_up(location: str) -> None:
    """Adds the schedules of the rounds with slots; each becomes due in its round."""
    store = store_at(location)
    await store.open()
    now = await store.now()
    for round_ in ALL_ROUNDS:
        for pair in round_.pairs if round_.ticking else ():
            policy = Policy(overlap=Overlap.SKIP, concurrency_key=pair.key)
            await store.add_schedule(
                replace(
                    a_schedule(
                        id=ScheduleId(pair.key),
                        target=pair,
                        policy=policy,
                        trigger=Every("24h", anchor=now),
                        next_slot=now,
                        next_run_at=now,
                    ),
                    enabled=False,
                )
            )
    await store.close()


async def enable(store: Store, round_: Round) -> None:
    for pair in round_.pairs:
        await store.change_schedule(
            ScheduleId(pair.key), lambda schedule, _: replace(schedule, enabled=True)
        )


async def request(store: Store, pair: SyncTarget, run_id: str) -> tuple[str, str, bool]:
    now = await store.now()
    times = {"created_at": now, "planned_at": now, "available_at": now}
    run, created = await store.add_unless_active(a_sync_run(pair, id=RunId(run_id), **times))
    return pair.key, run.id, created


async def tick(store: Store) -> None:
    while (await store.fire_due(plan, limit=2)).more:
        pass


async def run_rounds(location: str, me: int, together: Barrier) -> list[tuple[str, str, bool]]:
    store = store_at(location)
    await store.open()
    answers: list[tuple[str, str, bool]] = []
    try:
        for round_ in ALL_ROUNDS:
            if round_.ticking and me == 0:
                await enable(store, round_)
            # Nothing else runs on this loop.
            together.wait(PATIENCE)
            asked = [request(store, pair, f"{me}-{pair.key}") for pair in round_.pairs]
            ticks = [tick(store)] if round_.ticking else []
            found = await asyncio.gather(*asked, *ticks)
            answers += [answer for answer in found if answer is not None]
    finally:
        await store.close()
    return answers


def process(location: str, me: int, together: Barrier, answer: Connection) -> None:
    try:
        answer.send(asyncio.run(run_rounds(location, me, together)))
    except BaseException as error:
        together.abort()
        answer.send(f"process {me}: {type(error).__name__}: {error}")


def main() -> None:
    (location,) = sys.argv[1:]
    # One after the other, and before forking: no thread of this process is copied.
    asyncio.run(set_up(location))
    forking = multiprocessing.get_context("fork")
    together = forking.Barrier(PROCESSES)
    pipes = [forking.Pipe(duplex=False) for _ in range(PROCESSES)]
    started = [
        forking.Process(target=process, args=(location, me, together, pipe[1]), daemon=True)
        for me, pipe in enumerate(pipes)
    ]
    for each in started:
        each.start()
    answers = [pipe[0].recv() if pipe[0].poll(PATIENCE) else "no answer" for pipe in pipes]
    for each in started:
        each.join(5)
    json.dump(answers, sys.stdout)


def eight_processes(location: str) -> list[list[tuple[str, str, bool]]]:
    """Returns the answers of each process."""
    module = "tests.store.pair_process"
    done = run_chimes([location], cwd=Path.cwd(), timeout=2 * PATIENCE, module=module)
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    assert all(isinstance(answer, list) for answer in answers), answers
    return [[(key, run_id, created) for key, run_id, created in answer] for answer in answers]
