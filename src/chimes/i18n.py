"""Sentences that people read: English where they are made, their own language where they are shown.

`_("There is no run {id!r}", id=run_id)` is a `str` like any other, in English. It also remembers
the template and what was filled in, so that whoever knows the reader can render it again from the
catalogues in `locale/` (`in_language`, `reworded`). The template is the key of the catalogue and
therefore a literal; a test holds every one of them against the Thai and the Chinese catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from gettext import GNUTranslations


#: English is what the templates are written in.
ENGLISH = "en"
LANGUAGES = (ENGLISH, "th", "zh")
#: Where the catalogues are.
LOCALE = Path(__file__).parent / "locale"
Value = TypeVar("Value")


class Message(str):
    """A sentence that can be said in every language."""

    __slots__ = ("plural", "template", "values")
    template: str
    plural: str | None
    values: Mapping[str, object]

    def __new__(
        cls, template: str, values: Mapping[str, object], plural: str | None = None
    ) -> Message:
        chosen = template if plural is None or values["count"] == 1 else plural
        self = super().__new__(cls, filled(chosen, values))
        self.template, self.plural, self.values = template, plural, values
        return self

    def __reduce__(self) -> tuple[Callable[..., Message], tuple[object, ...]]:
        return Message, (self.template, self.values, self.plural)

    def in_language(self, language: str) -> str:
        if language == ENGLISH:
            return str(self)
        found = catalogue(language)
        if self.plural is None:
            template = found.gettext(self.template)
        else:
            count = self.values["count"]
            assert isinstance(count, int)
            template = found.ngettext(self.template, self.plural, count)
        return filled(template, reworded(self.values, language))


class _Joined(Message):
    """Sentences one behind the other, each said by itself."""

    __slots__ = ("parts", "separator")
    parts: tuple[str, ...]
    separator: str

    def __new__(cls, separator: str, parts: Iterable[str]) -> _Joined:
        kept = tuple(parts)
        self = str.__new__(cls, separator.join(kept))
        self.template, self.plural, self.values = str(self), None, {}
        self.separator, self.parts = separator, kept
        return self

    def __reduce__(self) -> tuple[Callable[..., Message], tuple[object, ...]]:
        return _Joined, (self.separator, self.parts)

    def in_language(self, language: str) -> str:
        return self.separator.join(in_language(part, language) for part in self.parts)


def _(template: str, /, **values: object) -> Message:
    """The sentence with its fields filled in. Without fields a brace is a brace."""
    return Message(template, values)


def counted(one: str, many: str, /, count: int, **values: object) -> Message:
    """A sentence about a number of things; `{count}` is filled in."""
    return Message(one, {"count": count, **values}, many)


def joined(separator: str, parts: Iterable[str]) -> Message:
    """Whole sentences (or names) one behind the other; no way to glue a sentence from pieces."""
    return _Joined(separator, parts)


def in_language(text: str, language: str) -> str:
    """The text in this language, if it is one of ours; what people wrote stays as it is."""
    return text.in_language(language) if isinstance(text, Message) else text


def reworded(value: Value, language: str) -> Value:
    """The same plain data with every sentence of ours in this language."""
    return cast(Value, _reworded(value, language))


def _reworded(value: object, language: str) -> object:
    match value:
        case Message():
            return value.in_language(language)
        case dict() | Mapping():
            return {key: _reworded(each, language) for key, each in value.items()}
        case list():
            return [_reworded(each, language) for each in value]
        case tuple():
            return tuple(_reworded(each, language) for each in value)
        case _:
            return value


def filled(template: str, values: Mapping[str, object]) -> str:
    return template.format(**values) if values else template


@cache
def catalogue(language: str) -> GNUTranslations:
    from gettext import GNUTranslations

    path = LOCALE / language / "LC_MESSAGES" / "chimes.mo"
    with path.open("rb") as file:
        return GNUTranslations(file)
