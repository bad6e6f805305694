"""Keeps secrets out of what is stored and logged about a callback (S45)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import unquote

from chimes.model.target import HttpTarget

MASK = "***"
# Shorter values are words that occur anywhere; masking them would garble results.
_SHORTEST_SECRET = 8

_SECRET_NAME = re.compile(
    r"auth|token|secret|passw|pwd|api-?_?key|access-?_?key|private-?_?key|signature|credential"
    r"|session|cookie|^(key|sig|code|jwt)$",
    re.IGNORECASE,
)
_QUERY_PAIR = re.compile(r"([?&;])([^=&;]*)=([^&;]*)")
_BOT_TOKEN = re.compile(r"(/bot\d+:)[^/?]+")
_KNOWN_SHAPES = re.compile(r"(whsec_|chm_)[A-Za-z0-9+/=_-]{8,}")


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def masked_tail(tail: str) -> str:
    """Path and query for people to read: values of telling parameters are gone."""
    if "?" in tail:
        path, _, query = tail.partition("?")
        tail = path + _QUERY_PAIR.sub(_masked_pair, f"?{query}")
    return _KNOWN_SHAPES.sub(rf"\1{MASK}", _BOT_TOKEN.sub(rf"\1{MASK}", tail))


def secrets_of(target: HttpTarget, tail: str) -> tuple[str, ...]:
    """Values that must not be seen again, longest first so that none hides inside another."""
    if not target.headers and not target.signing_secrets and "?" not in tail:
        return ()
    found = set(target.signing_secrets)
    for name, value in target.headers.items():
        if is_secret_name(name):
            found.add(value)
            # `Bearer <token>`: a sink may echo the token alone.
            found.update(value.split())
    for _, name, value in _QUERY_PAIR.findall("?" + tail.partition("?")[2]):
        if is_secret_name(name):
            found |= {value, unquote(value)}
    return tuple(sorted((s for s in found if len(s) >= _SHORTEST_SECRET), key=len, reverse=True))


def scrubbed(value: object, secrets: Sequence[str]) -> object:
    """A text, or the texts of a mapping, without the secrets."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, MASK)
        return value
    if isinstance(value, Mapping):
        return {key: scrubbed(inner, secrets) for key, inner in value.items()}
    return value


def _masked_pair(found: re.Match[str]) -> str:
    value = MASK if is_secret_name(found[2]) else found[3]
    return f"{found[1]}{found[2]}={value}"
