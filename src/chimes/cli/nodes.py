"""`nodes`, `drain`, and the noun `node`: the processes that share the store."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from chimes.cli.backend import Backend, delete, find_node, get, items_of, path_of, post
from chimes.cli.command import FAILED, TIMED_OUT, Command, Failure, Lazy, LazyGroup
from chimes.cli.options import client_options, output_options, yes_option
from chimes.cli.output import Column, Json, Output, echo, pick, tell
from chimes.clock import SystemClock
from chimes.i18n import Message, _
from chimes.redaction import escaped

COMMANDS = {
    "resume": Lazy("chimes.cli.nodes", "resume", "Let a drained node go on."),
    "forget": Lazy("chimes.cli.nodes", "forget", "Take a node off the list that is gone."),
}
_SHOWN_OFFERS = 6
#: Seconds between two looks at a node that drains: it tells with its heartbeat.
_LOOK = 0.5
_STATES = {
    "alive": _("alive"),
    "draining": _("draining"),
    "drained": _("drained"),
    "gone": _("gone"),
}


@click.group("node", cls=LazyGroup, lazy=COMMANDS)
def node() -> None:
    """Nodes: let those go on that `chimes drain` has stopped, forget those that are gone."""


@click.command("nodes", cls=Command)
@output_options
@client_options
def nodes(backend: Backend, output: Output) -> None:
    """List the nodes: what they do, what they offer, and how far their clocks are off.

    \b
    Examples:
      chimes nodes
      chimes nodes --json=id,state,running,clock_offset_seconds
    """
    output.rows(items_of(get(backend, "/nodes")), _columns())


@click.command("drain", cls=Command)
@click.argument("node_id", metavar="NODE")
@click.option("--reason", default="", help="Kept in the audit.")
@click.option("--wait", is_flag=True, help="Until nothing is in hand any more.")
@click.option("--timeout", default="10m", show_default=True, help="How long to wait; exit 124.")
@output_options
@client_options
def drain(
    backend: Backend, output: Output, node_id: str, reason: str, wait: bool, timeout: str
) -> None:
    """Let a node take nothing new. It hears of it with its next heartbeat, and finishes what it
    has; the others go on. It stays so until `chimes node resume`, or until it is started anew.

    \b
    Examples:
      chimes drain web-1-4711-0a1b2c3d
      chimes drain web-1 --reason "new kernel" --wait
    """
    found = find_node(backend, node_id)
    asked = _ask(backend, found, "drain", reason)
    if wait:
        asked = _drained(backend, asked, timeout)
    output.rows([asked], _columns())


@click.command("resume", cls=Command)
@click.argument("node_id", metavar="NODE")
@click.option("--reason", default="", help="Kept in the audit.")
@output_options
@client_options
def resume(backend: Backend, output: Output, node_id: str, reason: str) -> None:
    """Let a drained node go on, from its next heartbeat on.

    \b
    Examples:
      chimes node resume web-1
    """
    found = find_node(backend, node_id)
    output.rows([_ask(backend, found, "resume", reason)], _columns())


@click.command("forget", cls=Command)
@click.argument("node_id", metavar="NODE")
@yes_option
@client_options
@click.pass_context
def forget(ctx: click.Context, backend: Backend, ask: Callable[..., bool], node_id: str) -> None:
    """Take a node off the list whose lease is over. Its runs are taken over by the others.

    \b
    Examples:
      chimes node forget web-1
    """
    found = find_node(backend, node_id)
    if not ask(_("Forget the node {id}?", id=found["id"])):
        tell(_("Nothing was forgotten."))
        ctx.exit(FAILED)
    delete(backend, path_of("nodes", found["id"]))
    echo(escaped(str(found["id"])))


def _ask(backend: Backend, found: Json, verb: str, reason: str) -> Json:
    return post(backend, path_of("nodes", found["id"], verb), {"reason": reason} if reason else {})


def _drained(backend: Backend, asked: Json, timeout: str) -> Json:
    """The node once it has nothing in hand; one that left meanwhile has not either."""
    from chimes.triggers import parse_duration

    clock = SystemClock()
    until = clock.monotonic() + parse_duration(timeout, field="--timeout").total_seconds()
    while asked.get("state") == "draining":
        if clock.monotonic() + _LOOK > until:
            raise Failure(
                _("The node {id} is still draining after {timeout}", id=asked["id"],
                    timeout=timeout),
                TIMED_OUT,
                hint=_("it goes on; see `chimes nodes`"),
            )  # fmt: skip
        time.sleep(_LOOK)
        there = [each for each in items_of(get(backend, "/nodes")) if each["id"] == asked["id"]]
        asked = there[0] if there else asked | {"state": "gone"}
    return asked


def _columns() -> list[Column]:
    return [
        Column(_("id"), pick("id")),
        Column(_("state"), _state),
        Column(_("roles"), lambda item: ",".join(_words(item, "roles")), rank=2),
        Column(_("places"), pick("capacity"), rank=5),
        Column(_("clock"), _clock, rank=3),
        Column(_("beat"), pick("heartbeat_at"), time=True, rank=1),
        Column(_("since"), pick("started_at"), time=True, rank=6),
        Column(_("version"), pick("version"), rank=4),
        Column(_("running"), pick("running"), rank=4),
        Column(_("offers"), _offers, rank=7, widest=60, narrowest=12),
    ]


def _state(item: Json) -> Message | str:
    state = str(item.get("state") or ("alive" if item.get("alive") else "gone"))
    return _STATES.get(state, state)


def _clock(item: Json) -> str:
    offset = item.get("clock_offset_seconds")
    return f"{offset:+.3f} s" if isinstance(offset, int | float) else ""


def _offers(item: Json) -> str:
    offers = _words(item, "offers")
    more = len(offers) - _SHOWN_OFFERS
    shown = ", ".join(offers[:_SHOWN_OFFERS])
    return _("{names} and {count} more", names=shown, count=more) if more > 0 else shown


def _words(item: Json, name: str) -> list[str]:
    value = item.get(name)
    return [str(each) for each in value] if isinstance(value, list) else []
