"""Keeps secrets out of what is stored and logged about a callback (S45)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote

from chimes.redaction import HIDDEN, is_secret_name, query_pairs

# Shorter values are words that occur anywhere; masking them would garble results.
_SHORTEST_SECRET = 8


def secrets_of(
    headers: Iterable[tuple[str, str]], signing_secrets: Iterable[str], tail: str
) -> tuple[str, ...]:
    """Values that must not be seen again, longest first so that none hides inside another."""
    found = set(signing_secrets)
    for name, value in headers:
        if is_secret_name(name):
            found.add(value)
            # `Bearer <token>`: a sink may echo the token alone.
            found.update(value.split())
    for _, name, value in query_pairs("?" + tail.partition("?")[2]):
        if is_secret_name(unquote(name)):
            found |= {value, unquote(value)}
    return tuple(sorted((s for s in found if len(s) >= _SHORTEST_SECRET), key=len, reverse=True))


def scrubbed(value: object, secrets: Sequence[str]) -> object:
    """A text, or the texts of a mapping or a list, without the secrets."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, Mapping):
        return {key: scrubbed(inner, secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [scrubbed(inner, secrets) for inner in value]
    return value
