"""Reading a TZif file (RFC 8536) into two sorted arrays.

`instants[i]` is the UTC second at which the offset becomes `offsets[i + 1]`; `offsets[0]` holds
before the first of them. Changes of name or of the DST flag alone are left out: only what moves
the wall clock matters here. Years after the last stored change follow the POSIX rule in the
footer.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import date

EPOCH_ORDINAL = 719163  # date(1970, 1, 1).toordinal()

_HEADER = struct.Struct(">4s1s15x6I")
_NAME = r"(?:<[^>]+>|[A-Za-z]+)"
_TIME = r"[+-]?\d+(?::\d+(?::\d+)?)?"
_FOOTER = re.compile(
    rf"{_NAME}({_TIME})(?:{_NAME}({_TIME})?,([^,/]+)(?:/({_TIME}))?,([^,/]+)(?:/({_TIME}))?)?"
)


class Transitions:
    """The changes of one zone up to `until_year`, as read from its TZif file."""

    __slots__ = ("instants", "offsets")

    def __init__(self, data: bytes, until_year: int) -> None:
        instants, offsets, footer = _read_body(data)
        self.instants: list[int] = []
        self.offsets: list[int] = offsets[:1]
        for instant, offset in zip(instants, offsets[1:], strict=True):
            self._append(instant, offset)
        for instant, offset in _rule_changes(footer, instants[-1] if instants else 0, until_year):
            self._append(instant, offset)

    def _append(self, instant: int, offset: int) -> None:
        if offset != self.offsets[-1]:
            self.instants.append(instant)
            self.offsets.append(offset)


def _read_body(data: bytes) -> tuple[list[int], list[int], str]:
    """The 64-bit block; the 32-bit block before it is only skipped."""
    _, _, isut, isstd, leap, times, types, chars = _HEADER.unpack_from(data, 0)
    start = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    _, _, isut, isstd, leap, times, types, chars = _HEADER.unpack_from(data, start)
    at = start + 44
    instants = list(struct.unpack_from(f">{times}q", data, at))
    at += times * 8
    kinds = data[at : at + times]
    at += times
    utoff = [struct.unpack_from(">i", data, at + 6 * n)[0] for n in range(types)]
    at += types * 6 + chars + leap * 12 + isstd + isut
    footer = data[at:].strip(b"\n").decode("ascii")
    return instants, [utoff[0], *(utoff[kind] for kind in kinds)], footer


def _rule_changes(footer: str, after: int, until_year: int) -> list[tuple[int, int]]:
    found = _FOOTER.fullmatch(footer)
    if found is None or found[3] is None:
        return []
    standard = -_seconds(found[1])
    summer = -_seconds(found[2]) if found[2] else standard + 3600
    begins, ends = _rule_day(found[3]), _rule_day(found[5])
    begin_time = _seconds(found[4] or "2")
    end_time = _seconds(found[6] or "2")
    first_year = date.fromordinal(after // 86400 + EPOCH_ORDINAL).year
    changes = []
    for year in range(first_year, until_year + 1):
        changes.append((begins(year) * 86400 + begin_time - standard, summer))
        changes.append((ends(year) * 86400 + end_time - summer, standard))
    return sorted(change for change in changes if change[0] > after)


def _seconds(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    return sign * sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))


def _rule_day(rule: str) -> Callable[[int], int]:
    """Epoch day of `Mm.w.d`, `Jn` or `n` in a given year."""
    if rule.startswith("M"):
        month, week, weekday = (int(part) for part in rule[1:].split("."))

        def nth_weekday(year: int) -> int:
            first = date(year, month, 1).toordinal()
            day = first + (weekday - first) % 7 + 7 * (week - 1)
            after_month = date(year + month // 12, month % 12 + 1, 1).toordinal()
            return (day if day < after_month else day - 7) - EPOCH_ORDINAL

        return nth_weekday
    if rule.startswith("J"):
        number = int(rule[1:])

        def without_leap_day(year: int) -> int:
            leap = (
                number >= 60 and date(year, 3, 1).toordinal() - date(year, 1, 1).toordinal() == 60
            )
            return date(year, 1, 1).toordinal() + number - 1 + leap - EPOCH_ORDINAL

        return without_leap_day
    return lambda year: date(year, 1, 1).toordinal() + int(rule) - EPOCH_ORDINAL
