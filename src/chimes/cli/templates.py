"""`templates`: ready-made times and schedules, without a server (R2.36, R1.41)."""

from __future__ import annotations

import click

from chimes.cli.language import spoken
from chimes.cli.lazy import Command
from chimes.cli.options import form_options
from chimes.cli.output import Column, Json, Output, pick
from chimes.cli.time import default_zone
from chimes.clock import SystemClock
from chimes.service.templates import templates_shown
from chimes.triggers import parse_zone
from chimes.wording import say


@click.command("templates", cls=Command)
@click.option("--tz", "zone", metavar="ZONE", help="The zone that the times are in.")
@form_options
def templates(output: Output, zone: str | None) -> None:
    """List ready-made times and schedules to start from.

    \b
    Examples:
      chimes templates
      chimes templates --tz Asia/Bangkok --lang th --json
      chimes add "0 9 * * *" --http https://example.com/daily
    """
    named = parse_zone(zone or default_zone()).name
    rows: list[Json] = templates_shown(named, spoken(), SystemClock().now())
    columns = [
        Column(say("name"), pick("name")),
        Column(say("expression"), _expression),
        Column(say("next"), _next, time=True, rank=1),
        Column(say("what"), _kind, rank=3),
        Column(say("description"), pick("description"), rank=2),
    ]
    output.rows(rows, columns)


def _expression(row: Json) -> object:
    """As `chimes add` takes it."""
    trigger = row["trigger"]
    every = trigger.get("every") if isinstance(trigger, dict) else None
    return row["cron_spec"] or " ".join(("every", str(every)))


def _next(row: Json) -> object:
    fires = row["next_fires"]
    return fires[0] if isinstance(fires, list) else ""


def _kind(row: Json) -> object:
    target = row["target"]
    return target["kind"] if isinstance(target, dict) else ""
