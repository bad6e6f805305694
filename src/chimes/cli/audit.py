"""`audit`: who did what, and whether the trail is whole."""

from __future__ import annotations

import click

from chimes.cli.backend import Backend, get, items_of
from chimes.cli.failure import FAILED
from chimes.cli.lazy import Command
from chimes.cli.options import Whole, client_options, output_options
from chimes.cli.output import Column, Json, Output, echo, pick, tell
from chimes.wording import Wording, counted, say

_PAGE = 200
_COLUMNS = [
    Column(say("number"), pick("number")),
    Column(say("at"), pick("at"), time=True),
    Column(say("verb"), pick("verb")),
    Column(say("object"), lambda item: _object(item), rank=1),
    Column(say("owner"), pick("owner"), rank=3),
    Column(say("actor"), pick("actor"), rank=2),
    Column(say("door"), pick("door"), rank=4),
    Column(say("allowed"), lambda item: "" if item.get("allowed") else say("refused"), rank=5),
]


@click.command("audit", cls=Command)
@click.option("--verify", is_flag=True, help="Walk through the whole chain instead.")
@click.option("--actor", metavar="ACTOR", help="Such as key:ID or user:alice.")
@click.option("--door", metavar="DOOR", help="Such as native, softnix or telegram.")
@click.option("--verb", metavar="VERB", help="Such as create, pause or refused.")
@click.option("--object", "object_id", metavar="ID", help="Of one schedule, run or key.")
@click.option("--owner", metavar="TYPE:ID", help="Of the objects of one owner.")
@click.option("--limit", "-n", type=Whole(1), default=50, show_default=True)
@output_options
@client_options
@click.pass_context
def audit(
    ctx: click.Context,
    backend: Backend,
    output: Output,
    verify: bool,
    actor: str | None,
    door: str | None,
    verb: str | None,
    object_id: str | None,
    owner: str | None,
    limit: int,
) -> None:
    """Who did what, newest first. Each entry is chained to the one before it by its hash.

    \b
    Examples:
      chimes audit --verb delete
      chimes audit --owner user:anna --json
      chimes audit --verify
    """
    if verify:
        ctx.exit(_verify(backend, output))
    asked = {"actor": actor, "door": door, "verb": verb, "object_id": object_id, "owner": owner}
    output.rows(_entries(backend, limit, asked), _COLUMNS)


def _entries(backend: Backend, limit: int, filters: dict[str, str | None]) -> list[Json]:
    found: list[Json] = []
    before: object = None
    while len(found) < limit:
        size = min(_PAGE, limit - len(found))
        page = get(backend, "/audit", limit=size, before=before, **filters)
        found.extend(items_of(page))
        before = page.get("next_before")
        if before is None:
            break
    return found


def _verify(backend: Backend, output: Output) -> int:
    verdict = get(backend, "/audit/verify")
    if output.form in ("json", "ndjson"):
        output.one(verdict, [])
    elif verdict.get("ok"):
        echo(_whole(verdict.get("checked")))
    else:
        tell(
            say(
                "Entry {number} does not fit: it, or one before it, was changed.",
                number=verdict.get("first_bad"),
            )
        )
    return 0 if verdict.get("ok") else FAILED


def _whole(checked: object) -> Wording:
    count = checked if isinstance(checked, int) else 0
    return counted("ok: {count} entry", "ok: {count} entries", count)


def _object(item: Json) -> str:
    return f"{item.get('object_kind', '')} {item.get('object_id', '')}".strip()
