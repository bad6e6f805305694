"""`nodes`, `drain` and `node`: the nodes that share the store."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from chimes.cli.backend import Backend, api_path, delete, find_node, get, items_of, post
from chimes.cli.command import FAILED, TIMED_OUT, Command, CommandError, LazyCommand, LazyGroup
from chimes.cli.options import client_options, confirm_options, output_options
from chimes.cli.output import Column, Json, Output, echo, echo_err, getter
from chimes.clock import SystemClock
from chimes.i18n import Message, _
from chimes.redaction import escape_control

NODE_COMMANDS = {
    "resume": LazyCommand("chimes.cli.nodes", "resume", "Resume a drained node."),
    "forget": LazyCommand("chimes.cli.nodes", "forget", "Remove a dead node from the list."),
}
_SHOWN_CAPABILITIES = 6
#: Seconds between polls of a draining node, which reports with its heartbeat.
_POLL = 0.5
_STATES = {
    "alive": _("alive"),
    "draining": _("draining"),
    "drained": _("drained"),
    "gone": _("gone"),
}


@click.group("node", cls=LazyGroup, lazy=NODE_COMMANDS)
def node() -> None:
    """Resume nodes that `chimes drain` stopped, and remove dead ones."""


@click.command("nodes", cls=Command)
@output_options
@client_options
def nodes(backend: Backend, output: Output) -> None:
    """List nodes: state, roles, capabilities and clock offset.

    \b
    Examples:
      chimes nodes
      chimes nodes --json=id,state,running,clock_offset_seconds
    """
    output.rows(items_of(get(backend, "/nodes")), _columns())


@click.command("drain", cls=Command)
@click.argument("node_id", metavar="NODE")
@click.option("--reason", default="", help="Reason for the audit log.")
@click.option("--wait", is_flag=True, help="Wait until the node has no in-flight runs.")
@click.option(
    "--timeout",
    default="10m",
    show_default=True,
    help="How long to wait; exit code 124 after that.",
)
@output_options
@client_options
def drain(
    backend: Backend, output: Output, node_id: str, reason: str, wait: bool, timeout: str
) -> None:
    """Stop a node from accepting new runs. It starts draining with its next heartbeat and finishes
    its in-flight runs; other nodes continue. It stays drained until `chimes node resume` or a
    restart.

    \b
    Examples:
      chimes drain web-1-4711-0a1b2c3d
      chimes drain web-1 --reason "new kernel" --wait
    """
    found = find_node(backend, node_id)
    draining = _post(backend, found, "drain", reason)
    if wait:
        draining = _wait_until_drained(backend, draining, timeout)
    output.rows([draining], _columns())


@click.command("resume", cls=Command)
@click.argument("node_id", metavar="NODE")
@click.option("--reason", default="", help="Reason for the audit log.")
@output_options
@client_options
def resume(backend: Backend, output: Output, node_id: str, reason: str) -> None:
    """Resume a drained node with its next heartbeat.

    \b
    Examples:
      chimes node resume web-1
    """
    found = find_node(backend, node_id)
    output.rows([_post(backend, found, "resume", reason)], _columns())


@click.command("forget", cls=Command)
@click.argument("node_id", metavar="NODE")
@confirm_options
@client_options
@click.pass_context
def forget(
    ctx: click.Context, backend: Backend, confirm: Callable[..., bool], node_id: str
) -> None:
    """Remove a node whose lease has expired from the list. Other nodes take over its runs.

    \b
    Examples:
      chimes node forget web-1
    """
    found = find_node(backend, node_id)
    if not confirm(_("Remove node {id}?", id=found["id"])):
        echo_err(_("Nothing was removed."))
        ctx.exit(FAILED)
    delete(backend, api_path("nodes", found["id"]))
    echo(escape_control(str(found["id"])))


def _post(backend: Backend, found: Json, verb: str, reason: str) -> Json:
    return post(backend, api_path("nodes", found["id"], verb), {"reason": reason} if reason else {})


def _wait_until_drained(backend: Backend, node: Json, timeout: str) -> Json:
    """The node once it has no in-flight runs, or has left."""
    from chimes.triggers import parse_duration

    clock = SystemClock()
    until = clock.monotonic() + parse_duration(timeout, field="--timeout").total_seconds()
    while node.get("state") == "draining":
        if clock.monotonic() + _POLL > until:
            raise CommandError(
                _("Node {id} is still draining after {timeout}", id=node["id"],
                    timeout=timeout),
                TIMED_OUT,
                hint=_("it continues to drain; check it with `chimes nodes`"),
            )  # fmt: skip
        time.sleep(_POLL)
        present = [each for each in items_of(get(backend, "/nodes")) if each["id"] == node["id"]]
        node = present[0] if present else node | {"state": "gone"}
    return node


def _columns() -> list[Column]:
    return [
        Column(_("id"), getter("id")),
        Column(_("state"), _state),
        Column(_("roles"), lambda item: ",".join(_words(item, "roles")), rank=2),
        Column(_("capacity"), getter("capacity"), rank=5),
        Column(_("clock"), _clock, rank=3),
        Column(_("heartbeat"), getter("heartbeat_at"), time=True, rank=1),
        Column(_("since"), getter("started_at"), time=True, rank=6),
        Column(_("version"), getter("version"), rank=4),
        Column(_("running"), getter("running"), rank=4),
        Column(_("capabilities"), _capabilities, rank=7, max_width=60, min_width=12),
    ]


def _state(item: Json) -> Message | str:
    state = str(item.get("state") or ("alive" if item.get("alive") else "gone"))
    return _STATES.get(state, state)


def _clock(item: Json) -> str:
    offset = item.get("clock_offset_seconds")
    return f"{offset:+.3f} s" if isinstance(offset, int | float) else ""


def _capabilities(item: Json) -> str:
    capabilities = _words(item, "offers")
    more = len(capabilities) - _SHOWN_CAPABILITIES
    listed = ", ".join(capabilities[:_SHOWN_CAPABILITIES])
    return _("{names} and {count} more", names=listed, count=more) if more > 0 else listed


def _words(item: Json, name: str) -> list[str]:
    value = item.get(name)
    return [str(each) for each in value] if isinstance(value, list) else []
