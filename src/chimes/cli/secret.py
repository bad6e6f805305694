"""`secret`: the keys that encrypt the secrets of a store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from chimes.cli.command import USAGE, Command, CommandError, LazyCommand, LazyGroup
from chimes.cli.options import store_options
from chimes.cli.output import echo, echo_err
from chimes.config import Settings, StoreLocation, store_location
from chimes.envelope import VARIABLE, new_key
from chimes.i18n import _, counted
from chimes.store.port import Store

SECRET_COMMANDS = {
    "generate-key": LazyCommand("chimes.cli.secret", "generate_key", "Print a new key."),
    "rotate": LazyCommand("chimes.cli.secret", "rotate", "Encrypt all secrets with a new key."),
}
#: Passes over the store until nothing is left that nodes wrote with the old key meanwhile.
_MOST_PASSES = 5


@click.group("secret", cls=LazyGroup, lazy=SECRET_COMMANDS)
def secret() -> None:
    """Manage the encryption of secrets."""


@click.command("generate-key", cls=Command)
def generate_key() -> None:
    """Print a new random key for CHIMES_SECRET_KEY.

    \b
    Examples:
      chimes secret generate-key
    """
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
    from chimes.cli.store import open_store

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
