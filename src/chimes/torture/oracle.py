"""Slots of a trigger by brute force, without code of the product.

Times are microseconds since 1970. Supports the triggers of the workload: intervals with an anchor,
cron with seconds in UTC, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = re.compile(r"(?:PT)?(?:(\d+)H)?(?:(\d+)M(?!S))?(?:(\d+(?:\.\d+)?)S)?(?:(\d+)MS)?", re.I)
_FIELDS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def micros(text: str) -> int:
    """Microseconds of an RFC 3339 time."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def text_of(moment: int) -> str:
    at = _EPOCH + timedelta(microseconds=moment)
    return at.isoformat().replace("+00:00", "Z")


@dataclass(frozen=True)
class Interval:
    step: int
    anchor: int

    def slots(self, after: int, until: int) -> Iterator[int]:
        number = max(0, (after - self.anchor) // self.step)
        while (slot := self.anchor + number * self.step) <= until:
            if slot > after:
                yield slot
            number += 1


@dataclass(frozen=True)
class Cron:
    #: Allowed values of each of the six fields.
    fields: tuple[frozenset[int], ...]

    def slots(self, after: int, until: int) -> Iterator[int]:
        """Checks every second."""
        for second in range(after // SECOND + 1, until // SECOND + 1):
            at = _EPOCH + timedelta(seconds=second)
            weekday = (at.weekday() + 1) % 7
            values = (at.second, at.minute, at.hour, at.day, at.month, weekday)
            if all(value in allowed for value, allowed in zip(values, self.fields, strict=True)):
                yield second * SECOND


@dataclass(frozen=True)
class Moment:
    at: int

    def slots(self, after: int, until: int) -> Iterator[int]:
        if after < self.at <= until:
            yield self.at


Spec = Interval | Cron | Moment


def spec_of(trigger: Mapping[str, object]) -> Spec:
    """From a trigger as the API returns it. Rejects triggers that the workload does not use."""
    known = {"kind", "every", "anchor", "expression", "dialect", "at", "timezone"}
    if set(trigger) - known or trigger.get("timezone", "UTC") != "UTC":
        raise ValueError(f"the oracle does not know {dict(trigger)}")
    match trigger["kind"]:
        case "every":
            return Interval(_duration(str(trigger["every"])), micros(str(trigger["anchor"])))
        case "cron":
            return Cron(tuple(_cron_fields(str(trigger["expression"]))))
        case "once":
            return Moment(micros(str(trigger["at"])))
    raise ValueError(f"the oracle does not know {dict(trigger)}")


def _duration(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise ValueError(f"not a duration of the workload: {text}")
    hours, minutes, seconds, thousandths = found.groups()
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60
    return whole * SECOND + round(float(seconds or 0) * SECOND) + int(thousandths or 0) * 1000


def _cron_fields(expression: str) -> Iterator[frozenset[int]]:
    words = expression.split()
    if len(words) != len(_FIELDS) or (words[3] != "*" and words[5] != "*"):
        raise ValueError(f"not a cron expression of the workload: {expression}")
    for word, (low, high) in zip(words, _FIELDS, strict=True):
        yield frozenset(value for part in word.split(",") for value in _part(part, low, high))


def _part(part: str, low: int, high: int) -> range:
    bounds, _, step = part.partition("/")
    if bounds == "*":
        first, last = low, high
    else:
        start, _, end = bounds.partition("-")
        first = int(start)
        last = int(end) if end else high if step else first
    return range(first, last + 1, int(step or 1))
