"""`config show`, `config path`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chimes.cli.command import CONFLICT, UNREACHABLE, USAGE, Command, Failure, Lazy, LazyGroup
from chimes.cli.options import form_options, output_options, secret_from
from chimes.cli.output import CHANGES, Column, Json, Output, echo, pick, tell
from chimes.config import LoadedSettings, load_settings
from chimes.config.loader import shown_settings
from chimes.i18n import _

if TYPE_CHECKING:
    from chimes.cli.backend import HttpBackend
    from chimes.config import LoadedSettings
    from chimes.runtime.apply_config import SourceFile


_SETTINGS = (
    click.option("--config", "file", type=click.Path(path_type=Path), help="A chimes.yaml."),
    click.option("--data-dir", help="As for serve."),
    click.option("--store", help="As for serve."),
)

COMMANDS = {
    "show": Lazy("chimes.cli.config", "show", "Each setting and where it came from."),
    "path": Lazy("chimes.cli.config", "path", "The configuration file in use."),
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
        tell(_("Warning: {warning}", warning=warning))
    columns = [
        Column(_("setting"), pick("id")),
        Column(_("value"), pick("value"), widest=50),
        Column(_("origin"), pick("origin"), rank=1),
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
        tell(_("No chimes.yaml is in use; it would be read from the data or working directory."))
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


# @@ `apply`: what the configuration file says about sources, put into force.

_SIGNS = {"created": "+", "updated": "~", "deleted": "-"}


@click.command("apply", cls=Command)
@click.option("-f", "--config", "file", type=click.Path(path_type=Path), help="A chimes.yaml.")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--store", metavar="URL", help="Without a server: the store to write to.")
@click.option("--data-dir", metavar="DIR", help="Where the data is kept; ./data unless told.")
@click.option("--url", envvar="CHIMES_URL", metavar="URL", help="Where the server is.")
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path),
    envvar="CHIMES_API_KEY_FILE",
    metavar="FILE",
    help="A file that holds the key; else CHIMES_API_KEY, else the admin token.",
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
    """Check the sources of the file and put them into force: the server, and other nodes of this
    machine, read it again. Without a server their schedules are written to the store.

    \b
    Examples:
      chimes apply
      chimes apply -f chimes.yaml --dry-run
    """
    from chimes.config import load_settings
    from chimes.runtime.apply_config import checked_file

    loaded = load_settings(flags=flags, config_file=file)
    if loaded.file is None:
        raise Failure(
            _("There is no chimes.yaml here"), USAGE, hint=_("name it: chimes apply -f FILE")
        )
    checked = checked_file(loaded)
    key = secret_from(api_key_file) if api_key_file else os.environ.get("CHIMES_API_KEY", "")
    server = _server(url, key.strip() or loaded.settings.admin_token)
    if server is not None:
        click.get_current_context().call_on_close(server.close)
        changes = _through(server, checked, dry_run=dry_run)
    elif url is not None:
        raise Failure(_("The server at {url} cannot be reached", url=url), UNREACHABLE)
    else:
        changes = _directly(loaded, checked, dry_run=dry_run)
    columns = [
        Column("", lambda item: _SIGNS.get(str(item["what"]), " ")),
        Column(_("schedule"), pick("name")),
        Column(_("what"), pick("what"), words=CHANGES),
    ]
    output.rows([{"id": item["name"], **item} for item in changes], columns)


def _server(url: str | None, key: str) -> HttpBackend | None:
    from chimes.cli.backend import HttpBackend, default_url

    server = HttpBackend(url or default_url(), key)
    if server.connect():
        return server
    server.close()
    return None


def _through(server: HttpBackend, checked: SourceFile, *, dry_run: bool) -> list[Json]:
    from chimes.cli.backend import get, post

    theirs = str(get(server, "/sources").get("file"))
    if theirs != checked.known.file:
        ours = checked.known.file
        raise Failure(
            _(
                "The server at {url} reads {theirs}, not {ours}",
                url=server.url,
                theirs=theirs,
                ours=ours,
            )
            if theirs
            else _("The server at {url} reads no file, not {ours}", url=server.url, ours=ours),
            CONFLICT,
            hint=_("start it with --config, or apply the file that it reads"),
        )
    answer = post(server, f"/sources/reload?dry_run={'true' if dry_run else 'false'}")
    if not dry_run:
        from chimes.cli.backend import items_of
        from chimes.runtime.apply_config import told_to_read_again

        told_to_read_again(
            str(item["id"]) for item in items_of(get(server, "/nodes")) if item.get("alive")
        )
    changes = answer.get("changes")
    return [each for each in changes if isinstance(each, dict)] if isinstance(changes, list) else []


def _directly(loaded: LoadedSettings, checked: SourceFile, *, dry_run: bool) -> list[Json]:
    from chimes.config import masked_store_url, resolve_store_url
    from chimes.runtime.apply_config import apply_to_store, told_to_read_again

    store = masked_store_url(resolve_store_url(loaded.settings))
    tell(_("No server answers; using {store}.", store=store))
    changes, alive = asyncio.run(apply_to_store(loaded, checked, dry_run=dry_run))
    if not dry_run:
        told = told_to_read_again(alive)
        others = [node for node in alive if node not in told]
        if told:
            tell(_("Told to read their file again: {nodes}", nodes=", ".join(told)))
        if others:
            tell(_("On other machines, send SIGHUP there: {nodes}", nodes=", ".join(others)))
    return [{"name": each.name, "what": each.what} for each in changes]
