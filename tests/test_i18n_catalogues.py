"""Every sentence is in the Thai and in the Chinese catalogue, with the same values in it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from types import ModuleType

import pytest
from babel.messages.catalog import Message

from chimes.i18n import LANGUAGES, LOCALE

ROOT = Path(__file__).parent.parent
#: A field of `str.format`, or of `%` in a template of the dashboard.
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
TRANSLATED = tuple(each for each in LANGUAGES if each != "en")


def translated(language: str) -> Iterator[tuple[str, str]]:
    """English forms with the forms of the language."""
    for message in tool.read(language):
        if message.id:
            yield from _pairs(message)


def _pairs(message: Message) -> Iterator[tuple[str, str]]:
    if isinstance(message.id, str):
        yield message.id, str(message.string)
    else:
        # Neither language has a plural; its one form is for any number.
        for form in message.string:
            yield message.id[1], form


def test_the_catalogues_are_those_of_the_languages() -> None:
    assert tool.LOCALE == LOCALE
    assert set(tool.TRANSLATED) == set(TRANSLATED)


def test_the_catalogues_are_up_to_date() -> None:
    """`make messages` has been run since the last sentence was written."""
    assert [str(path.relative_to(ROOT)) for path in tool.stale()] == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_no_sentence_is_missing(language: str) -> None:
    assert tool.untranslated(language) == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_nothing_is_marked_as_unsure(language: str) -> None:
    assert [each.id for each in tool.read(language) if each.id and each.fuzzy] == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_translation_has_the_same_values(language: str) -> None:
    wrong = [
        (english, text)
        for english, text in translated(language)
        if text and set(FIELD.findall(english)) != set(FIELD.findall(text))
    ]
    assert wrong == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_translation_is_in_its_own_script(language: str) -> None:
    """What has a few words of prose in it cannot be the English over again."""
    wrong = [
        english
        for english, text in translated(language)
        if text
        and len(WORD.findall(FIELD.sub(" ", english))) > 3
        and not SCRIPTS[language].search(text)
    ]
    assert wrong == []


@pytest.mark.parametrize("language", TRANSLATED)
def test_white_space_at_the_ends_is_kept(language: str) -> None:
    wrong = [
        english
        for english, text in translated(language)
        if text
        and (english[:1].isspace(), english[-1:].isspace())
        != (text[:1].isspace(), text[-1:].isspace())
    ]
    assert wrong == []


def _parsed(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(Formatter().parse(template))
    except ValueError:  # a brace that is one
        return [(template, None, None, None)]


def _filled(template: str, values: dict[str, str]) -> str:
    return "".join(text + values.get(name or "", "") for text, name, _, _ in _parsed(template))


def test_what_the_tool_finds() -> None:
    found = {each.id for each in tool.messages()}
    for text in (
        "The input is not valid",  # say
        "Another session holds a lock on this; try again",  # the docstring of an error
        "Show this message and exit.",  # click's own
    ):
        assert text in found
    places = {each.file for each in tool.messages()}
    assert not any(place.startswith("/") or ".." in place for place in places)
