"""`config` and `apply`: the configuration in use, and applying the sources of chimes.yaml."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chimes.cli.backend import HttpBackend, default_url, get, items_of, post
from chimes.cli.command import (
    CONFLICT,
    UNREACHABLE,
    USAGE,
    Command,
    CommandError,
    LazyCommand,
    LazyGroup,
)
from chimes.cli.options import (
    config_option,
    data_dir_option,
    output_format_options,
    output_options,
    read_key_file,
    store_option,
)
from chimes.cli.output import CHANGES, Column, Json, Output, echo, echo_err, getter
from chimes.config import LoadedSettings, load_settings, masked_store_url, resolve_store_url
from chimes.config.loader import describe_settings
from chimes.i18n import _

if TYPE_CHECKING:
    from chimes.runtime.apply_config import SourceFile


CONFIG_COMMANDS = {
    "show": LazyCommand("chimes.cli.config", "show", "Show each setting and its origin."),
    "path": LazyCommand("chimes.cli.config", "path", "Print the path of the configuration file."),
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


# --- apply ----------------------------------------------------------------------------------------
_SIGNS = {"created": "+", "updated": "~", "deleted": "-"}


@click.command("apply", cls=Command)
@click.option(
    "-f", "--config", "file", type=click.Path(path_type=Path), help="Path of a chimes.yaml."
)
@click.option("--dry-run", is_flag=True, help="Show the changes without applying them.")
@click.option("--store", metavar="URL", help="URL of the store, used if no server responds.")
@data_dir_option
@click.option("--url", envvar="CHIMES_URL", metavar="URL", help="URL of the server.")
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path),
    envvar="CHIMES_API_KEY_FILE",
    metavar="FILE",
    help="File with the API key. Default: CHIMES_API_KEY, then the admin token.",
)
@output_options
def apply(
    file: Path | None,
    dry_run: bool,
    url: str | None,
    api_key_file: Path | None,
    output: Output,
    **flags: str | None,
) -> None:
    """Check the sources in the file and apply them: the server and other nodes on this machine
    reload it. Without a server, the schedules of the sources are written to the store.

    \b
    Examples:
      chimes apply
      chimes apply -f chimes.yaml --dry-run
    """
    from chimes.runtime.apply_config import load_checked_file

    loaded = load_settings(flags=flags, config_file=file)
    if loaded.file is None:
        raise CommandError(
            _("No chimes.yaml found"), USAGE, hint=_("give its path: chimes apply -f FILE")
        )
    checked = load_checked_file(loaded)
    key = read_key_file(api_key_file) if api_key_file else os.environ.get("CHIMES_API_KEY", "")
    server = _connect(url, key.strip() or loaded.settings.admin_token)
    if server is not None:
        click.get_current_context().call_on_close(server.close)
        changes = _apply_on_server(server, checked, dry_run=dry_run)
    elif url is not None:
        raise CommandError(_("Cannot reach the server at {url}", url=url), UNREACHABLE)
    else:
        changes = _apply_to_store(loaded, checked, dry_run=dry_run)
    columns = [
        Column("", lambda item: _SIGNS.get(str(item["what"]), " ")),
        Column(_("schedule"), getter("name")),
        Column(_("what"), getter("what"), labels=CHANGES),
    ]
    output.rows([{"id": item["name"], **item} for item in changes], columns)


def _connect(url: str | None, key: str) -> HttpBackend | None:
    server = HttpBackend(url or default_url(), key)
    if server.connect():
        return server
    server.close()
    return None


def _apply_on_server(server: HttpBackend, checked: SourceFile, *, dry_run: bool) -> list[Json]:
    theirs = str(get(server, "/sources").get("file"))
    if theirs != checked.known.file:
        ours = checked.known.file
        raise CommandError(
            _(
                "The server at {url} uses {theirs}, not {ours}",
                url=server.url,
                theirs=theirs,
                ours=ours,
            )
            if theirs
            else _("The server at {url} has no configuration file", url=server.url),
            CONFLICT,
            hint=_("apply the file that the server reads, or start the server with --config"),
        )
    answer = post(server, f"/sources/reload?dry_run={'true' if dry_run else 'false'}")
    if not dry_run:
        from chimes.runtime.apply_config import signal_reload

        signal_reload(
            str(item["id"]) for item in items_of(get(server, "/nodes")) if item.get("alive")
        )
    changes = answer.get("changes")
    return [each for each in changes if isinstance(each, dict)] if isinstance(changes, list) else []


def _apply_to_store(loaded: LoadedSettings, checked: SourceFile, *, dry_run: bool) -> list[Json]:
    from chimes.runtime.apply_config import apply_to_store, signal_reload

    store = masked_store_url(resolve_store_url(loaded.settings))
    echo_err(_("No server responds; using {store}.", store=store))
    changes, alive = asyncio.run(apply_to_store(loaded, checked, dry_run=dry_run))
    if not dry_run:
        reloaded = signal_reload(alive)
        others = [node for node in alive if node not in reloaded]
        if reloaded:
            echo_err(_("Reloaded by: {nodes}", nodes=", ".join(reloaded)))
        if others:
            echo_err(
                _(
                    "Nodes on other machines, send SIGHUP to reload: {nodes}",
                    nodes=", ".join(others),
                )
            )
    return [{"name": each.name, "what": each.what} for each in changes]
