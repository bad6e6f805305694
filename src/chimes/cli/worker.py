"""`worker`: carry out an application's tasks, without a server."""

from __future__ import annotations

from pathlib import Path

import click

from chimes.cli.lazy import Command
from chimes.cli.serve import start
from chimes.config import load_settings
from chimes.errors import ConfigError
from chimes.wording import say


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
            say("app: which application? Say --app module:name, or set CHIMES_APP"), key="app"
        )
    return start(file, {**flags, "roles": "scheduler,worker"}, queues=queues)
