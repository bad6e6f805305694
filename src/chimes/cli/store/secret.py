"""`secret`: named secrets, and the keys that encrypt the secrets of a store."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chimes.cli.backend import Backend, api_path, delete, get, items_of, put
from chimes.cli.command import USAGE, Command, CommandError, LazyCommand, LazyGroup
from chimes.cli.options import (
    client_options,
    lazy_client_options,
    output_format_options,
    output_options,
    store_options,
)
from chimes.cli.output import Column, Json, Output, echo, echo_err, getter, nested
from chimes.i18n import _, counted
from chimes.redaction import escape_control

if TYPE_CHECKING:
    from chimes.config import Settings, StoreLocation
    from chimes.store.port import Store

SECRET_COMMANDS = {
    "set": LazyCommand(
        "chimes.cli.store.secret", "set_secret", "Store a secret or replace its value."
    ),
    "list": LazyCommand(
        "chimes.cli.store.secret", "list_secrets", "List secrets without their values."
    ),
    "rm": LazyCommand("chimes.cli.store.secret", "remove_secret", "Delete a secret."),
    "generate-key": LazyCommand("chimes.cli.store.secret", "generate_key", "Print a new key."),
    "rotate": LazyCommand(
        "chimes.cli.store.secret", "rotate", "Encrypt all secrets with a new key."
    ),
}
#: Passes over the store until nothing is left that nodes wrote with the old key meanwhile.
_MOST_PASSES = 5


@click.group("secret", cls=LazyGroup, lazy=SECRET_COMMANDS)
def secret() -> None:
    """Manage named secrets and their encryption."""


_COLUMNS = [
    Column(_("name"), getter("name")),
    Column(_("owner"), lambda item: _owner(item), rank=3),
    Column(_("created"), getter("created_at"), time=True, rank=2),
    Column(_("updated"), getter("updated_at"), time=True, rank=1),
    Column(_("schedules"), lambda item: _schedules(item), max_width=60),
]
_owner_option = click.option(
    "--owner", metavar="TYPE:ID", help="Owner of the secret, such as user:alice. Default: you."
)


@click.command("set", cls=Command)
@click.argument("name")
@click.argument("source", required=False, metavar="[-]")
@click.option(
    "--from-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Read the value from this file.",
)
@_owner_option
@output_format_options
@lazy_client_options
def set_secret(
    open_backend: Callable[..., Backend],
    output: Output,
    name: str,
    source: str | None,
    from_file: Path | None,
    owner: str | None,
) -> None:
    """Store a secret, or replace its value. Schedules use it as {{secret.NAME}}; attempts that
    begin later use the new value. The value is prompted for, or read from stdin (`-`) or a file,
    without the line break at its end; it is never an argument, because other users of this machine
    could see it.

    \b
    Examples:
      chimes secret set SHOP_TOKEN
      pass show shop | chimes secret set SHOP_TOKEN -
      chimes secret set DEPLOY_KEY --from-file deploy.key
    """
    value = _value(source, from_file)
    backend = open_backend(create=True)
    stored = put(backend, api_path("secrets", name), {"value": value}, owner=owner)
    if output.format in ("json", "ndjson"):
        output.one(stored, [])
        return
    echo(escape_control(str(stored["name"])))


@click.command("list", cls=Command)
@_owner_option
@output_options
@client_options
def list_secrets(backend: Backend, output: Output, owner: str | None) -> None:
    """List your secrets, and the schedules that use them. Values are never shown.

    \b
    Examples:
      chimes secret list
      chimes secret list --owner user:alice --json
    """
    output.rows(items_of(get(backend, "/secrets", owner=owner)), _COLUMNS)


@click.command("rm", cls=Command)
@click.argument("name")
@click.option("--force", is_flag=True, help="Delete it although schedules use it.")
@_owner_option
@client_options
def remove_secret(backend: Backend, name: str, force: bool, owner: str | None) -> None:
    """Delete a secret. Refused if schedules use it, unless --force is given; their runs then fail.

    \b
    Examples:
      chimes secret rm SHOP_TOKEN
      chimes secret rm SHOP_TOKEN --force
    """
    delete(backend, api_path("secrets", name), owner=owner, force="true" if force else None)
    echo(escape_control(name))


def _value(source: str | None, file: Path | None) -> str:
    if source not in (None, "-") or (source and file):
        # The value may be the argument: it is not repeated.
        raise CommandError(
            _("The value of a secret is not an argument"),
            USAGE,
            hint=_("use `-` to read it from stdin, or --from-file"),
        )
    if file is not None:
        try:
            found = file.read_bytes()
        except OSError as error:
            raise CommandError(
                _("{file} cannot be read: {reason}", file=file, reason=error.strerror), USAGE
            ) from None
    elif source == "-":
        found = sys.stdin.buffer.read()
    elif sys.stdin.isatty():
        prompted: str = click.prompt(_("Value"), hide_input=True, err=True)
        return prompted
    else:
        raise CommandError(
            _("Cannot prompt for a value without a terminal"),
            USAGE,
            hint=_("use `-` to read it from stdin, or --from-file"),
        )
    try:
        text = found.decode()
    except UnicodeDecodeError:
        raise CommandError(
            _("The value of a secret must be UTF-8 text"), USAGE, hint=_("encode it in base64")
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def _owner(item: Json) -> str:
    owner = nested(item, "owner")
    return f"{owner.get('type', '')}:{owner.get('id', '')}"


def _schedules(item: Json) -> str:
    used = items_of({"items": item.get("schedules")})
    return ", ".join(str(each["name"]) for each in used)


@click.command("generate-key", cls=Command)
def generate_key() -> None:
    """Print a new random key for CHIMES_SECRET_KEY.

    \b
    Examples:
      chimes secret generate-key
    """
    from chimes.envelope import new_key

    echo(new_key().text)


@click.command("rotate", cls=Command)
@click.option("--drop-old", is_flag=True, help="Remove the old keys from secret.key afterwards.")
@store_options
def rotate(settings: Settings, drop_old: bool) -> None:
    """Encrypt all secrets of the store with a new key, also those in plain text. Nodes may run,
    except on the JSON store. Repeat the command if it was interrupted.

    The key of an embedded store is in the file secret.key: a new one is made, and the old one stays
    for reading. Other stores use the first key of CHIMES_SECRET_KEY: give all nodes `old,new`, then
    `new,old`, then run this command with `new,old`, then remove the old key.

    \b
    Examples:
      chimes secret rotate
      chimes secret rotate --drop-old
      CHIMES_SECRET_KEY=$NEW,$OLD chimes secret rotate --store postgresql://db.example.org/chimes
    """
    import asyncio

    from chimes.config import store_location
    from chimes.envelope import VARIABLE

    location = store_location(settings)
    if location.kind == "memory":
        raise CommandError(_("A memory store writes no secrets down"), USAGE)
    if location.server and not location.secret_key:
        raise CommandError(
            _("{variable} is not set", variable=VARIABLE),
            USAGE,
            hint=_("`chimes secret generate-key` prints a key; give it to all nodes"),
        )
    asyncio.run(_rotate(location, drop_old=drop_old))


async def _rotate(location: StoreLocation, *, drop_old: bool) -> None:
    from chimes.cli.store.commands import open_store

    async with open_store(location) as store:
        keyring = store.keyring
        if keyring.file is not None:
            await _begin(store, keyring.file)
        count = await reseal_all(store)
        key = keyring.current()
        assert key is not None
        echo_err(
            counted(
                "Encrypted {count} value with key {id}.",
                "Encrypted {count} values with key {id}.",
                count,
                id=key.id,
            )
        )
        old = keyring.keys()[1:]
        if keyring.file is not None and drop_old and old:
            keyring.drop_old_keys()
            echo_err(_("Removed the old keys from {file}.", file=keyring.file))
        elif old:
            echo_err(
                _(
                    "Old keys that are still accepted: {ids}. Backups made before need them.",
                    ids=", ".join(each.id for each in old),
                )
            )


async def _begin(store: Store, file: Path) -> None:
    """Makes a key, unless an interrupted rotation has made one that is not in use everywhere."""
    if len(store.keyring.keys()) > 1 and await store.reseal():
        echo_err(_("Continued a rotation that was interrupted."))
        return
    key = store.keyring.add_key()
    echo_err(
        _("Made the key {id} in {file}. Save this file apart from backups.", id=key.id, file=file)
    )


async def reseal_all(store: Store) -> int:
    """How many values were encrypted, also those that nodes wrote meanwhile."""
    total = 0
    for _pass in range(_MOST_PASSES):
        count = await store.reseal()
        total += count
        if not count:
            break
    return total
