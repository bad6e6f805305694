"""The grammars of all languages, and patterns of the words of all of them."""

from __future__ import annotations

from collections.abc import Callable

from chimes.language.parser import en, th, zh
from chimes.language.parser.rules import Grammar

GRAMMARS = (en.GRAMMAR, th.GRAMMAR, zh.GRAMMAR)


def any_of(words: Callable[[Grammar], str]) -> str:
    """The words of every language as alternatives of one pattern."""
    return "|".join(filter(None, map(words, GRAMMARS)))


def language_of(text: str) -> str:
    """The language with the most letters of its script; English if there are only Latin ones."""
    letters = {
        each.code: each.weight * sum(map(each.script, text)) if each.script else 0
        for each in GRAMMARS
    }
    return max(letters, key=lambda code: letters[code])
