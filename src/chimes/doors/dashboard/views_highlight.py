"""YAML and JSON with their parts told apart, by YAML's own scanner: JSON is YAML too."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml
from yaml.tokens import KeyToken, ScalarToken, Token

#: Above this many characters it is shown as it is.
LONGEST = 60_000
#: As our own dump writes them: what only looks like one is between quotes.
_NUMBER = re.compile(r"[-+]?\.?\d[\d_.]*(?:[eE][-+]?\d+)?")
_WORDS = frozenset({"true", "false", "null"})
#: Text, and what it is: `name`, `text`, `number`, `word`; empty: signs and blanks.
Piece = tuple[str, str]


def pieces_of(text: str) -> tuple[Piece, ...]:
    """Put together again they are the text. What the scanner does not take is one piece."""
    if len(text) > LONGEST:
        return ((text, ""),)
    try:
        return tuple(_pieces(text))
    except yaml.YAMLError:
        return ((text, ""),)


def _pieces(text: str) -> Iterator[Piece]:
    at, named = 0, False
    token: Token
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if isinstance(token, KeyToken):
            named = True
        elif isinstance(token, ScalarToken):
            start, end = token.start_mark.index, token.end_mark.index
            if start > at:
                yield text[at:start], ""
            yield text[start:end], "name" if named else _kind(token)
            at, named = end, False
        else:
            named = False
    if at < len(text):
        yield text[at:], ""


def _kind(token: ScalarToken) -> str:
    if not token.plain:
        return "text"
    if token.value in _WORDS:
        return "word"
    return "number" if _NUMBER.fullmatch(token.value) else "text"
