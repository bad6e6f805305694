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
#: Reading a catalogue takes about a second.
catalogue = cache(tool.read)
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


def test_catalogues_are_up_to_date() -> None:
    """If this fails, run `make messages`."""
    assert [str(path.relative_to(ROOT)) for path in tool.stale()] == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_no_translation_is_missing(language: str) -> None:
    assert tool.untranslated(language) == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_no_translation_is_fuzzy(language: str) -> None:
    assert [each.id for each in catalogue(language) if each.id and each.fuzzy] == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_translation_has_the_same_placeholders(language: str) -> None:
    wrong = [
        (english, text)
        for english, text in translated(language)
        if text and set(FIELD.findall(english)) != set(FIELD.findall(text))
    ]
    assert wrong == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_translation_is_in_the_script_of_its_language(language: str) -> None:
    """A translation of prose is not the English text again."""
    wrong = [
        english
        for english, text in translated(language)
        if text
        and len(WORD.findall(FIELD.sub(" ", english))) > 3
        and not SCRIPTS[language].search(text)
    ]
    assert wrong == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_translation_keeps_leading_and_trailing_white_space(language: str) -> None:
    wrong = [
        english
        for english, text in translated(language)
        if text
        and (english[:1].isspace(), english[-1:].isspace())
        != (text[:1].isspace(), text[-1:].isspace())
    ]
    assert wrong == []


def test_tool_extracts_messages_docstrings_of_errors_and_click_texts() -> None:
    found = {each.id for each in tool.messages()}
    for text in (
        "The input is not valid",  # `_`
        "Another session holds a lock on this; try again",  # docstring of an error
        "Show this message and exit.",  # click
    ):
        assert text in found
    places = {each.file for each in tool.messages()}
    assert not any(place.startswith("/") or ".." in place for place in places)
