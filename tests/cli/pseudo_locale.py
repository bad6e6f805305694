"""A pseudo-language that puts every translated message in brackets, so that untranslated text is
visible."""

from __future__ import annotations

import re
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from chimes.i18n import LOCALE

#: The pseudo-language replaces an existing language.
LANGUAGE = "th"
OPEN, CLOSE = "⟦", "⟧"
#: Not translated: options and their placeholders, names of commands and fields, argument values,
#: ranges of numbers.
_NO_WORDS = re.compile(
    r"-{1,2}[a-z][\w-]*|\[[^\[\]\s]*\|[^\]]*\]|'?[A-Z_]+(\[[^\]]*\])*|\d+(<=)?|[<>=]"
)
_WORD = re.compile(r"[A-Za-z]{2,}")


def write_catalogue(directory: Path) -> None:
    """Writes a catalogue for `i18n.LOCALE` from the message template (`make messages`)."""
    with (LOCALE / "chimes.pot").open("rb") as template:
        known = read_po(template)
    catalogue = Catalog(locale=LANGUAGE)
    for each in known:
        if isinstance(each.id, tuple):
            catalogue.add(each.id, (_bracketed(each.id[1]),))
        elif each.id:
            catalogue.add(each.id, _bracketed(each.id))
    file = directory / LANGUAGE / "LC_MESSAGES" / "chimes.mo"
    file.parent.mkdir(parents=True)
    with file.open("wb") as stream:
        write_mo(stream, catalogue)


def _bracketed(text: str) -> str:
    return f"{OPEN}{text}{CLOSE}"


def outside(text: str) -> str:
    """Text outside brackets."""
    depth, found = 0, []
    for character in text:
        depth += (character == OPEN) - (character == CLOSE)
        if depth == 0 and character != CLOSE:
            found.append(character)
    return "".join(found)


def untranslated(text: str, known: str = "") -> list[str]:
    """Words outside brackets, except those of `known`."""
    left = outside(text)
    for word in known.split():
        left = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", " ", left)
    return _WORD.findall(_NO_WORDS.sub(" ", left))
