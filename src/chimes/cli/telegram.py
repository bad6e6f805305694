"""`telegram connect`, `telegram confirm`, `telegram list`, `telegram test`."""

from __future__ import annotations

import click

from chimes.cli.backend import Backend, get, path_of, post
from chimes.cli.lazy import Command, Lazy, LazyGroup
from chimes.cli.options import client_options, output_options
from chimes.cli.output import Column, Json, Output, echo, pick, tell
from chimes.cli.words import CHAT_STATES
from chimes.redaction import escaped
from chimes.wording import say

COMMANDS = {
    "connect": Lazy("chimes.cli.telegram", "connect", "Make a code that links a chat to you."),
    "confirm": Lazy("chimes.cli.telegram", "confirm", "Confirm a chat that has sent a code."),
    "list": Lazy("chimes.cli.telegram", "list_chats", "List your chats."),
    "test": Lazy("chimes.cli.telegram", "test", "Send a test message to a chat."),
}
_COLUMNS = [
    Column(say("chat"), pick("chat_id")),
    Column(say("state"), pick("state"), words=CHAT_STATES),
    Column(say("language"), pick("language"), rank=1),
    Column(say("timezone"), pick("timezone"), rank=2),
]


@click.group("telegram", cls=LazyGroup, lazy=COMMANDS)
def telegram() -> None:
    """Chats that act for you. The server needs CHIMES_TELEGRAM_TOKEN and the chat in
    CHIMES_TELEGRAM_ALLOWED_CHATS."""


@click.command("connect", cls=Command)
@client_options
def connect(backend: Backend) -> None:
    """Make a code; send what is printed from the chat within ten minutes, then confirm the chat.

    \b
    Examples:
      chimes telegram connect
    """
    made = post(backend, "/telegram/links", {})
    echo(str(made["command"]))
    if made.get("url"):
        tell(say("Or open {url}", url=made["url"]))
    tell(say("Send that from the chat, then run `chimes telegram list` and confirm it."))


@click.command("confirm", cls=Command)
@click.argument("chat")
@client_options
def confirm(backend: Backend, chat: str) -> None:
    """Confirm that CHAT acts for you from now on.

    \b
    Examples:
      chimes telegram confirm 123456789
    """
    done = post(backend, path_of("telegram", "links", chat) + "/confirm", {})
    echo(
        say(
            "{chat} acts for {owner}",
            chat=escaped(str(done["chat_id"])),
            owner=escaped(str(done["owner"])),
        )
    )


@click.command("list", cls=Command)
@output_options
@client_options
def list_chats(backend: Backend, output: Output) -> None:
    """List the chats that act for you, and those that wait to be confirmed.

    \b
    Examples:
      chimes telegram list
    """
    found = get(backend, "/telegram/links")
    output.rows([*_rows(found, "items", "linked"), *_rows(found, "waiting", "waiting")], _COLUMNS)


@click.command("test", cls=Command)
@click.argument("chat")
@client_options
def test(backend: Backend, chat: str) -> None:
    """Send a test message to CHAT.

    \b
    Examples:
      chimes telegram test 123456789
    """
    done = post(backend, "/telegram/test", {"chat_id": chat})
    echo(say("sent to {chat}", chat=escaped(str(done["chat_id"]))))


def _rows(found: Json, name: str, state: str) -> list[Json]:
    rows = found.get(name)
    return [{**row, "state": state} for row in rows] if isinstance(rows, list) else []
