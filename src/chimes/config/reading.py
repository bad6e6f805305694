"""One setting from its text (environment, flags) or from its YAML value.

A reader returns the value, or raises `Expected` with what it wanted; the caller knows the key and
what was given.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from chimes.config.settings import ROLES
from chimes.errors import InvalidTrigger
from chimes.triggers.duration import format_duration_go, parse_duration
from chimes.triggers.reading import nearest
from chimes.wording import say

Read = Callable[[object], object]

TRUE = ("true", "1", "yes", "on")
FALSE = ("false", "0", "no", "off")
LONGEST = timedelta(days=36500)
LEVELS = ("debug", "info", "warning", "error", "critical")
_LEVEL_ALIASES = {"warn": "warning", "fatal": "critical"}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADERS_WANTED = say("headers as `Name: value`, or as an object of texts")


class Expected(ValueError):
    """The value is not what the setting needs; the message says what that is."""


def text(value: object) -> str:
    if not isinstance(value, str):
        raise Expected(say("text"))
    if any(ord(char) < 32 for char in value):
        raise Expected(say("text without control characters"))
    return value.strip()


def path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise Expected(say("a path"))
    return Path(value).expanduser()


def number(least: int, most: int) -> Read:
    def read(value: object) -> int:
        if isinstance(value, str) and value.strip().isascii():
            stripped = value.strip()
            value = int(stripped) if stripped.isdecimal() and len(stripped) < 20 else None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Expected(say("a whole number between {least} and {most}", least=least, most=most))
        return value

    return read


def rate(value: object) -> float:
    found = _float(value)
    if not (math.isfinite(found) and found > 0):
        raise Expected(say("a number above 0"))
    return found


def price(value: object) -> float:
    found = _float(value)
    if not (math.isfinite(found) and found >= 0):
        raise Expected(say("a number, 0 or more"))
    return found


def _float(value: object) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            return float(value)
    return math.nan


def flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    # YAML reads a bare 1 as a number and yes as a truth value, so both may arrive.
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise Expected(say("true or false (also 1/0, yes/no)"))


def duration(*, least: timedelta = timedelta(0), most: timedelta = LONGEST) -> Read:
    def read(value: object) -> timedelta:
        if not isinstance(value, str | timedelta):
            raise Expected(say("a duration such as 10s, 1h30m or PT1H30M"))
        try:
            found = parse_duration(value, allow_zero=True)
        except InvalidTrigger as error:
            raise _expected(say("a duration such as 10s, 1h30m or PT1H30M"), error.hint) from None
        if found < least:
            raise Expected(say("a duration of {least} or more", least=format_duration_go(least)))
        if found > most:
            raise Expected(say("a duration of {most} or less", most=format_duration_go(most)))
        return found

    return read


def seconds(*, least: timedelta = timedelta(0), most: timedelta = LONGEST) -> Read:
    """A duration; a bare number, as in the names that end in _SEC, means seconds (R1.38)."""
    read = duration(least=least, most=most)

    def either(value: object) -> object:
        number = _float(value)
        return read(value if math.isnan(number) else f"{number:.6f}s")

    return either


def names(value: object) -> tuple[str, ...]:
    """A list; in the environment, separated by commas."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise Expected(say("a list of texts, or one text separated by commas"))
    return tuple(text(each) for each in value if each.strip())


def headers(value: object) -> tuple[tuple[str, str], ...]:
    """A mapping; in the environment a JSON object, or `Name: value` and further ones after a
    semicolon or in lines of their own."""
    if isinstance(value, str):
        value = _mapping_of(value)
    if not isinstance(value, dict):
        raise Expected(_HEADERS_WANTED)
    found = tuple((str(name), text(str(each))) for name, each in value.items())
    for name, each in found:
        if not _TOKEN.fullmatch(name) or not each or not isinstance(value[name], str | int):
            raise Expected(_HEADERS_WANTED)
    if len({name.lower() for name, _ in found}) != len(found):
        raise Expected(say("each header once"))
    return found


def _mapping_of(given: str) -> object:
    if given.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            return json.loads(given)
        return None
    parts = [part.partition(":") for part in re.split(r"[;\n]", given) if part.strip()]
    return {name.strip(): value.strip() for name, _, value in parts}


def chats(value: object) -> tuple[str, ...]:
    """Numbers of Telegram chats; those of groups are negative."""
    given = names([str(each) for each in value] if isinstance(value, list | tuple) else value)
    if not all(each.removeprefix("-").isdecimal() for each in given):
        raise Expected(say("numbers of chats, such as 123456789 or -1001234567890"))
    return given


def choice(*known: str) -> Read:
    def read(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else ""
        if word not in known:
            wanted = say("one of {known}", known=", ".join(filter(None, known)))
            raise _expected(wanted, nearest(word, known) if word else None)
        return word

    return read


def roles(value: object) -> tuple[str, ...]:
    given = tuple(dict.fromkeys(each.lower() for each in names(value)))
    wanted = say("one or more of {known}", known=", ".join(ROLES))
    if not given:
        raise Expected(wanted)
    for each in given:
        if each not in ROLES:
            raise _expected(wanted, nearest(each, ROLES) if each else None)
    return tuple(role for role in ROLES if role in given)


def level(value: object) -> str:
    word = value.strip().lower() if isinstance(value, str) else ""
    return str(choice(*LEVELS)(_LEVEL_ALIASES.get(word, word)))


def zone(value: object) -> str:
    from chimes.triggers.zone import parse_zone

    try:
        return parse_zone(text(value)).name
    except InvalidTrigger as error:
        raise _expected(say("an IANA time zone such as Asia/Bangkok"), error.hint) from None


def _expected(wanted: str, hint: str | None) -> Expected:
    return Expected(say("{message} ({hint})", message=wanted, hint=hint) if hint else wanted)
