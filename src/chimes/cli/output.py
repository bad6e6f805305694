"""Prints results in the language of the user: tables on a terminal, TSV in pipes, JSON on request.

The language is `--lang`, then CHIMES_LANG, then the locale. Messages are built in English
(`chimes.i18n`) and translated when they are printed. Click translates its own messages with
gettext, whose default domain is ours while a command runs.
"""

from __future__ import annotations

import gettext
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from inspect import cleandoc
from itertools import pairwise
from typing import Final, Literal

import click

from chimes import i18n
from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, Message, _, in_language
from chimes.language.languages import known, named, of_environment
from chimes.model.recipient import format_recipient
from chimes.model.run import RUN_REASONS
from chimes.redaction import escape_control

# --- language -------------------------------------------------------------------------------------
_DOMAIN = "chimes"
#: The variable that gettext reads first.
_VARIABLE = "LANGUAGE"
_language: ContextVar[str] = ContextVar("language", default=i18n.ENGLISH)
_explicit: ContextVar[bool] = ContextVar("explicit", default=False)
#: Value of the variable before the command.
_original: ContextVar[str | None] = ContextVar("original", default=None)


def current_language() -> str:
    """The output language of the running command."""
    return _language.get()


def explicit_language() -> str | None:
    """The output language if --lang or CHIMES_LANG set it, else None."""
    return (
        current_language() if _explicit.get() or os.environ.get("CHIMES_LANG", "").strip() else None
    )


def localize(text: str) -> str:
    """A message in the output language; other text unchanged."""
    return in_language(text, current_language())


def localize_help(text: str) -> str:
    """Help text in the output language. It is a catalogue key, so `text` must be unchanged."""
    whole = text if isinstance(text, Message) else Message(cleandoc(text), {})
    return localize(whole) if whole else ""


@contextmanager
def use_language(arguments: Sequence[str]) -> Iterator[None]:
    """Sets the output language while a command runs. Looks for --lang before the arguments are
    parsed, so that parse errors are translated too."""
    domain, directory = gettext.textdomain(), gettext.bindtextdomain(_DOMAIN)
    original = _original.set(os.environ.get(_VARIABLE))
    language, explicit = _language.set(current_language()), _explicit.set(False)
    gettext.bindtextdomain(_DOMAIN, str(i18n.LOCALE))
    gettext.textdomain(_DOMAIN)
    _set_language(_detect_language(arguments))
    try:
        yield
    finally:
        _restore_environment()
        gettext.textdomain(domain)
        gettext.bindtextdomain(_DOMAIN, directory)
        _language.reset(language)
        _explicit.reset(explicit)
        _original.reset(original)


@contextmanager
def original_environment() -> Iterator[None]:
    """Restores the environment while the server runs, so that its child processes inherit it."""
    _restore_environment()
    try:
        yield
    finally:
        _set_language(current_language())


def _restore_environment() -> None:
    os.environ.pop(_VARIABLE, None)
    if (original := _original.get()) is not None:
        os.environ[_VARIABLE] = original


def _set_language(language: str) -> None:
    _language.set(language)
    os.environ[_VARIABLE] = language


def _detect_language(arguments: Sequence[str]) -> str:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for place, each in reversed(list(enumerate(arguments[:end]))):
        option, equals, value = each.partition("=")
        if option == "--lang":
            given = value if equals else "".join(arguments[place + 1 : place + 2])
            if (language := known(given)) is not None:
                return language
    try:
        return of_environment(os.environ)
    except InvalidInput:
        return i18n.ENGLISH


def _apply_option(context: click.Context, option: click.Parameter, given: str | None) -> None:
    if given is not None:
        _set_language(named(given))
        _explicit.set(True)
    elif not _explicit.get() and not isinstance(context.command, click.Group):
        # An invalid CHIMES_LANG is rejected only here: help works in any case, and --lang after
        # the name of the command takes precedence.
        of_environment(os.environ)


def language_option() -> click.Option:
    """`--lang`, an option of every command and group."""
    return click.Option(
        ["--lang"],
        callback=_apply_option,
        expose_value=False,
        is_eager=True,
        # `of_environment` reads CHIMES_LANG together with the locale.
        allow_from_autoenv=False,
        metavar="LANGUAGE",
        help="Output language: en, th or zh. Default: CHIMES_LANG, then your locale.",
    )


# --- text width on a terminal ---------------------------------------------------------------------
#: A line may break after each of these, because Chinese has no spaces between words.
_IDEOGRAPHS = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
#: Punctuation that must not start a line.
_CLOSING = "，。、；：？！）》」』"
_UNIT = re.compile(rf"\s+|[{_IDEOGRAPHS}][{_CLOSING}]*|[^\s{_IDEOGRAPHS}]+[{_CLOSING}]*")


def display_width(text: str) -> int:
    """Width in terminal columns; combining marks take none."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(character: str) -> int:
    from unicodedata import category, east_asian_width

    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def pad(text: str, columns: int) -> str:
    return text + " " * (columns - display_width(text))


def truncate(text: str, columns: int) -> str:
    """The longest prefix that fits; never splits a letter from its marks."""
    taken = 0
    for index, character in enumerate(text):
        taken += _char_width(character)
        if taken > columns:
            return text[:index]
    return text


def wrap(text: str, columns: int) -> list[str]:
    """Wraps one paragraph into lines that fit."""
    lines = [""]
    for unit in _units(text, columns):
        if display_width(lines[-1] + unit.rstrip()) > columns:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += unit if lines[-1] else unit.lstrip()
    return [line.rstrip() for line in lines]


def _units(text: str, columns: int) -> Iterator[str]:
    """Unbreakable units. Longer ones than a line are split, because Thai has few spaces."""
    for unit in _UNIT.findall(" ".join(text.split())):
        rest = unit
        while display_width(rest) > columns:
            first = truncate(rest, columns) or rest[0]
            yield first
            rest = rest[len(first) :]
        yield rest


class Formatter(click.HelpFormatter):
    """Wraps help by display width; leaves English to click."""

    def write_text(self, text: str) -> None:
        if current_language() == ENGLISH:
            super().write_text(text)
            return
        lines = _paragraphs(text, self.width - self.current_indent)
        indent = " " * self.current_indent
        self.write("".join(f"{indent}{line}".rstrip() + "\n" for line in lines))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        if current_language() == ENGLISH:
            super().write_dl(rows, col_max, col_spacing)
            return
        listed = list(rows)
        first_column = (
            min(max(display_width(term) for term, _text in listed), col_max) + col_spacing
        )
        room = max(self.width - first_column - self.current_indent, 10)
        indent = " " * self.current_indent
        for term, text in listed:
            lines = wrap(text, room)
            if display_width(term) > first_column - col_spacing:
                self.write(f"{indent}{term}\n")
                term = ""
            for begin, line in zip([term, *[""] * len(lines)], lines, strict=False):
                self.write(f"{indent}{pad(begin, first_column)}{line}".rstrip() + "\n")


def _paragraphs(text: str, columns: int) -> Iterator[str]:
    """As in click, a block that begins with a backspace is not wrapped."""
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    for block, following in pairwise([*blocks, ""]):
        if block.lstrip().startswith("\b"):
            yield from block.partition("\b")[2].strip("\n").splitlines()
        else:
            yield from wrap(block, columns)
        if following:
            yield ""


Json = dict[str, object]
OutputFormat = Literal["table", "tsv", "json", "ndjson", "ids"]
#: Converts a time to a time zone.
ToZone = Callable[[datetime], datetime]
_GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `get` returns text, or a time in the format of the API."""

    #: Translated on a terminal; English in pipes.
    title: str
    get: Callable[[Json], object]
    #: On a narrow terminal, columns with the highest rank are dropped first; 0 is never dropped.
    rank: int = 0
    time: bool = False
    #: Longer text is truncated.
    max_width: int = 60
    #: Width to which text may be truncated before a column is dropped; None: not at all.
    min_width: int | None = None
    #: Labels shown on a terminal for values of the API.
    labels: Mapping[str, Message] = field(default_factory=dict)
    #: For ids: length to which they may be abbreviated on a narrow terminal; None: not at all.
    min_chars: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    format: OutputFormat
    #: Top-level fields to print in JSON; empty: all.
    fields: tuple[str, ...] = ()
    #: None: local time on a terminal, unchanged elsewhere.
    zone: ToZone | None = None

    @property
    def is_table(self) -> bool:
        return self.format == "table"

    def rows(self, items: Iterable[Json], columns: Sequence[Column]) -> None:
        """Prints a list of objects, each with an `id`."""
        match self.format:
            case "ndjson":
                for item in items:
                    echo(_to_json(self._select_fields(item), indent=None))
            case "json":
                echo(_to_json([self._select_fields(item) for item in items]))
            case "ids":
                for item in items:
                    echo(escape_control(str(item["id"])))
            case "tsv":
                for item in items:
                    echo("\t".join(self._cell(column, item) for column in columns))
            case "table":
                cells = [[self._cell(column, item) for column in columns] for item in items]
                print_table([localize(column.title) for column in columns], cells, columns)

    def one(self, item: Json, columns: Sequence[Column]) -> None:
        """Prints one object: a line per column, or JSON."""
        if self.format in ("json", "ndjson"):
            echo(_to_json(self._select_fields(item), indent=2 if self.format == "json" else None))
        elif self.format == "ids":
            echo(escape_control(str(item["id"])))
        else:
            width = max(display_width(localize(column.title)) for column in columns) + _GAP
            for column in columns:
                value = self._cell(column, item)
                if self.format == "tsv":
                    echo(f"{column.title.lower()}\t{value}")
                elif value:
                    echo(f"{pad(localize(column.title), width)}{value}")

    def _select_fields(self, item: Json) -> Json:
        if not self.fields:
            return item
        missing = [name for name in self.fields if name not in item]
        if missing:
            known = ", ".join(sorted(item))
            raise click.UsageError(
                _(
                    "Unknown field {field!r}; available: {known}",
                    field=missing[0],
                    known=known,
                )
            )
        return {name: item[name] for name in self.fields}

    def _cell(self, column: Column, item: Json) -> str:
        value = column.get(item)
        if value is None or value == "":
            return ""
        if column.time and isinstance(value, str):
            return self.format_time(value)
        if isinstance(value, str) and self.is_table:
            return escape_control(localize(column.labels.get(value, value)))
        return escape_control(
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        )

    def format_time(self, text: str) -> str:
        """A time of the API in the chosen zone, always with its offset."""
        moment = parse_time(text)
        if self.zone is not None:
            return _format_datetime(self.zone(moment), people=self.is_table)
        return _format_datetime(moment.astimezone(), people=True) if self.is_table else text


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _format_datetime(moment: datetime, *, people: bool) -> str:
    text = moment.isoformat()
    if moment.tzinfo is UTC:
        text = text.replace("+00:00", "Z")
    return text.replace("T", " ") if people else text


def echo(text: str) -> None:
    click.echo(localize(text))


def echo_err(text: str) -> None:
    """Prints a message to stderr, so that stdout contains only data."""
    click.echo("\n".join(escape_control(line) for line in localize(text).splitlines()), err=True)


def _to_json(value: object, *, indent: int | None = 2) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if all(char.isprintable() or char == "\n" for char in text):
        return text
    # Unprintable characters only occur inside strings, where JSON can escape them.
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def print_table(titles: Sequence[str], cells: list[list[str]], columns: Sequence[Column]) -> None:
    """Fits the table to the terminal: abbreviates ids, drops columns by rank, truncates text."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(file=sys.stdout, highlight=False, color_system=None if plain else "auto")
    cells, widths = _fit(titles, cells, columns, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for index, width in widths.items():
        table.add_column(
            titles[index].upper(),
            no_wrap=True,
            overflow="ellipsis",
            max_width=None if columns[index].title == "id" else width,
            min_width=width if columns[index].title == "id" else None,
        )
    for row in cells:
        table.add_row(*(Text(row[index]) for index in widths))
    console.print(table)


def _fit(
    titles: Sequence[str], cells: list[list[str]], columns: Sequence[Column], room: int
) -> tuple[list[list[str]], dict[int, int]]:
    """The cells, and the width of each remaining column by its index."""

    def natural() -> dict[int, int]:
        return {
            index: min(
                column.max_width, max(map(display_width, [title, *(row[index] for row in cells)]))
            )
            for index, (column, title) in enumerate(zip(columns, titles, strict=True))
        }

    def least(index: int) -> int:
        return min(widths[index], columns[index].min_width or widths[index])

    widths = natural()
    if _total_width(widths.values()) > room:
        for index, column in enumerate(columns):
            if column.min_chars:
                cells = _abbreviate_ids(cells, index, column.min_chars)
        widths = natural()
    while _total_width(map(least, widths)) > room:
        last = max(widths, key=lambda index: columns[index].rank)
        if columns[last].rank == 0:
            break
        del widths[last]
    while _total_width(widths.values()) > room:
        index = max(widths, key=lambda index: widths[index] - least(index))
        if widths[index] == least(index):
            break
        widths[index] -= 1
    return cells, widths


def _total_width(widths: Iterable[int]) -> int:
    return sum(width + _GAP for width in widths)


def _abbreviate_ids(cells: list[list[str]], index: int, min_chars: int) -> list[list[str]]:
    """Abbreviates ids to prefixes of one length that are still unique."""
    ids = {row[index] for row in cells}
    size = min_chars
    while len({each[:size] for each in ids}) < len(ids):
        size += 1
    return [[*row[:index], _abbreviate(row[index], size), *row[index + 1 :]] for row in cells]


def _abbreviate(text: str, size: int) -> str:
    return text if len(text) <= size + 1 else f"{text[:size]}…"


def countdown(until: datetime, now: datetime) -> Message:
    """Time until or since, such as `in 1 h 5 min`."""
    left = until - now
    if left >= timedelta(0):
        return _("in {duration}", duration=_in_two_units(left))
    return _("{duration} ago", duration=_in_two_units(-left))


def _in_two_units(length: timedelta) -> Message:
    minutes, seconds = divmod(int(length.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days and hours:
        return _("{days} d {hours} h", days=days, hours=hours)
    if days:
        return _("{days} d", days=days)
    if hours and minutes:
        return _("{hours} h {minutes} min", hours=hours, minutes=minutes)
    if hours:
        return _("{hours} h", hours=hours)
    if minutes and seconds:
        return _("{minutes} min {seconds} s", minutes=minutes, seconds=seconds)
    return _("{minutes} min", minutes=minutes) if minutes else _("{seconds} s", seconds=seconds)


def getter(name: str) -> Callable[[Json], object]:
    return lambda item: item.get(name)


def nested(item: Mapping[str, object], name: str) -> Mapping[str, object]:
    """The object under a key; empty if there is none."""
    found = item.get(name)
    return found if isinstance(found, Mapping) else {}


# --- labels for values of the API; pipes and JSON get the values ----------------------------------
Labels = Mapping[str, Message]

RUN_STATUSES: Final[Labels] = {
    "queued": _("queued"),
    "running": _("running"),
    "succeeded": _("succeeded"),
    "failed": _("failed"),
    "timeout": _("timeout"),
    "canceled": _("canceled"),
    "skipped": _("skipped"),
    "missed": _("missed"),
    "unknown": _("unknown"),
}
RUN_ORIGINS: Final[Labels] = {
    "schedule": _("schedule"),
    "manual": _("manual"),
    "backfill": _("backfill"),
    "child": _("child"),
}
SCHEDULE_STATES: Final[Labels] = {
    "active": _("active"),
    "paused": _("paused"),
    "done": _("done"),
}
DELIVERY_STATES: Final[Labels] = {
    "pending": _("pending"),
    "delivered": _("delivered"),
    "dead": _("dead"),
}
CHAT_STATES: Final[Labels] = {"linked": _("linked"), "waiting": _("waiting")}
CHANGES: Final[Labels] = {
    "created": _("created"),
    "kept": _("kept"),
    "unchanged": _("unchanged"),
    "updated": _("updated"),
    "deleted": _("deleted"),
    "new": _("new"),
    "exists": _("exists"),
}


# --- columns of schedules and runs ----------------------------------------------------------------
def schedule_columns(now: datetime) -> list[Column]:
    return [
        Column(_("id"), getter("id"), min_chars=8),
        Column(_("name"), getter("name"), max_width=40, min_width=12),
        Column(_("state"), state_of, labels=SCHEDULE_STATES, rank=3),
        Column(_("next"), getter("next_run_at"), time=True, rank=1),
        Column(_("in"), lambda item: _countdown(item, now), rank=4),
        Column(_("last"), getter("last_status"), labels=RUN_STATUSES, rank=5),
        Column(_("when"), getter("words"), rank=2, max_width=70, min_width=12),
    ]


def piped_schedule_columns() -> list[Column]:
    """Columns for pipes: without the countdown, which is outdated at once."""
    return [
        Column(_("id"), getter("id")),
        Column(_("name"), getter("name")),
        Column(_("state"), state_of, labels=SCHEDULE_STATES),
        Column(_("next"), getter("next_run_at"), time=True),
        Column(_("last"), getter("last_status"), labels=RUN_STATUSES),
        Column(_("when"), getter("words")),
    ]


def schedule_details(now: datetime) -> list[Column]:
    return [
        Column(_("ID"), getter("id")),
        Column(_("Name"), getter("name")),
        Column(_("State"), state_of, labels=SCHEDULE_STATES),
        Column(_("When"), getter("words")),
        Column(_("Zone"), getter("timezone")),
        Column(_("Next"), getter("next_run_at"), time=True),
        Column(_("In"), lambda item: _countdown(item, now)),
        Column(_("Target"), target_of),
        Column(_("Policy"), _policy),
        Column(_("Notifications"), _recipients),
        Column(_("Labels"), lambda item: item.get("labels") or None),
        Column(_("Priority"), lambda item: item.get("priority") or None),
        Column(_("Last run"), getter("last_run_at"), time=True),
        Column(_("Last status"), getter("last_status"), labels=RUN_STATUSES),
        Column(_("Last error"), getter("last_error")),
        Column(_("Declared in code"), _declared),
        Column(_("Version"), getter("version")),
        Column(_("Created"), getter("created_at"), time=True),
    ]


def _declared(item: Json) -> object:
    found = item.get("declared")
    if not isinstance(found, dict):
        return None
    if found.get("detached"):
        return _("{at}, detached: edited since, not updated from code", at=found.get("at"))
    return found.get("at")


RUN_COLUMNS = [
    Column(_("id"), getter("id")),
    Column(_("status"), getter("status"), labels=RUN_STATUSES),
    Column(_("schedule"), lambda item: _schedule_or_target(item), rank=2),
    Column(_("planned"), getter("planned_at"), time=True, rank=1),
    Column(_("took"), lambda item: _duration(item), rank=3),
    Column(_("attempt"), getter("attempt"), rank=4),
    Column(_("origin"), getter("origin"), labels=RUN_ORIGINS, rank=6),
    Column(_("why"), lambda item: _error_or_reason(item), labels=RUN_REASONS, rank=5, max_width=60),
]


def _schedule_or_target(item: Json) -> object:
    """The step of a flow, the schedule, or the target of a run without a schedule."""
    named = item.get("step") or item.get("schedule_name") or item.get("schedule_id")
    return named or target_of(item)


def _error_or_reason(item: Json) -> object:
    return item.get("error") or item.get("reason")


def state_of(item: Json) -> str:
    if not item.get("enabled", True):
        return "paused"
    return "active" if item.get("next_run_at") else "done"


def target_of(item: Json) -> str:
    target = nested(item, "target")
    kind = target.get("kind")
    if kind in ("task", "flow"):
        given = target.get("args") or target.get("input")
        arguments = f" {json.dumps(given, ensure_ascii=False)}" if given else ""
        return f"{kind} {target.get('name', '')}{arguments}"
    if kind == "sync":
        return f"{kind} {target.get('source', '')}/{target.get('collection', '')}"
    if kind == "agent":
        return f"{kind} {target.get('prompt', '')}"
    if kind == "message":
        return f"{kind} {target.get('text', '')}"
    if kind == "action":
        return f"{kind} {target.get('kn_id', '')}/{target.get('action_type_id', '')}"
    return f"{target.get('method', '')} {target.get('url', '')}".strip()


def _recipients(item: Json) -> str | None:
    """Recipients in the form of `--notify`."""
    given = item.get("delivery")
    found = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    return ", ".join(format_recipient(each) for each in found) or None


def _policy(item: Json) -> str:
    fields = ("misfire", "overlap", "max_retries", "retry_backoff", "timeout")
    policy = nested(item, "policy")
    return ", ".join(f"{name} {policy[name]}" for name in fields if policy.get(name) is not None)


def _countdown(item: Json, now: datetime) -> str:
    at = item.get("next_run_at")
    return countdown(parse_time(at), now) if isinstance(at, str) else ""


def _duration(item: Json) -> str:
    taken = item.get("duration_ms")
    if not isinstance(taken, int | float):
        return ""
    if taken < 10_000:
        return _("{milliseconds:.0f} ms", milliseconds=taken)
    return _("{seconds:.1f} s", seconds=taken / 1000)
