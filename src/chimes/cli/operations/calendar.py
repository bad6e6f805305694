"""`calendar`: calendars that schedules share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from chimes.cli.backend import Backend, api_path, delete, get, items_of, put
from chimes.cli.command import USAGE, Command, CommandError, LazyCommand, LazyGroup
from chimes.cli.options import (
    client_options,
    lazy_client_options,
    output_format_options,
    output_options,
)
from chimes.cli.output import Column, Json, Output, echo, getter
from chimes.errors import InvalidInput, NotFound
from chimes.i18n import _
from chimes.redaction import escape_control

_HERE = "chimes.cli.operations.calendar"
CALENDAR_COMMANDS = {
    "ls": LazyCommand(_HERE, "list_calendars", "List calendars and how many schedules use them."),
    "show": LazyCommand(_HERE, "show_calendar", "Show a calendar."),
    "create": LazyCommand(_HERE, "create_calendar", "Create a calendar or replace its contents."),
    "import": LazyCommand(_HERE, "import_calendar", "Create a calendar from an iCalendar file."),
    "rm": LazyCommand(_HERE, "remove_calendar", "Delete a calendar."),
}


@click.group("calendar", cls=LazyGroup, lazy=CALENDAR_COMMANDS)
def calendar() -> None:
    """Manage calendars that schedules share."""


def _length(item: Json, name: str) -> str:
    found = item.get(name)
    return str(len(found)) if isinstance(found, list) and found else ""


_COLUMNS = [
    Column(_("name"), getter("name")),
    Column(_("version"), getter("version")),
    Column(_("holidays"), lambda item: str(item.get("holidays") or "")),
    Column(_("dates"), lambda item: _length(item, "dates")),
    Column(_("ranges"), lambda item: _length(item, "ranges"), rank=1),
    Column(_("workdays"), lambda item: _length(item, "workdays"), rank=1),
    Column(_("schedules"), getter("schedule_count")),
]


@click.command("ls", cls=Command)
@output_options
@client_options
def list_calendars(backend: Backend, output: Output) -> None:
    """List calendars by name, and how many schedules use them.

    \b
    Examples:
      chimes calendar ls
      chimes calendar ls --json
    """
    items = items_of(get(backend, "/calendars"))
    if output.format == "ids":
        items = [{"id": each["name"]} for each in items]
    output.rows(items, _COLUMNS)


@click.command("show", cls=Command)
@click.argument("name")
@output_format_options
@client_options
def show_calendar(backend: Backend, output: Output, name: str) -> None:
    """Show the contents of a calendar, its versions and the schedules that use it.

    \b
    Examples:
      chimes calendar show bank
    """
    found = get(backend, api_path("calendars", name))
    if output.format in ("json", "ndjson"):
        output.one(found, [])
        return
    _print(found)


@click.command("create", cls=Command)
@click.argument("name")
@click.option("--holidays", metavar="COUNTRY", help="Holidays of a country, such as TH or DE-BY.")
@click.option("--date", "dates", multiple=True, help="Date without slots (repeatable).")
@click.option(
    "--range", "ranges", multiple=True, metavar="FROM/TO", help="Dates or moments (repeatable)."
)
@click.option("--workday", "workdays", multiple=True, help="Make-up workday (repeatable).")
@output_format_options
@lazy_client_options
def create_calendar(
    open_backend: Callable[..., Backend],
    output: Output,
    name: str,
    holidays: str | None,
    dates: Sequence[str],
    ranges: Sequence[str],
    workdays: Sequence[str],
) -> None:
    """Create a calendar, or replace its contents. Schedules that use it are planned again.

    \b
    Examples:
      chimes calendar create bank --holidays DE --date 2026-12-24
      chimes calendar create freeze --range 2026-12-20/2027-01-05
      chimes calendar create china --holidays CN --workday 2026-10-10
    """
    pairs = [each.split("/") for each in ranges]
    if any(len(each) != 2 for each in pairs):
        raise click.UsageError(_("Write --range as FROM/TO, such as 2026-12-20/2027-01-05."))
    body: Json = {"dates": list(dates), "ranges": pairs, "workdays": list(workdays)}
    if holidays:
        body["holidays"] = holidays
    _put(open_backend(create=True), output, name, body)


@click.command("import", cls=Command)
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--holidays", metavar="COUNTRY", help="Holidays of a country besides.")
@output_format_options
@lazy_client_options
def import_calendar(
    open_backend: Callable[..., Backend],
    output: Output,
    name: str,
    file: Path,
    holidays: str | None,
) -> None:
    """Create a calendar, or replace its contents, with the events of an iCalendar file (.ics).

    Events of whole days become dates, others ranges of moments. Make-up workdays of the calendar
    stay.

    \b
    Examples:
      chimes calendar import bank holidays.ics
    """
    from chimes.services.calendars import parse_ics

    try:
        body: Json = dict(parse_ics(file.read_bytes()))
    except InvalidInput as error:
        raise CommandError(
            _("{name}: {problem}", name=os.fspath(file), problem=error.message), USAGE
        ) from None
    if holidays:
        body["holidays"] = holidays
    backend = open_backend(create=True)
    try:
        body["workdays"] = get(backend, api_path("calendars", name))["workdays"]
    except (CommandError, NotFound):
        body["workdays"] = []
    _put(backend, output, name, body)


@click.command("rm", cls=Command)
@click.argument("name")
@client_options
def remove_calendar(backend: Backend, name: str) -> None:
    """Delete a calendar. Refused while schedules use it.

    \b
    Examples:
      chimes calendar rm bank
    """
    delete(backend, api_path("calendars", name))
    echo(escape_control(name))


def _put(backend: Backend, output: Output, name: str, body: Json) -> None:
    stored = put(backend, api_path("calendars", name), body)
    if output.format in ("json", "ndjson"):
        output.one(stored, [])
        return
    _print(stored)


def _print(found: Json) -> None:
    lines: list[str] = [
        _("{name}, version {version}", name=found["name"], version=found["version"])
    ]
    if found.get("holidays"):
        lines.append(_("holidays: {country}", country=found["holidays"]))
    for key, label in (("dates", _("dates")), ("workdays", _("workdays"))):
        values = found.get(key)
        if isinstance(values, list) and values:
            lines.append(f"{label}: {', '.join(map(str, values))}")
    ranges = found.get("ranges")
    if isinstance(ranges, list):
        lines += [_("range: {start} – {end}", start=start, end=end) for start, end in ranges]
    used = items_of({"items": found.get("schedules")})
    if used:
        names = ", ".join(str(each["name"]) for each in used)
        lines.append(_("schedules: {names}", names=names))
    for line in lines:
        echo(escape_control(str(line)))
