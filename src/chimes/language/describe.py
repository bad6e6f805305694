"""Trigger to words, in any language that has a module of its own; it is loaded when asked for."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import cast

from chimes.errors import InvalidInput
from chimes.language.cautions import cautions
from chimes.language.sentence import Language, sentence
from chimes.triggers import Note, Trigger

#: One line per language.
LANGUAGES = {
    "en": "chimes.language.en",
    "th": "chimes.language.th",
    "zh": "chimes.language.zh",
}


def describe(trigger: Trigger, lang: str = "en") -> str:
    """The trigger in words: `Every day at 02:30, America/New_York time`."""
    return _described(trigger, lang)


@lru_cache(maxsize=4096)
def _described(trigger: Trigger, lang: str) -> str:
    # Lists show the words of every row, and a trigger never changes.
    return sentence(_language(lang), trigger)


def note_in_words(note: Note, lang: str = "en") -> str:
    """The note of a fire (`trigger.fires`) in words."""
    return _language(lang).note(note)


def warnings_in_words(trigger: Trigger, lang: str = "en") -> tuple[str, ...]:
    """What is easily meant otherwise, such as a step that does not divide the hour."""
    language = _language(lang)
    own = [language.note(note) for note in trigger.warnings()]
    return (*own, *(language.caution(each) for each in cautions(trigger)))


def _language(lang: str) -> Language:
    module = LANGUAGES.get(lang.partition("-")[0].lower())
    if module is None:
        raise InvalidInput(
            f"There are no words in language {lang[:32]!r}; there are {', '.join(LANGUAGES)}",
            field="lang",
            code="unknown_language",
        )
    return cast(Language, import_module(module))
