"""`store backfill-schedules`: what an application times in memory, into the store (R2.7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chimes.cli.failure import FAILED, USAGE, Failure
from chimes.cli.lazy import Command
from chimes.cli.options import form_options, yes_option
from chimes.cli.output import Column, Json, Output, pick, tell
from chimes.cli.words import CHANGES
from chimes.config import load_settings
from chimes.wording import say

if TYPE_CHECKING:
    from chimes.app.declarations import Backfilled
    from chimes.app.sdk import Chimes
    from chimes.config import Settings

COLUMNS = (
    Column(say("Name"), pick("name")),
    Column(say("Result"), pick("result"), words=CHANGES),
    Column(say("When"), pick("cron_spec")),
    Column(say("Next run"), pick("next_run_at"), time=True),
)


@click.command("backfill-schedules", cls=Command)
@click.option("--app", metavar="MODULE:NAME", help="The application; CHIMES_APP unless told.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this schedule: a canary.")
@click.option("--dry-run", is_flag=True, help="Show what would be written.")
@click.option("--store", metavar="URL", help="As for serve.")
@click.option("--data-dir", metavar="DIR", help="As for serve.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="A chimes.yaml.")
@yes_option
@form_options
@click.pass_context
def backfill_schedules(
    ctx: click.Context,
    /,
    *,
    output: Output,
    ask: Callable[..., bool],
    file: Path | None,
    only: tuple[str, ...],
    dry_run: bool,
    **flags: str | None,
) -> None:
    """Write the schedules that an application times in memory into the store. One whose name is
    there already stays as it is.

    \b
    Examples:
      chimes store backfill-schedules --app shop.tasks:app --dry-run
      chimes store backfill-schedules --app shop.tasks:app --only nightly
      chimes store backfill-schedules --app shop.tasks:app --yes
    """
    from chimes.app import load_app

    path = load_settings(flags=flags, config_file=file).settings.app
    if not path:
        raise Failure(say("Which application? Say --app module:name, or set CHIMES_APP"), USAGE)
    app = load_app(path)
    settings = app.load(flags=flags, config_file=file).settings
    names = only or None
    planned = asyncio.run(_backfilled(app, settings, names, confirm=False))
    new = sum(each.created for each in planned)
    if dry_run or not new:
        output.rows([_row(each, done=False) for each in planned], COLUMNS)
        tell(say("{new} of {all} schedules would be written.", new=new, all=len(planned)))
        return
    if not ask(say("Write {new} of {all} schedules?", new=new, all=len(planned)), careful=True):
        tell(say("Nothing was written; --yes goes on without asking."))
        ctx.exit(FAILED)
    done = asyncio.run(_backfilled(app, settings, names, confirm=True))
    output.rows([_row(each, done=True) for each in done], COLUMNS)
    new = sum(each.created for each in done)
    tell(say("{new} of {all} schedules were written.", new=new, all=len(done)))


async def _backfilled(
    app: Chimes, settings: Settings, only: tuple[str, ...] | None, *, confirm: bool
) -> list[Backfilled]:
    await app.open(settings)
    try:
        return await app.backfill_schedules(confirm=confirm, only=only)
    finally:
        await app.close()


def _row(each: Backfilled, *, done: bool) -> Json:
    from chimes.app.info import info_of

    info = info_of(each.schedule)
    new = "created" if done else "new"
    return {
        "id": info.id,
        "name": each.name,
        "result": new if each.created else "exists",
        "cron_spec": info.cron_spec,
        "next_run_at": info.next_run_at.isoformat() if info.next_run_at else None,
    }
