"""`limits`: named limits that schedules and tasks share."""

from __future__ import annotations

from collections.abc import Callable

import click

from chimes.cli.backend import Backend, api_path, delete, get, items_of, put
from chimes.cli.command import USAGE, Command, CommandError, LazyCommand, LazyGroup
from chimes.cli.options import (
    client_options,
    lazy_client_options,
    output_format_options,
    output_options,
)
from chimes.cli.output import Column, Json, Output, echo, getter, nested
from chimes.i18n import _
from chimes.redaction import escape_control

LIMIT_COMMANDS = {
    "list": LazyCommand(
        "chimes.cli.operations.limits", "list_limits", "List limits and their use."
    ),
    "set": LazyCommand(
        "chimes.cli.operations.limits", "set_limit", "Create a limit or replace its values."
    ),
    "rm": LazyCommand("chimes.cli.operations.limits", "remove_limit", "Delete a limit."),
}


@click.group("limits", cls=LazyGroup, lazy=LIMIT_COMMANDS)
def limits() -> None:
    """Limit the concurrency and the rate of runs that share a name."""


def _owner(item: Json) -> str:
    if item.get("shared"):
        return _("all")
    owner = nested(item, "owner")
    return f"{owner.get('type', '')}:{owner.get('id', '')}"


def _of_use(item: Json, name: str, limit: str) -> str:
    """Use and limit, such as 3/5; empty without a limit."""
    used = nested(item, "use").get(name)
    return "" if used is None else f"{used}/{item.get(limit)}"


def _schedules(item: Json) -> str:
    used = items_of({"items": item.get("schedules")})
    return ", ".join(str(each["name"]) for each in used)


_COLUMNS = [
    Column(_("name"), getter("name")),
    Column(_("owner"), _owner, rank=3),
    Column(_("running"), lambda item: _of_use(item, "running", "concurrency")),
    Column(_("rate"), lambda item: str(item.get("rate") or "")),
    Column(_("burst"), lambda item: _of_use(item, "available", "burst"), rank=1),
    Column(_("waiting"), lambda item: str(nested(item, "use").get("waiting", ""))),
    Column(_("breaker"), lambda item: str(nested(item, "use").get("breaker") or "")),
    Column(_("schedules"), _schedules, max_width=60, rank=2),
]
_owner_option = click.option(
    "--owner", metavar="TYPE:ID", help="Owner of the limit, such as user:alice. Default: you."
)
_shared_option = click.option(
    "--shared", is_flag=True, help="The limit of all owners; only admins may change it."
)


@click.command("list", cls=Command)
@_owner_option
@output_options
@client_options
def list_limits(backend: Backend, output: Output, owner: str | None) -> None:
    """List your limits and shared ones, how much of them is in use, and the schedules that name
    them.

    \b
    Examples:
      chimes limits list
      chimes limits list --owner user:alice --json
    """
    items = items_of(get(backend, "/limits", owner=owner))
    if output.format == "ids":
        items = [{"id": each["name"]} for each in items]
    output.rows(items, _COLUMNS)


@click.command("set", cls=Command)
@click.argument("name")
@click.option("--concurrency", type=int, help="Most runs at a time, on all nodes together.")
@click.option("--rate", metavar="N/TIME", help="Most calls per time, such as 10/s or 100/m.")
@click.option("--burst", type=int, help="Calls that may start at once. Default: those of 1 s.")
@click.option(
    "--breaker",
    metavar="FAILURES/PAUSE",
    help="After so many failed calls in a row pause for so long, such as 5/1m.",
)
@_owner_option
@_shared_option
@output_format_options
@lazy_client_options
def set_limit(
    open_backend: Callable[..., Backend],
    output: Output,
    name: str,
    concurrency: int | None,
    rate: str | None,
    burst: int | None,
    breaker: str | None,
    owner: str | None,
    shared: bool,
) -> None:
    """Create a limit, or replace all its values. Runs whose policy names it (`chimes add --limit`)
    start only as it allows.

    \b
    Examples:
      chimes limits set api.example.com --rate 10/s --burst 20
      chimes limits set reports --concurrency 5
      chimes limits set shop --concurrency 5 --breaker 5/1m
    """
    given = {"concurrency": concurrency, "rate": rate, "burst": burst, "breaker": _breaker(breaker)}
    body = {key: value for key, value in given.items() if value is not None}
    query = {"owner": owner, "shared": "true" if shared else None}
    stored = put(open_backend(create=True), api_path("limits", name), body, **query)
    if output.format in ("json", "ndjson"):
        output.one(stored, [])
        return
    echo(escape_control(str(stored["name"])))


@click.command("rm", cls=Command)
@click.argument("name")
@_owner_option
@_shared_option
@client_options
def remove_limit(backend: Backend, name: str, owner: str | None, shared: bool) -> None:
    """Delete a limit. Refused while schedules name it.

    \b
    Examples:
      chimes limits rm api.example.com
    """
    delete(backend, api_path("limits", name), owner=owner, shared="true" if shared else None)
    echo(escape_control(name))


def _breaker(text: str | None) -> Json | None:
    if text is None:
        return None
    failures, slash, pause = text.partition("/")
    if not slash or not failures.isdecimal():
        raise CommandError(
            _("{text!r} is not a breaker", text=text),
            USAGE,
            hint=_("write failures in a row and a pause, for example 5/1m"),
        )
    return {"failures": int(failures), "pause": pause}
