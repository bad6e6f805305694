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
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from inspect import cleandoc
from itertools import pairwise
from typing import Final, Literal, Self

import click

from chimes import i18n
from chimes.clock import SystemClock
from chimes.errors import InvalidInput
from chimes.i18n import ENGLISH, Message, _, in_language
from chimes.language.languages import known, named, of_environment
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
_TEMPLATE = re.compile(r"\{(?P<field>[A-Za-z_][\w.]*)\}|\{\{|\}\}|\\[tn\\]")
_ESCAPES = {"{{": "{", "}}": "}", "\\t": "\t", "\\n": "\n", "\\\\": "\\"}
_API_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


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
    #: For ids: length to which a table abbreviates them, or more if they begin alike; None: not at
    #: all.
    min_chars: int | None = None
    #: The values are states of runs or schedules, which have a colour.
    status: bool = False
    #: A table shows times without the current year and without fractions of a second.
    compact: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    format: OutputFormat
    #: Top-level fields to print in JSON; empty: all.
    fields: tuple[str, ...] = ()
    #: None: local time on a terminal, unchanged elsewhere.
    zone: ToZone | None = None
    #: An expression for the program jq, which JSON output goes through.
    jq: str = ""
    #: Text with `{field}`, printed for each object instead of JSON.
    template: str = ""

    @property
    def is_table(self) -> bool:
        return self.format == "table"

    def rows(self, items: Iterable[Json], columns: Sequence[Column]) -> None:
        """Prints a list of objects, each with an `id`."""
        match self.format:
            case "ndjson":
                for item in items:
                    self._print_object(item, indent=None)
            case "json" if self.template:
                for item in items:
                    self._print_object(item)
            case "json":
                self._print_json([self._select_fields(item) for item in items])
            case "ids":
                for item in items:
                    echo(escape_control(str(item["id"])))
            case "tsv":
                for item in items:
                    echo("\t".join(self._cell(column, item) for column in columns))
            case "table":
                found = list(items)
                cells = [[self._cell(column, item) for column in columns] for item in found]
                styles = [[_style(column, item) for column in columns] for item in found]
                print_table([localize(column.title) for column in columns], cells, columns, styles)

    def one(self, item: Json, columns: Sequence[Column], *, compact: bool = False) -> None:
        """Prints one object: a line per column, or JSON. `compact`: JSON in one line, which is much
        faster for large objects."""
        if self.format in ("json", "ndjson"):
            indented = self.format == "json" and not compact
            self._print_object(item, indent=2 if indented else None)
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

    def _print_object(self, item: Json, *, indent: int | None = 2) -> None:
        if self.template:
            echo(_TEMPLATE.sub(lambda found: self._fill(found, item), self.template))
        else:
            self._print_json(self._select_fields(item), indent=indent)

    def _print_json(self, value: object, *, indent: int | None = 2) -> None:
        echo(run_jq(self.jq, value) if self.jq else _to_json(value, indent=indent))

    def _fill(self, found: re.Match[str], item: Json) -> str:
        """The text for `{target.url}`, for `{{` and for `\\t`."""
        if found["field"] is None:
            return _ESCAPES[found[0]]
        first, *others = found["field"].split(".")
        if first not in item:
            raise self._unknown_field(first, item)
        value = item[first]
        for name in others:
            value = value.get(name) if isinstance(value, dict) else None
        if value is None:
            return ""
        if isinstance(value, str):
            is_time = self.zone is not None and _API_TIME.fullmatch(value)
            return self.format_time(value) if is_time else escape_control(value)
        return _to_json(value, indent=None)

    def _unknown_field(self, name: str, item: Json) -> click.UsageError:
        known = ", ".join(sorted(item))
        return click.UsageError(
            _("Unknown field {field!r}; available: {known}", field=name, known=known)
        )

    def _select_fields(self, item: Json) -> Json:
        if not self.fields:
            return item
        missing = [name for name in self.fields if name not in item]
        if missing:
            raise self._unknown_field(missing[0], item)
        return {name: item[name] for name in self.fields}

    def _cell(self, column: Column, item: Json) -> str:
        value = column.get(item)
        if value is None or value == "":
            return ""
        if column.time and isinstance(value, str):
            return self.format_time(value, compact=self.is_table and column.compact)
        if isinstance(value, str) and self.is_table:
            return escape_control(localize(column.labels.get(value, value)))
        return escape_control(
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        )

    def format_time(self, text: str, *, compact: bool = False) -> str:
        """A time of the API in the chosen zone, always with its offset."""
        moment = parse_time(text)
        if compact:
            return compact_time(self.zone(moment) if self.zone else moment.astimezone())
        if self.zone is not None:
            return _format_datetime(self.zone(moment), people=self.is_table)
        return _format_datetime(moment.astimezone(), people=True) if self.is_table else text


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _format_datetime(moment: datetime, *, people: bool) -> str:
    text = moment.isoformat(timespec="seconds" if people else "auto")
    if moment.tzinfo is UTC:
        text = text.replace("+00:00", "Z")
    return text.replace("T", " ") if people else text


def compact_time(moment: datetime) -> str:
    """`11-18 09:00 +07`: without the current year, and with seconds only if there are any."""
    this_year = SystemClock().now().astimezone(moment.tzinfo).year
    year = "" if moment.year == this_year else f"{moment.year}-"
    clock = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
    offset = f"{moment:%z}"[:5]
    zone = "Z" if moment.tzinfo is UTC else offset.removesuffix("00")
    return f"{year}{moment:%m-%d} {clock} {zone}"


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


def run_jq(expression: str, value: object) -> str:
    """What the program jq prints for a value; strings without quotes. It is a program of the
    system: Chimes contains no second implementation of its language."""
    import subprocess

    program = shutil.which("jq")
    if program is None:
        raise click.UsageError(
            _("--jq needs the program jq, which is not installed. Install it, or use --template.")
        )
    done = subprocess.run(  # noqa: S603
        # The space keeps an expression such as -1 from being an option.
        [program, "--raw-output", "--monochrome-output", f" {expression}"],
        input=json.dumps(value),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise click.UsageError(_("jq: {message}", message=done.stderr.strip()))
    return "\n".join(escape_control(line) for line in done.stdout.splitlines())


def print_table(
    titles: Sequence[str],
    cells: list[list[str]],
    columns: Sequence[Column],
    styles: Sequence[Sequence[str]] = (),
) -> None:
    """Fits the table to the terminal: abbreviates ids, drops columns by rank, truncates text. A
    table that is longer than the terminal goes through a pager."""
    size = shutil.get_terminal_size()
    cells, widths = _fit(titles, cells, columns, size.columns)
    plain = bool(os.environ.get("NO_COLOR"))

    def line(texts: Sequence[str], colours: Sequence[str], *, bold: bool = False) -> str:
        shown = []
        for index, width in widths.items():
            # An id that is cut off could not be copied.
            whole = columns[index].title == "id"
            text = texts[index] if whole else _truncate(texts[index], width)
            pad = " " * (width - display_width(text))
            colour = colours[index] if colours else ""
            shown.append((text if plain else _styled(text, colour, bold=bold)) + pad)
        return (" " * _GAP).join(shown).rstrip()

    lines = [line([title.upper() for title in titles], (), bold=True)]
    lines += [line(row, styles[place] if styles else ()) for place, row in enumerate(cells)]
    if len(lines) < size.lines or not _wants_pager():
        click.echo("\n".join(lines))
    else:
        click.echo_via_pager("\n".join(lines) + "\n", color=not plain)


def _styled(text: str, colour: str, *, bold: bool) -> str:
    if not colour and not bold:
        return text
    if colour == "dim":
        return click.style(text, dim=True)
    return click.style(text, fg=colour or None, bold=bold or None)


def _truncate(text: str, width: int) -> str:
    if display_width(text) <= width:
        return text
    while text and display_width(text) >= width:
        text = text[:-1]
    return f"{text}…"


def _wants_pager() -> bool:
    """On a terminal, unless NO_PAGER is set or PAGER is empty or `cat`."""
    if os.environ.get("NO_PAGER") or os.environ.get("PAGER", "less").strip() in ("", "cat"):
        return False
    return sys.stdout.isatty() and sys.stdin.isatty()


#: Colours of states; a word always says the same.
_STYLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("succeeded", "ran", "active", "delivered", "alive"), "green"),
    **dict.fromkeys(("failed", "timeout", "dead", "gone"), "red"),
    **dict.fromkeys(("skipped", "missed", "paused", "draining", "unknown"), "yellow"),
    **dict.fromkeys(("running", "pending", "queued"), "cyan"),
    **dict.fromkeys(("canceled", "done", "not_due", "drained", "suppressed"), "dim"),
}


def _style(column: Column, item: Json) -> str:
    value = column.get(item) if column.status else None
    return _STYLES.get(value, "") if isinstance(value, str) else ""


class Progress:
    """A bar on stderr that shows how much is done: only on a terminal, and only if the work takes
    longer than a second."""

    _WIDTH = 30
    _AFTER, _EVERY = 1.0, 0.1

    def __init__(self, label: str = "", total: int | None = None) -> None:
        self._label = label
        self._total = total
        self._clock = SystemClock()
        self._next = self._clock.monotonic() + self._AFTER
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._shown:
            click.echo("", err=True)

    def show(self, done: int, total: int | None = None, label: str | None = None) -> None:
        now = self._clock.monotonic()
        total = self._total if total is None else total
        if now < self._next or not sys.stderr.isatty():
            return
        self._shown, self._next = True, now + self._EVERY
        text = localize(self._label if label is None else label)
        count = f"{done:,}"
        if total:
            filled = min(done, total) * self._WIDTH // total
            bar = "█" * filled + "░" * (self._WIDTH - filled)
            count = f"{bar} {done:,}/{total:,}"
        click.echo(f"\r\x1b[2K{text} {count}".rstrip(), err=True, nl=False)


@contextmanager
def waiting(text: Callable[[int], Message], *, after: float = 1.0) -> Iterator[None]:
    """Shows on a terminal for how many seconds one request has been under way, which cannot say how
    much of it is done."""
    ended, shown = threading.Event(), threading.Event()

    def show() -> None:
        seconds, wait = int(after), after
        while not ended.wait(wait):
            shown.set()
            click.echo(f"\r\x1b[2K{localize(text(seconds))}", err=True, nl=False)
            seconds, wait = seconds + 1, 1.0

    if not sys.stderr.isatty():
        yield
        return
    thread = threading.Thread(target=copy_context().run, args=(show,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if shown.is_set():
            click.echo("\r\x1b[2K", err=True, nl=False)


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
    """Abbreviates ids to prefixes of one length that are still unique in the table. Commands accept
    a prefix that only one id has."""
    ids = {row[index] for row in cells}
    size = min_chars
    while len({each[:size] for each in ids}) < len(ids):
        size += 1
    return [[*row[:index], _abbreviate(row[index], size), *row[index + 1 :]] for row in cells]


def _abbreviate(text: str, size: int) -> str:
    return text[:size]


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
    "event": _("event"),
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
    "suppressed": _("suppressed"),
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
        Column(_("state"), state_of, labels=SCHEDULE_STATES, rank=1, status=True),
        Column(_("next"), getter("next_run_at"), time=True, rank=2),
        Column(_("in"), lambda item: _countdown(item, now), rank=4),
        Column(_("last"), getter("last_status"), labels=RUN_STATUSES, rank=5, status=True),
        Column(_("when"), getter("words"), rank=3, max_width=70, min_width=12),
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


def _zone_of(item: Json) -> object:
    """Events have no zone."""
    return None if _waits_for_events(item) else item.get("timezone")


def schedule_details(now: datetime) -> list[Column]:
    return [
        Column(_("ID"), getter("id")),
        Column(_("Name"), getter("name")),
        Column(_("State"), state_of, labels=SCHEDULE_STATES),
        Column(_("When"), getter("words")),
        Column(_("Webhook"), getter("hook_url")),
        Column(_("Zone"), _zone_of),
        Column(_("Next"), getter("next_run_at"), time=True, compact=False),
        Column(_("In"), lambda item: _countdown(item, now)),
        Column(_("Target"), target_of),
        Column(_("Policy"), _policy),
        Column(_("Notifications"), _recipients),
        Column(_("Labels"), lambda item: item.get("labels") or None),
        Column(_("Priority"), lambda item: item.get("priority") or None),
        Column(_("Last run"), getter("last_run_at"), time=True, compact=False),
        Column(_("Last status"), getter("last_status"), labels=RUN_STATUSES),
        Column(_("Last error"), getter("last_error")),
        Column(_("Declared in code"), _declared),
        Column(_("Made from file"), _made_from_file),
        Column(_("Version"), getter("version")),
        Column(_("Created"), getter("created_at"), time=True, compact=False),
    ]


def _declared(item: Json) -> object:
    found = item.get("declared")
    if not isinstance(found, dict) or found.get("kind") == "file":
        return None
    if found.get("detached"):
        return _("{at}, detached: edited since, not updated from code", at=found.get("at"))
    return found.get("at")


class _RunReasons(Mapping[str, Message]):
    """`RUN_REASONS`, imported when a label is needed: the model takes longer to import than all
    the rest of a client command."""

    def __getitem__(self, code: str) -> Message:
        from chimes.model.run import RUN_REASONS

        return RUN_REASONS[code]

    def __iter__(self) -> Iterator[str]:
        from chimes.model.run import RUN_REASONS

        return iter(RUN_REASONS)

    def __len__(self) -> int:
        return sum(1 for _each in self)


def _made_from_file(item: Json) -> object:
    found = item.get("declared")
    if not isinstance(found, dict) or found.get("kind") != "file":
        return None
    if found.get("detached"):
        return _("{at}, edited since: `chimes apply` overwrites the edit", at=found.get("at"))
    return found.get("at")


RUN_COLUMNS = [
    Column(_("id"), getter("id"), min_chars=8),
    Column(_("status"), getter("status"), labels=RUN_STATUSES, status=True),
    Column(_("schedule"), lambda item: _schedule_or_target(item), rank=1, min_width=12),
    Column(_("planned"), getter("planned_at"), time=True, rank=2),
    Column(_("took"), lambda item: _duration(item), rank=4),
    Column(_("attempt"), getter("attempt"), rank=5),
    Column(_("origin"), getter("origin"), labels=RUN_ORIGINS, rank=6),
    Column(
        _("why"),
        lambda item: _error_or_reason(item),
        labels=_RunReasons(),
        rank=3,
        max_width=60,
        min_width=16,
    ),
]


RUN_DETAILS = [
    Column(_("ID"), getter("id")),
    Column(_("Status"), getter("status"), labels=RUN_STATUSES, status=True),
    Column(_("Why"), lambda item: _error_or_reason(item) or None, labels=_RunReasons()),
    Column(_("Schedule"), getter("schedule_name")),
    Column(_("Target"), lambda item: target_of(item)),
    Column(_("Origin"), getter("origin"), labels=RUN_ORIGINS),
    Column(_("Cause"), getter("cause")),
    Column(_("Planned"), getter("planned_at"), time=True, compact=False),
    Column(_("Started"), getter("started_at"), time=True, compact=False),
    Column(_("Ended"), getter("finished_at"), time=True, compact=False),
    Column(_("Took"), lambda item: _duration(item) or None),
    Column(_("Attempt"), lambda item: item.get("attempt") or None),
    Column(_("Node"), getter("node")),
    Column(_("Result"), getter("result")),
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
    return "active" if item.get("next_run_at") or _waits_for_events(item) else "done"


def _waits_for_events(item: Json) -> bool:
    trigger = item.get("trigger")
    return isinstance(trigger, dict) and trigger.get("kind") not in (None, "cron", "every", "once")


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
    if kind == "command":
        command = target.get("command")
        words = shlex.join(command) if isinstance(command, list) and command else ""
        return f"{kind} {words or target.get('shell', '')}"
    if kind == "message":
        return f"{kind} {target.get('text', '')}"
    if kind == "action":
        return f"{kind} {target.get('kn_id', '')}/{target.get('action_type_id', '')}"
    if connection := target.get("connection"):
        names = ("task", "function", "image", "exchange", "subject", "stream", "topic")
        used = next((target[name] for name in names if target.get(name)), "")
        return f"{kind} {connection} {used or target.get('routing_key', '')}".strip()
    return f"{target.get('method', '')} {target.get('url', '')}".strip()


def _recipients(item: Json) -> str | None:
    """Recipients in the form of `--notify`."""
    from chimes.model.recipient import format_recipient

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
