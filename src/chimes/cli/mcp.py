"""`chimes mcp`: serves an assistant over the Model Context Protocol (ADR 70)."""

from __future__ import annotations

from collections.abc import Callable

import click

from chimes.cli.backend import Backend
from chimes.cli.command import USAGE, Command, CommandError
from chimes.cli.options import WholeNumber, server_options
from chimes.i18n import _


@click.command("mcp", cls=Command)
@click.option(
    "--http",
    "port",
    type=WholeNumber(0, 65535),
    metavar="PORT",
    help="Listen on 127.0.0.1 (streamable HTTP, path /mcp) instead of stdin and stdout.",
)
@server_options
def mcp(connect: Callable[[], Backend], port: int | None) -> None:
    """Serve an assistant over MCP, by default on stdin and stdout. It can read schedules and runs,
    preview triggers and plan changes. It changes nothing: what it wants to change becomes a
    proposal, which a person approves or rejects.

    The assistant has the rights of the key in CHIMES_API_KEY; a key of the role viewer is enough.
    Needs `pip install 'chimes[mcp]'`.

    \b
    Examples:
      chimes mcp
      chimes mcp --http 7180
    """
    try:
        from chimes.cli.mcp_server import build_server
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("mcp"):
            raise
        raise CommandError(
            _("`chimes mcp` needs a package that is not installed: {name}", name=error.name),
            USAGE,
            hint=_("run: pip install 'chimes[mcp]'"),
        ) from None
    server = build_server(connect)
    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)
