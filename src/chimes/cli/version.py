"""`version`."""

from __future__ import annotations

import sys

import click

from chimes import __version__
from chimes.cli.lazy import Command
from chimes.cli.options import form_options
from chimes.cli.output import Output, echo
from chimes.wording import say


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
        echo(say("chimes {version} (Python {number})", version=__version__, number=number))
