"""`inbox`, `deliveries`: what was told to whom."""

from __future__ import annotations

from urllib.parse import urlencode

import click

from chimes.cli.backend import Backend, pages, patch, path_of, post
from chimes.cli.finding import find_delivery, find_message, find_run
from chimes.cli.lazy import Command
from chimes.cli.options import Whole, client_options, output_options
from chimes.cli.output import Column, Json, Output, echo, pick
from chimes.cli.recipients import written_recipient
from chimes.cli.words import DELIVERY_STATES
from chimes.redaction import escaped
from chimes.wording import Wording, joined, say

_ITEM_COLUMNS = [
    Column(say("id"), pick("id"), shortest=8),
    Column(say("state"), lambda item: _state(item)),
    Column(say("at"), pick("created_at"), time=True, rank=1),
    Column(say("title"), pick("title"), widest=70, narrowest=12),
    Column(say("owner"), lambda item: _owner(item), rank=3),
    Column(say("run"), pick("run_id"), rank=2),
]
_DELIVERY_COLUMNS = [
    Column(say("id"), pick("id"), shortest=8),
    Column(say("state"), pick("state"), words=DELIVERY_STATES),
    Column(say("channel"), pick("channel")),
    Column(say("to"), pick("to"), rank=2, widest=40),
    Column(say("attempts"), pick("attempts"), rank=4),
    Column(say("run"), pick("run_id"), rank=5),
    Column(say("next"), pick("next_attempt_at"), time=True, rank=6),
    Column(say("why"), pick("error"), rank=3, widest=60),
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
        echo(say("{count} marked as read", count=marked))
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
            say("Only `chimes deliveries retry ID` and `test RECIPIENT` have a second argument.")
        )
    if run == "retry" and dead:
        _retry_all(backend, output, channel)
        return
    if run == "retry":
        raise click.UsageError(
            say("Which one? Try `chimes deliveries retry ID`, or `chimes deliveries retry --dead`.")
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


def _state(item: Json) -> Wording:
    if item.get("archived"):
        return say("archived")
    state = say("read") if item.get("read") else say("unread")
    return joined("", [state, "*"]) if item.get("starred") else state


def _owner(item: Json) -> str:
    owner = item.get("owner")
    return f"{owner.get('type')}:{owner.get('id')}" if isinstance(owner, dict) else ""
