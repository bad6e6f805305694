"""`serve`: start the server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from chimes import __version__
from chimes.cli.command import Command, Lazy, LazyGroup
from chimes.cli.locale import environment_as_given, spoken
from chimes.cli.options import form_options
from chimes.cli.output import Output, echo, tell
from chimes.cli.store import opened_store, store_options
from chimes.config import Settings, StoreLocation, load_settings, store_location
from chimes.errors import ConfigError
from chimes.i18n import _, counted


@click.command("serve", cls=Command)
@click.option("--host", help="Where to listen; 127.0.0.1 unless told.")
@click.option("--port", metavar="NUMBER", help="7100 unless told; 0 takes a free one.")
@click.option("--app", metavar="MODULE:NAME", help="Also carry out this application's tasks.")
@click.option("--store", metavar="URL", help="sqlite:///path, postgresql://…, redis://…, …")
@click.option("--allow-volatile", flag_value="true", help="Use a Redis that may lose data, too.")
@click.option("--data-dir", metavar="DIR", help="Where the data is kept; ./data unless told.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="A chimes.yaml.")
@click.option("--roles", metavar="ROLES", help="api,scheduler,worker or some of them.")
@click.option("--demo", is_flag=True, help="Load example schedules with a made-up past, once.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning, error.")
@click.option("--log-format", metavar="FORM", help="json, text or auto.")
def serve(file: Path | None, demo: bool, **flags: str | None) -> int:
    """Start the server: API, scheduler and worker in one process. Ctrl-C drains it.

    \b
    Examples:
      chimes serve
      chimes serve --port 8080 --store json:///var/lib/chimes
      chimes serve --app shop.tasks:app --store postgresql://localhost/shop
      chimes serve --roles scheduler,worker
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
    """The settings, the application if there is one, then the process until it is told to stop."""
    from chimes.config import load_settings

    loaded = load_settings(flags=flags, config_file=file)
    app = None
    if loaded.settings.app:
        from chimes.runtime.app_loader import load_app

        app = load_app(loaded.settings.app)
        loaded = app.load(flags=flags, config_file=file)
    for warning in loaded.warnings:
        tell(_("Warning: {warning}", warning=warning))
    from chimes.runtime.serve import serve as run_server

    with environment_as_given():
        return run_server(loaded, app, queues=queues or None, language=spoken(), demo=demo)


# @@ `worker`: carry out an application's tasks, without a server.


@click.command("worker", cls=Command)
@click.option("--app", metavar="MODULE:NAME", help="The application; CHIMES_APP unless told.")
@click.option("--store", metavar="URL", help="sqlite:///path, postgresql://…, redis://…, …")
@click.option("--allow-volatile", flag_value="true", help="Use a Redis that may lose data, too.")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only tasks of this queue.")
@click.option("--workers", metavar="NUMBER", help="Runs carried out at once; 100 unless told.")
@click.option("--data-dir", metavar="DIR", help="Where the data is kept; ./data unless told.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="A chimes.yaml.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning, error.")
@click.option("--log-format", metavar="FORM", help="json, text or auto.")
def worker(file: Path | None, queues: tuple[str, ...], **flags: str | None) -> int:
    """Start a worker: fires what is due and carries it out, without an API. Ctrl-C drains it.

    As many as you like may run on one store. HTTP callbacks belong to the queue `default`.

    \b
    Examples:
      chimes worker --app shop.tasks:app --store postgresql://localhost/shop
      chimes worker --app shop.tasks:app --queue mail --queue reports --workers 20
    """
    if not load_settings(flags=flags, config_file=file).settings.app:
        raise ConfigError(
            _("app: which application? Say --app module:name, or set CHIMES_APP"), key="app"
        )
    return start(file, {**flags, "roles": "scheduler,worker"}, queues=queues)


# @@ `demo remove`: what `serve --demo` and the button on Today have loaded goes again.

COMMANDS = {"remove": Lazy("chimes.cli.serve", "remove", "Remove the example schedules.")}


@click.group("demo", cls=LazyGroup, lazy=COMMANDS)
def demo() -> None:
    """The example schedules of `chimes serve --demo`."""


@click.command("remove", cls=Command)
@store_options
def remove(settings: Settings) -> None:
    """Remove the example schedules and their made-up history; all that is yours stays.

    \b
    Examples:
      chimes demo remove
      chimes demo remove --store postgresql://chimes@db.example.org/chimes
    """
    asyncio.run(_remove(store_location(settings)))


async def _remove(location: StoreLocation) -> None:
    from chimes.model.access import Actor
    from chimes.services.demo import DemoService

    async with opened_store(location) as store:
        removed = await DemoService(store).remove(Actor(interface="cli"))
    if not removed.schedules:
        tell(_("There are no example schedules here."))
        return
    tell(
        counted(
            "{count} example schedule was removed, with its made-up history.",
            "{count} example schedules were removed, with their made-up history.",
            removed.schedules,
        )
    )


# @@ `version`.


@click.command("version", cls=Command)
@form_options
def version(output: Output) -> None:
    """Show the version.

    \b
    Examples:
      chimes version
      chimes version --json
    """
    number = ".".join(str(part) for part in sys.version_info[:3])
    if output.form in ("json", "ndjson"):
        output.one({"version": __version__, "python": number}, [])
    else:
        echo(_("chimes {version} (Python {number})", version=__version__, number=number))
