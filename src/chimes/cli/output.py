"""How results are printed: a table for people, TSV for pipes, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

import click

from chimes.cli.display import columns_of, padded
from chimes.cli.language import said
from chimes.redaction import escaped
from chimes.wording import Wording, say

Json = dict[str, object]
Form = Literal["table", "tsv", "json", "ndjson", "ids"]
#: A moment on some wall clock.
InZone = Callable[[datetime], datetime]
_GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """`get` answers text, or a moment as the API writes it, which is then shown in the zone."""

    #: People see it in their language; pipes in English, since programs read it there.
    title: str
    get: Callable[[Json], object]
    #: Where the terminal is narrow, columns with the highest number go first; 0 stays.
    rank: int = 0
    time: bool = False
    #: The widest a column gets before its text is cut.
    widest: int = 60
    #: What its text may be cut to before another column goes; None: it is not cut.
    narrowest: int | None = None
    #: What people read instead of words of the API.
    words: Mapping[str, Wording] = field(default_factory=dict)
    #: Of an id: how much of its beginning is shown where the terminal is narrow; None: all.
    shortest: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    form: Form
    #: Top-level fields to keep in JSON; empty: all.
    fields: tuple[str, ...] = ()
    #: None: the clock of this machine, on a terminal only.
    zone: InZone | None = None

    @property
    def for_people(self) -> bool:
        return self.form == "table"

    def rows(self, items: Iterable[Json], columns: Sequence[Column]) -> None:
        """A list of objects, each with an `id`."""
        match self.form:
            case "ndjson":
                for item in items:
                    echo(_dumped(self._chosen(item), indent=None))
            case "json":
                echo(_dumped([self._chosen(item) for item in items]))
            case "ids":
                for item in items:
                    echo(escaped(str(item["id"])))
            case "tsv":
                for item in items:
                    echo("\t".join(self._cell(column, item) for column in columns))
            case "table":
                cells = [[self._cell(column, item) for column in columns] for item in items]
                print_table([said(column.title) for column in columns], cells, columns)

    def one(self, item: Json, columns: Sequence[Column]) -> None:
        """One object: for people and pipes a line per column."""
        if self.form in ("json", "ndjson"):
            echo(_dumped(self._chosen(item), indent=2 if self.form == "json" else None))
        elif self.form == "ids":
            echo(escaped(str(item["id"])))
        else:
            width = max(columns_of(said(column.title)) for column in columns) + _GAP
            for column in columns:
                value = self._cell(column, item)
                if self.form == "tsv":
                    echo(f"{column.title.lower()}\t{value}")
                elif value:
                    echo(f"{padded(said(column.title), width)}{value}")

    def _chosen(self, item: Json) -> Json:
        if not self.fields:
            return item
        missing = [name for name in self.fields if name not in item]
        if missing:
            known = ", ".join(sorted(item))
            raise click.UsageError(
                say(
                    "There is no field {field!r}; there are {known}",
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
            return self.moment(value)
        if isinstance(value, str) and self.for_people:
            return escaped(said(column.words.get(value, value)))
        return escaped(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))

    def moment(self, text: str) -> str:
        """A moment of the API, in the chosen zone; never without its offset."""
        moment = parsed(text)
        if self.zone is not None:
            return _shown(self.zone(moment), people=self.for_people)
        return _shown(moment.astimezone(), people=True) if self.for_people else text


def parsed(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _shown(moment: datetime, *, people: bool) -> str:
    text = moment.isoformat()
    if moment.tzinfo is UTC:
        text = text.replace("+00:00", "Z")
    return text.replace("T", " ") if people else text


def echo(text: str) -> None:
    click.echo(said(text))


def tell(text: str) -> None:
    """A message: stderr, so that stdout stays data."""
    click.echo("\n".join(escaped(line) for line in said(text).splitlines()), err=True)


def _dumped(value: object, *, indent: int | None = 2) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if all(char.isprintable() or char == "\n" for char in text):
        return text
    # What is left unescaped can only be inside a string, where JSON has its own way to say it.
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def print_table(titles: Sequence[str], cells: list[list[str]], columns: Sequence[Column]) -> None:
    """Fitted to the width: ids are shortened, then columns go by rank, then texts are cut."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(file=sys.stdout, highlight=False, color_system=None if plain else "auto")
    cells, widths = _fitted(titles, cells, columns, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for place, width in widths.items():
        table.add_column(
            titles[place].upper(),
            no_wrap=True,
            overflow="ellipsis",
            max_width=None if columns[place].title == "id" else width,
            min_width=width if columns[place].title == "id" else None,
        )
    for row in cells:
        table.add_row(*(Text(row[place]) for place in widths))
    console.print(table)


def _fitted(
    titles: Sequence[str], cells: list[list[str]], columns: Sequence[Column], room: int
) -> tuple[list[list[str]], dict[int, int]]:
    """The cells, and how wide each column that is kept becomes, by its place."""

    def natural() -> dict[int, int]:
        return {
            place: min(column.widest, max(map(columns_of, [title, *(row[place] for row in cells)])))
            for place, (column, title) in enumerate(zip(columns, titles, strict=True))
        }

    def least(place: int) -> int:
        return min(widths[place], columns[place].narrowest or widths[place])

    widths = natural()
    if _whole(widths.values()) > room:
        for place, column in enumerate(columns):
            if column.shortest:
                cells = _shortened(cells, place, column.shortest)
        widths = natural()
    while _whole(map(least, widths)) > room:
        last = max(widths, key=lambda place: columns[place].rank)
        if columns[last].rank == 0:
            break
        del widths[last]
    while _whole(widths.values()) > room:
        place = max(widths, key=lambda place: widths[place] - least(place))
        if widths[place] == least(place):
            break
        widths[place] -= 1
    return cells, widths


def _whole(widths: Iterable[int]) -> int:
    return sum(width + _GAP for width in widths)


def _shortened(cells: list[list[str]], place: int, shortest: int) -> list[list[str]]:
    """Ids cut to beginnings of one length, which still tell them apart."""
    ids = {row[place] for row in cells}
    size = shortest
    while len({each[:size] for each in ids}) < len(ids):
        size += 1
    return [[*row[:place], _beginning(row[place], size), *row[place + 1 :]] for row in cells]


def _beginning(text: str, size: int) -> str:
    return text if len(text) <= size + 1 else f"{text[:size]}…"


def countdown(until: datetime, now: datetime) -> Wording:
    """Two units: `in 1 h 5 min`."""
    left = until - now
    if left >= timedelta(0):
        return say("in {duration}", duration=_in_two_units(left))
    return say("{duration} ago", duration=_in_two_units(-left))


def _in_two_units(length: timedelta) -> Wording:
    minutes, seconds = divmod(int(length.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days and hours:
        return say("{days} d {hours} h", days=days, hours=hours)
    if days:
        return say("{days} d", days=days)
    if hours and minutes:
        return say("{hours} h {minutes} min", hours=hours, minutes=minutes)
    if hours:
        return say("{hours} h", hours=hours)
    if minutes and seconds:
        return say("{minutes} min {seconds} s", minutes=minutes, seconds=seconds)
    return say("{minutes} min", minutes=minutes) if minutes else say("{seconds} s", seconds=seconds)


def pick(name: str) -> Callable[[Json], object]:
    return lambda item: item.get(name)


def inner(item: Mapping[str, object], name: str) -> Mapping[str, object]:
    """The object under a key, or an empty one."""
    found = item.get(name)
    return found if isinstance(found, Mapping) else {}
