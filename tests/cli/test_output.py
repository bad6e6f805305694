"""Output of Thai and Chinese by display width."""

from __future__ import annotations

import io
import threading
from datetime import UTC, datetime

import click
import pytest
from rich.cells import cell_len

from chimes.cli.output import (
    Column,
    Formatter,
    Output,
    display_width,
    getter,
    pad,
    schedule_details,
    truncate,
    use_language,
    waiting,
    wrap,
)
from chimes.i18n import _

AT = "shop/tasks.py:12"
THAI = "ที่อยู่ของผู้รับ"
CHINESE = "下一次运行的时间，以及它的时区。"


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        (None, None),
        ({"at": AT, "detached": False}, AT),
        ({"at": AT, "detached": True}, f"{AT}, detached: edited since, not updated from code"),
    ],
)
def test_declared_in_code_column(declared: object, shown: str | None) -> None:
    (column,) = [
        each
        for each in schedule_details(datetime(2030, 1, 1, tzinfo=UTC))
        if each.title == "Declared in code"
    ]
    assert column.get({"declared": declared}) == shown


@pytest.mark.parametrize(
    ("text", "columns"),
    [("", 0), ("state", 5), ("状态", 4), ("ที่", 1), ("ผู้ใช้", 3), ("a状b", 4), ("e\u0301", 1)],
)
def test_display_width_of_thai_and_chinese(text: str, columns: int) -> None:
    assert display_width(text) == columns == cell_len(text)


def test_pad_and_truncate() -> None:
    assert pad("状态", 6) == "状态  "
    assert display_width(pad(THAI, 30)) == 30
    assert truncate("状态", 3) == "状"
    assert truncate("ที่อยู่", 1) == "ที่"
    assert truncate("abc", 9) == "abc"


@pytest.mark.parametrize("text", [THAI * 9, CHINESE * 5, f"{CHINESE} and words {THAI} " * 4])
@pytest.mark.parametrize("room", [11, 20, 37])
def test_wrapped_lines_fit_and_keep_all_text(text: str, room: int) -> None:
    lines = wrap(text, room)
    assert max(map(display_width, lines)) <= room
    assert "".join("".join(lines).split()) == "".join(text.split())
    # A combining mark stays with its letter.
    assert all(display_width(line[0]) > 0 for line in lines)


def test_words_and_punctuation_are_not_split() -> None:
    assert wrap("one two three", 8) == ["one two", "three"]
    assert wrap("时间时间。时间", 8) == ["时间时", "间。时间"]


def formatted_help(language: str, text: str, rows: list[tuple[str, str]]) -> str:
    with use_language(("--lang", language)):
        formatter = Formatter(width=60)
        with formatter.indentation():
            formatter.write_text(text)
            formatter.write_dl(rows)
    return formatter.getvalue()


def test_help_is_wrapped_by_display_width() -> None:
    text = f"{CHINESE * 3}\n\n\b\n例:\n  chimes ls{' -q' * 15}"
    shown = formatted_help(
        "zh", text, [("--tz ZONE", CHINESE * 2), ("--a-very-long-option-of-ours THING", "短")]
    )
    lines = shown.splitlines()
    assert f"    chimes ls{' -q' * 15}" in lines
    assert "  例:" in lines
    rest = [line for line in lines if "chimes ls" not in line]
    assert max(map(display_width, rest)) <= 60
    first = next(line for line in rest if "--tz" in line)
    below = rest[rest.index(first) + 1]
    assert first.startswith("  --tz ZONE")
    place = display_width(first[: first.index("下")])
    assert display_width(below) - display_width(below.lstrip()) == place
    assert rest[-1].strip() == "短"


def test_english_help_is_formatted_by_click() -> None:
    text, rows = "Some words. " * 9, [("--tz ZONE", "Some words. " * 4), ("-q", "")]
    plain = click.HelpFormatter(width=60)
    with plain.indentation():
        plain.write_text(text)
        plain.write_dl(rows)
    assert formatted_help("en", text, rows) == plain.getvalue()


def test_table_columns_are_aligned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    columns = [Column("名称", getter("name"), max_width=20), Column("状态", getter("state"))]
    rows = [{"id": 1, "name": name, "state": "|"} for name in ("plain", THAI, CHINESE * 3)]
    Output(format="table").rows(rows, columns)
    head, *lines = capsys.readouterr().out.splitlines()
    places = {display_width(line[: line.index("|")]) for line in lines}
    assert len(places) == 1
    assert display_width(head[: head.index("状")]) in places
    Output(format="table").one(
        {"a": "|", "b": "|"}, [Column("状态", getter("a")), Column("x", getter("b"))]
    )
    assert {display_width(line[:-1]) for line in capsys.readouterr().out.splitlines()} == {6}


class _Terminal(io.StringIO):
    """Tells when something was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count


def test_waiting_shows_seconds_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with waiting(lambda seconds: _("Applying: {seconds} s", seconds=seconds), after=0):
        assert terminal.written.wait(60)
    assert "Applying: 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[2K")
    with waiting(lambda seconds: _("Applying: {seconds} s", seconds=seconds), after=60):
        quick = len(terminal.getvalue())
    assert len(terminal.getvalue()) == quick
    pipe, threads = io.StringIO(), threading.active_count()
    monkeypatch.setattr("sys.stderr", pipe)
    with waiting(lambda seconds: _("Applying: {seconds} s", seconds=seconds), after=0):
        assert threading.active_count() == threads
    assert pipe.getvalue() == ""
