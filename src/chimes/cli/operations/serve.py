"""`serve`, `worker`, `demo` and `version`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chimes.cli.command import Command, LazyCommand, LazyGroup
from chimes.cli.options import (
    allow_volatile_option,
    commands_options,
    config_option,
    data_dir_option,
    lazy_client_options,
    log_format_option,
    log_level_option,
    store_option,
)
from chimes.cli.output import current_language, echo_err, original_environment
from chimes.config import StoreLocation, load_settings, masked_store_url, store_location
from chimes.errors import ConfigError
from chimes.i18n import _, counted

if TYPE_CHECKING:
    from chimes.cli.backend import Backend


@click.command("serve", cls=Command)
@click.option("--host", help="Address to listen on. Default: 127.0.0.1.")
@click.option(
    "--port", metavar="NUMBER", help="Port to listen on; 0 chooses a free one. Default: 7100."
)
@click.option("--app", metavar="MODULE:NAME", help="Application whose tasks to execute.")
@store_option
@allow_volatile_option
@data_dir_option
@config_option
@click.option(
    "--roles", metavar="ROLES", help="Comma-separated: api, scheduler, worker. Default: all."
)
@commands_options
@click.option("--demo", is_flag=True, help="Load example schedules with a generated history, once.")
@log_level_option
@log_format_option
def serve(file: Path | None, demo: bool, **flags: str | None) -> int:
    """Start the server: API, scheduler and worker in one process. Ctrl-C drains and stops it.

    \b
    Examples:
      chimes serve
      chimes serve --port 8080 --store json:///var/lib/chimes
      chimes serve --app shop.tasks:app --store postgresql://localhost/shop
      chimes serve --roles scheduler,worker
      chimes serve --allow-commands
      chimes serve --demo
    """
    return start(file, flags, demo=demo)


def start(
    file: Path | None,
    flags: dict[str, str | None],
    *,
    queues: tuple[str, ...] = (),
    demo: bool = False,
) -> int:
    """Loads the settings and the application, then runs the node until it is stopped."""
    loaded = load_settings(flags=flags, config_file=file)
    app = None
    if loaded.settings.app:
        from chimes.runtime.app_loader import load_app

        app = load_app(loaded.settings.app)
        loaded = app.load(flags=flags, config_file=file)
    for warning in loaded.warnings:
        echo_err(_("Warning: {warning}", warning=warning))
    from chimes.runtime.serve import serve as run_server

    with original_environment():
        return run_server(
            loaded, app, queues=queues or None, language=current_language(), demo=demo
        )


@click.command("worker", cls=Command)
@click.option("--app", metavar="MODULE:NAME", help="Application. Default: CHIMES_APP.")
@store_option
@allow_volatile_option
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="Only tasks of this queue; repeatable."
)
@click.option("--workers", metavar="NUMBER", help="Maximum of concurrent runs. Default: 100.")
@commands_options
@data_dir_option
@config_option
@log_level_option
@log_format_option
def worker(file: Path | None, queues: tuple[str, ...], **flags: str | None) -> int:
    """Start a worker: it fires due schedules and executes runs, without the API. Ctrl-C drains and
    stops it.

    Any number of workers can share a store. HTTP callbacks belong to the queue `default`.

    \b
    Examples:
      chimes worker --app shop.tasks:app --store postgresql://localhost/shop
      chimes worker --app shop.tasks:app --queue mail --queue reports --workers 20
      chimes worker --allow-commands --label os=linux --label zone=eu
    """
    settings = load_settings(flags=flags, config_file=file).settings
    if not settings.app and not settings.allow_commands:
        raise ConfigError(
            _(
                "app: no application given; use --app MODULE:NAME or set CHIMES_APP, or allow "
                "commands with --allow-commands"
            ),
            key="app",
        )
    return start(file, {**flags, "roles": "scheduler,worker"}, queues=queues)


# --- demo -----------------------------------------------------------------------------------------
DEMO_COMMANDS = {
    "remove": LazyCommand(
        "chimes.cli.operations.serve", "remove_demo", "Remove the example schedules."
    )
}


@click.group("demo", cls=LazyGroup, lazy=DEMO_COMMANDS)
def demo() -> None:
    """Manage the example schedules of `chimes serve --demo`."""


@click.command("remove", cls=Command)
@store_option
@allow_volatile_option
@data_dir_option
@config_option
@lazy_client_options
def remove_demo(
    open_backend: Callable[..., Backend],
    file: Path | None,
    **flags: str | None,
) -> None:
    """Remove the example schedules and their generated history. Other schedules stay.

    Without --store, --data-dir and --config it removes those of the server, as other client
    commands do.

    \b
    Examples:
      chimes demo remove
      chimes demo remove --store postgresql://chimes@db.example.org/chimes
    """
    if file or any(flags.values()):
        location = store_location(load_settings(flags=flags, config_file=file).settings)
        count, place = asyncio.run(_remove_demo(location)), masked_store_url(location.url)
    else:
        from chimes.cli.backend import remove

        backend = open_backend()
        found = remove(backend, "/demo").get("schedules")
        count, place = found if isinstance(found, int) else 0, backend.location
    if not count:
        echo_err(_("There are no example schedules in {place}.", place=place))
        return
    echo_err(
        counted(
            "{count} example schedule was removed with its history from {place}.",
            "{count} example schedules were removed with their history from {place}.",
            count,
            place=place,
        )
    )


async def _remove_demo(location: StoreLocation) -> int:
    from chimes.cli.store.commands import open_store
    from chimes.model.access import Actor
    from chimes.services.demo import DemoService

    async with open_store(location) as store:
        return (await DemoService(store).remove(Actor(interface="cli"))).schedules
