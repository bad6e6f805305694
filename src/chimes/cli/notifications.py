"""`inbox`, `deliveries` and `telegram`: messages, notifications and linked chats."""

from __future__ import annotations

from urllib.parse import urlencode

import click

from chimes.cli.backend import (
    Backend,
    api_path,
    find_delivery,
    find_message,
    find_run,
    get,
    paginate,
    patch,
    post,
)
from chimes.cli.command import FAILED, Command, CommandError, LazyCommand, LazyGroup
from chimes.cli.options import WholeNumber, client_options, output_options
from chimes.cli.output import (
    CHAT_STATES,
    DELIVERY_STATES,
    Column,
    Json,
    Output,
    echo,
    echo_err,
    getter,
)
from chimes.cli.schedules import recipient_argument
from chimes.i18n import Message, _, joined
from chimes.redaction import escape_control

_INBOX_COLUMNS = [
    Column(_("id"), getter("id"), min_chars=8),
    Column(_("state"), lambda item: _state(item)),
    Column(_("at"), getter("created_at"), time=True, rank=1),
    Column(_("title"), getter("title"), max_width=70, min_width=12),
    Column(_("owner"), lambda item: _owner(item), rank=3),
    Column(_("run"), getter("run_id"), rank=2),
]
_DELIVERY_COLUMNS = [
    Column(_("id"), getter("id"), min_chars=8),
    Column(_("state"), getter("state"), labels=DELIVERY_STATES),
    Column(_("channel"), getter("channel")),
    Column(_("to"), getter("to"), rank=2, max_width=40),
    Column(_("attempts"), getter("attempts"), rank=4),
    Column(_("run"), getter("run_id"), rank=5),
    Column(_("next"), getter("next_attempt_at"), time=True, rank=6),
    Column(_("why"), getter("error"), rank=3, max_width=60),
]


@click.command("inbox", cls=Command)
@click.argument("message", required=False)
@click.option("--unread", is_flag=True, help="Only unread messages.")
@click.option("--starred", is_flag=True, help="Only starred messages.")
@click.option("--archived", is_flag=True, help="Only archived messages.")
@click.option("--read", metavar="ID", help="Mark this message as read.")
@click.option("--read-all", is_flag=True, help="Mark all messages as read.")
@click.option(
    "--owner", metavar="TYPE:ID", help="Owner of the inbox, such as user:alice. Default: you."
)
@click.option("-n", "--limit", type=WholeNumber(1), default=50, show_default=True)
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
    """List messages in the inbox, newest first; or show one MESSAGE and mark it as read.

    \b
    Examples:
      chimes inbox --unread
      chimes inbox 5b9f0c
      chimes inbox --read 5b9f0c
    """
    if read_all:
        marked = post(backend, f"/inbox/read-all{_owner_query(owner)}", {}).get("marked")
        echo(_("{count} marked as read", count=marked))
    elif read is not None:
        output.rows([_mark(backend, find_message(backend, read, owner))], _INBOX_COLUMNS)
    elif message is not None:
        _show(output, _mark(backend, find_message(backend, message, owner)))
    else:
        query = {
            "unread": "true" if unread else None,
            "starred": "true" if starred else None,
            "archived": "true" if archived else None,
            "owner": owner,
        }
        output.rows(paginate(backend, "/inbox", limit, **query), _INBOX_COLUMNS)


def _owner_query(owner: str | None) -> str:
    return "" if owner is None else f"?{urlencode({'owner': owner})}"


@click.command("deliveries", cls=Command)
@click.argument("run", required=False)
@click.argument("delivery", required=False)
@click.option("--dead", is_flag=True, help="Only dead letters.")
@click.option("--channel", help="Only this channel: inbox, telegram, webhook or email.")
@click.option("-n", "--limit", type=WholeNumber(1), default=50, show_default=True)
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
    """List notifications and their status, newest first; of one RUN, or of all. `retry` sends a
    dead letter or a pending notification again at once; `test` sends a test message.

    \b
    Examples:
      chimes deliveries --dead
      chimes deliveries 0199ab
      chimes deliveries retry 5b9f0c
      chimes deliveries retry --dead --channel email
      chimes deliveries test telegram:4711
    """
    if run == "test" and delivery is not None:
        sent = post(backend, "/deliveries/test", recipient_argument(delivery))
        output.rows([sent], _DELIVERY_COLUMNS)
        _check_sent(sent)
        return
    if run == "retry" and delivery is not None:
        found = find_delivery(backend, delivery)
        again = post(backend, api_path("deliveries", found["id"], "retry"), {})
        output.rows([again], _DELIVERY_COLUMNS)
        return
    if delivery is not None:
        raise click.UsageError(
            _("Only `chimes deliveries retry ID` and `test RECIPIENT` take a second argument.")
        )
    if run == "retry" and dead:
        _retry_all(backend, output, channel)
        return
    if run == "retry":
        raise click.UsageError(
            _("Give an id: `chimes deliveries retry ID`, or use `chimes deliveries retry --dead`.")
        )
    query = {
        "run_id": None if run is None else find_run(backend, run)["id"],
        "state": "dead" if dead else None,
        "channel": channel,
    }
    output.rows(paginate(backend, "/deliveries", limit, **query), _DELIVERY_COLUMNS)


def _check_sent(sent: Json) -> None:
    """Fails if the test message was not delivered."""
    if sent.get("state") == "delivered":
        return
    reason = str(sent.get("error") or "") or _("no node has sent it yet; is a server running?")
    raise CommandError(
        _("The test message was not delivered: {reason}", reason=escape_control(reason)), FAILED
    )


def _retry_all(backend: Backend, output: Output, channel: str | None) -> None:
    """Retries every dead letter. Lists them first, so that one that dies again is not retried
    twice."""
    found = list(paginate(backend, "/deliveries", None, state="dead", channel=channel))
    again = (post(backend, api_path("deliveries", each["id"], "retry"), {}) for each in found)
    output.rows(again, _DELIVERY_COLUMNS)


def _mark(backend: Backend, item: Json) -> Json:
    return patch(backend, api_path("inbox", item["id"]), {"read": True})


def _show(output: Output, item: Json) -> None:
    if output.format in ("json", "ndjson", "ids"):
        output.one(item, [])
        return
    echo(escape_control(str(item.get("title", ""))))
    for line in str(item.get("text", "")).splitlines():
        echo(escape_control(line))


def _state(item: Json) -> Message:
    if item.get("archived"):
        return _("archived")
    state = _("read") if item.get("read") else _("unread")
    return joined("", [state, "*"]) if item.get("starred") else state


def _owner(item: Json) -> str:
    owner = item.get("owner")
    return f"{owner.get('type')}:{owner.get('id')}" if isinstance(owner, dict) else ""


# --- telegram -------------------------------------------------------------------------------------
TELEGRAM_COMMANDS = {
    "connect": LazyCommand(
        "chimes.cli.notifications", "connect_chat", "Create a code that links a chat to you."
    ),
    "confirm": LazyCommand(
        "chimes.cli.notifications", "confirm_chat", "Confirm a chat that sent the code."
    ),
    "list": LazyCommand("chimes.cli.notifications", "list_chats", "List linked and pending chats."),
    "test": LazyCommand("chimes.cli.notifications", "test_chat", "Send a test message to a chat."),
}
_CHAT_COLUMNS = [
    Column(_("chat"), getter("chat_id")),
    Column(_("state"), getter("state"), labels=CHAT_STATES),
    Column(_("language"), getter("language"), rank=1),
    Column(_("timezone"), getter("timezone"), rank=2),
]


@click.group("telegram", cls=LazyGroup, lazy=TELEGRAM_COMMANDS)
def telegram() -> None:
    """Link Telegram chats to your account. The server needs CHIMES_TELEGRAM_TOKEN and the chat in
    CHIMES_TELEGRAM_ALLOWED_CHATS."""


@click.command("connect", cls=Command)
@client_options
def connect_chat(backend: Backend) -> None:
    """Create a code. Send the printed command from the chat within ten minutes, then confirm the
    chat.

    \b
    Examples:
      chimes telegram connect
    """
    created = post(backend, "/telegram/links", {})
    echo(str(created["command"]))
    if created.get("url"):
        echo_err(_("Or open {url}", url=created["url"]))
    echo_err(_("Send this from the chat, then run `chimes telegram list` and confirm the chat."))


@click.command("confirm", cls=Command)
@click.argument("chat")
@client_options
def confirm_chat(backend: Backend, chat: str) -> None:
    """Link CHAT to your account: it then acts on your behalf.

    \b
    Examples:
      chimes telegram confirm 123456789
    """
    done = post(backend, api_path("telegram", "links", chat) + "/confirm", {})
    echo(
        _(
            "{chat} acts for {owner}",
            chat=escape_control(str(done["chat_id"])),
            owner=escape_control(str(done["owner"])),
        )
    )


@click.command("list", cls=Command)
@output_options
@client_options
def list_chats(backend: Backend, output: Output) -> None:
    """List linked chats, and those that wait for confirmation.

    \b
    Examples:
      chimes telegram list
    """
    found = get(backend, "/telegram/links")
    output.rows(
        [*_rows(found, "items", "linked"), *_rows(found, "waiting", "waiting")], _CHAT_COLUMNS
    )


@click.command("test", cls=Command)
@click.argument("chat")
@client_options
def test_chat(backend: Backend, chat: str) -> None:
    """Send a test message to CHAT.

    \b
    Examples:
      chimes telegram test 123456789
    """
    done = post(backend, "/telegram/test", {"chat_id": chat})
    echo(_("sent to {chat}", chat=escape_control(str(done["chat_id"]))))


def _rows(found: Json, name: str, state: str) -> list[Json]:
    rows = found.get(name)
    return [{**row, "state": state} for row in rows] if isinstance(rows, list) else []
