"""Column values: times, JSON text, and parts that many rows share.

Decoding a trigger, target or policy is memoised by its text: the values are frozen, most schedules
share their policy, and schedules that fire together often share their trigger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from chimes.clock import from_micros, to_micros
from chimes.errors import ChimesError
from chimes.i18n import to_stored
from chimes.model.access import Owner, OwnerType
from chimes.model.policy import Policy
from chimes.model.run import RunStatus
from chimes.model.target import Target, TaskTarget
from chimes.redaction import SEALED
from chimes.store.codec.values import (
    open_json,
    open_plain,
    policy_from_plain,
    policy_to_plain,
    target_from_plain,
    target_to_plain,
)
from chimes.triggers import Trigger, trigger_from_dict
from chimes.triggers.zones import UTC_NAME

#: Faster than the constructor of the enumeration.
STATUSES = {status.value: status for status in RunStatus}

_TASK = {"kind", "name", "args"}

Value = str | int | float | None
Values = tuple[Value, ...]

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode(value: object) -> str:
    return clean(_dumps(value))


def encode_object(value: Mapping[str, object]) -> str:
    return encode(dict(value)) if value else "{}"


def _loads(text: str) -> object:
    """`json.loads`, but quicker for nearly all texts. Other decoders do not accept NaN, numbers
    beyond the range of a float or half a surrogate pair."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text)


def decode_object(text: str) -> dict[str, object]:
    decoded = {} if text == "{}" else _loads(text)
    assert isinstance(decoded, dict)
    return decoded


def clean(text: str) -> str:
    """Replaces characters that cannot be stored, such as half a surrogate pair from a broken
    receiver: they must not keep a completion from being stored."""
    if "\0" in text:
        # PostgreSQL cannot store NUL either.
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def stored_text(text: str) -> str:
    """A text about a run or schedule: a message is stored with its code and parameters."""
    return clean(to_stored(text))


def number_of(text: str) -> int:
    """63 bits of a hash, never 0: a number that is practically unique for the text."""
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 1 or 1


@lru_cache(maxsize=65_536)
def schedule_number(schedule_id: str) -> int:
    """The key of a schedule."""
    return number_of(schedule_id)


#: Not cached: hashing a moment with a time zone takes longer than converting it.
micros = to_micros

_CONVERTED: dict[int, tuple[datetime, int]] = {}
_MOST_CONVERTED = 1024


def repeated_micros(moment: datetime) -> int:
    """`micros` of an object that many rows share, such as the time of a scheduler pass or a slot:
    found by its identity. For other objects it takes longer."""
    known = _CONVERTED.get(id(moment))
    if known is not None and known[0] is moment:
        return known[1]
    number = to_micros(moment)
    if len(_CONVERTED) >= _MOST_CONVERTED:
        _CONVERTED.clear()
    _CONVERTED[id(moment)] = moment, number
    return number


def maybe_micros(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


# The times of one run are often equal, and so are those of runs that fire together.
@lru_cache(maxsize=4096)
def maybe_moment(value: int | None) -> datetime | None:
    return None if value is None else from_micros(value)


if TYPE_CHECKING:

    def moment_of(value: int) -> datetime: ...

else:
    moment_of = maybe_moment


@lru_cache(maxsize=4096)
def owner_of(owner_type: str, owner_id: str) -> Owner:
    return Owner(type=OwnerType(owner_type), id=owner_id)


@lru_cache(maxsize=4096)
def trigger_of(text: str) -> Trigger:
    plain = _loads(text)
    return trigger_from_dict(open_plain(plain) if SEALED in text else plain)


_ITS_ZONE = '"timezone":"'


def zone_in(text: str) -> str | None:
    """Returns the time zone of a trigger without decoding the trigger; None if it cannot be read.
    There are thousands at a time, and most have a simple form whose zone is cut out of the text."""
    if "TZ=" not in text and '"exclude"' not in text and text.startswith('{"kind":'):
        _, found, rest = text.partition(_ITS_ZONE)
        return rest.partition('"')[0] if found else UTC_NAME
    try:
        plain = json.loads(text)
        if "TZ=" in plain.get("expression", ""):
            return trigger_of(text).zone
        zone = plain.get("timezone", UTC_NAME)
    except (ValueError, AttributeError, TypeError, ChimesError):
        return None
    return zone if isinstance(zone, str) else None


@lru_cache(maxsize=4096)
def target_of(text: str) -> Target:
    plain = _loads(text)
    if SEALED in text:
        plain = open_plain(plain)
    # Task arguments differ from run to run, so decoding is not cached and has to be fast.
    if isinstance(plain, dict) and plain.keys() == _TASK and plain["kind"] == "task":
        name, args = plain["name"], plain["args"]
        if isinstance(name, str) and isinstance(args, dict):
            return TaskTarget(name=name, args=args, kind="task")
    return target_from_plain(plain)


# As many as targets: recipients are part of a policy, and often differ.
@lru_cache(maxsize=4096)
def policy_of(text: str) -> Policy:
    return policy_from_plain(_loads(open_json(text)))


@lru_cache(maxsize=4096)
def policy_text(policy: Policy) -> str:
    return encode(policy_to_plain(policy))


class TargetTexts:
    """Encodes the targets of one batch, each object once: the runs of a schedule share its target.
    Keyed by identity, because a target with headers has no hash."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Target, str]] = {}

    def __call__(self, target: Target) -> str:
        cached = self._texts.get(id(target))
        if cached is None:
            return self.add(target, encode(target_to_plain(target)))
        return cached[1]

    def add(self, target: Target, text: str) -> str:
        # Keeps the object alive, so that no other object gets its identity meanwhile.
        self._texts[id(target)] = (target, text)
        return text
