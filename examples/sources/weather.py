"""A source of the driver `python`: called in a process of its own, once per task."""

from __future__ import annotations

from collections.abc import Mapping

CITIES = ("Bangkok", "Lisbon", "Oslo")


def sync(
    source: str, collection: str, config: Mapping[str, object], state: dict[str, int] | None
) -> dict[str, int]:
    """What is printed is the task's log; what is returned is `state` the next time."""
    done = (state or {"syncs": 0})["syncs"]
    for city in CITIES:
        print(f"{source}: {city}, {config['days']} days")
    return {"syncs": done + 1}
