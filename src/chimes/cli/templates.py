"""`templates`: ready-made times, without a server (R2.36)."""

from __future__ import annotations

import click

from chimes.cli.lazy import Command
from chimes.cli.options import form_options
from chimes.cli.output import Column, Json, Output, pick
from chimes.cli.time import default_zone
from chimes.clock import SystemClock
from chimes.language import describe
from chimes.model.templates import TEMPLATES
from chimes.triggers import Cron, format_moment

_FIRES = 3


@click.command("templates", cls=Command)
@click.option("--tz", "zone", metavar="ZONE", help="The zone that the times are in.")
@form_options
def templates(output: Output, zone: str | None) -> None:
    """List ready-made times to start from.

    \b
    Examples:
      chimes templates
      chimes templates --tz Asia/Bangkok --json
      chimes add "0 9 * * *" --http https://example.com/daily
    """
    now = SystemClock().now()
    rows: list[Json] = []
    for each in TEMPLATES:
        trigger = Cron(each.cron_spec, timezone=zone or default_zone())
        fires = [format_moment(fire.at) for fire in trigger.fires(now, _FIRES)]
        rows.append(
            {
                "id": each.id,
                "name": each.name,
                "cron_spec": each.cron_spec,
                "description": each.description,
                "timezone": trigger.zone,
                "words": describe(trigger),
                "next_fires": fires,
                "next": fires[0],
            }
        )
    columns = [
        Column("name", pick("name")),
        Column("expression", pick("cron_spec")),
        Column("next", pick("next"), time=True, rank=1),
        Column("description", pick("description"), rank=2),
    ]
    output.rows(rows, columns)
