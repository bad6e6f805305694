"""`user create`, `user list`, `user change`, `user remove`."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from chimes.cli.backend import Backend, delete, get, items_of, patch, path_of, post
from chimes.cli.failure import FAILED, USAGE, Failure
from chimes.cli.lazy import Command, Lazy, LazyGroup
from chimes.cli.options import (
    client_options,
    form_options,
    output_options,
    reach_options,
    yes_option,
)
from chimes.cli.output import Column, Json, Output, echo, pick, tell
from chimes.redaction import escaped
from chimes.wording import say

COMMANDS = {
    "create": Lazy("chimes.cli.users", "create", "Let somebody sign in at the dashboard."),
    "list": Lazy("chimes.cli.users", "list_users", "List who can sign in with a password."),
    "change": Lazy("chimes.cli.users", "change", "Give somebody another password or role."),
    "remove": Lazy("chimes.cli.users", "remove", "Let somebody in no longer."),
}
_ROLES = click.Choice(["viewer", "member", "operator", "admin"])
_COLUMNS = [
    Column(say("name"), pick("name")),
    Column(say("role"), pick("role")),
    Column(say("created"), pick("created_at"), time=True, rank=1),
    Column(say("by"), pick("created_by"), rank=2),
]


@click.group("user", cls=LazyGroup, lazy=COMMANDS)
def user() -> None:
    """People who sign in at the dashboard. From the first one on, nobody else gets in."""


@click.command("create", cls=Command)
@click.argument("name")
@click.option("--role", type=_ROLES, default="member", show_default=True)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@form_options
@reach_options
def create(
    reach: Callable[..., Backend], output: Output, name: str, role: str, password_stdin: bool
) -> None:
    """Let somebody sign in. The password is asked for, or read with --password-stdin; it is never
    an argument, which others on this machine could see.

    \b
    Examples:
      chimes user create anna --role admin
      chimes user create bob --password-stdin < password.txt
    """
    password = _password(from_stdin=password_stdin)
    body: Json = {"name": name, "role": role, "password": password}
    made = post(reach(create=True), "/users", body)
    if output.form in ("json", "ndjson"):
        output.one(made, [])
        return
    echo(escaped(str(made["name"])))


@click.command("list", cls=Command)
@output_options
@client_options
def list_users(backend: Backend, output: Output) -> None:
    """List who can sign in with a password.

    \b
    Examples:
      chimes user list
    """
    output.rows(items_of(get(backend, "/users")), _COLUMNS)


@click.command("change", cls=Command)
@click.argument("name")
@click.option("--role", type=_ROLES)
@click.option("--password", "asked", is_flag=True, help="Ask for a new password.")
@click.option("--password-stdin", is_flag=True, help="Read a new password from standard input.")
@client_options
def change(
    backend: Backend, name: str, role: str | None, asked: bool, password_stdin: bool
) -> None:
    """Another role, or another password, which signs this user out everywhere.

    \b
    Examples:
      chimes user change anna --role operator
      chimes user change anna --password
    """
    body: Json = {} if role is None else {"role": role}
    if asked or password_stdin:
        body["password"] = _password(from_stdin=password_stdin)
    if not body:
        raise click.UsageError(say("Say what to change: --role, --password or both."))
    echo(escaped(str(patch(backend, path_of("users", name), body)["name"])))


@click.command("remove", cls=Command)
@click.argument("name")
@yes_option
@client_options
@click.pass_context
def remove(ctx: click.Context, backend: Backend, ask: Callable[..., bool], name: str) -> None:
    """Let somebody in no longer; what belongs to them stays.

    \b
    Examples:
      chimes user remove anna
    """
    if not ask(say("Remove {name}?", name=name), careful=True):
        tell(say("Nothing was removed; --yes would do it without asking."))
        ctx.exit(FAILED)
    delete(backend, path_of("users", name))
    echo(escaped(name))


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise Failure(
            say("There is no terminal to ask for a password on"),
            USAGE,
            hint=say("send it with --password-stdin"),
        )
    found: str = click.prompt(say("Password"), hide_input=True, confirmation_prompt=True, err=True)
    return found
