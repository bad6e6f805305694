"""`serve`: start the server."""

from __future__ import annotations

from pathlib import Path

import click

from chimes.cli.lazy import Command
from chimes.cli.output import tell


@click.command("serve", cls=Command)
@click.option("--host", help="Where to listen; 127.0.0.1 unless told.")
@click.option("--port", metavar="NUMBER", help="7100 unless told; 0 takes a free one.")
@click.option("--store", metavar="URL", help="sqlite:///path, json:///dir or memory://.")
@click.option("--data-dir", metavar="DIR", help="Where the data is kept; ./data unless told.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="A chimes.yaml.")
@click.option("--roles", metavar="ROLES", help="api,scheduler,worker or some of them.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning, error.")
@click.option("--log-format", metavar="FORM", help="json, text or auto.")
def serve(file: Path | None, **flags: str | None) -> int:
    """Start the server: API, scheduler and worker in one process. Ctrl-C drains it.

    \b
    Examples:
      chimes serve
      chimes serve --port 8080 --store json:///var/lib/chimes
      chimes serve --roles scheduler,worker
    """
    from chimes.config import load_settings

    loaded = load_settings(flags=flags, config_file=file)
    for warning in loaded.warnings:
        tell(f"Warning: {warning}")
    from chimes.app import serve as run_server

    return run_server(loaded)
