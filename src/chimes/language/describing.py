"""Trigger to words, in any language that has a module of its own; it is loaded when asked for."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from importlib import import_module
from typing import cast

from chimes.language.cautions import cautions
from chimes.language.choosing import LANGUAGES, named
from chimes.language.remarks import of_caution, of_note
from chimes.language.sentence import Language, sentence
from chimes.triggers import Note, Trigger
from chimes.wording import in_language, say


def describe(trigger: Trigger, lang: str = "en") -> str:
    """The trigger in words: `Every day at 02:30, America/New_York time`."""
    return _described(trigger, lang)


@lru_cache(maxsize=4096)
def _described(trigger: Trigger, lang: str) -> str:
    # Lists show the words of every row, and a trigger never changes.
    return sentence(_language(lang), trigger)


def note_in_words(note: Note, lang: str = "en") -> str:
    """The note of a fire (`trigger.fires`) in words."""
    return in_language(of_note(note), named(lang))


def warnings_in_words(trigger: Trigger, lang: str = "en") -> tuple[str, ...]:
    """What is easily meant otherwise, such as a step that does not divide the hour."""
    own = [of_note(note) for note in trigger.warnings()]
    told = (*own, *(of_caution(each) for each in cautions(trigger)))
    return tuple(in_language(each, named(lang)) for each in told)


def remark(words: str, lang: str = "en") -> str:
    """A warning as a line of its own: `Note: Runs in leap years only.`"""
    return in_language(say("Note: {remark}.", remark=words), named(lang))


def short_weekday(moment: datetime, lang: str = "en") -> str:
    """`Mon`, `จ.`, `周一`, as the datetime's own clock shows it."""
    return _language(lang).SHORT_WEEKDAYS[moment.isoweekday() % 7]


def _language(lang: str) -> Language:
    return cast(Language, import_module(LANGUAGES[named(lang)]))
