"""Secrets in stored JSON: each value that redaction recognises is replaced by an envelope.

A whole text, list or object is sealed, never a part of a text: a URL with a password is one
envelope. What stores search and join by (names, owners, times) is never sealed. A text that looks
like an envelope is sealed again, so that nobody can have a copied envelope opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from chimes.envelope import Keyring, is_sealed, key_of, open_sealed
from chimes.redaction import SEALED, has_secrets, may_have_secrets, replace_secrets

_Plain = dict[str, object]

#: The parts of schedules, runs, definitions and deliveries that people fill in.
_PARTS = ("target", "policy", "recipient", "door_data")
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_REMEMBERED_LENGTH = 8 * 1024


def secrets_of(plain: Mapping[str, object]) -> list[object]:
    """The values that are sealed in stored data, and envelopes."""
    found: list[object] = []

    def note(_name: str, value: object) -> object:
        found.append(value)
        return value

    replace_secrets(plain, note)
    return found


# --- plain JSON data ------------------------------------------------------------------------------
def seal_plain(plain: _Plain, keyring: Keyring) -> _Plain:
    """A schedule, run, definition or delivery with its secrets sealed; the same object if it has
    none."""
    if not keyring.can_seal or not has_secret_parts(plain):
        return plain
    return plain | replace_secrets(_parts(plain), _sealer(keyring))


def has_secret_parts(plain: _Plain) -> bool:
    """Whether `seal_plain` seals anything."""
    return bool(secrets_of(_parts(plain)))


def _parts(plain: _Plain) -> _Plain:
    return {name: plain[name] for name in _PARTS if name in plain}


def seal_fields(plain: _Plain, keyring: Keyring) -> _Plain:
    """Any data with the secrets in all of its fields sealed."""
    if not keyring.can_seal or not secrets_of(plain):
        return plain
    return replace_secrets(plain, _sealer(keyring))


def open_parts(plain: Any) -> Any:
    """The reverse of `seal_plain`. SecretUnreadable without the key. Other parts, such as results,
    stay as they are: an envelope in them was written by others."""
    if not isinstance(plain, dict):
        return plain
    return plain | {name: _open(name, value) for name, value in _parts(plain).items()}


def open_plain(value: Any) -> Any:
    """The reverse of `seal_fields`."""
    return _open("", value)


def _sealer(keyring: Keyring) -> Any:
    return lambda name, value: keyring.seal(value, name)


def _open(name: str, value: object) -> object:
    if isinstance(value, str):
        return open_sealed(value, name) if is_sealed(value) else value
    if isinstance(value, Mapping):
        return {key: _open(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_open(name, item) for item in value]
    return value


# --- the text of a JSON object --------------------------------------------------------------------
def seal_json(text: str, keyring: Keyring) -> str:
    if not keyring.can_seal or not has_secret_fields(text):
        return text
    return _dumps(replace_secrets(json.loads(text), _sealer(keyring)))


def open_json(text: str) -> str:
    return _dumps(open_plain(json.loads(text))) if SEALED in text else text


def has_secret_fields(text: str) -> bool:
    """Whether `seal_json` seals anything."""
    return (_remembered if len(text) <= _REMEMBERED_LENGTH else _has_secret_fields)(text)


def _has_secret_fields(text: str) -> bool:
    if not may_have_secrets(text) and SEALED not in text:
        return False
    return bool(secrets_of(json.loads(text)))


#: Most definitions and policies are written many times.
_remembered = lru_cache(maxsize=4096)(_has_secret_fields)


def reseal_json(text: str, keyring: Keyring) -> str:
    """The text with all secrets under the current key; unchanged if they are, or if it is not a
    JSON object."""
    plain = _stale(text, keyring, lambda found: found)
    return text if plain is None else _dumps(seal_fields(open_plain(plain), keyring))


def reseal_parts(text: str, keyring: Keyring) -> str:
    """The same for the text of what `seal_plain` returns."""
    plain = _stale(text, keyring, _parts)
    return text if plain is None else _dumps(seal_plain(open_parts(plain), keyring))


def _stale(text: str, keyring: Keyring, parts: Callable[[_Plain], _Plain]) -> _Plain | None:
    """The JSON object if one of its secrets has no envelope of the current key."""
    key = keyring.current()
    try:
        plain = json.loads(text)
    except ValueError:
        return None
    if key is None or not isinstance(plain, dict):
        return None
    return None if all(key_of(each) == key.id for each in secrets_of(parts(plain))) else plain


# --- any text: a checkpoint, a kept response ------------------------------------------------------
#: The field of a response that is kept for an Idempotency-Key.
RESPONSE = "response"
#: Documents with hashes of passwords, which must be readable without the key.
_HASHES = "dashboard:"


def seal_text(text: str, field: str, keyring: Keyring) -> str:
    """The whole text in an envelope if it contains a secret."""
    if field.startswith(_HASHES) or not (has_secrets(text) or is_sealed(text)):
        return text
    return str(keyring.seal(text, field))


def open_text(text: str, field: str) -> str:
    return str(open_sealed(text, field)) if is_sealed(text) else text


def reseal_text(text: str, field: str, keyring: Keyring) -> str:
    key = keyring.current()
    if key is None or key_of(text) == key.id:
        return text
    return seal_text(open_text(text, field), field, keyring)
