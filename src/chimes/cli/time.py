"""`next`, `explain` and `templates`: commands that need no server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from chimes.cli.command import INVALID, Command, CommandError
from chimes.cli.options import (
    WholeNumber,
    default_zone,
    output_format_options,
    zone_converter,
)
from chimes.cli.output import (
    Column,
    Json,
    Output,
    ToZone,
    countdown,
    current_language,
    echo,
    echo_err,
    explicit_language,
    getter,
)
from chimes.clock import SystemClock
from chimes.errors import InvalidInput, InvalidTrigger, NeedsClarification
from chimes.i18n import _
from chimes.language import (
    describe,
    note_in_words,
    short_weekday,
    warning_line,
    warnings_in_words,
)
from chimes.redaction import escape_control
from chimes.services.schedules.templates import render_templates
from chimes.triggers import Dialect, Fire, Trigger, format_moment, parse_zone
from chimes.triggers.text import is_expression, parse_trigger_text
from chimes.triggers.values import parse_time

_DIALECTS = click.Choice(["auto", "unix", "seconds", "quartz"])


@click.command("next", cls=Command)
@click.argument("expression")
@click.option("--tz", "zone", metavar="ZONE", help="Time zone of the expression.")
@click.option(
    "--also", multiple=True, metavar="ZONE", help="Also show the times in this zone; repeatable."
)
@click.option("-n", "count", type=WholeNumber(1, 1000), default=5, show_default=True)
@click.option(
    "--from",
    "start",
    metavar="TIME",
    help="Show fires after this time, such as 'tomorrow 10:00'. Default: now.",
)
@click.option("--dialect", type=_DIALECTS, default="auto")
@output_format_options
def next_fires(
    output: Output,
    expression: str,
    zone: str | None,
    also: Sequence[str],
    count: int,
    start: str | None,
    dialect: Dialect,
) -> None:
    """Show when an expression or a sentence fires next.

    \b
    Examples:
      chimes next "every weekday 9:00 Bangkok time"
      chimes next "30 2 * * *" --tz America/New_York --also Asia/Bangkok
      chimes next "0 9 * * 1-5" -n 10 --from 2026-03-06T00:00:00Z
      chimes next "every 90m"
      chimes next 2030-02-10T09:00:00 --tz Asia/Bangkok --json
    """
    now, lang = SystemClock().now(), current_language()
    trigger = _read_trigger(expression, zone, dialect)
    words, warnings = describe(trigger, lang), warnings_in_words(trigger, lang)
    trigger = trigger.with_default_anchor()
    after = now
    if start:
        after = parse_time(start, now=now, zone=trigger.zone, field="--from")
    fires = fires_after(trigger, after, count, lang)
    other_zones = [(name, zone_converter(name)) for name in also]
    if output.format == "json":
        answer: Json = {
            "fires": [fire_json(fire, lang) | _in_zones(fire.at, other_zones) for fire in fires],
            "words": words,
            "warnings": list(warnings),
            "timezone": trigger.zone,
        }
        output.one(answer, [])
        return
    if output.is_table:
        echo_err(words)
    rows = []
    for fire in fires:
        row = fire_json(fire, lang) | {"in": countdown(fire.at, now)}
        row |= {"id": row["at"]} if output.format == "ids" else {}
        rows.append(row | {name: to(fire.at).isoformat() for name, to in other_zones})
    columns = _columns(trigger, [name for name, _to in other_zones], table=output.is_table)
    output.rows(rows, columns)
    if output.is_table:
        for row in [each for each in rows if each.get("words")]:
            echo(f"{row['local']}: {row['words']}")
    for warning in warnings:
        echo_err(warning_line(warning, lang))


@click.command("explain", cls=Command)
@click.argument("expression")
@click.option("--tz", "zone", metavar="ZONE", help="Time zone of the expression.")
@click.option("--dialect", type=_DIALECTS, default="auto")
@output_format_options
def explain(output: Output, expression: str, zone: str | None, dialect: Dialect) -> None:
    """Explain an expression in words and show its next three fires. It may be a sentence: this
    shows how `chimes add` reads it.

    \b
    Examples:
      chimes explain "0 0 13 * 5"
      chimes explain "0 0/5 14 ? * MON-FRI *" --tz Europe/Berlin
      chimes explain "0 9 * * 1-5" --lang th
    """
    trigger = _read_trigger(expression, zone, dialect)
    now, lang = SystemClock().now(), current_language()
    fires = fires_after(trigger.with_default_anchor(), now, 3, lang)
    warnings = warnings_in_words(trigger, lang)
    if output.format in ("json", "ndjson"):
        answer: Json = {
            "words": describe(trigger, lang),
            "warnings": list(warnings),
            "trigger": trigger.to_dict(),
            "timezone": trigger.zone,
            "fires": [fire_json(fire, lang) for fire in fires],
        }
        output.one(answer, [])
        return
    if output.format == "ids":
        echo("\n".join(format_moment(fire.at) for fire in fires))
        return
    echo(describe(trigger, lang))
    for fire in fires:
        note = f"  ({note_in_words(fire.note, lang)})" if fire.note else ""
        echo(f"  {format_fire(fire, lang)}{note}")
    for warning in warnings:
        echo_err(warning_line(warning, lang))


def _read_trigger(text: str, zone: str | None, dialect: Dialect) -> Trigger:
    """Sentences are read as `add` reads them. The parser is imported for them only."""
    zone = zone or default_zone()
    try:
        return parse_trigger_text(text, zone, dialect)
    except InvalidTrigger as error:
        if is_expression(text):
            raise
        from chimes.language import read_trigger

        now, lang = SystemClock().now(), explicit_language()
        try:
            parsed = read_trigger(text, now=now, timezone=zone, dialect=dialect, lang=lang)
        except NeedsClarification as question:
            # No part of it is a time, or the expression has a form of the interval.
            if {"date", "time"} <= set(question.missing) or "interval" in question.missing:
                raise error from None
            raise
        except InvalidInput:
            raise error from None
    if parsed.task:
        echo_err(_("Not read: “{words}”.", words=escape_control(parsed.task)))
    return parsed.trigger


def fires_after(trigger: Trigger, after: datetime, count: int, lang: str) -> list[Fire]:
    fires = trigger.fires(after, count)
    if not fires:
        words = describe(trigger, lang)
        raise CommandError(
            _("It never fires after {after}: {words}", after=format_moment(after), words=words),
            INVALID,
        )
    return fires


def fire_json(fire: Fire, lang: str) -> Json:
    found: Json = {"at": format_moment(fire.at), "local": fire.local.isoformat()}
    if fire.note:
        found |= {"note": fire.note, "words": note_in_words(fire.note, lang)}
    return found


def format_fire(fire: Fire, lang: str) -> str:
    return f"{short_weekday(fire.local, lang)} {fire.local.isoformat(sep=' ')}"


def _in_zones(at: datetime, zones: Sequence[tuple[str, ToZone]]) -> Json:
    return {"also": {name: to(at).isoformat() for name, to in zones}} if zones else {}


def _columns(trigger: Trigger, also: Sequence[str], *, table: bool) -> list[Column]:
    utc, local = Column(_("UTC"), getter("at"), rank=3), Column(trigger.zone, getter("local"))
    others = [Column(name, getter(name), rank=1) for name in also]
    if table:
        return [local, Column(_("in"), getter("in"), rank=2), *others, utc]
    return [utc, local, *others, Column(_("note"), getter("words"))]


# --- templates ------------------------------------------------------------------------------------
@click.command("templates", cls=Command)
@click.option("--tz", "zone", metavar="ZONE", help="Time zone of the templates.")
@output_format_options
def templates(output: Output, zone: str | None) -> None:
    """List templates of triggers and schedules to start from.

    \b
    Examples:
      chimes templates
      chimes templates --tz Asia/Bangkok --lang th --json
      chimes add "0 9 * * *" --http https://example.com/daily
    """
    zone_name = parse_zone(zone or default_zone()).name
    rows: list[Json] = render_templates(zone_name, current_language(), SystemClock().now())
    columns = [
        Column(_("name"), getter("name")),
        Column(_("expression"), _expression),
        Column(_("next"), _next, time=True, rank=1),
        Column(_("what"), _kind, rank=3),
        Column(_("description"), getter("description"), rank=2),
    ]
    output.rows(rows, columns)


def _expression(row: Json) -> object:
    """The expression as `chimes add` accepts it."""
    trigger = row["trigger"]
    every = trigger.get("every") if isinstance(trigger, dict) else None
    return row["cron_spec"] or " ".join(("every", str(every)))


def _next(row: Json) -> object:
    fires = row["next_fires"]
    return fires[0] if isinstance(fires, list) else ""


def _kind(row: Json) -> object:
    target = row["target"]
    return target["kind"] if isinstance(target, dict) else ""
