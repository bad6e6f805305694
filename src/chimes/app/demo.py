"""`serve --demo`: example schedules, loaded once, that call this node and nobody else."""

from __future__ import annotations

from chimes.app.runtime import Runtime
from chimes.model.access import Actor
from chimes.service.demo import DemoService


async def load_demo(runtime: Runtime) -> int:
    """How many schedules were added; 0: they are there already. Whoever starts a node may do
    everything on its store."""
    address = f"http://127.0.0.1:{runtime.settings.port}"
    service = DemoService(runtime.services.store)
    return await service.load(Actor(door="cli"), base_url=address)
