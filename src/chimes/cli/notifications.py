"""`inbox`, `deliveries`: what was told to whom."""

from __future__ import annotations

from urllib.parse import urlencode

import click

from chimes.cli.backend import (
    Backend,
    find_delivery,
    find_message,
    find_run,
    get,
    pages,
    patch,
    path_of,
    post,
)
from chimes.cli.command import Command, Lazy, LazyGroup
from chimes.cli.options import Whole, client_options, output_options
from chimes.cli.output import CHAT_STATES, DELIVERY_STATES, Column, Json, Output, echo, pick, tell
from chimes.cli.schedules import written_recipient
from chimes.i18n import Message, _, joined
from chimes.redaction import escaped

_ITEM_COLUMNS = [
    Column(_("id"), pick("id"), shortest=8),
    Column(_("state"), lambda item: _state(item)),
    Column(_("at"), pick("created_at"), time=True, rank=1),
    Column(_("title"), pick("title"), widest=70, narrowest=12),
    Column(_("owner"), lambda item: _owner(item), rank=3),
    Column(_("run"), pick("run_id"), rank=2),
]
_DELIVERY_COLUMNS = [
    Column(_("id"), pick("id"), shortest=8),
    Column(_("state"), pick("state"), words=DELIVERY_STATES),
    Column(_("channel"), pick("channel")),
    Column(_("to"), pick("to"), rank=2, widest=40),
    Column(_("attempts"), pick("attempts"), rank=4),
    Column(_("run"), pick("run_id"), rank=5),
    Column(_("next"), pick("next_attempt_at"), time=True, rank=6),
    Column(_("why"), pick("error"), rank=3, widest=60),
]


@click.command("inbox", cls=Command)
@click.argument("message", required=False)
@click.option("--unread", is_flag=True, help="Only what nobody has read.")
@click.option("--starred", is_flag=True, help="Only what has a star.")
@click.option("--archived", is_flag=True, help="What was put away.")
@click.option("--read", metavar="ID", help="Mark this message as read.")
@click.option("--read-all", is_flag=True, help="Mark everything as read.")
@click.option("--owner", metavar="TYPE:ID", help="Whose inbox, such as user:alice; else your own.")
@click.option("-n", "--limit", type=Whole(1), default=50, show_default=True)
@output_options
@client_options
def inbox(
    backend: Backend,
    output: Output,
    message: str | None,
    unread: bool,
    starred: bool,
    archived: bool,
    read: str | None,
    read_all: bool,
    owner: str | None,
    limit: int,
) -> None:
    """List what schedules delivered, newest first; or show one MESSAGE and mark it as read.

    \b
    Examples:
      chimes inbox --unread
      chimes inbox 5b9f0c
      chimes inbox --read 5b9f0c
    """
    if read_all:
        marked = post(backend, f"/inbox/read-all{_of(owner)}", {}).get("marked")
        echo(_("{count} marked as read", count=marked))
    elif read is not None:
        output.rows([_mark(backend, find_message(backend, read, owner))], _ITEM_COLUMNS)
    elif message is not None:
        _show(output, _mark(backend, find_message(backend, message, owner)))
    else:
        query = {
            "unread": "true" if unread else None,
            "starred": "true" if starred else None,
            "archived": "true" if archived else None,
            "owner": owner,
        }
        output.rows(pages(backend, "/inbox", limit, **query), _ITEM_COLUMNS)


def _of(owner: str | None) -> str:
    return "" if owner is None else f"?{urlencode({'owner': owner})}"


@click.command("deliveries", cls=Command)
@click.argument("run", required=False)
@click.argument("delivery", required=False)
@click.option("--dead", is_flag=True, help="Only the dead letters.")
@click.option("--channel", help="inbox, telegram, webhook or email.")
@click.option("-n", "--limit", type=Whole(1), default=50, show_default=True)
@output_options
@client_options
def deliveries(
    backend: Backend,
    output: Output,
    run: str | None,
    delivery: str | None,
    dead: bool,
    channel: str | None,
    limit: int,
) -> None:
    """List what was told to whom, newest first: of one RUN, or of all. With `retry` a dead letter,
    or one that waits, is tried again at once; `test` sends a message to see whether it arrives.

    \b
    Examples:
      chimes deliveries --dead
      chimes deliveries 0199ab
      chimes deliveries retry 5b9f0c
      chimes deliveries retry --dead --channel email
      chimes deliveries test telegram:4711
    """
    if run == "test" and delivery is not None:
        sent = post(backend, "/deliveries/test", written_recipient(delivery))
        output.rows([sent], _DELIVERY_COLUMNS)
        return
    if run == "retry" and delivery is not None:
        found = find_delivery(backend, delivery)
        again = post(backend, path_of("deliveries", found["id"], "retry"), {})
        output.rows([again], _DELIVERY_COLUMNS)
        return
    if delivery is not None:
        raise click.UsageError(
            _("Only `chimes deliveries retry ID` and `test RECIPIENT` have a second argument.")
        )
    if run == "retry" and dead:
        _retry_all(backend, output, channel)
        return
    if run == "retry":
        raise click.UsageError(
            _("Which one? Try `chimes deliveries retry ID`, or `chimes deliveries retry --dead`.")
        )
    query = {
        "run_id": None if run is None else find_run(backend, run)["id"],
        "state": "dead" if dead else None,
        "channel": channel,
    }
    output.rows(pages(backend, "/deliveries", limit, **query), _DELIVERY_COLUMNS)


def _retry_all(backend: Backend, output: Output, channel: str | None) -> None:
    """Every dead letter. They are listed first: one that dies again meanwhile is not looked at
    twice."""
    found = list(pages(backend, "/deliveries", None, state="dead", channel=channel))
    again = (post(backend, path_of("deliveries", each["id"], "retry"), {}) for each in found)
    output.rows(again, _DELIVERY_COLUMNS)


def _mark(backend: Backend, item: Json) -> Json:
    return patch(backend, path_of("inbox", item["id"]), {"read": True})


def _show(output: Output, item: Json) -> None:
    if output.form in ("json", "ndjson", "ids"):
        output.one(item, [])
        return
    echo(escaped(str(item.get("title", ""))))
    for line in str(item.get("text", "")).splitlines():
        echo(escaped(line))


def _state(item: Json) -> Message:
    if item.get("archived"):
        return _("archived")
    state = _("read") if item.get("read") else _("unread")
    return joined("", [state, "*"]) if item.get("starred") else state


def _owner(item: Json) -> str:
    owner = item.get("owner")
    return f"{owner.get('type')}:{owner.get('id')}" if isinstance(owner, dict) else ""


# @@ `telegram connect`, `telegram confirm`, `telegram list`, `telegram test`.

COMMANDS = {
    "connect": Lazy("chimes.cli.notifications", "connect", "Make a code that links a chat to you."),
    "confirm": Lazy("chimes.cli.notifications", "confirm", "Confirm a chat that has sent a code."),
    "list": Lazy("chimes.cli.notifications", "list_chats", "List your chats."),
    "test": Lazy("chimes.cli.notifications", "test", "Send a test message to a chat."),
}
_COLUMNS = [
    Column(_("chat"), pick("chat_id")),
    Column(_("state"), pick("state"), words=CHAT_STATES),
    Column(_("language"), pick("language"), rank=1),
    Column(_("timezone"), pick("timezone"), rank=2),
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
        tell(_("Or open {url}", url=made["url"]))
    tell(_("Send that from the chat, then run `chimes telegram list` and confirm it."))


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
        _(
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
    echo(_("sent to {chat}", chat=escaped(str(done["chat_id"]))))


def _rows(found: Json, name: str, state: str) -> list[Json]:
    rows = found.get(name)
    return [{**row, "state": state} for row in rows] if isinstance(rows, list) else []
