"""`feeds`: addresses at which calendar applications find coming fires."""

from __future__ import annotations

import click

from chimes.cli.backend import Backend, api_path, delete, find_schedule, get, items_of, post
from chimes.cli.command import USAGE, Command, CommandError, LazyCommand, LazyGroup
from chimes.cli.options import client_options, output_options
from chimes.cli.output import Column, Json, Output, echo, echo_err, getter, nested
from chimes.i18n import _
from chimes.redaction import escape_control

FEED_COMMANDS = {
    "create": LazyCommand(
        "chimes.cli.feeds", "create_feed", "Create a feed and print its address."
    ),
    "list": LazyCommand("chimes.cli.feeds", "list_feeds", "List feeds, without their addresses."),
    "revoke": LazyCommand("chimes.cli.feeds", "revoke_feed", "Revoke a feed."),
}


@click.group("feeds", cls=LazyGroup, lazy=FEED_COMMANDS)
def feeds() -> None:
    """Publish coming fires as calendars, for Google Calendar, Apple Calendar and others."""


def _shown(item: Json) -> str:
    owner = nested(item, "owner")
    if owner:
        return f"{owner.get('type', '')}:{owner.get('id', '')}"
    return str(item.get("label") or item.get("schedule") or "")


_COLUMNS = [
    Column(_("id"), getter("id")),
    Column(_("shows"), _shown),
    Column(_("created"), getter("created_at"), time=True),
    Column(_("by"), getter("created_by"), rank=1),
]


@click.command("create", cls=Command)
@click.option("--label", metavar="NAME[=VALUE]", help="Schedules with this label.")
@click.option("--schedule", metavar="SCHEDULE", help="One schedule, by name or id.")
@click.option("--owner", metavar="TYPE:ID", help="Schedules of this owner, such as user:alice.")
@output_options
@client_options
def create_feed(
    backend: Backend, output: Output, label: str | None, schedule: str | None, owner: str | None
) -> None:
    """Create a feed and print its address, which is shown once. Anyone with the address
    can read the coming fires. It reaches 90 days ahead; `?days=` changes this.

    \b
    Examples:
      chimes feeds create --label team=ops
      chimes feeds create --schedule nightly-report --json
      chimes feeds create --owner user:alice
    """
    given: Json = {"label": label, "schedule": schedule, "owner": owner}
    body = {name: value for name, value in given.items() if value is not None}
    if len(body) != 1:
        raise CommandError(_("Give exactly one of --label, --schedule and --owner"), USAGE)
    if schedule is not None:
        body["schedule"] = str(find_schedule(backend, schedule)["id"])
    made = post(backend, "/feeds", body)
    if output.format in ("json", "ndjson", "ids"):
        output.one(made, _COLUMNS)
        return
    echo(escape_control(str(made["url"])))
    echo_err(_("Revoke it with: chimes feeds revoke {id}", id=made["id"]))


@click.command("list", cls=Command)
@output_options
@client_options
def list_feeds(backend: Backend, output: Output) -> None:
    """List feeds, without their addresses.

    \b
    Examples:
      chimes feeds list
      chimes feeds list --json
    """
    output.rows(items_of(get(backend, "/feeds")), _COLUMNS)


@click.command("revoke", cls=Command)
@click.argument("feed")
@client_options
def revoke_feed(backend: Backend, feed: str) -> None:
    """Revoke a feed: its address is not found from now on.

    \b
    Examples:
      chimes feeds revoke 3f2a9c1b7d40
    """
    delete(backend, api_path("feeds", feed))
    echo(escape_control(feed))
