"""`config`: the configuration in use, and the JSON Schema of files with schedules."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from chimes.cli.command import Command, LazyCommand, LazyGroup
from chimes.cli.options import (
    config_option,
    data_dir_option,
    output_format_options,
    store_option,
)
from chimes.cli.output import Column, Json, Output, echo, echo_err, getter
from chimes.config import LoadedSettings, load_settings
from chimes.config.loader import describe_settings
from chimes.i18n import _

CONFIG_COMMANDS = {
    "show": LazyCommand(
        "chimes.cli.operations.config", "show", "Show each setting and its origin."
    ),
    "path": LazyCommand(
        "chimes.cli.operations.config", "path", "Print the path of the configuration file."
    ),
    "schema": LazyCommand(
        "chimes.cli.operations.config", "schema", "Print the JSON Schema of files with schedules."
    ),
}


@click.group("config", cls=LazyGroup, lazy=CONFIG_COMMANDS)
def config() -> None:
    """Show the configuration."""


@click.command("show", cls=Command)
@config_option
@data_dir_option
@store_option
@output_format_options
def show(output: Output, file: Path | None, data_dir: str | None, store: str | None) -> None:
    """Show each setting, its value and the origin of the value. Secrets are masked.

    \b
    Examples:
      chimes config show
      chimes config show --json
    """
    loaded = load_settings(flags={"data_dir": data_dir, "store": store}, config_file=file)
    for warning in loaded.warnings:
        echo_err(_("Warning: {warning}", warning=warning))
    columns = [
        Column(_("setting"), getter("id")),
        Column(_("value"), getter("value"), max_width=50),
        Column(_("origin"), getter("origin"), rank=1),
    ]
    output.rows(setting_rows(loaded), columns)


@click.command("path", cls=Command)
@config_option
@data_dir_option
def path(file: Path | None, data_dir: str | None) -> None:
    """Print the path of the configuration file in use, if there is one.

    \b
    Examples:
      chimes config path
    """
    found = load_settings(flags={"data_dir": data_dir}, config_file=file).file
    if found is None:
        echo_err(_("No chimes.yaml found in the data directory or the working directory."))
    else:
        echo(str(found.absolute()))


@click.command("schema", cls=Command)
def schema() -> None:
    """Print the JSON Schema of a file with `schedules:`, for the completion and checks of editors.

    \b
    Examples:
      chimes config schema > schedules.schema.json
    """
    click.echo(files("chimes").joinpath("schedules.schema.json").read_text("utf-8"), nl=False)


def setting_rows(loaded: LoadedSettings) -> list[Json]:
    return [
        {
            "id": each.name,
            "value": each.value,
            "origin": each.origin,
            "variables": list(each.variables),
        }
        for each in describe_settings(loaded.settings, loaded.origins)
    ]
