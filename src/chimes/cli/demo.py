"""`demo remove`: what `serve --demo` and the button on Today have loaded goes again."""

from __future__ import annotations

import asyncio

import click

from chimes.cli.lazy import Command, Lazy, LazyGroup
from chimes.cli.output import tell
from chimes.cli.store import opened_store, store_options
from chimes.config import Settings, StoreLocation, store_location
from chimes.wording import counted, say

COMMANDS = {"remove": Lazy("chimes.cli.demo", "remove", "Remove the example schedules.")}


@click.group("demo", cls=LazyGroup, lazy=COMMANDS)
def demo() -> None:
    """The example schedules of `chimes serve --demo`."""


@click.command("remove", cls=Command)
@store_options
def remove(settings: Settings) -> None:
    """Remove the example schedules and their made-up history; all that is yours stays.

    \b
    Examples:
      chimes demo remove
      chimes demo remove --store postgresql://chimes@db.example.org/chimes
    """
    asyncio.run(_remove(store_location(settings)))


async def _remove(location: StoreLocation) -> None:
    from chimes.model.access import Actor
    from chimes.service.demo import DemoService

    async with opened_store(location) as store:
        removed = await DemoService(store).remove(Actor(door="cli"))
    if not removed.schedules:
        tell(say("There are no example schedules here."))
        return
    tell(
        counted(
            "{count} example schedule was removed, with its made-up history.",
            "{count} example schedules were removed, with their made-up history.",
            removed.schedules,
        )
    )
