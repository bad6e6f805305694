"""Redacts secrets and escapes control characters in text that is shown or logged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from urllib.parse import unquote

HIDDEN = "***"

_Mask = Callable[[Mapping[str, object]], dict[str, object]]

_MIN_SECRET_LENGTH = 4
_MAX_DEPTH = 8
_SENSITIVE_WORDS = (
    r"auth(?!or(?!i))|token|secret|passw|pwd|api-?_?key|access-?_?key|private-?_?key|signature"
    r"|credential|session|cookie"
)
_SENSITIVE_NAMES = r"key|sig|code|jwt"
#: Secret as names of headers and parameters, but ordinary as fields of a record.
_ORDINARY_FIELDS = frozenset({"code", "key"})


@lru_cache(maxsize=1)
def _secret_names() -> re.Pattern[str]:
    return re.compile(rf"{_SENSITIVE_WORDS}|^({_SENSITIVE_NAMES})$", re.IGNORECASE)


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether the value of a header or a query parameter of this name is a secret."""
    return _secret_names().search(name) is not None


def is_secret_field(name: str) -> bool:
    """The same for a field of a log record or of a stored value."""
    return name.lower() not in _ORDINARY_FIELDS and is_secret_name(name)


def mask_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: HIDDEN if is_secret_name(name) else value for name, value in headers.items()}


def mask_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Hide non-empty values under secret-looking names at any depth."""
    return {
        name: HIDDEN if is_secret_field(name) and value else _mask_nested(value)
        for name, value in arguments.items()
    }


def mask_result(result: Mapping[str, object]) -> dict[str, object]:
    """Like `mask_arguments`, but shows token counts of a model."""
    return {
        name: HIDDEN if _is_secret(name, value) else _mask_nested(value, mask_result)
        for name, value in result.items()
    }


def _is_secret(name: str, value: object) -> bool:
    counts = isinstance(value, int | float) and "tokens" in name.lower()
    return is_secret_field(name) and bool(value) and not counts


def _mask_nested(value: object, masked: _Mask = mask_arguments) -> object:
    if isinstance(value, Mapping):
        return masked(value)
    if isinstance(value, list | tuple):
        return [_mask_nested(each, masked) for each in value]
    return value


def mask_secrets(value: Mapping[str, object]) -> dict[str, object]:
    """A stored value, such as a schedule, with secrets masked at any depth."""
    return {name: _mask_value(name, item) for name, item in value.items()}


def _mask_value(name: str, value: object) -> object:
    if name == "headers" and isinstance(value, Mapping):
        return {key: HIDDEN if is_secret_name(key) else item for key, item in value.items()}
    if name in ("args", "input") and isinstance(value, Mapping):
        return mask_arguments(value)
    if name == "body" and isinstance(value, str):
        return _mask_body(value)
    if name == "url" and isinstance(value, str):
        return mask_url(value)
    if name == "to" and isinstance(value, str) and "://" in value:
        return mask_url(value)
    if is_secret_field(name):
        return [HIDDEN for _ in value] if isinstance(value, list) else HIDDEN
    return _mask_nested(value, mask_secrets)


def _mask_body(body: str) -> object:
    """Without field names secrets cannot be recognised, so only the length is recorded."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return mask_arguments(found)
    return {"characters": len(body)}


def query_pairs(query: str) -> list[tuple[str, str, str]]:
    """Separator, name and value of each parameter; the query begins with its `?`."""
    return _url_patterns()[0].findall(query)


def mask_tail(tail: str) -> str:
    """Path and query without the values of secret parameters."""
    pairs, bot_token, known_shapes = _url_patterns()
    if "?" in tail:
        path, _, query = tail.partition("?")
        tail = path + pairs.sub(_mask_pair, f"?{query}")
    return known_shapes.sub(rf"\1{HIDDEN}", bot_token.sub(rf"\1{HIDDEN}", tail))


def mask_url(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    if not mark:
        return mask_tail(url)
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return scheme + mark + authority + mask_tail(rest[len(authority) :])


def _mask_pair(found: re.Match[str]) -> str:
    value = HIDDEN if is_secret_name(unquote(found[2])) else found[3]
    return f"{found[1]}{found[2]}={value}"


@lru_cache(maxsize=1)
def _url_patterns() -> tuple[re.Pattern[str], ...]:
    return (
        re.compile(r"([?&;])([^=&;]*)=([^&;]*)"),
        re.compile(r"(/bot\d+:)[^/?]+"),
        re.compile(r"(whsec_|chm_)[A-Za-z0-9+/=_-]{8,}"),
    )


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compiled on first use: most CLI commands never need them."""
    return (
        # A header in a message, a dict or byte pairs: up to the closing quote, or the line.
        (
            re.compile(
                r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie"
                rf"|x-[a-z0-9_-]{{0,40}}?(?:{_SENSITIVE_WORDS})[a-z0-9_-]{{0,40}})"
                r"(\\?[\"']?\s*[:=,]\s*b?\\?[\"']?)[^\"'\\\r\n]+"
            ),
            r"\1\2" + HIDDEN,
        ),
        (re.compile(r"(?i)\b(Bearer|ApiKey|Basic)\s+[A-Za-z0-9._~+/=-]{6,}"), r"\1 " + HIDDEN),
        (re.compile(r"chm_[A-Za-z0-9_-]+"), "chm_" + HIDDEN),
        (re.compile(r"whsec_[A-Za-z0-9+/=_-]+"), "whsec_" + HIDDEN),
        (re.compile(r"/bot[0-9]+:[A-Za-z0-9_-]+"), "/bot" + HIDDEN),
        # The scheme is bounded: unbounded, a long text without one costs its length squared.
        (
            re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s:/@]{0,200}):[^\s/]*@"),
            r"\1:" + HIDDEN + "@",
        ),
        (
            re.compile(
                rf"(?i)([?&;](?:[\w.-]{{0,40}}?(?:{_SENSITIVE_WORDS})[\w.-]{{0,40}}|{_SENSITIVE_NAMES})=)"
                r"[^&;\s\"'#]+"
            ),
            r"\1" + HIDDEN,
        ),
    )


class Redactor:
    """Hides secrets of known formats, and the given ones."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Longest first, so that a secret inside another leaves no rest of it.
        known = {secret for secret in secrets if len(secret) >= _MIN_SECRET_LENGTH}
        self._known = sorted(known, key=len, reverse=True)

    def text(self, text: str) -> str:
        for secret in self._known:
            text = text.replace(secret, HIDDEN)
        for pattern, hidden in _patterns():
            text = pattern.sub(hidden, text)
        return text

    def value(self, value: object, depth: int = 0) -> object:
        """The same for JSON-like data; other values become text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if depth < _MAX_DEPTH and isinstance(value, Mapping):
            return {
                str(key): HIDDEN
                if is_secret_field(str(key)) and inner
                else self.value(inner, depth + 1)
                for key, inner in value.items()
            }
        if depth < _MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
            return [self.value(inner, depth + 1) for inner in value]
        return self.text(value if isinstance(value, str) else str(value))


def escape_control(text: str) -> str:
    """The text on one line, without terminal control sequences."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
