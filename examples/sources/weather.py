"""A source with the driver `python`: the function is called in a separate process per task."""

from __future__ import annotations

from collections.abc import Mapping

CITIES = ("Bangkok", "Lisbon", "Oslo")


def sync(
    source: str, collection: str, config: Mapping[str, object], state: dict[str, int] | None
) -> dict[str, int]:
    """Printed lines are the log of the task; the return value is `state` of the next call."""
    done = (state or {"syncs": 0})["syncs"]
    for city in CITIES:
        print(f"{source}: {city}, {config['days']} days")
    return {"syncs": done + 1}
