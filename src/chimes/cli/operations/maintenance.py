"""`chimes maintenance`: stops all firing and lets it continue."""

from __future__ import annotations

import click

from chimes.cli.backend import Backend, delete, get, items_of, post
from chimes.cli.command import Command, LazyCommand, LazyGroup
from chimes.cli.options import api_time, client_options, output_options
from chimes.cli.output import Column, Json, Output, echo_err, getter
from chimes.i18n import _

MAINTENANCE_COMMANDS = {
    "on": LazyCommand("chimes.cli.operations.maintenance", "on", "Stop all firing."),
    "off": LazyCommand("chimes.cli.operations.maintenance", "off", "Let schedules fire again."),
    "status": LazyCommand("chimes.cli.operations.maintenance", "status", "Show what is stopped."),
}
_COLUMNS = [
    Column(_("namespace"), lambda item: item.get("namespace") or "*"),
    Column(_("since"), getter("since"), time=True, rank=1),
    Column(_("until"), getter("until"), time=True),
    Column(_("by"), getter("by"), rank=2),
    Column(_("reason"), getter("reason")),
]
_namespace_option = click.option(
    "--namespace", metavar="NAME", help="Only this namespace. Default: the whole instance."
)


@click.group("maintenance", cls=LazyGroup, lazy=MAINTENANCE_COMMANDS)
def maintenance() -> None:
    """Stop all firing for a while. No schedule changes: those that are paused stay paused, and
    those that are created or edited meanwhile fire afterwards.

    Slots that are due meanwhile are recorded as skipped and not caught up; `chimes backfill` runs
    them. Runs that exist continue, and `chimes run` still works.
    """


@click.command("on", cls=Command)
@click.option("--until", metavar="TIME", help="End by itself at this time, such as 'in 2h'.")
@click.option("--reason", default="", help="Reason, shown to all users.")
@click.option("--silence", is_flag=True, help="Send no notifications meanwhile.")
@_namespace_option
@output_options
@client_options
def on(
    backend: Backend,
    output: Output,
    until: str | None,
    reason: str,
    silence: bool,
    namespace: str | None,
) -> None:
    """Stop all firing. Nothing fires any more when the command returns. Again: changes the end and
    the reason.

    \b
    Examples:
      chimes maintenance on --until "in 2h" --reason "new database"
      chimes maintenance on --namespace shop --silence
    """
    body: Json = {"reason": reason}
    if until is not None:
        body["until"] = api_time(until, field="--until")
    if namespace is not None:
        body["namespace"] = namespace
    if silence:
        body["silence"] = True
    _print([post(backend, "/maintenance", body)], output)


@click.command("off", cls=Command)
@click.option("--reason", default="", help="Reason for the audit log.")
@_namespace_option
@client_options
def off(backend: Backend, reason: str, namespace: str | None) -> None:
    """Let schedules fire again, from their next slot on.

    \b
    Examples:
      chimes maintenance off
      chimes maintenance off --namespace shop
    """
    delete(backend, "/maintenance", namespace=namespace, reason=reason)
    echo_err(_("Maintenance is off. Schedules fire again from their next slot on."))


@click.command("status", cls=Command)
@output_options
@client_options
def status(backend: Backend, output: Output) -> None:
    """Show whether maintenance is on, for the instance (*) or for a namespace.

    \b
    Examples:
      chimes maintenance status
      chimes maintenance status --json=namespace,until
    """
    items = items_of(get(backend, "/maintenance"))
    if not items:
        echo_err(_("Maintenance is off."))
    _print(items, output)


def _print(items: list[Json], output: Output) -> None:
    if output.format == "ids":
        items = [{"id": each.get("namespace") or "*"} for each in items]
    if items or not output.is_table:
        output.rows(items, _COLUMNS)
