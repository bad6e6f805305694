"""A node process with flows: `flow_node.py DATABASE EFFECTS GATE ROLE`.

The flow `waiting` waits for an approval between two steps. Each step of the other flow appends a
line `step attempt` to the file EFFECTS; `middle` then waits for the file GATE. A node with the role
`flows` executes only flows, one with the role `steps` only steps.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from chimes.config import Settings
from chimes.engine import Engine
from chimes.store.sql import open_sqlite
from chimes.targets.base import TargetRunner
from chimes.targets.flow import FlowBuilder
from chimes.targets.python import Context
from tests.engine.flows import runners_for

SETTINGS = Settings(
    workers=5,
    lease=timedelta(seconds=3),
    poll_interval=timedelta(seconds=0.2),
    shutdown_grace=timedelta(seconds=3),
)


def crashing(effects: str, gate: str) -> FlowBuilder:
    flow = FlowBuilder("crashing")

    def note(context: Context) -> None:
        file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{context.task.partition('/')[2]} {context.attempt}\n".encode())
        os.close(file)

    @flow.step()
    def first(context: Context) -> str:
        note(context)
        return "one"

    @flow.step(after=[first])
    def middle(first: str, context: Context) -> str:
        note(context)
        while not Path(gate).exists():
            time.sleep(0.02)  # another process opens the gate
        return f"{first}, two"

    @flow.step(after=[middle])
    def last(middle: str, context: Context) -> str:
        note(context)
        return f"{middle}, three"

    return flow


def waiting(effects: str) -> FlowBuilder:
    flow = FlowBuilder("waiting")

    def note(name: str) -> None:
        with Path(effects).open("a") as file:
            file.write(f"{name}\n")

    flow.step(name="ask")(lambda: note("ask"))
    approve = flow.wait_for_approval("approve", after=["ask"])
    flow.step(name="publish", after=[approve])(lambda: note("publish"))
    return flow


def runners(effects: str, gate: str, role: str) -> dict[str, TargetRunner]:
    unwanted = {"flows": "task", "steps": "flow"}.get(role)
    found = runners_for(crashing(effects, gate), waiting(effects))
    return {runner.kind: runner for runner in found if runner.kind != unwanted}


async def main(database: str, effects: str, gate: str, role: str) -> None:
    store = open_sqlite(database)
    await store.open()
    engine = Engine(store, runners(effects, gate, role), settings=SETTINGS)
    await engine.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
