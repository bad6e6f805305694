"""Text made fit to be shown: without secrets (RELIABILITY 8), without control characters (S68)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

HIDDEN = "***"

#: Names of headers and fields whose value is a secret wherever it turns up.
SECRET_NAMES = frozenset(
    {
        "admin_token",
        "api_key",
        "apikey",
        "authorization",
        "cookie",
        "password",
        "proxy-authorization",
        "secret",
        "set-cookie",
        "signing_secrets",
        "token",
        "x-admin-token",
        "x-api-key",
    }
)
_SHORTEST_SECRET = 4
_DEEPEST = 8


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compiled when they are needed: most commands of the command line never show a secret."""
    return (
        # A header in a message, a dict or byte pairs: up to the closing quote, or the line.
        (
            re.compile(
                r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-admin-token)"
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
            re.compile(r"(?i)([?&](?:token|api_key|key|secret|password|signature)=)[^&\s\"'#]+"),
            r"\1" + HIDDEN,
        ),
    )


class Redactor:
    """Hides the kinds of secrets that Chimes knows, and those it was given."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Longest first, so that a secret inside another leaves no rest of it.
        known = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        self._known = sorted(known, key=len, reverse=True)

    def text(self, text: str) -> str:
        for secret in self._known:
            text = text.replace(secret, HIDDEN)
        for pattern, hidden in _patterns():
            text = pattern.sub(hidden, text)
        return text

    def value(self, value: object, depth: int = 0) -> object:
        """The same for JSON-like data; what is no plain value becomes text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if depth < _DEEPEST and isinstance(value, Mapping):
            return {
                str(key): HIDDEN
                if str(key).lower() in SECRET_NAMES and inner
                else self.value(inner, depth + 1)
                for key, inner in value.items()
            }
        if depth < _DEEPEST and isinstance(value, list | tuple | set | frozenset):
            return [self.value(inner, depth + 1) for inner in value]
        return self.text(value if isinstance(value, str) else str(value))


def escaped(text: str) -> str:
    """The text in one line, with nothing in it that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
