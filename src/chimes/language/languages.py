"""Selects a supported language from tags, Accept-Language and locale variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from chimes.errors import InvalidInput
from chimes.i18n import _

#: Supported languages and their modules.
LANGUAGES = {
    "en": "chimes.language.en",
    "th": "chimes.language.th",
    "zh": "chimes.language.zh",
}
DEFAULT = "en"
# RFC 9110: language range and quality.
_RANGE = re.compile(
    r"\s*([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*|\*)\s*(?:;\s*q=([01](?:\.\d{0,3})?)\s*)?"
)
_MOST_RANGES = 32
_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


def known(tag: str) -> str | None:
    """The supported language of a tag such as `th-TH`, `zh_CN.UTF-8` or `zh-Hans`, else None."""
    found = re.split("[-_.@]", tag.strip(), maxsplit=1)[0].lower()
    return found if found in LANGUAGES else None


def named(tag: str, source: Literal["body", "query"] = "body") -> str:
    """The supported language with this name; InvalidInput otherwise."""
    found = known(tag)
    if found is None:
        raise InvalidInput(
            _(
                "There are no words in language {tag!r}; there are {languages}",
                tag=tag[:32],
                languages=", ".join(LANGUAGES),
            ),
            field="lang",
            code="unknown_language",
            source=source,
        )
    return found


def accepted(header: str, otherwise: str = DEFAULT) -> str:
    """The supported language that `Accept-Language` prefers; invalid parts are ignored."""
    best, worth = otherwise, 0.0
    for text in header.split(",")[:_MOST_RANGES]:
        found = _RANGE.fullmatch(text)
        if found is None:
            continue
        language = otherwise if found[1] == "*" else known(found[1])
        quality = float(found[2] or 1)
        if language is not None and quality > worth:
            best, worth = language, quality
    return best


def of_environment(environ: Mapping[str, str]) -> str:
    """POSIX order of locale variables, preceded by CHIMES_LANG."""
    if chosen := environ.get("CHIMES_LANG", "").strip():
        return named(chosen)
    locale = next((environ[name] for name in _VARIABLES if environ.get(name)), "")
    return known(locale) or DEFAULT
