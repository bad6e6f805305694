"""Flask extension: enqueue tasks in views, and `flask chimes worker|serve`."""

from __future__ import annotations

import click
from flask import Flask, current_app

from chimes.errors import ConfigError
from chimes.integrations.sync_app import SyncApp
from chimes.sdk.app import Chimes

#: Key of the application in the configuration of Flask: `module:name`, for the commands.
APP_PATH = "CHIMES_APP"


class FlaskChimes(SyncApp):
    """`FlaskChimes(app, flask_app)`, or `init_app` later, as with other extensions."""

    def __init__(self, app: Chimes, flask_app: Flask | None = None) -> None:
        super().__init__(lambda: app)
        if flask_app is not None:
            self.init_app(flask_app)

    def init_app(self, flask_app: Flask) -> None:
        flask_app.extensions["chimes"] = self
        flask_app.config.setdefault(APP_PATH, "")
        flask_app.cli.add_command(_command)


@click.command(
    "chimes",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _command(arguments: tuple[str, ...]) -> None:
    """Runs the `chimes` command for this application: `flask chimes worker`."""
    from flask.cli import with_appcontext

    with_appcontext(_run)(arguments)


def _run(arguments: tuple[str, ...]) -> None:
    from chimes.integrations.cli import run_command

    try:
        run_command(arguments, str(current_app.config[APP_PATH]), setting=f'config["{APP_PATH}"]')
    except ConfigError as error:
        raise click.ClickException(error.message) from None
