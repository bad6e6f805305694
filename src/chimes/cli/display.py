"""How much room text takes on a terminal, where not every character is one column wide."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

import click

from chimes.cli.language import spoken
from chimes.wording import ENGLISH

#: A line may end behind each of these: Chinese puts no spaces between words.
_IDEOGRAPHS = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
#: What must not begin a line, with the character that it follows.
_CLOSING = "，。、；：？！）》」』"
_UNIT = re.compile(rf"\s+|[{_IDEOGRAPHS}][{_CLOSING}]*|[^\s{_IDEOGRAPHS}]+[{_CLOSING}]*")


def columns_of(text: str) -> int:
    """How many columns the text takes; marks above and below a letter take none."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    from unicodedata import category, east_asian_width

    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def padded(text: str, columns: int) -> str:
    return text + " " * (columns - columns_of(text))


def beginning(text: str, columns: int) -> str:
    """As much of it as fits, never a letter without its marks."""
    taken = 0
    for place, character in enumerate(text):
        taken += _columns(character)
        if taken > columns:
            return text[:place]
    return text


def wrapped(text: str, columns: int) -> list[str]:
    """One paragraph as lines that fit."""
    lines = [""]
    for unit in _units(text, columns):
        if columns_of(lines[-1] + unit.rstrip()) > columns:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += unit if lines[-1] else unit.lstrip()
    return [line.rstrip() for line in lines]


def _units(text: str, columns: int) -> Iterator[str]:
    """What stays together, unless it is longer than a line: Thai puts spaces between phrases."""
    for unit in _UNIT.findall(" ".join(text.split())):
        rest = unit
        while columns_of(rest) > columns:
            first = beginning(rest, columns) or rest[0]
            yield first
            rest = rest[len(first) :]
        yield rest


class Formatter(click.HelpFormatter):
    """Help by columns rather than by characters. English is as click has it."""

    def write_text(self, text: str) -> None:
        if spoken() == ENGLISH:
            super().write_text(text)
            return
        lines = _paragraphs(text, self.width - self.current_indent)
        indent = " " * self.current_indent
        self.write("".join(f"{indent}{line}".rstrip() + "\n" for line in lines))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        if spoken() == ENGLISH:
            super().write_dl(rows, col_max, col_spacing)
            return
        listed = list(rows)
        first_column = min(max(columns_of(term) for term, _ in listed), col_max) + col_spacing
        room = max(self.width - first_column - self.current_indent, 10)
        indent = " " * self.current_indent
        for term, text in listed:
            lines = wrapped(text, room)
            if columns_of(term) > first_column - col_spacing:
                self.write(f"{indent}{term}\n")
                term = ""
            for begin, line in zip([term, *[""] * len(lines)], lines, strict=False):
                self.write(f"{indent}{padded(begin, first_column)}{line}".rstrip() + "\n")


def _paragraphs(text: str, columns: int) -> Iterator[str]:
    """As click: a block that begins with a backspace is left as it is."""
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    for block, following in pairwise([*blocks, ""]):
        if block.lstrip().startswith("\b"):
            yield from block.partition("\b")[2].strip("\n").splitlines()
        else:
            yield from wrapped(block, columns)
        if following:
            yield ""
