"""`nodes`: the processes that share the store."""

from __future__ import annotations

import click

from chimes.cli.backend import Backend, get, items_of
from chimes.cli.lazy import Command
from chimes.cli.options import client_options, output_options
from chimes.cli.output import Column, Json, Output, pick
from chimes.wording import Wording, say

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
        Column(say("id"), pick("id")),
        Column(say("state"), _state),
        Column(say("roles"), lambda item: ",".join(_words(item, "roles")), rank=2),
        Column(say("places"), pick("capacity"), rank=5),
        Column(say("clock"), _clock, rank=3),
        Column(say("beat"), pick("heartbeat_at"), time=True, rank=1),
        Column(say("since"), pick("started_at"), time=True, rank=6),
        Column(say("version"), pick("version"), rank=4),
        Column(say("offers"), _offers, rank=7, widest=60, narrowest=12),
    ]
    output.rows(items_of(get(backend, "/nodes")), columns)


def _state(item: Json) -> Wording:
    return say("alive") if item.get("alive") else say("gone")


def _clock(item: Json) -> str:
    offset = item.get("clock_offset_seconds")
    return f"{offset:+.3f} s" if isinstance(offset, int | float) else ""


def _offers(item: Json) -> str:
    offers = _words(item, "offers")
    more = len(offers) - _SHOWN_OFFERS
    shown = ", ".join(offers[:_SHOWN_OFFERS])
    return say("{names} and {count} more", names=shown, count=more) if more > 0 else shown


def _words(item: Json, name: str) -> list[str]:
    value = item.get(name)
    return [str(each) for each in value] if isinstance(value, list) else []
