"""`key create`, `key list`, `key revoke`."""

from __future__ import annotations

from collections.abc import Callable

import click

from chimes.cli.backend import Backend, delete, get, items_of, path_of, post
from chimes.cli.failure import FAILED, NOT_FOUND, USAGE, Failure
from chimes.cli.language import said
from chimes.cli.lazy import Command, Lazy, LazyGroup
from chimes.cli.options import (
    client_options,
    form_options,
    output_options,
    reach_options,
    yes_option,
)
from chimes.cli.output import Column, Json, Output, echo, inner, pick, tell
from chimes.redaction import escaped
from chimes.wording import say

COMMANDS = {
    "create": Lazy("chimes.cli.keys", "create", "Create a key; it is shown once."),
    "list": Lazy("chimes.cli.keys", "list_keys", "List keys, without their secrets."),
    "revoke": Lazy("chimes.cli.keys", "revoke", "Make a key useless."),
}
_ROLES = click.Choice(["viewer", "member", "operator", "admin"])
_SCOPES = click.Choice(["read", "operate", "write", "agent", "agent_schedules"])
_COLUMNS = [
    Column(say("id"), pick("id")),
    Column(say("name"), pick("name")),
    Column(say("role"), pick("role")),
    Column(say("owner"), lambda item: _owner(item), rank=3),
    Column(say("state"), lambda item: say("revoked") if item.get("revoked_at") else say("active")),
    Column(say("scopes"), lambda item: _scopes(item), rank=5),
    Column(say("created"), pick("created_at"), time=True, rank=2),
    Column(say("expires"), pick("expires_at"), time=True, rank=1),
    Column(say("used"), pick("last_used_at"), time=True, rank=4),
]


@click.group("key", cls=LazyGroup, lazy=COMMANDS)
def key() -> None:
    """API keys. From the first one on, every call needs a key."""


@click.command("create", cls=Command)
@click.argument("name", required=False)
@click.option("--role", type=_ROLES, default="member", show_default=True)
@click.option("--owner", metavar="TYPE:ID", help="Whose objects it sees, such as user:alice.")
@click.option(
    "--scope",
    "scopes",
    type=_SCOPES,
    multiple=True,
    help="What it is for, within its role; may be given several times. None: all of it.",
)
@click.option("--expires-in", metavar="DURATION", help="Such as 720h or P30D.")
@form_options
@reach_options
def create(
    reach: Callable[..., Backend],
    output: Output,
    name: str | None,
    role: str,
    owner: str | None,
    scopes: tuple[str, ...],
    expires_in: str | None,
) -> None:
    """Create a key. It is printed once, and cannot be shown again. Without a NAME it is called
    after its role and owner.

    \b
    Examples:
      chimes key create --role admin laptop
      chimes key create ci --role operator --expires-in P90D
      chimes key create --role member --owner user:anna
      chimes key create robot --owner user:anna --scope agent --scope agent_schedules
    """
    usual = say("{role} for {owner}", role=role, owner=owner or "system:default")
    body: Json = {"name": said(usual) if name is None else name, "role": role}
    if owner:
        kind, separator, owner_id = owner.partition(":")
        if not separator or not owner_id:
            raise click.UsageError(say("An owner is written as TYPE:ID, such as user:alice."))
        body["owner"] = {"type": kind, "id": owner_id}
    if scopes:
        body["scopes"] = list(dict.fromkeys(scopes))
    if expires_in:
        body["expires_in"] = expires_in
    made = post(reach(create=True), "/keys", body)
    if output.form in ("json", "ndjson"):
        output.one(made, [])
        return
    echo(str(made["key"]))
    tell(
        say(
            "This is the only time the key is shown. Use it as CHIMES_API_KEY or as a Bearer token."
        )
    )


@click.command("list", cls=Command)
@output_options
@client_options
def list_keys(backend: Backend, output: Output) -> None:
    """List keys, revoked ones too.

    \b
    Examples:
      chimes key list
    """
    output.rows(items_of(get(backend, "/keys")), _COLUMNS)


@click.command("revoke", cls=Command)
@click.argument("key_id", metavar="KEY")
@yes_option
@client_options
@click.pass_context
def revoke(ctx: click.Context, backend: Backend, ask: Callable[..., bool], key_id: str) -> None:
    """Make a key useless for good; KEY is its id, the beginning of it, or its name.

    \b
    Examples:
      chimes key revoke laptop
    """
    keys = [each for each in items_of(get(backend, "/keys")) if not each.get("revoked_at")]
    found = [each for each in keys if key_id in (each["id"], each["name"])] or [
        each for each in keys if len(key_id) >= 3 and str(each["id"]).startswith(key_id)
    ]
    if not found:
        raise Failure(
            say("There is no active key {key!r}", key=key_id),
            NOT_FOUND,
            hint=say("see `chimes key list`"),
        )
    if len(found) > 1:
        some = ", ".join(str(each["id"]) for each in found)
        raise Failure(say("{key!r} names several keys: {ids}", key=key_id, ids=some), USAGE)
    question = say("Revoke {name} ({id})?", name=found[0]["name"], id=found[0]["id"])
    if not ask(question, careful=True):
        tell(say("Nothing was revoked; --yes would do it without asking."))
        ctx.exit(FAILED)
    delete(backend, path_of("keys", found[0]["id"]))
    echo(escaped(str(found[0]["id"])))


def _scopes(item: Json) -> str:
    scopes = item.get("scopes")
    return ",".join(str(each) for each in scopes) if isinstance(scopes, list) else ""


def _owner(item: Json) -> str:
    owner = inner(item, "owner")
    return f"{owner.get('type', '')}:{owner.get('id', '')}"
