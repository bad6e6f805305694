"""`serve --demo`: example schedules, loaded once, and the task that they run: it calls nobody."""

from __future__ import annotations

import asyncio

from chimes.app.runtime import Runtime
from chimes.app.sdk import Chimes
from chimes.model.access import Actor
from chimes.service.demo import DemoService
from chimes.service.demo_history import LONGEST, MADE_UP, TASK


async def work(seconds: float, fails: bool = False) -> str:
    """What an example does: it takes its time."""
    await asyncio.sleep(min(max(seconds, 0.0), LONGEST))
    if fails:
        raise RuntimeError(MADE_UP)
    return MADE_UP


def with_demo(app: Chimes | None) -> Chimes:
    """The application, which carries out the examples as well; one of its own if there is none."""
    found = Chimes() if app is None else app
    found.task(name=TASK)(work)
    return found


async def load_demo(runtime: Runtime) -> int:
    """How many schedules were added; 0: they are there already. Whoever starts a node may do
    everything on its store."""
    return await DemoService(runtime.services.store).load(Actor(door="cli"), live=True)
