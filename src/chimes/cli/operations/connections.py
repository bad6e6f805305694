"""`chimes connections`: engines, brokers and databases in `chimes.yaml`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chimes.cli.backend import Backend, get, items_of
from chimes.cli.command import NOT_FOUND, Command, CommandError, LazyCommand, LazyGroup
from chimes.cli.options import client_options, output_options
from chimes.cli.output import Column, Json, Output, getter
from chimes.errors import ChimesError
from chimes.i18n import _

if TYPE_CHECKING:
    from chimes.config import Settings
    from chimes.config.connections import Connection

CONNECTION_COMMANDS = {
    "list": LazyCommand(
        "chimes.cli.operations.connections", "list_", "List connections and their nodes."
    ),
    "test": LazyCommand(
        "chimes.cli.operations.connections", "test", "Connect and show what answers."
    ),
}


def _joined(name: str) -> Callable[[Json], object]:
    def text(item: Json) -> str:
        value = item.get(name)
        return ", ".join(str(each) for each in value) if isinstance(value, list) else ""

    return text


_COLUMNS = [
    Column(_("name"), getter("name")),
    Column(_("kind"), getter("kind")),
    Column(_("roles"), _joined("roles"), rank=2),
    Column(_("nodes"), _joined("nodes"), rank=1),
]


@click.group("connections", cls=LazyGroup, lazy=CONNECTION_COMMANDS)
def connections() -> None:
    """Engines, brokers and databases that the operator names under `connections:` in chimes.yaml.
    Schedules use them by name."""


@click.command("list", cls=Command)
@output_options
@client_options
def list_(backend: Backend, output: Output) -> None:
    """List the connections of the server and of the live nodes.

    \b
    Examples:
      chimes connections list
      chimes connections list --json
    """
    output.rows(items_of(get(backend, "/connections")), _COLUMNS)


@click.command("test", cls=Command)
@click.argument("name")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="Default: as serve."
)
def test(name: str, config: Path | None) -> None:
    """Connect from this machine with the configuration of this machine, and show what answers.

    \b
    Examples:
      chimes connections test tasks
    """
    from chimes.config import load_settings
    from chimes.triggers.values import suggest_name

    loaded = load_settings(config_file=config)
    known = {each.name: each for each in loaded.settings.connections}
    if name not in known:
        raise CommandError(
            _(
                "there is no connection {name!r} in {file}; known: {known}",
                name=name,
                file=str(loaded.file or "chimes.yaml"),
                known=", ".join(sorted(known)) or "-",
            ),
            NOT_FOUND,
            hint=suggest_name(name, known),
        )
    connection = known[name]
    answer = asyncio.run(_check(connection, loaded.settings))
    click.echo(f"{connection.kind} {connection.display}: {answer}")


async def _check(connection: Connection, settings: Settings) -> str:
    from chimes.runtime.composition import open_local
    from chimes.runtime.connections import check_connection
    from chimes.targets.base import TargetError

    try:
        if not connection.secret_names:
            return await check_connection(connection, None)
        async with open_local(settings) as services:
            return await check_connection(connection, services.store)
    except TargetError as error:
        raise ChimesError(error.text) from None
