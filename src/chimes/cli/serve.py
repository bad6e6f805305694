"""`serve`: start the server."""

from __future__ import annotations

from pathlib import Path

import click

from chimes.cli.language import environment_as_given, spoken
from chimes.cli.lazy import Command
from chimes.cli.output import tell
from chimes.wording import say


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
        from chimes.app import load_app

        app = load_app(loaded.settings.app)
        loaded = app.load(flags=flags, config_file=file)
    for warning in loaded.warnings:
        tell(say("Warning: {warning}", warning=warning))
    from chimes.app import serve as run_server

    with environment_as_given():
        return run_server(loaded, app, queues=queues or None, language=spoken(), demo=demo)
