"""Every message has a Thai and a Chinese translation with the same placeholders."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from babel.messages.catalog import Message

from chimes.i18n import LANGUAGES, LOCALE

ROOT = Path(__file__).parent.parent
#: A placeholder of `str.format`, or of `%` in a dashboard template.
FIELD = re.compile(r"\{\{|\}\}|\{[^{}]*\}|%\(\w+\)[a-z]")
WORD = re.compile(r"(?<![\w/:`.-])[A-Za-z]{2,}(?![\w/:`.-])")
SCRIPTS = {"th": re.compile("[\u0e01-\u0e5b]"), "zh": re.compile("[\u4e00-\u9fff]")}


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chimes_messages", ROOT / "tools/messages.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


tool = _tool()
# Finding the messages takes seconds, reading a catalogue about one.
tool.messages = cache(tool.messages)  # type: ignore[attr-defined]
tool.read = catalogue = cache(tool.read)  # type: ignore[attr-defined]
TRANSLATED = tuple(each for each in LANGUAGES if each != "en")


def translated(language: str) -> Iterator[tuple[str, str]]:
    """Pairs of English text and translation."""
    for message in catalogue(language):
        if message.id:
            yield from _pairs(message)


def _pairs(message: Message) -> Iterator[tuple[str, str]]:
    if isinstance(message.id, str):
        yield message.id, str(message.string)
    else:
        # Thai and Chinese have one plural form.
        for form in message.string:
            yield message.id[1], form


def test_there_is_one_catalogue_per_language() -> None:
    assert tool.LOCALE == LOCALE
    assert set(tool.TRANSLATED) == set(TRANSLATED)


def test_catalogues_are_complete() -> None:
    """If this fails, run `make messages`, and translate what it adds."""
    # One test, because each worker that runs a part of it searches the whole source.
    messages = tool.messages()
    found = {each.id for each in messages}
    for text in (
        "The input is not valid",  # `_`
        "Another session holds a lock on this; try again",  # docstring of an error
        "Show this message and exit.",  # click
    ):
        assert text in found
    places = {each.file for each in messages}
    assert not any(place.startswith("/") or ".." in place for place in places)
    assert [str(path.relative_to(ROOT)) for path in tool.stale()] == []
    assert {language: tool.untranslated(language) for language in TRANSLATED} == {
        language: [] for language in TRANSLATED
    }


@pytest.mark.parametrize("language", TRANSLATED)
def test_translations_match_the_english_text(language: str) -> None:
    wrong: dict[str, list[object]] = {
        "fuzzy": [each.id for each in catalogue(language) if each.id and each.fuzzy]
    }
    for english, text in translated(language):
        if not text:
            continue
        if set(FIELD.findall(english)) != set(FIELD.findall(text)):
            wrong.setdefault("placeholders", []).append((english, text))
        # A translation of prose is not the English text again.
        is_prose = len(WORD.findall(FIELD.sub(" ", english))) > 3
        if is_prose and not SCRIPTS[language].search(text):
            wrong.setdefault("script", []).append(english)
        if (english[:1].isspace(), english[-1:].isspace()) != (
            text[:1].isspace(),
            text[-1:].isspace(),
        ):
            wrong.setdefault("white space", []).append(english)
    assert wrong == {"fuzzy": []}
