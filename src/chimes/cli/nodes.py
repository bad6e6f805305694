"""`nodes`: the processes that share the store."""

from __future__ import annotations

import click

from chimes.cli.backend import Backend, get, items_of
from chimes.cli.lazy import Command
from chimes.cli.options import client_options, output_options
from chimes.cli.output import Column, Json, Output, pick

_SHOWN_OFFERS = 6


@click.command("nodes", cls=Command)
@output_options
@client_options
def nodes(backend: Backend, output: Output) -> None:
    """List the nodes: what they do, what they offer, and how far their clocks are off.

    \b
    Examples:
      chimes nodes
      chimes nodes --json=id,alive,clock_offset_seconds
    """
    columns = [
        Column("id", pick("id")),
        Column("state", _state),
        Column("roles", lambda item: ",".join(_words(item, "roles")), rank=2),
        Column("places", pick("capacity"), rank=5),
        Column("clock", _clock, rank=3),
        Column("beat", pick("heartbeat_at"), time=True, rank=1),
        Column("since", pick("started_at"), time=True, rank=6),
        Column("version", pick("version"), rank=4),
        Column("offers", _offers, rank=7, widest=60, narrowest=12),
    ]
    output.rows(items_of(get(backend, "/nodes")), columns)


def _state(item: Json) -> str:
    return "alive" if item.get("alive") else "gone"


def _clock(item: Json) -> str:
    offset = item.get("clock_offset_seconds")
    return f"{offset:+.3f} s" if isinstance(offset, int | float) else ""


def _offers(item: Json) -> str:
    offers = _words(item, "offers")
    more = len(offers) - _SHOWN_OFFERS
    shown = ", ".join(offers[:_SHOWN_OFFERS])
    return f"{shown} and {more} more" if more > 0 else shown


def _words(item: Json, name: str) -> list[str]:
    value = item.get(name)
    return [str(each) for each in value] if isinstance(value, list) else []
