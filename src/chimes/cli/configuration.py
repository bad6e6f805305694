"""`config show`, `config path`."""

from __future__ import annotations

from pathlib import Path

import click

from chimes.cli.lazy import Command, Lazy, LazyGroup
from chimes.cli.options import form_options
from chimes.cli.output import Column, Json, Output, echo, pick, tell
from chimes.config import LoadedSettings, load_settings
from chimes.config.shown import shown_settings
from chimes.wording import say

_SETTINGS = (
    click.option("--config", "file", type=click.Path(path_type=Path), help="A chimes.yaml."),
    click.option("--data-dir", help="As for serve."),
    click.option("--store", help="As for serve."),
)

COMMANDS = {
    "show": Lazy("chimes.cli.configuration", "show", "Each setting and where it came from."),
    "path": Lazy("chimes.cli.configuration", "path", "The configuration file in use."),
}


@click.group("config", cls=LazyGroup, lazy=COMMANDS)
def config() -> None:
    """Show the configuration."""


@click.command("show", cls=Command)
@_SETTINGS[0]
@_SETTINGS[1]
@_SETTINGS[2]
@form_options
def show(output: Output, file: Path | None, data_dir: str | None, store: str | None) -> None:
    """Show each setting, its value, and where the value came from. Secrets are not shown.

    \b
    Examples:
      chimes config show
      chimes config show --json
    """
    loaded = load_settings(flags={"data_dir": data_dir, "store": store}, config_file=file)
    for warning in loaded.warnings:
        tell(say("Warning: {warning}", warning=warning))
    columns = [
        Column(say("setting"), pick("id")),
        Column(say("value"), pick("value"), widest=50),
        Column(say("origin"), pick("origin"), rank=1),
    ]
    output.rows(setting_rows(loaded), columns)


@click.command("path", cls=Command)
@_SETTINGS[0]
@_SETTINGS[1]
def path(file: Path | None, data_dir: str | None) -> None:
    """Print the configuration file in use, if there is one.

    \b
    Examples:
      chimes config path
    """
    found = load_settings(flags={"data_dir": data_dir}, config_file=file).file
    if found is None:
        tell(say("No chimes.yaml is in use; it would be read from the data or working directory."))
    else:
        echo(str(found.absolute()))


def setting_rows(loaded: LoadedSettings) -> list[Json]:
    return [
        {
            "id": each.name,
            "value": each.value,
            "origin": each.origin,
            "variables": list(each.variables),
        }
        for each in shown_settings(loaded.settings, loaded.origins)
    ]
