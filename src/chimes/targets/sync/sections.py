"""Reading a part of `chimes.yaml` strictly.

Every mistake is a ConfigError that names where it stands, what was expected and, for a wrong name,
the nearest known one. Values are not repeated unless they are one of a few words: they may be
secrets. Nothing is imported for mistakes that are not made: this is read in every task, too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from typing import TypeVar

from chimes.errors import ConfigError, InvalidTrigger
from chimes.wording import say

T = TypeVar("T")

_NAMES = {
    dict: say("a mapping"),
    list: say("a list"),
    str: say("text"),
    bool: say("true or false"),
    int: say("a number"),
    float: say("a number"),
    type(None): say("nothing"),
}


class Section:
    def __init__(self, value: object, path: str, *, known: Collection[str] | None = None) -> None:
        """`known`: the only keys it may have; None: any."""
        self.path = path
        self._value = _mapping(value, path)
        for key in self._value:
            if known is not None and key not in known:
                raise _unknown_key(f"{path}.{key[:64]}", key, known)

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def __contains__(self, key: str) -> bool:
        return self._value.get(key) is not None

    @property
    def plain(self) -> Mapping[str, object]:
        return self._value

    def at(self, key: str) -> str:
        return f"{self.path}.{key}"

    def need(self, key: str, read: Callable[[str], T | None]) -> T:
        """What `read` makes of the key, which must be there."""
        found = read(key)
        if found is None:
            from chimes.triggers.reading import nearest

            hint = nearest(key, self._value)
            raise ConfigError(
                say(
                    "{path}: {key} is missing (did you mean {near}, which stands there?)",
                    path=self.path,
                    key=key,
                    near=hint.values["name"],
                )
                if hint
                else say("{path}: {key} is missing", path=self.path, key=key),
                key=self.at(key),
            )
        return found

    def text(self, key: str) -> str | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise self.wrong(key, say("text"))
        return value

    def scalar(self, key: str) -> str | None:
        """Text, also of a number or a truth value, as YAML reads them."""
        value = self._value.get(key)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value)
        if value is None or (isinstance(value, str) and "\0" not in value):
            return value
        raise self.wrong(key, say("text or a number"))

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not value:
            raise self.wrong(key, say("a list of texts"))
        for index, each in enumerate(value):
            if not isinstance(each, str) or "\0" in each:
                raise ConfigError(
                    say(
                        "{at}[{index}]: expected text, got {given}",
                        at=self.at(key),
                        index=index,
                        given=kind_of(each),
                    ),
                    key=self.at(key),
                )
        return tuple(value)

    def number(self, key: str, *, least: int, most: int) -> int | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            given = f"{value}" if isinstance(value, int) else kind_of(value)
            raise ConfigError(
                say(
                    "{at}: expected a whole number between {least} and {most}, got {given}",
                    at=self.at(key),
                    least=least,
                    most=most,
                    given=given,
                ),
                key=self.at(key),
            )
        return value

    def duration(self, key: str, *, least: timedelta, most: timedelta) -> timedelta | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(key, say("a duration such as 30s, 10m or 1h30m"))
        from chimes.triggers.duration import format_duration_go, parse_duration, shown

        try:
            found = parse_duration(value)
        except InvalidTrigger as error:
            raise self.because(key, error) from None
        if not least <= found <= most:
            raise ConfigError(
                say(
                    "{at}: expected a duration between {least} and {most}, got {given}",
                    at=self.at(key),
                    least=format_duration_go(least),
                    most=format_duration_go(most),
                    given=shown(value),
                ),
                key=self.at(key),
            )
        return found

    def choice(self, key: str, known: Collection[str]) -> str | None:
        value = self._value.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(key, say("one of {known}", known=", ".join(known)))
        if value not in known:
            raise _unknown_word(self.at(key), value, known)
        return value

    def section(self, key: str, *, known: Collection[str] | None = None) -> Section | None:
        value = self._value.get(key)
        return None if value is None else Section(value, self.at(key), known=known)

    def wrong(self, key: str, expected: str) -> ConfigError:
        given = kind_of(self._value.get(key))
        if given == "text":
            given = say("other text")
        return ConfigError(
            say(
                "{at}: expected {expected}, got {given}",
                at=self.at(key),
                expected=expected,
                given=given,
            ),
            key=self.at(key),
        )

    def because(self, key: str, error: InvalidTrigger) -> ConfigError:
        problem = error.message
        if error.hint:
            problem = say("{message} ({hint})", message=problem, hint=error.hint)
        return ConfigError(
            say("{where}: {problem}", where=self.at(key), problem=problem), key=self.at(key)
        )


def _unknown_key(path: str, given: str, known: Collection[str]) -> ConfigError:
    from chimes.triggers.duration import shown

    message = say(
        "{path}: unknown key {key}; {hint}", path=path, key=shown(given), hint=_meant(given, known)
    )
    return ConfigError(message, key=path)


def _unknown_word(path: str, given: str, known: Collection[str]) -> ConfigError:
    from chimes.triggers.duration import shown

    message = say(
        "{path}: unknown {word}; {hint}", path=path, word=shown(given), hint=_meant(given, known)
    )
    return ConfigError(message, key=path)


def _meant(given: str, known: Collection[str]) -> str:
    from chimes.triggers.reading import nearest

    return nearest(given, known) or say("known are {known}", known=", ".join(sorted(known)))


def kind_of(value: object) -> str:
    return _NAMES.get(type(value), type(value).__name__)


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ConfigError(
            say("{path}: expected `key: value`, got {given}", path=path, given=kind_of(value)),
            key=path,
        )
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(
                say("{path}: the key {key!r} is no text; quote it", path=path, key=str(key)[:64]),
                key=path,
            )
    return value
