"""Messages that people read: written in English, rendered in the reader's language.

`_("There is no run {id!r}", id=run_id)` is a `str` in English that also keeps its template and
parameters, so that an interface which knows the reader can render it from the catalogues in
`locale/` (`in_language`, `translate`). The template is the gettext message id and therefore a
literal; a test compares every template with the Thai and the Chinese catalogue.

Stores keep a message as code, parameters and English text (`to_stored`, `from_stored`); the code
is the template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from gettext import GNUTranslations


#: The language of the templates.
ENGLISH = "en"
LANGUAGES = (ENGLISH, "th", "zh")
#: The folder of the catalogues.
LOCALE = Path(__file__).parent / "locale"
Value = TypeVar("Value")
#: How a stored message begins; other stored text is plain.
STORED_PREFIX = '{"code":'


class Message(str):
    """A text that can be rendered in every language of the catalogues."""

    __slots__ = ("plural", "template", "values")
    template: str
    plural: str | None
    values: Mapping[str, object]

    def __new__(
        cls, template: str, values: Mapping[str, object], plural: str | None = None
    ) -> Message:
        chosen = template if plural is None or values["count"] == 1 else plural
        self = super().__new__(cls, fill(chosen, values))
        self.template, self.plural, self.values = template, plural, values
        return self

    def __reduce__(self) -> tuple[Callable[..., Message], tuple[object, ...]]:
        return Message, (self.template, self.values, self.plural)

    def in_language(self, language: str) -> str:
        if language == ENGLISH:
            return str(self)
        return fill(self._translation(language), translate(self.values, language))

    def map_text(self, change: Callable[[str], str]) -> Message:
        """The same message with every parameter text changed, e.g. to redact secrets."""
        return Message(self.template, _map_text(self.values, change), self.plural)

    def _translation(self, language: str) -> str:
        found = catalogue(language)
        if self.plural is None:
            return found.gettext(self.template)
        count = self.values["count"]
        assert isinstance(count, int)
        return found.ngettext(self.template, self.plural, count)

    def _plain(self) -> dict[str, object]:
        plain: dict[str, object] = {"code": self.template}
        if self.plural is not None:
            plain["plural"] = self.plural
        return plain | {"params": _plain_params(self.values), "text": str(self)}


class _StoredMessage(Message):
    """A message read from a store. Its template is data, so it is looked up in the catalogues but
    never formatted itself: the English text is the stored one."""

    __slots__ = ()

    def __new__(
        cls, text: str, template: str, values: Mapping[str, object], plural: str | None
    ) -> _StoredMessage:
        self = str.__new__(cls, text)
        self.template, self.plural, self.values = template, plural, values
        return self

    def __reduce__(self) -> tuple[Callable[..., Message], tuple[object, ...]]:
        return _StoredMessage, (str(self), self.template, self.values, self.plural)

    def in_language(self, language: str) -> str:
        if language == ENGLISH:
            return str(self)
        try:
            template = self._translation(language)
            if template in (self.template, self.plural):
                return str(self)  # the catalogues no longer have this code
            return fill(template, translate(self.values, language))
        except (AssertionError, LookupError, TypeError, ValueError):
            return str(self)

    def map_text(self, change: Callable[[str], str]) -> Message:
        values = _map_text(self.values, change)
        return _StoredMessage(change(str(self)), self.template, values, self.plural)


class _Joined(Message):
    """Several messages with a separator between them."""

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

    def map_text(self, change: Callable[[str], str]) -> Message:
        return _Joined(self.separator, (map_text(part, change) for part in self.parts))

    def _plain(self) -> dict[str, object]:
        parts = [_plain_param(part) for part in self.parts]
        return {"code": "", "separator": self.separator, "parts": parts}


def _(template: str, /, **values: object) -> Message:
    """The message with its fields filled in. Without fields a brace is a brace."""
    return Message(template, values)


def counted(one: str, many: str, /, count: int, **values: object) -> Message:
    """A message about a number of things; `{count}` is filled in."""
    return Message(one, {"count": count, **values}, many)


def joined(separator: str, parts: Iterable[str]) -> Message:
    """Whole messages (or names) in a row; not for gluing a sentence from pieces."""
    return _Joined(separator, parts)


def in_language(text: str, language: str) -> str:
    """The text in this language if it is a message; other text unchanged."""
    return text.in_language(language) if isinstance(text, Message) else text


def translate(value: Value, language: str) -> Value:
    """The same plain data with every message in it in this language."""
    return cast(Value, _translate(value, language))


def map_text(text: str, change: Callable[[str], str]) -> str:
    """Applies `change` to plain text, or to the parameters of a message, which stays one."""
    return text.map_text(change) if isinstance(text, Message) else change(text)


def to_stored(text: str) -> str:
    """The text as stores keep it: a message as JSON with code, parameters and English text."""
    if isinstance(text, Message):
        return _dump(text._plain())
    if text.startswith(STORED_PREFIX):
        # Plain text that looks like a stored message must come back as it is.
        return _dump({"code": "", "text": text})
    return text


def from_stored(stored: str) -> str:
    """Inverse of `to_stored`. Text that is not a stored message comes back unchanged."""
    if not stored.startswith(STORED_PREFIX):
        return stored
    import json

    try:
        found = json.loads(stored)
        return _from_plain(found) if isinstance(found, dict) else stored
    except (KeyError, TypeError, ValueError):
        return stored


def freeze(text: str) -> str:
    """The message with plain parameters, as a store would return it: it keeps no exceptions or
    other objects alive."""
    return from_stored(to_stored(text)) if isinstance(text, Message) else text


def fill(template: str, values: Mapping[str, object]) -> str:
    return template.format(**values) if values else template


@cache
def catalogue(language: str) -> GNUTranslations:
    from gettext import GNUTranslations

    path = LOCALE / language / "LC_MESSAGES" / "chimes.mo"
    with path.open("rb") as file:
        return GNUTranslations(file)


def _dump(plain: Mapping[str, object]) -> str:
    import json

    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _translate(value: object, language: str) -> object:
    match value:
        case Message():
            return value.in_language(language)
        case dict() | Mapping():
            return {key: _translate(each, language) for key, each in value.items()}
        case list():
            return [_translate(each, language) for each in value]
        case tuple():
            return tuple(_translate(each, language) for each in value)
        case _other:
            return value


def _map_text(values: Mapping[str, object], change: Callable[[str], str]) -> dict[str, object]:
    return {
        name: map_text(value, change) if isinstance(value, str) else value
        for name, value in values.items()
    }


def _plain_params(values: Mapping[str, object]) -> dict[str, object]:
    return {name: _plain_param(value) for name, value in values.items()}


def _plain_param(value: object) -> object:
    match value:
        case Message():
            return {"message": value._plain()}
        case str():
            return str(value)
        case None | bool() | int() | float():
            return value
        case _other:
            return str(value)


def _from_plain(plain: Mapping[str, object]) -> str:
    parts = plain.get("parts")
    if isinstance(parts, list):
        return _Joined(str(plain["separator"]), [cast(str, _param(part)) for part in parts])
    code, text = str(plain["code"]), str(plain["text"])
    if not code:
        return text
    params = plain.get("params")
    given = params.items() if isinstance(params, dict) else ()
    values = {name: _param(value) for name, value in given}
    plural = plain.get("plural")
    return _StoredMessage(text, code, values, plural if isinstance(plural, str) else None)


def _param(value: object) -> object:
    if isinstance(value, dict):
        return _from_plain(value["message"])
    return value
