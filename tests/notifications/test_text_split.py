"""Splitting of texts into parts of limited UTF-16 length."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chimes.notifications.message import split, utf16_length

PIECES = st.sampled_from(
    [
        "a",
        "word",
        " ",
        "\n",
        "\n\n",
        "ที่",
        "นี่",
        "กำ",
        "เก้า",
        "你好",
        "👩‍👩‍👧",
        "🇹🇭",
        "👍🏽",
        "é",
        "𝒳",
    ]
)


@given(st.lists(PIECES, max_size=80).map("".join), st.integers(20, 60))
def test_no_part_is_too_long_and_nothing_is_lost(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert all(part and utf16_length(part) <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())
    for part in parts:
        assert unicodedata.category(part[0]) not in ("Mn", "Me", "Mc")
        assert part[0] not in "\u0e33\u200d"
        assert part[-1] not in "เแโใไ\u200d"


def test_ten_thousand_characters_are_three_parts() -> None:
    parts = split("x" * 10_000, 4096)
    assert [len(part) for part in parts] == [4096, 4096, 1808]


def test_astral_characters_count_twice() -> None:
    assert utf16_length("a😀") == 3
    assert [len(part) for part in split("😀" * 4096, 4096)] == [2048, 2048]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("first one\n\nsecond\nthird", ["first one", "second\nthird"]),
        ("first one\nsecond\nthird", ["first one\nsecond", "third"]),
        ("one two three four five", ["one two three four", "five"]),
        ("short", ["short"]),
        ("  \n ", []),
    ],
)
def test_cuts_at_paragraphs_lines_and_words(text: str, parts: list[str]) -> None:
    assert split(text, 18) == parts


def test_endless_combining_marks_are_cut() -> None:
    parts = split("a" + "\u0301" * 500, 100)
    assert sum(map(len, parts)) == 501
    assert all(len(part) <= 100 for part in parts)
